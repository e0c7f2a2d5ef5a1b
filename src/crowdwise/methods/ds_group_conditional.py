"""Confusion matrices that depend on a known attribute of the item: annotators who treat one kind of item differently.

The truth of item n, which is of kind z, is drawn from the kind's own prior pi[z]. Annotator m, seeing an item of class
k and kind z, says l with probability theta[m, z, k, l]. With a kind for every item (the gender of the person in the
photo, the dialect of the comment) these are the matrices A_m(z) of fairness in crowdsourcing: a crowd that calls one
group's comments toxic too readily is corrected there, and only there.

A matrix for every annotator and kind takes many votes. So those of one annotator are pulled towards what they have in
common: their matrix over all kinds, phi[m], counts as s further votes in every row of them. Maximised is

    sum_n log sum_k pi[z, k] prod theta[m, z, k, l]  +  sum (s phi[m, k, l] + b[m, k, l]) log theta[m, z, k, l].

==============  ====================  ================================================================================
symbol          code                  equation
==============  ====================  ================================================================================
c[m,z,l,k]      ``counts``            sum over m's votes for l on items of kind z of q[n, k]
theta           ``log_score``         (c + s phi + b) / sum_l (c + s phi + b)
pi[z, k]        last rows of it       mean of q[n, k] over the items of kind z
rho             ``between``           how much rows differ between kinds: an intraclass correlation, by moments
s               ``pooling``           (1 - rho) / rho: the Dirichlet-multinomial with that correlation
==============  ====================  ================================================================================

rho compares the spread of an annotator's rows over kinds with what chance gives, in a one-way analysis of variance
over all annotators and classes. With n_z votes in kind z of a row, n in all, p their pooled shares and
h = 1 - sum_l p_l^2,

    E sum_z |c_z - n_z p|^2 / n_z  =  h [ (G - 1) (1 - rho) + rho (n - sum_z n_z^2 / n) ].

(The likelihood of the counts given their own mean would underrate rho: with two kinds, by half.) Where the rows differ
no more than by chance, s is infinite: one matrix per annotator, and only the class priors differ between kinds. Without
kinds, or with a single one, it is ``dawid-skene``.

Three fits follow each other: plain ``dawid-skene``; kinds with nothing in common, begun there; and the pooled one,
begun there in turn, with phi and s counted against the labels of the second. (Against those of the first, biased as
they are, the kinds look too much alike: on simulated crowds with a strong bias this cost 3 to 4 points of accuracy, and
taking phi and s from the pooled fit again and again 1 to 2.)

When it fails: kinds with few items have priors and matrices of their own to learn from little; a mistake that the whole
crowd makes on one kind cannot be told from a difference of the truth, unless some truths are known there.

The matrices A_m(z) are those of the tutorial on learning from crowds by S. Ibrahim, P. A. Traganitis, X. Fu and
G. B. Giannakis; the pooling and its estimate are crowdwise's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core import em, priors
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.intervals import with_interval
from crowdwise.core.loop import Callback
from crowdwise.core.model import TABLES, Outcome, check_memory
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log, share_interval
from crowdwise.core.parameters import declared
from crowdwise.data import encoding
from crowdwise.data.frames import is_missing
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError, listing
from crowdwise.methods.ds_dawid_skene import ConfusionFamily, DawidSkene, full

MOST_CELLS = 2**27
"""The most cells (annotators x kinds x classes x classes) that a fit takes on: a gigabyte a table, and it holds six."""


# -------------------------------------------------------------------- the maths


def kinds_of(groups: Any, items: npt.NDArray[Any]) -> tuple[Ints, npt.NDArray[Any]]:
    """The code of every item's kind (-1: none given) and the kinds, sorted by name."""
    if isinstance(groups, Mapping):
        # By value, not by hash: a numpy integer and a Python one are the same item.
        values = [groups.get(name) for name in items.tolist()]
    else:
        array = np.asarray(groups, dtype=object) if isinstance(groups, (list, tuple)) else np.asarray(groups)
        if array.shape != (len(items),):
            raise ParameterError(
                f"groups has shape {array.shape}: expected one kind for each of the {len(items)} items, "
                "or a mapping from item to kind."
            )
        values = array.tolist()
    given = {v for v in values if not is_missing(v)}
    names = sorted(given, key=lambda v: (str(type(v)), v))
    code = {name: z for z, name in enumerate(names)}
    return np.array([code.get(v, -1) for v in values], dtype=np.int64), encoding.to_vocabulary(names)


