"""Simulated crowds for every answer type but votes: their truth and their annotators are known.

:func:`ratings`: the truth of item n is Normal, annotator m says

    centre + b[m] + a[m] (truth[n] - centre) + noise of precision p[m]

True scores are Normal(0, ``spread``), centred; two equal items tie with probability nu / (2 + nu), nu = exp(``tie``).
The ``transition`` of tags is (1 + K) x K: of the first tag, and of each tag after each.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.constraints import (
    Bounds,
    Count,
    CountFromZero,
    NonNegative,
    Positive,
    RandomState,
    Share,
    checked,
    is_count,
)
from crowdwise.core.numerics import softmax
from crowdwise.data.boxes import Boxes, edge_names
from crowdwise.data.comparisons import Comparisons
from crowdwise.data.encoding import Codes
from crowdwise.data.frames import make_frame
from crowdwise.data.label_sets import LabelSets
from crowdwise.data.masks import Masks, pack
from crowdwise.data.rankings import Rankings
from crowdwise.data.ratings import Ratings
from crowdwise.data.similarities import Similarities
from crowdwise.data.spans import Spans
from crowdwise.data.tags import Tags, find_spans
from crowdwise.data.texts import Texts
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.simulate import crowds
from crowdwise.simulate.crowds import (
    Array,
    Classes,
    Ints,
    Pair,
    Prior,
    Rng,
    Simulated,
    SimulatedAnswers,
    T,
    VotesPerItem,
    assign,
)


def _with_rates(name: str, answers: T, truth: Any, **rates: npt.NDArray[Any]) -> SimulatedAnswers[T]:
    """The crowd, with what it was drawn from in the order of annotators: a0, a1, a10, a2..."""
    order = [int(annotator[1:]) for annotator in answers.annotators]
    known = {what: rate[order] for what, rate in rates.items()}
    return SimulatedAnswers(name, answers.with_truth(truth), known)


def _dealt(name: str, n_items: int, M: int, each: VotesPerItem, rng: Rng) -> tuple[Codes, Codes]:
    """:func:`assign`, whose error names the parameter of the scenario."""
    try:
        return assign(n_items, M, each, random_state=rng)
    except ParameterError as error:
        raise ParameterError(str(error).replace("votes_per_item", name)) from None


class SimulatedRatings(SimulatedAnswers[Ratings]):
    """Simulated ratings, with the true number of every item, and what they were drawn from."""

    @property
    def ratings(self) -> Ratings:
        """The table."""
        return self.answers


@checked
def ratings(
    n_items: Count = 1000, *, n_annotators: Count = 20, bias: NonNegative = 0.5, scale: NonNegative = 0.0,
    noise: Positive = 1.0, shape: Positive = 2.0, mean: float = 0.0, spread: Positive = 1.0, outliers: Share = 0.0,
    n_copiers: CountFromZero = 0, n_features: CountFromZero = 0, votes_per_item: VotesPerItem = None,
    shared_noise: NonNegative = 0.0, random_state: RandomState = 0,
) -> SimulatedRatings:  # fmt: skip
    """Numbers from annotators who differ in bias, scale and precision.

    Biases are Normal with deviation ``bias``, scales Normal around 1 with deviation ``scale`` (at least 0.05),
    precisions Gamma with mean 1 / ``noise``^2 and shape ``shape`` (small: annotators differ much). A share ``outliers``
    of the ratings gets ten times the noise. Of the annotators, ``n_copiers`` repeat the noise of the first one. With
    ``n_features`` the truth is half a random linear function of so many inputs (``features["x_train"]``). An error of
    deviation ``shared_noise`` is common to all ratings on an item.
    """
    rng = np.random.default_rng(random_state)
    if n_copiers >= n_annotators:
        raise ParameterError(f"n_copiers={n_copiers}: expected fewer than the {n_annotators} annotators.")
    x = rng.normal(size=(n_items, n_features)) if n_features else np.empty((n_items, 0))
    unit = rng.normal(size=n_items)
    if n_features:
        w = rng.normal(size=n_features)
        unit = np.sqrt(0.5) * (x @ w) / np.sqrt(w @ w) + np.sqrt(0.5) * unit
    truth = mean + spread * unit
    b = rng.normal(0.0, bias, size=n_annotators)
    a = np.maximum(rng.normal(1.0, scale, size=n_annotators), 0.05)
    p = rng.gamma(shape, 1.0 / (shape * noise**2), size=n_annotators)
    item, who = assign(n_items, n_annotators, votes_per_item, random_state=rng)
    e = rng.normal(size=len(item)) / np.sqrt(p[who])
    e *= np.where(rng.random(len(item)) < outliers, 10.0, 1.0)
    if n_copiers:
        shared = rng.normal(size=n_items) / np.sqrt(p[0])
        p[1 : n_copiers + 1] = p[0]
        copied = who <= n_copiers
        e[copied] = shared[item[copied]]
    if shared_noise:
        e += shared_noise * rng.normal(size=n_items)[item]
    value = mean + b[who] + a[who] * (truth[item] - mean) + e
    table = Ratings.from_codes(item, who, value, items=range(n_items), annotators=range(n_annotators), truth=truth)
    known = {"bias": b, "scale": a, "precision": p, "mean": mean, "spread": spread}
    return SimulatedRatings("ratings", table, known, {"x_train": x} if n_features else {})


def ordered_confusion(location: Array, spread: Array, n_classes: int) -> Array:
    """theta[m, k, l] of annotators who see grade k as Normal(k + location, spread) and say the nearest grade."""
    from scipy.special import ndtr

    K = n_classes
    cut = np.concatenate([[-np.inf], np.arange(K - 1) + 0.5, [np.inf]])
    z = (cut[None, None, :] - np.arange(K)[None, :, None] - location[:, None, None]) / spread[:, None, None]
    return np.asarray(np.diff(ndtr(z), axis=2))


@checked
def ordinal(
    n_items: Count = 1000, *, n_annotators: Count = 20, n_classes: Classes = 5, location: NonNegative = 0.4,
    spread: Pair = (0.4, 1.4), votes_per_item: VotesPerItem = None, prior: Prior = None,
    random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """Grades from annotators who are strict or mild (``location``) and careful or careless (``spread``).

    Locations are Normal with deviation ``location``, spreads uniform between two ends, both in grades. Parameters hold
    ``location`` and ``spread`` (M).
    """
    pi, rng = crowds.begin(n_classes, prior, random_state)
    low, high = spread
    if low > high:
        raise ParameterError(f"spread={spread!r}: expected two rising ends.")
    d, s = rng.normal(0.0, location, size=n_annotators), rng.uniform(low, high, size=n_annotators)
    theta = ordered_confusion(d, s, n_classes)
    return crowds.independent("ordinal", n_items, theta, pi, votes_per_item, rng, location=d, spread=s)


class SimulatedLabelSets(SimulatedAnswers[LabelSets]):
    """Label sets, with the true set of every item (N x L booleans), and what they were drawn from."""


@checked
def label_sets(
    n_items: Count = 200, *, n_labels: Count = 8, n_annotators: Count = 20, answers_per_item: VotesPerItem = 4,
    share: Share = 0.3, skill: tuple[float, float] = (1.2, 0.8), likeness: Positive = 20.0,
    random_state: RandomState = 0,
) -> SimulatedLabelSets:  # fmt: skip
    """Sets of labels, each label in ``share`` of them on average, and annotators with a skill of their own.

    The log-odds of an annotator's sensitivity and specificity are Normal with mean and deviation ``skill``; on each
    label they are drawn from a Beta with that mean and the strength ``likeness``: the greater, the more alike.
    Parameters hold ``sensitivity`` and ``specificity`` (M x L), and ``prior`` (L).
    """
    rng = np.random.default_rng(random_state)
    prior = rng.beta(4.0 * share + 1e-9, 4.0 * (1.0 - share) + 1e-9, size=n_labels)
    truth = rng.random((n_items, n_labels)) < prior
    centre = 1.0 / (1.0 + np.exp(-rng.normal(skill[0], skill[1], size=(2, n_annotators, 1))))
    a, b = np.broadcast_arrays(likeness * centre, likeness * (1.0 - centre))
    rate = rng.beta(np.repeat(a, n_labels, axis=2), np.repeat(b, n_labels, axis=2))
    item, who = _dealt("answers_per_item", n_items, n_annotators, answers_per_item, rng)
    says = np.where(truth[item], rate[0][who], 1.0 - rate[1][who])
    chosen = rng.random(says.shape) < says
    labels = [f"l{k}" for k in range(n_labels)]
    names = np.array(labels, dtype=object)
    records = [(int(n), f"a{m}", names[row].tolist()) for n, m, row in zip(item, who, chosen, strict=True)]
    answers = LabelSets.from_records(records, classes=labels)
    truth = truth[answers.items.astype(np.int64)]  # with few answers some items may have none
    true = {"prior": prior, "sensitivity": rate[0], "specificity": rate[1]}
    return SimulatedLabelSets("label-sets", answers.with_truth(truth), true)


class SimulatedComparisons(SimulatedAnswers[Comparisons]):
    """Comparisons, and what they were drawn from."""

    scores = crowds.known("scores", "N true scores; G x N where there are several groups of annotators.")
    reliability = crowds.known("reliability", "M: the probability of an answer given straight.")
    position = crowds.known("position", "M: log odds in favour of the item shown first.")
    group = crowds.known("group", "The group of every annotator.")

    @property
    def comparisons(self) -> Comparisons:
        """The table."""
        return self.answers

    def _truths(self) -> Any:
        scores = self.scores
        return make_frame({"item": self.answers.items, "score": scores}, "polars") if scores.ndim == 1 else None

    def tau(self, ranking: Any) -> float:
        """Kendall's tau between the true scores (of the largest group) and those found."""
        from scipy.stats import kendalltau

        truth = self.scores if self.scores.ndim == 1 else self.scores[np.bincount(self.group).argmax()]
        return float(kendalltau(truth, ranking.scores).statistic)


