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
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from crowdwise.errors import ParameterError, listing, suggestion
from crowdwise.learners import networks_images as images
from crowdwise.learners.inputs import FirstLinear, Flat
from crowdwise.learners.networks_base import Network, QuickDropout, Shape, input_size


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


def herde(shape: Shape, n_classes: int) -> Network:
    """Two layers of 256 and 128, half of each dropped: the network of annot-mix on features."""
    return mlp(shape, n_classes, hidden=(256, 128))


def nguyen(shape: Shape, n_classes: int) -> Network:
    """Two layers of 512 without dropout: the network of VolMaxDCC."""
    return mlp(shape, n_classes, hidden=(512, 512), dropout=0.0)


NETWORKS: dict[str, Callable[[Shape, int], Network]] = {
    network.__name__: network
    for network in (
        linear, mlp, herde, nguyen, images.cnn, images.rodrigues, images.tanno, images.lenet5, images.vgg16,
        images.resnet9, images.resnet18, images.resnet34, images.resnet50,
    )
}  # fmt: skip


def build(network: str | nn.Module | Callable[[Shape, int], nn.Module], shape: Shape, n_classes: int) -> nn.Module:
    """A module that makes (B, K) logits of a batch of inputs, each of a shape (D,) or (C, H, W).

    ``network`` is a name in :data:`NETWORKS`; a function of ``shape`` and ``n_classes``; or a module, which is copied
    with its weights, so that training does not change the given one.
    """
    if isinstance(network, nn.Module):
        try:
            return copy.deepcopy(network)
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
    made: Any = network(shape, n_classes) if callable(network) else network
    if not isinstance(made, nn.Module):
        made_by = "got one that returns" if callable(network) else "got"
        raise ParameterError(
            "network: expected a name, a torch module or a function of (shape, n_classes) that makes one, "
            f"{made_by} {type(made).__name__}."
        )
    return made


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

    def remove(self) -> None:
        """Stop watching; the last hidden vectors stay readable."""
        self._handle.remove()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()