def by_kind(votes: Votes, kind: Ints, G: int, gold: Ints | None, item_prior: Floats | None) -> Part:
    """Votes as those of M G annotators, one for each kind of item, and one more vote per item that names its kind.

    The cell of that vote is the last but G plus the kind's code: what it says in favour of a class is log pi[z, k].
    So the class priors of the kinds are learned like confusion matrices are.
    """
    M, K, N = votes.n_annotators, votes.n_classes, len(votes)
    cell = (votes.annotator.astype(np.int64) * G + kind[votes.item]) * K + votes.label
    ends = votes.indptr[1:]
    cell = np.insert(cell, ends, M * G * K + kind)
    weight = np.empty(0) if votes.weight is None else np.insert(votes.weight, ends, 1.0)
    indptr = votes.indptr + np.arange(N + 1)
    truth = np.empty(0, np.int32) if gold is None else gold
    return Part(indptr, cell, weight, truth, M * G + -(-G // K), K, item_prior)


def between(counts: Floats) -> float:
    """rho, from the counts c[m, z, l, k]: 0 where rows differ between kinds no more than by chance."""
    n = counts.sum(axis=2)  # m, z, k
    total = n.sum(axis=1)
    p = normalise(counts.sum(axis=1), axis=1)  # m, l, k
    inside = np.divide(1.0, n, out=np.zeros_like(n), where=n > 0)
    apart = (((counts - n[:, :, None] * p[:, None]) ** 2).sum(axis=2) * inside).sum(axis=1)  # m, k
    spread = (1.0 - (p * p).sum(axis=1)) * np.divide(
        total, total - 1.0, out=np.zeros_like(total), where=total > 1.0 + 1e-9
    )
    free = np.maximum((n > 1e-9).sum(axis=1) - 1.0, 0.0)
    reach = total - np.divide((n * n).sum(axis=1), total, out=np.zeros_like(total), where=total > 0)
    telling = (free > 0) & (total > 1.0 + 1e-9)
    chance, slope = (spread * free)[telling].sum(), (spread * (reach - free))[telling].sum()
    if slope <= 0.0:
        return 0.0
    return float(np.clip((apart[telling].sum() - chance) / slope, 0.0, 1.0))


@dataclass(frozen=True)
class KindFamily:
    """The maximisation step: a confusion matrix per annotator and kind, a class prior per kind."""

    pseudo: Floats
    """M G x L x K; M x L x K where the kinds are tied."""
    kinds: int
    class_prior: Floats | None
    shared: bool
    tied: bool = False
    """One matrix per annotator: infinite pooling."""
    hard: bool = False

    def maximise(self, stats: Stats) -> Params:
        K, G = stats.counts.shape[1], self.kinds
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
        log_theta = params.log_score[: M * K * (self.kinds if self.tied else 1)].reshape(M, -1, K, K)[:, 0]
        return log_likelihood + float(self.pseudo.ravel() @ log_theta.ravel())


# -------------------------------------------------------------------- the class


@declared
class GroupConditional(DawidSkene):
    """Confusion matrices for every annotator and kind of item, partially pooled over the kinds.

    Without ``groups``, or with a single kind, it is :class:`DawidSkene`, to the last digit.

    Parameters
    ----------
    groups
        The kind of every item: a mapping from item to kind, or N values. ``None``: all of one kind.
    pooling
        How many votes per row an annotator's common matrix counts: a number (0: kinds have nothing in common;
        ``inf``: they do not differ), or ``"learned"``, from how much rows differ between kinds.
    prior
        Further pseudo-counts, as in :class:`DawidSkene`.
    class_prior
        ``"learned"``: one distribution for each kind; ``"shared"``: one for all; ``"uniform"``, or the probability of
        each class.
    start
        Where the plain fit begins, from which the others go on: ``"votes"``, a method of moments
        (``"spectral-ds"``, ``"multispa"``, ``"cnmf"``, ``"symnmf"``, ``"tensor"``), an N x K posterior, or a
        :class:`~crowdwise.Consensus`.
    restarts
        How many further, randomly shaken starts the plain fit tries.
    max_iter, tol
        For each fit: stop after so many passes over the votes, or when a pass gains less than ``tol`` per vote.
    accelerate
        Take guarded SQUAREM leaps once the fit has settled (see :mod:`crowdwise.core.em`).
    ties, random_state
        Equally probable classes: the one with the higher ``"prior"``, then the first; or ``"random"``, seeded.

    Notes
    -----
    A fitted model has ``kinds_`` (G names), ``pooling_`` (s), ``group_confusion_`` (M x G x K x K: annotator, kind,
    truth, label) and ``group_prior_`` (G x K). The table of annotators has ``accuracy(KIND)`` for every kind, with
    intervals; that of items their ``kind``.

    Examples
    --------
    >>> import crowdwise as cw
    >>> import numpy as np
    >>> rng, z = np.random.default_rng(0), np.arange(600) % 2
    >>> truth = rng.integers(0, 2, 600)
    >>> harsh = rng.random((600, 9)) < 0.4  # on items of kind 1, a "no" often becomes a "yes"
    >>> said = np.where((z[:, None] == 1) & (truth[:, None] == 0) & harsh, 1, truth[:, None])
    >>> votes = cw.Votes.from_dense(np.where(rng.random((600, 9)) < 0.1, 1 - said, said))
    >>> model = cw.GroupConditional(groups=dict(enumerate(z.tolist()))).fit(votes)
    >>> model.group_confusion_[:, :, 0, 1].mean(axis=0).round(1).tolist()
    [0.1, 0.4]
    """

    key = "group-conditional"
    streams = False

    groups: Any = None
    pooling: Any = "learned"
    history: Any = field(default=None, init=False)

    kinds_: npt.NDArray[Any] = field(init=False)
    pooling_: float = field(init=False)
    group_confusion_: Floats = field(init=False)
    group_prior_: Floats = field(init=False)

    def _check_together(self) -> None:
        super()._check_together()
        s = self.pooling
        if s != "learned" and not (isinstance(s, (int, float)) and not isinstance(s, bool) and s >= 0.0):
            raise ParameterError(f"pooling={s!r}: expected 'learned', or a number of votes of at least 0.")
        if self.groups is not None and (isinstance(self.groups, str) or not hasattr(self.groups, "__len__")):
            raise ParameterError(
                f"groups={self.groups!r}: expected a mapping from item to kind, or one kind for each item."
            )

    def _family(self, part: Part, start: Stats, votes: Votes, gold: Ints | None) -> ConfusionFamily:
        pseudo = priors.pseudo_counts(self.prior, None, votes, gold)
        return ConfusionFamily(full, pseudo, self._class_prior(votes))

    def _class_prior(self, votes: Votes) -> Floats | None:
        shared = isinstance(self.class_prior, str) and self.class_prior == "shared"
        return priors.class_prior_counts("learned" if shared else self.class_prior, votes)

    def _kinds(self, votes: Votes) -> tuple[Ints, npt.NDArray[Any]]:
        if self.groups is None:
            return np.zeros(len(votes), dtype=np.int64), np.array(["all"], dtype=object)
        kind, names = kinds_of(self.groups, votes.items)
        if (kind < 0).any():
            raise ParameterError(
                f"groups gives no kind for {int((kind < 0).sum())} of the {len(votes)} items: "
                f"{listing(votes.items[kind < 0])}. Give them one, if only 'unknown'."
            )
        cells = votes.n_annotators * len(names) * votes.n_classes**2
        if cells > MOST_CELLS:
            raise InputError(
                f"{votes.n_annotators:,} annotators x {len(names):,} kinds x {votes.n_classes:,}² classes need "
                f"{TABLES * 8 * cells / 2**30:,.0f} GB of confusion matrices. Merge kinds or rare classes."
            )
        return kind, names

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        check_memory(votes)
        kind, names = self._kinds(votes)
        plain = super()._fit(votes, gold, item_prior, callback)
        M, K, G = votes.n_annotators, votes.n_classes, len(names)
        self.kinds_, self.pooling_ = names, np.inf
        self.group_prior_ = plain.prior[None]
        self.group_confusion_ = self._confusion(self.params_, K)[:, None]
        if G == 1:
            return plain
        part = by_kind(votes, kind, G, gold, item_prior)
        b = np.broadcast_to(priors.pseudo_counts(self.prior, None, votes, gold), (M, K, K))
        shared = isinstance(self.class_prior, str) and self.class_prior == "shared"
        fixed = self._class_prior(votes)
        apart = KindFamily(np.repeat(b, G, axis=0), G, fixed, shared)
        climb = self._run_em(part, apart, em.statistics(part, plain.posterior), callback, 0)
        passes, s = plain.iterations + climb.iterations, 0.0
        if self.pooling != 0.0:
            stats, q = em.expect(part, climb.params, posterior=True)
            s = self._strength(votes, kind, q, G)
            common = normalise(stats.counts[: M * G * K].reshape(M, G, K, K).sum(axis=1) + b, axis=1)
            tied = not np.isfinite(s)
            pseudo = b if tied else np.repeat(s * common + b, G, axis=0)
            climb = self._run_em(part, KindFamily(pseudo, G, fixed, shared, tied), stats, callback, 0)
            passes += climb.iterations
        stats, q = em.expect(part, climb.params, posterior=True)
        cells = M * G * K
        theta = np.exp(climb.params.log_score[:cells].reshape(M, G, K, K)).transpose(0, 1, 3, 2)
        self.pooling_, self.group_confusion_ = s, np.asarray(theta / theta.sum(axis=3, keepdims=True))
        self.group_prior_ = np.exp(climb.params.log_score[cells : cells + G])
        counts = stats.counts[:cells].reshape(M, G, K, K)
        # What is kept for votes on items of no known kind: the annotator's matrix over all of them.
        overall = normalise(counts.sum(axis=1) + b, axis=1)
        share = np.bincount(kind, minlength=G) / len(kind)
        self.params_ = Params(safe_log(overall).reshape(M * K, K), safe_log(share @ self.group_prior_)[None])
        self.stats_ = Stats(counts.sum(axis=1).reshape(M * K, K), stats.mass, stats.log_likelihood)
        return Outcome(
            posterior=q,
            prior=share @ self.group_prior_,
            confusion=overall.transpose(0, 2, 1).copy(),
            log_likelihood=stats.log_likelihood,
            trace=climb.trace,
            iterations=passes,
            converged=climb.converged,
            annotator_columns=self._accuracies(votes, kind, q, names),
            item_columns={"kind": names[kind].astype(str)},
        )

    def _strength(self, votes: Votes, kind: Ints, q: Floats, G: int) -> float:
        if self.pooling != "learned":
            return float(self.pooling)
        M, K = votes.n_annotators, votes.n_classes
        labels = q.argmax(axis=1)[votes.item]
        where = ((votes.annotator.astype(np.int64) * G + kind[votes.item]) * K + votes.label) * K + labels
        counts = np.bincount(where, weights=votes.weight, minlength=M * G * K * K).astype(np.float64)
        rho = between(counts.reshape(M, G, K, K))
        return float((1.0 - rho) / rho) if rho > 0.0 else np.inf

    def _accuracies(self, votes: Votes, kind: Ints, q: Floats, names: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        columns: dict[str, npt.NDArray[Any]] = {}
        p, M = q[votes.item, votes.label], votes.n_annotators
        for z, name in enumerate(names.tolist()):
            mine = kind[votes.item] == z
            right, total, unsure = (
                np.bincount(votes.annotator[mine], weights=votes.weights[mine] * x[mine], minlength=M).astype(
                    np.float64
                )
                for x in (p, np.ones_like(p), p * (1.0 - p))
            )
            low, high = share_interval(right, total, unsure)
            share = np.divide(right, total, out=np.full(M, 0.5), where=total > 0)
            columns |= with_interval(f"accuracy({name})", share, low, high)
        return columns

    def _predict(self, votes: Votes) -> Floats:
        G, K = len(self.kinds_), votes.n_classes
        q = super()._predict(votes)  # by the annotators' matrices over all kinds
        if G == 1 or self.groups is None:
            return q
        names = self.consensus_.item_names
        if isinstance(self.groups, Mapping):
            wanted, given = kinds_of(self.groups, votes.items)
            place = np.append(encoding.locate(given, self.kinds_), -1)[wanted]
        else:
            old, _ = kinds_of(self.groups, names)
            place = np.append(old, -1)[encoding.locate(votes.items, names)]
        known = np.flatnonzero(place >= 0)
        if len(known) == 0:
            return q
        some = votes[known]
        theta = self.group_confusion_
        strangers = votes.n_annotators - len(theta)
        if strangers:  # an annotator never seen answers like the crowd as a whole, on either kind
            pooled = self.stats_.table().sum(axis=0) + 1.0 / K
            crowd = (pooled / pooled.sum(axis=0)).T
            theta = np.concatenate([theta, np.tile(crowd, (strangers, G, 1, 1))])
        score = np.zeros(((votes.n_annotators * G + -(-G // K)) * K, K))
        cells = votes.n_annotators * G * K
        score[:cells] = safe_log(theta.transpose(0, 1, 3, 2)).reshape(cells, K)
        score[cells : cells + G] = safe_log(self.group_prior_)
        part = by_kind(some, place[known], G, None, None)
        _, inside = em.expect(part, Params(score, np.zeros((1, K))), posterior=True)
        q = q.copy()
        q[known] = inside
        return q