class SimulatedRankings(SimulatedAnswers[Rankings]):
    """Rankings, and the scores they were drawn from."""

    scores = crowds.known("scores", "N true scores.")

    @property
    def rankings(self) -> Rankings:
        """The table."""
        return self.answers


@checked
def comparisons(
    n_items: Classes = 20, *, n_annotators: Count = 10, n_comparisons: Count = 1000, spread: float = 1.0,
    spammers: Share = 0.0, reversed_: Share = 0.0, honest: float | tuple[float, float] = 1.0, position: float = 0.0,
    position_spread: float = 0.0, slopes: Sequence[float] | None = None, tie: float | None = None, n_groups: Count = 1,
    random_state: RandomState = 0,
) -> SimulatedComparisons:  # fmt: skip
    """Pairs drawn at random, compared by annotators drawn at random.

    A share ``spammers`` of the annotators answers by chance (reliability 1/2), a share ``reversed_`` the other way
    round (1 - ``honest``), the others have the reliability ``honest``, or one drawn from Beta(a, b) for a pair (a, b).
    ``slopes`` multiply the differences of scores, one for each annotator.
    ``tie`` is the log of Davidson's nu; without it there are no ties. Annotators are dealt to ``n_groups`` groups with
    scores of their own."""
    if (len(honest) != 2 or min(honest) <= 0.0) if isinstance(honest, (tuple, list)) else not 0.0 <= honest <= 1.0:
        raise ParameterError(f"honest={honest!r}: expected a share from 0 to 1, or (a, b) of a Beta distribution.")
    if spammers + reversed_ > 1.0:
        raise ParameterError(f"spammers + reversed_ = {spammers + reversed_:g}: expected at most 1.")
    rng = np.random.default_rng(random_state)
    N, M, S = n_items, n_annotators, n_comparisons
    scores = rng.normal(0.0, spread, (n_groups, N))
    scores -= scores.mean(axis=1, keepdims=True)
    kind = rng.permutation(M)
    straight = rng.beta(*honest, size=M) if isinstance(honest, (tuple, list)) else np.full(M, float(honest))
    eta = straight.copy()
    eta[kind < round(spammers * M)] = 0.5
    back = kind >= M - round(reversed_ * M)
    eta[back] = 1.0 - straight[back]
    bias = position + position_spread * rng.standard_normal(M)
    group = np.arange(M) % n_groups
    left = rng.integers(0, N, S)
    right = (left + rng.integers(1, N, S)) % N
    who = rng.integers(0, M, S)
    slope = np.ones(M) if slopes is None else np.asarray(slopes, dtype=np.float64)
    if slope.shape != (M,):
        raise ParameterError(f"slopes={slopes!r}: expected {M} numbers, one for each annotator.")
    z = slope[who] * (scores[group[who], left] - scores[group[who], right]) + bias[who]
    logit = np.stack([z / 2.0, -z / 2.0, np.full(S, -np.inf if tie is None else tie)], axis=1)
    outcome = (rng.random(S)[:, None] > np.cumsum(softmax(logit), axis=1)[:, :2]).sum(axis=1)
    turned = (rng.random(S) > eta[who]) & (outcome < 2)
    verdict = np.where(turned, 1 - outcome, outcome)
    table = Comparisons.from_codes(left, right, who, verdict, items=np.arange(N), annotators=np.arange(M))
    true = {"scores": scores[0] if n_groups == 1 else scores, "reliability": eta, "position": bias, "group": group}
    return SimulatedComparisons("comparisons", table, true)


