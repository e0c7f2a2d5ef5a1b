"""Crowd clustering: clusters of items from answers on whether two of them are the same, by annotators who err.

Every item is in one of K clusters. Asked about items i and j, annotator m says "the same" with probability alpha[m] if
they are in the same cluster, and with probability 1 - beta[m] if they are not:

    z[i] ~ pi        P(same | z[i] = z[j]) = alpha[m]        P(same | z[i] != z[j]) = 1 - beta[m]

A stochastic block model with two rates for each annotator, which is fitted by variational Bayes: q(z) = prod phi[i],
Beta posteriors of the rates, a Dirichlet posterior of pi.

===============  =============  ========  ==================================================================
symbol           code           shape     equation
===============  =============  ========  ==================================================================
phi[i, k]        ``q``          N x K     softmax_k( E log pi[k] + sum_j U[i, j] phi[j, k] )
r[p]             ``together``   P         sum_k phi[i, k] phi[j, k] for the pair p = (i, j)
U[p]             ``U``          P         sum over answers on p of  E log alpha - E log(1 - beta)   (same)
                                                               or  E log(1 - alpha) - E log beta   (different)
c[m, t, s]       ``counts``     M x 2 x 2 expected answers s of m on pairs that are (t = 1) or are not the same
a, b             ``hyper``      2 x 2     Beta prior of the rates of all annotators, learned with them
===============  =============  ========  ==================================================================

    J = sum_m log B(a + c[m,1,1], b + c[m,1,0]) / B(a, b)  +  the same for beta
      + log B(1 + sum_i phi[i]) / B(1)  +  H(phi)  +  log p(a, b)

is a lower bound of the log probability of the answers. Items are updated in colours: no two items of a colour share a
pair, so a whole colour moves at once and J still never falls.

Reference: R. Gomes, P. Welinder, A. Krause and P. Perona, Crowdclustering, NIPS 2011, for the problem; J.-J. Daudin,
F. Picard and S. Robin, A mixture model for random graphs, Statistics and Computing 18 (2008), for the inference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdwise.answers.answer_model import AnswerModel
from crowdwise.core.constraints import Count, CountFromZero, NonNegative, declared
from crowdwise.core.intervals import row_interval, with_interval
from crowdwise.core.loop import Callback, Rounds
from crowdwise.core.numerics import Floats, Ints, entropy, softmax
from crowdwise.core.result import Result, adjusted_rand, some_known
from crowdwise.data import encoding
from crowdwise.data.similarities import Similarities
from crowdwise.data.truth import encode_partition
from crowdwise.errors import InputError, ParameterError, listing


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Clustering(Result):
    """Clusters of items. Frozen; saves to and loads from a plain folder.

    Attributes
    ----------
    posterior
        N x K: P(item n is in cluster k, given all).
    cluster_codes, clusters
        The most probable cluster of each item, counted from 0, and as it is called in tables (counted from 1).
    prior
        K: the share of each cluster.
    sensitivity, specificity
        M: P(annotator says the same | they are), P(says different | they are).
    counts, spread
        M x 2 x 2 expected answers (annotator, truly the same, said the same), and their posterior variance.
    component
        N: the connected part of the graph of pairs an item is in; no answer says how clusters of different parts
        belong together.
    tried, evidence
        The numbers of clusters that were tried, and their evidence (a lower bound of the log probability of the
        answers); empty where the method does not compare them.
    """

    TABLES: ClassVar[tuple[str, ...]] = ("items", "annotators", "clusters")
    SHAPES: ClassVar[dict[str, str]] = Result.SHAPES | {
        "posterior": "NK", "prior": "K", "cluster_codes": "N<K", "sensitivity": "M", "specificity": "M",
        "counts": "M22", "spread": "M22", "answers_per_item": "N", "answers_per_annotator": "M", "agreement": "M",
        "component": "N<N", "tried": "C", "evidence": "C",
    }  # fmt: skip

    answer_type: str = "similarities"
    items: npt.NDArray[Any]
    posterior: Floats
    cluster_codes: npt.NDArray[np.int32]
    prior: Floats
    sensitivity: Floats
    specificity: Floats
    counts: Floats
    spread: Floats
    answers_per_item: Ints
    answers_per_annotator: Ints
    agreement: Floats
    """The share of each annotator's answers that say what the clusters say."""
    component: npt.NDArray[np.int32]
    tried: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    evidence: Floats = field(default_factory=lambda: np.empty(0))

    def __repr__(self) -> str:
        sure = float(self.posterior.max(axis=1).mean()) if len(self.posterior) else float("nan")
        size = f"{len(self.items):,} items in {len(np.unique(self.cluster_codes))} clusters"
        of = f"{size}, {len(self.annotators):,} annotators"
        return f"Clustering({self.method}: {of}; mean probability {sure:.3f}, {self.iterations} iterations)"

    @property
    def clusters(self) -> npt.NDArray[np.int64]:
        """The cluster of each item, counted from 1."""
        return self.cluster_codes.astype(np.int64) + 1

    def score(self, truth: Any) -> float:
        """The adjusted Rand index against known classes: 1 is a perfect match, 0 chance. ``truth`` is a mapping from
        item to class, or N class codes with -1 for unknown."""
        true = self.truth_codes(truth)
        known = some_known(true >= 0)
        return adjusted_rand(self.cluster_codes[known], true[known], np.ones(int(known.sum())))

    def truth_codes(self, truth: Any) -> Ints:
        """N class codes (-1 unknown) from a mapping of items to classes, or from N classes in the items' order."""
        return encode_partition(truth, self.items)[0]

    def co_cluster_probability(self, first: Any, second: Any) -> float:
        """P(two items, by name, are in the same cluster), from each item's own probabilities."""
        names = encoding.to_vocabulary([first, second])
        at = encoding.locate(names, self.items)
        if (at < 0).any():
            raise InputError(f"There is no item {listing(names[at < 0])}: there are {listing(self.items)}.")
        return float(self.posterior[at[0]] @ self.posterior[at[1]]) if at[0] != at[1] else 1.0

    def rate_interval(self, which: str, level: float = 0.95) -> tuple[Floats, Floats]:
        """The two ends of an interval for every annotator's ``"sensitivity"`` or ``"specificity"``."""
        self._check_table("annotators", level)
        if which not in ("sensitivity", "specificity"):
            raise ParameterError(f"{which!r}: expected 'sensitivity' or 'specificity'.")
        _, low, high = row_interval(self.counts, self.spread, int(which == "sensitivity"), level)
        value = getattr(self, which)
        return np.minimum(low, value), np.maximum(high, value)

    def _columns(self, table: str, level: float) -> dict[str, Any]:
        if table == "items":
            return {
                "item": self.items, "cluster": self.clusters,
                "probability": self.posterior[np.arange(len(self.posterior)), self.cluster_codes],
                "entropy": entropy(self.posterior), "answers": self.answers_per_item, "component": self.component,
            }  # fmt: skip
        if table == "clusters":
            K, top = self.posterior.shape[1], self.posterior.max(axis=1)
            count = np.bincount(self.cluster_codes, minlength=K)
            total = np.bincount(self.cluster_codes, top, K)
            return {
                "cluster": np.arange(1, K + 1), "items": count, "share": self.prior,
                "cohesion": np.divide(total, count, out=np.full(K, np.nan), where=count > 0),
            }  # fmt: skip
        columns: dict[str, Any] = {"annotator": self.annotators, "answers": self.answers_per_annotator}
        for name in ("sensitivity", "specificity"):
            columns |= with_interval(name, getattr(self, name), *self.rate_interval(name, level))
        return columns | {"agreement": self.agreement}


