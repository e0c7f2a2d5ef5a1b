"""Files with columns in the manner of the CoNLL tasks: one line per token, one column per annotator.

A blank line stands between sequences, the first column is the word:

    Ann    B-PER  B-PER  ?
    slept  O      O      ?
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.data import encoding
from crowdwise.data.boundary import reading
from crowdwise.errors import InputError, ParameterError, ReadError

ENDINGS = (".conll", ".bio", ".iob", ".iob2", ".col")


def read_conll(
    path: Path, annotators: Sequence[Any] | None, truth: int | None, separator: str | None, missing: Sequence[str],
    comment: str | None,
) -> dict[str, Any]:  # fmt: skip
    """A CoNLL-like file as a long table; the first column is the word."""
    with reading(path, "text in UTF-8"):
        if not path.is_file():
            raise ReadError(f"There is no file {path}.")
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    rows: list[list[str]] = []
    sequence: list[int] = []
    number, width = 0, 0
    for n, line in enumerate(lines):
        if not line.strip() or line.startswith("-DOCSTART-"):
            number += bool(sequence) and sequence[-1] == number
            continue
        if comment and line.startswith(comment):
            continue
        fields = [field.strip() for field in line.split(separator)]
        width = width or len(fields)
        if len(fields) != width or width < 2:
            raise ReadError(
                f"Line {n + 1} of {path} has {len(fields)} columns: expected {max(width, 2)}, the word and a tag of "
                f"each annotator ({', '.join(map(repr, missing))} where there is none)."
            )
        rows.append(fields)
        sequence.append(number)
    if not rows:
        raise ReadError(f"{path} is empty.")
    cells = np.array(rows, dtype=object)
    true = None
    if truth is not None:
        if not -width < truth < width or truth == 0:
            raise ParameterError(f"truth={truth}: the file has the columns 1 to {width - 1} besides the word.")
        true = cells[:, truth]
        cells = np.delete(cells, truth, axis=1)
    T, M = cells.shape[0], cells.shape[1] - 1
    names = encoding.to_vocabulary(range(M) if annotators is None else annotators)
    if len(names) != M:
        raise InputError(f"{path} has {M} columns of annotators and {len(names)} are named.")
    of = np.array(sequence)
    position = np.arange(T) - np.searchsorted(of, of)
    token, who = np.nonzero(~np.isin(cells[:, 1:], list(missing)))
    bare = np.setdiff1d(np.arange(T), token)
    rows_of = np.concatenate([token, bare])
    nobody = np.full(len(bare), None, dtype=object)
    out: dict[str, Any] = {
        "sequence": of[rows_of], "position": position[rows_of], "word": cells[rows_of, 0],
        "annotator": np.concatenate([names[who].astype(object), nobody]),
        "tag": np.concatenate([cells[:, 1:][token, who], nobody]),
    }  # fmt: skip
    if true is not None:
        out["truth"] = np.where(np.isin(true, list(missing)), np.array(None), true)[rows_of]
    return out
