"""The strength of a Potts prior: the one that predicts the votes on each item best from those on the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from crowdwise.answers.graph_potts import Beliefs, Links, balanced, held_out_log_likelihood
from crowdwise.core.em import Part
from crowdwise.core.numerics import Floats, Ints, maximise_1d
from crowdwise.kernels import reference

LADDER = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Strengths tried, from weak to strong; the best is refined between its neighbours."""
MIN_GAIN = 5.41
"""The minimum gain of a learned strength, in nats: half the 99.9% quantile of chi-squared with one degree of freedom.

A false positive is costly: annotators would then be fitted to the graph, and the graph to them.
"""
FOLDS = 5
"""Mean field does not give the class of an item without its own votes: they are held out by fifths of the items."""
QUICK_SWEEPS, BALANCE = 30, 5
"""Passes over the edges, and changes of the field, for every strength that is tried: from where the last one ended."""
ANNEAL = (0.25, 0.5, 0.75)
SAME = 0.04
"""Two strengths closer than this are one."""


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
        for share in ANNEAL if self.state is None else ():
            early = self.infer(evidence, field, share * J, self.links, self.state, sweeps=QUICK_SWEEPS, tol=1e-3)
            self.state = early.state
        found = self.infer(evidence, field, J, self.links, self.state, sweeps=self.sweeps, tol=tol)
        self.state = found.state
        return found

    def held_out_score(self, evidence: Floats, field: Floats, J: float) -> tuple[float, Floats]:
        """The log-likelihood of each item's votes given the others', and the field that balances the classes."""
        look = partial(self.infer, evidence, J=J, links=self.links, sweeps=min(self.sweeps, QUICK_SWEEPS), tol=1e-3)
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
            return held_out_log_likelihood(found.held_out, evidence), field
        score = 0.0
        for fold in range(FOLDS):
            out = np.flatnonzero(self.fold == fold)
            some = evidence.copy()
            some[out] = 0.0
            left = self.infer(some, field, J, self.links, None, sweeps=min(self.sweeps, QUICK_SWEEPS), tol=1e-3)
            score += held_out_log_likelihood(left.held_out, evidence, out)
        return score, field

    def search(self, evidence: Floats, field: Floats) -> tuple[float, Floats, float]:
        """The strength that predicts each item's votes best from the others', its field, and its gain over none."""
        self.state = None
        none, plain = self.held_out_score(evidence, field, 0.0)
        if not len(self.links):
            return 0.0, plain, 0.0
        tried, states = [(0.0, none)], [self.state]
        for J in LADDER:
            tried.append((J, self.held_out_score(evidence, field, J)[0]))
            states.append(self.state)
            if tried[-1][1] < max(score for _, score in tried) - MIN_GAIN and J > tried[_best(tried)][0] * 1.9:
                break  # past the maximum
        at = _best(tried)
        low, high = tried[max(at - 1, 0)][0], tried[min(at + 1, len(tried) - 1)][0]

        def from_below(J: float) -> tuple[float, Floats]:
            self.state = states[max(at - 1, 0)]
            return self.held_out_score(evidence, field, J)

        J = maximise_1d(lambda J: from_below(J)[0], low, high, tol=SAME)
        score, new = from_below(J)
        if score - none <= MIN_GAIN:
            return 0.0, plain, 0.0
        return J, new, score - none


def _best(tried: list[tuple[float, float]]) -> int:
    return max(range(len(tried)), key=lambda n: tried[n][1])