def canonical(q: Floats) -> Ints:
    """The order of clusters in which results number them: by size, then by first item."""
    K = q.shape[1]
    code = q.argmax(axis=1)
    size, first = np.bincount(code, minlength=K), np.full(K, len(q))
    np.minimum.at(first, code, np.arange(len(q)))
    return np.lexsort((-q.sum(axis=0), first, -size))


def tallied(cell: Ints, weight: Floats, M: int) -> Floats:
    """M x 2 x 2: sums of 2 x S weights; ``cell`` is annotator * 2 + said the same, for every answer."""
    return np.stack([np.bincount(cell, row, 2 * M).reshape(M, 2) for row in weight], axis=1)


def agreements(answers: Similarities, q: Floats) -> dict[str, Any]:
    """The fields of a result that follow from the answers and the probabilities of the items' clusters."""
    M, pair, weight = answers.n_annotators, answers.pair, answers.weights
    together = (q[answers.pairs[:, 0]] * q[answers.pairs[:, 1]]).sum(axis=1)[pair]
    code = q.argmax(axis=1)
    confirmed = (code[answers.pairs[:, 0]] == code[answers.pairs[:, 1]])[pair] == answers.same
    cell, p = answers.annotator.astype(np.int64) * 2 + answers.same, np.stack([1.0 - together, together])
    per_annotator = np.bincount(answers.annotator, minlength=M)
    per_item = np.bincount(answers.pairs[pair].ravel(), minlength=len(answers))
    agrees = np.bincount(answers.annotator[confirmed], minlength=M)
    return {
        "counts": tallied(cell, weight * p, M), "spread": tallied(cell, weight * p * (1.0 - p), M),
        "answers_per_item": per_item, "answers_per_annotator": per_annotator,
        "agreement": np.divide(agrees, per_annotator, out=np.full(M, np.nan), where=per_annotator > 0),
        "component": answers.components(),
    }  # fmt: skip


