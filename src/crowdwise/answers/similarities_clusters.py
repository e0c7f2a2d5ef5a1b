"""The result of clustering items by similarity answers: clusters with probabilities, and annotators with rates.

Clusters have no names of their own. They are numbered from 1, the largest first; equally large ones in the order of
their first items.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdwise.core.intervals import row_interval
from crowdwise.core.numerics import Floats, Ints, entropy
from crowdwise.core.result import Result
from crowdwise.core.truth_scores import adjusted_rand, some_known
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

    answer_type: str = "similarities"
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
        return (
            f"Clustering({self.method}: {len(self.item_names):,} items in {len(np.unique(self.cluster_codes))} "
            f"clusters, {len(self.annotator_names):,} annotators; mean probability {sure:.3f}, "
            f"{self.iterations} iterations)"
        )

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
        codes, _ = encode_partition(truth, self.item_names)
        return codes

    def co_cluster_probability(self, first: Any, second: Any) -> float:
        """P(two items, by name, are in the same cluster), from each item's own probabilities."""
        names = encoding.to_vocabulary([first, second])
        at = encoding.locate(names, self.item_names)
        if (at < 0).any():
            raise InputError(f"There is no item {listing(names[at < 0])}: there are {listing(self.item_names)}.")
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
                "item": self.item_names, "cluster": self.clusters,
                "probability": self.posterior[np.arange(len(self.posterior)), self.cluster_codes],
                "entropy": entropy(self.posterior), "answers": self.answers_per_item, "component": self.component,
            }  # fmt: skip
        if table == "clusters":
            K = self.posterior.shape[1]
            return {
                "cluster": np.arange(1, K + 1), "items": np.bincount(self.cluster_codes, minlength=K),
                "share": self.prior, "cohesion": _mean_by(self.cluster_codes, self.posterior.max(axis=1), K),
            }  # fmt: skip
        columns: dict[str, Any] = {"annotator": self.annotator_names, "answers": self.answers_per_annotator}
        for name in ("sensitivity", "specificity"):
            low, high = self.rate_interval(name, level)
            columns |= {name: getattr(self, name), f"{name}_low": low, f"{name}_high": high}
        return columns | {"agreement": self.agreement}


def _mean_by(group: Ints, value: Floats, K: int) -> Floats:
    count = np.bincount(group, minlength=K)
    total = np.bincount(group, weights=value, minlength=K)
    return np.asarray(np.divide(total, count, out=np.full(K, np.nan), where=count > 0))


def canonical(q: Floats) -> Ints:
    """The order of clusters in which results number them: by size, then by first item."""
    K = q.shape[1]
    code = q.argmax(axis=1)
    size, first = np.bincount(code, minlength=K), np.full(K, len(q))
    np.minimum.at(first, code, np.arange(len(q)))
    return np.lexsort((-q.sum(axis=0), first, -size))


def agreements(answers: Similarities, q: Floats) -> dict[str, Any]:
    """The fields of a result that follow from the answers and the probabilities of the items' clusters."""
    M, pair, weight = answers.n_annotators, answers.pair, answers.weights
    together = (q[answers.pairs[:, 0]] * q[answers.pairs[:, 1]]).sum(axis=1)[pair]
    code = q.argmax(axis=1)
    said = (code[answers.pairs[:, 0]] == code[answers.pairs[:, 1]])[pair] == answers.same
    counts, spread = (np.zeros((M, 2, 2)) for _ in range(2))
    for k, p in enumerate((1.0 - together, together)):
        for s in (0, 1):
            these = answers.same == bool(s)
            who = answers.annotator[these]
            counts[:, k, s] = np.bincount(who, weights=(weight * p)[these], minlength=M)
            spread[:, k, s] = np.bincount(who, weights=(weight * p * (1.0 - p))[these], minlength=M)
    per_annotator = np.bincount(answers.annotator, minlength=M)
    per_item = np.bincount(answers.pairs[pair].ravel(), minlength=len(answers))
    agrees = np.bincount(answers.annotator[said], minlength=M)
    return {
        "counts": counts, "spread": spread, "answers_per_item": per_item, "answers_per_annotator": per_annotator,
        "agreement": np.divide(agrees, per_annotator, out=np.full(M, np.nan), where=per_annotator > 0),
        "component": answers.components(),
    }  # fmt: skip