@checked
def rankings(
    n_items: Count = 10, *, n_annotators: Count = 20, n_rankings: Count = 200, size: int = 4, spread: float = 1.0,
    random_state: RandomState = 0,
) -> SimulatedRankings:  # fmt: skip
    """Rankings of ``size`` items drawn at random, from the Plackett-Luce model."""
    if not 2 <= size <= n_items:
        raise ParameterError(f"size={size!r}: expected from 2 to the number of items, {n_items}.")
    rng = np.random.default_rng(random_state)
    scores = rng.normal(0.0, spread, n_items)
    scores -= scores.mean()
    chosen = rng.random((n_rankings, n_items)).argsort(axis=1)[:, :size]
    # The largest of score plus Gumbel noise is chosen with the probability of the model, and so on down.
    order = (-(scores[chosen] + rng.gumbel(size=chosen.shape))).argsort(axis=1)
    item = np.take_along_axis(chosen, order, axis=1)
    table = Rankings.from_codes(
        np.arange(n_rankings + 1) * size, item.ravel(), rng.integers(0, n_annotators, n_rankings),
        items=np.arange(n_items), annotators=np.arange(n_annotators), truth=scores,
    )  # fmt: skip
    return SimulatedRankings("rankings", table, {"scores": scores})


class SimulatedSimilarities(SimulatedAnswers[Similarities]):
    """Same-or-different answers, and what they were drawn from."""

    truth = crowds.known("truth", "N: the true kind of every item.")