FIRST_HYPER = np.array([[2.0, 1.0], [1.0, 2.0]])
"""[t, s]: the Beta prior of the rates before it is learned, with one answer in three wrong."""
SOFT = 0.1
"""The share of a start's probability that is spread over all clusters."""


@dataclass(frozen=True)
class PairArrays:
    """Answers as arrays: pairs with their annotators, and the rows of the pair matrix by colour."""

    N: int
    M: int
    pairs: Ints
    pair: Ints
    cell: Ints
    """annotator * 2 + said the same, for every answer."""
    weight: Floats
    blocks: list[tuple[Ints, Any, Ints]]
    """For each colour: its items, their rows of the pair matrix (to be filled), and the pairs of its entries."""

    @classmethod
    def of(cls, answers: Similarities) -> PairArrays:
        from scipy.sparse import csr_array

        N, P, pairs = len(answers), answers.n_pairs, answers.pairs.astype(np.int64)
        ends = np.concatenate([pairs, pairs[:, ::-1]])
        # The entries of the matrix are numbers of pairs (from 1 on, as 0 would not be stored).
        number = csr_array((np.tile(np.arange(1, P + 1), 2), (ends[:, 0], ends[:, 1])), shape=(N, N))
        parts = [(rows, number[rows]) for rows in colours(pairs, N)]
        blocks = [(rows, part.astype(np.float64), part.data - 1) for rows, part in parts]
        cell = answers.annotator.astype(np.int64) * 2 + answers.same
        return cls(N, answers.n_annotators, pairs, answers.pair, cell, answers.weights, blocks)

    def together(self, q: Floats) -> Floats:
        """r[p]: the probability that the two items of a pair are in one cluster."""
        return np.asarray((q[self.pairs[:, 0]] * q[self.pairs[:, 1]]).sum(axis=1))

    def counts(self, r: Floats) -> Floats:
        """c[m, t, s]: expected answers by whether the pair is the same (t), and was said to be (s)."""
        return tallied(self.cell, self.weight * np.stack([1.0 - r[self.pair], r[self.pair]]), self.M)

    def meant(self, q: Floats) -> bool:
        """Whether answers mean what they say, each item in its likeliest cluster: see the module."""
        code = q.argmax(axis=1)
        together = (code[self.pairs[:, 0]] == code[self.pairs[:, 1]]).astype(np.float64)
        (apart, apart_same), (different, same) = self.counts(together).sum(axis=0)
        n, m = same + different, apart + apart_same
        if same >= different or not m:
            return bool(same >= different)
        share = (same + apart_same) / (n + m)
        error = np.sqrt(share * (1.0 - share) * (1.0 / n + 1.0 / m))
        return bool(same / n - apart_same / m > 2.0 * error)


def colours(pairs: Ints, N: int) -> list[Ints]:
    """The items in sets without a pair inside, by random priorities (Jones and Plassmann 1993), seeded; one by one
    where there are more than a quarter of all pairs."""
    if len(pairs) > 0.25 * N * (N - 1) / 2:
        return [np.array([i]) for i in range(N)]
    priority = np.random.default_rng(0).permutation(N)
    left, edge, sets = np.ones(N, dtype=bool), pairs, []
    while left.any():
        rival = np.full(N, -1)
        np.maximum.at(rival, edge[:, 0], priority[edge[:, 1]])
        np.maximum.at(rival, edge[:, 1], priority[edge[:, 0]])
        chosen = left & (priority > rival)
        sets.append(np.flatnonzero(chosen))
        left &= ~chosen
        edge = edge[left[edge].all(axis=1)]
    return sets


