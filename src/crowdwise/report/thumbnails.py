"""Small images of items, as data that stands in the page itself.

An array (H x W grey, or H x W x 3) becomes a PNG here, without any library. A file is made smaller with Pillow where
that is installed; without, it is taken as it is if it is small enough for a page.
"""

from __future__ import annotations

import base64
import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.errors import InputError

SIDE = 96
"""The longest side of an image, in pixels."""
MOST_BYTES = 30_000
"""The largest file that is taken as it is."""
TYPES = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp"}
"""What every browser shows."""


def thumbnail(image: Any) -> str | None:
    """A ``data:`` address for an image: a file or an array; ``None`` for a file that cannot be shown."""
    if isinstance(image, (str, os.PathLike)):
        return _of_file(Path(image))
    array = np.asarray(image)
    if array.ndim not in (2, 3) or 0 in array.shape or (array.ndim == 3 and array.shape[2] not in (1, 3)):
        raise InputError(
            f"An image is an array of shape {array.shape}: expected height x width, with 3 colours or none, or a file."
        )
    return _address(png(_bytes(array)), "png")


def _bytes(array: Any) -> Any:
    """0 to 255, of one or three colours, about ``SIDE`` pixels; numbers of another range are stretched to it."""
    x = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    if x.dtype != np.uint8:
        x = x.astype(np.float64)
        low, high = float(np.nanmin(x)), float(np.nanmax(x))
        x = np.nan_to_num((x - low) / max(high - low, 1e-12) * 255.0).astype(np.uint8)
    longest = max(x.shape[:2])
    if longest > SIDE:
        step = -(-longest // SIDE)
        return x[::step, ::step]
    return x


def png(x: Any) -> bytes:
    """H x W or H x W x 3 bytes as a PNG file: signature, header, one compressed stream, end."""
    height, width = x.shape[:2]
    rows = np.ascontiguousarray(x, dtype=np.uint8).reshape(height, -1)
    raw = np.concatenate([np.zeros((height, 1), dtype=np.uint8), rows], axis=1).tobytes()  # filter 0 on every line

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if x.ndim == 3 else 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")


def _of_file(path: Path) -> str | None:
    try:
        from PIL import Image
    except ImportError:
        small = path.is_file() and path.suffix.lower() in TYPES and path.stat().st_size <= MOST_BYTES
        return _address(path.read_bytes(), TYPES[path.suffix.lower()]) if small else None
    try:
        with Image.open(path) as image:
            shown = image.convert("RGB")
            shown.thumbnail((2 * SIDE, 2 * SIDE))
            out = io.BytesIO()
            shown.save(out, "JPEG", quality=72)
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    return _address(out.getvalue(), "jpeg")


def _address(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
