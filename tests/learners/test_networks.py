"""The networks: layers as in the papers, parameters as counted by hand, and what can be asked of any module."""

from __future__ import annotations

import copy
import functools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from crowdwise.errors import InputError, ParameterError
from crowdwise.learners.networks import (
    NETWORKS,
    Network,
    Probe,
    QuickDropout,
    Residual,
    build,
    hidden_layer,
    linear,
    mlp,
)

# name, one input that the papers use, length of the hidden vector
PAPERS = [
    ("linear", (20,), 20),
    ("mlp", (8192,), 128),
    ("herde", (20,), 128),
    ("nguyen", (20,), 512),
    ("cnn", (1, 28, 28), 64),
    ("rodrigues", (3, 150, 150), 128),
    ("tanno", (1, 28, 28), 64),
    ("lenet5", (1, 28, 28), 84),
    ("vgg16", (3, 32, 32), 512),
    ("resnet9", (3, 32, 32), 512),
    ("resnet18", (3, 32, 32), 512),
    ("resnet34", (3, 32, 32), 512),
    ("resnet50", (3, 32, 32), 2048),
]
LEAST = {
    "rodrigues": 46,
    "tanno": 2,
    "cnn": 2,
    "lenet5": 12,
    "vgg16": 32,
    "resnet9": 8,
    "resnet18": 8,
    "resnet34": 8,
    "resnet50": 8,
}


def made(name, shape, n_classes=10, seed=0):
    return copy.deepcopy(first(name, shape, n_classes, seed))


def outline(name, shape, n_classes=10):
    """A network without numbers: what its layers are, and the shapes that they give."""
    with torch.device("meta"):
        return build(name, shape, n_classes)


@functools.cache
def first(name, shape, n_classes, seed):
    torch.manual_seed(seed)
    return build(name, shape, n_classes)