def rates(counts: Floats, hyper: Floats) -> Floats:
    """E log P(answer s | truth t) for each annotator, under the Beta posterior: M x 2 x 2."""
    from scipy.special import digamma

    post = counts + hyper
    return np.asarray(digamma(post) - digamma(post.sum(axis=2, keepdims=True)))


def sweep(graph: PairArrays, q: Floats, log_rate: Floats) -> None:
    """One coordinate ascent over all items, in place."""
    from scipy.special import digamma

    log_odds = (log_rate[:, 1] - log_rate[:, 0]).ravel()[graph.cell] * graph.weight
    U = np.bincount(graph.pair, weights=log_odds, minlength=len(graph.pairs))
    mass = 1.0 + q.sum(axis=0)
    log_pi = digamma(mass) - digamma(mass.sum())
    for rows, matrix, entry in graph.blocks:
        matrix.data[:] = U[entry]
        q[rows] = softmax(log_pi + matrix @ q)


def learn_hyper(counts: Floats, hyper: Floats) -> Floats:
    """A few steps uphill on the probability of the counts under a common Beta prior, which has a Gamma prior itself.

    a <- (a sum_m [psi(a + c_m) - psi(a)] + 1) / (sum_m [psi(a + b + n_m) - psi(a + b)] + 1 / a0): a fixed point that
    never falls (Minka 2000); the Gamma prior has its mode at a0 and is worth one observation.
    """
    from scipy.special import digamma

    for _ in range(5):
        total, n = hyper.sum(axis=1, keepdims=True), counts.sum(axis=2, keepdims=True)
        gain = hyper * (digamma(hyper + counts) - digamma(hyper)).sum(axis=0) + 1.0
        cost = (digamma(total + n) - digamma(total)).sum(axis=0) + 1.0 / FIRST_HYPER
        hyper = gain / cost
    return np.asarray(hyper)


def bound(q: Floats, counts: Floats, hyper: Floats, pool: bool) -> float:
    """J: the lower bound, with the posteriors of rates and shares at their best for these counts."""
    from scipy.special import betaln, gammaln, xlogy

    N, K = q.shape
    fit = float((betaln(*np.moveaxis(counts + hyper, 2, 0)) - betaln(*hyper.T)).sum())
    shares = float(gammaln(K) - gammaln(K + N) + gammaln(1.0 + q.sum(axis=0)).sum())
    held = float((np.log(hyper) - hyper / FIRST_HYPER).sum()) if pool else 0.0
    return fit + shares - float(xlogy(q, q).sum()) + held


def embed(answers: Similarities, dimensions: int) -> Floats:
    """N x D: leading eigenvectors of the pair matrix, its answers centred and its rows normalised by degree."""
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import eigsh

    N, weight = len(answers), answers.weights
    mean = float((weight @ answers.same + 1.0) / (weight.sum() + 2.0))
    value = np.bincount(answers.pair, weights=weight * (answers.same - mean), minlength=answers.n_pairs)
    size = np.bincount(answers.pair, weights=weight * np.abs(answers.same - mean), minlength=answers.n_pairs)
    a, b = answers.pairs.T.astype(np.int64)
    degree = np.bincount(np.concatenate([a, b]), weights=np.tile(size, 2), minlength=N).astype(np.float64)
    degree = degree + (degree[degree > 0].mean() if (degree > 0).any() else 1.0)  # else few pairs dominate
    value = value / np.sqrt(degree[a] * degree[b])
    matrix = csr_array((np.tile(value, 2), (np.concatenate([a, b]), np.concatenate([b, a]))), shape=(N, N))
    D = min(dimensions, N)
    if N <= max(200, 2 * D + 1):
        values, vectors = np.linalg.eigh(matrix.toarray())
    else:
        values, vectors = eigsh(matrix, k=D, which="LA", v0=np.random.default_rng(0).normal(size=N))
    top = np.argsort(-values)[:D]
    return np.asarray(vectors[:, top] * np.maximum(values[top], 0.0))


