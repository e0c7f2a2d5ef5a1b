"""Rings: annotators who agree with each other and not with the rest. No model of the truth is fitted.

For a pair of annotators with common items only agreement is counted. Agreement beyond what both label habits make,
kappa, is s_i s_j between independent annotators, whatever the truth and however hard the items are. Inside a ring it
is not: members agree because they copy. What tells a ring is the gap between the two,

    kappa inside the ring - skill of the ring as everybody *outside* it sees it,

which is 1 for exact copies of random labels, more for copied mistakes, and at most 0.5 in most real crowds. So the test
is whether the agreement inside exceeds the skill by more than ``MARGIN``. Where many err together the gap is larger for
honest annotators, too: the others agree about their mistakes, so the few who know seem to lack skill. Two things tell
them from a ring: the others still agree with them (``along``), and where they do not, those who judge split on the same
items, while copies slip anywhere (``judged``).

===============  ============  =======  ===============================================================================
symbol           code          shape    equation
===============  ============  =======  ===============================================================================
n[i, j], a       ``common``,   M x M    pairs of votes of i and j on one item, and how many of them agree
                 ``agree``
c[i, j]          ``chance``    M x M    sum_l share of l among i's votes * share of l among j's (two more votes by all)
kappa[i, j]                    M x M    (a - c n) / ((1 - c) n)
s[m]             ``skills``    M        argmin sum over j in H of (1 - c) n (kappa - s_m s_j)^2, 0 <= s <= 1; H: outside
g[m]             ``seen``      M        the same without the limits, so that a ring of mistakes has g < 0
z(C)             ``test``      1        sum over pairs in C of (a - n p) / sqrt(sum n p (1 - p)), p by g + MARGIN
===============  ============  =======  ===============================================================================

**Candidates** grow from the pairs that stand out most. The skill of an annotator is first taken from the median of the
partners, which a ring of less than half does not move. An annotator joins who agrees with the candidate ``BAR`` times
as much as its members do, surely (a binomial test at level / M); then the skills are learned again from everybody
outside, until nothing changes. So the ring does not poison the null that it is tested by.

**Which side is the ring** cannot be seen from votes: the two sides could change roles. A candidate with whose answers
half of the crowd agrees, annotators who guess left out, is none. Where two candidates contradict each other, the one
with fewer supporters is the ring; with ``trusted`` annotators, the one with which they agree less. At the end each ring
is tested again without the others in the reference.

**Level.** z is compared with the Normal quantile of level / pairs, in units of the spread of the z of all pairs outside
(at least 1), so that hard items and habits that the model lacks make it harder to be accused, not easier. Many pairs
on few items are few witnesses: the gap less ``MARGIN`` must also be so many standard errors over items (``gap_error``)
as the Normal quantile of level / rounds, 2.5.

**Alike.** Similar models answer every item and err together, so that each looks as good as the others say. Where other
annotators answer fewer items and agree among themselves, they show the skill g of those who answer nearly all, and that
their correlation is rho = (kappa inside - g^2) / (1 - g^2), about 0 for people. Then n of their votes count as
n / (1 + rho (n - 1)), and none is accused; nor where g^2 is near the agreement of the others or above: experts beside a
weaker crowd that errs together agree with it more than it agrees with itself.

**Time.** A ring that is honest for a while (a drip attack) agrees with the rest as long as it is. Where there are
timestamps the search is repeated on the votes after each quarter of them, with a part of the level each.

When it fails: two annotators with fewer than ``MIN_COMMON`` common items; a ring of half the crowd, or of half of those
who do not guess; collusion on a few items (:func:`crowdwise.trust.shared_mistakes`). Two or three who know, or who
hardly ever slip, among many who are wrong together on most items look like a ring, and so do more of them on some
dozens of items.

Agreement of honest annotators as s_i s_j: Y. Ma, A. Olshevsky, C. Szepesvari and V. Saligrama, ICML 2018. The agreement
matrix with adversaries: P. A. Traganitis and G. B. Giannakis, ICDM 2021. The gap, the search and the test are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats, Ints, binomial_tail, sample_items
from crowdwise.data.votes import Votes

Mask = npt.NDArray[np.bool_]

MARGIN = 0.5
"""By how much agreement inside a ring has to exceed what its skill, as the others see it, explains."""
BAR = 0.65
"""An annotator joins who agrees with a ring this many times as much as its members do with each other."""
MIN_VOTES, MIN_COMMON = 8, 5
"""The fewest votes of an annotator, and common items of a pair, that are looked at."""
MOST_ANNOTATORS, MOST_PAIRS = 500, 3_000_000
"""The annotators with the most votes are looked at, and, of items with many pairs of votes, a sample."""
FEWEST = 6
"""The fewest annotators among which a ring can be told from the rest."""
SEEDS, ROUNDS, STEPS = 30, 8, 15
"""Pairs from which candidates grow, rounds in which rings are set apart, and steps in which a candidate grows."""
ITERATIONS = 20
OUTSIDE = 3
"""The fewest annotators outside a ring."""
GUESSES = 0.2
"""The skill under which an annotator's vote counts less where two sides are weighed."""
AGREES = 1 / 3
"""Annotators who surely agree with the others, and this many times as much as these with each other, are no ring.
Of the rings planted in real crowds 99 % agree less, and good annotators among many who err together agree more."""
OWN = 0.2
"""The share of the items on which the members of a ring may answer for themselves, without passing for judges."""
COPIES, UNEVEN = 200, 0.01
"""Simulated rings, and the share of them that may split as unevenly as annotators who are no ring."""
SAME, HARD, LINK, COPIERS, JUDGES = 0.99, 0.4, 10, 5, 0.2
"""Copies agree so much beyond chance; what hard items explain of it; the fewest common items, and the fewest copies: a
few who never differ may know, and do little harm where they do not. The agreement beyond chance of all others under
which they cannot tell copies from those who know."""
NEARLY_ALL, LEAST_RHO, WEAKER = 0.9, 0.1, 0.8
"""The share of the items from which on an annotator answered nearly all; the least correlation that counts (people who
answer all have up to 0.05, LLMs 0.1 to 0.3); and by how much g^2 of weaker annotators is less than the agreement of
others."""
LATE = (0.25, 0.5, 0.75)
"""Shares of the votes, by time, after which members may begin: a drip attack is honest until then."""
LEAST_AGREEMENT = 0.06
"""The agreement beyond chance of those outside a ring under which they know no truth that it could contradict: few who
know among many who guess are not a ring. Real crowds have 0.13 or more, crowds that guess up to 0.03."""


