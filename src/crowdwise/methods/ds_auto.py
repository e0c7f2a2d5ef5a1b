"""The default method: Dawid-Skene held to what the labels mean, with a prior that is learned twice.

``auto`` is ``anchored`` with some changes.

**The prior.** Annotators are shrunk towards one ability each, on top of how hard the crowd finds a class
(``prior="accuracy"``, :mod:`crowdwise.core.shrinkage`), not towards half the crowd's matrix and half a one-coin matrix.

**Twice.** ``anchored`` learns its prior from the majority's labels, which are what the fit is there to improve on. So
the fit is made once more, from where it ended, with the prior learned from its own labels. The second prior is the
better informed and the less independent of the fit, so the answer is the average of both matrices,

    theta[m, k, l] = ( theta_1[m, k, l] + theta_2[m, k, l] ) / 2        and the same for the class prior,

a model of the same kind: posterior, prediction and confusion come from it.

Items with a single vote do not teach what annotators do: nobody confirms or denies what is said there. They get their
label from what the others taught about its annotator. They do say how common the classes are: the few items with
several votes or a gold label may all be of one class. With the matrices as they are, the class prior of the answer
maximises J (:mod:`crowdwise.methods.ds_anchored`) over all items, with a last step without the anchor,

    pi[k] ∝ 1/K + (1 - a) sum_n q[n, k] + a sum_n v[n, k]     until it converges, then     pi[k] ∝ 1/K + sum_n q[n, k].

**Single votes alone.** Where no item has two votes or a gold label, all votes are right by their own labels, and the
likelihood is flat: an annotator with one vote may as well be always right as always wrong. With next to no prior EM
drifts along it, away from votes that nothing speaks against. The prior of the strength
(:mod:`crowdwise.core.shrinkage`) keeps matrices near the crowd's, so that labels are the votes. Their probability is
below 1, by less the more votes there are, and it is no estimate: only gold labels show how often such votes are right.

A prior of each item, from inputs say, is a second witness of single votes. A prior learned from votes that are all
right by their own labels would outweigh it, so the first round has next to none (that of ``dawid-skene``), and the
second learns one from the labels of the first.

**Few items.** A class prior of few items is taken for exact by the posterior, and votes that all agree make the other
classes impossible: three equal votes on one item had the probability 1. So one item more, which is of each class with
probability 1/K, counts in pi (and (1/K) sum_k log pi_k is a part of J). Among a hundred items it is not felt.

**Gold.** Gold labels calibrate the posterior and take a shared bias of the crowd out of it
(:mod:`crowdwise.core.gold_calibration`); labels go by that. Where they show that the crowd is worse than chance, the
anchor is dropped, and votes mean what the gold labels say they mean.

**Dependence.** Its posterior allows for votes that err together (:mod:`crowdwise.core.dependence`, on by default), so
that a probability of 0.9 is right about nine times in ten on real crowds. Without gold no label changes by it.

The notes say on how many items the labels are not the majority's, and how many of those are expected to be right.

With so many classes that tables over pairs of them are out of proportion (``MAX_CELLS``),
:mod:`crowdwise.core.sparse_coin` takes their place, and a note says so.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core import em, priors
from crowdwise.core.constraints import Count, NonNegative
from crowdwise.core.dependence import Setting
from crowdwise.core.em import EMFit, Engine, Family, Stats
from crowdwise.core.gold_calibration import without_own
from crowdwise.core.limits import check_memory
from crowdwise.core.model import Callback, Floats, Ints, Outcome, Params, Part, Rounds, Votes, declared
from crowdwise.core.numerics import binomial_tail, safe_log, winners
from crowdwise.core.priors import Prior
from crowdwise.core.shrinkage import learned_prior
from crowdwise.core.sparse_coin import SparseCoin
from crowdwise.core.starts import shares
from crowdwise.core.vote_parts import VotePart, VoteParts, start_statistics
from crowdwise.core.vote_sums import outvoted, single_annotator_items
from crowdwise.errors import SizeError
from crowdwise.methods.ds_anchored import Anchored, AnchoredFamily
from crowdwise.methods.ds_dawid_skene import ConfusionFamily, DawidSkene

MAX_CELLS, MANY_CLASSES = 2**27, 100
"""Cells of confusion matrices (annotators x classes x classes) from which on there are none; a quarter of it with many
classes, where most cells are of pairs that never occur."""

PRIOR_TOL = 1e-3
"""The class prior of all items has converged where no probability moves by more."""
GOLD_HELPS, GOLD_ASKED = 0.1, 50
"""Where labels and majority differ on such a share of the items, the notes advise so many gold labels."""
FREE = "By the gold labels most annotators are mostly wrong: their votes are read by gold labels alone."
WRONG_CROWD = 0.001
"""How unlikely it must be that a crowd at chance is wrong on as many gold items."""


@declared
class Auto(Anchored):
    """Dawid-Skene anchored to the votes, its prior learned twice, its probabilities corrected for dependent votes.

    ``consensus.notes`` says by how much they are corrected and why, and where the labels are not the majority's.

    Parameters
    ----------
    prior
        As in ``dawid-skene``, with another default. A named prior is learned twice; any other is used once.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(600, n_annotators=20, n_classes=3, votes_per_item=5, random_state=0)
    >>> consensus = cw.aggregate(crowd.votes, "auto")
    >>> consensus.score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    >>> consensus.dependence.source, bool(consensus.dependence.rho < 0.1)
    ('votes', True)
    """

    key = "auto"
    reads_backwards = True
    single_votes = "doubted"
    _quick = True
    _even_items = 1.0

    prior: Prior = "accuracy"
    dependence: Setting = "auto"
    max_iter: Count = 200
    tol: NonNegative = 1e-6
    _sparse: SparseCoin | None = field(init=False)
    _taught: tuple[Stats, ConfusionFamily] = field(init=False)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        if self._too_many_classes(votes, item_prior):
            return self._fit_sparse(votes, gold, callback)
        self._sparse = None
        check_memory(votes)
        everything, all_votes, known = Part.of(votes, gold, item_prior), votes, gold
        voted, teaches = np.diff(votes.indptr) > 0, confirmed(votes, gold)
        several, singles = np.flatnonzero(teaches), bool((voted & ~teaches).any())
        if 0 < len(several) < len(votes):
            votes = votes[several]
            gold = None if gold is None else gold[several]
            item_prior = None if item_prior is None else item_prior[several]
        part = Part.of(votes, gold, item_prior)
        family, fit = self._best_fit(part, votes, gold, callback)
        assert isinstance(family, AnchoredFamily) and isinstance(family.free, ConfusionFamily)
        self.anchored_params_ = fit.params
        stats, q = em.expect(part, fit.params, posterior=True)
        params = family.free.maximise(stats)
        labels = em.statistics(part, winners(q))
        if isinstance(self.prior, str):
            again = self._relearned(labels, votes, family)
            params, fit = self._second(part, again, stats, params, fit, callback)
        by_votes = None
        if singles and len(several):
            at = np.flatnonzero(voted)
            kept = (None if of_items is None else of_items[at] for of_items in (known, everything.item_prior))
            every = Part.of(all_votes[at], *kept)
            at_votes = em.statistics(every, shares(all_votes[at], every.truth if known is not None else None))
            params = self._with_all_items(every, at_votes.mass, params, family)
        if known is not None and (known >= 0).any():
            at, before = np.flatnonzero(known >= 0), everything.item_prior
            prior = None if before is None else before[at]
            others = self._without(_gold_counts(all_votes[at], known[at]), labels, votes, family)
            by_votes = _by_votes(all_votes[at], known[at], stats, others, prior)
            if item_prior is None and contradicted(by_votes, known[at]):
                return self._fit_free(everything, all_votes, known, callback)
        return self._outcome(everything, fit, params, gold_by_votes=by_votes)

    def _family(self, part: Part, start: Stats, votes: Votes, gold: Ints | None) -> Family:
        family = super()._family(part, start, votes, gold)
        if part.item_prior is None or not isinstance(self.prior, str) or confirmed(votes, gold).any():
            return family
        # Single votes are all right by their own labels: a prior learned from these would outweigh that of the items.
        assert isinstance(family, AnchoredFamily) and isinstance(family.free, ConfusionFamily)
        pseudo = priors.pseudo_counts(DawidSkene.prior, self.history, votes)
        return AnchoredFamily(replace(family.free, pseudo=pseudo), family.anchor)

    def _fit_free(self, part: Part, votes: Votes, gold: Ints, callback: Callback | None) -> Outcome:
        """Dawid-Skene from the gold labels, without the anchor: for a crowd that is mostly wrong."""
        free = self._free()
        found = free.fit(votes, gold, callback=callback).consensus_
        fit = EMFit(free.params_, found.trace, found.iterations, found.converged)
        return self._outcome(part, fit, notes=[FREE])

    def _free(self) -> DawidSkene:
        return DawidSkene(class_prior=self.class_prior, max_iter=self.max_iter, tol=self.tol)

    def _with_all_items(self, engine: Engine, at_votes: Floats, params: Params, family: AnchoredFamily) -> Params:
        """The parameters with the class prior of all items that were voted on; ``at_votes`` is the mass of the classes
        by vote shares."""
        assert isinstance(family.free, ConfusionFamily)
        fixed, even, a = family.free.class_prior, family.free.even_items, family.anchor.share
        found = em.log_class_prior(at_votes, fixed, even)
        for _ in range(self.max_iter if fixed is None else 0):
            mass = engine.expect(Params(params.log_score, found)).mass
            before, found = found, em.log_class_prior((1.0 - a) * mass + a * at_votes, fixed, even)
            if np.abs(np.exp(found) - np.exp(before)).max() < PRIOR_TOL:
                break
        mass = engine.expect(Params(params.log_score, found)).mass
        return Params(params.log_score, em.log_class_prior(mass, fixed, even))

    def _second(
        self, part: Engine, again: AnchoredFamily, start: Stats, params: Params, first: EMFit,
        callback: Callback | None,
    ) -> tuple[Params, EMFit]:  # fmt: skip
        """The fit under the prior that was learned again, and the average of both."""
        second = self._run_em(part, again, start, callback, self.restarts + 1)
        params = average(params, self._finish(part, again, second.params))
        passes, converged = first.iterations + second.iterations, first.converged and second.converged
        return params, EMFit(second.params, second.trace, passes, converged)

    def _fit_in_parts(self, parts: VoteParts, callback: Callback | None) -> dict[str, Any]:
        found = super()._fit_in_parts(parts, callback)
        stats, others = self._taught

        def by_votes(part: VotePart) -> Floats:
            assert part.gold is not None
            return _by_votes(part.votes, part.gold, stats, others)

        known = parts.gold_items()
        if known:
            q, gold = (np.concatenate(rows) for rows in zip(*((by_votes(p), p.gold) for p in known), strict=True))
            if contradicted(q, gold):
                free = self._free()
                found = free._fit_in_parts(parts, callback)
                self.params_ = free.params_
                return found | {"notes": [FREE]}
        return found | {"gold_by_votes": by_votes}

    def _run_in_parts(self, parts: VoteParts, callback: Callback | None) -> tuple[Params, EMFit]:
        if self._too_many_classes(parts.names, None):
            raise SizeError(
                f"Confusion matrices of {parts.names.n_annotators:,} annotators over {parts.names.n_classes:,} classes "
                "are out of proportion for votes in parts. Use majority."
            )
        self._sparse = None
        several = parts.where(lambda part: confirmed(part.votes, part.gold))
        several = several if several.n_items else parts
        family = self._family_of(several)
        assert isinstance(family, AnchoredFamily) and isinstance(family.free, ConfusionFamily)
        fit = self._run_em(several, family, start_statistics(several), callback)
        self.anchored_params_ = fit.params
        stats = several.expect(fit.params)
        params = family.free.maximise(stats)
        first, others = fit.params, family.free
        if isinstance(self.prior, str):
            labels = several.statistics(lambda part: winners(part.posterior(first)))
            again = self._relearned(labels, parts.names, family)
            params, fit = self._second(several, again, stats, params, fit, callback)
            gold = [_gold_counts(part.votes, part.gold) for part in parts.gold_items() if part.gold is not None]
            others = self._without(np.sum(gold, axis=0), labels, parts.names, family) if gold else others
        voted = parts.where(_voted)
        if several.n_items < voted.n_items:
            at_votes = voted.statistics(lambda part: shares(part.votes, part.gold))
            params = self._with_all_items(voted, at_votes.mass, params, family)
        self._taught = stats, others
        return params, fit

    def _too_many_classes(self, votes: Votes, item_prior: Floats | None) -> bool:
        """Whether tables over pairs of classes are out of proportion, and nothing was asked for that needs them."""
        plain = item_prior is None and self.history is None and isinstance(self.class_prior, str)
        K, cells = votes.n_classes, votes.n_annotators * votes.n_classes**2
        return plain and isinstance(self.prior, str) and cells > (MAX_CELLS // 4 if K >= MANY_CLASSES else MAX_CELLS)

    def _fit_sparse(self, votes: Votes, gold: Ints | None, callback: Callback | None) -> Outcome:
        """One accuracy per annotator, in the memory of the votes."""
        rounds = Rounds(self.max_iter, votes.n_votes, callback)
        self._sparse = SparseCoin.fit(votes, gold, rounds, float(self.tol))
        M, K = votes.n_annotators, votes.n_classes
        note = (
            f"Took one accuracy per annotator, and the labels that an item got for its classes: confusion matrices of "
            f"{M:,} annotators over {K:,} classes would take {8 * M * K * K / 2**30:,.0f} GB."
        )
        return Outcome(
            posterior=self._sparse.posterior(gold), prior=self._sparse.prior(), notes=[note], **rounds.outcome
        )

    def _predict(self, votes: Votes) -> Floats:
        if self._sparse is not None:
            return SparseCoin.predict(votes, self._sparse.skill)
        return super()._predict(votes)

    def _relearned(self, labels: Stats, votes: Votes, family: AnchoredFamily) -> AnchoredFamily:
        """The family with its prior learned from the (statistics of the) labels of a fit, not of the majority's."""
        assert isinstance(family.free, ConfusionFamily)
        counts = labels.table()
        past = 0.0 if self.history is None else priors.history_counts(self.history, votes)
        pseudo = learned_prior(counts + past, self.prior, quick=True) + past
        return AnchoredFamily(replace(family.free, pseudo=pseudo), family.anchor)

    def _without(self, gold: Floats, labels: Stats, votes: Votes, family: AnchoredFamily) -> ConfusionFamily:
        """The family with the prior that items without gold labels teach; ``gold``: the counts of the others."""
        assert isinstance(family.free, ConfusionFamily)
        if not isinstance(self.prior, str):
            return family.free
        rest = self._relearned(Stats(np.maximum(labels.counts - gold, 0.0), labels.mass), votes, family).free
        assert isinstance(rest, ConfusionFamily)
        return rest

    def _remarks(self, votes: Votes, posterior: Floats, labels: npt.NDArray[np.int32], gold: Ints | None) -> list[str]:
        differs, favourite = outvoted(votes, labels)
        if not len(differs):
            return ["The labels are the majority's on every item."]
        own = posterior[differs, labels[differs]].mean()
        other = posterior[differs, favourite].mean()
        share = len(differs) / len(votes)
        said = (
            f"The labels differ from the majority's on {len(differs):,} of {len(votes):,} items ({share:.1%}); "
            f"{own:.0%} of these are expected to be right, and {other:.0%} of the majority's."
        )
        if gold is None and share >= GOLD_HELPS and len(votes) >= 2 * GOLD_ASKED:
            said += f" {GOLD_ASKED} gold labels would show which to go by (crowdwise gold names the items)."
        return [said]


