"""Items joined by a graph, whose neighbours tend to be of one class, and annotators with confusion matrices.

``graph-crowd``: the classes of all items follow a Potts prior, and annotator m says l of an item of class k with
probability theta[m, k, l], as in Dawid and Skene's model:

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

Given evidence l[n, k] = log P(votes on n, given truth k), two ways to the posterior, both linear in the edges:

==================  ======================================================================================
belief propagation  from i to j, the class of i without j:  p_ij[k] = softmax( h + l_i + sum over other
                    neighbours of their messages );  message m_ij[k] = log(1 + (e^(J w) - 1) p_ij[k]).
                    Exact on trees; log Z is Bethe's.
mean field          q[n] = softmax( h + l_n + J sum over neighbours of w q[neighbour] );  log Z is bounded below.
==================  ======================================================================================

References: P. A. Traganitis and G. B. Giannakis, Unsupervised ensemble classification with sequential and networked
data, IEEE TKDE 2022. J. Yedidia, W. Freeman and Y. Weiss, Understanding belief propagation and its generalizations,
2003.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from crowdwise.core import em, predictive, priors, starts
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Count, NonNegative, declared
from crowdwise.core.em import Params, Part
from crowdwise.core.loop import Callback, Rounds, check_memory
from crowdwise.core.model import Model, Outcome
from crowdwise.core.numerics import Floats, Ints, maximise_1d, normalise, safe_log, softmax
from crowdwise.core.priors import ClassPrior, History, Prior
from crowdwise.core.starts import Start
from crowdwise.core.unseen import recode, scores_with_unseen
from crowdwise.data.boundary import guarded
from crowdwise.data.graph import Graph, as_graph
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.kernels import reference
from crowdwise.methods.ds_dawid_skene import ConfusionFamily, full

LADDER = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Strengths of a typical edge that are tried, from weak to strong; the best is refined between its neighbours."""
MIN_GAIN = 5.41
"""The minimum gain of a learned strength, in nats: half the 99.9% quantile of chi-squared with one degree of freedom.

A false positive is costly: annotators would then be fitted to the graph, and the graph to them.
"""
FOLDS = 5
"""Mean field does not give the class of an item without its own votes: they are held out by fifths of the items."""
QUICK_SWEEPS = 30
"""Passes over the edges for every strength that is tried: from where the last one ended."""
SAME = 0.04
"""Two strengths closer than this, times a typical weight, are one."""
MOST_PULL = 30.0
"""The most that one edge adds to the log odds of agreement, whatever its weight: odds of 1e13 are a certainty."""


@dataclass(frozen=True, eq=False)
class Links:
    """The edges in both directions: 2 E of them, edge e and its reverse ``reverse[e]``."""

    source: Ints
    target: Ints
    reverse: Ints
    weight: Floats
    into: Any
    """N x 2E: sums what goes into each item."""

    @classmethod
    def of(cls, graph: Graph, n_items: int) -> Links:
        from scipy.sparse import csr_array

        E = graph.n_edges
        source, target = np.concatenate([graph.left, graph.right]), np.concatenate([graph.right, graph.left])
        into = csr_array((np.ones(2 * E), (target, np.arange(2 * E))), shape=(n_items, 2 * E))
        weight = np.concatenate([graph.weight, graph.weight])
        return cls(source, target, np.roll(np.arange(2 * E), -E), weight, into)

    def __len__(self) -> int:
        return len(self.source)

    @property
    def scale(self) -> float:
        """The median weight of an edge: strengths are tried in units of it, so the unit of weights does not matter."""
        return float(np.median(self.weight)) if len(self) else 1.0

    def pull(self, J: float) -> Floats:
        """2E: J w, within ``MOST_PULL``."""
        return np.clip(J * self.weight, -MOST_PULL, MOST_PULL)


@dataclass(frozen=True, eq=False)
class Beliefs:
    """The result of inference; ``state`` is where the next one can start (messages, or q)."""

    state: Floats
    posterior: Floats
    held_out: Floats
    log_z: float


def log_sum(x: Floats) -> Floats:
    top = x.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(x - top).sum(axis=1)) + top[:, 0])