@checked
def similarities(
    n_items: Count = 200, *, n_clusters: Count = 4, n_annotators: Count = 10, pairs_per_item: float = 20.0,
    answers_per_pair: Count = 1, sensitivity: Pair = (8.0, 2.0),
    specificity: Pair = (18.0, 2.0), truth: npt.ArrayLike | None = None, prior: Prior = None,
    random_state: RandomState = 0,
) -> SimulatedSimilarities:  # fmt: skip
    """Random pairs of items of a few kinds, each judged by ``answers_per_pair`` annotators.

    An annotator recognises two of a kind with probability ``sensitivity``, and two kinds with probability
    ``specificity``, each drawn from its own Beta. ``truth`` gives the kinds of the items where they are not to be
    drawn (``n_clusters`` and ``prior`` then do not matter). Every item is in ``pairs_per_item`` pairs on average.
    """
    kinds = None if truth is None else np.unique(np.asarray(truth), return_inverse=True)[1]
    if kinds is not None and kinds.shape != (n_items,):
        raise ParameterError(f"truth has shape {kinds.shape}: expected the kind of each of the {n_items} items.")
    K = n_clusters if kinds is None else int(kinds.max()) + 1
    pi, rng = crowds.begin(max(K, 2), prior if kinds is None else None, random_state)
    if answers_per_pair > n_annotators:
        raise ParameterError(f"answers_per_pair={answers_per_pair} is more than the {n_annotators} annotators.")
    most = n_items * (n_items - 1) // 2
    P = round(pairs_per_item * n_items / 2)
    if not 1 <= P <= most:
        raise ParameterError(f"pairs_per_item={pairs_per_item!r} asks for {P} pairs: expected 1 to {most}.")
    z = crowds.draw_truth(n_items, pi, rng) if kinds is None else kinds.astype(np.int32)
    a, b = _pairs(n_items, P, rng)
    alpha, beta = rng.beta(*sensitivity, size=n_annotators), rng.beta(*specificity, size=n_annotators)
    who = np.argsort(rng.random((P, n_annotators)), axis=1)[:, :answers_per_pair].ravel()
    a, b = np.repeat(a, answers_per_pair), np.repeat(b, answers_per_pair)
    same = rng.random(len(who)) < np.where(z[a] == z[b], alpha[who], 1.0 - beta[who])
    names = [f"a{m}" for m in range(n_annotators)]
    answers = Similarities.from_codes(a, b, who, same, items=range(n_items), annotators=names, truth=z)
    true = {"prior": pi, "sensitivity": alpha, "specificity": beta, "truth": z}
    return SimulatedSimilarities("similarities", answers, true)


def _pairs(N: int, P: int, rng: Rng) -> tuple[Codes, Codes]:
    """P different pairs out of all, each as likely as any other."""
    most = N * (N - 1) // 2
    if most < 4 * P:
        number = rng.choice(most, size=P, replace=False)
    else:
        number = np.unique(rng.integers(0, most, size=P))
        while len(number) < P:
            number = np.unique(np.concatenate([number, rng.integers(0, most, size=P - len(number))]))
    # Pairs are numbered row by row of the upper triangle, row i has N - 1 - i of them.
    start = np.concatenate([[0], np.cumsum(np.arange(N - 1, 0, -1))])
    first = np.searchsorted(start, number, side="right") - 1
    return first.astype(np.int32), (first + 1 + number - start[first]).astype(np.int32)


