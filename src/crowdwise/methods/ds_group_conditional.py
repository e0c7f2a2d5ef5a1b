"""Confusion matrices that depend on a known attribute of the item: annotators who treat groups of items differently.

The truth of item n, which is of group z, is drawn from the group's own prior pi[z]. Annotator m, seeing an item of
class k and group z, says l with probability theta[m, z, k, l]. With a group for every item (the gender of the person in
the photo, the dialect of the comment) these are the matrices A_m(z) of fairness in crowdsourcing.

A matrix for every annotator and group takes many votes. So those of one annotator are pooled in part: their matrix over
all groups, phi[m], counts as s further votes in every row of them. Maximised is

    sum_n log sum_k pi[z, k] prod theta[m, z, k, l]  +  sum (s phi[m, k, l] + b[m, k, l]) log theta[m, z, k, l].

==============  ====================  ================================================================================
symbol          code                  equation
==============  ====================  ================================================================================
c[m,z,l,k]      ``counts``            sum over m's votes for l on items of group z of q[n, k]
theta           ``log_score``         (c + s phi + b) / sum_l (c + s phi + b)
pi[z, k]        last rows of it       mean of q[n, k] over the items of group z
rho             ``between``           how much rows differ between groups: an intraclass correlation, by moments
s               ``pooling``           (1 - rho) / rho: the Dirichlet-multinomial with that correlation
==============  ====================  ================================================================================

rho compares the spread of an annotator's rows over groups with what chance gives, in a one-way analysis of variance
over all annotators and classes. With n_z votes in group z of a row, n in all, p their pooled shares and
h = 1 - sum_l p_l^2,

    E sum_z |c_z - n_z p|^2 / n_z  =  h [ (G - 1) (1 - rho) + rho (n - sum_z n_z^2 / n) ].

(The likelihood of the counts given their own mean would underrate rho: with two groups, by half.) Where the rows differ
no more than by chance, s is infinite: one matrix per annotator, and only the class priors differ between groups.

Three fits follow each other: plain ``dawid-skene``; groups with nothing in common, started there; and the pooled one,
started from the second, with phi and s counted against the labels of the second. (Against those of the first, biased as
they are, the groups look too much alike.)

The matrices A_m(z) are those of the tutorial on learning from crowds by S. Ibrahim, P. A. Traganitis, X. Fu and
G. B. Giannakis; the pooling and its estimate are crowdwise's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.core import em, priors
from crowdwise.core.constraints import Check, is_number
from crowdwise.core.intervals import with_interval
from crowdwise.core.loop import TABLES, check_memory
from crowdwise.core.model import Callback, Family, Outcome, Params, Part, Stats, Votes, declared
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log, share_interval
from crowdwise.core.unseen import crowd_table, with_unseen
from crowdwise.core.vote_parts import VoteParts
from crowdwise.core.vote_sums import per_annotator
from crowdwise.data import encoding
from crowdwise.data.frames import is_missing
from crowdwise.errors import InputError, ParameterError, listing
from crowdwise.methods.ds_dawid_skene import ConfusionFamily, DawidSkene, full, majority_counts

MAX_CELLS = 2**27
"""The most cells (annotators x groups x classes x classes) of a fit: a gigabyte a table, and it holds six."""


def item_groups(groups: Any, items: npt.NDArray[Any]) -> tuple[Ints, npt.NDArray[Any]]:
    """The code of every item's group (-1: none given) and the groups, sorted by name."""
    if isinstance(groups, Mapping):
        # By value, not by hash: a numpy integer and a Python one are the same item.
        values = [groups.get(name) for name in items.tolist()]
    else:
        array = np.asarray(groups, dtype=object) if isinstance(groups, (list, tuple)) else np.asarray(groups)
        if array.shape != (len(items),):
            raise ParameterError(
                f"groups has shape {array.shape}: expected one group for each of the {len(items)} items, "
                "or a mapping from item to group."
            )
        values = array.tolist()
    names = sorted({v for v in values if not is_missing(v)}, key=lambda v: (str(type(v)), v))
    code = {name: z for z, name in enumerate(names)}
    return np.array([code.get(v, -1) for v in values], dtype=np.int64), encoding.to_vocabulary(names)