def propagate(
    evidence: Floats, field: Floats, J: float, links: Links, state: Floats | None = None, *, sweeps: int = 200,
    tol: float = 1e-8,
) -> Beliefs:  # fmt: skip
    """Messages along all edges at once until they converge; damped where they oscillate."""
    unary = field + evidence
    N, K = unary.shape
    gain = np.expm1(links.pull(J))[:, None]
    m = np.zeros((len(links), K)) if state is None else state
    damping, before = 0.0, np.inf
    for _ in range(sweeps if len(links) else 0):
        new = np.log1p(gain * softmax((unary + links.into @ m)[links.source] - m[links.reverse]))
        change = float(np.abs(new - m).max())
        m = new if damping == 0.0 else (1.0 - damping) * new + damping * m
        if change < tol:
            break
        if change > 0.999 * before and change > 1e-3:
            damping = 0.5
        before = change
    incoming = links.into @ m if len(links) else np.zeros((N, K))
    total = unary + incoming
    log_z = float(log_sum(total).sum())
    if len(links):
        one_way = slice(0, len(links) // 2)
        p = softmax(total[links.source] - m[links.reverse])
        both = (np.exp(m[one_way]) * p[links.reverse[one_way]]).sum(axis=1)
        log_z -= float(np.log(both).sum())
    return Beliefs(m, softmax(total), softmax(field + incoming), log_z)


def mean_field(
    evidence: Floats, field: Floats, J: float, links: Links, state: Floats | None = None, *, sweeps: int = 200,
    tol: float = 1e-8,
) -> Beliefs:  # fmt: skip
    """All items at once, in steps that are halved whenever the bound would fall."""
    unary = field + evidence
    q = softmax(unary) if state is None else state
    step, bound = 1.0, mean_field_bound(q, unary, J, links)
    for _ in range(sweeps):
        goal = unary + neighbour_pull(q, J, links)
        while True:
            # Where the truth is known a logit is -inf, and stays so.
            with np.errstate(divide="ignore", invalid="ignore"):
                logit = np.where(np.isneginf(goal), -np.inf, step * goal + (1.0 - step) * np.log(np.maximum(q, 1e-300)))
            new = softmax(logit)
            value = mean_field_bound(new, unary, J, links)
            if value >= bound - 1e-12 * abs(bound) or step < 1e-3:
                break
            step /= 2.0
        change = float(np.abs(new - q).max())
        q, bound = new, max(value, bound)
        step = min(1.0, 1.5 * step)
        if change < tol:
            break
    return Beliefs(q, q, softmax(field + neighbour_pull(q, J, links)), bound)


def neighbour_pull(q: Floats, J: float, links: Links) -> Floats:
    """N x K: J w, summed over each item's neighbours of each class."""
    if not len(links):
        return np.zeros_like(q)
    return np.asarray(links.into @ (links.pull(J)[:, None] * q[links.source]))


def mean_field_bound(q: Floats, unary: Floats, J: float, links: Links) -> float:
    """sum q (h + l) + J sum over edges w q_i q_j + entropy, which is at most log Z."""
    inside = np.where(q > 0.0, unary, 0.0)
    entropy = -(q * np.log(np.maximum(q, 1e-300))).sum()
    return float((q * inside).sum() + 0.5 * (q * neighbour_pull(q, J, links)).sum() + entropy)


def balanced(field: Floats, beliefs: Beliefs) -> Floats:
    """The field under which classes are predicted as often as they are found."""
    observed, predicted = beliefs.posterior.sum(axis=0), beliefs.held_out.sum(axis=0)
    new = field + np.log(np.maximum(observed, 1e-12)) - np.log(np.maximum(predicted, 1e-12))
    return np.asarray(new - np.log(np.exp(new - new.max()).sum()) - new.max())


def held_out_log_likelihood(held_out: Floats, evidence: Floats, rows: npt.NDArray[Any] | slice = slice(None)) -> float:
    """sum_n log sum_k held_out[n, k] P(votes on n, given k): of every item's votes, given the others."""
    with np.errstate(divide="ignore"):
        return float(log_sum(np.log(held_out[rows]) + evidence[rows]).sum())


@dataclass
class GraphInference:
    """Inference on a graph: the votes as arrays, the links, and the last messages, where the next call starts."""

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
        """The posterior, starting from the last messages; without any, J rises in steps. Under a strong prior all items
        in one class may be a fixed point of its own, which is not to be started in."""
        for share in (0.25, 0.5, 0.75) if self.state is None else ():
            early = self.infer(evidence, field, share * J, self.links, self.state, sweeps=QUICK_SWEEPS, tol=1e-3)
            self.state = early.state
        beliefs = self.infer(evidence, field, J, self.links, self.state, sweeps=self.sweeps, tol=tol)
        self.state = beliefs.state
        return beliefs

    def held_out_score(self, evidence: Floats, field: Floats, J: float) -> tuple[float, Floats]:
        """The log-likelihood of each item's votes given the others', and the field that balances the classes."""
        look = partial(self.infer, evidence, J=J, links=self.links, sweeps=min(self.sweeps, QUICK_SWEEPS), tol=1e-3)
        beliefs = look(field=field, state=self.state)
        for _ in range(5 if self.learns_field else 0):
            before, field = field, balanced(field, beliefs)
            beliefs = look(field=field, state=beliefs.state)
            if np.abs(field - before).max() < 1e-2:
                break
        self.state = beliefs.state
        if self.fold is None:
            return held_out_log_likelihood(beliefs.held_out, evidence), field
        score = 0.0
        for fold in range(FOLDS):
            out = np.flatnonzero(self.fold == fold)
            kept = evidence.copy()
            kept[out] = 0.0
            left = self.infer(kept, field, J, self.links, None, sweeps=min(self.sweeps, QUICK_SWEEPS), tol=1e-3)
            score += held_out_log_likelihood(left.held_out, evidence, out)
        return score, field

    def search(self, evidence: Floats, field: Floats) -> tuple[float, Floats, float]:
        """The strength that predicts each item's votes best from the others', its field, and its gain over none."""
        self.state = None
        none, plain = self.held_out_score(evidence, field, 0.0)
        if not len(self.links):
            return 0.0, plain, 0.0
        tried, states, unit = [(0.0, none)], [self.state], self.links.scale
        for J in (step / unit for step in LADDER):
            tried.append((J, self.held_out_score(evidence, field, J)[0]))
            states.append(self.state)
            if tried[-1][1] < max(score for _, score in tried) - MIN_GAIN and J > tried[_best(tried)][0] * 1.9:
                break  # past the maximum
        at = _best(tried)
        low, high = tried[max(at - 1, 0)][0], tried[min(at + 1, len(tried) - 1)][0]

        def from_below(J: float) -> tuple[float, Floats]:
            self.state = states[max(at - 1, 0)]
            return self.held_out_score(evidence, field, J)

        J = maximise_1d(lambda J: from_below(J)[0], low, high, tol=SAME / unit)
        score, new = from_below(J)
        if score - none <= MIN_GAIN:
            return 0.0, plain, 0.0
        return J, new, score - none


def _best(tried: list[tuple[float, float]]) -> int:
    return max(range(len(tried)), key=lambda n: tried[n][1])


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
        more = {"item_prior": item_prior, "shared_prior": shared_prior, "callback": callback, "verbose": verbose}
        try:
            return super().fit(votes, gold, **more)
        finally:
            self.__dict__.pop("_graph", None)

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
        class_counts = priors.class_prior_counts(self.class_prior, votes)
        graph.learns_field = class_counts is None
        family = ConfusionFamily(full, priors.pseudo_counts(self.prior, self.history, votes, gold), class_counts)
        q = starts.initial_posterior(self.start, graph.part, votes, gold, self.random_state)
        first = em.statistics(graph.part, q)
        params = family.maximise(first)
        field, J, gain, runs = params.log_prior[0], 0.0, 0.0, list[dict[str, Any]]()
        held = class_counts is not None and self.strength != "learned"
        for _ in range(1 if held else 10):
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
            near = abs(J - before[0]) * links.scale <= SAME * max(1.0, J * links.scale)
            near &= (J > 0.0) == (before[0] > 0.0)
            if near and (J == 0.0 or np.abs(field - before[1]).max() < SAME):
                break
            if 0.0 < before[2] and gain < before[2] + MIN_GAIN and self.strength == "learned":
                break  # no further gain
        if J != 0.0:
            rounds = Rounds(self.max_iter, graph.part.n_votes, callback, len(runs))
            params = self._run_em(graph, family, params, field, J, self.tol, rounds)
            runs.append(rounds.outcome)
        beliefs = graph.beliefs(graph.evidence(params.log_score), field, J)
        self.strength_, self.gain_, self.field_, self.params_ = J, gain, field, params
        self.stats_ = em.statistics(graph.part, beliefs.posterior)
        return Outcome(
            posterior=beliefs.posterior, prior=normalise(beliefs.posterior.sum(axis=0), axis=0),
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
            beliefs = graph.beliefs(evidence, field, J)
            value = family.objective(beliefs.log_z - prior_z, params)
            if rounds.trace and value < rounds.trace[-1]:  # Bethe's log Z is not a bound on graphs with loops
                rounds.converged = True
                break
            if self.strength == "learned":
                score = held_out_log_likelihood(beliefs.held_out, evidence)
                if score < best[0] - MIN_GAIN:
                    _, accepted, graph.state, length = best
                    del rounds.trace[length:]
                    rounds.converged = True
                    break
                if score > best[0]:
                    best = (score, params, beliefs.state, len(rounds.trace) + 1)
            accepted = params
            rounds.reached(value, below=tol)
            if rounds.another():
                params = Params(family.maximise(em.statistics(graph.part, beliefs.posterior)).log_score, field[None])
        return accepted

    def _inference(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, links: Links) -> GraphInference:
        part, learns = Part.of(votes, gold, item_prior), self.class_prior == "learned"
        if self.inference == "mean-field":
            fold = predictive.item_folds(votes, FOLDS, gold)
            return GraphInference(part, links, mean_field, self.sweeps, fold, learns)
        return GraphInference(part, links, propagate, self.sweeps, None, learns)

    def _scores(self, votes: Votes) -> Floats:
        """log s of the annotators of these votes; unseen ones answer like the crowd as a whole."""
        return scores_with_unseen(self.params_.log_score, self.stats_.counts, votes.n_annotators, votes.n_classes)

    def _predict(self, votes: Votes) -> Floats:
        prior = safe_log(self._fitted().prior)[None]
        return em.expect(Part.of(votes), Params(self._scores(votes), prior), posterior=True)[1]