class SimulatedTags(SimulatedAnswers[Tags]):
    """Simulated tags, with the true tag (code) of every token, and what they were drawn from."""

    @property
    def tags(self) -> Tags:
        """The table."""
        return self.answers


@checked
def tag_chain(
    n_sequences: Count = 200, *, n_annotators: Count = 15, n_classes: Classes = 4, length: tuple[int, int] = (5, 25),
    stay: Positive = 8.0, diagonal: Positive = 5.0, rest: Positive = 1.0,
    annotators_per_sequence: VotesPerItem = 3, random_state: RandomState = 0,
) -> SimulatedTags:  # fmt: skip
    """A Markov chain of plain tags, and annotators with confusion matrices: the model of ``hmm-crowd``.

    Rows of the chain are Dirichlet with ``stay`` on the same tag and 1 elsewhere, those of confusions with
    ``diagonal`` on the truth and ``rest`` elsewhere. Parameters hold ``transition`` and ``confusion``.
    Reference: Nguyen et al. 2017.
    """
    rng = np.random.default_rng(random_state)
    K = n_classes
    transition = np.vstack([np.full((1, K), 1.0 / K), crowds.dirichlet_confusion(1, K, stay, 1.0, rng)[0]])
    theta = crowds.dirichlet_confusion(n_annotators, K, diagonal, rest, rng)
    starts = _lengths(n_sequences, length, rng)
    truth = _chain(transition, starts, rng)
    pair, token, annotator = _who(starts, n_annotators, annotators_per_sequence, rng)
    label = crowds.answer(theta, annotator, truth[token], rng)
    tags = _collect(starts, token, annotator, label, [f"t{k}" for k in range(K)], n_annotators, truth)
    return SimulatedTags("tag-chain", tags, {"transition": transition, "confusion": theta})


@checked
def bio_tags(
    n_sequences: Count = 200, *, n_annotators: Count = 30, types: Sequence[str] = ("LOC", "ORG", "PER"),
    length: tuple[int, int] = (8, 25), begin: Share = 0.12, go_on: Share = 0.5, skill: Pair = (2.5, 1.5),
    miss: Share = 0.7, shift: Share = 0.4, mislabel: Share = 0.5, spurious: Share = 0.1,
    annotators_per_sequence: VotesPerItem = 3, random_state: RandomState = 0,
) -> SimulatedTags:  # fmt: skip
    """Spans in BIO, and annotators who miss, shift, mislabel and invent them.

    Outside of spans one begins with probability ``begin`` (its type is drawn evenly), and a span goes on with
    probability ``go_on``. An annotator without any skill misses a share ``miss`` of the spans, moves one border of a
    share ``shift`` by a token, takes a share ``mislabel`` for another type, and tags a share ``spurious`` of the
    outside tokens as spans; the rates of annotator m are 1 - skill of these, with skill ~ Beta. Parameters hold
    ``transition`` and ``skill``, ``miss``, ``shift``, ``mislabel``, ``spurious`` (M each).
    """
    names = list(dict.fromkeys(types))
    if len(names) < 1 or not all(isinstance(name, str) and name for name in names):
        raise ParameterError(f"types={types!r}: expected names of types, such as ('LOC', 'PER').")
    rng = np.random.default_rng(random_state)
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
    fine = isinstance(length, (tuple, list)) and len(length) == 2 and all(map(is_count, length))
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
    sequence, annotator = _dealt("annotators_per_sequence", len(starts) - 1, M, annotators_per_sequence, rng)
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


SYLLABLES = np.array(["ba", "de", "fi", "go", "lu", "ma", "ne", "pi", "ro", "su", "ta", "ve", "wi", "zo", "ka", "le"])