def by_group(votes: Votes, group: Ints, G: int, gold: Ints | None, item_prior: Floats | None) -> Part:
    """Votes as those of M G annotators, one for each group of items, and one more vote per item that names its group.

    The cell of that vote is the last but G plus the group's code: its score for a class is log pi[z, k]. So the class
    priors of the groups are learned like confusion matrices are.
    """
    M, K, N = votes.n_annotators, votes.n_classes, len(votes)
    cell = (votes.annotator.astype(np.int64) * G + group[votes.item]) * K + votes.label
    ends = votes.indptr[1:]
    cell = np.insert(cell, ends, M * G * K + group)
    weight = np.empty(0) if votes.weight is None else np.insert(votes.weight, ends, 1.0)
    indptr = votes.indptr + np.arange(N + 1)
    truth = np.empty(0, np.int32) if gold is None else gold
    return Part(indptr, cell, weight, truth, M * G + -(-G // K), K, item_prior)


def between(counts: Floats) -> float:
    """rho, from the counts c[m, z, l, k]: 0 where rows differ between groups no more than by chance."""
    n = counts.sum(axis=2)  # m, z, k
    total = n.sum(axis=1)
    p = normalise(counts.sum(axis=1), axis=1)  # m, l, k
    inside = np.divide(1.0, n, out=np.zeros_like(n), where=n > 0)
    apart = (((counts - n[:, :, None] * p[:, None]) ** 2).sum(axis=2) * inside).sum(axis=1)  # m, k
    several = total > 1.0 + 1e-9
    spread = (1.0 - (p * p).sum(axis=1)) * np.divide(total, total - 1.0, out=np.zeros_like(total), where=several)
    free = np.maximum((n > 1e-9).sum(axis=1) - 1.0, 0.0)
    reach = total - np.divide((n * n).sum(axis=1), total, out=np.zeros_like(total), where=total > 0)
    used = (free > 0) & several
    chance, slope = (spread * free)[used].sum(), (spread * (reach - free))[used].sum()
    return float(np.clip((apart[used].sum() - chance) / slope, 0.0, 1.0)) if slope > 0.0 else 0.0


@dataclass(frozen=True)
class GroupFamily(Family):
    """The maximisation step: a confusion matrix per annotator and group, a class prior per group."""

    pseudo: Floats
    """M G x L x K; M x L x K where the groups are tied."""
    groups: int
    class_prior: Floats | None
    shared: bool
    tied: bool = False
    """One matrix per annotator: infinite pooling."""

    def maximise(self, stats: Stats) -> Params:
        K, G = stats.counts.shape[1], self.groups
        cells = len(self.pseudo) * K * (G if self.tied else 1)
        counts = stats.counts[:cells].reshape(-1, K, K)
        if self.tied:
            theta = np.repeat(full(counts.reshape(-1, G, K, K).sum(axis=1) + self.pseudo), G, axis=0)
        else:
            theta = full(counts + self.pseudo)
        rows = slice(cells, cells + G)
        mass = stats.counts[rows]
        if self.class_prior is not None:
            pi = np.broadcast_to(self.class_prior, mass.shape)
        else:
            pi = normalise(np.broadcast_to(mass.sum(axis=0), mass.shape) if self.shared else mass, axis=1)
        log_score = np.zeros_like(stats.counts)
        log_score[:cells], log_score[rows] = safe_log(theta).reshape(cells, K), safe_log(pi)
        return Params(log_score, np.zeros((1, K)))

    def objective(self, log_likelihood: float, params: Params) -> float:
        """log-likelihood + sum (s phi + b) log theta."""
        M, K, _ = self.pseudo.shape
        log_theta = params.log_score[: M * K * (self.groups if self.tied else 1)].reshape(M, -1, K, K)[:, 0]
        return log_likelihood + float(self.pseudo.ravel() @ log_theta.ravel())


Groups = Annotated[Any, Check(
    lambda value: value is None or (hasattr(value, "__len__") and not isinstance(value, str)),
    "a mapping from item to group, or one group for each item", (None,), ("x", 3),
)]  # fmt: skip
Pooling = Annotated[Any, Check(
    lambda value: value == "learned" if isinstance(value, str)
    else (is_number(value) and value >= 0) or (isinstance(value, float) and value == np.inf),
    "'learned', or a number of votes of at least 0", ("learned", 0.0, 5, np.inf), (-1, "x"),
)]  # fmt: skip


@declared
class GroupConditional(DawidSkene):
    """Confusion matrices for every annotator and group of items, partially pooled over the groups.

    Without ``groups``, or with a single one, it is :class:`DawidSkene`, to the last digit. ``start`` and ``restarts``
    are those of the plain fit that the others are started from; ``max_iter`` and ``tol`` those of each fit.

    Parameters
    ----------
    groups
        The group of every item: a mapping from item to group, or N values. ``None``: all are one group.
    pooling
        How many votes per row an annotator's common matrix counts: a number (0: groups have nothing in common;
        ``inf``: they do not differ), or ``"learned"``, from how much rows differ between groups.
    class_prior
        ``"learned"``: one distribution for each group; ``"shared"``: one for all; ``"uniform"``, or the probability of
        each class.

    Notes
    -----
    A fitted model has ``groups_`` (G names), ``pooling_`` (s), ``group_confusion_`` (M x G x K x K: annotator, group,
    truth, label) and ``group_prior_`` (G x K). The table of annotators has ``accuracy(GROUP)`` for every group, with
    intervals; that of items their ``group``.

    Examples
    --------
    >>> import crowdwise as cw
    >>> import numpy as np
    >>> rng, z = np.random.default_rng(0), np.arange(600) % 2
    >>> truth = rng.integers(0, 2, 600)
    >>> harsh = rng.random((600, 9)) < 0.4  # on items of group 1, a "no" often becomes a "yes"
    >>> label = np.where((z[:, None] == 1) & (truth[:, None] == 0) & harsh, 1, truth[:, None])
    >>> votes = cw.Votes.from_dense(np.where(rng.random((600, 9)) < 0.1, 1 - label, label))
    >>> model = cw.GroupConditional(groups=dict(enumerate(z.tolist()))).fit(votes)
    >>> model.group_confusion_[:, :, 0, 1].mean(axis=0).round(1).tolist()
    [0.1, 0.4]
    """

    key = "group-conditional"
    in_parts = False
    streams = False

    groups: Groups = None
    pooling: Pooling = "learned"
    class_prior: priors.ClassPrior | Literal["shared"] = "learned"
    history: priors.History = field(default=None, init=False)

    groups_: npt.NDArray[Any] = field(init=False)
    pooling_: float = field(init=False)
    group_confusion_: Floats = field(init=False)
    group_prior_: Floats = field(init=False)

    def _family_of(self, parts: VoteParts) -> ConfusionFamily:
        pseudo = priors.pseudo_counts(self.prior, None, parts.names, counts=partial(majority_counts, parts))
        return ConfusionFamily(full, pseudo, self._class_prior(parts.names))

    def _class_prior(self, votes: Votes) -> Floats | None:
        return priors.class_prior_counts("learned" if self._shared() else self.class_prior, votes)

    def _shared(self) -> bool:
        return isinstance(self.class_prior, str) and self.class_prior == "shared"

    def _item_groups(self, votes: Votes) -> tuple[Ints, npt.NDArray[Any]]:
        if self.groups is None:
            return np.zeros(len(votes), dtype=np.int64), np.array(["all"], dtype=object)
        group, names = item_groups(self.groups, votes.items)
        if (group < 0).any():
            raise ParameterError(
                f"groups gives no group for {int((group < 0).sum())} of the {len(votes)} items: "
                f"{listing(votes.items[group < 0])}. Give them one, if only 'unknown'."
            )
        cells = votes.n_annotators * len(names) * votes.n_classes**2
        if cells > MAX_CELLS:
            raise InputError(
                f"{votes.n_annotators:,} annotators x {len(names):,} groups x {votes.n_classes:,}² classes need "
                f"{TABLES * 8 * cells / 2**30:,.0f} GB of confusion matrices. Merge groups or rare classes."
            )
        return group, names

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        check_memory(votes)
        group, names = self._item_groups(votes)
        plain = super()._fit(votes, gold, item_prior, callback)
        M, K, G = votes.n_annotators, votes.n_classes, len(names)
        self.groups_, self.pooling_, self.group_prior_ = names, np.inf, plain.prior[None]
        self.group_confusion_ = self._confusion(self.params_, K)[:, None]
        if G == 1:
            return plain
        part = by_group(votes, group, G, gold, item_prior)
        b = np.broadcast_to(priors.pseudo_counts(self.prior, None, votes, gold), (M, K, K))
        prior = self._class_prior(votes), self._shared()
        start = em.statistics(part, plain.posterior)
        fit = self._run_em(part, GroupFamily(np.repeat(b, G, axis=0), G, *prior), start, callback)
        passes, s = plain.iterations + fit.iterations, 0.0
        if self.pooling != 0.0:
            stats, q = em.expect(part, fit.params, posterior=True)
            s = self._strength(votes, group, q, G)
            common = normalise(stats.counts[: M * G * K].reshape(M, G, K, K).sum(axis=1) + b, axis=1)
            tied = not np.isfinite(s)
            pseudo = b if tied else np.repeat(s * common + b, G, axis=0)
            fit = self._run_em(part, GroupFamily(pseudo, G, *prior, tied), stats, callback)
            passes += fit.iterations
        stats, q = em.expect(part, fit.params, posterior=True)
        cells = M * G * K
        theta = np.exp(fit.params.log_score[:cells].reshape(M, G, K, K)).transpose(0, 1, 3, 2)
        self.pooling_, self.group_confusion_ = s, np.asarray(theta / theta.sum(axis=3, keepdims=True))
        self.group_prior_ = np.exp(fit.params.log_score[cells : cells + G])
        counts = stats.counts[:cells].reshape(M, G, K, K)
        # For votes on items of no known group: the annotator's matrix over all of them.
        overall = normalise(counts.sum(axis=1) + b, axis=1)
        share = np.bincount(group, minlength=G) / len(group)
        self.params_ = Params(safe_log(overall).reshape(M * K, K), safe_log(share @ self.group_prior_)[None])
        self.stats_ = Stats(counts.sum(axis=1).reshape(M * K, K), stats.mass, stats.log_likelihood)
        return Outcome(
            posterior=q, prior=share @ self.group_prior_, confusion=overall.transpose(0, 2, 1).copy(),
            log_likelihood=stats.log_likelihood, annotator_columns=self._accuracies(votes, group, q, names),
            item_columns={"group": names[group].astype(str)}, **fit.outcome | {"iterations": passes},
        )  # fmt: skip

    def _strength(self, votes: Votes, group: Ints, q: Floats, G: int) -> float:
        if self.pooling != "learned":
            return float(self.pooling)
        M, K = votes.n_annotators, votes.n_classes
        labels = q.argmax(axis=1)[votes.item]
        where = ((votes.annotator.astype(np.int64) * G + group[votes.item]) * K + votes.label) * K + labels
        counts = np.bincount(where, weights=votes.weight, minlength=M * G * K * K).astype(np.float64)
        rho = between(counts.reshape(M, G, K, K))
        return float((1.0 - rho) / rho) if rho > 0.0 else np.inf

    def _accuracies(self, votes: Votes, group: Ints, q: Floats, names: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        columns: dict[str, npt.NDArray[Any]] = {}
        p = q[votes.item, votes.label]
        for z, name in enumerate(names.tolist()):
            mine = group[votes.item] == z
            right, total, unsure = (per_annotator(votes, mine * x) for x in (p, np.ones_like(p), p * (1.0 - p)))
            low, high = share_interval(right, total, unsure)
            share = np.divide(right, total, out=np.full_like(total, 0.5), where=total > 0)
            columns |= with_interval(f"accuracy({name})", share, low, high)
        return columns

    def _predict(self, votes: Votes) -> Floats:
        G, K = len(self.groups_), votes.n_classes
        q = super()._predict(votes)  # by the annotators' matrices over all groups
        if G == 1 or self.groups is None:
            return q
        names = self.consensus_.items
        if isinstance(self.groups, Mapping):
            code, groups = item_groups(self.groups, votes.items)
            place = np.append(encoding.locate(groups, self.groups_), -1)[code]
        else:
            old, _ = item_groups(self.groups, names)
            place = np.append(old, -1)[encoding.locate(votes.items, names)]
        known = np.flatnonzero(place >= 0)
        if len(known) == 0:
            return q
        theta = with_unseen(self.group_confusion_, votes.n_annotators, crowd_table(self.stats_.table()).T)
        score = np.zeros(((votes.n_annotators * G + -(-G // K)) * K, K))
        cells = votes.n_annotators * G * K
        score[:cells] = safe_log(theta.transpose(0, 1, 3, 2)).reshape(cells, K)
        score[cells : cells + G] = safe_log(self.group_prior_)
        part = by_group(votes[known], place[known], G, None, None)
        q = q.copy()
        q[known] = em.expect(part, Params(score, np.zeros((1, K))), posterior=True)[1]
        return q