@dataclass(frozen=True, eq=False)
class Ring:
    """Annotators who agree with each other and not with the rest.

    Attributes
    ----------
    members
        Positions in ``votes.annotators``.
    inside, outside
        Agreement beyond chance of the members with each other, and their skill as the others see it (below 0: they
        contradict the others).
    share
        Their share of the votes.
    p_value
        Of the test, corrected for the number of pairs.
    since
        The timestamp from which on they are one, where that is not the beginning.
    kind
        ``"ring"``; ``"copies"``: their answers are the same, but not against the rest, as of one person with several
        accounts; ``"alike"``: they answered nearly every item and err together, as similar models do.
    rho
        n of their votes on an item count as n / (1 + rho (n - 1)); as one vote but for those who are alike.
    """

    members: Ints
    inside: float
    outside: float
    share: float
    p_value: float
    since: float | None = None
    kind: Literal["ring", "copies", "alike"] = "ring"
    rho: float = 1.0


def _least(x: Floats, weight: Floats) -> tuple[float, float]:
    """Mean and variance of a distribution without the ``OWN`` of it that are largest; 0 where there is none."""
    order = np.argsort(x, kind="stable")
    x, upto = x[order], np.minimum(np.cumsum(weight[order]), (1.0 - OWN) * weight.sum())
    share = np.diff(upto, prepend=0.0) / max(float(weight.sum()), 1e-300) / (1.0 - OWN)
    return float(x @ share), float((x - x @ share) ** 2 @ share)


