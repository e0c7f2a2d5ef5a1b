"""Objects from the boxes of several annotators: which are real, of which class, and where.

**Matching.** What an annotator drew twice (same label, IoU over .7) counts once. The boxes on an item are joined into
clusters, the pair of clusters with the largest mean IoU first, while it is at least ``min_iou``; a cluster has one box
of an annotator at most. Boxes of different labels need 0.1 more.

**Which are real.** Cluster c is an object (probability pi) or a false alarm. Annotator m finds an object with the
log-odds a[m] + sigma z, where z is a Normal number for each object: small and hidden ones are missed by most. Nothing
ties false alarms of different annotators together: another one has a box at the same place by chance alone.

==============  ================  ============================================================================
symbol          code              meaning
==============  ================  ============================================================================
d[c, m]         ``drew``          whether annotator m, who looked at the item, has a box in cluster c
a[m], sigma     ``ability``       log-odds to find an object, a[m] ~ N(mean, variance); their spread over objects
f[m]            ``false``         boxes around nothing, per item
kappa           ``chance``        share of pairs of boxes on different items with an IoU of ``min_iou``
P(d | real)     ``real``          E_z prod_m s^d (1 - s)^(1 - d) / (1 - E_z prod_m (1 - s)), s = expit(a[m] + sigma z)
P(d | false)    ``nothing``       the same with s = kappa f[m]: a cluster without any box is not seen
q[c]            ``probability``   pi P(d | real) / (pi P(d | real) + (1 - pi) P(d | false))
==============  ================  ============================================================================

The parameters are fitted by EM, with a Newton step for a and sigma; objects that none found are counted by 1 - E_z...
sigma has a half Normal prior of deviation 1. A second fit starts with few objects that one annotator alone has, and
with little spread: where all find nearly all, the first may take the few boxes of one annotator for hard objects. It is
taken where it makes the boxes 20 times as probable, abilities integrated out (Laplace). The odds of pi are those of
items that several annotators looked at. One annotator alone finds s of r objects and f false ones where n find 1 -
E_z... of r and n f: their odds differ by that ratio. Where no item has two, pi is .9.

**Which class**: a vote model of the registry, the clusters being its items.

**Where.** Edge e of a box is mu[c, e] + size[c, e] (b[m, e] + t[m] sigma[e] noise), with Student t noise of 4 degrees
of freedom; the size is the width for x1, x2 and the height for y1, y2. mu has a flat prior, b[m, e] a Normal one whose
variance is fitted, and t[m]^2 is shrunk towards 1 by 4 boxes. What all annotators do alike is not a bias: Huber's mean
of the biases is 0, so that a few who draw much too large do not move the boxes; how far it may reach is in the
intervals. The spread is t[m] times the deviation of Normal noise with the median difference between two boxes of an
object.

References: S. Branson, G. Van Horn and P. Perona, Lean crowdsourcing, CVPR 2017. R. Solovyev, W. Wang and T. Gabruseva,
Weighted boxes fusion, Image and Vision Computing 107 (2021).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from crowdwise import registry
from crowdwise.answers.answer_model import AnswerModel
from crowdwise.core.constraints import Count, Fraction, MethodKey, Positive, declared
from crowdwise.core.intervals import count_columns, gamma_interval, normal_columns, with_interval
from crowdwise.core.loop import Callback, Rounds, check_cost
from crowdwise.core.numerics import Floats, Ints, huber_mean, share_with_interval
from crowdwise.core.result import Result, some_known
from crowdwise.core.span_overlap import COMPARED, by_chance, evenly, linked
from crowdwise.data.boxes import AXES, Boxes, edge_names, encode_boxes, iou, matched
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, listing, warn

FREEDOM, OF_SPREAD, OF_FALSE = 4.0, 4.0, 2.0
"""Degrees of freedom of the noise; how many boxes the spread, and how many items the false alarms of the crowd are
worth."""
TWICE = 0.84
"""Two boxes of an annotator are one that was drawn twice where their IoU is this to the power of the dimensions."""
CHUNK = 2**22
"""Pairs of boxes that are looked at together."""
STARTS = ((0.3, 0.5, 1.0), (0.1, 1.0, 0.3))
"""Where fits start: q of what one annotator has, ability and sigma."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BoxConsensus(Result):
    """Objects on each item. The fields that all results have are those of :class:`~crowdwise.core.result.Result`.

    Attributes
    ----------
    boxes, deviations
        C x 4: x1, y1, x2, y2 of every candidate (two edges of events in time, six of volumes), and their standard
        deviations (NaN where a method has none).
    box_item, box_label, label_probability
        C: the positions of its item and of its class, and the probability of the class.
    probability, box_annotators
        C: the probability that it is an object, and how many annotators drew it.
    threshold
        Candidates above this probability are the objects.
    point_size
        Of points: the side of the boxes that stand for them; 0 of boxes.
    classes
        The names of the classes.
    found, objects, unsure, false_boxes, looked
        M: expected objects that an annotator found, of how many, the variance behind the share, boxes around nothing,
        and the number of items that were looked at.
    bias, bias_sd, spread, spread_n
        M x 4: how far an annotator's edges lie off, as a share of width or height, and its standard deviation;
        M: the standard deviation of the edges around that, and how many edges say so. Empty where a method has none.
    """

    NAMES: ClassVar[tuple[str, ...]] = ("items", "annotators", "classes")
    TABLES: ClassVar[tuple[str, ...]] = ("items", "annotators", "objects", "candidates")
    FINITE: ClassVar[tuple[str, ...]] = ("boxes", "probability")
    SHAPES: ClassVar[dict[str, str]] = Result.SHAPES | {
        "box_item": "C", "box_label": "C", "label_probability": "C", "probability": "C", "box_annotators": "C",
        "found": "M", "objects": "M", "unsure": "M", "false_boxes": "M", "looked": "M", "boxes_per_item": "N",
        "annotators_per_item": "N",
    }  # fmt: skip

    answer_type: str = "boxes"
    items: npt.NDArray[Any]
    classes: npt.NDArray[Any]
    boxes: Floats
    deviations: Floats
    box_item: Ints
    box_label: Ints
    label_probability: Floats
    probability: Floats
    box_annotators: Ints
    threshold: float
    found: Floats
    objects: Floats
    unsure: Floats
    false_boxes: Floats
    looked: Ints
    boxes_per_item: Ints
    annotators_per_item: Ints
    bias: Floats = field(default_factory=lambda: np.empty((0, 4)))
    bias_sd: Floats = field(default_factory=lambda: np.empty((0, 4)))
    spread: Floats = field(default_factory=lambda: np.empty(0))
    spread_n: Floats = field(default_factory=lambda: np.empty(0))
    point_size: float = 0.0

    @property
    def accepted(self) -> npt.NDArray[np.bool_]:
        """C: which candidates are the objects."""
        return np.asarray(self.probability > self.threshold)

    def __repr__(self) -> str:
        n = int(self.accepted.sum())
        of = f"{len(self.items):,} items, of {len(self.boxes):,} candidates"
        return f"BoxConsensus({self.method}: {n:,} objects on {of})"

    def score(self, truth: Any) -> float:
        """F1 at an IoU of 0.5 with the right label, against true boxes (a mapping from item to a list of (label, x1,
        y1, x2, y2), N such lists, or a table)."""
        right, drawn, true = self.matches(truth, (0.5,))[0][:, :3].sum(axis=0).tolist()
        return float(2.0 * right / (drawn + true)) if drawn + true else 1.0

    def matches(self, truth: Any, thresholds: tuple[float, ...]) -> list[Floats]:
        """For each threshold, for each item with truth: pairs of objects and true boxes of the same label whose IoU is
        that or more, objects, true boxes, and the sum of the IoU of the pairs."""
        E = self.boxes.shape[1]
        true = encode_boxes(truth, self.items, E, self.point_size)
        known = some_known(np.array([objects is not None for objects in true], dtype=bool))
        out = [np.zeros((int(known.sum()), 4)) for _ in thresholds]
        for row, n in enumerate(np.flatnonzero(known).tolist()):
            mine = np.flatnonzero((self.box_item == n) & self.accepted)
            theirs = np.array([box[1:] for box in true[n]], dtype=np.float64).reshape(-1, E)
            named = [str(name) for name in self.classes[self.box_label[mine]].tolist()]
            same = np.array([[name == str(box[0]) for box in true[n]] for name in named], dtype=bool)
            overlap = iou(self.boxes[mine], theirs) * same.reshape(len(mine), len(theirs))
            for table, threshold in zip(out, thresholds, strict=True):
                pairs = matched(overlap, threshold)
                table[row] = len(pairs), len(mine), len(theirs), overlap[pairs[:, 0], pairs[:, 1]].sum()
        return out

    def _places(self) -> tuple[tuple[str, ...], Floats, float]:
        """The names of what places an object, C such places, and the unit of bias and spread: edges and shares of the
        size; of points their coordinates, and the unit of these."""
        E = self.boxes.shape[1]
        if not self.point_size:
            return edge_names(E), self.boxes, 1.0
        return tuple(AXES[: E // 2]), self.boxes[:, : E // 2] + self.point_size / 2.0, self.point_size

    def _columns(self, table: str, level: float) -> dict[str, Any]:
        if table in ("objects", "candidates"):
            at = np.flatnonzero(self.accepted if table == "objects" else np.ones(len(self.boxes), dtype=bool))
            names, edges, _ = self._places()
            known = np.isfinite(self.deviations[at]).any()
            out: dict[str, Any] = {"item": self.items[self.box_item[at]], "label": self.classes[self.box_label[at]]}
            out |= {name: edges[at, e] for e, name in enumerate(names)}
            out |= {"probability": self.probability[at], "label_probability": self.label_probability[at]}
            out["annotators"] = self.box_annotators[at]
            for e, name in enumerate(names if known else ()):
                out |= normal_columns(name, edges[at, e], self.deviations[at, e], level)
            return out | ({} if table == "objects" else {"accepted": self.accepted})
        if table == "items":
            N = len(self.items)
            return {
                "item": self.items, "objects": np.bincount(self.box_item, self.accepted, N).astype(np.int64),
                "expected_objects": np.bincount(self.box_item, self.probability, N),
                "boxes": self.boxes_per_item, "annotators": self.annotators_per_item,
            }  # fmt: skip
        people: dict[str, Any] = {
            "annotator": self.annotators, "items": self.looked,
            **with_interval("detection_rate", *share_with_interval(self.found, self.objects, self.unsure, level)),
            **count_columns("false_alarms", self.false_boxes, self.looked, level),
        }  # fmt: skip
        if len(self.bias):
            names, _, unit = self._places()
            low, high = (1.0 / np.sqrt(x) for x in gamma_interval(self.spread**-2, self.spread_n / 2.0, level)[::-1])
            people |= with_interval("spread", unit * self.spread, unit * low, unit * high)
            for e, name in enumerate(names):
                people |= normal_columns(f"bias_{name}", unit * self.bias[:, e], unit * self.bias_sd[:, e], level)
        return people

    def regions(self) -> dict[Any, list[dict[str, Any]]]:
        _, places, _ = self._places()
        form = {1: "event", 2: "point" if self.point_size else "box"}.get(self.boxes.shape[1] // 2, "volume")
        out: dict[Any, list[dict[str, Any]]] = {name: [] for name in self.items.tolist()}
        for c in np.flatnonzero(self.accepted).tolist():
            label, at = str(self.classes[self.box_label[c]]), [round(float(x), 3) for x in places[c]]
            out[self.items[self.box_item[c]]].append({"label": label, "score": float(self.probability[c]), form: at})
        return out


@dataclass(frozen=True)
class BoxClusters:
    """Boxes in clusters: box i, by annotator ``who[i]``, with ``edges[i]`` and ``label[i]``, is in ``cluster[i]``,
    which is on item ``item[cluster]``. Pair p: annotator ``asked_who[p]`` looked at the item of cluster ``asked[p]``,
    and ``drew[p]`` a box of it."""

    edges: Floats
    label: Ints
    who: Ints
    cluster: Ints
    item: Ints
    asked: Ints
    asked_who: Ints
    drew: Floats

    @classmethod
    def of(cls, answers: Boxes, rows: Ints, cluster: Ints, item: Ints) -> BoxClusters:
        """From the cluster of some rows of a table, and the item of each cluster."""
        M = answers.n_annotators
        on, who = answers.looked
        ends = np.searchsorted(on, np.arange(len(answers) + 1))
        size = np.diff(ends)[item]
        asked = np.repeat(np.arange(len(item)), size)
        first = np.repeat(ends[item] - np.append(0, np.cumsum(size)[:-1]), size)
        asked_who = who[first + np.arange(len(asked))]
        own = answers.annotator[rows]
        drawn = np.isin(asked * M + asked_who, cluster * M + own).astype(np.float64)
        return cls(answers.edges[rows], answers.label[rows], own, cluster, item, asked, asked_who, drawn)

    def __len__(self) -> int:
        return len(self.item)

    def sums(self, x: Floats, by: Ints, n: int) -> Floats:
        """Column sums by group."""
        return np.column_stack([np.bincount(by, column, n) for column in x.T])


def joined(edges: Floats, label: Ints, who: Ints, min_iou: float) -> list[list[int]]:
    """The clusters of the boxes on an item: average linkage, one box of an annotator at most.

    >>> joined(np.array([[0.0, 0, 4, 4], [0, 0, 4, 5], [9, 9, 12, 12]]), np.zeros(3), np.array([0, 1, 1]), 0.3)
    [[0, 1], [2]]
    """
    out: list[list[int]] = []
    for at in _parts(edges, who, min_iou):
        if (n := float(len(at))) > 1000:
            what = f"{len(at):,} boxes on one item that hang together are compared, each with each"
            advice = "Read fewer items or annotators, or split large images into parts."
            check_cost(what, 64.0 * n**2, n**3, advice)
        near = (iou(edges[at], edges[at]) - 0.1 * (label[at][:, None] != label[at])).round(9)
        group = linked(near, who[at][:, None] == who[at], min_iou)
        out += [at[group == first].tolist() for first in np.unique(group)]
    return sorted(out)


def _parts(edges: Floats, who: Ints, least: float) -> list[Ints]:
    """Boxes that hang together by an overlap of ``least`` of two annotators; none is compared with those beyond it."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    S, D = len(edges), edges.shape[1] // 2
    order = np.argsort(edges[:, 0], kind="stable")
    last = np.searchsorted(edges[order, 0], edges[order, D], side="left")
    first, second = list[Ints](), list[Ints]()
    beside = np.cumsum(last - np.arange(S) - 1)
    for rows in np.split(np.arange(S), np.searchsorted(beside, np.arange(CHUNK, int(beside[-1]) + 1, CHUNK))):
        count = last[rows] - rows - 1
        one = np.repeat(rows, count)
        two = one + 1 + np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count)
        one, two = order[one], order[two]
        shared = np.minimum(edges[one, D:], edges[two, D:]) - np.maximum(edges[one, :D], edges[two, :D])
        both = np.clip(shared, 0.0, None).prod(axis=1)
        area = [(edges[at, D:] - edges[at, :D]).prod(axis=1) for at in (one, two)]
        near = (both >= (least - 1e-9) * (area[0] + area[1] - both)) & (both > 0.0) & (who[one] != who[two])
        first.append(one[near])
        second.append(two[near])
    pairs = np.concatenate(first), np.concatenate(second)
    count, part = connected_components(coo_matrix((np.ones(len(pairs[0])), pairs), shape=(S, S)), directed=False)
    return np.split(np.argsort(part, kind="stable"), np.cumsum(np.bincount(part, minlength=count))[:-1])


def drawn_twice(answers: Boxes) -> npt.NDArray[np.bool_]:
    """Which boxes an annotator drew before: of the same label, alike by ``TWICE``."""
    edges, out = answers.edges, np.zeros(answers.n_answers, dtype=bool)
    rows = np.flatnonzero(answers.label >= 0)
    key = (answers.item[rows], answers.annotator[rows], answers.label[rows])
    rows = rows[np.lexsort((*edges[rows].T[::-1], *key[::-1]))]
    D, group = edges.shape[1] // 2, np.stack([x[rows] for x in (answers.item, answers.annotator, answers.label)])
    one, k = np.arange(len(rows)), 0
    while len(one):  # boxes that begin too far behind, as the next ones do, are compared no more
        k += 1
        one = one[one + k < len(rows)]
        a, b = edges[rows[one]], edges[rows[one + k]]
        near = b[:, 0] - a[:, 0] <= (1.0 - TWICE**D) * (a[:, D] - a[:, 0])
        near &= (group[:, one] == group[:, one + k]).all(axis=0)
        one, a, b = one[near], a[near], b[near]
        shared = np.clip(np.minimum(a[:, D:], b[:, D:]) - np.maximum(a[:, :D], b[:, :D]), 0.0, None).prod(axis=1)
        whole = (a[:, D:] - a[:, :D]).prod(axis=1) + (b[:, D:] - b[:, :D]).prod(axis=1) - shared
        out[rows[one + k]] |= shared >= TWICE**D * whole
    return out


def in_clusters(answers: Boxes, min_iou: float) -> BoxClusters:
    """The clusters of all items. Boxes are looked at in the order of their content, so that names do not matter."""
    rows = np.flatnonzero((answers.label >= 0) & ~drawn_twice(answers))
    rows = rows[np.lexsort((answers.label[rows], *answers.edges[rows].T[::-1], answers.item[rows]))]
    edges, label, who = answers.edges[rows], answers.label[rows], answers.annotator[rows]
    ends = np.searchsorted(answers.item[rows], np.arange(len(answers) + 1))
    cluster, items = np.empty(len(rows), dtype=np.int64), list[int]()
    for n, (lo, hi) in enumerate(pairwise(ends.tolist())):
        for group in joined(edges[lo:hi], label[lo:hi], who[lo:hi], min_iou) if hi > lo else []:
            cluster[lo + np.array(group)] = len(items)
            items.append(n)
    return BoxClusters.of(answers, rows, cluster, np.array(items, dtype=np.int64))


def chance_overlap(answers: Boxes, min_iou: float) -> float:
    """kappa: the share of pairs of boxes on different items that overlap by ``min_iou``."""
    rows = np.flatnonzero(answers.label >= 0)
    edges, item = answers.edges[rows], answers.item[rows]
    whole = np.bincount(item, edges.sum(axis=1), len(answers))[item]
    sample = evenly(np.lexsort((whole, *edges.T[::-1])), COMPARED)
    return by_chance(iou(edges[sample], edges[sample]), item[sample], min_iou, usual=0.02)


class Existence(NamedTuple):
    """q[c], the probability that an object is seen by one at least of those who looked at the item of c, the rounds,
    and the log-likelihood under the priors."""

    probability: Floats
    seen: Floats
    rounds: Rounds
    value: float


def existence(clusters: BoxClusters, looked: Ints, chance: float, rounds: Rounds, tol: float, start: int) -> Existence:
    """Which clusters are objects, from one of ``STARTS``."""
    from numpy.polynomial.hermite_e import hermegauss
    from scipy.special import expit, log_expit, logsumexp

    C, M, of, who, d = len(clusters), len(looked), clusters.asked, clusters.asked_who, clusters.drew
    z, w = hermegauss(9)
    log_w = np.log(w / w.sum())
    size = np.bincount(clusters.cluster, minlength=C)
    team = np.bincount(of, minlength=C)
    compared = (team > 1) | (team.max() == 1)  # where others looked too, it can be told how many are real
    single, mean, sigma = STARTS[start]
    q = np.where((size > 1) | (team == 1), 0.9, single)  # nothing speaks against the only annotator of an item
    ability, variance, pi = np.full(M, mean), 0.5, float(q[compared].mean())
    false, information, value = np.full(M, 0.5), np.full(M, 1.0 / variance), -np.inf
    for _ in rounds:
        eta = ability[who][:, None] + sigma * z
        hit, miss = log_expit(eta), log_expit(-eta)
        at_node = log_w + clusters.sums(d[:, None] * hit + (1.0 - d)[:, None] * miss, of, C)
        unseen = log_w + clusters.sums(miss, of, C)
        seen = np.maximum(-np.expm1(logsumexp(unseen, axis=1)), 1e-12)
        total = logsumexp(at_node, axis=1)
        rate = np.clip(chance * false, 1e-9, 0.5)[who]
        none = np.bincount(of, np.log1p(-rate), C)
        nothing = np.bincount(of, d * np.log(rate) + (1.0 - d) * np.log1p(-rate), C) - np.log(-np.expm1(none))
        pi = min(max(pi, 1e-6), 1.0 - 1e-6)
        # One annotator alone draws fewer of both; the others' evidence outweighs that where there are any.
        fewer = np.where(team > 1, 1.0, seen / (seen / team)[compared].mean())
        real, false_alarm = np.log(pi * fewer) + total - np.log(seen), np.log1p(-pi) + nothing
        before, q = q, expit(real - false_alarm)
        spread = (ability - mean) ** 2 / variance + np.log(information * variance)
        value = float(np.logaddexp(real, false_alarm)[compared].sum() - sigma**2 / 2.0 - spread.sum() / 2.0)
        # Every object that was seen stands for (1 - seen) / seen more.
        here = q[:, None] * np.exp(at_node - total[:, None])
        gone = q[:, None] * np.exp(unseen) / seen[:, None]
        s = np.exp(hit)
        slope = here[of] * (d[:, None] - s) - gone[of] * s
        bend = (here + gone)[of] * s * (1.0 - s)
        information = np.bincount(who, bend.sum(axis=1), M) + 1.0 / variance
        step = (np.bincount(who, slope.sum(axis=1), M) - (ability - mean) / variance) / information
        ability = ability + np.clip(step, -1.0, 1.0)
        mean = float(ability.mean())
        variance = max(float(((ability - mean) ** 2 + 1.0 / information).mean()), 1e-3)
        by_sigma = (float((slope * z).sum()) - sigma) / (float((bend * z * z).sum()) + 1.0)
        sigma = min(max(sigma + min(max(by_sigma, -0.5), 0.5), 0.01), 3.0)
        pi = float(q[compared].mean())
        alarms = np.bincount(clusters.who, 1.0 - q[clusters.cluster], M)
        crowd = float(alarms.sum() / looked.sum())
        false = (alarms + OF_FALSE * crowd) / (looked + OF_FALSE)
        moved = float(np.abs(q - before).max())
        rounds.reached(value, moved=moved, converged=moved < tol, traced=False)
    return Existence(q, seen, rounds, value)


def middles(clusters: BoxClusters) -> Floats:
    """The median of each edge in each cluster."""
    order = np.argsort(clusters.cluster, kind="stable")
    ends = np.searchsorted(clusters.cluster[order], np.arange(len(clusters) + 1))
    return np.array([np.median(clusters.edges[order[a:b]], axis=0) for a, b in pairwise(ends.tolist())])


def located(clusters: BoxClusters, q: Floats, M: int, known: float) -> dict[str, Any]:
    """Where objects are, and bias and spread of annotators, by EM over edges and the weights of the t distribution: the
    fields of the result. A box says ``known`` independent numbers."""
    C, of, who, y = len(clusters), clusters.cluster, clusters.who, clusters.edges
    mu = middles(clusters)
    E = y.shape[1]
    size = np.tile(mu[:, E // 2 :] - mu[:, : E // 2], 2)[of]
    w = q[of][:, None]
    weight = w.sum()
    bias, times, sigma, own = np.zeros((M, E)), np.ones(M), np.full(E, 0.05), np.full(E, 0.02**2)
    variance = np.zeros((C, E))
    for _ in range(60):
        noise = times[who][:, None] ** 2 * sigma**2
        off = ((y - mu[of]) / size - bias[who]) ** 2 + variance[of] / size**2
        u = (FREEDOM + 1.0) / (FREEDOM + off / noise)
        precision = u / (noise * size**2)
        total = clusters.sums(precision, of, C)
        mu = clusters.sums(precision * (y - size * bias[who]), of, C) / total
        variance = 1.0 / total
        off = (y - mu[of]) / size
        information = clusters.sums(w * u / noise, who, M)
        bias = clusters.sums(w * u / noise * off, who, M) / (information + 1.0 / own)
        share = precision / total[of]  # of the box in the place of its object
        bias_variance = 1.0 / (clusters.sums(w * u / noise * (1.0 - share), who, M) + 1.0 / own)
        bias -= [huber_mean(b, known_by) for b, known_by in zip(bias.T, information.T + 1e-12, strict=True)]
        own = np.maximum((bias**2 + bias_variance).mean(axis=0), 1e-10)
        off = (off - bias[who]) ** 2 + variance[of] / size**2
        sigma = np.sqrt(np.maximum((w * u * off / times[who][:, None] ** 2).sum(axis=0) / weight, 1e-12))
        boxes = np.bincount(who, w[:, 0], M)
        times = np.sqrt((np.bincount(who, (w * u * off / sigma**2).mean(axis=1), M) + OF_SPREAD) / (boxes + OF_SPREAD))
    noise = times[who][:, None] ** 2 * sigma**2
    order = np.flatnonzero(w[:, 0] > 0.5)
    order = order[np.argsort(of[order], kind="stable")]
    apart = []
    for k in range(1, int(np.bincount(of).max())):  # every pair of boxes of an object
        i, j = order[:-k], order[k:]
        i, j = (side[of[i] == of[j]] for side in (i, j))
        between = (y[i] - y[j]) / size[i] - bias[who[i]] + bias[who[j]]
        apart.append(np.abs(between) / np.sqrt(noise[i] + noise[j]))
    far = np.concatenate([np.empty((0, E)), *apart])
    deviation = float(np.median(far)) / 0.6744897501960817 if far.any() else 1.0  # the median of |Normal noise|
    # The information in t noise is (f + 1) / (f + 3); what the crowd has in common is the mean of M biases.
    common = own / M
    variance = variance * (FREEDOM + 3.0) / (FREEDOM + 1.0)
    variance += clusters.sums((share * size) ** 2 * bias_variance[who] + share * size**2 * common, of, C)
    informed = np.bincount(who, (w * (1.0 - share)).mean(axis=1), M).astype(np.float64)
    return {
        "boxes": mu, "deviations": np.sqrt(variance), "bias": bias, "bias_sd": np.sqrt(bias_variance + common),
        "spread": times * np.sqrt((sigma**2).mean()) * deviation,
        "spread_n": FREEDOM / (FREEDOM + 3.0) * known * informed + 1.0,
    }  # fmt: skip


@declared
class BoxModel(AnswerModel[Boxes, BoxConsensus]):
    """The base of methods for boxes. A method gives ``_infer``: clusters and what is known of them.

    Parameters
    ----------
    threshold
        Candidates above this probability are the objects.
    random_state
        The seed of a vote model that draws at random; boxes themselves need none.
    """

    table = Boxes
    result = BoxConsensus

    threshold: Fraction = 0.5

    def _point_out(self, answers: Boxes) -> None:
        rows = np.flatnonzero(drawn_twice(answers))
        if len(rows):
            who, item = answers.annotators[answers.annotator[rows[:1]]], answers.items[answers.item[rows[:1]]]
            least = TWICE ** (answers.edges.shape[1] // 2)
            warn(
                f"Boxes that look drawn twice: {len(rows):,}, such as one by {listing(who)} on {listing(item)} (IoU "
                f"{least:.2f} or more with another of theirs, and the same label). They count once."
            )

    def _fit(self, answers: Boxes, callback: Callback | None) -> dict[str, Any]:
        if not (answers.label >= 0).any():
            raise InputError("No annotator drew a box: every row says that there is nothing on its item.")
        N, M = len(answers), answers.n_annotators
        on, who = answers.looked
        looked = np.bincount(who, minlength=M)
        clusters, about = self._infer(answers, looked, callback)
        q, of, d = about["probability"], clusters.asked, clusters.drew
        seen = about.pop("seen", np.ones(len(q)))
        hits = np.bincount(clusters.asked_who, d * q[of], M)
        objects = np.bincount(clusters.asked_who, (q / seen)[of], M)
        rate = np.divide(hits, objects, out=np.full(M, 0.5), where=objects > 0)[clusters.asked_who]
        return {
            "box_item": clusters.item, "classes": answers.classes, "threshold": self.threshold,
            "box_annotators": np.bincount(of, d, len(q)).astype(np.int64), "found": hits, "objects": objects,
            "unsure": np.bincount(clusters.asked_who, (q * (1.0 - q))[of] * (d - rate) ** 2, M),
            "false_boxes": np.bincount(clusters.who, 1.0 - q[clusters.cluster], M), "looked": looked,
            "boxes_per_item": np.bincount(answers.item[answers.label >= 0], minlength=N),
            "annotators_per_item": np.bincount(on, minlength=N), "point_size": answers.point_size,
            "deviations": np.full((len(q), answers.edges.shape[1]), np.nan), **about,
        }  # fmt: skip

    @abstractmethod
    def _infer(self, answers: Boxes, looked: Ints, callback: Callback | None) -> tuple[BoxClusters, dict[str, Any]]:
        """The clusters, and the fields of the result that are known of them."""


def labelled(clusters: BoxClusters, answers: Boxes, base: str, random_state: Any) -> dict[str, Any]:
    """The class of each cluster and its probability, by a method for votes."""
    used = np.unique(clusters.label)
    if len(used) == 1:
        return {"box_label": np.full(len(clusters), used[0]), "label_probability": np.ones(len(clusters))}
    votes = Votes.from_codes(
        clusters.cluster, clusters.who, clusters.label, items=range(len(clusters)), annotators=answers.annotators,
        classes=answers.classes, on_duplicate="all",
    )  # fmt: skip
    method = base if answers.n_annotators > 1 else "majority"
    more = {"random_state": random_state} if "random_state" in registry.find(method).load().parameters() else {}
    posterior = registry.create(method, **more).fit(votes).consensus_.posterior
    label = posterior.round(9).argmax(axis=1)
    return {"box_label": label, "label_probability": posterior[np.arange(len(label)), label]}


@declared
class BoxCrowd(BoxModel):
    """Objects with a probability, a class and a place; detection rate, false alarms, bias and spread of annotators.

    Parameters
    ----------
    min_iou
        Boxes are taken for the same object where they overlap by this on average.
    base
        The method for votes that decides the class.
    max_iter, tol
        EM ends after so many passes, or where no probability moved by more than ``tol``.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.boxes(40, n_annotators=8, annotators_per_item=5, random_state=0)
    >>> round(cw.BoxCrowd().fit(crowd.answers).consensus_.score(crowd.truth), 2)
    0.95
    """

    key = "box-crowd"

    min_iou: Fraction = 0.3
    base: MethodKey = registry.DEFAULT
    max_iter: Count = 1000
    tol: Positive = 1e-4

    def _infer(self, answers: Boxes, looked: Ints, callback: Callback | None) -> tuple[BoxClusters, dict[str, Any]]:
        clusters = in_clusters(answers, self.min_iou)
        chance = chance_overlap(answers, self.min_iou)
        fits = [Rounds(self.max_iter, len(clusters), callback, start) for start in range(len(STARTS))]
        one, two = (existence(clusters, looked, chance, fit, self.tol, start) for start, fit in enumerate(fits))
        q, seen, rounds, _ = two if two.value > one.value + np.log(20.0) else one
        known = answers.edges.shape[1] / (2.0 if answers.point_size else 1.0)  # both edges around a point say the same
        return clusters, {
            "probability": q, "seen": seen, **located(clusters, q, answers.n_annotators, known),
            **labelled(clusters, answers, self.base, self.random_state), **rounds.outcome,
        }  # fmt: skip


@declared
class BoxMajority(BoxModel):
    """Clusters that most annotators drew, with the median of their edges and the label of most.

    Parameters
    ----------
    min_iou
        Boxes are taken for the same object where they overlap by this on average.
    threshold
        Clusters that a larger share of those who looked drew are the objects.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.boxes(40, n_annotators=8, annotators_per_item=5, random_state=0)
    >>> round(cw.BoxMajority().fit(crowd.answers).consensus_.score(crowd.truth), 2)
    0.92
    """

    key = "box-majority"

    min_iou: Fraction = 0.5

    def _infer(self, answers: Boxes, looked: Ints, callback: Callback | None) -> tuple[BoxClusters, dict[str, Any]]:
        clusters = in_clusters(answers, self.min_iou)
        q = np.bincount(clusters.asked, clusters.drew) / np.bincount(clusters.asked)
        named = labelled(clusters, answers, "majority", self.random_state)
        return clusters, {"probability": q, "boxes": middles(clusters), **named}


@declared
class BoxFusion(BoxModel):
    """Weighted boxes fusion: boxes of a label join the fused box they overlap most, the mean weighted by score.

    Parameters
    ----------
    min_iou
        A box joins a fused box where they overlap by more than this.
    threshold
        Fused boxes of a larger score are the objects: the mean score, times the share of annotators who drew it.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.boxes(40, n_annotators=8, annotators_per_item=5, random_state=0)
    >>> round(cw.BoxFusion().fit(crowd.answers).consensus_.score(crowd.truth), 2)
    0.91
    """

    key = "box-fusion"

    min_iou: Fraction = 0.55

    def _infer(self, answers: Boxes, looked: Ints, callback: Callback | None) -> tuple[BoxClusters, dict[str, Any]]:
        rows = np.flatnonzero(answers.label >= 0)
        edges, label, item = answers.edges, answers.label, answers.item
        score = np.ones(answers.n_answers) if answers.score is None else answers.score
        rows = rows[np.lexsort((*edges[rows].T[::-1], -score[rows], label[rows], item[rows]))]
        boxes, cluster = np.empty((len(rows), edges.shape[1])), np.empty(len(rows), dtype=np.int64)
        total, first = np.zeros(len(rows)), list[int]()
        begun, group = 0, (-1, -1)
        for n, row in enumerate(rows.tolist()):
            if (item[row], label[row]) != group:
                begun, group = len(first), (item[row], label[row])
            overlap = iou(edges[[row]], boxes[begun : len(first)])[0].round(9) if len(first) > begun else np.zeros(1)
            if overlap.max() > self.min_iou:
                c = begun + int(overlap.argmax())
                both = total[c] + score[row]
                boxes[c] = (boxes[c] * total[c] + edges[row] * score[row]) / both if both > 0.0 else boxes[c]
            else:
                c = len(first)
                boxes[c] = edges[row]
                first.append(row)
            cluster[n], total[c] = c, total[c] + score[row]
        C = len(first)
        clusters = BoxClusters.of(answers, rows, cluster, item[first])
        count, models = np.bincount(cluster), np.bincount(clusters.asked, minlength=C)
        return clusters, {
            "probability": total[:C] / count * np.minimum(count, models) / models, "boxes": boxes[:C],
            "box_label": label[first], "label_probability": np.ones(C),
        }  # fmt: skip
