"""Networks for images: from two convolutions to ResNet-50.

A convolution before batch norm has no bias: the norm would take it out again. The
ResNets start with a 3 x 3 convolution of stride 1 and no pooling, as is usual for 32 x 32 pixels (the 7 x 7 of stride 2
with pooling is for 224). A bottleneck halves the plane in its 3 x 3 convolution, where the paper's halves it in the
first 1 x 1 and so discards three quarters of the plane; the number of parameters is the same.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from crowdwise.learners.networks_base import Network, Shape, image_shape


def rodrigues(shape: Shape, n_classes: int) -> Network:
    """Four 3 x 3 convolutions without padding, each pooled; batch norm after the first pool; FC 128, dropout.

    The network for the 150 x 150 dogs and cats of Rodrigues and Pereira, of Max-MIG and of deepBP, where 7 x 7 x 64
    values reach the fully connected layer. Below 46 x 46 pixels none would be left.
    """
    channels, height, width = image_shape(
        "rodrigues", shape, least=46, instead="Use 'tanno', which takes smaller ones."
    )
    layers: list[nn.Module] = []
    for filters in (32, 32, 64, 64):
        layers += [nn.Conv2d(channels, filters, 3), nn.ReLU(), nn.MaxPool2d(2)]
        if len(layers) == 3:
            layers.append(nn.BatchNorm2d(filters))
        channels, height, width = filters, (height - 2) // 2, (width - 2) // 2
    layers += [nn.Flatten(), nn.Linear(channels * height * width, 128), nn.ReLU(), nn.Dropout(0.5)]
    return Network(nn.Sequential(*layers), 128, n_classes)


def tanno(shape: Shape, n_classes: int) -> Network:
    """3 x 3 convolutions 32, 32, a pool, 64, 64, then the average over the plane: Tanno's network for MNIST.

    The paper does not say how borders are treated; here they are padded, so that even 8 x 8 digits pass.
    """
    channels, *_ = image_shape("tanno", shape, least=2)
    layers: list[nn.Module] = []
    for filters in (32, 32, 64, 64):
        layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU()]
        if len(layers) == 4:
            layers.append(nn.MaxPool2d(2))
        channels = filters
    return Network(nn.Sequential(*layers, *_average()), channels, n_classes)


def cnn(shape: Shape, n_classes: int) -> Network:
    """A small convolutional network for any image: :func:`rodrigues` from 64 x 64 pixels on, :func:`tanno` below."""
    _, height, width = image_shape("cnn", shape, least=2)
    return (rodrigues if min(height, width) >= 64 else tanno)(shape, n_classes)


def lenet5(shape: Shape, n_classes: int) -> Network:
    """LeNet-5 with ReLU and max pooling, as GeoCrowdNet uses it on MNIST.

    LeCun's digits had been given a border to 32 x 32; images smaller than that get the same 2 pixels all around here,
    so that 28 x 28 and 32 x 32 both leave 5 x 5 x 16 values for the first fully connected layer.
    """
    channels, height, width = image_shape("lenet5", shape, least=12)
    border = 2 if min(height, width) < 32 else 0
    height, width = (((side + 2 * border - 4) // 2 - 4) // 2 for side in (height, width))
    trunk = nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=border), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16 * height * width, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
    )  # fmt: skip
    return Network(trunk, 84, n_classes)


def vgg16(shape: Shape, n_classes: int) -> Network:
    """VGG16 with batch norm and one fully connected layer, 512 to K: what Max-MIG trains on CIFAR-10."""
    channels, *_ = image_shape(
        "vgg16", shape, least=32, instead="Enlarge them, or use 'resnet18', which takes smaller ones."
    )
    layers: list[nn.Module] = []
    for filters, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            layers.append(_conv(channels, filters))
            channels = filters
        layers.append(nn.MaxPool2d(2))
    return Network(nn.Sequential(*layers, *_average()), channels, n_classes)


def resnet9(shape: Shape, n_classes: int) -> Network:
    """The nine-layer residual network of GeoCrowdNet on CIFAR-10: wide, shallow and quick to train."""
    channels, height, width = image_shape("resnet9", shape, least=8)
    plane = (height // 8, width // 8)  # that three pools leave
    trunk = nn.Sequential(
        _conv(channels, 64), _conv(64, 128), nn.MaxPool2d(2), Residual(nn.Sequential(_conv(128, 128), _conv(128, 128))),
        _conv(128, 256), nn.MaxPool2d(2), _conv(256, 512), nn.MaxPool2d(2),
        Residual(nn.Sequential(_conv(512, 512), _conv(512, 512))), nn.MaxPool2d(plane), nn.Flatten(),
    )  # fmt: skip
    return Network(trunk, 512, n_classes)


def resnet18(shape: Shape, n_classes: int) -> Network:
    """ResNet-18: two basic blocks at each of four widths."""
    return _resnet("resnet18", shape, n_classes, _basic, (2, 2, 2, 2))


def resnet34(shape: Shape, n_classes: int) -> Network:
    """ResNet-34: 3, 4, 6 and 3 basic blocks."""
    return _resnet("resnet34", shape, n_classes, _basic, (3, 4, 6, 3))


def resnet50(shape: Shape, n_classes: int) -> Network:
    """ResNet-50: 3, 4, 6 and 3 bottleneck blocks; Tanno's network for CIFAR-10."""
    return _resnet("resnet50", shape, n_classes, _bottleneck, (3, 4, 6, 3))


