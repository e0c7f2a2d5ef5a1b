"""The base classes of models of votes: parameters stored as given, ``fit``, and one frozen result.

Models follow scikit-learn's estimator protocol without importing it: keyword-only parameters,
``get_params``/``set_params``, clones, ``fit`` returns self, learned attributes end in ``_``. What the file of a method
needs beside its base class is imported from here too (see ``__all__``).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import field, replace
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from crowdwise.core import constraints, em, starts
from crowdwise.core.consensus import Consensus, Outcome, consensus_fields
from crowdwise.core.consensus_in_parts import ConsensusInParts, Each
from crowdwise.core.constraints import Bounds, Count, CountFromZero, NonNegative, RandomState, are_numbers, declared
from crowdwise.core.dependence import Setting, copied_note, corrected
from crowdwise.core.em import EMFit, Engine, Family, Params, Part, Stats
from crowdwise.core.leave_one_out import judged, judgement_sums
from crowdwise.core.loop import Callback, Rounds, check_memory
from crowdwise.core.numerics import Floats, Ints, decide, safe_log
from crowdwise.core.progress_bar import shown
from crowdwise.core.result import warn_unconverged
from crowdwise.core.starts import Start
from crowdwise.core.unseen import recode, scores_with_unseen
from crowdwise.core.vote_parts import VotePart, VoteParts, resolve
from crowdwise.data.boundary import guarded
from crowdwise.data.encoding import CLASSES
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, LabelError, NotFittedError, Option, ParameterError, Remedy, listing

__all__ = [
    "Callback", "EMFit", "EMModel", "Family", "Floats", "Ints", "Model", "Outcome", "Params", "Part", "Rounds",
    "StartedModel", "Stats", "Votes", "declared",
]  # fmt: skip

SingleVotes = Literal["certain", "doubted", "open"]


@declared
class Model(constraints.Parameterised, ABC):
    """The base of models of votes. A subclass gives ``_predict`` and ``_fit``; with ``in_parts``, ``_fit_in_parts``.

    Parameters
    ----------
    ties, random_state
        Equally probable classes: the one with the higher ``"prior"``, then the first; or ``"random"``. Whatever is
        random draws from ``random_state``: a seed, a generator, or ``None`` for other draws every time.
    dependence
        Votes on one item err together, which makes probabilities too sure. ``"auto"`` corrects them as real crowds need
        it (:mod:`crowdwise.core.dependence`), a number from 0 to 1 by that correlation, ``"none"`` not at all.
        Without gold no label changes by it. ``consensus.corrected_posterior`` is corrected in any case.
    """

    key: ClassVar[str]
    single_annotator: ClassVar[bool] = False
    """Whether the model can be fitted to the votes of a single annotator without gold labels."""
    answer_type: ClassVar[str] = "votes"
    result: ClassVar[type[Consensus]] = Consensus
    needs_gold: ClassVar[bool] = False
    """Whether it learns about annotators from gold labels alone."""
    in_parts: ClassVar[bool] = False
    """Whether it can be fitted to votes in parts, of which one at a time is in memory (:meth:`fit_in_parts`)."""
    takes_item_prior: ClassVar[bool] = False
    """Whether it can start from probabilities of each item's classes."""
    streams: ClassVar[bool] = False
    """Whether it can learn from votes as they come in (:mod:`crowdwise.online`)."""
    reads_backwards: ClassVar[bool] = True
    """Whether votes of annotators who are known, from gold labels, to be mostly wrong count against their label."""
    single_votes: ClassVar[SingleVotes] = "doubted"
    """The label of an item where no item has two votes: the vote, for certain; the vote, in doubt; or any."""
    vote_shares: ClassVar[bool] = False
    """Whether its posterior is (weighted) vote shares, which are not probabilities given the votes."""
    judges_annotators: ClassVar[bool] = False
    """Whether its own posterior judges annotators: their matrices are shrunk as the votes ask for, and its
    probabilities corrected, so that no further passes over the votes are made for it
    (:mod:`crowdwise.core.leave_one_out`)."""
    columns_without_interval: ClassVar[tuple[str, ...]] = ()
    """Columns that the method adds to the table of annotators and that are not estimates, so have no interval."""

    ties: Literal["prior", "random"] = "prior"
    random_state: RandomState = 0
    dependence: Setting = "none"
    consensus_: Consensus = field(init=False)

    @guarded
    def fit(
        self, votes: Votes, gold: Any = None, *, item_prior: Any = None, shared_prior: bool = False,
        callback: Callback | None = None, verbose: bool = False,
    ) -> Self:  # fmt: skip
        """Learn from votes.

        Parameters
        ----------
        votes
            The votes. Their own ``truth`` is not looked at.
        gold
            Gold labels for the model to use: a mapping from item to class, or an array of N class codes with -1 for
            unknown (``votes.truth`` is one).
        item_prior
            N x K probabilities of each item's classes before any vote (from a classifier, say).
        shared_prior
            Whether ``item_prior`` was learned from votes of the same annotators: the correction for dependent votes
            then counts it as one more of them.
        callback
            Called with a :class:`crowdwise.core.loop.Progress` after every pass over the votes.
        verbose
            Show the progress: a bar in a terminal or a notebook, lines elsewhere.
        """
        began = time.perf_counter()
        self.check_parameters()
        if not isinstance(votes, Votes):
            raise InputError(
                f"Expected Votes and found {type(votes).__name__}. "
                "Make them with Votes.from_frame, Votes.from_dense or read_votes."
            )
        known = None if gold is None else votes.encode_truth(gold)
        self._check_votes(votes, known)
        log_prior = self._log_item_prior(votes, item_prior)
        votes, seen = self._weighed(votes, log_prior)
        with shown(self.key, verbose, callback) as report:
            outcome = self._fit(votes, known, log_prior, report)
        parts = VoteParts.whole(votes, known, log_prior)
        q = outcome.posterior
        dependence = resolve(
            self.dependence, parts, lambda _: q, shares=self.vote_shares, kind=outcome.kind,
            gold_by_votes=outcome.gold_by_votes, shared_prior=shared_prior and log_prior is not None,
        )  # fmt: skip
        by = corrected(q, votes, dependence, log_prior, known) if dependence.bias else q  # gold shows a shared error
        labels = decide(by, outcome.prior, self.ties, np.random.default_rng(self.random_state))
        fields = consensus_fields(votes, outcome, labels, known, log_prior, dependence)
        if self.judges_annotators and dependence.source in ("crowds", "gold"):
            fields["judged"] = np.stack(judged(judgement_sums(parts.only, fields["posterior"])))
        why = [] if dependence.source == "none" else [dependence.reason]
        remarks = self._remarks(votes, fields["posterior"], labels, known)
        fields["notes"] = [*seen, *outcome.notes, *why, *remarks, *copied_note(parts.agreeing)]
        self.consensus_ = self.result.of(
            self, votes, answer_type=self.answer_type, vote_shares=self.vote_shares,
            seconds=time.perf_counter() - began, **fields,
        )  # fmt: skip
        warn_unconverged(self.consensus_)
        return self

    @guarded
    def fit_in_parts(
        self, parts: VoteParts, *, callback: Callback | None = None, each: Each | None = None
    ) -> ConsensusInParts:
        """Learn from votes in parts, gold labels with them, in the memory of one part and of the annotators.

        The numbers are those of :meth:`fit` on all votes, up to rounding; where there are very many votes, rings of
        annotators are looked for in another sample of the items.
        ``each`` is called with every part, the class codes of its items and their posterior, in the last pass.
        """
        began = time.perf_counter()
        self.check_in_parts()
        if parts.n_votes == 0:
            raise InputError("No votes: the parts have no rows.")
        check_classes(parts.names)
        self._check_annotators(parts.names, bool(parts.sizes[2]))
        parts, seen = self._weighed_parts(parts)
        consensus = ConsensusInParts.of_parts(self, parts, self._fit_in_parts(parts, callback), each)
        return replace(consensus, notes=[*seen, *consensus.notes], seconds=time.perf_counter() - began)

    def check_in_parts(self) -> None:
        """Raise an error where the model cannot be fitted to votes in parts."""
        self.check_parameters()
        if not self.in_parts:
            raise ParameterError(f"{self.key} needs all votes at once. Take a model whose class says in_parts=True.")

    def _fit_in_parts(self, parts: VoteParts, callback: Callback | None) -> dict[str, Any]:
        """``independent`` (the posterior of a part), and the other fields of an :class:`Outcome`, of a class that says
        ``in_parts``."""
        raise NotImplementedError

    def fit_predict(self, votes: Votes, gold: Any = None) -> npt.NDArray[Any]:
        """The consensus labels of the votes' items."""
        return self.fit(votes, gold).consensus_.labels

    @guarded
    def predict_proba(self, votes: Votes) -> Floats:
        """N x K class probabilities of items, in the fit or not, from what was learned about their annotators."""
        fitted = self._fitted()
        new = self._discounted(recode(votes, fitted))
        q, dependence = self._predict(new), fitted.dependence
        return q if dependence.source == "none" else corrected(q, new, replace(dependence, shared_prior=False))

    @guarded
    def predict(self, votes: Votes) -> npt.NDArray[Any]:
        """The most probable class of each item."""
        q, fitted = self.predict_proba(votes), self._fitted()
        return fitted.classes[decide(q, fitted.prior, self.ties, np.random.default_rng(self.random_state))]

    def _weighed(self, votes: Votes, item_prior: Floats | None) -> tuple[Votes, list[str]]:
        """The votes with the weights that they are fitted by, and why."""
        return votes, []

    def _weighed_parts(self, parts: VoteParts) -> tuple[VoteParts, list[str]]:
        """As :meth:`_weighed`, for votes in parts."""
        return parts, []

    def _discounted(self, votes: Votes) -> Votes:
        """Votes in the codes of the fit with the weights that they have after it."""
        return votes

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        """The fit of all votes; of a class that says ``in_parts`` it is a fit of one part."""
        parts = VoteParts.whole(votes, gold, item_prior)
        fields = self._fit_in_parts(parts, callback)
        return Outcome(posterior=fields.pop("independent")(parts.only), **fields)

    @abstractmethod
    def _predict(self, votes: Votes) -> Floats: ...

    def _remarks(self, votes: Votes, posterior: Floats, labels: npt.NDArray[np.int32], gold: Ints | None) -> list[str]:
        """Sentences about the final posterior, for the notes."""
        return []

    def check_stream(self) -> None:
        """Raise an error where the model cannot learn from a stream."""
        if not self.streams:
            raise ParameterError(
                f"{self.key} cannot follow a stream of votes: it needs all of them at once. "
                "Take a model whose class says streams=True."
            )

    def _check_votes(self, votes: Votes, gold: Ints | None) -> None:
        check_classes(votes)
        if votes.n_votes == 0:
            raise InputError("No votes: the table has items and annotators, and no row is left.")
        self._check_annotators(votes, gold is not None and bool((gold >= 0).any()))

    def _check_annotators(self, votes: Votes, has_gold: bool) -> None:
        """Refuse a crowd that the model cannot learn from without gold labels."""
        if self.needs_gold and not has_gold:
            raise InputError(
                f"{self.key} weighs annotators by their answers on items with gold labels, and none is given.",
                remedy=Remedy("Give them: {}.", Option("gold", python="{item: class}", command="FILE")),
            )
        if not self.single_annotator and not has_gold:
            check_several(votes, self.key, "Use a majority vote, or give gold labels of some items.")

    def _log_item_prior(self, votes: Votes, item_prior: Any) -> Floats | None:
        if item_prior is None:
            return None
        if not self.takes_item_prior:
            raise ParameterError(
                f"{self.key} has no place for a prior per item: "
                "leave item_prior out, or take a model whose class says takes_item_prior=True."
            )
        p = np.asarray(item_prior, dtype=np.float64)
        fits = p.shape == (len(votes), votes.n_classes)
        if not (fits and are_numbers(p, Bounds(minimum=0)) and (p.sum(axis=1) > 0).all()):
            problem = "a row with NaN, negative numbers or none above 0" if fits else f"shape {p.shape}"
            expected = f"{len(votes)} x {votes.n_classes} probabilities (items x classes)"
            raise ParameterError(f"item_prior must be {expected}; found {problem}.")
        return np.asarray(safe_log(p / p.sum(axis=1, keepdims=True)))

    def _fitted(self) -> Consensus:
        try:
            return self.consensus_
        except AttributeError:
            raise NotFittedError(f"This {type(self).__name__} has not been fitted: call fit(votes) first.") from None