def confirmed(votes: Votes, gold: Ints | None) -> npt.NDArray[np.bool_]:
    """Which items have something to compare a vote with: another vote, or a gold label."""
    voted = np.diff(votes.indptr) > 0
    several = voted & ~single_annotator_items(votes)
    return np.asarray(several if gold is None else several | (voted & (gold >= 0)))


def contradicted(q: Floats, gold: Ints) -> bool:
    """Whether the votes on gold items point to their classes less often than chance would (one time in a thousand)."""
    wrong, chance = (q.argmax(axis=1) != gold).sum(), 1.0 - 1.0 / q.shape[1]
    return bool(binomial_tail(wrong, len(gold), chance) < WRONG_CROWD)


def _gold_counts(votes: Votes, gold: Ints) -> Floats:
    """Counts of the votes on gold items against their gold labels, as in :class:`crowdwise.core.em.Stats`."""
    return em.statistics(Part.of(votes), np.eye(votes.n_classes)[gold]).counts


def _voted(part: VotePart) -> npt.NDArray[np.bool_]:
    return np.asarray(np.diff(part.votes.indptr) > 0)


def _by_votes(
    votes: Votes, gold: Ints, stats: Stats, family: ConfusionFamily, log_prior: Floats | None = None
) -> Floats:
    """The posterior of gold items by their votes and what the other items teach."""
    table = stats.table() + family.pseudo
    return without_own(votes, gold, family.maximise(stats), table.sum(axis=1), family.pseudo, log_prior=log_prior)


def average(a: Params, b: Params) -> Params:
    """The mean of the matrices, and of the class priors."""
    return Params(
        safe_log(0.5 * (np.exp(a.log_score) + np.exp(b.log_score))),
        safe_log(0.5 * (np.exp(a.log_prior) + np.exp(b.log_prior))),
    )
