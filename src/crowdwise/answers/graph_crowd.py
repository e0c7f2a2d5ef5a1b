"""Items joined by a graph, whose neighbours tend to be of one class, and annotators with confusion matrices.

``graph-crowd``: the classes of all items follow a Potts prior (see :mod:`crowdwise.answers.graph_potts`), and annotator
m says l of an item of class k with probability theta[m, k, l], as in Dawid and Skene's model:

    P(y) = exp( sum_n h[y_n] + J sum over edges w_ij 1[y_i = y_j] ) / Z(h, J)
    P(votes | y) = prod over votes of theta[m, y_n, l]

==============  ====================  ===========  =================================================================
symbol          code                  shape        equation
==============  ====================  ===========  =================================================================
J               ``strength``                       the J under which the votes on each item are most probable, given
                                                   those on all others
h               ``field``             K            classes are predicted as often as they are found
q[n, k]         posterior             N x K        belief propagation or mean field
theta           ``log_score``         M x K x K    (c + b) / sum_l (c + b), c from q, as in Dawid-Skene
objective                                          log Z(votes, h, J) - log Z(h, J) + sum b log theta (J, h held)
==============  ====================  ===========  =================================================================

J is not learned by EM: the expected agreement of neighbours rises with J whether or not there was any, so that J would
grow on a useless graph as well. The likelihood of an item's votes given those of the *others* is free of this. J stays
0, which is Dawid and Skene's model, unless it gains more there than by chance (``MIN_GAIN``). Then h and J are held
fixed and theta is fitted by EM, exactly on trees; and so on in turn until J converges. A chain with tied transitions is
``hmm-crowd``.

When it fails: where neighbours tend to differ (J is never negative when learned); where a few hubs join everything; and
where votes on neighbours err together (near duplicates shown to one annotator), which looks like agreement.

Reference: P. A. Traganitis and G. B. Giannakis, Unsupervised ensemble classification with sequential and networked
data, IEEE TKDE 2022.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np

from crowdwise.answers import graph_potts as potts
from crowdwise.answers.graph_potts import GraphInference, Links
from crowdwise.core import em, predictive, priors, starts
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Count, NonNegative
from crowdwise.core.em import Params, Part
from crowdwise.core.limits import check_memory
from crowdwise.core.loop import Callback, Rounds
from crowdwise.core.model import Model, Outcome
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log
from crowdwise.core.parameters import declared
from crowdwise.core.priors import ClassPrior, History, Prior
from crowdwise.core.starts import Start
from crowdwise.core.unseen import recode, scores_with_unseen
from crowdwise.data.boundary import guarded
from crowdwise.data.graph import as_graph
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.methods.ds_dawid_skene import ConfusionFamily, full

INFERENCE: dict[str, Callable[..., potts.Beliefs]] = {
    "belief-propagation": potts.propagate,
    "mean-field": potts.mean_field,
}
ROUNDS = 10


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GraphConsensus(Consensus):
    """A :class:`~crowdwise.Consensus` of items joined by a graph.

    Attributes
    ----------
    strength
        J: what an edge of weight 1 adds to the log odds of agreement; 0 where the graph has no significant gain.
    gain
        By how much the graph raises the log-likelihood of the votes on each item, given those on the others.
    """

    answer_type: str = "graph"
    strength: float = 0.0
    gain: float = 0.0


@declared
class GraphCrowd(Model):
    """Neighbours on a graph tend to agree; annotators have confusion matrices.

    Parameters
    ----------
    strength
        ``"learned"``, or J: what an edge of weight 1 adds to the log odds that its ends are of one class.
    inference
        ``"belief-propagation"`` (exact on trees) or ``"mean-field"`` (quicker where items have many neighbours,
        and overconfident).
    sweeps
        The most passes over the edges before every pass over the votes.
    prior, history, class_prior, start
        As in :class:`DawidSkene`; the field h is the log of a given ``class_prior``.
    max_iter, tol
        Stop each fit of the annotators after so many passes over the votes, or when one gains less than ``tol`` per
        vote.

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

    strength: float | Literal["learned"] = "learned"
    inference: Literal["belief-propagation", "mean-field"] = "belief-propagation"
    sweeps: Count = 200
    prior: Prior = 0.01
    history: History = None
    class_prior: ClassPrior = "learned"
    start: Start = "votes"
    max_iter: Count = 500
    tol: NonNegative = 1e-7
    consensus_: GraphConsensus = field(init=False)

    @guarded
    def fit(
        self, votes: Votes, gold: Any = None, *, graph: Any = None, item_prior: Any = None, shared_prior: bool = False,
        callback: Callback | None = None, verbose: bool = False,
    ) -> Self:  # fmt: skip
        """Learn from votes and a graph.

        Parameters
        ----------
        votes, gold, item_prior, shared_prior, callback, verbose
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
            super().fit(
                votes, gold, item_prior=item_prior, shared_prior=shared_prior, callback=callback, verbose=verbose
            )
        finally:
            self.__dict__.pop("_graph", None)
        return self

    @guarded
    def predict_proba(self, votes: Votes, graph: Any = None) -> Floats:
        """N x K class probabilities of items, in the fit or not; without ``graph`` from their votes alone."""
        fitted = self._fitted()
        new = recode(votes, fitted)
        if graph is None:
            return self._predict(new)
        linked = self._inference(new, None, None, Links.of(as_graph(graph, votes.items), len(votes)))
        return linked.beliefs(linked.evidence(self._scores(new)), self.field_, self.strength_).posterior

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        check_memory(votes)
        links = Links.of(self._graph, len(votes))
        graph = self._inference(votes, gold, item_prior, links)
        given = priors.class_prior_counts(self.class_prior, votes)
        graph.learns_field = given is None
        family = ConfusionFamily(full, priors.pseudo_counts(self.prior, self.history, votes, gold), given)
        q = starts.initial_posterior(self.start, graph.part, votes, gold, self.random_state)
        first = em.statistics(graph.part, q)
        params = family.maximise(first)
        field, J, gain, runs = params.log_prior[0], 0.0, 0.0, list[dict[str, Any]]()
        held = given is not None and self.strength != "learned"
        for _ in range(1 if held else ROUNDS):
            before, evidence = (J, field, gain), graph.evidence(params.log_score)
            if self.strength == "learned":
                J, field, gain = graph.search(evidence, field)
            else:
                J, graph.state = float(self.strength), None
                graph.beliefs(evidence, field, J, tol=1e-3)
                field = field if held else graph.held_out_score(evidence, field, J)[1]
            rounds = Rounds(self.max_iter, graph.part.n_votes, callback, len(runs))
            if J == 0.0:  # no graph at all: Dawid and Skene's model from its own start
                fit = em.run_em(graph.part, family, first, max_iter=self.max_iter, tol=self.tol, callback=callback)
                params, field = fit.params, fit.params.log_prior[0]
                runs.append(fit.outcome)
            else:
                params = self._run_em(graph, family, params, field, J, max(self.tol, 1e-5), rounds)
                runs.append(rounds.outcome)
            near = abs(J - before[0]) * links.scale <= potts.SAME * max(1.0, J * links.scale)
            near &= (J > 0.0) == (before[0] > 0.0)
            if near and (J == 0.0 or np.abs(field - before[1]).max() < potts.SAME):
                break
            if 0.0 < before[2] and gain < before[2] + potts.MIN_GAIN and self.strength == "learned":
                break  # no further gain
        if J != 0.0:
            rounds = Rounds(self.max_iter, graph.part.n_votes, callback, len(runs))
            params = self._run_em(graph, family, params, field, J, self.tol, rounds)
            runs.append(rounds.outcome)
        found = graph.beliefs(graph.evidence(params.log_score), field, J)
        self.strength_, self.gain_, self.field_, self.params_ = J, gain, field, params
        self.stats_ = em.statistics(graph.part, found.posterior)
        return Outcome(
            posterior=found.posterior, prior=normalise(found.posterior.sum(axis=0), axis=0),
            confusion=params.confusion(), item_columns={"neighbours": np.diff(links.into.indptr)},
            more={"strength": J, "gain": gain}, **runs[-1] | {"iterations": sum(run["iterations"] for run in runs)},
        )  # fmt: skip

    def _run_em(
        self, graph: GraphInference, family: ConfusionFamily, params: Params, field: Floats, J: float, tol: float,
        rounds: Rounds,
    ) -> Params:  # fmt: skip
        """EM for the annotators with the prior held fixed; a pass that does not raise the objective ends it.

        Where the strength is learned, so does one after which the held-out log-likelihood is lower by ``MIN_GAIN``: the
        Potts likelihood of a dense graph may rise while all items are drawn into one class.
        """
        nothing = np.zeros((len(graph.part.indptr) - 1, len(field)))
        prior_z = graph.infer(nothing, field, J, graph.links, sweeps=graph.sweeps).log_z
        accepted, best = params, (-np.inf, params, graph.state, 0)
        for _ in rounds:
            evidence = graph.evidence(params.log_score)
            found = graph.beliefs(evidence, field, J)
            value = family.objective(found.log_z - prior_z, params)
            if rounds.trace and value < rounds.trace[-1]:  # Bethe's log Z is no bound on graphs with loops
                rounds.converged = True
                break
            if self.strength == "learned":
                score = potts.held_out_log_likelihood(found.held_out, evidence)
                if score < best[0] - potts.MIN_GAIN:
                    _, accepted, graph.state, length = best
                    del rounds.trace[length:]
                    rounds.converged = True
                    break
                if score > best[0]:
                    best = (score, params, found.state, len(rounds.trace) + 1)
            accepted = params
            rounds.reached(value, below=tol)
            if rounds.another():
                params = Params(family.maximise(em.statistics(graph.part, found.posterior)).log_score, field[None])
        return accepted

    def _inference(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, links: Links) -> GraphInference:
        fold = None
        if self.inference == "mean-field":
            fold = predictive.item_folds(votes, potts.FOLDS, gold)
        part = Part.of(votes, gold, item_prior)
        return GraphInference(part, links, INFERENCE[self.inference], self.sweeps, fold, self.class_prior == "learned")

    def _scores(self, votes: Votes) -> Floats:
        """log s of the annotators of these votes; unseen ones answer like the crowd as a whole."""
        return scores_with_unseen(self.params_.log_score, self.stats_.counts, votes.n_annotators, votes.n_classes)

    def _predict(self, votes: Votes) -> Floats:
        prior = safe_log(self._fitted().prior)[None]
        return em.expect(Part.of(votes), Params(self._scores(votes), prior), posterior=True)[1]