@declared
class StartedModel(Model, ABC):
    """A model that is fitted in rounds from a start.

    Parameters
    ----------
    start, max_iter, tol
        As in :class:`DawidSkene`.
    """

    takes_item_prior = True

    start: Start = "votes"
    max_iter: Count = 500
    tol: NonNegative = 1e-7


@declared
class EMModel(Model, ABC):
    """A model fitted by :mod:`crowdwise.core.em`. A subclass gives how parameters come from statistics (``_family``).

    Parameters
    ----------
    start
        ``"votes"``, a method of moments (``"spectral-ds"``, ``"multispa"``, ``"cnmf"``, ``"symnmf"``, ``"tensor"``), an
        N x K posterior, or a :class:`~crowdwise.Consensus` for a warm start.
    restarts
        How many further, random starts to try; the best objective is kept.
    max_iter, tol
        Stop after so many passes over the votes, or when a pass gains less than ``tol`` per vote.
    accelerate
        Extrapolate, guarded, once the fit is near an optimum (SQUAREM, see :mod:`crowdwise.core.em`).
    """

    takes_item_prior = True

    start: Start = "votes"
    restarts: CountFromZero = 0
    max_iter: Count = 500
    tol: Annotated[float, Bounds(minimum=0, meaning="the gain per vote under which the fit stops")] = 1e-7
    accelerate: bool = True
    params_: Params = field(init=False)
    stats_: Stats = field(init=False)

    def _family_of(self, parts: VoteParts) -> Family:
        """The maximisation step, made once per fit; where the class says ``in_parts``, from sums over votes alone."""
        raise NotImplementedError

    def _expect(self, parts: Engine, params: Params) -> Stats:
        """The expectation step."""
        return parts.expect(params)

    def _finish(self, part: Any, family: Family, params: Params) -> Params:
        """The parameters to report, from those that EM ended with."""
        return params

    def _prior(self, params: Params) -> Floats:
        """The class distribution of an item without votes."""
        return np.asarray(np.exp(params.log_prior[0]))

    def _confusion(self, params: Params, K: int) -> Floats:
        """theta[m, k, l] from the scores, rows normalised."""
        return params.confusion()

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        check_memory(votes)
        parts = VoteParts.whole(votes, gold, item_prior)
        params, fit, others = self._run(parts, callback)
        return self._outcome(parts.only, fit, params, **others)

    def _fit_in_parts(self, parts: VoteParts, callback: Callback | None) -> dict[str, Any]:
        if self.restarts or not self._starts_from_votes():
            raise ParameterError(
                "Votes in parts start from the votes, once: leave out start, set restarts=0, or fit all votes at once."
            )
        check_memory(parts.names)
        params, fit, others = self._run(parts, callback)
        self.params_ = params
        return {"independent": lambda part: part.posterior(params)} | self._reported(fit) | others

    def _run(self, parts: VoteParts, callback: Callback | None) -> tuple[Params, EMFit, dict[str, Any]]:
        """The parameters to report, how EM went, and further fields of the outcome."""
        family, fit = self._best_fit(parts, callback)
        return self._finish(parts, family, fit.params), fit, {}

    def _best_fit(self, parts: VoteParts, callback: Callback | None) -> tuple[Family, EMFit]:
        """The family, and the best fit of all starts."""
        first = self._start(parts)
        family = self._family_of(parts)
        rng = np.random.default_rng(self.random_state)
        more = (starts.random_start(parts.only, rng) for _ in range(self.restarts))
        return family, em.best_fit(
            self._run_em(parts, family, s, callback, i) for i, s in enumerate(chain([first], more))
        )

    def _outcome(self, part: VotePart, fit: EMFit, params: Params | None = None, **others: Any) -> Outcome:
        """The outcome of a fit; its parameters (or others in their place) and statistics are kept."""
        self.params_ = fit.params if params is None else params
        q = part.posterior(self.params_)
        self.stats_ = part.expect(self.params_)
        fields: dict[str, Any] = {"posterior": q, "log_likelihood": self.stats_.log_likelihood}
        return Outcome(**fields | self._reported(fit) | others)

    def _reported(self, fit: EMFit) -> dict[str, Any]:
        """Prior and confusion by the parameters, and how EM went."""
        K = self.params_.log_prior.shape[1]
        return {"prior": self._prior(self.params_), "confusion": self._confusion(self.params_, K)} | fit.outcome

    def _run_em(self, part: Engine, family: Family, start: Stats, callback: Callback | None, restart: int = 0) -> EMFit:
        return em.run_em(
            part, family, start, max_iter=self.max_iter, tol=self.tol, accelerate=self.accelerate, callback=callback,
            restart=restart, expectation=self._expect,
        )  # fmt: skip

    def _starts_from_votes(self) -> bool:
        return isinstance(self.start, str) and self.start == "votes"

    def _start(self, parts: VoteParts) -> Stats:
        """The statistics to start from: see :func:`crowdwise.core.starts.initial_posterior`."""
        if self._starts_from_votes():
            return parts.statistics(starts.first_posterior(parts))
        part = parts.only
        q = starts.initial_posterior(self.start, part.part, part.votes, part.gold, self.random_state)
        return em.statistics(part.part, q)

    def _predict(self, votes: Votes) -> Floats:
        score = scores_with_unseen(self.params_.log_score, self.stats_.counts, votes.n_annotators, votes.n_classes)
        return em.expect(Part.of(votes), Params(score, self.params_.log_prior), posterior=True)[1]


def check_classes(votes: Votes, what: str = "votes") -> None:
    """Refuse votes of which all are the same because there is no other class."""
    if votes.n_classes < 2:
        raise LabelError(
            f"All {what} are {listing(votes.classes[:1])}: with a single class there is nothing to decide.",
            remedy=Remedy("If there are other classes without votes, declare them: {}.", CLASSES),
        )


def check_several(answers: Any, key: str, remedy: str) -> None:
    """Refuse the answers of a single annotator."""
    if answers.n_annotators < 2:
        one = f"is a single annotator, {listing(answers.annotators)}"
        who = one if answers.n_annotators else "are no annotators"
        raise InputError(
            f"There {who}: {key} learns the reliability of annotators from agreement, and there is no other to agree "
            f"with. {remedy}"
        )
