"""The default method: Dawid-Skene held to what the labels mean, with a prior that is learned twice; or a plainer model
where the votes show that matrices of confusions do not fit. docs/methods.md says what is seen from the votes, and why.

===================  =============================================================================================
crowd                model
===================  =============================================================================================
rules                votes, each by how far others agree with the rule (:func:`crowdwise.core.crowd_kind.weighed`)
a panel              annotators know or guess (``mace``), classes equally common; or, where the bound is higher by
                     more than (K - 1) / 2 log N (the Bayesian information criterion), as common as vote shares say
options of its own   one accuracy per annotator (:mod:`crowdwise.core.sparse_coin`), as where tables over pairs of
                     classes are out of proportion (``MAX_CELLS``)
people               ``anchored`` with the changes below
===================  =============================================================================================

**Twice.** The fit is made once more, from where it ended, with the prior learned from its own labels. The anchor is .8;
``WITH_INPUTS`` where items have a prior of their own, which is a second witness.

**Single votes** do not teach what annotators do, but how common the classes are. With the matrices as they are, the
class prior maximises J (:mod:`crowdwise.methods.ds_dawid_skene`) over all items, with a last step without the anchor,

    pi[k] ∝ 1/K + (1 - a) sum_n q[n, k] + a sum_n v[n, k]     until it converges, then     pi[k] ∝ 1/K + sum_n q[n, k].

(1/K: one item more, of each class alike.) Where no item has two votes or a gold label all votes are right by their own
labels; the prior of the strength (:mod:`crowdwise.core.shrinkage`) keeps matrices near the crowd's, so that labels are
the votes. A prior learned from such votes would outweigh that of the items, so with these the first round has that of
``dawid-skene``.

**Gold** calibrates the posterior (:mod:`crowdwise.core.gold_regression`); the fit itself is made without, but where
most items have one vote. Where it shows that the crowd is worse than chance, the anchor is dropped. **Rings**
(:mod:`crowdwise.core.collusion`) are looked for first and count as one vote, but for rules and options. The posterior
allows for votes that err together (:mod:`crowdwise.core.dependence`). Notes say what was seen.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.core import em, priors
from crowdwise.core.collusion import Ring, discounted, find_voices
from crowdwise.core.constraints import Bounds, Count, NonNegative, Share
from crowdwise.core.crowd_kind import CrowdKind, agreement, one_label, own_options, weighed
from crowdwise.core.dependence import Setting
from crowdwise.core.em import EMFit, Engine, Stats
from crowdwise.core.gold_regression import without_own
from crowdwise.core.model import Callback, Floats, Ints, Outcome, Params, Rounds, Votes, declared
from crowdwise.core.numerics import binomial_tail, normalise, winners
from crowdwise.core.priors import Prior
from crowdwise.core.shrinkage import learned_prior
from crowdwise.core.sparse_coin import SparseCoin
from crowdwise.core.starts import shares
from crowdwise.core.vote_parts import Posterior, VotePart, VoteParts
from crowdwise.core.vote_sums import confirmed, outvoted
from crowdwise.errors import ParameterError, SizeError, listing
from crowdwise.methods.bayes_mace import MACE
from crowdwise.methods.ds_dawid_skene import Anchored, AnchoredFamily, DawidSkene

MAX_CELLS, MANY_CLASSES = 2**27, 100
"""Cells of confusion matrices (annotators x classes x classes) from which on there are none; a quarter of it with many
classes, where most cells are of pairs that never occur."""

WITH_INPUTS = 0.5
"""The largest anchor where items have a prior of their own, which vote shares would outweigh."""
OF_MATRICES = ("prior", "anchor", "history", "class_prior", "start", "restarts")
MOST_SAMPLED = 2_000_000
"""Votes that rings are looked for in."""
PRIOR_TOL = 1e-3
"""The class prior of all items has converged where no probability moves by more."""
GOLD_HELPS, GOLD_ASKED = 0.1, 50
"""Where labels and majority differ on such a share of the items, the notes advise so many gold labels."""
FREE = "By the gold labels most annotators are mostly wrong: their votes are read by gold labels alone."
SEEN: dict[CrowdKind, str] = {
    "rules": "Annotators say one class or nothing, as rules do: a vote counts by how far others agree with the rule.",
    "panel": "Nearly everybody answered nearly every item, as panels do: each was taken to know the class or to guess.",
}
LEFT = (
    "One label on nearly every item: {}. Where one other rule contradicts that, votes do not show which of the two is "
    "right: compare the labels without it, or check some of these items by hand."
)
MOST = 0.5
"""The share of items with several votes under which a fit needs gold labels."""
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
    abstains
        Annotators are rules, or models that may decline: silence is their choice. Without it, this is looked for.
    exchangeable
        Each item has options of its own, as in a quiz: labels mean nothing across items. A number says how many
        options an item has; a column ``n_options`` of the votes says it item by item. Without either, this is looked
        for where labels are as many as items.
    collusion
        ``"discount"``: a ring of annotators who agree with each other and not with the rest counts as one vote, and
        so do five or more who always give the same answers; annotators who answered nearly every item and err together,
        as similar models do, count less.
        ``"ignore"``: not looked for. Of more than two million votes a sample of the items is looked at; a stream is
        not.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(600, n_annotators=20, n_classes=3, votes_per_item=5, random_state=0)
    >>> consensus = cw.aggregate(crowd.votes, "auto")
    >>> consensus.score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    >>> consensus.dependence.source, consensus.dependence.rho
    ('crowds', 0.35)
    """

    key = "auto"
    reads_backwards = True
    single_votes = "doubted"
    judges_annotators = True
    _quick = True
    _even_items = 1.0

    prior: Prior = "accuracy"
    anchor: Share = 0.8
    dependence: Setting = "auto"
    max_iter: Count = 200
    tol: NonNegative = 1e-6
    abstains: bool = False
    exchangeable: bool | Annotated[int, Bounds(minimum=2)] = False
    collusion: Literal["discount", "ignore"] = "discount"
    rings_: list[Ring] = field(init=False, default_factory=list)
    _crowd: CrowdKind = field(init=False)
    _sparse: SparseCoin | None = field(init=False)

    def _weighed(self, votes: Votes, item_prior: Floats | None) -> tuple[Votes, list[str]]:
        self.rings_ = []
        if self._options(votes, item_prior) is not None:
            return votes, []
        parts, notes = self._weighed_parts(VoteParts.whole(votes, item_prior=item_prior))
        return parts.only.votes, notes

    def _weighed_parts(self, parts: VoteParts) -> tuple[VoteParts, list[str]]:
        self.rings_ = []
        if self.collusion == "ignore" or self._too_many_classes(parts.names, parts.has_item_prior):
            return parts, []
        self._crowd = self._kind(parts.kind)
        self.rings_ = find_voices(parts.sample(MOST_SAMPLED)) if self._crowd != "rules" else []
        if not self.rings_:
            return parts, []
        return parts.reweighed(partial(discounted, rings=self.rings_)), [ring_note(r, parts.names) for r in self.rings_]

    def _discounted(self, votes: Votes) -> Votes:
        return discounted(votes, self.rings_) if self.rings_ else votes

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        options = self._options(votes, item_prior)
        if options is not None or self._too_many_classes(votes, item_prior is not None):
            return self._fit_sparse(votes, gold, callback, options)
        return super()._fit(votes, gold, item_prior, callback)

    def _run(self, parts: VoteParts, callback: Callback | None) -> tuple[Params, EMFit, dict[str, Any]]:
        M, K = parts.names.n_annotators, parts.names.n_classes
        if self._too_many_classes(parts.names, parts.has_item_prior):
            raise SizeError(
                f"Confusion matrices of {M:,} annotators over {K:,} classes are out of proportion for votes in parts. "
                "Use majority."
            )
        self._sparse = None
        kind = self._crowd if self.rings_ else self._kind(parts.kind)  # members of a ring are annotators
        known, people = parts.gold_items(), kind == "people"
        teach = people and parts.agreeing[0] < MOST * parts.n_items  # single votes say nothing by themselves
        alone = parts.without_gold() if known and not teach else parts
        fitted = self._people(alone, callback) if people else self._plainer(kind, alone, callback)
        params, fit, others, by_votes = fitted
        if known and not parts.has_item_prior and contradicted(known, by_votes):  # most are wrong: gold, and no anchor
            free = DawidSkene(class_prior=self.class_prior, max_iter=self.max_iter, tol=self.tol)
            params, fit, _ = free._run(parts, callback)
            return params, fit, {"notes": [FREE]}
        return params, fit, others | {"kind": kind, "gold_by_votes": by_votes if known else None}

    def _people(self, parts: VoteParts, callback: Callback | None) -> tuple[Params, EMFit, dict[str, Any], Posterior]:
        """The parameters for people, how the fit went, what else is known, and the posterior of gold items that their
        labels taught nothing of."""
        several = parts.where(lambda part: confirmed(part.votes, part.gold))
        several = several if several.n_items else parts
        family, fit = self._best_fit(several, callback)
        assert isinstance(family, AnchoredFamily)
        self.anchored_params_ = first = fit.params
        twice, K = isinstance(self.prior, str), parts.names.n_classes
        labels = several.statistics(lambda part: winners(part.posterior(first))) if twice else None
        stats, others = several.expect(first), family.free
        params = others.maximise(stats)
        if labels is not None:
            again = self._relearned(labels, parts.names, family)
            second = self._run_em(several, again, stats, callback, self.restarts + 1)
            passes, converged = fit.iterations + second.iterations, fit.converged and second.converged
            fit = replace(second, iterations=passes, converged=converged)
            params = self._finish(several, again, second.params)
            gold = [part.statistics(lambda part: np.eye(K)[part.gold]).counts for part in parts.gold_items()]
            if gold:  # gold labels do not teach the prior by which gold items are judged
                rest = Stats(np.maximum(labels.counts - np.sum(gold, axis=0), 0.0), labels.mass)
                others = self._relearned(rest, parts.names, family).free
        voted = parts.where(lambda part: np.diff(part.votes.indptr) > 0)
        if several.n_items < voted.n_items:
            at_votes = voted.statistics(lambda part: shares(part.votes, part.gold))
            params = self._with_all_items(voted, at_votes.mass, params, family)

        def by_votes(part: VotePart) -> Floats:
            assert part.gold is not None
            table = stats.table() + others.pseudo
            own = others.maximise(stats), table.sum(axis=1), others.pseudo
            return without_own(part.votes, part.gold, *own, log_prior=part.item_prior)

        return params, fit, {}, by_votes if parts.sizes[2] else partial(without_gold, params=params)

    def _kind(self, seen: CrowdKind) -> CrowdKind:
        """The kind of the crowd; people where something was asked for that only confusion matrices can use."""
        if self.abstains:
            return "rules"
        return "people" if self._asked() else seen

    def _asked(self) -> list[str]:
        """The parameters other than their default that speak of confusion matrices or of how they are fitted."""
        values = ((name, getattr(self, name), getattr(type(self), name)) for name in OF_MATRICES)
        return [name for name, x, default in values if not (isinstance(x, type(default)) and x == default)]

    def _check_together(self) -> None:
        super()._check_together()
        plainer = [name for name in ("abstains", "exchangeable") if getattr(self, name)]
        if plainer and (len(plainer) > 1 or self._asked()):
            both = ", ".join([*plainer, *self._asked()])
            raise ParameterError(
                f"{both} do not go together: with {plainer[0]} there are no matrices. Give one of them."
            )

    def check_in_parts(self) -> None:
        super().check_in_parts()
        if self.exchangeable:
            raise ParameterError("exchangeable needs all votes at once: leave it out, or fit votes that are in memory.")

    def _plainer(
        self, kind: CrowdKind, parts: VoteParts, callback: Callback | None
    ) -> tuple[Params, EMFit, dict[str, Any], Posterior]:
        """As :meth:`_people`, for rules or a panel."""
        notes = [SEEN[kind]]
        if kind == "panel":
            mass = parts.statistics(lambda part: shares(part.votes, part.gold)).mass
            voted = np.exp(em.log_class_prior(mass, None, self._even_items))[0]
            knows = partial(MACE, max_iter=self.max_iter, tol=0.1 * self.tol, restarts=0)
            fits = [
                knows(class_prior=prior, strategy_prior=1.0)._best_fit(parts, callback)[1]
                for prior in ("uniform", voted)
            ]
            fit = em.best_fit(fits, 0.5 * (len(mass) - 1) * np.log(max(mass.sum(), 1.0)))
            if fit is fits[1]:
                fit = knows(class_prior=voted)._best_fit(parts, callback)[1]
        else:
            names, K = parts.names, parts.names.n_classes
            agreed = parts.total(lambda part: agreement(part.votes), np.zeros((2, names.n_annotators)))
            fit = EMFit(weighed(agreed, parts.n_votes, K), np.empty(0), 1, True)
            use, n_items = parts.crowd_sums[:-2].reshape(-1, K), parts.crowd_sums[-1]
            wide = names.annotators[one_label(use, n_items)[1]]
            notes += [LEFT.format(listing(wide))] if len(wide) else []
        labels = parts.statistics(lambda part: winners(part.posterior(fit.params)))
        others = {"confusion": matrices(labels, parts.expect(fit.params)), "notes": notes}
        return fit.params, fit, others, partial(without_gold, params=fit.params)

    def _family_of(self, parts: VoteParts) -> AnchoredFamily:
        family = super()._family_of(parts)
        if not parts.has_item_prior:
            return family
        pseudo, anchor = family.pseudo, replace(family.anchor, share=min(family.anchor.share, WITH_INPUTS))
        if isinstance(self.prior, str) and not parts.total(lambda part: confirmed(part.votes, part.gold).sum(), 0):
            # Single votes are all right by their own labels: a prior learned from these would outweigh the items'.
            pseudo = priors.pseudo_counts(DawidSkene.prior, self.history, parts.names)
        return replace(family, pseudo=pseudo, anchor=anchor)

    def _with_all_items(self, engine: Engine, at_votes: Floats, params: Params, family: AnchoredFamily) -> Params:
        """The parameters with the class prior of all items that were voted on; ``at_votes`` is the mass of the classes
        by vote shares."""
        fixed, even, a = family.class_prior, family.even_items, family.anchor.share
        log_prior = em.log_class_prior(at_votes, fixed, even)
        for _ in range(self.max_iter if fixed is None else 0):
            mass = engine.expect(Params(params.log_score, log_prior)).mass
            before, log_prior = log_prior, em.log_class_prior((1.0 - a) * mass + a * at_votes, fixed, even)
            if np.abs(np.exp(log_prior) - np.exp(before)).max() < PRIOR_TOL:
                break
        mass = engine.expect(Params(params.log_score, log_prior)).mass
        return Params(params.log_score, em.log_class_prior(mass, fixed, even))

    def _options(self, votes: Votes, item_prior: Floats | None) -> Ints | int | None:
        """How many options an item (each item) has, where each has its own."""
        if self.exchangeable and item_prior is not None:
            raise ParameterError("A prior of items speaks of classes, which exchangeable options are not: give one.")
        if not isinstance(self.exchangeable, (bool, np.bool_)):
            return votes.with_options(dict.fromkeys(votes.items.tolist(), int(self.exchangeable))).n_options
        seen = own_options(votes) if item_prior is None else None
        return votes.n_classes if seen is None and self.exchangeable else seen

    def _too_many_classes(self, votes: Votes, item_prior: bool) -> bool:
        """Whether tables over pairs of classes are out of proportion, and nothing was asked for that needs them."""
        plain = not item_prior and self.history is None and isinstance(self.class_prior, str)
        K, cells = votes.n_classes, votes.n_annotators * votes.n_classes**2
        return plain and isinstance(self.prior, str) and cells > (MAX_CELLS // 4 if K >= MANY_CLASSES else MAX_CELLS)

    def _fit_sparse(self, votes: Votes, gold: Ints | None, callback: Callback | None, options: Any) -> Outcome:
        """One accuracy per annotator, in the memory of the votes."""
        rounds = Rounds(self.max_iter, votes.n_votes, callback)
        self._sparse = SparseCoin.fit(votes, gold, rounds, float(self.tol), options)
        M, K = votes.n_annotators, votes.n_classes
        note = "Took one accuracy per annotator, and the labels that an item got for its classes: "
        if options is not None:
            note += f"items have options of their own, {np.max(options):,} at most."
        else:
            size = 8 * M * K * K / 2**30
            note += f"confusion matrices of {M:,} annotators over {K:,} classes would take {size:,.0f} GB."
        return Outcome(
            posterior=self._sparse.posterior(gold), prior=self._sparse.prior(), notes=[note], **rounds.outcome
        )

    def _predict(self, votes: Votes) -> Floats:
        if self._sparse is not None:
            return self._sparse.predict(votes)
        return super()._predict(votes)

    def _relearned(self, labels: Stats, votes: Votes, family: AnchoredFamily) -> AnchoredFamily:
        """The family with its prior learned from the (statistics of the) labels of a fit, not of the majority's."""
        past = 0.0 if self.history is None else priors.history_counts(self.history, votes)
        return replace(family, pseudo=learned_prior(labels.table() + past, self.prior, quick=True) + past)

    def _remarks(self, votes: Votes, posterior: Floats, labels: npt.NDArray[np.int32], gold: Ints | None) -> list[str]:
        differs, favourite = outvoted(votes, labels, gold)
        if not len(differs):
            return ["The labels are the majority's on every item."]
        own = posterior[differs, labels[differs]].mean()
        other = posterior[differs, favourite].mean()
        share = len(differs) / len(votes)
        remark = (
            f"The labels differ from the majority's on {len(differs):,} of {len(votes):,} items ({share:.1%}); "
            f"{own:.0%} of these are expected to be right, and {other:.0%} of the majority's."
        )
        if gold is None and share >= GOLD_HELPS and len(votes) >= 2 * GOLD_ASKED:
            remark += f" {GOLD_ASKED} gold labels would show which to go by (crowdwise gold names the items)."
        return [remark]


def ring_note(ring: Ring, votes: Votes) -> str:
    """A sentence on a ring that counts as one vote."""
    names = listing(votes.annotators[ring.members])
    if ring.kind == "alike":
        return (
            f"{len(ring.members)} annotators answered nearly every item and err together, as similar models do "
            f"({names}): n of their votes count as n / (1 + {ring.rho:.2f} (n - 1)). Only gold labels show if they "
            "know better than the others; collusion='ignore' counts every vote."
        )
    if ring.kind == "copies":
        return (
            f"{len(ring.members)} annotators with {ring.share:.0%} of the votes always give the same answers "
            f"({names}): they count as one vote on an item, as one person with several accounts. collusion='ignore' "
            "counts every vote."
        )
    late = "" if ring.since is None else ", in their later votes,"
    against = "and mostly against the others" if ring.outside < 0.0 else "and hardly with the others"
    return (
        f"{len(ring.members)} annotators with {ring.share:.0%} of the votes agree with each other, {against}{late} "
        f"({names}): they count as one vote on an item. Only gold labels show which side is right; collusion='ignore' "
        "counts every vote."
    )


def without_gold(part: VotePart, params: Params) -> Floats:
    """The posterior of items with gold labels under parameters that were learned without these."""
    return replace(part, gold=None).posterior(params)


def contradicted(known: list[VotePart], by_votes: Posterior) -> bool:
    """Whether the votes on gold items point to their classes less often than chance would (one time in a thousand)."""
    wrong = sum(int((by_votes(part).argmax(axis=1) != part.gold).sum()) for part in known)
    K, size = known[0].votes.n_classes, sum(len(part.votes) for part in known)
    return bool(binomial_tail(wrong, size, 1.0 - 1.0 / K) < WRONG_CROWD)


def matrices(labels: Stats, stats: Stats) -> Floats:
    """theta[m, k, l] by what annotators said of items of each class, for models that have no such matrices."""
    pseudo = learned_prior(labels.table(), Auto.prior, quick=True)
    return normalise(stats.table() + pseudo, axis=1).transpose(0, 2, 1)
