"""Simulated sequences with known tags and known annotators.

``tag_chain`` is the model of ``hmm-crowd`` itself: a Markov chain of tags, and annotators who confuse tags token by
token. ``bio_tags`` is what people do to spans: they miss some, move a border, take one type for another, and see some
where there are none. ``transition`` is (1 + K) x K: of the first tag, and of each tag after each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdwise.data.encoding import Codes
from crowdwise.data.tags import Tags, find_spans
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.simulate import crowds
from crowdwise.simulate.crowds import Array, Ints, RandomState, Rng, SimulatedAnswers, VotesPerItem, assign


class SimulatedTags(SimulatedAnswers[Tags]):
    """Simulated tags, with the true tag (code) of every token, and what they were drawn from."""

    @property
    def tags(self) -> Tags:
        """The table."""
        return self.answers


def tag_chain(
    n_sequences: int = 200, *, n_annotators: int = 15, n_classes: int = 4, length: tuple[int, int] = (5, 25),
    stay: float = 8.0, diagonal: float = 5.0, rest: float = 1.0,
    annotators_per_sequence: VotesPerItem = 3, random_state: RandomState = 0,
) -> SimulatedTags:  # fmt: skip
    """A Markov chain of plain tags, and annotators with confusion matrices: the model of ``hmm-crowd``.

    Rows of the chain are Dirichlet with ``stay`` on the same tag and 1 elsewhere, those of confusions with
    ``diagonal`` on the truth and ``rest`` elsewhere. Parameters hold ``transition`` and ``confusion``.
    Reference: Nguyen et al. 2017.
    """
    crowds.check_counts(n_sequences=n_sequences, n_annotators=n_annotators)
    crowds.check_counts(2, n_classes=n_classes)
    crowds.check_positive(stay=stay, diagonal=diagonal, rest=rest)
    rng = crowds.as_generator(random_state)
    K = n_classes
    transition = np.vstack([np.full((1, K), 1.0 / K), crowds.dirichlet_confusion(1, K, stay, 1.0, rng)[0]])
    theta = crowds.dirichlet_confusion(n_annotators, K, diagonal, rest, rng)
    starts = _lengths(n_sequences, length, rng)
    truth = _chain(transition, starts, rng)
    pair, token, annotator = _who(starts, n_annotators, annotators_per_sequence, rng)
    label = crowds.answer(theta, annotator, truth[token], rng)
    tags = _collect(starts, token, annotator, label, [f"t{k}" for k in range(K)], n_annotators, truth)
    return SimulatedTags("tag-chain", tags, {"transition": transition, "confusion": theta})


def bio_tags(
    n_sequences: int = 200, *, n_annotators: int = 30, types: Sequence[str] = ("LOC", "ORG", "PER"),
    length: tuple[int, int] = (8, 25), begin: float = 0.12, go_on: float = 0.5, skill: tuple[float, float] = (2.5, 1.5),
    miss: float = 0.7, shift: float = 0.4, mislabel: float = 0.5, spurious: float = 0.1,
    annotators_per_sequence: VotesPerItem = 3, random_state: RandomState = 0,
) -> SimulatedTags:  # fmt: skip
    """Spans in BIO, and annotators who miss, shift, mislabel and invent them.

    Outside of spans one begins with probability ``begin`` (its type is drawn evenly), and a span goes on with
    probability ``go_on``. An annotator without any skill misses a share ``miss`` of the spans, moves one border of a
    share ``shift`` by a token, takes a share ``mislabel`` for another type, and tags a share ``spurious`` of the
    outside tokens as spans; the rates of annotator m are 1 - skill of these, with skill ~ Beta. Parameters hold
    ``transition`` and ``skill``, ``miss``, ``shift``, ``mislabel``, ``spurious`` (M each).
    """
    crowds.check_counts(n_sequences=n_sequences, n_annotators=n_annotators)
    crowds.check_shares(begin=begin, go_on=go_on, miss=miss, shift=shift, mislabel=mislabel, spurious=spurious)
    crowds.check_positive_pairs(skill=skill)
    names = list(dict.fromkeys(types))
    if len(names) < 1 or not all(isinstance(name, str) and name for name in names):
        raise ParameterError(f"types={types!r}: expected names of types, such as ('LOC', 'PER').")
    rng = crowds.as_generator(random_state)
    J, M = len(names), n_annotators
    classes = [*(f"B-{n}" for n in names), *(f"I-{n}" for n in names), "O"]
    transition = _bio_chain(J, begin, go_on)
    starts = _lengths(n_sequences, length, rng)
    truth = _chain(transition, starts, rng)
    able = rng.beta(*skill, size=M)
    worst = {"miss": miss, "shift": shift, "mislabel": mislabel, "spurious": spurious}
    rate = {name: (1.0 - able) * share for name, share in worst.items()}
    pair, token, annotator = _who(starts, M, annotators_per_sequence, rng)
    label = _spoiled(truth, starts, classes, pair, token, annotator, rate, rng)
    tags = _collect(starts, token, annotator, label, classes, M, truth)
    return SimulatedTags("bio-tags", tags, {"transition": transition, "skill": able, **rate})


def _bio_chain(J: int, begin: float, go_on: float) -> Array:
    """The chain over B-1..B-J, I-1..I-J, O."""
    outside = np.concatenate([np.full(J, begin / J), np.zeros(J), [1.0 - begin]])
    inside = np.tile((1.0 - go_on) * outside, (2 * J, 1))
    j = np.arange(J)
    inside[j, J + j] = inside[J + j, J + j] = go_on
    return np.vstack([outside, inside, outside])


def _lengths(n_sequences: int, length: tuple[int, int], rng: Rng) -> Ints:
    fine = isinstance(length, (tuple, list)) and len(length) == 2 and all(map(crowds.is_integer, length))
    if not fine or not 1 <= length[0] <= length[1]:
        raise ParameterError(f"length={length!r}: expected the least and the most tokens of a sequence, from 1 on.")
    return np.concatenate([[0], np.cumsum(rng.integers(length[0], length[1] + 1, n_sequences))])


def _chain(transition: Array, starts: Ints, rng: Rng) -> Codes:
    """A draw of all sequences at once, position by position."""
    edges = np.cumsum(transition, axis=1)
    edges[:, -1] = 1.0
    u = rng.random(starts[-1])
    out = np.empty(starts[-1], dtype=np.int32)
    length = np.diff(starts)
    for t in range(int(length.max())):
        at = starts[:-1][length > t] + t
        row = np.zeros(len(at), dtype=np.int64) if t == 0 else out[at - 1] + 1
        out[at] = (u[at][:, None] >= edges[row]).sum(axis=1)
    return out


def _who(starts: Ints, M: int, annotators_per_sequence: VotesPerItem, rng: Rng) -> tuple[Ints, Ints, Ints]:
    """Who tags what, whole sequences at a time: the (sequence, annotator) pair, token and annotator of every tag."""
    sequence, annotator = assign(len(starts) - 1, M, annotators_per_sequence, random_state=rng)
    length = np.diff(starts)[sequence]
    pair = np.repeat(np.arange(len(sequence)), length)
    token = np.arange(length.sum()) + np.repeat(starts[sequence] - (np.cumsum(length) - length), length)
    return pair, token, annotator[pair]


def _spoiled(
    truth: Codes, starts: Ints, classes: list[str], pair: Ints, token: Ints, annotator: Ints, rate: dict[str, Array],
    rng: Rng,
) -> Codes:  # fmt: skip
    """What annotators make of the true spans."""
    J = len(classes) // 2
    spans = find_spans(truth, starts, np.array(classes, dtype=object), "bio")
    kind = np.array([classes.index(f"B-{name}") for name in spans.type.tolist()], dtype=np.int64)
    opening = np.flatnonzero(np.append(True, np.diff(pair) != 0))  # where each pair's tags begin
    who, what = annotator[opening], np.searchsorted(starts, token[opening])
    first, count = np.searchsorted(spans.sequence, what), np.bincount(spans.sequence, minlength=len(starts) - 1)[what]
    p = np.repeat(np.arange(len(opening)), count)
    s = np.arange(count.sum()) + np.repeat(first - (np.cumsum(count) - count), count)
    seen = rng.random(len(s)) >= rate["miss"][who[p]]
    p, s = p[seen], s[seen]
    start, end, k = spans.start[s].copy(), spans.end[s].copy(), kind[s]
    moved = rng.random(len(s)) < rate["shift"][who[p]]
    by, side = rng.choice([-1, 1], len(s)), rng.random(len(s)) < 0.5
    start[moved & side] += by[moved & side]
    end[moved & ~side] += by[moved & ~side]
    if J > 1:
        wrong = rng.random(len(s)) < rate["mislabel"][who[p]]
        k = np.where(wrong, (k + rng.integers(1, J, len(s))) % J, k)
    size = np.diff(np.append(opening, len(pair)))[p]
    start, end = np.maximum(start, 0), np.minimum(end, size)
    out = np.full(len(pair), 2 * J, dtype=np.int32)
    for d in range(int((end - start).max(initial=0))):
        here = start + d < end
        out[opening[p[here]] + start[here] + d] = (k if d == 0 else k + J)[here]
    invented = (out == 2 * J) & (rng.random(len(out)) < rate["spurious"][annotator])
    out[invented] = rng.integers(0, J, int(invented.sum()))
    return out


def _collect(starts: Ints, token: Ints, annotator: Ints, label: Ints, classes: list[str], M: int, truth: Codes) -> Tags:
    sequence = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    position = np.arange(len(truth)) - starts[sequence]
    items = np.array([f"{g}:{t}" for g, t in zip(sequence.tolist(), position.tolist(), strict=True)], dtype=object)
    names: dict[str, Any] = {"items": items, "annotators": range(M), "classes": classes}
    votes = Votes.from_codes(token, annotator, label, truth=truth.astype(np.int32), **names)
    # Where two spoiled spans run into each other the second may have lost its beginning.
    return Tags.from_votes(votes, starts, position=position, on_invalid="repair")