def paired_votes(indptr: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """All pairs (first, second) of different votes on the same item, for some items."""
    size = np.diff(indptr)[rows]
    count = size * (size - 1) // 2
    base = np.repeat(indptr[rows], count)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    # The pair number t is (a, b), a < b, counted by b: t = b (b - 1) / 2 + a.
    b = np.floor((1.0 + np.sqrt(8.0 * within + 1.0)) / 2.0).astype(np.int64)
    b -= (b * (b - 1) // 2 > within).astype(np.int64)
    b += ((b + 1) * b // 2 <= within).astype(np.int64)
    return base + within - b * (b - 1) // 2, base + b


@dataclass(frozen=True, eq=False)
class PairAgreement:
    """Agreement of all pairs of the annotators with the most votes."""

    annotator: Ints
    """Their positions in ``votes.annotators``."""
    agree: Floats
    common: Floats
    chance: Floats
    """Pairs of votes on one item that agree, all of them, and the share that label habits alone make agree."""
    votes: Floats
    """How many votes each has."""
    item: Ints
    place: Ints
    label: Ints
    """The votes: codes of items, positions in ``annotator``, and codes of classes."""

    @classmethod
    def of(cls, votes: Votes) -> PairAgreement:
        M, K = votes.n_annotators, votes.n_classes
        counts = np.bincount(votes.annotator, minlength=M)
        busy = np.argsort(-counts, kind="stable")[:MOST_ANNOTATORS]
        busy = np.sort(busy[counts[busy] >= MIN_VOTES])
        place = np.full(M, -1, dtype=np.int64)
        place[busy] = np.arange(len(busy))
        keep = place[votes.annotator] >= 0
        item, who, label = votes.item[keep].astype(np.int64), place[votes.annotator[keep]], votes.label[keep]
        size = np.bincount(item, minlength=len(votes))
        indptr = np.append(0, np.cumsum(size))
        cost = size * (size - 1) // 2
        B = len(busy)
        a, b = paired_votes(indptr, sample_items(cost, MOST_PAIRS, 0))
        cell = who[a] * B + who[b]
        cells = (cell[label[a] == label[b]], cell)
        tables = (np.bincount(at, minlength=B * B).reshape(B, B).astype(np.float64) for at in cells)
        agree, common = ((table + table.T) * (1.0 - np.eye(B)) for table in tables)
        habit = np.bincount(who * K + label, minlength=B * K).reshape(B, K).astype(np.float64)
        total = habit.sum(axis=1)
        habit += 2.0 * habit.sum(axis=0) / max(float(total.sum()), 1.0)
        habit /= habit.sum(axis=1, keepdims=True)
        return cls(busy, agree, common, habit @ habit.T, total, item, who, label)

    def __len__(self) -> int:
        return len(self.annotator)

    @cached_property
    def beyond(self) -> Floats:
        """Agreements beyond chance."""
        return self.agree - self.chance * self.common

    @cached_property
    def room(self) -> Floats:
        """The agreements beyond chance that there could be."""
        return (1.0 - self.chance) * self.common

    @cached_property
    def pairs(self) -> tuple[Ints, Ints]:
        """The pairs i < j with enough common items, whose labels could differ."""
        i, j = np.nonzero(np.triu((self.common >= MIN_COMMON) & (self.chance < 0.95), 1))
        return i, j

    def mask(self, members: Ints) -> Mask:
        mask = np.zeros(len(self), dtype=bool)
        mask[members] = True
        return mask

    def kappa(self, members: Ints, prior: float = 0.0) -> Floats:
        """Every annotator's agreement beyond chance with some members; 0 without common items."""
        room = self.room[:, members].sum(axis=1) + prior
        beyond = self.beyond[:, members].sum(axis=1)
        return np.asarray(np.divide(beyond, room, out=np.zeros(len(self)), where=room > 0.0))

    def inside(self, members: Ints) -> float:
        """The members' agreement beyond chance with each other."""
        block = np.ix_(members, members)
        return float(self.beyond[block].sum() / max(float(self.room[block].sum()), 1e-9))

    def typical(self, free: Mask) -> Floats:
        """g by the median of the free partners, as a share of the typical skill: a minority does not move it."""
        n = np.where((self.common >= MIN_COMMON) & free[:, None] & free, self.common, 0.0)
        kappa = np.divide(self.beyond, self.room, out=np.zeros_like(n), where=(n > 0.0) & (self.room > 0.0))
        order = np.argsort(kappa, axis=1, kind="stable")
        upto = np.cumsum(np.take_along_axis(n, order, axis=1), axis=1)
        total = upto[:, -1]
        at = order[np.arange(len(n)), (upto >= 0.5 * total[:, None]).argmax(axis=1)]
        middle = np.where(total > 0.0, kappa[np.arange(len(n)), at], 0.0)
        mean = float((np.maximum(middle, 0.0) * total).sum() / max(float(total.sum()), 1e-9))
        return np.asarray(np.clip(middle / np.sqrt(max(mean, 1e-4)), -1.0, 1.0))

    def skills(self, reference: Mask) -> Floats:
        """s of everybody, by agreement with the reference."""
        at = np.flatnonzero(reference)
        beyond, room = self.beyond[:, at], self.room[:, at]
        s = np.full(len(self), 0.6)
        for _ in range(ITERATIONS):
            w = s[at]
            s = 0.5 * (s + np.clip((beyond @ w) / np.maximum(room @ (w * w), 1e-9), 0.0, 1.0))
        return s

    def seen(self, reference: Mask, skill: Floats) -> tuple[Floats, Floats]:
        """g of everybody, by agreement with the reference, and the room there was for it."""
        w = reference * skill
        room = self.room @ (w * w)
        return np.divide(self.beyond @ w, room, out=np.zeros(len(self)), where=room > 1e-6), room

    def seen_as(self, members: Ints, outside: Mask) -> tuple[float, float, Floats]:
        """g of the members together, as those outside see it, the room there was for it, and the skill of everybody."""
        skill = self.skills(outside)
        g, room = self.seen(outside, skill)
        total = float(room[members].sum())
        return float((g * room)[members].sum()) / max(total, 1e-9), total, skill

    def along(self, members: Ints, outside: Mask, own: float, skill: Floats) -> bool:
        """Whether those outside agree with the members, beyond two standard errors (an item counts once).

        The gap alone does not show a ring: others who err together agree with each other more than with those who know.
        """
        met = self.room[members].sum(axis=0) * outside
        items = np.unique(self.item[self.mask(members)[self.place]]).size
        return bool(own * met.sum() >= AGREES * (met @ skill) and own * np.sqrt(items) >= 2.0)

    def gap_error(self, members: Ints, outside: Mask, skill: Floats) -> float:
        """The standard error of the gap over items, as all pairs of votes on an item stand or fall together."""
        K, own, weight = int(self.label.max()) + 1, self.mask(members), outside * skill
        cell, cells = self.item * K + self.label, K * (int(self.item.max()) + 1)

        def by_item(weights: Any) -> Floats:
            return np.asarray(np.bincount(cell, weights[self.place], cells).reshape(-1, K), dtype=np.float64)

        def rest(agree: Floats, pairs: Floats, unit: float, others: Any) -> Floats:
            """By how much an item moves the mean agreement beyond chance, which has this room in a pair."""
            room = float((self.room[members] @ others).sum() / max(float((self.common[members] @ others).sum()), 1e-9))
            return np.asarray((agree - pairs * agree.sum() / max(float(pairs.sum()), 1e-9)) / max(room * unit, 1e-9))

        ours, theirs = by_item(own), by_item(weight)
        size = ours.sum(axis=1)
        both, met = size**2 - size, size * theirs.sum(axis=1)
        inside = rest((ours**2).sum(axis=1) - size, both, float(both.sum()), own)
        seen = rest((ours * theirs).sum(axis=1), met, float(size @ by_item(weight**2).sum(axis=1)), weight**2)
        return float(np.sqrt(((inside - seen) ** 2).sum()))

    def judged(self, members: Ints, outside: Mask) -> bool:
        """Whether members split on the same items more than nearly all simulated copies, whose slips fall anywhere.

        Of the items on which they contradict those outside; the ``OWN`` of them that split most are left out.
        """
        K = int(self.label.max()) + 1
        cell, cells = self.item * K + self.label, K * (int(self.item.max()) + 1)
        sides = (cell[side[self.place]] for side in (self.mask(members), outside))
        ours, theirs = (np.bincount(at, minlength=cells).reshape(-1, K) for at in sides)
        size = ours.sum(axis=1)
        against = (size > 2) & (theirs.sum(axis=1) > 0) & (ours.argmax(axis=1) != theirs.argmax(axis=1))
        size, most = size[against], ours.max(axis=1)[against]
        mean, variance = _least((size - most) / size, np.ones(len(size)))
        if mean == 0.0:
            return False
        n, times = np.unique(size, return_counts=True)
        k, low, high = np.arange(n[-1] + 2)[:, None], 0.0, 1.0
        slips = np.minimum(k[:-1], n - -(-n // K)) / n
        for _ in range(ITERATIONS):  # how often copies slip
            p = 0.5 * (low + high)
            chance: Floats = -np.diff(np.where(k <= n, binomial_tail(k, n, p), 0.0), axis=0)
            low, high = (p, high) if _least(slips.ravel(), (times * chance).ravel())[0] < mean else (low, p)
        rng, simulated = np.random.default_rng(0), list[float]()
        for _ in range(COPIES):
            slips = np.minimum(rng.binomial(size, p), size - -(-size // K)) / size
            simulated.append(_least(slips, np.ones(len(size)))[1])
        return bool(np.mean(np.array(simulated) >= variance) <= UNEVEN)

    def excess(self, i: Any, j: Any, kappa: Any) -> tuple[Floats, Floats]:
        """Agreements of pairs beyond those that kappa makes, and their variance."""
        c, n = self.chance[i, j], self.common[i, j]
        p = np.clip(c + (1.0 - c) * np.clip(kappa, -1.0, 0.98), 0.02, 0.98)
        return self.agree[i, j] - n * p, n * p * (1.0 - p)

    def surprise(self, members: Ints, skill: Floats) -> Floats:
        """p-value of every annotator's agreement with the members, where skill explains it; an item counts once."""
        cross = np.outer(skill, skill[members])
        c, n = self.chance[:, members], self.common[:, members]
        expected = (n * np.clip(c + (1.0 - c) * cross, 0.02, 0.98)).sum(axis=1)
        pairs = np.maximum(n.sum(axis=1), 1e-9)
        own = self.mask(members)
        on_item = np.bincount(self.item, weights=own[self.place], minlength=int(self.item.max(initial=-1)) + 1)
        shared = (on_item[self.item] - own[self.place]) > 0.0
        items = np.minimum(np.bincount(self.place[shared], minlength=len(self)), pairs)
        return binomial_tail(items * self.agree[:, members].sum(axis=1) / pairs, items, expected / pairs)

    def copied(self, members: Ints, free: Mask) -> tuple[Floats, float]:
        """p-value of every annotator's agreement with the members, where g^2 + ``HARD`` explains it, and g."""
        outside = free & ~self.mask(members)
        own = max(self.seen_as(members, outside)[0], 0.0)
        explained = own**2 + HARD
        know = self.inside(np.flatnonzero(outside)) >= JUDGES
        if outside.sum() < max(OUTSIDE, len(members)) or explained > SAME or not know:
            return np.ones(len(self)), own
        return self.surprise(members, np.full(len(self), np.sqrt(explained))), own

    def support(self, members: Ints, free: Mask) -> float:
        """The share of the votes, among those compared with the members, that are theirs or agree with them.

        Annotators who agree with none outside either are no opposition: they count less, the more they guess.
        """
        outside = free & ~self.mask(members)
        compared = outside & (self.common[:, members].sum(axis=1) > 0.0)
        own = float(self.votes[members].sum())
        along = np.clip(self.kappa(members, prior=2.0), 0.0, 1.0)
        known = np.maximum(np.clip(self.skills(outside) / GUESSES, 0.0, 1.0), along)
        return (own + float((self.votes * along)[compared].sum())) / (own + float((self.votes * known)[compared].sum()))

    def lead(self, one: Ints, other: Ints, free: Mask, trusted: Mask | None) -> float:
        """Votes of one side and of those who agree with it more, less those of the other side; or what the trusted
        say."""
        for_one, for_other = self.kappa(one), self.kappa(other)
        lean = (for_one - for_other) / (np.abs(for_one) + np.abs(for_other) + 0.1)
        if trusted is not None:
            return float((self.votes * lean)[trusted].sum())
        rest = free & ~self.mask(np.append(one, other))
        return float(self.votes[one].sum() - self.votes[other].sum() + (self.votes * lean)[rest].sum())


@dataclass(eq=False)
class _Search:
    votes: Votes
    trusted: Mask | None
    level: float

    def __post_init__(self) -> None:
        self.pairs = PairAgreement.of(self.votes)
        self.trusted = None if self.trusted is None else self.trusted[self.pairs.annotator]
        self.i, self.j = self.pairs.pairs
        self.each = self.level / max(len(self.i), 1)
        self.bar = -NormalDist().inv_cdf(self.each)
        self.items_bar = -NormalDist().inv_cdf(self.level / ROUNDS)

    def free(self, rings: Sequence[Ring]) -> Mask:
        """Who is in none of the rings."""
        return ~np.isin(self.pairs.annotator, [m for ring in rings for m in ring.members.tolist()])

    def ring(self, members: Ints, inside: float, own: float, p: float, **others: Any) -> Ring:
        share = float(self.pairs.votes[members].sum()) / self.votes.n_votes
        return Ring(self.pairs.annotator[members], inside, own, share, min(p * len(self.i), 1.0), **others)

    def rings(self) -> list[tuple[float, Ring]]:
        """The rings, with their z."""
        rings: list[Ints] = []
        free = np.ones(len(self.pairs), dtype=bool)
        for _ in range(ROUNDS if len(self.pairs) >= FEWEST and len(self.i) else 0):
            chosen = self.chosen(self.candidates(free), free)
            if not chosen:
                break
            rings += chosen
            free = ~self.pairs.mask(np.concatenate(rings))
        while rings:  # each without the others in its reference
            free = ~self.pairs.mask(np.concatenate(rings))
            tests = [self.test(members, free) for members in rings]
            z = [test[0] for test in tests]
            if min(z) >= self.bar:
                return [
                    (z, self.ring(members, inside, own, NormalDist().cdf(-z)))
                    for members, (z, inside, own) in zip(rings, tests, strict=True)
                ]
            rings.pop(int(np.argmin(z)))
        return []

    def copies(self, rings: Sequence[Ring]) -> list[Ring]:
        """Annotators outside rings whose answers are the same, as those of one person with several accounts.

        Groups grow from the pairs with the most common items, by annotators who nearly always agree with them. Then
        every member's agreement with the others must be surely more than g^2 + ``HARD``: what independent annotators
        have of the skill g that the rest sees in the group, and what hard items may add.
        """
        pairs, i, j, out = self.pairs, self.i, self.j, list[Ring]()
        if len(pairs) < FEWEST:
            return []
        free = self.free(rings)
        near = np.flatnonzero((pairs.beyond[i, j] >= SAME * pairs.room[i, j]) & (pairs.common[i, j] >= LINK))
        near = near[np.argsort(-pairs.common[i[near], j[near]], kind="stable")]
        seeds = free.copy()
        for members in np.stack([i[near], j[near]], axis=1):
            if not seeds[members].all():
                continue
            for _ in range(STEPS):
                same = free & (pairs.kappa(members) >= SAME) & (pairs.common[:, members].sum(axis=1) >= LINK)
                if np.array_equal(new := np.flatnonzero(same), members) or len(new) < 2:
                    break
                members = new
            seeds[members] = False
            p, own = pairs.copied(members, free)
            while len(members) > 1 and p[members].max() > self.each:
                members = members[p[members] <= self.each]
                p, own = pairs.copied(members, free)
            if len(members) >= COPIERS:
                free[members] = False
                out.append(self.ring(members, pairs.inside(members), own, float(p[members].max()), kind="copies"))
        return out

    def alike(self, voices: Sequence[Ring]) -> list[Ring]:
        """Those who answered nearly every item, where they err together and others, who see them as weaker, show it."""
        pairs, free = self.pairs, self.free(voices)
        every = free & (pairs.votes >= NEARLY_ALL * np.unique(self.votes.item).size)
        members, outside = np.flatnonzero(every), free & ~every
        if len(members) < 2 or outside.sum() < OUTSIDE:
            return []
        inside, others = pairs.inside(members), pairs.inside(np.flatnonzero(outside))
        own, room, _ = pairs.seen_as(members, outside)
        explained = max(own, 0.0) ** 2
        if others < JUDGES or room < 1.0 or explained > WEAKER * others:
            return []
        rho = (inside - explained) / (1.0 - explained)
        return [self.ring(members, inside, own, 1.0, kind="alike", rho=rho)] if rho >= LEAST_RHO else []

    def candidates(self, free: Mask) -> list[tuple[float, Ints]]:
        """Groups that pass the test, with their z."""
        pairs, out = self.pairs, list[tuple[float, Ints]]()
        skill = pairs.skills(free)
        for known in (pairs.typical(free), np.clip(pairs.seen(free, skill)[0], -1.0, 1.0)):
            s = np.maximum(known, 0.0)
            excess, variance = pairs.excess(self.i, self.j, np.maximum(s[self.i], s[self.j]) + MARGIN)
            z = excess / np.sqrt(variance)
            seeds = np.flatnonzero(free[self.i] & free[self.j] & (z >= 1.0))
            used, tried = np.zeros(len(pairs), dtype=bool), 0
            for seed in seeds[np.argsort(-z[seeds], kind="stable")].tolist():
                pair = np.array([self.i[seed], self.j[seed]])
                if used[pair].any():
                    continue
                if tried == SEEDS:
                    break
                tried += 1
                members = self.grown(pair, free, s)
                used[pair] = used[members] = True
                if len(members) < 2 or (len(members) == 2 and z[seed] < self.bar - 1.0):
                    continue
                if any(np.array_equal(members, other) for _, other in out):
                    continue
                # On this side are no trusted annotators; or, where none are known, few supporters.
                if pairs.support(members, free) >= 0.5 if self.trusted is None else self.trusted[members].any():
                    continue
                value = self.test(members, free & ~pairs.mask(members))[0]
                if value >= self.bar:
                    out.append((value, members))
        return out

    def grown(self, members: Ints, free: Mask, skill: Floats) -> Ints:
        """A candidate with all who agree with it, and without those who do not."""
        pairs = self.pairs
        for step in range(STEPS):
            p = pairs.surprise(members, skill)
            joins = free & (pairs.kappa(members) >= BAR * pairs.inside(members)) & (p <= self.level / len(pairs))
            new = np.flatnonzero(joins)
            if step == 0:
                new = np.union1d(new, members)
            partly = len(new) > 2 * len(members) + 1
            if partly:
                new = np.union1d(members, new[np.argsort(p[new], kind="stable")][: len(members) + 1])
            same = np.array_equal(new, members)
            members = new
            if len(members) < 2 or same:
                break
            if len(members) > 2 and not partly:  # else the rest of the ring would pass for the others
                skill = pairs.skills(free & ~pairs.mask(members))
        return members

    def test(self, members: Ints, outside: Mask) -> tuple[float, float, float]:
        """z, and the agreement inside and the skill as seen from outside; z is -inf where there is no gap."""
        pairs, nothing = self.pairs, (-np.inf, 0.0, 0.0)
        if outside.sum() < OUTSIDE:
            return nothing
        own, room, skill = pairs.seen_as(members, outside)
        if room < 1.0 or pairs.inside(np.flatnonzero(outside)) < LEAST_AGREEMENT:
            return nothing
        inside = pairs.inside(members)
        beyond = inside - own - MARGIN
        if beyond < 0.0 or pairs.along(members, outside, own, skill) or pairs.judged(members, outside):
            return -np.inf, inside, own
        if beyond < self.items_bar * pairs.gap_error(members, outside, skill):
            return -np.inf, inside, own
        i, j = (members[at] for at in np.triu_indices(len(members), 1))
        excess, variance = pairs.excess(i, j, own + MARGIN)
        both = outside[self.i] & outside[self.j]
        i, j = self.i[both], self.j[both]
        rest, spread = pairs.excess(i, j, skill[i] * skill[j])
        z = rest / np.sqrt(spread)
        scale = max(1.0, 1.4826 * float(np.median(np.abs(z - np.median(z))))) if len(z) > 20 else 1.0
        return float(excess.sum() / np.sqrt(variance.sum()) / scale), inside, own

    def chosen(self, candidates: list[tuple[float, Ints]], free: Mask) -> list[Ints]:
        """Of the candidates those that no rival with fewer supporters contradicts, without overlaps."""
        out: list[Ints] = []
        for _, members in sorted(candidates, key=lambda entry: -entry[0]):
            if all(
                np.intersect1d(members, other).size or self.pairs.lead(other, members, free, self.trusted) >= 0.0
                for _, other in candidates
                if self.pairs.room[np.ix_(members, other)].sum() > 0.0
            ) and not any(np.intersect1d(members, other).size for other in out):
                out.append(members)
        return out


def find_voices(votes: Votes, *, trusted: Mask | None = None, level: float = 0.05) -> list[Ring]:
    """Annotators whose votes count less: rings, the largest first, copies, and those who are alike; none among fewer
    than ``FEWEST`` annotators.

    Where votes have timestamps, rings are also looked for among the later votes; of rings with members in common the
    one that stands out most is kept.
    """
    if votes.n_classes < 2 or votes.n_annotators < FEWEST:
        return []
    late: list[float] = []
    time = times(votes)
    if not np.isnan(time).all():
        late = [start for start in np.unique(np.nanquantile(time, LATE)).tolist() if start > np.nanmin(time)]
    level /= 1 + len(late)
    search = _Search(votes, trusted, level)
    scored = search.rings()
    for start in late:
        later = votes.select(time >= start)
        share = later.n_votes / votes.n_votes
        scored += [
            (z, replace(ring, share=ring.share * share, since=start))
            for z, ring in _Search(later, trusted, level).rings()
        ]
    rings: list[Ring] = []
    for _, ring in sorted(scored, key=lambda entry: -entry[0]):
        if not any(np.intersect1d(ring.members, other.members).size for other in rings):
            rings.append(ring)
    rings.sort(key=lambda ring: (-len(ring.members), ring.members[0]))
    rings += search.copies(rings)
    return rings + search.alike(rings)


def find_rings(votes: Votes, *, trusted: Mask | None = None, level: float = 0.05) -> list[Ring]:
    """The rings among :func:`find_voices`."""
    return [voice for voice in find_voices(votes, trusted=trusted, level=level) if voice.kind == "ring"]


def times(votes: Votes) -> Floats:
    """When each vote was given, as a number; NaN where that is not known."""
    if votes.timestamp is None:
        return np.full(votes.n_votes, np.nan)
    time = np.asarray(votes.timestamp)
    return np.where(np.isnat(time), np.nan, time.astype(np.float64)) if time.dtype.kind == "M" else time.astype(float)


def since(votes: Votes, ring: Ring) -> Votes:
    """The votes from when on there is a ring."""
    return votes if ring.since is None else votes.select(times(votes) >= ring.since)


def discounted(votes: Votes, rings: Sequence[Ring]) -> Votes:
    """The votes with weights by which n votes of a ring on an item count as n / (1 + rho (n - 1)), from when on it is
    one."""
    group = np.full(votes.n_annotators, -1, dtype=np.int64)
    start = np.full(len(rings) + 1, -np.inf)
    for r, ring in enumerate(rings):
        group[ring.members] = r
        start[r] = -np.inf if ring.since is None else ring.since
    of = group[votes.annotator]
    inside = of >= 0
    if votes.timestamp is not None:
        inside &= (start[of] == -np.inf) | (times(votes) >= start[of])
    cell = votes.item[inside].astype(np.int64) * len(rings) + of[inside]
    _, code, size = np.unique(cell, return_inverse=True, return_counts=True)
    weight = votes.weights.astype(np.float64).copy()
    weight[inside] /= 1.0 + np.array([ring.rho for ring in rings])[of[inside]] * (size[code] - 1.0)
    return replace(votes, weight=weight)
