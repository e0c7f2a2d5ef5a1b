"""The networks that learners train: from a line to ResNet-50, by name, and any module of your own.

Every network here is a :class:`Network`: a ``trunk`` that makes a vector of an input and a ``head``, one linear layer,
that makes K logits (never probabilities) of the vector. Methods call the vector the hidden vector; :class:`Probe` finds
it in any module.

=============  ==========================================================  ========  =======  ==========================
name           trunk                                                       hidden    least    reference
=============  ==========================================================  ========  =======  ==========================
``linear``     the input as it is                                          its size  any      softmax regression
``mlp``        FC 128, dropout                                             128       any      Rodrigues and Pereira 2018
``herde``      FC 256, 128, dropout after each                             128       any      Herde et al. 2024
``nguyen``     FC 512, 512                                                 512       any      Nguyen et al. 2023
``rodrigues``  conv 32, 32, 64, 64, pooled after each; FC 128, dropout     128       46       Rodrigues and Pereira 2018
``tanno``      conv 32, 32, pool, conv 64, 64, average                     64        2        Tanno et al. 2019
``lenet5``     conv 6, pool, conv 16, pool, FC 120, FC 84                  84        12       LeCun et al. 1998
``vgg16``      13 conv in 5 blocks with batch norm, average                512       32       Simonyan, Zisserman 2015
``resnet9``    conv 64, 128, residual, conv 256, 512, residual, maximum    512       8        Ibrahim et al. 2023
``resnet18``   8 basic blocks (2, 2, 2, 2), average                        512       8        He et al. 2016
``resnet34``   16 basic blocks (3, 4, 6, 3), average                       512       8        He et al. 2016
``resnet50``   16 bottleneck blocks (3, 4, 6, 3), average                  2048      8        He et al. 2016
``cnn``        ``rodrigues`` from 64 pixels a side on, ``tanno`` below     128, 64   2
=============  ==========================================================  ========  =======  ==========================

``least`` is the smallest height and width. Images are (channels, height, width) of any size from there on: the plane at
the end of a VGG or a ResNet is pooled, which on 32 x 32 pixels is what the papers do.

Weights start as torch starts them, so ``torch.manual_seed`` before the call repeats a network. Batch norm cannot be
trained on one value per channel: a batch of a single image fails where the last plane is one pixel (a ResNet on 8 x 8).
Its running statistics, which ``eval`` uses, need some 40 steps to converge: evaluate no such network after fewer.

A convolution before batch norm has no bias: the norm would take it out again. The ResNets start with a 3 x 3
convolution of stride 1 and no pooling, as is usual for 32 x 32 pixels. A bottleneck halves the plane in its 3 x 3
convolution, where the paper's halves it in the first 1 x 1 and so discards three quarters of the plane.

Passes through a network in training can be recorded as CUDA graphs and replayed, which saves the launching of kernels
and pays with small batches; or compiled, which merges the steps between convolutions (batch norm, ReLU, sums) and pays
with large batches too, after up to a minute.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.core.constraints import is_count
from crowdwise.data.boundary import reason
from crowdwise.data.folders import write_whole
from crowdwise.errors import ExtraError, InputError, ParameterError, listing, suggestion
from crowdwise.learners.inputs import FirstLinear, Flat
from crowdwise.learners.training_settings import TrainingSettings

Shape = tuple[int, ...]
"""Of one input, without the batch: (D,) for features, (C, H, W) for images."""


class Network(nn.Module):
    """A classifier in two parts: ``trunk`` makes a vector of ``width`` numbers of an input, ``head`` K logits of it.

    ``last`` is the type of the last layer: another one where it is also the first, and takes sparse rows.

    >>> import torch
    >>> network = Network(nn.Linear(20, 128), 128, 3)
    >>> x = torch.zeros(5, 20)
    >>> network.trunk(x).shape, network(x).shape
    (torch.Size([5, 128]), torch.Size([5, 3]))
    """

    trunk: nn.Module
    head: nn.Linear

    def __init__(self, trunk: nn.Module, width: int, n_classes: int, last: type[nn.Linear] = nn.Linear) -> None:
        super().__init__()
        if not is_count(n_classes) or n_classes < 1:
            raise ParameterError(f"n_classes={n_classes!r}: expected a whole number of at least 1.")
        self.trunk, self.head = trunk, last(width, n_classes)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.trunk(x))


class QuickDropout(nn.Dropout):
    """Dropout whose random numbers have eight bits on a CPU: torch's own, of 64, take longer than a small network."""

    def forward(self, x: Tensor) -> Tensor:
        least = self.p * 256.0
        usual = not self.training or x.device.type != "cpu" or torch.compiler.is_compiling()
        if usual or not least or least != int(least):
            return super().forward(x)
        n = x.numel()
        drawn = torch.empty((n + 7) // 8, dtype=torch.int64).random_(-(2**63), None).view(torch.uint8)[:n]
        kept = drawn.view(x.shape).to(x.dtype).ge_(least)  # comparing bytes would take five times as long
        return x * kept.mul_(1.0 / (1.0 - self.p))


def input_size(shape: Shape) -> int:
    """How many numbers an input has."""
    if not shape or min(shape) < 1:
        raise InputError(f"expected inputs with at least one number each, got the shape {tuple(shape)} of one input.")
    return int(np.prod(shape))


def image_shape(name: str, shape: Shape, least: int, instead: str = "") -> tuple[int, int, int]:
    """Channels, height and width, if the network can take them."""
    if len(shape) != 3:
        hint = " Use 'mlp' or 'linear' for features." if len(shape) == 1 else ""
        hint = " Add the axis of channels: (1, height, width)." if len(shape) == 2 else hint
        raise InputError(
            f"network {name!r}: expected images (channels, height, width), got inputs of shape {tuple(shape)}.{hint}"
        )
    input_size(shape)
    channels, height, width = shape
    if min(height, width) < least:
        raise InputError(
            f"network {name!r}: expected images of at least {least} x {least} pixels, got {height} x {width} "
            f"(of the shape (channels, height, width) = {tuple(shape)}).{' ' * bool(instead)}{instead}"
        )
    return channels, height, width


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
    smaller = "Enlarge them, or use 'resnet18', which takes smaller ones."
    channels, *_ = image_shape("vgg16", shape, least=32, instead=smaller)
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


class Residual(nn.Module):
    """``last(path(x) + shortcut(x))``; the shortcut is x itself, and nothing comes last, unless given."""

    def __init__(self, path: nn.Module, shortcut: nn.Module | None = None, last: nn.Module | None = None) -> None:
        super().__init__()
        self.path, self.shortcut, self.last = path, shortcut or nn.Identity(), last or nn.Identity()

    def forward(self, x: Tensor) -> Any:
        return self.last(self.path(x) + self.shortcut(x))


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


def resnet(shape: Shape, n_classes: int, *, name: str, depths: Sequence[int], bottleneck: bool = False) -> Network:
    """Blocks of 64, 128, 256 and 512 filters; the plane is halved where the filters double."""
    block = _bottleneck if bottleneck else _basic
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


def linear(shape: Shape, n_classes: int) -> Network:
    """Softmax regression: the logits are linear in the input, which is flattened."""
    return Network(Flat(), input_size(shape), n_classes, FirstLinear)


def mlp(shape: Shape, n_classes: int, hidden: Sequence[int] = (128,), dropout: float = 0.5) -> Network:
    """Fully connected layers with ReLU, dropout after each; inputs are flattened.

    One layer of 128 with half of it dropped is what the papers put on the VGG features of LabelMe. Other sizes as a
    factory: ``functools.partial(mlp, hidden=(256, 128))``.
    """
    if not all(isinstance(width, int | np.integer) and width >= 1 for width in hidden):
        raise ParameterError(f"hidden: expected the sizes of layers, whole numbers from 1 on, got {hidden!r}.")
    if not 0 <= dropout < 1:
        raise ParameterError(f"dropout: expected a share from 0 to below 1, got {dropout!r}.")
    width = input_size(shape)
    layers: list[nn.Module] = [Flat()]
    for size in hidden:
        linear = FirstLinear if len(layers) == 1 else nn.Linear
        layers += [linear(width, size), nn.ReLU(), QuickDropout(dropout)]
        width = size
    return Network(nn.Sequential(*layers), width, n_classes, nn.Linear if hidden else FirstLinear)


NETWORKS: dict[str, Callable[[Shape, int], Network]] = {
    "linear": linear,
    "mlp": mlp,
    "herde": partial(mlp, hidden=(256, 128)),
    "nguyen": partial(mlp, hidden=(512, 512), dropout=0.0),
    **{network.__name__: network for network in (cnn, rodrigues, tanno, lenet5, vgg16, resnet9)},
    "resnet18": partial(resnet, name="resnet18", depths=(2, 2, 2, 2)),
    "resnet34": partial(resnet, name="resnet34", depths=(3, 4, 6, 3)),
    "resnet50": partial(resnet, name="resnet50", depths=(3, 4, 6, 3), bottleneck=True),
}


def build(network: str | nn.Module | Callable[[Shape, int], nn.Module], shape: Shape, n_classes: int) -> nn.Module:
    """A module that makes (B, K) logits of a batch of inputs, each of a shape (D,) or (C, H, W).

    ``network`` is a name in :data:`NETWORKS`; a function of ``shape`` and ``n_classes``; or a module, which is copied
    with its weights, so that training does not change the given one.
    """
    if isinstance(network, nn.Module):
        try:
            return _gives_logits(copy.deepcopy(network))
        except RuntimeError as error:  # torch copies no tensor that is the result of a computation
            raise ParameterError(
                f"network: this {type(network).__name__} cannot be copied ({error}). "
                "Give a function of (shape, n_classes) that makes it instead."
            ) from error
    if isinstance(network, str):
        if network not in NETWORKS:
            raise ParameterError(
                f"network: no network is called {network!r}.{suggestion(network, list(NETWORKS))} "
                f"Known: {listing(NETWORKS, limit=len(NETWORKS))}; a torch module or a function of (shape, n_classes) "
                "is taken too."
            )
        return NETWORKS[network](shape, n_classes)
    module: Any = network(shape, n_classes) if callable(network) else network
    if not isinstance(module, nn.Module):
        got = "got one that returns" if callable(network) else "got"
        raise ParameterError(
            "network: expected a name, a torch module or a function of (shape, n_classes) that makes one, "
            f"{got} {type(module).__name__}."
        )
    return _gives_logits(module)


def tried(module: nn.Module, shape: Shape, n_outputs: int) -> nn.Module:
    """A module of the user's, once it has shown on two inputs that it takes their shape and gives logits."""
    x = torch.linspace(-1, 1, 2 * int(np.prod(shape))).reshape(2, *shape)
    name, training = type(module).__name__, module.training
    try:
        with torch.no_grad():
            out = module.eval()(x)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise ParameterError(
            f"network: this {name} does not take the inputs, whose shape is {shape} each: "
            f"{reason(error)}. Its first layer must fit them; functions of (shape, n_classes) are given both."
        ) from error
    finally:
        module.train(training)
    shown = tuple(out.shape) if isinstance(out, Tensor) else f"a {type(out).__name__}"
    if shown != (2, n_outputs):
        raise ParameterError(
            f"network: this {name} gave {shown} for 2 inputs of the shape {shape}: expected (2, {n_outputs}), one row "
            "per input and one column for each class (one score for each input, where there are no classes)."
        )
    if n_outputs > 1 and bool((out >= 0).all()) and bool(((out.sum(dim=1) - 1).abs() < 1e-4).all()):
        raise ParameterError(
            f"network: this {name} gives probabilities (each row sums to 1), and learners expect logits. Leave the "
            "softmax out."
        )
    return module


def _gives_logits(module: nn.Module) -> nn.Module:
    """The module, unless its last layer turns logits into probabilities: losses here expect logits."""
    last = [part for part in module.modules() if next(part.children(), None) is None][-1]
    if isinstance(last, (nn.Softmax, nn.LogSoftmax, nn.Sigmoid, nn.LogSigmoid)):
        raise ParameterError(
            f"network: this {type(module).__name__} ends in {type(last).__name__}, and learners expect logits. Leave "
            "its last layer out."
        )
    return module


class WithClassifier(nn.Module):
    """A backbone and a linear layer from what it gives to the logits.

    Of an output of ``transformers`` its pooled vector is taken, else the mean over its tokens or patches; maps of
    features are averaged over the plane.
    """

    def __init__(self, backbone: nn.Module, shape: Shape, n_classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        with unchanged(backbone), torch.no_grad():
            width = self.vectors(torch.zeros(2, *shape)).shape[1]
        self.classifier = nn.Linear(width, n_classes)

    def vectors(self, x: Tensor) -> Tensor:
        """B x width: what the backbone says of inputs."""
        out = self.backbone(x)
        if not isinstance(out, Tensor):
            pooled = getattr(out, "pooler_output", None)
            out = out.last_hidden_state.mean(dim=1) if pooled is None else pooled
        vectors: Tensor = out.flatten(2).mean(dim=2) if out.dim() > 2 else out
        return vectors

    def forward(self, x: Tensor) -> Any:
        return self.classifier(self.vectors(x))


def with_classifier(module: nn.Module, shape: Shape, n_outputs: int) -> nn.Module:
    """A pretrained module that gives logits: itself, or a linear layer behind it where it gives something else."""
    try:
        with torch.no_grad():
            out = module.eval()(torch.zeros(2, *shape))
        if isinstance(out, Tensor) and out.shape == (2, n_outputs):
            return module
        return WithClassifier(module, shape, n_outputs)
    except (RuntimeError, ValueError, IndexError, TypeError, AttributeError):
        return module  # :func:`tried` says what is wrong


def backbone(network: nn.Module) -> list[nn.Parameter]:
    """The parameters of all layers but the last linear one."""
    last = {id(parameter) for parameter in hidden_layer(network).parameters()}
    return [parameter for parameter in network.parameters() if id(parameter) not in last]


def write_onnx(module: nn.Module, shape: Shape, path: str | os.PathLike[str]) -> Path:
    """A module from (B, *shape) inputs to probabilities as an ONNX file."""
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise ExtraError("Writing ONNX needs onnx: pip install onnx (and onnxruntime to run it).") from None
    sample = torch.zeros(2, *shape, device=next(module.parameters()).device)

    def write(file: str) -> None:
        torch.onnx.export(
            module.eval(), (sample,), file, input_names=["inputs"], output_names=["probabilities"],
            dynamic_axes={"inputs": {0: "n"}, "probabilities": {0: "n"}}, dynamo=False,
        )  # fmt: skip

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # traced: what depends on the shape of an input is fixed by it
        write_whole(write, path)
    return Path(path)


def hidden_layer(module: nn.Module) -> nn.Linear:
    """The last ``nn.Linear`` of a module, in the order in which its layers were assigned.

    Its input is the hidden vector. A module whose ``forward`` uses its layers in another order should assign the one
    that makes the logits last.
    """
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    if not layers:
        raise ParameterError(
            f"network: this {type(module).__name__} has no nn.Linear layer, whose input would be the hidden vector. "
            "End it with one, from the hidden vector to the logits."
        )
    return layers[-1]


class Probe:
    """Keeps the hidden vectors of the last forward pass of a module: the input of its :func:`hidden_layer`.

    They stay part of the graph, so that a loss may depend on them. A copy of the module is not watched.

    >>> import torch
    >>> network = build("mlp", (20,), 3)
    >>> with Probe(network) as probe:
    ...     logits = network(torch.zeros(5, 20))
    >>> probe.hidden.shape
    torch.Size([5, 128])
    """

    def __init__(self, module: nn.Module) -> None:
        self.layer = hidden_layer(module)
        self._hidden: Tensor | None = None

        # A function, not a method: copying the module then copies neither the probe nor the tensor it holds (torch
        # refuses to copy one of a graph), and the hook ignores the copy's layer.
        def keep(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if layer is self.layer:
                self._hidden = inputs[0]

        self._handle = self.layer.register_forward_pre_hook(keep)

    @property
    def hidden(self) -> Tensor:
        """(B, width) of the last forward pass."""
        if self._hidden is None:
            raise ParameterError(
                "network: its last nn.Linear has not been called since the probe was attached. Run the module first; "
                "if it was run, assign the layer that makes the logits last."
            )
        return self._hidden

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *error: object) -> None:
        """Stop watching; the last hidden vectors stay readable."""
        self._handle.remove()


Forward = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""From a batch to logits and, where they were asked for, hidden vectors."""


class LogitsAndHidden(nn.Module):
    """A network, after what prepares its inputs, that gives its hidden vectors beside the logits."""

    def __init__(self, before: nn.Module, network: Network) -> None:
        super().__init__()
        self.before, self.network = before, network

    @classmethod
    def of(cls, whole: nn.Module) -> LogitsAndHidden | None:
        """None where the whole does not end in one of our networks."""
        if isinstance(whole, Network):
            return cls(nn.Identity(), whole)
        if isinstance(whole, nn.Sequential) and isinstance(whole[-1], Network):
            return cls(whole[:-1], whole[-1])
        return None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.network.trunk(self.before(x))
        return self.network.head(hidden), hidden


def why_not_compiled(
    settings: TrainingSettings, n_items: int, *, sparse: bool, processes: int, only_compiled: bool
) -> str:
    """Why the passes of a training can be neither compiled nor recorded; empty where they can be.

    ``only_compiled``: they give hidden vectors or have batches of different sizes, which cannot be recorded.
    """
    if processes > 1:
        return "several processes train it together"
    if sparse:
        return "its inputs are sparse"
    if n_items < settings.batch_size:
        return f"there are {n_items} items, fewer than batch_size={settings.batch_size}"
    if only_compiled and not settings.compile:
        return "this learner's passes cannot be recorded. Use compile=True"
    return ""


def record(network: nn.Module, sample: Tensor, autocast: bool) -> Forward | None:
    """The network's passes in training as graphs of both directions, for batches of the sample's shape: logits alone.

    None where the network cannot be recorded; it is then called as it is. Weights and statistics are left as they were.
    """
    try:
        with unchanged(network), torch.autocast("cuda", torch.bfloat16, enabled=autocast, cache_enabled=False):
            torch.cuda.make_graphed_callables(network, (sample.clone(),))
        replayed = network.__dict__.pop("forward")
    except RuntimeError as error:
        network.__dict__.pop("forward", None)
        warnings.warn(f"The network is not recorded as a CUDA graph: {reason(error)}.", stacklevel=2)
        return None
    return lambda x: (replayed(x), None)


def compiled(
    network: nn.Module, sample: Tensor, autocast: bool, *, hidden: bool = False, any_size: bool = False,
    graphs: bool = False,
) -> Forward | None:  # fmt: skip
    """The network's passes in training compiled for batches of the sample's shape, or of any size.

    With ``hidden`` they give the hidden vectors, too; with ``graphs`` they are replayed as CUDA graphs. None where the
    network cannot be compiled; it is then called as it is. Weights and statistics are left as they were.
    """
    module = LogitsAndHidden.of(network) if hidden else network
    if module is None:
        warnings.warn("The network is not compiled: that takes one of crowdwise's networks here.", stacklevel=2)
        return None
    passes = torch.compile(module, dynamic=None if any_size else False, mode="reduce-overhead" if graphs else None)

    def forward(x: Tensor) -> tuple[Tensor, Tensor | None]:
        if any_size:
            torch._dynamo.maybe_mark_dynamic(x, 0)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=autocast):
            out = passes(x)
        return out if hidden else (out, None)

    try:
        with unchanged(network):
            forward(sample)[0].float().sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        warnings.warn(f"The network is not compiled: {reason(error)}.", stacklevel=2)
        return None
    return forward


@contextmanager
def unchanged(network: nn.Module) -> Iterator[None]:
    """The network in training mode; afterwards with the weights, statistics and mode that it had, and no gradients."""
    kept = {name: value.clone() for name, value in network.state_dict().items()}
    training = network.training
    network.train()
    try:
        yield
    finally:
        network.load_state_dict(kept)
        network.zero_grad(set_to_none=True)
        network.train(training)