def batch(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def count(network):
    return sum(p.numel() for p in network.parameters())


def of(network, kind):
    return [layer for layer in network.modules() if isinstance(layer, kind)]


# -- all of them -------------------------------------------------------------------------------------------------------


def test_every_network_is_tested():
    assert {name for name, *_ in PAPERS} == set(NETWORKS)
    assert set(LEAST) == set(NETWORKS) - {"linear", "mlp", "herde", "nguyen"}


@pytest.mark.parametrize(("name", "shape", "width"), PAPERS)
def test_logits_and_hidden_vector(name, shape, width):
    network = made(name, shape, 3).eval()
    x = batch(2, *shape)
    assert isinstance(network, Network)
    assert (network.head.in_features, network.head.out_features) == (width, 3)
    with torch.no_grad():
        assert network.trunk(x).shape == (2, width)
        assert torch.equal(network(x), network.head(network.trunk(x)))
        assert network(x).shape == (2, 3)
        assert (network(x) < 0).any()  # logits, not probabilities


@pytest.mark.parametrize(("name", "shape", "width"), PAPERS)
def test_every_parameter_is_trained(name, shape, width):
    network = made(name, shape, 3)
    loss = F.cross_entropy(network(batch(3, *shape)), torch.tensor([0, 1, 2]))
    loss.backward()
    idle = [key for key, p in network.named_parameters() if p.grad is None or not p.grad.abs().max() > 1e-9]
    assert not idle
    assert all(torch.isfinite(p.grad).all() for p in network.parameters())


@pytest.mark.parametrize(("name", "shape", "width"), PAPERS)
def test_a_seed_repeats_the_weights(name, shape, width):
    one, same, other = (first.__wrapped__(name, shape, 3, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["head.weight"], other["head.weight"])


@pytest.mark.parametrize("name", sorted(LEAST))
def test_least_size(name):
    least = LEAST[name]
    for sides in ((least, least), (least + 5, least)):
        network = outline(name, (2, *sides), 3).eval()
        assert network(torch.empty(2, 2, *sides, device="meta")).shape == (2, 3)
    for sides in ((least - 1, least), (least, least - 1)):
        with pytest.raises(InputError, match=f"at least {least} x {least} pixels"):
            build(name, (2, *sides), 3)


@pytest.mark.parametrize(
    ("name", "sides"),
    [("rodrigues", (64, 97)), ("lenet5", (32, 40)), ("vgg16", (48, 71)), ("resnet9", (28, 28)), ("resnet18", (33, 18))],
)
def test_other_sizes(name, sides):
    network = outline(name, (1, *sides), 4).eval()
    assert network(torch.empty(2, 1, *sides, device="meta")).shape == (2, 4)


@pytest.mark.parametrize("name", sorted(LEAST))
def test_features_are_no_images(name):
    with pytest.raises(
        InputError, match=rf"{name}.*expected images \(channels, height, width\), got inputs of shape \(512,\)"
    ):
        build(name, (512,), 3)
    with pytest.raises(InputError, match="Add the axis of channels"):
        build(name, (64, 64), 3)


# -- one by one --------------------------------------------------------------------------------------------------------


def test_linear_is_softmax_regression():
    network = linear((2, 3), 4)
    x = batch(5, 2, 3)
    assert count(network) == 6 * 4 + 4
    assert torch.allclose(network(x), x.reshape(5, 6) @ network.head.weight.T + network.head.bias)


def test_mlp_is_what_it_says():
    network = mlp((2, 3), 4, hidden=(8, 5), dropout=0.25)
    assert [(layer.in_features, layer.out_features) for layer in of(network, nn.Linear)] == [(6, 8), (8, 5), (5, 4)]
    assert [layer.p for layer in of(network, nn.Dropout)] == [0.25, 0.25]
    x, h = batch(5, 2, 3), batch(5, 2, 3).reshape(5, 6)
    for layer in of(network, nn.Linear)[:2]:
        h = (h @ layer.weight.T + layer.bias).clamp(min=0)
    assert torch.allclose(network.eval()(x), network.head(h))
    assert not torch.equal(network.train()(x), network(x))  # dropout at work
    assert count(outline("mlp", (8192,), 8)) == 8192 * 128 + 128 + 128 * 8 + 8  # LabelMe
    assert count(outline("nguyen", (20,), 3)) == 20 * 512 + 512 + 512 * 512 + 512 + 512 * 3 + 3


@pytest.mark.parametrize("share", [0.25, 0.3])
def test_quick_dropout_drops_the_share_and_keeps_the_mean(share):
    torch.manual_seed(0)
    layer, x = QuickDropout(share), torch.full((101, 331), 2.0, requires_grad=True)
    y = layer(x)
    assert float((y == 0.0).float().mean()) == pytest.approx(share, abs=0.01)
    torch.testing.assert_close(y[y > 0.0], torch.full_like(y[y > 0.0], 2.0 / (1.0 - share)))
    y.sum().backward()
    torch.testing.assert_close(x.grad * 2.0, y.detach())
    assert torch.equal(layer.eval()(x), x)


@pytest.mark.parametrize(
    ("options", "parameter"), [({"hidden": (8, 0)}, "hidden"), ({"dropout": 1.0}, "dropout"), ({"dropout": -1}, "drop")]
)
def test_mlp_refuses(options, parameter):
    with pytest.raises(ParameterError, match=parameter):
        mlp((4,), 2, **options)


def kinds(trunk):
    return [type(layer).__name__ for layer in trunk]


def test_rodrigues_is_the_network_of_dogs_and_cats():
    network = made("rodrigues", (3, 150, 150), 2)
    block = ["Conv2d", "ReLU", "MaxPool2d"]
    tail = ["Flatten", "Linear", "ReLU", "Dropout"]
    assert kinds(network.trunk) == [*block, "BatchNorm2d", *block, *block, *block, *tail]
    assert [(c.out_channels, c.kernel_size, c.padding) for c in of(network, nn.Conv2d)] == [
        (width, (3, 3), (0, 0)) for width in (32, 32, 64, 64)
    ]
    assert [layer.in_features for layer in of(network, nn.Linear)] == [3136, 128]
    assert of(network, nn.Dropout)[0].p == 0.5


def test_tanno_is_the_network_of_mnist():
    network = made("tanno", (1, 28, 28))
    pair = ["Conv2d", "ReLU"] * 2
    assert kinds(network.trunk) == [*pair, "MaxPool2d", *pair, "AdaptiveAvgPool2d", "Flatten"]
    assert [c.out_channels for c in of(network, nn.Conv2d)] == [32, 32, 64, 64]
    assert count(network) == (9 + 1) * 32 + (288 + 1) * 32 + (288 + 1) * 64 + (576 + 1) * 64 + 650


@pytest.mark.parametrize(("side", "same_as"), [(8, "tanno"), (63, "tanno"), (64, "rodrigues"), (150, "rodrigues")])
def test_cnn_goes_by_size(side, same_as):
    assert str(build("cnn", (1, side, side), 3)) == str(build(same_as, (1, side, side), 3))
    assert str(build("cnn", (1, side, 200), 3)) == str(build(same_as, (1, side, 200), 3))


@pytest.mark.parametrize("side", [28, 32])
def test_lenet5_counts_as_ever(side):
    network = made("lenet5", (1, side, side))
    assert [layer.in_features for layer in of(network, nn.Linear)] == [400, 120, 84]
    assert count(network) == 61_706


def test_lenet5_sees_28_pixels_as_32_with_a_border():
    small, large = made("lenet5", (1, 28, 28)), made("lenet5", (1, 32, 32))
    large.load_state_dict(small.state_dict())
    x = batch(3, 1, 28, 28)
    assert torch.allclose(small(x), large(F.pad(x, (2, 2, 2, 2))), atol=1e-6)


def test_vgg16_has_thirteen_convolutions_and_one_linear_layer():
    network = outline("vgg16", (3, 32, 32))
    widths = [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
    assert [c.out_channels for c in of(network, nn.Conv2d)] == widths
    assert [b.num_features for b in of(network, nn.BatchNorm2d)] == widths
    assert len(of(network, nn.MaxPool2d)) == 5
    assert [(layer.in_features, layer.out_features) for layer in of(network, nn.Linear)] == [(512, 10)]
    # 14,728,266 as often quoted, with a bias per filter that batch norm takes out again
    assert count(network) == 14_728_266 - sum(widths)


def test_resnet9_has_eight_convolutions_and_two_shortcuts():
    network = outline("resnet9", (3, 32, 32))
    widths = [64, 128, 128, 128, 256, 512, 512, 512]
    assert [c.out_channels for c in of(network, nn.Conv2d)] == widths
    assert len(of(network, Residual)) == 2
    assert [pool.kernel_size for pool in of(network, nn.MaxPool2d)] == [2, 2, 2, (4, 4)]
    assert count(network) == 6_575_370 - sum(widths)  # as quoted, without the idle biases


@pytest.mark.parametrize(
    ("name", "parameters", "layers", "projections"),
    [("resnet18", 11_173_962, 18, 3), ("resnet34", 21_282_122, 34, 3), ("resnet50", 23_520_842, 50, 4)],
)
def test_resnets_count_as_published(name, parameters, layers, projections):
    network = outline(name, (3, 32, 32))
    assert count(network) == parameters
    assert len(of(network, nn.Conv2d)) + 1 == layers + projections  # shortcuts by projection are not counted as layers
    stem = of(network, nn.Conv2d)[0]
    assert (stem.kernel_size, stem.stride, stem.out_channels) == ((3, 3), (1, 1), 64)
    assert not of(network, nn.MaxPool2d)
    assert network.eval().trunk[:-2](torch.empty(1, 3, 32, 32, device="meta")).shape[2:] == (4, 4)


def test_a_block_adds_its_input():
    network = made("resnet18", (3, 32, 32)).eval()
    block = of(network, Residual)[0]  # the first: nothing changes size, so the shortcut is the input itself
    x = batch(2, 64, 6, 6)
    first, second = of(block, nn.Conv2d)
    scale = (1 + 1e-5) ** -0.5  # batch norm in its initial state
    y = F.conv2d((F.conv2d(x, first.weight, padding=1) * scale).clamp(min=0), second.weight, padding=1) * scale
    with torch.no_grad():
        assert torch.allclose(block(x), (x + y).clamp(min=0), atol=1e-5)


def test_a_block_that_halves_the_plane_projects_its_input():
    network = made("resnet50", (3, 32, 32)).eval()
    block = of(network, Residual)[3]
    x = batch(2, 256, 7, 8)
    project = of(block.shortcut, nn.Conv2d)[0]
    assert (project.kernel_size, project.stride) == ((1, 1), (2, 2))
    assert [c.stride for c in of(block.path, nn.Conv2d)] == [(1, 1), (2, 2), (1, 1)]
    with torch.no_grad():
        assert block(x).shape == (2, 512, 4, 4)


@pytest.mark.parametrize(("name", "shape"), [("mlp", (16,)), ("tanno", (1, 8, 8)), ("resnet9", (1, 8, 8))])
def test_networks_learn(name, shape):
    x, y = batch(12, *shape), torch.arange(12) % 3
    x = x + 1.5 * batch(3, *shape, seed=1)[y]
    network = made(name, shape, 3)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3, fused=True)
    for _ in range(40):  # fewer leave the running statistics of batch norm behind: right in training, wrong after it
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        assert (network.eval()(x).argmax(1) == y).float().mean() > 0.9


def test_a_single_image_trains_where_the_last_plane_has_more_than_one_pixel():
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        made("resnet18", (1, 8, 8))(batch(1, 1, 8, 8))
    assert made("resnet18", (1, 9, 9))(batch(1, 1, 9, 9)).shape == (1, 10)


# -- by name, module or factory ----------------------------------------------------------------------------------------


def test_a_module_is_copied_with_its_weights():
    mine = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    before = copy.deepcopy(mine.state_dict())
    network = build(mine, (4,), 2)
    x = batch(3, 4)
    assert network is not mine
    assert torch.equal(network(x), mine(x))
    with torch.no_grad():
        for p in network.parameters():
            p.add_(1.0)
    assert all(torch.equal(before[key], value) for key, value in mine.state_dict().items())


def test_a_module_that_cannot_be_copied_says_what_to_do():
    mine = nn.Linear(4, 2)
    mine.kept = mine(batch(3, 4))  # a tensor of a graph
    with pytest.raises(ParameterError, match=r"Linear cannot be copied .* function of"):
        build(mine, (4,), 2)


def test_a_factory_is_called_with_shape_and_classes():
    seen = []

    def factory(shape, n_classes):
        seen.append((shape, n_classes))
        return nn.Linear(shape[0], n_classes)

    assert build(factory, (4,), 3).out_features == 3
    assert seen == [((4,), 3)]
    wide = build(functools.partial(mlp, hidden=(32, 16)), (4,), 3)
    assert wide.head.in_features == 16


@pytest.mark.parametrize(("wrong", "meant"), [("resnet-18", "resnet18"), ("lenet", "lenet5"), ("MLP", None)])
def test_unknown_names(wrong, meant):
    with pytest.raises(ParameterError, match=f"no network is called '{wrong}'") as caught:
        build(wrong, (3, 32, 32), 2)
    assert all(repr(name) in str(caught.value) for name in NETWORKS)
    assert ("Did you mean" in str(caught.value)) == (meant is not None)
    assert meant is None or f"Did you mean {meant!r}?" in str(caught.value)


def test_neither_name_nor_module_nor_factory():
    with pytest.raises(ParameterError, match=r"expected a name, a torch module or a function .* got int"):
        build(3, (4,), 2)
    with pytest.raises(ParameterError, match="got one that returns NoneType"):
        build(lambda shape, n_classes: None, (4,), 2)


@pytest.mark.parametrize("n_classes", [0, -1, 2.0, "3"])
def test_classes_are_counted(n_classes):
    with pytest.raises(ParameterError, match="n_classes"):
        build("linear", (4,), n_classes)
    with pytest.raises(ParameterError, match="n_classes"):
        linear((4,), n_classes)


def test_one_class_and_numpy_numbers_are_fine():
    assert build("linear", (4,), 1)(batch(2, 4)).shape == (2, 1)
    assert build("tanno", tuple(np.array([1, 8, 8])), np.int64(3))(batch(2, 1, 8, 8)).shape == (2, 3)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 4)])