Block = Callable[[int, int, int], tuple[nn.Module, int]]
"""From channels, filters and stride to the path of a block and the channels that leave it."""


class Residual(nn.Module):
    """``last(path(x) + shortcut(x))``; the shortcut is x itself, and nothing comes last, unless given."""

    def __init__(self, path: nn.Module, shortcut: nn.Module | None = None, last: nn.Module | None = None) -> None:
        super().__init__()
        self.path = path
        self.shortcut = nn.Identity() if shortcut is None else shortcut
        self.last = nn.Identity() if last is None else last

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(self.path(x) + self.shortcut(x))
        return y


def _conv(channels: int, filters: int, kernel: int = 3, stride: int = 1, relu: bool = True) -> nn.Sequential:
    """A convolution that keeps the plane (but for its stride), batch norm, and ReLU where asked for."""
    layers = [nn.Conv2d(channels, filters, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(filters)]
    return nn.Sequential(*layers, *([nn.ReLU()] if relu else []))


def _average() -> list[nn.Module]:
    """The mean over the plane, as a vector."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten()]


def _basic(channels: int, filters: int, stride: int) -> tuple[nn.Module, int]:
    """The path of a basic block and the channels that leave it."""
    return nn.Sequential(_conv(channels, filters, 3, stride), _conv(filters, filters, relu=False)), filters


def _bottleneck(channels: int, filters: int, stride: int) -> tuple[nn.Module, int]:
    """The path of a bottleneck block: narrow, 3 x 3, four times as wide; and the channels that leave it."""
    narrow, across = _conv(channels, filters, 1), _conv(filters, filters, 3, stride)
    return nn.Sequential(narrow, across, _conv(filters, 4 * filters, 1, relu=False)), 4 * filters


def _resnet(name: str, shape: Shape, n_classes: int, block: Block, depths: tuple[int, int, int, int]) -> Network:
    """Blocks of 64, 128, 256 and 512 filters; the plane is halved where the filters double."""
    channels, *_ = image_shape(name, shape, least=8)
    layers: list[nn.Module] = [_conv(channels, 64)]
    channels = 64
    for filters, depth in zip((64, 128, 256, 512), depths, strict=True):
        for i in range(depth):
            stride = 2 if i == 0 and filters > 64 else 1
            path, out = block(channels, filters, stride)
            same = stride == 1 and channels == out
            layers.append(Residual(path, None if same else _conv(channels, out, 1, stride, relu=False), nn.ReLU()))
            channels = out
    return Network(nn.Sequential(*layers, *_average()), channels, n_classes)
