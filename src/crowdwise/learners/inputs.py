"""The inputs of learners: arrays, sparse matrices, tensors, datasets and folders of images, read row by row.

Everything is streamed in batches as float32; only what is in memory already, or fits on the device with room to spare,
stays whole.

===============================  =====================================================
given                            one input, as the network takes it
===============================  =====================================================
N x D array, sparse or tensor    D numbers
N x H x W array                  an image with one channel, 1 x H x W
N x H x W x C array, C 1, 3, 4   an image, C x H x W
N x C x H x W array              the same, as it is
images of bytes                  divided by 255
a torch ``Dataset``              its items (the first part, where they are tuples)
a folder                         its images (PNG, JPEG...), by name
===============================  =====================================================

Sparse inputs: a batch of texts has a few hundred of all words, and is taken as the U columns that occur in it, a B x U
table. The first layer of ``linear`` and ``mlp`` multiplies it with these columns of its weights; the others meet only
zeros. Answer and gradient are those of the dense batch. With 9,000 words of which 700 are in a batch of 64 texts, a
step costs a tenth of the dense one. Networks of another build get dense rows, batch by batch.

Images of bytes stay whole on the device, and are cropped, mirrored and cut out there as a batch is read.

==========  ===================================================================================================
augment     what a training batch gets, new in every epoch
==========  ===================================================================================================
``none``    the images as they are
``flip``    half of them mirrored
``crop``    moved by up to 4 pixels, the border mirrored; and half of them mirrored
``cutout``  the same, and a square of half the side, at a random place, set to the mean
==========  ===================================================================================================

A crop and a mirror image are a choice of rows and columns, so one gather reads, moves and mirrors a batch. Predictions
never see an augmented image.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from crowdwise.data.boundary import reason
from crowdwise.data.features import images_in
from crowdwise.errors import InputError, listing

CHUNK, NUMBERS = 4096, 2**26
"""How many rows, and numbers in them, are read together in a pass over all."""
CONSTANT = 1e-6
"""A feature whose deviation is so small a share of its mean is constant, whatever its unit."""

Index = npt.NDArray[np.int64]


class Inputs(Protocol):
    """Rows that can be read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""

    def __len__(self) -> int: ...

    def rows(self, index: Index) -> Tensor:
        """Some of them, as B x shape float32."""