@checked
def texts(
    n_items: Count = 200, *, n_annotators: Count = 20, texts_per_item: VotesPerItem = 5, length: Count = 12,
    n_words: Count = 500, error: Pair = (2.0, 18.0), common: Share = 0.5, random_state: RandomState = 0,
) -> SimulatedAnswers[Texts]:  # fmt: skip
    """Sentences that annotators write down with errors.

    An annotator errs on a word at a rate from a Beta distribution (``error``): half of the errors put another word, the
    others leave it out or insert one. Of wrong words a share ``common`` is the same for everybody, as words that sound
    alike are. Sentences have ``length`` words on average. Parameters hold ``error``, in the order of annotators.
    """
    rng = np.random.default_rng(random_state)
    words = ["".join(rng.choice(SYLLABLES, size=rng.integers(1, 5))) for _ in range(n_words)]
    chance = 1.0 / np.arange(1, n_words + 1)
    chance /= chance.sum()
    alike = rng.permutation(n_words)
    truth = [rng.choice(n_words, size=max(1, rng.poisson(length)), p=chance) for _ in range(n_items)]
    rate = rng.beta(*error, size=n_annotators)
    item, who = _dealt("texts_per_item", n_items, n_annotators, texts_per_item, rng)
    rows = []
    for n, m in zip(item.tolist(), who.tolist(), strict=True):
        heard = list[int]()
        for word in truth[n].tolist():
            kind, other = rng.random(), int(alike[word] if rng.random() < common else rng.integers(n_words))
            errors = (rate[m] / 2, rate[m] * 3 / 4, rate[m])  # another word, none, one more
            heard += ([other], [], [word, other], [word])[bisect(errors, kind)]
        rows.append((n, f"a{m}", " ".join(words[w] for w in heard) or words[0]))
    true = {n: " ".join(words[w] for w in truth[n].tolist()) for n in range(n_items)}
    return _with_rates("texts", Texts.from_records(rows), true, error=rate)


@checked
def spans(
    n_items: Count = 200, *, n_annotators: Count = 20, answers_per_item: VotesPerItem = 5, n_labels: Count = 2,
    length: Count = 1000, spans_per_item: float = 3.0, span_length: float = 40.0,
    detection: Pair = (6.0, 3.0), false_alarms: float = 0.5, noise: float = 3.0,
    label_accuracy: Pair = (18.0, 2.0), random_state: RandomState = 0,
) -> SimulatedAnswers[Spans]:  # fmt: skip
    """Spans in texts that annotators find or miss, with noisy boundaries, and spans that are not there.

    A text of ``length`` characters has Poisson many spans (mean ``spans_per_item``), of exponential lengths. An
    annotator finds one at a rate from a Beta distribution (``detection``), moves each boundary by a Laplace error (its
    scale is exponential, with mean ``noise``), and gives the true label at a rate from a Beta distribution
    (``label_accuracy``). False spans are Poisson many per item (the mean is exponential, with mean ``false_alarms``)
    and lie anywhere. Parameters hold ``detection``, ``false_alarms``, ``boundary_noise`` and ``label_accuracy``, in the
    order of annotators.
    """
    rng = np.random.default_rng(random_state)
    M = n_annotators
    d, a = rng.beta(*detection, size=M), rng.beta(*label_accuracy, size=M)
    f, b = rng.exponential(false_alarms, size=M), rng.exponential(noise, size=M)
    names = [f"L{k}" for k in range(n_labels)]

    def spans_of(mean: float) -> list[tuple[int, int, int]]:
        out = []
        for _ in range(rng.poisson(mean)):
            size = min(length, 1 + int(rng.exponential(span_length)))
            start = int(rng.integers(length - size + 1))
            out.append((int(rng.integers(n_labels)), start, start + size))
        return out

    truth = [sorted(set(spans_of(spans_per_item)), key=lambda span: span[1:]) for _ in range(n_items)]
    item, who = _dealt("answers_per_item", n_items, M, answers_per_item, rng)
    rows: list[tuple[Any, ...]] = []
    for n, m in zip(item.tolist(), who.tolist(), strict=True):
        marks = set(spans_of(f[m]))
        for label, start, end in truth[n]:
            if rng.random() < d[m]:
                low, high = np.clip(np.round(np.array([start, end]) + rng.laplace(0.0, b[m], size=2)), 0, length)
                wrong = rng.random() >= a[m] and n_labels > 1
                name = (label + int(rng.integers(1, n_labels))) % n_labels if wrong else label
                marks.add((name, int(low), int(high)) if high > low else (name, start, end))
        rows += [(n, f"a{m}", names[k], lo, hi) for k, lo, hi in sorted(marks)] or [(n, f"a{m}", None, None, None)]
    answers = Spans.from_records(rows).within(dict.fromkeys(range(n_items), length))
    true = {n: [(names[k], lo, hi) for k, lo, hi in truth[n]] for n in range(n_items)}
    return _with_rates("spans", answers, true, detection=d, false_alarms=f, boundary_noise=b, label_accuracy=a)


