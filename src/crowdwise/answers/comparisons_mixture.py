"""Groups of annotators with tastes of their own: a mixture of Bradley-Terry models.

Every annotator belongs to one of G groups, with probability w_g, and answers by the scores of that group:

    P(all answers of m) = sum_g w_g  prod over comparisons of m  P(outcome | scores s_g, tau_g)

============  ==================  ======  ========================================================
symbol        code                shape   meaning
============  ==================  ======  ========================================================
s_g           ``group_scores``    G x N   scores of a group, each centred at zero
w_g           ``group_weights``   G       shares of the groups, the largest first
              ``membership``      M x G   probability of every annotator to be of a group
============  ==================  ======  ========================================================

Fitted by EM: given memberships, the scores of a group are those of Bradley-Terry with every comparison counted by its
annotator's membership (Newton steps from the scores before, so what is maximised never falls). It begins with a split
along the directions in which annotators differ most from what all of them together say, and with random splits; the
best end is kept.

``scores`` are the mean of the groups' scores, weighted by their shares, with errors to which all groups' contribute;
that memberships are themselves not quite sure is left out of them. Fails where annotators made too few comparisons to
tell their taste (under ten or so), and says nothing of reliability: a group of spammers is a group with equal scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from crowdwise.answers import comparisons_newton
from crowdwise.answers.comparisons_bradley_terry import PairModel, ranked
from crowdwise.answers.comparisons_likelihood import Games, Model, derivatives, log_likelihood, log_prior, look
from crowdwise.core.checks import check_count
from crowdwise.core.constraints import Count, CountFromZero, NonNegative
from crowdwise.core.loop import Callback, Progress
from crowdwise.core.numerics import Floats, safe_log, softmax
from crowdwise.core.parameters import declared
from crowdwise.data.comparisons import Comparisons
from crowdwise.errors import InputError

__all__ = ["MixtureBT"]

STEPS = 2
"""Newton steps in an M-step."""


@dataclass(frozen=True)
class Tastes:
    """Where EM ended."""

    x: Floats
    """G x (N + 1 with ties): scores and tau of each group."""
    weights: Floats
    membership: Floats
    trace: Floats
    converged: bool


def row_log_likelihood(games: Games, model: Model, x: Floats) -> Floats:
    """log P of every comparison under one set of scores."""
    z = x[games.winner] - x[games.loser]
    d = games.decided
    if not model.ties:
        return -np.logaddexp(0.0, -z)
    tau = x[games.n_items]
    norm = np.logaddexp(np.logaddexp(0.5 * z, -0.5 * z), tau)
    return np.concatenate([0.5 * z[:d] - norm[:d], tau - norm[d:]])


def annotator_log_likelihood(games: Games, model: Model, x: Floats) -> Floats:
    """M x G: log P of all answers of every annotator under each group."""
    each = [
        np.bincount(games.annotator, games.weight * row_log_likelihood(games, model, row), games.n_annotators)
        for row in x
    ]
    return np.stack(each, axis=1)


def climb(
    games: Games, model: Model, x: Floats, membership: Floats, *, max_iter: int, tol: float, callback: Callback | None,
    restart: int,
) -> Tastes:  # fmt: skip
    """EM from some memberships."""
    n = float(games.weight.sum())
    trace: list[float] = []
    converged = False
    weights = membership.mean(axis=0)
    for t in range(1, max_iter + 1):
        x = np.stack([
            comparisons_newton.maximise(
                games.scaled(membership[:, g]), model, x[g], np.empty(0), max_iter=STEPS, tol=1e-12, total=n
            ).x
            for g in range(len(x))
        ])  # fmt: skip
        weights = membership.mean(axis=0)
        joint = annotator_log_likelihood(games, model, x) + safe_log(weights)
        top = joint.max(axis=1)
        value = float((top + np.log(np.exp(joint - top[:, None]).sum(axis=1))).sum())
        value += sum(log_prior(model, row, np.empty(0), games.n_items) for row in x)
        membership = softmax(joint)
        gain = value - trace[-1] if trace else np.inf
        trace.append(value)
        if callback is not None:
            callback(Progress(t, max_iter, value, gain / n if np.isfinite(gain) else 0.0, restart))
        if gain <= tol * n:
            converged = True
            break
    return Tastes(x, weights, membership, np.array(trace), converged)


def first_split(games: Games, model: Model, x: Floats, G: int) -> Floats:
    """Memberships along the directions in which annotators' answers differ from the scores of all together.

    Row m of a table of annotators and items holds what m's answers say against those scores (the gradient of their
    log likelihood), in units of its standard deviation; its leading singular vectors are split by distance.
    """
    from scipy.sparse import coo_array

    N, M = games.n_items, games.n_annotators
    _, rows = log_likelihood(games, Model("plain", model.ties, 0.0), x, np.empty(0))
    g, v = games.weight * rows["g"], games.weight * rows["v"]
    m, i, j = games.annotator, games.winner, games.loser
    A = coo_array((np.concatenate([g, -g]), (np.concatenate([m, m]), np.concatenate([i, j]))), shape=(M, N)).tocsr()
    scale = np.sqrt(np.bincount(m, v, M) + 1e-12)
    T = A.T.multiply(1.0 / scale[None, :]).tocsr()  # N x M
    values, vectors = np.linalg.eigh((T @ T.T).toarray())
    place = np.asarray(T.T @ vectors[:, ::-1][:, : max(G - 1, 1)])
    far = [int(np.argmax((place**2).sum(axis=1)))]  # the most unlike, then the most unlike those
    for _ in range(G - 1):
        gap = np.min([((place - place[k]) ** 2).sum(axis=1) for k in far], axis=0)
        far.append(int(gap.argmax()))
    gap = np.stack([((place - place[k]) ** 2).sum(axis=1) for k in far], axis=1)
    sure = np.full((M, G), 0.1 / max(G - 1, 1))
    sure[np.arange(M), gap.argmin(axis=1)] = 0.9
    return np.asarray(sure / sure.sum(axis=1, keepdims=True))


@declared
class MixtureBT(PairModel):
    """Groups of annotators, each with scores of its own.

    Parameters
    ----------
    groups
        G, the number of groups.
    restarts
        So many beginnings: one by the data, the others random; the best end is kept.
    prior, ties
        As in :class:`BradleyTerry`; the prior holds in every group.
    max_iter, tol
        Stop after so many passes, or when a pass gains less than ``tol`` per comparison.
    random_state
        Seed of the random beginnings and of the draws behind the intervals of ranks.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.comparisons(8, n_annotators=20, n_comparisons=3000, tastes=2, random_state=0)
    >>> ranking = MixtureBT().fit(crowd.comparisons).consensus_
    >>> same = ranking.membership.argmax(axis=1) == crowd.group
    >>> bool(same.all() or not same.any())
    True
    """

    key: ClassVar[str] = "mixture-bt"

    groups: int = 2
    restarts: CountFromZero = 3
    prior: float = 1.0
    ties: str = "davidson"
    max_iter: Count = 300
    tol: NonNegative = 1e-8

    def _check_together(self) -> None:
        super()._check_together()
        check_count(self, "groups")
        check_count(self, "restarts")

    def _fit(self, answers: Comparisons, callback: Callback | None) -> dict[str, Any]:
        if self.prior == 0.0 and self.groups > 1:
            raise InputError(
                "Without a prior the scores of a group that made few comparisons are not finite: give mixture-bt a "
                "prior above 0."
            )
        games = self._games(answers, by_annotator=True, placed=False)
        G, N, M = self.groups, answers.n_items, answers.n_annotators
        if M < G:
            raise InputError(f"groups={G}, and the comparisons are by {M} annotators: expected at most as many groups.")
        model = Model("plain", games.n_ties > 0, float(self.prior))
        rng = np.random.default_rng(self.random_state)
        pooled = comparisons_newton.maximise(
            games, model, self._start(games, model), np.empty(0), max_iter=20, tol=1e-8
        ).x
        # Random beginnings are dealt out by how annotators answered, so that their names do not matter.
        place = np.argsort(np.argsort(annotator_log_likelihood(games, model, pooled[None])[:, 0], kind="stable"))
        best: Tastes | None = None
        for restart in range(self.restarts if G > 1 else 1):
            split = first_split(games, model, pooled, G) if restart == 0 else rng.dirichlet(np.ones(G), size=M)[place]
            found = climb(
                games, model, np.tile(pooled, (G, 1)), split, max_iter=self.max_iter, tol=self.tol, callback=callback,
                restart=restart,
            )  # fmt: skip
            if best is None or found.trace[-1] > best.trace[-1]:
                best = found
        assert best is not None
        order = np.argsort(-best.weights, kind="stable")
        weights = best.weights[order]
        scores, errors, draws, taus = [], [], [], []
        for g in order.tolist():
            x, mine = best.x[g], games.scaled(best.membership[:, g])
            end = derivatives(mine, model, x, np.empty(0), look(mine, model, x, np.empty(0))[1](True))
            s = x[:N] - x[:N].mean()
            spread = comparisons_newton.covariance(end, s, free=self.prior == 0.0, rng=rng)
            scores.append(s)
            errors.append(spread.scores)
            draws.append(spread.draws)
            taus.append(float(x[N]) if model.ties else np.nan)
        mean = weights @ np.array(scores)
        return ranked(
            answers, games, mean, np.sqrt(weights**2 @ np.array(errors) ** 2),
            np.tensordot(weights, np.array(draws), axes=1).astype(np.float32),
            trace=best.trace, iterations=len(best.trace), converged=best.converged,
            group_scores=np.array(scores), group_errors=np.array(errors), group_weights=weights,
            membership=best.membership[:, order], tie=float(weights @ taus) if model.ties else None,
        )  # fmt: skip
