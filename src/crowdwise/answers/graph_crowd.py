"""Items joined by a graph, whose neighbours tend to be of one class, and annotators with confusion matrices.

``graph-crowd``: the classes of all items follow a Potts prior (see :mod:`crowdwise.answers.graph_potts`), and
annotator m says
l of an item of class k with probability theta[m, k, l], as in Dawid and Skene's model:

    P(y) = exp( sum_n h[y_n] + J sum over edges w_ij 1[y_i = y_j] ) / Z(h, J)
    P(votes | y) = prod over votes of theta[m, y_n, l]

==============  ====================  ===========  =================================================================
symbol          code                  shape        equation
==============  ====================  ===========  =================================================================
J               ``strength``                       the J under which the votes on each item are most probable, given
                                                   those on all others
h               ``field``             K            so that classes are foreseen as often as they are found
q[n, k]         posterior             N x K        belief propagation or mean field
theta           ``log_score``         M x K x K    (c + b) / sum_l (c + b), c from q, as in Dawid-Skene
objective                                          log Z(votes, h, J) - log Z(h, J) + sum b log theta (J, h held)
==============  ====================  ===========  =================================================================

J is not learned by EM: the expected agreement of neighbours rises with J whether or not there was any, so that a
useless graph would talk itself into being believed. The likelihood of an item's votes given those of the *others* is
not fooled. J stays 0, which is Dawid and Skene's model, unless it gains more there than chance would (``WORTH``). Then
h and J are held and theta is fitted by EM, exactly on trees; and so on in turn until J stands still. A chain with tied
transitions is ``hmm-crowd``.

When it fails: where neighbours tend to differ (J is never negative when learned); where a few hubs join everything; and
where votes on neighbours err together (near duplicates shown to one annotator), which looks like agreement.

Reference: P. A. Traganitis and G. B. Giannakis, Unsupervised ensemble classification with sequential and networked
data, IEEE TKDE 2022.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from crowdwise.answers.graph_potts import Beliefs, Links, balanced, foreseen_log_likelihood, mean_field, propagate
from crowdwise.core import em, priors, starts
from crowdwise.core.checks import check_count, check_number, is_number
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Count, NonNegative
from crowdwise.core.em import Params, Part
from crowdwise.core.loop import Callback, Progress
from crowdwise.core.model import Model, Outcome, check_memory, recode
from crowdwise.core.numerics import Floats, Ints, maximise_1d, normalise, safe_log
from crowdwise.core.parameters import declared
from crowdwise.data.graph import as_graph
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.kernels import reference
from crowdwise.methods.ds_dawid_skene import ConfusionFamily, full

INFERENCE: dict[str, Callable[..., Beliefs]] = {"belief-propagation": propagate, "mean-field": mean_field}
LADDER = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Strengths tried, from weak to strong; the best is refined between its neighbours."""
WORTH = 5.41
"""The least gain of a learned strength, in nats: half the 99.9 % point of chi-squared with one degree of freedom.

A false alarm is dear: annotators would then be fitted to the graph, and the graph to them.
"""
FOLDS = 5
"""Mean field has no foresight without an item's own votes: they are left out by fifths of the items."""
ROUNDS = 10
GLANCE, BALANCE = 30, 5
"""Passes over the edges, and changes of the field, for every strength that is tried: from where the last one ended."""
ANNEAL = (0.25, 0.5, 0.75)
SAME = 0.04
"""Two strengths closer than this are one."""

