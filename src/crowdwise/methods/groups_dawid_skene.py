"""Annotators who depend on each other: groups with a latent opinion between the truth and the answers.

Dawid and Skene's annotators answer independently given the truth. Here this holds for *groups* of annotators:
group j forms one opinion z[n, j] on item n, and its members answer from that.

    y_n ~ pi,    z[n, j] ~ xi[j, y_n],    label of m on n ~ theta[m, z[n, g(m)]]

A hundred copies of one annotator then count as one opinion. A group of one annotator has z = y, and if all are such
groups, this is ``dawid-skene``. Groups are given, or found by :mod:`crowdwise.core.annotator_groups`.

===============  ==============  ============  ========================================================================
symbol           code            shape         equation
===============  ==============  ============  ========================================================================
f[n, j, z]       ``f``           cells x K     sum over the votes of group j on n of log theta[m, z, l]
g[n, j, k]       ``g``           cells x K     logsumexp_z( log xi[j, k, z] + f[n, j, z] ); f itself for one member
q[n, k]          ``q``           N x K         softmax_k( log pi_k + sum_j g[n, j, k] )
P(k, z | n, j)   ``joint``       cells x K x K q[n, k] exp( log xi[j, k, z] + f[n, j, z] - g[n, j, k] )
c[m, l, z]       ``counts``      M x L x K     sum over m's votes for l of sum_k P(k, z | n, g(m))
x[j, k, z]       ``opinions``    J x K x K     sum_n P(k, z | n, j)
theta, xi, pi                                  c + b, x + d and sum_n q, normalised (b, d: pseudo-counts)
objective                                      sum_n log sum_k pi_k prod_j exp g + sum b log theta + sum d log xi
===============  ==============  ============  ========================================================================

A cell is an item and a group that labelled it.

``grouped-majority`` is the vote of groups: one vote each, for what most of its members say.

P. A. Traganitis and G. B. Giannakis, Identifying dependent annotators in crowdsourcing, Asilomar 2022.
A. Jaffe et al., Unsupervised ensemble learning with dependent classifiers, AISTATS 2016, for two classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Annotated, Any

import numpy as np

from crowdwise.core import annotator_groups, priors, shrinkage, starts
from crowdwise.core.annotator_groups import PairDependence, renumbered, spectral_groups
from crowdwise.core.constraints import Bounds, Check, Count, Fraction, NonNegative, is_count, leading
from crowdwise.core.loop import Callback, Rounds, check_memory
from crowdwise.core.model import Model, Outcome, Part, declared
from crowdwise.core.numerics import Floats, Ints, clamp, normalise, posterior_and_evidence, safe_log, winners
from crowdwise.core.unseen import scores_with_unseen, with_unseen
from crowdwise.core.vote_sums import sum_rows
from crowdwise.data import encoding
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError, listing
from crowdwise.kernels import reference

WORK = 2e7
"""Votes looked at in all trials: with many votes there are fewer trials, or none, and the test decides."""
LADDER = 6
"""How many numbers of groups at most are tried over the whole range, and again around the best of them."""
CHOICES = ("evidence", "test")
SHORT = 30
"""Passes over the votes in each of these trials."""


def given_groups(groups: Any, votes: Votes) -> Ints:
    """The group of each annotator, from a mapping or one group for each annotator."""
    M = votes.n_annotators
    if isinstance(groups, Mapping):
        place = encoding.locate(encoding.to_vocabulary(list(groups)), votes.annotators)
        if (place < 0).any():
            unknown = [name for name, p in zip(groups, place.tolist(), strict=True) if p < 0]
            raise ParameterError(f"groups names {listing(unknown)}: the votes have {listing(votes.annotators)}.")
        names = {name: code for code, name in enumerate(dict.fromkeys(groups.values()))}
        code = np.arange(M) + len(names)  # those not named are groups of one
        code[place] = [names[g] for g in groups.values()]
        return renumbered(code)
    codes = np.asarray(groups)
    if codes.shape != (M,):
        raise ParameterError(
            f"groups has shape {codes.shape}: expected 'evidence', 'test', a number of groups, one group for each of "
            f"the {M} annotators, or a mapping from annotator to group."
        )
    return renumbered(np.unique(codes, return_inverse=True)[1])


def likeliest_groups(votes: Votes, residuals: PairDependence) -> Ints:
    """Of the groups that the pairs suggest, those under which the two-level model fits best.

    Tried are what the test found, and for numbers of groups up to that both the tree of joins cut there and spectral
    clusters. What is compared is the log-likelihood of a short fit less half of log N for every number in the groups'
    matrices (the Bayesian information criterion; members' matrices are as many whatever the groups).
    """
    M = votes.n_annotators
    max_groups = int(residuals.group.max()) + 1
    rungs = min(int(WORK / (4 * SHORT * max(votes.n_votes, 1))), LADDER)
    if max_groups == M or rungs < 2:  # the test found none, or has so many votes that it misses none
        return residuals.group
    merges = annotator_groups.tree(residuals.pairs, residuals.surprise)
    tried: dict[bytes, tuple[float, Ints]] = {}

    def score(group: Ints) -> float:
        key = group.tobytes()
        if key not in tried:
            tried[key] = _score(votes, group), group
        return tried[key][0]

    def either(J: int) -> float:
        return max(score(annotator_groups.cut(merges, M, J)), score(spectral_groups(residuals, J)))

    score(residuals.group)
    ladder = np.unique(np.round(np.geomspace(2, max_groups, rungs)).astype(int))
    at = int(np.argmax([either(J) for J in ladder.tolist()]))
    low, high = ladder[max(at - 1, 0)], ladder[min(at + 1, len(ladder) - 1)]
    for J in np.unique(np.round(np.linspace(low, high, rungs)).astype(int)).tolist():
        either(J)
    return max(tried.values(), key=itemgetter(0))[1]


def _score(votes: Votes, group: Ints) -> float:
    K = votes.n_classes
    fit = fit_levels(votes, group, b=np.full((1, K, K), 0.01 / K), d=np.eye(K), max_iter=SHORT, tol=1e-5)
    shared = float((np.bincount(group) > 1).sum())
    return float(fit.log_likelihood - 0.5 * np.log(len(votes)) * K * (K - 1.0) * shared)


Grouping = Annotated[Any, Check(
    lambda value: value in CHOICES if isinstance(value, str)
    else value >= 1 if is_count(value) else hasattr(value, "__len__"),
    f"{CHOICES[0]!r}, {CHOICES[1]!r}, a number of groups of at least 1, one group for each annotator, or a mapping "
    "from annotator to group", (*CHOICES, 2, (0, 1)), ("x", 0),
)]  # fmt: skip
"""How annotators are grouped."""


@declared
class GroupedModel(Model):
    """A model of groups of annotators, given or found.

    Parameters
    ----------
    groups
        Found in the votes (:mod:`crowdwise.core.annotator_groups`): ``"test"``, the groups that a test finds;
        ``"evidence"``, if it finds any, as many as the two-level model fits best with; or a number of groups. Else
        given: a group for each annotator, or a mapping from annotator to group (those not named are groups of one).
    level
        Of the test: the probability of finding any group where all annotators are independent.
    min_common
        Pairs of annotators with fewer common items are not tested for dependence.
    """

    columns_without_interval = ("group", "group_size")

    groups: Grouping = leading(default="evidence")
    level: Fraction = leading(default=0.05)
    min_common: Annotated[int, Bounds(minimum=2, meaning="common items")] = leading(default=annotator_groups.MIN_COMMON)
    group_: Ints = field(init=False)

    def _groups(self, votes: Votes) -> Ints:
        """The groups, given or found in the votes."""
        if not (isinstance(self.groups, str) or is_count(self.groups)):
            return given_groups(self.groups, votes)
        residuals = annotator_groups.dependence(votes, level=self.level, min_common=self.min_common)
        if is_count(self.groups):
            return spectral_groups(residuals, int(self.groups))
        return likeliest_groups(votes, residuals) if self.groups == "evidence" else residuals.group

    def _groups_with_unseen(self, M: int) -> Ints:
        """The group of every annotator; those not seen in the fit are groups of one."""
        return np.append(self.group_, self.group_.max() + 1 + np.arange(M - len(self.group_)))


def _columns(group: Ints) -> dict[str, Any]:
    return {"group": group, "group_size": np.bincount(group)[group]}


class GroupedMajority(GroupedModel):
    """One vote per group of dependent annotators, for the label that most of its members say.

    Notes
    -----
    The table of annotators has ``group`` (0 is the largest) and ``group_size``. A vote's weight counts within the
    group; the group's vote has the mean weight of the members who labelled the item.

    Examples
    --------
    >>> import crowdwise as cw
    >>> votes = cw.Votes.from_dense([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 1]])
    >>> cw.GroupedMajority(groups=[0, 0, 0, 1, 2]).fit(votes).consensus_.labels.tolist()
    [1, 0, 0]
    """

    key = "grouped-majority"
    vote_shares = True
    single_annotator = True
    reads_backwards = False
    single_votes = "certain"

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        group = self.group_ = self._groups(votes)
        q, known = clamp(one_vote_each(votes, group), gold), np.diff(votes.indptr) > 0
        known |= False if gold is None else gold >= 0
        prior = q[known].mean(axis=0) if known.any() else np.full(votes.n_classes, 1.0 / votes.n_classes)
        return Outcome(posterior=q, prior=prior, annotator_columns=_columns(group))

    def _predict(self, votes: Votes) -> Floats:
        return one_vote_each(votes, self._groups_with_unseen(votes.n_annotators))


@declared
class GroupedDawidSkene(GroupedModel):
    """Groups of annotators with one latent opinion each, between the truth and the answers of their members, by EM.

    Parameters
    ----------
    prior
        Pseudo-counts on the members' matrices: as in :class:`DawidSkene`. The default did best on simulated groups.
    group_prior
        Pseudo-items, in each row of a group's matrix, on which its opinion is right.
    start
        ``"groups"``: one vote per group. Else ``"votes"``, a method of moments, an N x K posterior or a Consensus, as
        in :class:`DawidSkene`.
    max_iter, tol
        As in :class:`DawidSkene`.

    Notes
    -----
    The table of annotators has ``group`` (0 is the largest) and ``group_size``; the confusion matrix of a
    consensus is ``group_confusion_[group] @ member_confusion_``, how an annotator answers given the truth.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.groups(1000, n_annotators=24, n_groups=4, random_state=0)
    >>> grouped, plain = (cw.aggregate(crowd.votes, key) for key in ("grouped-dawid-skene", "dawid-skene"))
    >>> grouped.score(crowd.truth) > plain.score(crowd.truth)
    True
    """

    key = "grouped-dawid-skene"
    takes_item_prior = True

    prior: priors.Prior = "hierarchical"
    group_prior: NonNegative = 1.0
    start: starts.Start = "groups"
    max_iter: Count = 1000
    tol: NonNegative = 1e-7
    levels_: Levels = field(init=False)
    group_confusion_: Floats = field(init=False)
    member_confusion_: Floats = field(init=False)
    counts_: Floats = field(init=False)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        check_memory(votes)
        K = votes.n_classes
        group = self.group_ = self._groups(votes)
        start = self._start(votes, gold, group)
        fit = fit_levels(
            votes, group, b=self._pseudo_counts(votes, gold, group, start), d=float(self.group_prior) * np.eye(K),
            max_iter=self.max_iter, tol=self.tol, start=start, gold=gold, log_prior=item_prior, callback=callback,
        )  # fmt: skip
        self.levels_, self.counts_, self.group_confusion_ = fit.levels, fit.counts, np.exp(fit.levels.log_xi)
        self.member_confusion_ = np.exp(fit.levels.log_theta).reshape(-1, K, K).transpose(0, 2, 1)
        theta = self.group_confusion_[group] @ self.member_confusion_
        return Outcome(
            posterior=fit.q, prior=np.exp(fit.levels.log_pi), confusion=theta / theta.sum(axis=2, keepdims=True),
            log_likelihood=fit.log_likelihood, annotator_columns=_columns(group), **fit.rounds.outcome,
        )  # fmt: skip

    def _pseudo_counts(self, votes: Votes, gold: Ints | None, group: Ints, start: Floats) -> Floats:
        """b[m, l, z]; a learned prior goes by the majority of the group, not of the crowd.

        Otherwise copies would look competent before the first step.
        """
        if not isinstance(self.prior, str) or self.prior not in priors.NAMED:
            return priors.pseudo_counts(self.prior, None, votes, gold)
        K, cells = votes.n_classes, Cells.of(votes, group)
        r = first_opinions(cells, group, winners(start), K)
        counts = reference.scatter(cells.indptr, cells.vote, cells.weight, winners(r), votes.n_annotators * K)
        return shrinkage.learned_prior(counts.reshape(-1, K, K), self.prior)

    def _start(self, votes: Votes, gold: Ints | None, group: Ints) -> Floats:
        """The initial posterior."""
        by_groups = isinstance(self.start, str) and self.start == "groups"
        if by_groups and (gold is None or not (gold >= 0).any()):
            return one_vote_each(votes, group)
        start = "votes" if by_groups else self.start  # gold labels say more of reliability than the number of groups
        return starts.initial_posterior(start, Part.of(votes, gold), votes, gold, self.random_state)

    def _predict(self, votes: Votes) -> Floats:
        K, M = votes.n_classes, votes.n_annotators
        group, levels = self._groups_with_unseen(M), self.levels_
        theta = scores_with_unseen(levels.log_theta, self.counts_, M, K)
        xi = with_unseen(levels.log_xi, len(levels.log_xi) + M - len(self.group_), safe_log(np.eye(K)))
        single = np.append(np.bincount(self.group_), np.ones(M - len(self.group_))) == 1
        return expect(Cells.of(votes, group), Levels(theta, xi, levels.log_pi), single, None, None, counting=False)[2]


CHUNK = 200_000
"""Cells whose K x K tables are held at once."""


@dataclass(frozen=True)
class Cells:
    """Votes sorted by item and group: a cell is an item and a group that labelled it."""

    indptr: Ints
    """Where the votes of each cell begin."""
    first: Ints
    """Where the cells of each item begin."""
    item: Ints
    group: Ints
    vote: Ints
    """annotator * K + label of each vote."""
    weight: Floats

    @classmethod
    def of(cls, votes: Votes, group: Ints) -> Cells:
        item, of = votes.item, group[votes.annotator]
        order = np.lexsort((votes.label, votes.annotator, of, item))
        item, of = item[order], of[order]
        begin = np.flatnonzero(_changes(item, of))
        first = np.concatenate([[0], np.cumsum(np.bincount(item[begin], minlength=len(votes)))])
        vote = votes.annotator[order].astype(np.int64) * votes.n_classes + votes.label[order]
        return cls(np.append(begin, len(item)), first, item[begin], of[begin], vote, votes.weights[order])

    def opinions(self, K: int) -> Floats:
        """cells x K: the (weighted) share of each label among the group's votes on the item."""
        return reference.shares(self.indptr, self.vote % K, self.weight, K)

    def sizes(self, votes: Votes) -> Floats:
        """The mean weight, per member who labelled the item, of each cell."""
        K = votes.n_classes
        cell = np.repeat(np.arange(len(self.item)), np.diff(self.indptr))
        total = np.bincount(cell, weights=self.weight, minlength=len(self.item))
        members = np.bincount(cell[_changes(cell, self.vote // K)], minlength=len(self.item))
        return np.asarray(total / np.maximum(members, 1))


def _changes(one: Ints, two: Ints) -> Ints:
    """Where either of two columns differs from the row before (a mask); the first row does."""
    return np.asarray((np.diff(one, prepend=-1) != 0) | (np.diff(two, prepend=-1) != 0))


def one_vote_each(votes: Votes, group: Ints) -> Floats:
    """N x K: the share of groups with the majority k; tied labels evenly, uniform where there is no vote."""
    N, K = len(votes), votes.n_classes
    cells = Cells.of(votes, group)
    say = winners(cells.opinions(K)) * cells.sizes(votes)[:, None]
    return normalise(sum_rows(say, cells.item, N), axis=1)


@dataclass(frozen=True)
class Levels:
    """The parameters, as logarithms: theta[m * K + l, z], xi[j, k, z] and pi."""

    log_theta: Floats
    log_xi: Floats
    log_pi: Floats


def expect(
    cells: Cells, levels: Levels, single: Ints, gold: Ints | None, log_prior: Floats | None, counting: bool = True
) -> tuple[Floats, Floats, Floats, float]:
    """c[m * K + l, z], x[j, k, z], the posterior q and the log-likelihood; ``single``: groups of one annotator."""
    C, K = levels.log_theta.shape
    N = len(cells.first) - 1
    f = reference.logits(cells.indptr, cells.vote, cells.weight, levels.log_theta, np.zeros((1, K)))
    g = f.copy()
    shared = np.flatnonzero(~single[cells.group])
    for lo in range(0, len(shared), CHUNK):
        at = shared[lo : lo + CHUNK]
        x = levels.log_xi[cells.group[at]] + f[at, None, :]
        top = x.max(axis=2, keepdims=True)
        g[at] = (top + np.log(np.exp(x - top).sum(axis=2, keepdims=True)))[..., 0]
    logit = np.tile(levels.log_pi, (N, 1)) if log_prior is None else levels.log_pi + log_prior
    logit += sum_rows(g, cells.item, N)
    q, evidence = posterior_and_evidence(logit, gold)
    if not counting:
        return np.empty((0, K)), np.empty((0, K, K)), q, float(evidence.sum())
    r = q[cells.item]
    opinions = np.zeros(levels.log_xi.shape)
    for lo in range(0, len(shared), CHUNK):
        at = shared[lo : lo + CHUNK]
        joint = np.exp(levels.log_xi[cells.group[at]] + f[at, None, :] - g[at, :, None]) * r[at, :, None]
        r[at] = joint.sum(axis=1)
        opinions += _by_group(joint, cells.group[at], len(opinions))
    counts = reference.scatter(cells.indptr, cells.vote, cells.weight, r, C)
    return counts, opinions, q, float(evidence.sum())


def _by_group(table: Floats, group: Ints, J: int) -> Floats:
    """Tables of cells summed over the cells of each group."""
    return sum_rows(table.reshape(len(table), -1), group, J).reshape(J, *table.shape[1:])


def maximise(counts: Floats, opinions: Floats, mass: Floats, b: Floats, d: Floats, single: Ints) -> Levels:
    """The parameters under which the expected counts are most probable; a group of one annotator has xi = 1."""
    K = counts.shape[1]
    theta = normalise(counts.reshape(-1, K, K) + b, axis=1).reshape(-1, K)
    xi = normalise(opinions + d, axis=2)
    xi[single] = np.eye(K)
    return Levels(safe_log(theta), safe_log(xi), safe_log(normalise(mass, axis=0)))


@dataclass(frozen=True)
class TwoLevelFit:
    """A two-level model, fitted."""

    levels: Levels
    counts: Floats
    q: Floats
    log_likelihood: float
    rounds: Rounds


def first_opinions(cells: Cells, group: Ints, q: Floats, K: int) -> Floats:
    """cells x K: the labels' shares in the group; for a group of one annotator the posterior of the truth."""
    r = cells.opinions(K)
    single = (np.bincount(group) == 1)[cells.group]
    r[single] = q[cells.item[single]]
    return r


def fit_levels(
    votes: Votes, group: Ints, *, b: Floats, d: Floats, max_iter: int, tol: float, start: Floats | None = None,
    gold: Ints | None = None, log_prior: Floats | None = None, callback: Callback | None = None,
) -> TwoLevelFit:  # fmt: skip
    """EM from a posterior of the truths (by default one vote per group) and the groups' shares of labels."""
    K = votes.n_classes
    cells, single = Cells.of(votes, group), np.bincount(group) == 1
    q = one_vote_each(votes, group) if start is None else start
    r = first_opinions(cells, group, q, K)
    counts = reference.scatter(cells.indptr, cells.vote, cells.weight, r, votes.n_annotators * K)
    opinions = _by_group(q[cells.item][:, :, None] * r[:, None, :], cells.group, len(single))
    rounds = Rounds(max_iter, float(votes.weights.sum()), callback)
    for _ in rounds:
        levels = maximise(counts, opinions, q.sum(axis=0), b, d, single)
        counts, opinions, q, evidence = expect(cells, levels, single, gold, log_prior)
        value = evidence + float((b * levels.log_theta.reshape(-1, K, K)).sum())
        value += float((d * levels.log_xi[~single]).sum())
        rounds.reached(value, below=tol)
    return TwoLevelFit(levels, counts, q, evidence, rounds)