@checked
def boxes(
    n_items: Count = 100, *, n_annotators: Count = 20, annotators_per_item: VotesPerItem = 5,
    objects_per_item: Positive = 4.0, n_classes: Count = 3, detection: Pair = (8.0, 2.0), ease: float = 1.0,
    false_alarms: float = 0.5, spread: tuple[float, float] = (0.05, 0.4), bias: float = 0.03, accuracy: Share = 0.9,
    axes: Annotated[int, Bounds(minimum=1, maximum=3)] = 2, random_state: RandomState = 0,
) -> SimulatedAnswers[Boxes]:  # fmt: skip
    """Boxes that annotators draw around the objects of images of 1000 x 800 (volumes of 1000 x 800 x 600 with three
    ``axes``, events in a time of 1000 with one).

    An annotator finds an object with a probability from a Beta distribution (``detection``), moved on the logit scale
    by a Normal number of the object with deviation ``ease``; draws a Gamma-distributed number (mean ``false_alarms``)
    of boxes around nothing per item; has edges off by a Normal ``bias`` (share of width or height, one for each edge),
    with Normal noise whose deviation is log-Normal (median and log-deviation in ``spread``); and names the class right
    with probability ``accuracy``. Parameters hold ``detection``, ``false_alarms``, ``spread`` and ``bias``, in the
    order of annotators.
    """
    extent, rng = np.array([1000.0, 800.0, 600.0][:axes]), np.random.default_rng(random_state)
    M = n_annotators
    rate = np.minimum(rng.beta(*detection, size=M), 1.0 - 2.0**-53)  # odds are finite
    alarms = rng.gamma(2.0, false_alarms / 2.0, size=M) if false_alarms > 0 else np.zeros(M)
    noise = spread[0] * np.exp(spread[1] * rng.normal(size=M))
    off = bias * rng.normal(size=(M, 2 * axes))
    kinds = [f"class {k}" for k in range(n_classes)]

    def somewhere() -> np.ndarray:
        size = np.exp(rng.normal(np.log(110.0), 0.5, size=axes)).clip(20.0, 600.0)
        corner = rng.random(axes) * np.maximum(extent - size, 1.0)
        return np.concatenate([corner, corner + size])

    many = (rng.poisson(objects_per_item) for _ in range(n_items))
    objects: list[list[tuple[str, np.ndarray, float]]] = [
        [(kinds[rng.integers(n_classes)], somewhere(), ease * rng.normal()) for _ in range(n)] for n in many
    ]
    item, who = _dealt("annotators_per_item", n_items, M, annotators_per_item, rng)
    rows: list[tuple[object, ...]] = []
    hits, total = np.zeros(M), np.zeros(M)
    for n, m in zip(item.tolist(), who.tolist(), strict=True):
        drawn: list[tuple[str, np.ndarray]] = []
        for name, box, easy in objects[n]:
            odds = rate[m] / (1.0 - rate[m]) * np.exp(easy)
            total[m] += 1
            if rng.random() < odds / (1.0 + odds):
                hits[m] += 1
                kind = name if rng.random() < accuracy else kinds[rng.integers(n_classes)]
                size = np.tile(box[axes:] - box[:axes], 2)
                drawn.append((kind, box + size * (off[m] + noise[m] * rng.normal(size=2 * axes))))
        drawn += [(kinds[rng.integers(n_classes)], somewhere()) for _ in range(rng.poisson(alarms[m]))]
        drawn = [(name, box) for name, box in drawn if (box[axes:] > box[:axes]).all()]
        rows += [(n, f"a{m}", name, *box.tolist()) for name, box in drawn] or [(n, f"a{m}", *[None] * (1 + 2 * axes))]
    names = ("item", "annotator", "label", *edge_names(2 * axes))
    answers = Boxes.from_frame(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    truth = {n: [(name, *box.tolist()) for name, box, _ in on_item] for n, on_item in enumerate(objects)}
    share = np.divide(hits, total, out=np.full(M, np.nan), where=total > 0)
    return _with_rates("boxes", answers, truth, detection=share, false_alarms=alarms, spread=noise, bias=off)


@checked
def masks(
    n_items: Count = 50, *, n_annotators: Count = 10, masks_per_item: VotesPerItem = 5,
    size: Annotated[int, Bounds(minimum=16)] = 96, offset: float = 2.0, scatter: tuple[float, float] = (0.5, 2.5),
    careless: Share = 0.05, random_state: RandomState = 0,
) -> SimulatedAnswers[Masks]:  # fmt: skip
    """Round objects with wavy outlines, which annotators draw too large or too small, and imprecisely.

    An annotator draws the outline further out by a number of pixels of their own (Normal with deviation ``offset``)
    and by waves around the object, whose deviation in pixels lies evenly in ``scatter``. A mask is ``careless`` at this
    rate: a circle somewhere. Images have ``size`` x ``size`` pixels. Parameters hold ``offset`` and ``scatter``, in the
    order of annotators.
    """
    rng = np.random.default_rng(random_state)
    bias, noise = rng.normal(0.0, offset, n_annotators), rng.uniform(*scatter, n_annotators)
    y, x = np.mgrid[:size, :size] + 0.5
    item, who = _dealt("masks_per_item", n_items, n_annotators, masks_per_item, rng)
    centre = size * rng.uniform(0.4, 0.6, (n_items, 2))
    shape = size * rng.uniform(0.15, 0.28, n_items)
    outlines = [shape[n] * (1.0 + _waves(rng, 0.1)) for n in range(n_items)]

    def filled(place: Array, outline: Array) -> npt.NDArray[np.bool_]:
        dy, dx = y - place[0], x - place[1]
        turn = np.arctan2(dy, dx) * (len(outline) / (2 * np.pi))
        return np.asarray(np.hypot(dx, dy) < outline[np.rint(turn).astype(int) % len(outline)])

    drawn = []
    for n, m in zip(item.tolist(), who.tolist(), strict=True):
        if rng.random() < careless:
            drawn.append(filled(size * rng.uniform(0.2, 0.8, 2), np.full(8, size * rng.uniform(0.1, 0.3))))
        else:
            drawn.append(filled(centre[n], np.maximum(outlines[n] + bias[m] + _waves(rng, noise[m]), 1.0)))
    truth = [pack(filled(centre[n], outlines[n])) for n in range(n_items)]
    answers = Masks.from_codes(
        item, who, drawn, items=np.arange(n_items), annotators=[f"a{m}" for m in range(n_annotators)], truth=truth
    )
    return SimulatedAnswers("masks", answers, {"offset": bias, "scatter": noise})


def _waves(rng: Rng, deviation: float) -> Array:
    """A smooth random function of 720 directions, with up to six waves, of mean 0 and of about such a deviation."""
    turn = np.outer(np.arange(720) * (2 * np.pi / 720), np.arange(1, 7))
    a = rng.normal(size=(2, 6)) * (deviation / np.sqrt(6))
    return np.asarray(np.cos(turn) @ a[0] + np.sin(turn) @ a[1])


@checked
def graph(
    n_items: Count = 1000, *, n_annotators: Count = 30, n_classes: Classes = 3, degree: Positive = 6.0,
    homophily: Share | None = 0.8, diagonal: Positive = 5.0, rest: Positive = 1.0,
    votes_per_item: VotesPerItem = 2, single_votes: Share = 0.5, prior: Prior = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """A network of items: a share ``homophily`` of the edges joins items of one class, the others two classes.

    ``degree`` edges meet at an item on average, and both ends are drawn evenly; with ``homophily=None`` edges know
    nothing of the classes. Annotators have Dirichlet confusion matrices, as in ``dirichlet``; a share ``single_votes``
    of the items keeps only one of its votes. Parameters hold ``edges`` (E x 2 item codes, each pair once). Reference:
    Traganitis and Giannakis 2022.
    """
    pi, rng = crowds.begin(n_classes, prior, random_state)
    theta = crowds.dirichlet_confusion(n_annotators, n_classes, diagonal, rest, rng)
    truth = crowds.draw_truth(n_items, pi, rng)
    edges = _edges(truth, round(n_items * degree / 2), homophily, rng)
    item, annotator = assign(n_items, n_annotators, votes_per_item, random_state=rng)
    keep = np.append(True, np.diff(item) != 0) | ~crowds.random_mask(n_items, single_votes, rng)[item]
    shuffled = rng.permutation(len(item))  # which of its votes an item keeps is drawn, not the first annotator's
    shuffled = shuffled[np.argsort(item[shuffled], kind="stable")]
    item, annotator = item[shuffled][keep], annotator[shuffled][keep]
    label = crowds.answer(theta, annotator, truth[item], rng)
    return crowds.collect("graph", (item, annotator), label, truth, pi, theta, edges=edges)


def _edges(truth: Ints, size: int, homophily: float | None, rng: Rng) -> Ints:
    """About ``size`` different edges between different items."""
    N = len(truth)
    left = rng.integers(0, N, size)
    right = rng.integers(0, N, size)
    if homophily is not None:
        order = np.argsort(truth, kind="stable")
        count = np.bincount(truth)
        first = np.cumsum(count) - count
        own = truth[left]
        same = rng.random(size) < homophily
        inside = order[first[own] + rng.integers(0, count[own])]
        # A draw from everybody else: skip over the item's own class in the sorted order.
        others = np.maximum(N - count[own], 1)
        at = rng.integers(0, others)
        outside = order[np.where(at < first[own], at, at + count[own]) % N]
        right = np.where(same | (count[own] == N), inside, outside)
    pairs = np.sort(np.column_stack([left, right]), axis=1)
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).astype(np.int64)