def test_empty_inputs(shape):
    with pytest.raises(InputError, match="at least one number"):
        build("mlp", shape, 2)


# -- the hidden vector -------------------------------------------------------------------------------------------------


class Mine(nn.Module):
    """Not a ``Network``: layers under other names, the hidden vector nowhere returned."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        return self.out(torch.tanh(self.first(x)))


def test_hidden_layer_is_the_last_linear_one():
    mine = Mine()
    assert hidden_layer(mine) is mine.out
    assert hidden_layer(mine.out) is mine.out
    for name, shape, _ in PAPERS:
        network = outline(name, shape, 2)
        assert hidden_layer(network) is network.head


def test_no_linear_layer():
    with pytest.raises(ParameterError, match=r"Conv2d has no nn\.Linear"):
        hidden_layer(nn.Conv2d(1, 2, 3))
    with pytest.raises(ParameterError, match=r"no nn\.Linear"):
        Probe(nn.Sequential(nn.Flatten()))


def test_probe_keeps_the_hidden_vector_of_the_last_pass():
    mine = Mine()
    probe = Probe(mine)
    for seed in (0, 1):
        x = batch(3, 4, seed=seed)
        logits = mine(x)
        assert torch.equal(probe.hidden, torch.tanh(mine.first(x)))
        assert torch.allclose(mine.out(probe.hidden), logits)


def test_probe_reads_trunk_and_dropout_as_the_head_sees_them():
    network = made("mlp", (4,), 2)
    with Probe(network) as probe:
        logits = network(batch(3, 4))
    assert (probe.hidden == 0).any()
    assert torch.equal(network.head(probe.hidden), logits)


def test_hidden_vectors_carry_gradients():
    mine = Mine()
    with Probe(mine) as probe:
        mine(batch(3, 4))
    probe.hidden.square().sum().backward()
    assert mine.first.weight.grad.abs().sum() > 0
    assert mine.out.weight.grad is None


def test_probe_stops_when_removed():
    mine = Mine()
    with Probe(mine) as probe:
        mine(batch(3, 4))
    kept = probe.hidden
    mine(batch(5, 4))
    assert probe.hidden is kept
    assert not mine.out._forward_pre_hooks


def test_probe_is_removed_after_an_error():
    mine = Mine()
    with pytest.raises(RuntimeError), Probe(mine):
        mine(batch(3, 5))
    assert not mine.out._forward_pre_hooks


def test_probe_before_any_pass():
    with pytest.raises(ParameterError, match="has not been called"):
        Probe(Mine()).hidden  # noqa: B018


def test_a_watched_module_can_be_copied_and_the_copy_is_not_watched():
    mine = Mine()
    probe = Probe(mine)
    mine(batch(3, 4))
    kept = probe.hidden
    twin = build(mine, (4,), 2)
    twin(batch(5, 4))
    assert probe.hidden is kept
    with Probe(twin) as other:
        twin(batch(5, 4))
    assert other.hidden.shape == (5, 6)
    assert probe.hidden is kept
