"""One mask from several: by votes on pixels, by STAPLE, or by distances to the edge.

**Distances** (``signed-distance``). d[m](x) is the distance from pixel x to the edge of the mask of annotator m,
positive inside. Annotators draw too large or too small, and imprecisely; offset and scatter are learned over all items:

================  ================  ============================================================================
symbol            code              equation
================  ================  ============================================================================
b[m]              ``offset``        mean of d[m] - s over the items of m, shrunk towards 0
v[n, m]           ``noise``         mean over pixels of (d[m] - b[m] - s)^2, over 1 - the mask's share of the weight
u[n]              ``level``         median over the masks of item n of v[n, m] / t[m]
t[m]              ``relative``      geometric mean of v[n, m] / u[n] over the items of m, shrunk towards 1
w[n, m]           ``weight``        (1 + k) / (v[n, m] + k u[n] t[m])
s[n](x)           ``distance``      sum_m w[n, m] (d[m](x) - b[m]) / sum_m w[n, m]; the mask is s > 0
q[n](x)           ``pixels``        Phi(s[n](x) sqrt(sum_m w[n, m])), Phi the Normal distribution function
================  ================  ============================================================================

k = 1/2. Pixels are those near the edge of the majority, and those on which masks differ; where all masks agree further
away, what they say is kept. In s a distance (less the offset) counts up to the depth of the masks, the median over
masks of the mean distance of their pixels among these: else one mask that lacks a part, or has one too many, outweighs
the others, and thin lines vanish, as nothing is deep inside them. Offsets and noise are learned from distances up to
six times that: specks far from the object are no offset. All sums over pixels follow from the means and products of d
within an item, so the pixels are visited twice, however many passes it takes. Offsets have mean 0 by the annotators'
precision, with those far from the others counting less (Huber's mean): a few who draw much too large do not move the
edge. What all annotators draw too large cannot be seen in their masks. Masks of the whole image have no edge: they
count as empty ones do, by votes. Where the majority of the other masks of an item predicts more pixels of one that is
left out than their distances do, over all masks, the result is the majority.

**STAPLE**: EM for sensitivity p[m] and specificity q[m] of each mask, item by item, from the share of votes.
Pixels with the same votes have the same posterior, so that a pass is over patterns of votes.

Reference: S. Warfield, K. Zou, W. Wells, Simultaneous truth and performance level estimation (STAPLE), IEEE TMI 2004.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from crowdwise.answers.answer_model import AnswerModel
from crowdwise.core.constraints import Count, Positive, declared
from crowdwise.core.intervals import normal_columns, quantile, with_interval
from crowdwise.core.loop import Callback, Rounds, check_cost
from crowdwise.core.numerics import Floats, Ints, huber_mean
from crowdwise.core.result import Result, some_known
from crowdwise.core.span_overlap import evenly
from crowdwise.data.masks import Masks, Pixels, as_text, dice, encode_masks, pack, unpack
from crowdwise.errors import listing

OWN = 0.5
"""k: how much the annotator's noise counts beside that of the mask itself."""
FEW = 2.0
"""How many masks the noise of the crowd is worth in an annotator's."""
LEAST = 1.0 / 16.0
"""The least variance of a distance, in pixels: what the grid leaves open."""
BLOCK, SAMPLE = 2**18, 2**14
"""Pixels at a time; pixels of an item on which methods are compared."""
FAR = 6.0
"""Offsets and noise are learned from distances of up to so many times the depth."""
TINY = 1e-300
BY_VOTES = "The majority predicts masks that are left out better than distances to the edge: masks are the majority's."


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MaskConsensus(Result):
    """One mask for each item. The fields that all results have are those of :class:`~crowdwise.core.result.Result`.

    Attributes
    ----------
    height, width
        N: the size of each item's masks.
    packed, pixels
        The consensus masks, eight pixels to a byte, and the probability of every pixel in 255ths, item after item:
        :meth:`mask` and :meth:`probability` have those of one item.
    expected_dice
        N: the Dice coefficient with the truth that the probabilities lead to expect.
    agreement
        S: the Dice coefficient of each answer with the consensus; ``annotator`` is who gave it.
    offset, offset_sd
        M or ``None``: by how many pixels an annotator draws outside the consensus (below 0: inside).
    scatter, scatter_sd
        M or ``None``: how many pixels the edge of an annotator's masks is off, the offset apart, and the deviation of
        its logarithm.
    sensitivity, specificity
        M or ``None``: of STAPLE, means over an annotator's masks.
    """

    SHAPES: ClassVar[dict[str, str]] = Result.SHAPES | {
        "height": "N", "width": "N", "packed": "B", "pixels": "P", "expected_dice": "N", "agreement": "S",
        "annotator": "S", "masks_per_item": "N", "offset": "M", "offset_sd": "M", "scatter": "M", "scatter_sd": "M",
        "sensitivity": "M", "specificity": "M",
    }  # fmt: skip

    answer_type: str = "masks"
    items: npt.NDArray[Any]
    height: Ints
    width: Ints
    packed: npt.NDArray[np.uint8]
    pixels: npt.NDArray[np.uint8]
    expected_dice: Floats
    agreement: Floats
    annotator: npt.NDArray[Any]
    masks_per_item: npt.NDArray[Any]
    offset: Floats | None = None
    offset_sd: Floats | None = None
    scatter: Floats | None = None
    scatter_sd: Floats | None = None
    sensitivity: Floats | None = None
    specificity: Floats | None = None

    def __repr__(self) -> str:
        sure = float(np.mean(self.expected_dice))
        return f"MaskConsensus({self.method}: {len(self.items):,} masks, expected Dice {sure:.3f})"

    def mask(self, n: int) -> Pixels:
        """The consensus mask of an item, by its position in ``items``: H x W booleans."""
        return unpack(self._bytes(n), int(self.height[n]), int(self.width[n]))

    def probability(self, n: int) -> npt.NDArray[np.uint8]:
        """The probability of each pixel of an item to be in the mask, in 255ths: H x W."""
        end = np.cumsum(self.height * self.width)[n]
        H, W = int(self.height[n]), int(self.width[n])
        return self.pixels[end - H * W : end].reshape(H, W)

    def _bytes(self, n: int) -> bytes:
        ends = np.concatenate([[0], np.cumsum(-(-self.height * self.width // 8))])
        return self.packed[ends[n] : ends[n + 1]].tobytes()

    def against(self, truth: Any) -> Iterator[tuple[Pixels, Pixels]]:
        """The consensus and the true mask of each item whose truth is known (a mapping, or N masks)."""
        true = encode_masks(truth, self.items, self.height, self.width)
        for n in np.flatnonzero(some_known(np.array([one is not None for one in true.tolist()]))).tolist():
            yield self.mask(n), unpack(true[n], int(self.height[n]), int(self.width[n]))

    def score(self, truth: Any) -> float:
        """The mean Dice coefficient with true masks (a mapping from item to mask, or N masks, ``None`` for unknown)."""
        return float(np.mean([dice(*pair) for pair in self.against(truth)]))

    def regions(self) -> dict[Any, list[dict[str, Any]]]:
        """``image [class]`` is a class on an image; other items are images with one object."""
        out: dict[Any, list[dict[str, Any]]] = {}
        for n, name in enumerate(self.items.tolist()):
            image, bracket, kind = str(name).rpartition(" [")
            classed = bool(bracket) and kind.endswith("]")
            region = {"label": kind[:-1] if classed else "object", "score": float(self.expected_dice[n])}
            there = self.mask(n)
            out.setdefault(image if classed else name, []).extend([region | {"mask": there}] if there.any() else [])
        return out

    def _columns(self, table: str, level: float) -> dict[str, Any]:
        N, M = len(self.items), len(self.annotators)
        if table == "items":
            item = np.repeat(np.arange(N), self.masks_per_item)
            masks = np.empty(N, dtype=object)
            masks[:] = [self._bytes(n) for n in range(N)]
            inside = np.array([int(np.bitwise_count(np.frombuffer(m, dtype=np.uint8)).sum()) for m in masks.tolist()])
            return {
                "item": self.items, "expected_dice": self.expected_dice,
                "agreement": np.bincount(item, self.agreement, N) / np.maximum(self.masks_per_item, 1),
                "masks": self.masks_per_item, "area": inside, "height": self.height, "width": self.width,
                "mask": as_text(masks, self.height, self.width),
            }  # fmt: skip
        count = np.bincount(self.annotator, minlength=M)
        n = np.maximum(count, 1)
        mean = np.where(count > 0, np.bincount(self.annotator, self.agreement, M) / n, np.nan)
        square = np.bincount(self.annotator, (self.agreement - mean[self.annotator]) ** 2, M)
        reach = quantile(level, np.maximum(n - 1.0, 1.0)) * np.sqrt(square / np.maximum(n - 1, 1) / n)
        reach[n < 2] = 1.0
        ends = (np.clip(mean - reach, 0.0, 1.0), np.clip(mean + reach, 0.0, 1.0))
        out = {"annotator": self.annotators, "masks": count, **with_interval("agreement", mean, *ends)}
        if self.offset is not None and self.offset_sd is not None:
            out |= normal_columns("offset", self.offset, self.offset_sd, level)
        if self.scatter is not None and self.scatter_sd is not None:
            times = np.exp(quantile(level) * self.scatter_sd)
            out |= with_interval("scatter", self.scatter, self.scatter / times, self.scatter * times)
        rates = {"sensitivity": self.sensitivity, "specificity": self.specificity}
        return out | {name: rate for name, rate in rates.items() if rate is not None}


class VotePatterns(NamedTuple):
    """Which masks have a pixel: ``of`` is the pattern of each pixel, ``votes`` (R x C) who has pixels of a pattern,
    ``times`` how many pixels have it."""

    of: npt.NDArray[np.int32]
    votes: Pixels
    times: Ints

    @classmethod
    def of_masks(cls, masks: Sequence[Pixels]) -> VotePatterns:
        code = np.zeros(masks[0].size, dtype=np.int32)
        votes = np.zeros((0, 1), dtype=bool)
        for r, mask in enumerate(masks):
            code *= 2
            code += mask.ravel()
            votes = np.vstack([np.repeat(votes, 2, axis=1), np.tile([False, True], votes.shape[1])])
            if votes.shape[1] > 2**16 or r == len(masks) - 1:  # those that do not occur are left out
                count = np.bincount(code, minlength=votes.shape[1])
                used = count > 0
                code, votes, count = (np.cumsum(used, dtype=np.int32) - 1)[code], votes[:, used], count[used]
        return cls(code, votes, count)


def staple(
    votes: Pixels, count: Ints, weight: Floats, max_iter: int, tol: float
) -> tuple[Floats, Floats, Floats, int, bool]:
    """The posterior of each pattern, sensitivity and specificity of each mask, passes, and whether they converged."""
    w = (weight @ votes) / weight.sum()
    inside = float(count @ w)
    prior = np.log(np.clip([inside, count.sum() - inside], TINY, None) / count.sum())
    was = np.full(2 * len(votes), np.inf)
    for done in range(1, max_iter + 1):
        one, zero = count * w, count * (1.0 - w)
        p, q = (votes @ one) / max(one.sum(), TINY), (~votes @ zero) / max(zero.sum(), TINY)
        log = np.log(np.maximum([p, 1.0 - p, q, 1.0 - q], TINY)) * weight
        gap = prior[1] + log[3] @ votes + log[2] @ ~votes - prior[0] - log[0] @ votes - log[1] @ ~votes
        w = 1.0 / (1.0 + np.exp(np.clip(gap, -700.0, 700.0)))
        rates = np.concatenate([p, q])
        if np.abs(rates - was).max() < tol:
            return w, p, q, done, True
        was = rates
    return w, p, q, max_iter, False


@declared
class MaskModel(AnswerModel[Masks, MaskConsensus]):
    """The base of methods for :class:`~crowdwise.Masks`. A subclass gives ``_infer``."""

    table = Masks
    result = MaskConsensus

    def _fit(self, answers: Masks, callback: Callback | None) -> dict[str, Any]:
        packed, pixels, expected = [], [], np.ones(len(answers))
        agreement = np.zeros(answers.n_answers)
        # As many arrays of pixels as an item has masks, and six more, are held, with four bytes for a pixel.
        each = (np.diff(answers.indptr) + 6) * answers.height * answers.width
        n = int(each.argmax())
        what = f"Item {listing(answers.items[[n]])} has {np.diff(answers.indptr)[n]:,} masks of {answers.height[n]} x "
        what += f"{answers.width[n]} pixels"
        check_cost(what, 4.0 * float(each[n]), 0.0, "Read fewer masks of it, or smaller ones.")
        state = self._learn(answers, callback)
        for n, (lo, hi) in enumerate(pairwise(answers.indptr.tolist())):
            shape = int(answers.height[n]), int(answers.width[n])
            inside, probability = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=np.uint8)
            if hi > lo:
                masks = answers.of_item(n)
                inside, probability = self._infer(n, masks, answers.weights[lo:hi], state)
                agreement[lo:hi] = [dice(inside, mask) for mask in masks]
            total = int(np.count_nonzero(inside)) + probability.sum(dtype=np.int64) / 255.0
            expected[n] = 2.0 * probability[inside].sum(dtype=np.int64) / 255.0 / total if total else 1.0
            packed.append(np.frombuffer(pack(inside), dtype=np.uint8))
            pixels.append(probability.ravel())
        return {
            "height": answers.height, "width": answers.width, "packed": np.concatenate(packed),
            "pixels": pixels[0] if len(pixels) == 1 else np.concatenate(pixels), "expected_dice": expected,
            "agreement": agreement, "annotator": answers.annotator, "masks_per_item": np.diff(answers.indptr),
        } | self._learned(answers, state)  # fmt: skip

    def _learn(self, answers: Masks, callback: Callback | None) -> Any:
        """What is learned over all items first."""

    def _learned(self, answers: Masks, state: Any) -> dict[str, Any]:
        """Fields of the result from what was learned."""
        return {}

    @abstractmethod
    def _infer(self, n: int, masks: list[Pixels], weight: Floats, state: Any) -> tuple[Pixels, npt.NDArray[np.uint8]]:
        """The mask of an item, and the probability of each pixel in 255ths."""


def by_pattern(
    patterns: VotePatterns, inside: Pixels, probability: Floats, shape: tuple[int, ...]
) -> tuple[Pixels, npt.NDArray[np.uint8]]:
    """What holds of patterns, for every pixel."""
    level = np.rint(np.clip(probability, 0.0, 1.0) * 255.0).astype(np.uint8)
    return inside[patterns.of].reshape(shape), level[patterns.of].reshape(shape)


@declared
class MaskMajority(MaskModel):
    """The pixels that more than half of the masks have; exactly half is outside.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.masks(20, random_state=0)
    >>> round(cw.MaskMajority().fit(crowd.answers).consensus_.score(crowd.truth), 2)
    0.95
    """

    key = "mask-majority"

    def _infer(self, n: int, masks: list[Pixels], weight: Floats, state: Any) -> tuple[Pixels, npt.NDArray[np.uint8]]:
        patterns = VotePatterns.of_masks(masks)
        share = (weight @ patterns.votes) / weight.sum()
        return by_pattern(patterns, share > 0.5 + 1e-12, share, masks[0].shape)


@declared
class Staple(MaskModel):
    """Sensitivity and specificity of each mask, by EM, image by image.

    Parameters
    ----------
    max_iter
        The most passes of EM.
    tol
        It ends where no rate changes by more.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.masks(20, random_state=0)
    >>> round(cw.Staple().fit(crowd.answers).consensus_.score(crowd.truth), 2)
    0.95
    """

    key = "staple"

    max_iter: Count = 1000
    tol: Positive = 1e-10

    def _learn(self, answers: Masks, callback: Callback | None) -> dict[str, list[Any]]:
        return {"rates": [], "passes": []}

    def _infer(self, n: int, masks: list[Pixels], weight: Floats, state: Any) -> tuple[Pixels, npt.NDArray[np.uint8]]:
        patterns = VotePatterns.of_masks(masks)
        w, p, q, passes, done = staple(patterns.votes, patterns.times, weight, self.max_iter, self.tol)
        state["rates"] += zip(p.tolist(), q.tolist(), strict=True)
        state["passes"].append((passes, done))
        return by_pattern(patterns, w > 0.5 + 1e-12, w, masks[0].shape)

    def _learned(self, answers: Masks, state: Any) -> dict[str, Any]:
        rates, passes = np.array(state["rates"]), np.array(state["passes"])
        M = answers.n_annotators
        count = np.bincount(answers.annotator, minlength=M)
        p, q = (np.bincount(answers.annotator, rate, M) / np.maximum(count, 1) for rate in rates.T)
        p[count == 0] = q[count == 0] = np.nan
        return {
            "sensitivity": p, "specificity": q, "iterations": int(passes[:, 0].max()),
            "converged": bool(passes[:, 1].all()),
        }  # fmt: skip


class Band(NamedTuple):
    """The pixels of an item that are open: ``box`` is where masks are (rows, columns), ``at`` their places in it,
    ``distance`` (R x K) the signed distances of the masks that are not empty, ``drawn`` which these are."""

    box: tuple[slice, ...]
    at: npt.NDArray[np.int32]
    distance: npt.NDArray[np.float16]
    drawn: Ints
    depth: float

    @classmethod
    def of(cls, masks: list[Pixels], weight: Floats) -> Band | None:
        """``None`` where at most half of the masks mark anything."""
        drawn = np.flatnonzero([bool(mask.any()) and not mask.all() for mask in masks])
        if weight[drawn].sum() <= weight.sum() / 2.0 + 1e-12:
            return None
        votes = np.zeros(masks[0].shape, dtype=np.float32)
        for r in drawn.tolist():
            votes += np.float32(weight[r]) * masks[r]
        total = float(weight[drawn].sum())
        middle = votes > total / 2.0
        # A fifth of the radius of a disc as large as the majority.
        reach = max(2.0, 0.2 * float(np.sqrt(max(int(np.count_nonzero(middle)), 1) / np.pi)))
        margin = int(np.ceil(reach)) + 1
        ends = [np.flatnonzero((votes > 0.0).any(axis=axis))[[0, -1]] for axis in (1, 0)]
        box = tuple(slice(max(int(lo) - margin, 0), int(hi) + margin + 1) for lo, hi in ends)
        votes, middle = votes[box], middle[box]
        open_ = (votes > 0.0) & (votes < total * (1.0 - 1e-6))
        if middle.any() and not middle.all():
            open_ |= _near_edge(middle, reach)
        at = np.flatnonzero(open_).astype(np.int32)
        distance = np.empty((len(drawn), len(at)), dtype=np.float16)
        for row, r in zip(distance, drawn.tolist(), strict=True):
            signed_distance(masks[r][box], at, row)
        depth = [float(row[row > 0.0].mean(dtype=np.float64)) for row in distance if (row > 0.0).any()]
        limit = float(np.median(depth)) if depth else np.inf
        np.clip(distance, np.float16(-FAR * limit), np.float16(FAR * limit), out=distance)
        return cls(box, at, distance, drawn, limit)

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Some pixels at a time, with their distances in full precision."""
        for lo in range(0, len(self.at), BLOCK):
            part = slice(lo, min(lo + BLOCK, len(self.at)))
            yield part, self.distance[:, part].astype(np.float64)


def _near_edge(mask: Pixels, reach: float) -> Pixels:
    """Pixels whose centre is within reach of a pixel on the other side of the edge."""
    from scipy.ndimage import binary_dilation

    edge = np.zeros_like(mask)
    for a, b in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        differ = mask[a] != mask[b]
        edge[a] |= differ
        edge[b] |= differ
    return np.asarray(binary_dilation(edge, iterations=int(np.ceil(reach))))


def signed_distance(mask: Pixels, at: npt.NDArray[np.int32], out: npt.NDArray[np.float16]) -> None:
    """The distance of pixels to the edge of a mask, positive inside, from centre to centre less one half."""
    from scipy.ndimage import distance_transform_edt

    H, W = mask.shape
    flat, all_of_it = mask.ravel()[at], mask.all()
    for inside, side in ((True, mask), (False, ~mask)):
        places = np.flatnonzero(flat == inside)
        if not len(places):
            continue
        if not all_of_it:
            near = distance_transform_edt(side, return_distances=False, return_indices=True).reshape(2, -1)
        for lo in range(0, len(places), BLOCK):
            block = places[lo : lo + BLOCK]
            y, x = np.divmod(at[block], W)
            if all_of_it:  # the edge is the border of the image
                far = np.minimum(np.minimum(y + 1, H - y), np.minimum(x + 1, W - x)).astype(np.float64)
            else:
                far = np.hypot(near[0, at[block]] - y, near[1, at[block]] - x)
            out[block] = (far - 0.5) * (1.0 if inside else -1.0)


class DistanceMoments(NamedTuple):
    """What an item adds: the annotators of its masks, their weights, and means and products of the distances."""

    who: Ints
    weight: Floats
    mean: Floats
    products: Floats


@dataclass
class LearnedEdges:
    """What is learned of all masks: an offset and a relative noise for each annotator, a noise for each mask."""

    rounds: Rounds
    moments: list[DistanceMoments | None]
    bands: dict[int, Band]
    offset: Floats
    offset_sd: Floats
    relative: Floats
    relative_sd: Floats
    scale: float = 1.0
    masks: list[Floats] = field(default_factory=list)
    """The weight of each mask of an item."""
    votes_better: bool = False
    """Whether the majority predicts masks that are left out better."""


@declared
class SignedDistance(MaskModel):
    """The mean distance to the edge, with an offset and a scatter for each annotator.

    Parameters
    ----------
    max_iter
        The most passes.
    tol
        It ends where no offset changes by more pixels, and no noise by a larger factor.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.masks(20, random_state=0)
    >>> round(cw.SignedDistance().fit(crowd.answers).consensus_.score(crowd.truth), 2)
    0.98
    """

    key = "signed-distance"

    max_iter: Count = 500
    tol: Positive = 1e-3

    def _learn(self, answers: Masks, callback: Callback | None) -> LearnedEdges:
        M, weights = answers.n_annotators, answers.weights
        rounds = Rounds(self.max_iter, answers.n_answers, callback)
        edges = LearnedEdges(rounds, [], {}, np.zeros(M), np.zeros(M), np.ones(M), np.zeros(M))
        kept = 0
        for n, (lo, hi) in enumerate(pairwise(answers.indptr.tolist())):
            band = Band.of(answers.of_item(n), weights[lo:hi]) if hi > lo else None
            edges.moments.append(None)
            if band is None or not len(band.at):
                continue
            R, K, rows = len(band.drawn), len(band.at), lo + band.drawn
            mean, products = np.zeros(R), np.zeros((R, R))
            for _, d in band.blocks():
                mean += d.sum(axis=1)
                products += d @ d.T
            edges.moments[n] = DistanceMoments(answers.annotator[rows], weights[rows], mean / K, products / K)
            if kept + band.distance.nbytes <= 2**28:  # kept for the second visit of the pixels
                kept += band.distance.nbytes
                edges.bands[n] = band
        learn_edges(edges, self.tol)
        wrong = np.zeros(2)
        for n, one in enumerate(edges.moments):
            if one is not None and len(one.who) > 2:
                lo, hi = answers.indptr[n : n + 2]
                band = edges.bands.get(n) or Band.of(answers.of_item(n), weights[lo:hi])
                assert band is not None
                wrong += left_out_errors(band, one.weight, edges.masks[n], edges.offset[one.who])
        edges.votes_better = bool(wrong[0] < wrong[1])
        return edges

    def _infer(self, n: int, masks: list[Pixels], weight: Floats, state: Any) -> tuple[Pixels, npt.NDArray[np.uint8]]:
        moments = state.moments[n]
        if moments is None or state.votes_better:
            return MaskMajority()._infer(n, masks, weight, None)
        band = state.bands.pop(n, None) or Band.of(masks, weight)
        assert band is not None
        return edge_consensus(masks, band, state.masks[n], state.offset[moments.who])

    def _learned(self, answers: Masks, state: Any) -> dict[str, Any]:
        return {
            "offset": state.offset, "offset_sd": state.offset_sd,
            "scatter": np.sqrt(state.relative * state.scale), "scatter_sd": state.relative_sd / 2.0,
            **state.rounds.outcome, "notes": [BY_VOTES] if state.votes_better else [],
        }  # fmt: skip


def left_out_errors(band: Band, plain: Floats, weight: Floats, offset: Floats) -> Floats:
    """The share of pixels of a mask that the others get wrong, summed over masks: by votes, and by distances."""
    d = band.distance[:, evenly(np.arange(len(band.at)), SAMPLE)].astype(np.float64)
    votes = plain[:, None] * np.sign(d)
    depths = weight[:, None] * np.clip(d - offset[:, None], -band.depth, band.depth)
    others = [x.sum(axis=0) - x for x in (votes, depths)]
    return np.array([np.abs(np.sign(x.round(9)) - np.sign(d)).mean(axis=1).sum() for x in others])


def edge_consensus(
    masks: list[Pixels], band: Band, weight: Floats, offset: Floats
) -> tuple[Pixels, npt.NDArray[np.uint8]]:
    """s > 0 and q of an item; where all masks agree outside the band, what they say."""
    from scipy.special import ndtr

    inside, probability = np.zeros(masks[0].shape, dtype=bool), np.zeros(masks[0].shape, dtype=np.uint8)
    agreed = masks[int(band.drawn[0])][band.box].ravel().copy()
    sure = agreed * np.uint8(255)
    share, spread = weight / weight.sum(), float(np.sqrt(weight.sum()))
    for part, d in band.blocks():
        s = share @ np.clip(d - offset[:, None], -band.depth, band.depth)
        agreed[band.at[part]] = s > 1e-9
        sure[band.at[part]] = np.rint(ndtr(s * spread) * 255.0)
    shape = inside[band.box].shape
    inside[band.box], probability[band.box] = agreed.reshape(shape), sure.reshape(shape)
    return inside, probability


def learn_edges(edges: LearnedEdges, tol: float) -> None:
    """Offsets, noise and weights from the moments of all items, in place."""
    M, items = len(edges.offset), [n for n, one in enumerate(edges.moments) if one is not None]
    moments = [one for one in edges.moments if one is not None]
    edges.masks = [np.ones(0) for _ in edges.moments]
    if not moments:
        edges.rounds.converged = True
        return
    who = np.concatenate([one.who for one in moments])
    weights = np.concatenate([one.weight for one in moments])
    size = np.array([len(one.who) for one in moments])
    of, several = np.repeat(np.arange(len(moments)), size), size > 1
    parts = [slice(lo, hi) for lo, hi in pairwise([0, *np.cumsum(size).tolist()])]
    total = np.bincount(who, weights, M)
    weight = weights.copy()
    for _ in edges.rounds:
        noise, residual = np.zeros(len(who)), np.zeros(len(who))
        for one, part in zip(moments, parts, strict=True):
            noise[part], residual[part] = _residuals(one, weight[part], edges.offset)
        noise = np.maximum(noise, LEAST)
        quotient = noise / edges.relative[who]
        level = np.array([np.median(quotient[part]) for part in parts])
        level[~several] = np.exp(np.mean(np.log(level[several]))) if several.any() else LEAST
        noise = np.where(several[of], noise, level[of] * edges.relative[who])
        # The noise of annotators, relative to the item's.
        log = np.log(noise / level[of])
        new = np.bincount(who, weights * log, M) / (total + FEW)
        spread = float(np.sqrt(np.average((log - new[who]) ** 2, weights=weights)))
        edges.relative_sd = spread / np.sqrt(total + FEW)
        change = float(np.abs(new - np.log(edges.relative)).max())
        edges.relative = np.exp(new)
        # Offsets: b = sum y / var / (sum 1 / var + 1 / omega^2), of the masks that lie beside others; var and omega by
        # moments, with masks that are off counting little.
        seen = weights * several[of] / (noise + OWN * level[of] * edges.relative[who])
        precision = np.asarray(np.bincount(who, seen, M), dtype=np.float64)
        y = residual + edges.offset[who]
        raw = np.divide(np.bincount(who, seen * y, M), precision, out=np.zeros(M), where=precision > 0)
        ratio = float(np.sum(seen * (y - raw[who]) ** 2) / max(len(who) - M, 1)) if len(who) > M else 1.0
        ratio = max(ratio, 1e-6)
        known = precision > 0
        raw[known] -= huber_mean(raw[known], precision[known]) if known.any() else 0.0
        between = float(np.mean((raw**2 - ratio / np.maximum(precision, TINY))[known])) if known.any() else 0.0
        held = 1.0 / between if between > 0.0 else np.inf
        offset = raw * (precision / ratio) / (precision / ratio + held) if np.isfinite(held) else np.zeros(M)
        edges.offset_sd = 1.0 / np.sqrt(precision / ratio + min(held, 1e12))
        change = max(change, float(np.abs(offset - edges.offset).max()))
        edges.offset = offset
        weight = weights * (1.0 + OWN) / (noise + OWN * level[of] * edges.relative[who])
        edges.rounds.reached(moved=change, converged=change < tol)
    edges.scale = float(np.exp(np.mean(np.log(level))))
    for n, part in zip(items, parts, strict=True):
        edges.masks[n] = weight[part]


def _residuals(one: DistanceMoments, weight: Floats, offset: Floats) -> tuple[Floats, Floats]:
    """v of each mask of an item, and the mean of its distances less offset and consensus."""
    b, share = offset[one.who], weight / weight.sum()
    A = one.products - np.outer(one.mean, b) - np.outer(b, one.mean) + np.outer(b, b)
    square = np.diag(A) - 2.0 * (A @ share) + float(share @ A @ share)
    x = one.mean - b
    return np.maximum(square, 0.0) / np.maximum(1.0 - share, 1e-6), x - float(share @ x)
