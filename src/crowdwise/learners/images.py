"""Images on the device: kept whole as bytes, and cropped, mirrored and cut out there as a batch is read.

==========  ===================================================================================================
augment     what a training batch gets, new in every epoch
==========  ===================================================================================================
``none``    the images as they are
``flip``    half of them mirrored
``crop``    moved by up to 4 pixels, the border mirrored; and half of them mirrored
``cutout``  the same, and a square of half the side, at a random place, set to the mean
==========  ===================================================================================================

A crop and a mirror image are a choice of rows and columns, so one gather reads, moves and mirrors a batch; nothing is
copied from the host. Predictions never see an augmented image.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Augment = Literal["none", "flip", "crop", "cutout"]

SHIFT = 4
"""How many pixels an image is moved at most, each way."""


class Images:
    """N images of bytes on a device, N x height x width x channels."""

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels

    @classmethod
    def of(cls, array: object, channels_last: bool, device: torch.device) -> Images:
        """From an array of bytes, with its channels last or first (or without any)."""
        pixels = torch.as_tensor(array).to(device)
        if pixels.dim() == 3:
            pixels = pixels[..., None]
        elif not channels_last:
            pixels = pixels.permute(0, 2, 3, 1).contiguous()
        return cls(pixels)

    def read(self, index: Tensor, augment: Augment = "none") -> Tensor:
        """B x channels x height x width, from 0 to 1; on a GPU laid out with the channels last."""
        if augment == "none":
            found = self.pixels[index]
        else:
            rows, cols = places(len(index), self.pixels.shape[1:3], augment, index.device)
            found = self.pixels[index[:, None, None], rows[:, :, None], cols[:, None, :]]
        x = found.permute(0, 3, 1, 2)
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
    turned = torch.rand((n, 1), device=device) < 0.5
    return rows, torch.where(turned, cols.flip(1), cols)


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
