"""How good tags are where the truth is known: spans that are exactly right, in place and in type.

precision = right spans / found spans, recall = right spans / true spans, F1 = their harmonic mean; counts are summed
over sequences first (micro averages), and the bootstrap draws whole sequences.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import Consensus
from crowdwise.data import encoding
from crowdwise.data.tag_schemes import Spans
from crowdwise.data.tags import Tags
from crowdwise.errors import InputError, LabelError, listing
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options

Counts = npt.NDArray[np.float64]
SCORES = ("precision", "recall", "f1")


def span_scores(result: Any, tags: Tags, truth: Any = None, **options: Unpack[Options]) -> dict[str, Estimate]:
    """Precision, recall and F1 of exact spans.

    Parameters
    ----------
    result
        A consensus over the tokens of ``tags`` (of any method), or one tag for every token, by name.
    tags
        The sequences. Those all of whose tokens have a known truth are counted.
    truth
        The true tags, as :meth:`crowdwise.Tags.encode_truth` takes them; by default those that lie with ``tags``.
    **options
        Of the intervals: see :class:`~crowdwise.metrics.bootstrap.Options`.
    """
    found, true, which = _both(result, tags, truth)
    counts = _counts(found, true, len(tags))[which]
    return _scores(counts, options)


def span_scores_per_type(
    result: Any, tags: Tags, truth: Any = None, **options: Unpack[Options]
) -> dict[str, dict[str, Estimate]]:
    """As :func:`span_scores`, for each type of spans that was found or is true."""
    found, true, which = _both(result, tags, truth)
    out = {}
    for name in sorted({*found.type.tolist(), *true.type.tolist()}):
        counts = _counts(_of_type(found, name), _of_type(true, name), len(tags))[which]
        if counts.sum() > 0:
            out[name] = _scores(counts, options)
    return out


def _scores(counts: Counts, options: Options) -> dict[str, Estimate]:
    def share(column: int) -> Any:
        def statistic(weight: Counts) -> float:
            right, found, true = weight @ counts
            size = (found, true, (found + true) / 2.0)[column]
            return float(right / size) if size > 0 else float(right == found == true)

        return statistic

    return {name: Bootstrap(**options).of_weights(share(n), len(counts)) for n, name in enumerate(SCORES)}


def _both(result: Any, tags: Tags, truth: Any) -> tuple[Spans, Spans, npt.NDArray[np.int64]]:
    """The found and the true spans, and the sequences whose truth is known throughout."""
    code = _codes(result, tags)
    given = tags.truth if truth is None else tags.encode_truth(truth)
    if given is None:
        raise InputError("The tags have no truth: pass truth=..., or make them with one.")
    unknown = np.add.reduceat(given < 0, tags.starts[:-1])
    which = np.flatnonzero(unknown == 0)
    if not len(which):
        raise InputError("No sequence has a known truth for all of its tokens: there is nothing to measure.")
    outside = encoding.locate(encoding.to_vocabulary(["O"]), tags.classes)[0]
    return tags.spans(code), tags.spans(np.where(given < 0, max(outside, 0), given)), which


def _codes(result: Any, tags: Tags) -> npt.NDArray[Any]:
    if isinstance(result, Consensus):
        if not np.array_equal(result.items, tags.votes.items):
            raise InputError("The consensus is over other tokens than those of the tags.")
        names = result.labels
    else:
        names = encoding.to_vocabulary(list(result))
        if len(names) != tags.n_tokens:
            raise InputError(f"Expected a tag for each of the {tags.n_tokens} tokens and found {len(names)}.")
    kinds, place = np.unique(names.astype(str), return_inverse=True)
    known = encoding.locate(encoding.to_vocabulary(kinds.tolist()), tags.classes)
    if (known < 0).any():
        raise LabelError(f"Tags {listing(kinds[known < 0])} are not among {listing(tags.classes, 10)}.")
    return known[place]


def _counts(found: Spans, true: Spans, n_sequences: int) -> Counts:
    """G x 3: right, found and true spans of each sequence."""
    keys = [set(zip(s.sequence.tolist(), s.start.tolist(), s.end.tolist(), s.type, strict=True)) for s in (found, true)]
    right = np.array([key[0] for key in keys[0] & keys[1]], dtype=np.int64)
    columns = [np.bincount(rows, minlength=n_sequences) for rows in (right, found.sequence, true.sequence)]
    return np.column_stack(columns).astype(np.float64)


def _of_type(spans: Spans, name: str) -> Spans:
    some = spans.type == name
    return Spans(spans.sequence[some], spans.start[some], spans.end[some], spans.type[some])