__all__ = ["GraphConsensus", "GraphCrowd"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GraphConsensus(Consensus):
    """A :class:`~crowdwise.Consensus` of items joined by a graph.

    Attributes
    ----------
    strength
        J: what an edge of weight 1 adds to the log odds of agreement; 0 where the graph was found to be of no use.
    worth
        What the votes on each item gain in log-likelihood, given those on the others, by the graph.
    """

    answer_type: str = "graph"
    strength: float = 0.0
    worth: float = 0.0


@dataclass
class Fit:
    """What inference needs, whatever the parameters: the votes as arrays, the links, and where messages stand."""

    part: Part
    links: Links
    infer: Callable[..., Beliefs]
    sweeps: int
    fold: Ints | None
    learns_field: bool
    state: Floats | None = None

    def evidence(self, log_score: Floats) -> Floats:
        """l[n, k], with -inf for every class but the true one where that is known."""
        part = self.part
        prior = np.zeros((1, part.n_classes)) if part.item_prior is None else part.item_prior
        out = reference.logits(part.indptr, part.cell, part.weight, log_score, prior)
        if len(part.truth):
            known = np.flatnonzero(part.truth >= 0)
            held = out[known, part.truth[known]]
            out[known] = -np.inf
            out[known, part.truth[known]] = held
        return out

    def beliefs(self, evidence: Floats, field: Floats, J: float, tol: float = 1e-8) -> Beliefs:
        """Inference from where it stands; from nothing it comes to a strong prior by way of weaker ones.

        Under a strong prior everything being of one class may be a fixed point of its own, which is not to be begun
        at.
        """
        for share in ANNEAL if self.state is None else ():
            early = self.infer(evidence, field, share * J, self.links, self.state, sweeps=GLANCE, tol=1e-3)
            self.state = early.state
        found = self.infer(evidence, field, J, self.links, self.state, sweeps=self.sweeps, tol=tol)
        self.state = found.state
        return found

    def foresee(self, evidence: Floats, field: Floats, J: float) -> tuple[float, Floats]:
        """How well the votes on each item are foretold by the others', with the field that balances the classes."""
        look = partial(self.infer, evidence, J=J, links=self.links, sweeps=min(self.sweeps, GLANCE), tol=1e-3)
        found = look(field=field, state=self.state)
        for _ in range(BALANCE if self.learns_field else 0):
            new = balanced(field, found)
            moved = float(np.abs(new - field).max())
            field = new
            found = look(field=field, state=found.state)
            if moved < 1e-2:
                break
        self.state = found.state
        if self.fold is None:
            return foreseen_log_likelihood(found.foresight, evidence), field
        score = 0.0
        for fold in range(FOLDS):
            out = np.flatnonzero(self.fold == fold)
            some = evidence.copy()
            some[out] = 0.0
            left = self.infer(some, field, J, self.links, None, sweeps=min(self.sweeps, GLANCE), tol=1e-3)
            score += foreseen_log_likelihood(left.foresight, evidence, out)
        return score, field

    def search(self, evidence: Floats, field: Floats) -> tuple[float, Floats, float]:
        """The strength under which items' votes are best foretold, its field, and what it gains over none."""
        self.state = None
        none, plain = self.foresee(evidence, field, 0.0)
        if not len(self.links):
            return 0.0, plain, 0.0
        tried, states = [(0.0, none)], [self.state]
        for J in LADDER:
            tried.append((J, self.foresee(evidence, field, J)[0]))
            states.append(self.state)
            if tried[-1][1] < max(score for _, score in tried) - WORTH and J > tried[_best(tried)][0] * 1.9:
                break  # past the top
        at = _best(tried)
        low, high = tried[max(at - 1, 0)][0], tried[min(at + 1, len(tried) - 1)][0]

        def from_below(J: float) -> tuple[float, Floats]:
            self.state = states[max(at - 1, 0)]
            return self.foresee(evidence, field, J)

        J = maximise_1d(lambda J: from_below(J)[0], low, high, tol=SAME)
        score, new = from_below(J)
        if score - none <= WORTH:
            return 0.0, plain, 0.0
        return J, new, score - none


def _best(tried: list[tuple[float, float]]) -> int:
    return max(range(len(tried)), key=lambda n: tried[n][1])


@declared
class GraphCrowd(Model):
    """Neighbours on a graph tend to agree; annotators have confusion matrices.

    Parameters
    ----------
    strength
        ``"learned"``, or J: what an edge of weight 1 adds to the log odds that its ends are of one class.
    inference
        ``"belief-propagation"`` (exact on trees) or ``"mean-field"`` (quicker where items have many neighbours, and
        surer of itself than it should be).
    sweeps
        The most passes over the edges before every pass over the votes.
    prior, history, class_prior, start
        As in :class:`DawidSkene`; a given ``class_prior`` is the field h = log of it.
    max_iter, tol
        Stop each fit of the annotators after so many passes over the votes, or when one gains less than ``tol`` per
        vote.
    ties, random_state
        As in :class:`DawidSkene`.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.graph(400, random_state=0)
    >>> linked = cw.GraphCrowd().fit(crowd.votes, graph=crowd.parameters["edges"])
    >>> linked.consensus_.score(crowd.truth) > cw.aggregate(crowd.votes, "dawid-skene").score(crowd.truth) + 0.05
    True
    """

    key = "graph-crowd"
    answer_type: ClassVar[str] = "graph"
    table: ClassVar[type] = Votes
    result: ClassVar[type] = GraphConsensus
    takes_item_prior = True

    strength: Any = "learned"
    inference: str = "belief-propagation"
    sweeps: int = 200
    prior: Any = 0.01
    history: Any = None
    class_prior: Any = "learned"
    start: Any = "votes"
    max_iter: Count = 500
    tol: NonNegative = 1e-7
    consensus_: GraphConsensus = field(init=False)

    def fit(
        self, votes: Votes, gold: Any = None, *, graph: Any = None, item_prior: Any = None,
        callback: Callback | None = None,
    ) -> Self:  # fmt: skip
        """Learn from votes and a graph.

        Parameters
        ----------
        votes, truth, item_prior, callback
            As in :meth:`crowdwise.DawidSkene.fit`.
        graph
            The edges: pairs of item names (with a weight, or without), a sparse N x N matrix in the order of
            ``votes.items``, a table with the columns source and target, or a :class:`~crowdwise.Graph`.
        """
        if isinstance(votes, Votes):
            if graph is None:
                raise InputError("graph-crowd needs to know which items are linked: fit(votes, graph=...).")
            self._graph = as_graph(graph, votes.items)
        try:
            super().fit(votes, gold, item_prior=item_prior, callback=callback)
        finally:
            self.__dict__.pop("_graph", None)
        return self

    def predict_proba(self, votes: Votes, graph: Any = None) -> Floats:
        """N x K class probabilities of items, in the fit or not; without ``graph`` from their votes alone."""
        fitted = self._fitted()
        new = recode(votes, fitted)
        if graph is None:
            return self._predict(new)
        fit = self._setting(new, None, None, Links.of(as_graph(graph, votes.items), len(votes)))
        return fit.beliefs(fit.evidence(self._scores(new)), self.field_, self.strength_).posterior

    # ---------------------------------------------------------------- fitting

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        check_memory(votes)
        links = Links.of(self._graph, len(votes))
        fit = self._setting(votes, gold, item_prior, links)
        given = priors.class_prior_counts(self.class_prior, votes)
        fit.learns_field = given is None
        family = ConfusionFamily(full, priors.pseudo_counts(self.prior, self.history, votes, gold), given)
        first = em.statistics(fit.part, starts.initial_posterior(self.start, fit.part, votes, gold, self.random_state))
        params = family.maximise(first)
        field = params.log_prior[0]
        J, worth, passes = 0.0, 0.0, 0
        held = given is not None and self.strength != "learned"
        trace, converged = [0.0], False
        for _ in range(1 if held else ROUNDS):
            before = J, field, worth
            if self.strength == "learned":
                J, field, worth = fit.search(fit.evidence(params.log_score), field)
            else:
                J = float(self.strength)
                fit.state = None
                fit.beliefs(fit.evidence(params.log_score), field, J, tol=1e-3)
                field = field if held else fit.foresee(fit.evidence(params.log_score), field, J)[1]
            if J == 0.0:  # no graph at all: Dawid and Skene's model from its own start
                climb = em.run_em(fit.part, family, first, max_iter=self.max_iter, tol=self.tol, callback=callback)
                params, field, passes = climb.params, climb.params.log_prior[0], passes + climb.iterations
                trace, converged = climb.trace.tolist(), climb.converged
            else:
                rough = max(self.tol, 1e-5)
                params, _, trace, more, converged = self._climb(fit, family, params, field, J, rough, callback, passes)
                passes += more
            near = abs(J - before[0]) <= SAME * max(1.0, J) and (J > 0.0) == (before[0] > 0.0)
            if near and (J == 0.0 or np.abs(field - before[1]).max() < SAME):
                break
            if 0.0 < before[2] and worth < before[2] + WORTH and self.strength == "learned":
                break  # no more to be had
        if J != 0.0:
            params, _, trace, more, converged = self._climb(fit, family, params, field, J, self.tol, callback, passes)
            passes += more
        found = fit.beliefs(fit.evidence(params.log_score), field, J)
        self.strength_, self.worth_, self.field_, self.params_ = J, worth, field, params
        self.stats_ = em.statistics(fit.part, found.posterior)
        K = votes.n_classes
        theta = np.exp(params.log_score.reshape(-1, K, K)).transpose(0, 2, 1)
        return Outcome(
            posterior=found.posterior,
            prior=normalise(found.posterior.sum(axis=0), axis=0),
            confusion=theta / theta.sum(axis=2, keepdims=True),
            trace=np.array(trace),
            iterations=passes,
            converged=converged,
            item_columns={"neighbours": np.diff(links.into.indptr)},
            more={"strength": J, "worth": worth},
        )

    def _climb(
        self, fit: Fit, family: ConfusionFamily, params: Params, field: Floats, J: float, tol: float,
        callback: Callback | None, passes: int,
    ) -> tuple[Params, Beliefs, list[float], int, bool]:  # fmt: skip
        """EM for the annotators with the prior held; a pass that does not raise the objective ends it.

        Where the strength is learned, so does one after which votes are foretold worse by ``WORTH`` than they were: the
        Potts likelihood of a dense graph may rise while everything is drawn into one class.
        """
        flat = fit.infer(np.zeros((len(fit.part.indptr) - 1, len(field))), field, J, fit.links, sweeps=fit.sweeps)
        votes = max(fit.part.n_votes, 1.0)
        trace: list[float] = []
        best: tuple[Params, Beliefs] | None = None
        top: tuple[float, tuple[Params, Beliefs] | None, int] = (-np.inf, None, 0)
        for n in range(self.max_iter):
            evidence = fit.evidence(params.log_score)
            found = fit.beliefs(evidence, field, J)
            value = family.objective(found.log_z - flat.log_z, params)
            gain = (value - trace[-1]) / votes if trace else np.inf
            if gain < 0.0 and best is not None:  # Bethe's log Z is no bound on loopy graphs
                return *best, trace, n + 1, True
            trace.append(value)
            if self.strength == "learned":
                told = foreseen_log_likelihood(found.foresight, evidence)
                if told < top[0] - WORTH and top[1] is not None:
                    fit.state = top[1][1].state
                    return *top[1], trace[: top[2]], n + 1, True
                if told > top[0]:
                    top = (told, (params, found), len(trace))
            best = (params, found)
            if callback is not None:
                callback(Progress(passes + n + 1, self.max_iter, value, float(gain)))
            if gain < tol:
                return *best, trace, n + 1, True
            params = Params(family.maximise(em.statistics(fit.part, found.posterior)).log_score, field[None])
        assert best is not None
        return *best, trace, self.max_iter, False

    def _setting(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, links: Links) -> Fit:
        fold = None
        if self.inference == "mean-field":
            fold = np.array([zlib.crc32(str(name).encode()) % FOLDS for name in votes.items.tolist()])
        part = Part.of(votes, gold, item_prior)
        return Fit(part, links, INFERENCE[self.inference], self.sweeps, fold, self.class_prior == "learned")

    def _scores(self, votes: Votes) -> Floats:
        """log s of the annotators of these votes; those never seen answer like the crowd as a whole."""
        K, score = votes.n_classes, self.params_.log_score
        strangers = votes.n_annotators - len(score) // K
        if not strangers:
            return score
        pooled = self.stats_.table().sum(axis=0) + 1.0 / K
        return np.concatenate([score, np.tile(np.log(pooled / pooled.sum(axis=0)), (strangers, 1))])

    def _predict(self, votes: Votes) -> Floats:
        prior = safe_log(self._fitted().prior)[None]
        return em.expect(Part.of(votes), Params(self._scores(votes), prior), posterior=True)[1]

    def _check_together(self) -> None:
        super()._check_together()
        J = self.strength
        if not (is_number(J) or (isinstance(J, str) and J == "learned")):
            raise ParameterError(f"strength={J!r}: expected 'learned' or a number.")
        if self.inference not in INFERENCE:
            raise ParameterError(f"inference={self.inference!r}: expected {' or '.join(map(repr, INFERENCE))}.")
        check_count(self, "max_iter")
        check_count(self, "sweeps")
        check_number(self, "tol", least=0.0, what="a number of at least 0, the gain per vote at which it stops")