def kmeans(x: Floats, K: int, rng: np.random.Generator | None = None, steps: int = 30) -> Ints:
    """Groups of rows; the first centres lie far from each other (drawn by squared distance with a generator)."""
    at = [int(np.argmax((x * x).sum(axis=1))) if rng is None else int(rng.integers(len(x)))]
    gap = ((x - x[at[0]]) ** 2).sum(axis=1)
    while len(at) < K:
        total = gap.sum()
        at.append(int(gap.argmax() if rng is None or total <= 0 else rng.choice(len(x), p=gap / total)))
        gap = np.minimum(gap, ((x - x[at[-1]]) ** 2).sum(axis=1))
    centres, code = x[at], np.zeros(len(x), dtype=np.int64)
    for _ in range(steps):
        code = ((centres * centres).sum(axis=1) - 2.0 * x @ centres.T).argmin(axis=1)
        for k in np.unique(code):
            centres[k] = x[code == k].mean(axis=0)
    return code


def as_said(answers: Similarities) -> Ints:
    """Items in one group where a chain of pairs joins them that most answers call the same."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    N, sign = len(answers), np.where(answers.same, 1.0, -1.0)
    joined = np.bincount(answers.pair, weights=answers.weights * sign, minlength=answers.n_pairs) > 0.0
    a, b = answers.pairs[joined].T
    return np.asarray(connected_components(csr_array((np.ones(len(a)), (a, b)), shape=(N, N)))[1], dtype=np.int64)


def soft(code: Ints, K: int) -> Floats:
    """N x K: nearly all on the given cluster."""
    q = np.full((len(code), K), SOFT / K)
    q[np.arange(len(code)), code] += 1.0 - SOFT
    return q


@dataclass(frozen=True)
class ClusteringRun:
    """Where one run of passes ended."""

    q: Floats
    counts: Floats
    hyper: Floats
    rounds: Rounds
    meant: bool
    """Whether answers mean what they say."""

    @property
    def objective(self) -> float:
        return self.rounds.trace[-1]

    @property
    def evidence(self) -> float:
        """J, for all the ways in which the clusters in use could be numbered."""
        from scipy.special import gammaln

        K = self.q.shape[1]
        used = len(np.unique(self.q.argmax(axis=1)[self.q.max(axis=1) > 0.5]))  # none where all items are undecided
        return self.objective + float(gammaln(K + 1) - gammaln(K - used + 1))


def better(one: ClusteringRun, other: ClusteringRun) -> ClusteringRun:
    """The first of two fits with the same number of clusters, unless the second has answers that mean what they say and
    the first has not, or the larger objective."""
    return other if (other.meant, other.objective) > (one.meant, one.objective) else one


@declared
class CrowdClustering(AnswerModel[Similarities, Clustering]):
    """Clusters of items from same-or-different answers, with a sensitivity and a specificity for each annotator.

    Parameters
    ----------
    n_clusters
        K; ``None``: the number with the largest evidence.
    max_clusters
        The largest number that is tried where it is left open.
    pool
        Learn the distribution of the annotators' rates, and shrink each one's towards it; otherwise every rate has the
        prior Beta(2, 1).
    restarts
        How many further, random starts from the same spectral embedding to try; the best objective is kept.
    max_iter, tol
        Stop after so many passes, or when one gains less than ``tol`` per answer.
    random_state
        Seed of the further starts.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.similarities(60, n_clusters=3, n_annotators=8, random_state=0)
    >>> found = cw.aggregate(crowd.answers, "crowd-clustering")
    >>> len(set(found.clusters.tolist())), found.score(crowd.truth)
    (3, 1.0)
    """

    key: ClassVar[str] = "crowd-clustering"
    table: ClassVar[type] = Similarities
    result: ClassVar[type] = Clustering

    n_clusters: Count | None = None
    max_clusters: Count = 20
    pool: bool = True
    restarts: CountFromZero = 9
    max_iter: Count = 200
    tol: NonNegative = 1e-6

    def _fit(self, answers: Similarities, callback: Callback | None) -> dict[str, Any]:
        if self.n_clusters is not None and self.n_clusters > len(answers):
            raise InputError(f"n_clusters={self.n_clusters} is more than the {len(answers)} items.")
        graph = PairArrays.of(answers)
        notes, tried = [], dict[int, float]()
        if self.n_clusters is not None:
            best = self._best(graph, answers, int(self.n_clusters), callback, self.restarts)
        else:
            best, tried = self._search(graph, answers, callback)
            if not best.meant:
                notes.append(
                    "Most answers about items in one cluster say that these are different, with any number of clusters "
                    f"up to {max(tried)}: there are more, or the answers say little."
                )
        q = best.q[:, canonical(best.q)]
        post = best.counts + best.hyper
        rate = post / post.sum(axis=2, keepdims=True)
        return {
            "posterior": q, "cluster_codes": q.argmax(axis=1).astype(np.int32),
            "prior": (1.0 + q.sum(axis=0)) / (q.shape[1] + len(q)), "sensitivity": rate[:, 1, 1].copy(),
            "specificity": rate[:, 0, 0].copy(), **agreements(answers, q),
            "tried": np.array(list(tried), dtype=np.int64),
            "evidence": np.array(list(tried.values()), dtype=np.float64), "notes": notes, **best.rounds.outcome,
        }  # fmt: skip

    def _search(
        self, graph: PairArrays, answers: Similarities, callback: Callback | None
    ) -> tuple[ClusteringRun, dict[int, float]]:
        """1, 2, 4, 8... clusters up to the maximum, then ever closer around the best of them."""
        most = min(self.max_clusters, len(answers))
        fits: dict[int, ClusteringRun] = {}

        def evidence(K: int) -> tuple[bool, float]:
            if K not in fits:
                fits[K] = self._best(graph, answers, K, callback, min(self.restarts, 2))
            return fits[K].meant, fits[K].evidence

        ladder = sorted({1, most, *(2**n for n in range(1, most.bit_length()) if 2**n <= most)})
        best = max(ladder, key=evidence)
        step = best
        while step > 1:
            step = (step + 1) // 2
            best = max([K for K in (best, best - step, best + step) if 1 <= K <= most], key=evidence)
        fits[best] = better(fits[best], self._best(graph, answers, best, callback, self.restarts))
        fit = self._without_empty(graph, fits[best], callback)
        code = as_said(answers)
        if not fit.meant and code.max() < most:
            literal = self._once(graph, code, callback)
            fit = literal if literal.meant else fit
        return fit, {K: fits[K].evidence for K in sorted(fits)}

    def _once(self, graph: PairArrays, code: Ints, callback: Callback | None) -> ClusteringRun:
        """Given groups, with the rates that annotators have by these, estimated once."""
        q = np.eye(int(code.max()) + 1)[code]
        log_rate = rates(graph.counts(graph.together(q)), FIRST_HYPER)
        rounds = Rounds(1, float(graph.weight.sum()), callback, 0)
        for _ in rounds:
            sweep(graph, q, log_rate)
            counts = graph.counts(graph.together(q))
            rounds.reached(bound(q, counts, FIRST_HYPER, bool(self.pool)), converged=True)
        return ClusteringRun(q, counts, FIRST_HYPER, rounds, graph.meant(q))

    def _without_empty(self, graph: PairArrays, fit: ClusteringRun, callback: Callback | None) -> ClusteringRun:
        """The fit with as many clusters as are in use: an item alone would be in either of two empty ones."""
        used, code = np.unique(fit.q.argmax(axis=1), return_inverse=True)
        if len(used) == fit.q.shape[1]:
            return fit
        again = self._run(graph, code, len(used), callback, 0)
        same = (again.q.argmax(axis=1) == code).all()
        return again if same and again.meant >= fit.meant else fit

    def _best(
        self, graph: PairArrays, answers: Similarities, K: int, callback: Callback | None, restarts: int
    ) -> ClusteringRun:
        x = embed(answers, K)
        best = self._run(graph, kmeans(x, K), K, callback, 0)
        rng = np.random.default_rng(self.random_state)
        for restart in range(1, (restarts if K > 1 else 0) + 1):
            best = better(best, self._run(graph, kmeans(x, K, rng), K, callback, restart))
        return best

    def _run(self, graph: PairArrays, code: Ints, K: int, callback: Callback | None, restart: int) -> ClusteringRun:
        hyper = FIRST_HYPER
        # A rough start makes all annotators look unreliable, and all items would drift together: the first passes
        # hold the rates at their prior.
        prior_rates = rates(np.zeros((graph.M, 2, 2)), hyper)
        q = soft(code, K)
        for _ in range(10 if K > 1 else 0):
            sweep(graph, q, prior_rates)
        q = soft(q.argmax(axis=1), K)
        counts = graph.counts(graph.together(q))
        rounds = Rounds(self.max_iter, float(graph.weight.sum()), callback, restart)
        for _ in rounds:
            sweep(graph, q, rates(counts, hyper))
            counts = graph.counts(graph.together(q))
            if self.pool:
                hyper = learn_hyper(counts, hyper)
            rounds.reached(bound(q, counts, hyper, bool(self.pool)), below=self.tol)
        return ClusteringRun(q, counts, hyper, rounds, graph.meant(q))
