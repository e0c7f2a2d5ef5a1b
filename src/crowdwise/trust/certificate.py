"""Labels with a proven error rate: the most labels that random gold labels vouch for.

docs/guarantees.md says what is promised, and why it holds for any crowd; the symbols of its proofs:

**One set.** Of the N_k items of a set, m were drawn and e of these labels are wrong; D of the N_k are wrong, which
is unknown. Released are u = N_k - m + n labels, and c = floor(max_error u) may be wrong. The first test is
P(E <= s | D = c + 1) <= level for at most s wrong ones (``_limits``), the second, which counts the labels that gold
corrects, p(e) = max over D > c of P( E <= min(e, D - c - 1) ) <= level (``p_value``). Both are exact for any N.

**Which set: a fixed sequence**, laid out by scores and by *which* items were drawn. Sets are tested from one of them on
to larger ones, by the first test, until one fails; that one is then given the second test. Sets whose limit s is no
larger than that of a smaller set are left out (``_sequence``): with 5 % allowed and a level of 10 %, 45 labels prove a
set with no wrong one and 77 with one; 60 with none would be a needless hurdle on the way.

**Where it begins** depends on a belief about the errors by rank: their share is that of the scores, give or take what
crowds differ, and log-odds rise with the normal quantile of the rank by a slope that crowds have. The belief costs
labels where it is wrong, never the promise. The end R of the sequence, its beginning, and the items that further gold
labels are drawn from (those before R) may depend on the gold labels of items *after* R in a first draw. Read from the
least sure label upwards, they update the belief, until no smaller R promises more.

**Losses between 0 and 1** (word error rates, 1 - overlap) are tested by betting (``bet``).

A. Angelopoulos et al., Learn then test (2021), for sequences of tests; I. Waudby-Smith and A. Ramdas, Estimating means
of bounded random variables by betting (2024).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise import registry
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Count, RandomState, checked
from crowdwise.core.dependence import CROWD_SD
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.prediction_sets import Inside, check_random
from crowdwise.core.result import Result
from crowdwise.data.truth import check_drawn, encode_classes
from crowdwise.errors import InputError, listing
from crowdwise.trust.evidence import read_groups
from crowdwise.trust.result_tables import Tables

SETS, STEP = 100, 5
"""Sets that are laid out, and every how manieth the sequence can end at."""
LEVELS = np.linspace(-1.8, 1.8, 7)
"""How far crowds lie from their expected accuracy, in standard deviations."""
SLOPES = {0.4: 0.2, 0.8: 0.3, 1.2: 0.3, 1.8: 0.2}
"""How steeply the log-odds of an error rise with the normal quantile of the rank, and how many crowds have that."""
UNKNOWN = 0.15
"""The share of errors where scores are not probabilities."""
MAX_STATES = 60
"""The most wrong gold labels of a set for which sequences are followed step by step when planned."""
MAX_TABLE = 400
"""The most gold labels for which all limits are computed beforehand."""
NEARLY = 0.95
"""What a start may promise less than the best, to begin with a larger set."""
MARGIN = 1.15
"""How much more a smaller region must promise to be taken."""
VOTE_SHARE = 0.5
"""The weight of the votes' own log-odds beside those of the posterior, in the order of labels."""
DRAWS = 40
"""Simulated draws of gold labels, for what more of them would bring."""
ORDERS = 20
"""Random orders over which bets are averaged."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Tables):
    """What is proven of some labels; see :func:`certify`."""

    TABLES = ("items",)
    items: npt.NDArray[Any]
    labels: npt.NDArray[Any] | None
    """The gold label where there is one, else the consensus; ``None`` where losses were given."""
    score: Floats
    gold: Mask
    released: Mask
    max_error: float
    confidence: float
    wrong: float
    """How many of the labels the gold labels contradict (the sum of losses)."""
    wrong_rate: tuple[float, float, float]
    """The share of wrong labels in the whole, and an interval at this confidence (the mean loss: NaN to NaN)."""
    group: npt.NDArray[Any] | None = None
    kind: str = field(default="polars")
    probability: Floats | None = field(default=None, repr=False)
    loss: Floats | None = field(default=None, repr=False)
    """How wrong the labels are by the gold labels, 0 without one."""
    look: int | None = None

    def __repr__(self) -> str:
        return f"Certificate({self.sentence})"

    @property
    def share(self) -> float:
        """The share of items whose labels are released."""
        return float(self.released.mean())

    @property
    def to_check(self) -> npt.NDArray[Any]:
        """The items that are not released, for an expert, the most doubtful first."""
        left = np.flatnonzero(~self.released)
        return self.items[left[np.argsort(self.score[left], kind="stable")]]

    @property
    def sentence(self) -> str:
        """What is proven, in a sentence."""
        n, groups = int(self.gold.sum()), "" if self.group is None else " of every group"
        if self.gold.all():
            return f"All {n:,} labels are gold labels ({self.wrong:,.6g} contradict the consensus)"
        if not (self.released & ~self.gold).any():
            return (
                f"{n:,} gold labels ({self.wrong:,.6g} contradict the consensus) do not prove that any of the other "
                f"{len(self.items) - n:,} labels are at most {100 * self.max_error:.6g}% wrong"
            )
        return (
            f"{int(self.released.sum()):,} of {len(self.items):,} labels ({self.share:.0%}, the gold labels among "
            f"them): at most {100 * self.max_error:.6g}%{groups} are wrong, with {100 * self.confidence:.6g}% "
            f"confidence, by {n:,} random gold labels"
        )

    def with_more(self, n: int, random_state: int = 0) -> float:
        """The share of items that would be released with n gold labels in all, these among them, on average over
        simulated draws; of later looks, at the level of the next one.

        Other labels are taken to be as wrong as the gold labels say, each in proportion to 1 - its probability (without
        probabilities: all alike).
        """
        N, rng, shares = len(self.items), np.random.default_rng(random_state), []
        doubt = np.full(N, 0.5) if self.probability is None else 1.0 - self.probability
        chance = np.clip((self.wrong + 0.5) / (doubt[self.gold].sum() + 0.5) * doubt, 0.0, 1.0)
        free, code = np.flatnonzero(~self.gold), _codes(self.group, N)
        n = min(n, N) - int(self.gold.sum())
        if n <= 0 or self.loss is None:
            return self.share
        designs = dict[tuple[int, int], Design]()
        level = look_level(self.confidence, None if self.look is None else self.look + 1)
        for _ in range(DRAWS):
            drawn = self.gold.copy()
            drawn[rng.choice(free, n, replace=False)] = True
            wrong = np.where(self.gold, self.loss, rng.random(N) < chance)
            out = _released(self.score, drawn, wrong, drawn, code, self.max_error, level, self.probability, designs)
            shares.append(out.mean())
        return float(np.mean(shares))

    def gold_needed(self, share: float, random_state: int = 0) -> int:
        """About how many gold labels in all would release this share of the items: so many themselves, at most."""
        n = max(int(self.gold.sum()), 10)
        return _least_gold(n, share, len(self.items), lambda n: self.with_more(n, random_state))

    def _columns(self, table: str) -> dict[str, Any]:
        label = {} if self.labels is None else {"label": self.labels}
        group = {} if self.group is None else {"group": self.group}
        shown = {"score": self.score} if self.probability is None else {"probability": self.probability}
        return {"item": self.items} | label | shown | {"released": self.released, "gold": self.gold} | group


@checked
def certify(
    consensus: Consensus | Result | None = None, gold: Any = None, max_error: Inside = 0.05,
    confidence: Inside = 0.95, *, by: Any = None, score: Any = None, loss: Any = None, first: Any = None,
    look: Count | None = None,
) -> Certificate:  # fmt: skip
    """The most labels of which at most ``max_error`` are wrong, proven by gold labels of items drawn at random.

    Parameters
    ----------
    consensus
        Labels of votes, fitted without this gold; or texts, boxes, masks or spans. Without it, ``score`` and ``loss``
        are certified.
    gold
        The truth of some items: a mapping from item to class, or N class codes with -1 for unknown; of other answers as
        their metrics take it. The items must have been drawn at random from all (:func:`draw_for_gold`).
    max_error
        The share of released labels that may be wrong; the mean loss of other answers: the word error rate of texts (at
        most 1 each), 1 - F1 of boxes and spans, 1 - Dice of masks.
    confidence
        The probability, over the draw of the gold items, that this holds.
    by
        ``"label"``: the promise holds for each class of labels, all at once. Or a mapping from item to group.
    score
        N numbers by which labels are released, the largest first; by default their probability and the votes' share.
    loss
        N numbers from 0 to 1, NaN where it is not known: how wrong the label is, of whatever kind: predictions, boxes,
        texts. It takes the place of ``gold``.
    first
        Where gold labels were drawn in two steps: the items of the first (names, or N booleans).
    look
        Where one looks again, because labels still change, as in a campaign, or because gold labels were added: 1 the
        first time, then 2, 3, ... Look j has the level (1 - confidence) / (j (j + 1)), which add up to 1 - confidence,
        so that one may stop at the first certificate that is enough. The votes must not depend on this gold.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(2000, n_annotators=30, votes_per_item=5, random_state=0)
    >>> consensus = cw.aggregate(crowd.votes)
    >>> items = cw.draw_for_gold(consensus, 150)
    >>> gold = {item: crowd.votes.classes[crowd.truth[item]] for item in items.tolist()}
    >>> certificate = cw.certify(consensus, gold, max_error=0.1)
    >>> bool(certificate.share > 0.5)
    True
    """
    if (gold is None) == (loss is None) or (consensus is None and (score is None or loss is None)):
        raise InputError("certify: give a consensus and its gold labels, or scores and losses of labels of any kind.")
    labels = probability = None
    items: Any = None
    kind = "polars"
    if consensus is not None:
        check_drawn(gold, consensus.items)
    if consensus is not None and not isinstance(consensus, Consensus):
        rules = registry.ANSWER_TYPES[consensus.answer_type].rules
        loss = rules.losses(consensus, gold) if loss is None else loss
        probability = 1.0 - rules.doubts(consensus)
        score = probability if score is None else score
        items, kind, consensus = consensus.items, consensus.kind, None
    level = look_level(confidence, look)
    if consensus is not None:
        probability = consensus.corrected_posterior.max(axis=1)
    score = np.asarray(trust_order(consensus) if score is None else score, dtype=np.float64)
    N = len(score) if consensus is None else len(consensus.items)
    if score.shape != (N,) or not np.isfinite(score).all():
        raise InputError(f"score: expected {N:,} finite numbers, one per item.")
    if consensus is not None and gold is not None:
        known = np.asarray(encode_classes(gold, consensus.items, consensus.classes))
        drawn = known >= 0
        if consensus.gold is not None and ((consensus.gold >= 0) & drawn).any():
            raise InputError(
                "The consensus was fitted with some of these gold labels, so they prove nothing of it: fit it without "
                "them."
            )
        wrong = np.where(drawn, consensus.label_codes != known, 0.0)
        labels = consensus.labels.copy()
        labels[drawn] = consensus.classes[known[drawn]]
    else:
        wrong = np.asarray(loss, dtype=np.float64)
        drawn = ~np.isnan(wrong)
        if wrong.shape != (N,) or not ((wrong[drawn] >= 0.0) & (wrong[drawn] <= 1.0)).all():
            raise InputError(f"loss: expected {N:,} numbers from 0 to 1, one per item, NaN where it is not known.")
        wrong = np.where(drawn, wrong, 0.0)
    if items is None:
        items = np.arange(N) if consensus is None else consensus.items
    if not drawn.any():
        raise InputError("No item of the consensus has a gold label. Draw some at random: crowdwise certify --ask 100.")
    early = _first_draw(first, items, drawn)
    check_random(score, early)
    group = _groups(consensus, by, items)
    keep = _released(score, drawn, wrong, early, _codes(group, N), max_error, level, probability, {})
    total, binary = float(wrong.sum()), bool(np.isin(wrong, (0.0, 1.0)).all())
    rate = (total / drawn.sum(), np.nan, np.nan)
    if binary and early.sum() == drawn.sum():
        rate = finite_rate(int(total), int(drawn.sum()), N, confidence)
    kind = kind if consensus is None else consensus.kind
    return Certificate(
        items, labels, score, drawn, keep, float(max_error), float(confidence), total, rate, group, kind, probability,
        wrong, look,
    )  # fmt: skip


def look_level(confidence: float, look: int | None) -> float:
    """The level of the look of that number; all of it where there is one look."""
    return (1.0 - confidence) / (1.0 if look is None else look * (look + 1.0))


def _released(
    score: Floats, drawn: Mask, wrong: Floats, first: Mask, code: Ints, max_error: float, level: float,
    probability: Floats | None, designs: dict[tuple[int, int], Design],
) -> Mask:  # fmt: skip
    """N: what is released of every group, each with its share of the level. ``designs`` are kept for further draws."""
    out, numbers = drawn.copy(), np.unique(code)
    for number in numbers.tolist():
        at = code == number
        n_first, n = int(first[at].sum()), int(drawn[at].sum())
        known = None if probability is None else probability[at]
        if (number, n) not in designs:
            designs[number, n] = Design(score[at], n_first, n - n_first, max_error, level / len(numbers), known)
        out[at] = designs[number, n].released(drawn[at], wrong[at], first[at])
    return out


def trust_order(consensus: Consensus | None) -> Floats:
    """N: log-odds by which labels are released: those of the probability, and a part of those of the share of votes.

    On real crowds wrong labels are told from right ones better than by either: the model trusts annotators that it
    should not, and the share of votes knows no annotators.
    """
    assert consensus is not None
    p = consensus.corrected_posterior.max(axis=1)
    out = _logit(p)
    if consensus.votes is not None:
        n, K = consensus.votes_per_item.astype(np.float64), len(consensus.classes)
        share = consensus.votes.shares()[np.arange(len(p)), consensus.label_codes]
        out = out + VOTE_SHARE * _logit((n * share + 0.5) / (n + 0.5 * K))
    return out


def _logit(p: Floats) -> Floats:
    p = np.clip(p, 1e-6, 1.0 - 1e-6)
    return np.asarray(np.log(p) - np.log1p(-p))


@checked
def draw_for_gold(
    consensus: Consensus | Result, n: Count = 100, random_state: RandomState = 0, *, first: Any = None,
    max_error: Inside = 0.05, confidence: Inside = 0.95,
) -> npt.NDArray[Any]:  # fmt: skip
    """Items drawn at random, each as likely as any other, whose gold labels :func:`certify` can use.

    With ``first``, the gold labels of a first such draw, n more where they count: among the surest labels, where these
    gold labels say that only so many can be proven, else among all. Then certify with the same ``max_error`` and
    ``confidence``, and name the items of the first draw.
    """
    N, rng = len(consensus.items), np.random.default_rng(random_state)
    if first is None:
        return np.asarray(consensus.items[rng.choice(N, min(n, N), replace=False)])
    if not isinstance(consensus, Consensus):
        raise InputError("first: a second draw where it counts is for labels of votes. Leave it out.")
    check_drawn(first, consensus.items)
    known = np.asarray(encode_classes(first, consensus.items, consensus.classes))
    drawn, score = known >= 0, trust_order(consensus)
    check_random(score, drawn)
    wrong = np.where(drawn, consensus.label_codes != known, 0.0)
    probability = consensus.corrected_posterior.max(axis=1)
    design = Design(score, int(drawn.sum()), min(n, int((~drawn).sum())), max_error, 1.0 - confidence, probability)
    inside = design.order[: design.size[design.region(drawn, wrong)[0]]]
    free = inside[~drawn[inside]]
    return np.asarray(consensus.items[rng.choice(free, min(n, len(free)), replace=False)])


def would_prove(
    consensus: Consensus, n: int = 100, max_error: float = 0.05, confidence: float = 0.95
) -> tuple[float, float, float]:
    """The share of labels that n random gold labels would release: expected, and in the worst and best tenth of
    crowds, by the probabilities of the labels and what crowds differ."""
    p, N = consensus.corrected_posterior.max(axis=1), len(consensus.items)
    design = Design(trust_order(consensus), min(n, N), 0, max_error, 1.0 - confidence, p)
    weight = _normalised(design.log_weight)
    value, _ = design.plan(design.ends[-1])
    share = (value[_begin(value, weight)] + min(n, N)) / N
    order = np.argsort(share)
    low, high = np.interp([0.1, 0.9], np.cumsum(weight[order]) - weight[order] / 2.0, share[order])
    return float(share @ weight), float(low), float(high)


@checked
def gold_to_prove(
    consensus: Consensus, share: Inside = 0.9, max_error: Inside = 0.05, confidence: Inside = 0.95
) -> int:
    """About how many random gold labels would release this share of the labels in expectation, before there are any
    (:func:`would_prove`): so many themselves, at most."""
    expected = lambda n: would_prove(consensus, n, max_error, confidence)[0]  # noqa: E731
    return _least_gold(20, share, len(consensus.items), expected)


def _least_gold(n: int, share: float, N: int, released: Callable[[int], float]) -> int:
    """The first of n, 1.25 n, ... gold labels with which that share is released."""
    while n < share * N and released(n) < share:
        n = int(np.ceil(1.25 * n))
    return max(min(n, int(np.ceil(share * N))), 1)


class Design:
    """Sets of labels laid out by their scores, and where to begin and end: see the module.

    Attributes
    ----------
    order, size
        The labels from the surest on, and how many of them each set has (T). Equal scores stay together.
    rates, log_weight
        H x T beliefs about the share of wrong labels between the ends of one set and the next, and their weights.
    ends, plans
        Sets at which the sequence can end; for each, the expected number of released labels by the first set that is
        tested (S x H), and the number of wrong labels that this set may have (-1: begin with the smallest).
    """

    def __init__(
        self, score: Floats, n_first: int, n_second: int, max_error: float, level: float,
        probability: Floats | None = None,
    ) -> None:  # fmt: skip
        N = len(score)
        self.n_first, self.n_second, self.max_error, self.level = n_first, n_second, max_error, level
        self.order = np.argsort(-score, kind="stable")
        ranked = score[self.order]
        ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True)) + 1
        wanted = np.searchsorted(ends, np.linspace(0, N, SETS + 1)[1:] - 1e-9)
        self.size = ends[np.unique(np.minimum(wanted, len(ends) - 1))]
        probability = score if probability is None and score.min() >= 0.0 and score.max() <= 1.0 else probability
        expected = UNKNOWN if probability is None else float(np.clip((1.0 - probability).mean(), 0.01, 0.9))
        self.rates, self.log_weight = _beliefs(self.size, expected)
        last = len(self.size) - 1
        self.ends = np.unique(np.append(np.arange(STEP - 1, last, STEP), last))

    @cached_property
    def plans(self) -> list[tuple[Floats, Ints]]:
        return [self.plan(end) for end in self.ends]

    def plan(self, end: int) -> tuple[Floats, Ints]:
        """One of ``plans``: of sequences that end at this set."""
        N, n, z = self.size[-1], self.n_first + self.n_second, self.size[: end + 1]
        wrong = np.cumsum((self.rates * np.diff(self.size, prepend=0))[:, : end + 1], axis=1)
        inside = self.n_first * z[-1] / N + min(self.n_second, z[-1] * (1.0 - self.n_first / N))
        m = np.round(inside * z / z[-1]).astype(np.int64)
        limit = _limits(z, m, self._allowed(z, m, n), self.level)
        at = _sequence(limit)
        begin = np.unique(np.append(0, np.flatnonzero(np.diff(limit[at], prepend=-1) > 0)))
        value = _expected_release(limit[at], m[at], wrong[:, at] / z[at], (z - m)[at].astype(float), begin)
        return value, np.where(begin == 0, -1, limit[at[begin]])

    def _allowed(self, size: Ints, drawn: Ints, n: int) -> Ints:
        return np.floor(self.max_error * (size - drawn + n) + 1e-9).astype(np.int64)

    def _limits_at(self, drawn: Ints, n: int) -> Ints:
        """The limits of the first sets, of which so many were drawn; a table of all is kept where it is small."""
        size = self.size[: len(drawn)]
        if n != self.n_first + self.n_second or n > MAX_TABLE:
            return _limits(size, drawn, self._allowed(size, drawn, n), self.level)
        return np.asarray(self._table[np.arange(len(drawn)), drawn])

    @cached_property
    def _table(self) -> Ints:
        size, drawn = (
            x.ravel() for x in np.meshgrid(self.size, np.arange(self.n_first + self.n_second + 1), indexing="ij")
        )
        drawn = np.minimum(drawn, size)
        return _limits(size, drawn, self._allowed(size, drawn, self.n_first + self.n_second), self.level).reshape(
            len(self.size), -1
        )

    def region(self, drawn: Mask, loss: Floats) -> tuple[int, int]:
        """The set at which the sequence ends, and the wrong labels that the first set may have, from a first draw: only
        losses of labels after that end are looked at."""
        m = np.diff(np.cumsum(drawn[self.order])[self.size - 1], prepend=0)
        e = np.diff(np.cumsum((drawn * loss)[self.order])[self.size - 1], prepend=0.0)
        belief, r = self.log_weight, len(self.ends) - 1
        while True:
            weight = _normalised(belief)
            best = np.array([(value @ weight).max() for value, _ in self.plans[: r + 1]])
            if r == 0 or MARGIN * best[r] >= best[:r].max():
                value, start = self.plans[r]
                return int(self.ends[r]), int(start[_begin(value, weight)])
            part = slice(self.ends[r - 1] + 1, self.ends[r] + 1)
            rates = self.rates[:, part]
            belief = belief + np.log(rates) @ e[part] + np.log1p(-rates) @ (m[part] - e[part])
            r -= 1

    def released(self, drawn: Mask, loss: Floats, first: Mask | None = None) -> Mask:
        """N: the labels of the largest set that is proven, and the drawn ones, whose losses are ``loss``."""
        first = drawn if first is None else first
        end, start = self.region(first, loss)
        if (drawn & ~first)[self.order[self.size[end] :]].any():
            raise InputError(
                "The second draw has items outside the region that the first one's gold labels ask for. Certify with "
                "the max_error, confidence and gold labels that it was drawn with (crowdwise certify --ask)."
            )
        hit, losses = drawn[self.order], (drawn * loss)[self.order]
        size, n = self.size[: end + 1], int(drawn.sum())
        m, e = np.cumsum(hit)[size - 1], np.cumsum(losses)[size - 1]
        allowed = self._allowed(size, m, n)
        limit = self._limits_at(m, n)[: end + 1]
        at = _sequence(limit)
        if start >= 0:
            begin = np.flatnonzero((np.diff(limit[at], prepend=-1) > 0) & (limit[at] >= start))
            at = at[begin[0] :] if len(begin) else at[:0]
        best, exact = 0, bool(np.isin(losses, (0.0, 1.0)).all())
        for k in at.tolist():
            if exact and e[k] > limit[k]:
                best = size[k] if p_value(int(e[k]), int(m[k]), int(size[k]), int(allowed[k])) <= self.level else best
                break
            if not exact and limit[k] < m[k]:
                most = self.max_error * (size[k] - m[k] + n)
                if bet(losses[: size[k]][hit[: size[k]]], int(size[k]), most) > self.level:
                    break
            best = size[k]
        out = drawn.copy()
        out[self.order[:best]] = True
        return out


def _begin(value: Floats, weight: Floats) -> int:
    """The largest start that promises about as much as the best: it needs no clean top."""
    promised = value @ weight
    return int(np.flatnonzero(promised >= NEARLY * promised.max())[-1])


def _normalised(log_weight: Floats) -> Floats:
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum())


def _beliefs(size: Ints, expected: float) -> tuple[Floats, Floats]:
    """The error rates between the ends of sets under each level and slope (H x T), and log-weights (H)."""
    from scipy.special import expit, ndtri

    width = np.diff(size, prepend=0) / size[-1]
    slopes, levels = np.array(list(SLOPES)), expected / (1.0 - expected) * np.exp(CROWD_SD * LEVELS)
    level = np.repeat(levels / (1.0 + levels), len(slopes))
    rise = np.tile(slopes, len(LEVELS))[:, None] * ndtri(size / size[-1] - width / 2.0)
    low, high = np.full(len(level), -30.0), np.full(len(level), 30.0)
    for _ in range(40):  # the intercept at which the mean is the level
        middle = (low + high) / 2.0
        below = expit(middle[:, None] + rise) @ width < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    log_weight = np.repeat(-0.5 * LEVELS**2, len(slopes)) + np.tile(np.log(list(SLOPES.values())), len(LEVELS))
    return np.clip(expit(low[:, None] + rise), 1e-4, 1.0 - 1e-4), log_weight


def _limits(size: Ints, drawn: Ints, allowed: Ints, level: float) -> Ints:
    """The most wrong labels among those drawn of a set that prove at most ``allowed`` in all of it; -1: none does."""
    from scipy.special import gammaln

    N, m, D = size, drawn, np.minimum(allowed + 1, size)
    whole = gammaln(D + 1) + gammaln(N - D + 1) + gammaln(m + 1) + gammaln(N - m + 1) - gammaln(N + 1)
    most, below, free = np.full(N.shape, -1), np.zeros(N.shape), allowed >= size
    for e in range(int(m.max(initial=0)) + 1):  # E is hypergeometric: add P(E = e) until it is above the level
        rest = N - D - m + e
        possible = (e <= m) & (e <= D) & (rest >= 0)
        parts = gammaln(e + 1) + gammaln(np.maximum(D - e, 0) + 1) + gammaln(np.maximum(m - e, 0) + 1)
        log = whole - parts - gammaln(np.maximum(rest, 0) + 1)
        below += np.where(possible, np.exp(np.where(possible, log, 0.0)), 0.0)
        proves = (below <= level * (1.0 - 1e-9)) & (e <= m) & ~free
        if not proves.any():
            break
        most[proves] = e
    return np.where(free, m, most).astype(np.int64)


def _expected_release(limit: Ints, drawn: Ints, share: Floats, gain: Floats, begin: Ints) -> Floats:
    """S x H: the expected gain of a sequence of sets that begins with each of some, if H shares of wrong labels hold.

    From the last set back: V_k(e) is the gain to expect once set k has passed with e wrong labels, the wrong ones among
    the gold labels between two sets being binomial.
    """
    from scipy.stats import binom

    E = int(np.minimum(limit, drawn).max(initial=0)) + 1
    if E > MAX_STATES:  # so many gold labels that passing one set nearly decides about the next
        passes = np.where(limit >= 0, binom.cdf(np.maximum(limit, 0), drawn, share), 0.0)
        return np.array(
            [(np.minimum.accumulate(passes[:, i:], axis=1) * np.diff(gain[i:], prepend=0.0)).sum(axis=1) for i in begin]
        )
    e, more = np.arange(E), np.diff(drawn, prepend=0)
    between = np.diff(share * drawn, prepend=0.0, axis=1) / np.maximum(more, 1)
    out, ahead = np.empty((len(begin), len(share))), np.full((len(share), E), gain[-1])
    steps = e[None, :] - e[:, None]  # from e wrong labels to e'
    for k in range(len(limit) - 1, -1, -1):
        ahead = np.where(e <= limit[k], ahead, 0.0 if k == 0 else gain[k - 1])
        for i in np.flatnonzero(begin == k):
            at_start = binom.pmf(e, drawn[k], np.clip(share[:, k], 0.0, 1.0)[:, None])
            out[i] = (at_start * np.where(e <= limit[k], ahead, 0.0)).sum(axis=1)
        if k and more[k]:
            move = binom.pmf(steps, more[k], np.clip(between[:, k], 0.0, 1.0)[:, None, None])
            ahead = (move @ ahead[:, :, None])[:, :, 0] + (1.0 - move.sum(axis=2)) * gain[k - 1]
    return out


def _sequence(limit: Ints) -> Ints:
    """The sets worth testing in order, by their limits: all while limits fall, then those with a limit above that of
    every set since, and all after the last of these."""
    lowest = len(limit) - 1 - int(np.argmin(limit[::-1]))
    rest = limit[lowest:]
    rises = lowest + np.flatnonzero((rest >= 0) & (np.diff(np.maximum.accumulate(rest), prepend=-1) > 0))
    if not len(rises):
        return np.arange(lowest + 1)
    before = np.arange(lowest if limit[lowest] >= 0 else 0)
    return np.concatenate([before, rises, np.arange(rises[-1] + 1, len(limit))])


def bet(loss: Floats, size: int, allowed: float, random_state: int = 0) -> float:
    """A p-value of "the ``size`` losses, of which these were drawn at random, have a sum above ``allowed``"."""
    rng, m = np.random.default_rng(random_state), len(loss)
    if not m:
        return 1.0
    x = np.stack([loss[rng.permutation(m)] for _ in range(ORDERS)])
    before = np.cumsum(x, axis=1) - x
    i = np.arange(m)
    left = np.maximum(allowed - before, 0.0) / (size - i)  # the mean of those left, at the edge of the promise
    mean = (0.5 * allowed / size + before) / (1.0 + i)
    spread = (0.05 + np.cumsum(x**2, axis=1) - x**2) / (1.0 + i) - mean**2
    stake = np.clip(
        (left - mean) / (np.maximum(spread, 1e-4) + (left - mean) ** 2), 0.0, 0.9 / (1.0 - np.minimum(left, 0.99))
    )
    log = np.log1p(np.where(left > 0.0, stake, 0.0) * (left - x)).sum(axis=1)
    return float(min(1.0, 1.0 / max(np.exp(np.minimum(log, 300.0)).mean(), 1e-300)))


def p_value(wrong: int, drawn: int, size: int, allowed: int) -> float:
    """The largest probability of so few wrong labels among those drawn of a set, and more than ``allowed`` left."""
    from scipy.stats import hypergeom

    left = np.arange(wrong + 1)  # D - allowed - 1: the most wrong ones drawn with which the promise is broken
    D = allowed + 1 + left
    possible = (D - left <= size - drawn) & (D <= size)
    if not possible.any():
        return 0.0
    return float(hypergeom.cdf(left[possible], size, D[possible], drawn).max())


def finite_rate(wrong: int, drawn: int, size: int, confidence: float) -> tuple[float, float, float]:
    """The share of wrong labels among ``size``, of which ``drawn`` were looked at, with an exact interval."""
    from scipy.stats import hypergeom

    tail = (1.0 - confidence) / 2.0
    D = np.arange(wrong, size - drawn + wrong + 1)
    low = D[int(np.argmax(hypergeom.sf(wrong - 1, size, D, drawn) > tail))]
    high = D[len(D) - 1 - int(np.argmax((hypergeom.cdf(wrong, size, D, drawn) > tail)[::-1]))]
    return wrong / drawn, low / size, high / size


def _first_draw(first: Any, items: npt.NDArray[Any], drawn: Mask) -> Mask:
    """N: the items with gold labels that were drawn first; all of them where there was one draw."""
    if first is None:
        return drawn
    given = np.asarray(list(first) if isinstance(first, Mapping | set) else first)
    early = given if given.dtype == bool and given.shape == drawn.shape else np.isin(items, given)
    if not early.any() or (early & ~drawn).any():
        raise InputError("first: expected items of the first draw, all of them with gold labels.")
    return np.asarray(early)


def _groups(consensus: Consensus | None, by: Any, items: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """The group of each item; ``None`` where none is asked for."""
    if by is None:
        return None
    if isinstance(by, str) and by == "label" and consensus is not None:
        return consensus.labels
    if not isinstance(by, Mapping):
        raise InputError("by: expected 'label', or a mapping from item to group.")
    found = read_groups(by, items, "item", 1)
    if (lacking := items[found.code < 0]).size:
        raise InputError(f"by: {len(lacking):,} items have no group: {listing(lacking)}.")
    return np.asarray(found.names[found.code])


def _codes(group: npt.NDArray[Any] | None, N: int) -> Ints:
    """The group of each item by number; one for all where there are none."""
    if group is None:
        return np.zeros(N, dtype=np.int64)
    place = {name: k for k, name in enumerate(dict.fromkeys(group.tolist()))}
    return np.array([place[name] for name in group.tolist()])
