"""Groups of annotators with preferences of their own: a mixture of Bradley-Terry models.

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
annotator's membership (Newton steps from the scores before, so the objective never falls). It starts from a split along
the directions in which annotators differ most from the scores of all together, and from random splits; the best optimum
is kept.

``scores`` are the mean of the groups' scores, weighted by their shares, with errors to which all groups' contribute;
the uncertainty of memberships is left out of them. Fails where annotators made too few comparisons to identify their
group (under ten or so), and does not model reliability: a group of spammers is a group with equal scores.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from crowdwise.answers import comparisons_uncertainty
from crowdwise.answers.comparisons_bradley_terry import PairModel, start
from crowdwise.answers.comparisons_likelihood import Likelihood, MatchObjective, log_likelihood, log_prior
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.answers.comparisons_newton import maximise
from crowdwise.core.constraints import Count, CountFromZero, Positive, declared
from crowdwise.core.loop import Callback, Rounds
from crowdwise.core.numerics import Floats, safe_log, softmax
from crowdwise.data.comparisons import Comparisons
from crowdwise.errors import InputError

Fit = tuple[Floats, Floats, Floats, Rounds]
"""Where EM ended: scores and tau of each group (G x N + 1 with ties), their weights, memberships, and the rounds."""


def annotator_log_likelihood(matches: Matches, model: Likelihood, x: Floats) -> Floats:
    """M x G: log P of all answers of every annotator under each group."""
    each = [log_likelihood(matches, model, row, np.empty(0))[1]["log_p"] for row in x]
    return np.stack([np.bincount(matches.annotator, matches.weight * log_p, matches.n_annotators) for log_p in each], 1)


def run_em(matches: Matches, model: Likelihood, x: Floats, membership: Floats, tol: float, rounds: Rounds) -> Fit:
    """EM from some memberships, until a round gains at most ``tol`` per comparison."""
    n = float(matches.weight.sum())
    for _ in rounds:
        own = [MatchObjective(matches.scaled(membership[:, g]), model) for g in range(len(x))]
        ends = [maximise(one, row, max_iter=2, tol=1e-12, weight=n) for one, row in zip(own, x, strict=True)]
        x = np.stack([end.x for end in ends])
        weights = membership.mean(axis=0)
        joint = annotator_log_likelihood(matches, model, x) + safe_log(weights)
        top = joint.max(axis=1)
        value = float((top + np.log(np.exp(joint - top[:, None]).sum(axis=1))).sum())
        value += sum(log_prior(model, row, np.empty(0), matches.n_items) for row in x)
        membership = softmax(joint)
        gain = value - rounds.trace[-1] if rounds.trace else np.inf
        rounds.reached(value, converged=gain <= tol * n)
    return x, weights, membership, rounds


def first_split(matches: Matches, model: Likelihood, x: Floats, G: int) -> Floats:
    """Memberships along the directions in which annotators' answers differ from the scores of all together.

    Row m of a table of annotators and items is the gradient of the log likelihood of m's answers at those scores, in
    units of its standard deviation; its leading singular vectors are split by distance.
    """
    from scipy.sparse import coo_array

    N, M = matches.n_items, matches.n_annotators
    _, rows = log_likelihood(matches, Likelihood("plain", model.ties, 0.0), x, np.empty(0))
    g, v = matches.weight * rows["g"], matches.weight * rows["v"]
    m, i, j = matches.annotator, matches.winner, matches.loser
    A = coo_array((np.concatenate([g, -g]), (np.concatenate([m, m]), np.concatenate([i, j]))), shape=(M, N)).tocsr()
    scale = np.sqrt(np.bincount(m, v, M) + 1e-12)
    T = A.T.multiply(1.0 / scale[None, :]).tocsr()  # N x M
    values, vectors = np.linalg.eigh((T @ T.T).toarray())
    place = np.asarray(T.T @ vectors[:, ::-1][:, : max(G - 1, 1)])
    gaps = [(place**2).sum(axis=1)]  # to the most unlike, then to the most unlike those
    for _ in range(G):
        far = place[np.min(gaps[1:] or gaps, axis=0).argmax()]
        gaps.append(((place - far) ** 2).sum(axis=1))
    sure = np.full((M, G), 0.1 / max(G - 1, 1))
    sure[np.arange(M), np.argmin(gaps[1:], axis=0)] = 0.9
    return np.asarray(sure / sure.sum(axis=1, keepdims=True))


@declared
class MixtureBT(PairModel):
    """Groups of annotators, each with scores of its own and the prior of :class:`BradleyTerry`.

    Parameters
    ----------
    n_groups
        G, the number of groups.
    restarts
        How many further, random starts to try; the best objective is kept.
    max_iter, tol
        Stop after so many passes, or when a pass gains less than ``tol`` per comparison.
    random_state
        Seed of the random starts and of the draws behind the intervals of ranks.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.comparisons(8, n_annotators=20, n_comparisons=3000, n_groups=2, random_state=0)
    >>> ranking = MixtureBT().fit(crowd.comparisons).consensus_
    >>> same = ranking.membership.argmax(axis=1) == crowd.group
    >>> bool(same.all() or not same.any())
    True
    """

    key: ClassVar[str] = "mixture-bt"

    n_groups: Count = 2
    restarts: CountFromZero = 2
    max_iter: Count = 300
    tol: Positive = 1e-8

    def _fit(self, answers: Comparisons, callback: Callback | None) -> dict[str, Any]:
        if self.prior == 0.0 and self.n_groups > 1:
            raise InputError(
                "Without a prior the scores of a group that made few comparisons are not finite: give mixture-bt a "
                "prior above 0."
            )
        matches = self._matches(answers, by_annotator=True)
        G, N, M = self.n_groups, answers.n_items, answers.n_annotators
        if M < G:
            raise InputError(f"n_groups={G}, and there are {M} annotators: expected at most as many groups.")
        model = self._likelihood(matches)
        rng = np.random.default_rng(self.random_state)
        pooled = maximise(MatchObjective(matches, model), start(matches, model), max_iter=20, tol=1e-8).x
        # Random starts are dealt out in the order of the annotators' likelihoods, so that their names do not matter.
        place = np.argsort(np.argsort(annotator_log_likelihood(matches, model, pooled[None])[:, 0], kind="stable"))
        splits = [first_split(matches, model, pooled, G)]
        splits += [rng.dirichlet(np.ones(G), size=M)[place] for _ in range(self.restarts if G > 1 else 0)]
        fits = []
        for restart, split in enumerate(splits):
            rounds = Rounds(self.max_iter, float(matches.weight.sum()), callback, restart)
            fits.append(run_em(matches, model, np.tile(pooled, (G, 1)), split, self.tol, rounds))
        x, weights, membership, rounds = max(fits, key=lambda fit: fit[3].trace[-1])
        order = np.argsort(-weights, kind="stable")
        x, weights, membership = x[order], weights[order], membership[:, order]
        scores = x[:, :N] - x[:, :N].mean(axis=1, keepdims=True)
        spreads = []
        for g, s in enumerate(scores):
            end = MatchObjective(matches.scaled(membership[:, g]), model).at(x[g], np.empty(0)).derivatives(True)
            spreads.append(comparisons_uncertainty.covariance(end, s, free=self.prior == 0.0, rng=rng))
        errors = np.array([spread.scores for spread in spreads])
        return self._ranked(answers, matches, rounds.outcome | {
            "scores": weights @ scores, "errors": np.sqrt(weights**2 @ errors**2),
            "draws": np.tensordot(weights, np.array([spread.draws for spread in spreads]), axes=1).astype(np.float32),
            "group_scores": scores, "group_errors": errors, "group_weights": weights, "membership": membership,
            "tie": float(weights @ x[:, N]) if model.ties else None,
        })  # fmt: skip