def chunks(inputs: Inputs, size: int | None = None) -> Iterator[Index]:
    """The numbers of all rows, ``size`` at a time; by default as many as a pass reads together."""
    size = size or max(1, min(CHUNK, NUMBERS // max(1, math.prod(inputs.shape))))
    for lo in range(0, len(inputs), size):
        yield np.arange(lo, min(lo + size, len(inputs)))


class ArrayInputs:
    """A numpy array (in memory or mapped from a file) or a scipy sparse matrix."""

    def __init__(self, array: Any, sparse: bool = False, scaled: bool = False) -> None:
        self.array, self.sparse, self.scaled = array, sparse, scaled
        self.byte = array.dtype == np.uint8 and array.ndim > 2
        self.last = array.ndim == 4 and array.shape[3] in (1, 3, 4) and array.shape[1] not in (1, 3, 4)
        size = tuple(int(s) for s in array.shape[1:])
        self.shape = (size[2], size[0], size[1]) if self.last else (1, *size) if len(size) == 2 else size

    def __len__(self) -> int:
        return int(self.array.shape[0])

    def rows(self, index: Index) -> Tensor:
        rows = self.array[index].toarray() if self.sparse else self.array[index]
        x = torch.from_numpy(np.array(rows, dtype=np.float32))
        x = x / 255.0 if self.byte else x
        x = x.permute(0, 3, 1, 2) if self.last else x
        return _finite(x.reshape(len(index), *self.shape), index)

    def largest_beside_bytes(self) -> float:
        """The largest number that is not divided by 255; 0 where all are."""
        values = self.array.data if self.sparse else self.array
        return 0.0 if self.byte or values.dtype == np.bool_ or not values.size else float(np.max(values))

    def sparse_rows(self, index: Index) -> SparseRows:
        """Some rows of a sparse matrix, without their zeros."""
        rows = self.array[index]
        if not np.isfinite(rows.data).all():
            self.rows(index)  # which names the row
        return SparseRows.of(rows)


class DatasetInputs:
    """A torch ``Dataset`` (or any sequence of inputs)."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        if len(dataset) == 0:
            raise InputError("The dataset is empty.")
        self.shape = tuple(self._one(0).shape)

    def __len__(self) -> int:
        return len(self.dataset)

    def rows(self, index: Index) -> Tensor:
        return _finite(torch.stack([self._one(int(n)) for n in index]), index)

    def _one(self, n: int) -> Tensor:
        item = self.dataset[n]
        return torch.as_tensor(item[0] if isinstance(item, (tuple, list)) else item).to(torch.float32)


class FolderInputs:
    """The images of a folder, all of one size, in the order of their names or of the given names."""

    def __init__(self, folder: Path, names: npt.NDArray[Any] | None = None) -> None:
        try:
            from PIL import Image
        except ImportError:
            raise InputError("Reading images needs Pillow: pip install 'crowdwise[deep]'.") from None
        self.image = Image
        files = images_in(folder)
        if names is not None:
            by_name = {file.name: file for file in files} | {file.stem: file for file in files}
            lost = [str(name) for name in names.tolist() if str(name) not in by_name]
            if lost:
                raise InputError(
                    f"{folder} has no image for {len(lost)} of the {len(names)} items: {listing(lost)}. "
                    "Name the files as the votes name the items."
                )
            files = [by_name[str(name)] for name in names.tolist()]
        self.files = files
        self.shape = tuple(self._one(0).shape)

    def __len__(self) -> int:
        return len(self.files)

    def rows(self, index: Index) -> Tensor:
        images = [self._one(int(n)) for n in index]
        for n, image in zip(index, images, strict=True):
            if image.shape != self.shape:
                raise InputError(
                    f"{self.files[n].name} is an image of {tuple(image.shape)} and {self.files[0].name} of "
                    f"{tuple(self.shape)} (channels, height, width): bring all images to one size first."
                )
        return torch.stack(images)

    def _one(self, n: int) -> Tensor:
        try:
            with self.image.open(self.files[n]) as image:
                whole, deep = image.mode == "F", image.mode.startswith("I")  # fractions as they are; 16 bits
                grey = image.mode in ("1", "L", "LA") or whole or deep
                kept = image if whole or deep else image.convert("L" if grey else "RGB")
                pixels = np.asarray(kept, dtype=np.float32)
        except OSError as error:
            raise InputError(f"{self.files[n]} could not be read as an image: {error}.") from error
        if not np.isfinite(pixels).all():
            raise InputError(f"{self.files[n]} holds NaN or infinity: fill in missing pixels first.")
        first = pixels[None] if grey else pixels.transpose(2, 0, 1)
        return torch.from_numpy(first.copy()) / (1.0 if whole else 65535.0 if deep else 255.0)


class PairInputs:
    """Pairs of inputs as inputs: row p is (input of the left item, input of the right item)."""

    def __init__(self, base: Inputs, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> None:
        self.base, self.left, self.right, self.shape = base, left, right, (2, *base.shape)

    def __len__(self) -> int:
        return len(self.left)

    def rows(self, index: Index) -> Tensor:
        both = np.concatenate([self.left[index], self.right[index]]).astype(np.int64)
        which, back = np.unique(both, return_inverse=True)  # an item in several pairs is read once
        x = self.base.rows(which)[torch.as_tensor(back)]
        return torch.stack([x[: len(index)], x[len(index) :]], dim=1)


def as_inputs(X: Any, names: npt.NDArray[Any] | None = None) -> Inputs:
    """Rows of X, whatever its form; a folder's images are found by the ``names`` of the items."""
    if isinstance(X, (ArrayInputs, DatasetInputs, FolderInputs)):
        return X
    if isinstance(X, (str, Path)):
        if not Path(X).is_dir():
            raise InputError(f"Expected a folder of images or an array, and there is no folder {X}.")
        return FolderInputs(Path(X), names)
    if isinstance(X, Tensor):
        X = X.detach().cpu().numpy()
    if hasattr(X, "tocsr"):
        return ArrayInputs(X.tocsr(), sparse=True)
    table = hasattr(X, "__array__") or isinstance(X, (list, tuple))
    if not table and hasattr(X, "__getitem__") and hasattr(X, "__len__"):
        return DatasetInputs(X)
    try:
        array = np.asanyarray(X)  # a memory map stays one
    except ValueError as error:
        raise InputError(f"Expected rows of numbers, all of one length, for X: {reason(error)}.") from None
    if array.dtype == object:
        try:
            array = array.astype(np.float32)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"X must hold numbers, and does not: {error}. Encode texts and categories first."
            ) from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"X must hold numbers and is of type {array.dtype}. Encode texts and categories first.")
    if array.ndim not in (2, 3, 4):
        raise InputError(
            f"Expected X with one row per item (2 dimensions) or one image per item (3 or 4), found {array.ndim}. "
            "Reshape your data with X.reshape(-1, 1) if each item has a single number."
        )
    if array.ndim == 2 and array.shape[1] == 0:
        raise InputError(f"X has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    return ArrayInputs(array)


def lost_features(inputs: Inputs) -> Index:
    """The features that differ between rows, but by so little of their size that they are constant in float32."""
    if not isinstance(inputs, ArrayInputs) or inputs.sparse or len(inputs.shape) != 1:
        return np.zeros(0, dtype=np.int64)
    x = inputs.array
    if x.dtype.kind == "b" or x.dtype.itemsize < 4 or x.dtype == np.float32 or not len(x):
        return np.zeros(0, dtype=np.int64)
    least = most = np.asarray(x[0], dtype=np.float64)
    for index in chunks(inputs):
        rows = np.asarray(x[index], dtype=np.float64)
        least, most = np.minimum(least, rows.min(axis=0)), np.maximum(most, rows.max(axis=0))
    size = np.maximum(np.abs(least), np.abs(most))
    return np.flatnonzero((most - least <= 10.0 * CONSTANT * size) & (most - least > 1e-12 * size))


def _finite(x: Tensor, index: Index) -> Tensor:
    bad = ~torch.isfinite(x).reshape(len(x), -1).all(dim=1)
    if bool(bad.any()):
        row = int(index[int(bad.nonzero()[0, 0])])
        raise InputError(
            f"Row {row} of X holds NaN or infinity, or a number over 3e38, the largest of single precision: fill in "
            "missing values (SimpleImputer does), and bring features to a smaller unit."
        )
    return x


class InputScale(nn.Module):
    """Standardises inputs to mean 0 and deviation 1: each feature, each channel of images; sparse data keep their mean,
    and inputs that are scaled stay as they are.

    Mean and deviation are those of the training data, and are saved with the network.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)

    def forward(self, x: Tensor | SparseRows) -> Tensor | SparseRows:
        if isinstance(x, SparseRows):
            if not bool(self.mean.any()):
                return x.over(self.deviation)
            x = x.dense()  # the network was fitted with dense inputs, whose mean was subtracted
        return (x - self.mean) / self.deviation

    @classmethod
    def identity(cls, shape: tuple[int, ...]) -> InputScale:
        size = (shape[0], *(1 for _ in shape[1:]))
        return cls(torch.zeros(size), torch.ones(size))

    @classmethod
    def of(cls, inputs: Inputs, device: torch.device | str = "cpu") -> InputScale:
        """From one pass over the inputs, on a device; of pairs, over the inputs of all items."""
        if isinstance(inputs, PairInputs):
            inputs = inputs.base
        if isinstance(inputs, ArrayInputs) and inputs.scaled:
            return cls.identity(inputs.shape)
        if isinstance(inputs, ArrayInputs) and inputs.sparse:
            return cls(*_sparse_scale(inputs))
        total, squares, count = torch.zeros((), device=device), torch.zeros((), device=device), 0
        for index in chunks(inputs):
            x = inputs.rows(index).to(device).double()
            x = x.reshape(*x.shape[:2], -1)
            total, squares = total + x.sum(dim=(0, 2)), squares + (x * x).sum(dim=(0, 2))
            count += x.shape[0] * x.shape[2]
        mean, square = total / count, squares / count
        deviation = (square - mean * mean).clamp_min(0.0).sqrt()
        deviation = torch.where(deviation > CONSTANT * mean.abs(), deviation, torch.ones_like(deviation))
        size = (len(mean), *(1 for _ in inputs.shape[1:]))
        return cls(mean.float().cpu().reshape(size), deviation.float().cpu().reshape(size))


def _sparse_scale(inputs: ArrayInputs) -> tuple[Tensor, Tensor]:
    """Mean and deviation of sparse data: no mean, which would fill in the zeros, and the root mean square of all
    numbers together, or rare features would outgrow the others."""
    N, D = inputs.array.shape
    data = np.asarray(inputs.array.data, dtype=np.float64)
    if not np.isfinite(data).all():
        bad = int(np.flatnonzero(~np.isfinite(data))[0])
        inputs.rows(np.array([np.searchsorted(inputs.array.indptr, bad, side="right") - 1]))  # which names the row
    size = float(np.sqrt((data * data).sum() / max(N * D, 1)))
    return torch.zeros(D), torch.full((D,), size if size > 0.0 else 1.0)


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Some rows of a sparse matrix."""

    values: Tensor
    """B x U: what the rows have in the columns that occur in them."""
    columns: Tensor
    """U: which columns those are, ascending."""
    width: int
    """D: how many columns there are."""

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> SparseRows:
        return replace(self, values=self.values[rows])

    def to(self, *args: Any, **more: Any) -> SparseRows:
        """On another device."""
        return replace(self, values=self.values.to(*args, **more), columns=self.columns.to(*args, **more))

    def over(self, deviation: Tensor) -> SparseRows:
        """Each column divided by a number of its own (D of them)."""
        return replace(self, values=self.values / deviation.index_select(0, self.columns))

    def dense(self) -> Tensor:
        """B x D."""
        out = self.values.new_zeros((len(self.values), self.width))
        return out.index_copy_(1, self.columns, self.values)

    @classmethod
    def of(cls, matrix: Any) -> SparseRows:
        """From a scipy matrix in rows."""
        columns, place = np.unique(matrix.indices, return_inverse=True)
        values = np.zeros((matrix.shape[0], len(columns)), dtype=np.float32)
        row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        np.add.at(values, (row, place.reshape(-1)), matrix.data.astype(np.float32))
        return cls(torch.from_numpy(values), torch.from_numpy(columns.astype(np.int64)), int(matrix.shape[1]))


class _Columns(torch.autograd.Function):
    """values @ weight[:, columns].T, with a gradient that is written to these columns alone."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, columns: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(values, columns)
        ctx.size = weight.shape
        return values @ weight.t().index_select(0, columns)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Any:
        values, columns = ctx.saved_tensors
        H, D = ctx.size
        # Features by row, as prepare() has laid out the weights: each feature's gradient is one piece of memory.
        grad = upstream.new_zeros((D, H)).index_copy_(0, columns, values.t().to(upstream.dtype) @ upstream)
        return None, None, grad.t()


class FirstLinear(nn.Linear):
    """A linear layer that takes sparse rows as well."""

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        if not isinstance(x, SparseRows):
            return functional.linear(x, self.weight, self.bias)
        out: Tensor = _Columns.apply(x.values, x.columns, self.weight)  # type: ignore[no-untyped-call]
        return out + self.bias


class Flat(nn.Flatten):
    """Flattens inputs; sparse rows are flat already."""

    def forward(self, x: Tensor | SparseRows) -> Tensor | SparseRows:  # type: ignore[override]
        return x if isinstance(x, SparseRows) else super().forward(x)


def first_layer(network: nn.Module) -> FirstLinear | None:
    """The layer that takes sparse rows, where a network has one."""
    return next((layer for layer in network.modules() if isinstance(layer, FirstLinear)), None)


def prepare(network: nn.Module) -> None:
    """Lay the first layer's weights out feature by feature: sparse rows then read and write whole rows of memory."""
    layer = first_layer(network)
    if layer is not None:
        layer.weight.data = layer.weight.data.t().contiguous().t()


Augment = Literal["none", "flip", "crop", "cutout"]

SHIFT = 4
"""How many pixels an image is moved at most, each way."""


class Images:
    """N images of bytes on a device, N x height x width x channels."""

    def __init__(self, array: object, channels_last: bool, device: torch.device) -> None:
        """From an array of bytes, with its channels last or first (or without any)."""
        self.pixels = torch.as_tensor(array).to(device)
        if self.pixels.dim() == 3:
            self.pixels = self.pixels[..., None]
        elif not channels_last:
            self.pixels = self.pixels.permute(0, 2, 3, 1).contiguous()

    def read(self, index: Tensor, augment: Augment = "none") -> Tensor:
        """B x channels x height x width, from 0 to 1; on a GPU laid out with the channels last."""
        if augment == "none":
            pixels = self.pixels[index]
        else:
            rows, cols = places(len(index), self.pixels.shape[1:3], augment, index.device)
            pixels = self.pixels[index[:, None, None], rows[:, :, None], cols[:, None, :]]
        x = pixels.permute(0, 3, 1, 2)
        x = (x if x.is_cuda else x.contiguous()).float() / 255.0
        return cut_out(x) if augment == "cutout" else x


def augmented(x: Tensor, augment: Augment) -> Tensor:
    """The same for a batch that was read already, B x channels x height x width."""
    if augment == "none" or x.dim() != 4:
        return x
    rows, cols = places(len(x), x.shape[2:], augment, x.device)
    batch = torch.arange(len(x), device=x.device)[:, None, None]
    x = x.permute(0, 2, 3, 1)[batch, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)
    return cut_out(x) if augment == "cutout" else x


def places(n: int, size: torch.Size, augment: Augment, device: torch.device) -> tuple[Tensor, Tensor]:
    """n x height and n x width: the row and the column that each pixel is taken from."""
    height, width = size
    rows = torch.arange(height, device=device).expand(n, height)
    cols = torch.arange(width, device=device).expand(n, width)
    if augment != "flip":
        down = torch.randint(-SHIFT, SHIFT + 1, (n, 1), device=device)
        right = torch.randint(-SHIFT, SHIFT + 1, (n, 1), device=device)
        rows, cols = mirrored(rows + down, height), mirrored(cols + right, width)
    return rows, torch.where(torch.rand((n, 1), device=device) < 0.5, cols.flip(1), cols)


def mirrored(place: Tensor, size: int) -> Tensor:
    """Places beyond a border as the same number of places before it."""
    place = place.abs()
    return (size - 1 - (size - 1 - place).abs()).clamp_min(0)


def cut_out(x: Tensor) -> Tensor:
    """A square of half the side at a random place of each image, set to the image's mean."""
    n, _, height, width = x.shape
    inside = []
    for size in (height, width):
        middle = torch.randint(size, (n, 1), device=x.device)
        inside.append((torch.arange(size, device=x.device) - middle).abs() <= size // 4)
    square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return torch.where(square, x.mean(dim=(2, 3), keepdim=True), x)
