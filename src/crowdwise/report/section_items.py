"""The part of the report about items: those to look at first, with votes, probabilities, reasons, text and image.

A page shows ``SHOWN`` items in the order of review; the table of all items goes into the download.

Small images of items, as data that stands in the page itself.

An array (H x W grey, or H x W x 3) becomes a PNG here, without any library. A file is made smaller with Pillow where
that is installed; without, it is taken as it is if it is small enough for a page.
"""

from __future__ import annotations

import base64
import io
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.errors import InputError
from crowdwise.report.findings import Diagnosis
from crowdwise.report.json_values import number, plain_list, shortened

SHOWN = 40
MOST_CLASSES = 4
"""Classes of an item's posterior that are shown; the rest is summed up."""
MOST_NAMES = 12
"""Annotators named for each label of an item."""
LONG = 600
"""Characters of a text that are shown."""


def review(
    found: Diagnosis, truth: Any = None, texts: Mapping[Any, str] | None = None,
    images: Mapping[Any, Any] | None = None, shown: int = SHOWN,
) -> list[dict[str, Any]]:  # fmt: skip
    """The items to look at first, one dict each."""
    seen = found.inspection
    report, votes = seen.items, seen.votes
    if report is None:
        order = np.argsort(seen.consensus.corrected_posterior.max(axis=1), kind="stable")[:shown]
        why = np.full(len(order), "", dtype=object)
    else:
        order = report.order(suggested=True)[:shown]
        why = report.why(order)
    classes, people = [str(c) for c in votes.classes.tolist()], votes.annotators
    out = []
    for n, reason in zip(order.tolist(), why.tolist(), strict=True):
        name = votes.items[n].item() if hasattr(votes.items[n], "item") else votes.items[n]
        row: dict[str, Any] = {"item": str(name), "label": classes[int(seen.consensus.label_codes[n])], "why": reason}
        if report is not None:
            row |= {c: number(report.columns[c][n]) for c in ("right", "flip", "gain", "against")}
        row["posterior"] = _posterior(seen.consensus.corrected_posterior[n], classes)
        row["votes"] = _votes(votes, n, classes, people)
        if truth is not None and truth[n] >= 0:
            row["truth"] = classes[int(truth[n])]
        if texts and name in texts:
            row["text"] = shortened(texts[name], LONG)
        if images and name in images:
            image = thumbnail(images[name])
            row |= {} if image is None else {"image": image}
        out.append(row)
    return out


def _posterior(q: Any, classes: list[str]) -> list[dict[str, Any]]:
    """The most probable classes, the others as one."""
    order = np.argsort(-q, kind="stable")[:MOST_CLASSES]
    shown = [{"class": classes[k], "p": number(q[k])} for k in order.tolist() if q[k] >= 0.001]
    rest = float(1.0 - q[order].sum())
    return [*shown, {"class": None, "p": number(rest)}] if rest >= 0.005 else shown


def _votes(votes: Any, n: int, classes: list[str], people: Any) -> list[dict[str, Any]]:
    """Label -> how many and who, the most votes first."""
    rows = slice(int(votes.indptr[n]), int(votes.indptr[n + 1]))
    labels, names = votes.label[rows], people[votes.annotator[rows]]
    count = np.bincount(labels, minlength=len(classes))
    return [
        {"label": classes[k], "votes": int(count[k]), "by": [str(m) for m in names[labels == k][:MOST_NAMES].tolist()]}
        for k in np.argsort(-count, kind="stable").tolist()
        if count[k]
    ]


def item_table(found: Diagnosis) -> dict[str, list[Any]]:
    """All items, in the order of the votes, as columns: what the download holds."""
    seen = found.inspection
    columns: dict[str, list[Any]] = {"item": [str(name) for name in seen.votes.items.tolist()]}
    columns["label"] = [str(name) for name in seen.consensus.labels.tolist()]
    if seen.items is None:
        columns["probability"] = plain_list(seen.consensus.corrected_posterior.max(axis=1).round(3))
        columns["votes"] = seen.consensus.votes_per_item.tolist()
        return columns
    given = seen.items.columns
    for name in ("probability", "right"):
        columns[name] = plain_list(np.round(given[name], 3))
    columns["votes"] = given["votes"].tolist()
    doubt = given["suggested"].tolist()
    columns["suggested"] = ["yes" if x else "" for x in doubt]
    columns["rank"] = [r if x else None for r, x in zip(given["rank"].tolist(), doubt, strict=True)]
    some = np.flatnonzero(given["suggested"])
    why = np.full(len(seen.votes), "", dtype=object)
    why[some] = seen.items.why(some)
    columns["why"] = why.tolist()
    return columns


def class_pairs(found: Diagnosis) -> list[dict[str, Any]]:
    """Pairs of classes that are taken for each other beyond chance, the most confused first."""
    seen = found.inspection
    if seen.items is None:
        return []
    return [
        {
            "first": str(pair.classes[0]), "second": str(pair.classes[1]), "rate": number(pair.rate),
            "low": number(pair.low), "high": number(pair.high), "share": number(pair.share),
            "expected": number(pair.expected), "undecided": pair.items, "sentence": str(pair),
        }
        for pair in seen.items.ambiguous()
    ]  # fmt: skip


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
