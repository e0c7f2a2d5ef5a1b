"""The pass over the votes on a GPU, in torch: the same numbers as ``reference`` to rounding.

The votes are moved to the device once and stay there, sorted by item and by cell. Both steps are then sums of rows of
a table over bags of row numbers: logit[n] of rows of ``log_score`` over the votes on item n, counts[c] of rows of the
posterior over the votes in cell c. Triton sums them (:mod:`crowdwise.kernels.bag_sums`) or, where it is not there,
``embedding_bag`` of torch. No temporary has a row per vote, and nothing is added in an order that changes from run to
run. A bag that is long (an annotator with a million votes) is cut into pieces whose sums are added up in a second step,
so that one bag does not keep the device waiting.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from crowdwise.kernels.reference import Floats, Ints

try:
    from crowdwise.kernels import bag_sums
except ImportError:  # torch comes without Triton on some systems
    bag_sums = None  # type: ignore[assignment]

DEVICE = "cuda"
PIECE = 512
"""The most rows that are added one after the other."""
KEPT = 2
"""Tables of votes that stay on the device."""


def available() -> bool:
    """Whether torch finds a GPU of NVIDIA's."""
    return torch.cuda.is_available()


def triton_works(device: torch.device) -> bool:
    """Whether Triton is there and compiles for this device."""
    return bag_sums is not None and device.type == "cuda" and bag_sums.works(device)


class Bags:
    """Row numbers in bags, ``indptr[b]:indptr[b + 1]``, each row with a weight or not."""

    def __init__(self, rows: Tensor, indptr: Tensor, weight: Tensor | None = None) -> None:
        size = indptr.diff()
        pieces = (size + PIECE - 1) // PIECE
        self.joined: Bags | None = None
        if len(size) and int(pieces.max()) > 1:
            ends = pieces.cumsum(0)
            bag = torch.repeat_interleave(torch.arange(len(size), device=rows.device), pieces)
            within = torch.arange(len(bag), device=rows.device) - (ends - pieces)[bag]
            first = indptr[:-1][bag] + within * PIECE
            self.joined = Bags(torch.arange(len(bag), device=rows.device), torch.cat([ends.new_zeros(1), ends]))
            indptr = torch.cat([first, indptr[-1:]])
        small = max(len(rows), len(indptr)) < np.iinfo(np.int32).max
        kind = torch.int32 if small else torch.int64
        self.rows, self.offsets, self.weight = rows.to(kind), indptr.to(kind), weight

    def sums(self, table: Tensor) -> Tensor:
        """The sum of the rows of a table in each bag."""
        if len(self.offsets) == 1 or not len(self.rows):
            n_bags = len(self.offsets) - 1 if self.joined is None else len(self.joined.offsets) - 1
            return table.new_zeros(n_bags, table.shape[1])
        if triton_works(table.device):
            out = bag_sums.bag_sums(self.rows, table, self.offsets, self.weight)
        else:
            out = embedding_bag(
                self.rows, table, self.offsets, mode="sum", per_sample_weights=self.weight, include_last_offset=True
            )
        return out if self.joined is None else self.joined.sums(out)


class Resident:
    """Votes on a device. The arrays are those of :mod:`crowdwise.kernels.reference`."""

    def __init__(self, indptr: Ints, cell: Ints, weight: Floats, n_cells: int, device: str | None = None) -> None:
        self.device = torch.device(device or DEVICE)
        self.source: tuple[Any, ...] = (indptr, cell, weight)
        self.n_cells = n_cells
        at = self.put(indptr, torch.int64)
        cells = self.put(cell)
        w = self.put(weight, torch.float64) if len(weight) else None
        self.by_item = Bags(cells, at, w)
        order = torch.sort(cells, stable=True)[1]
        ends = torch.bincount(cells, minlength=n_cells).cumsum(0) if len(cells) else at.new_zeros(n_cells)
        item = torch.repeat_interleave(torch.arange(len(indptr) - 1, device=self.device), at.diff())[order]
        self.by_cell = Bags(item, torch.cat([at.new_zeros(1), ends]), None if w is None else w[order])
        self.truth: Ints | None = None
        self.known = self.true = at[:0]

    def put(self, values: Any, kind: torch.dtype | None = None) -> Tensor:
        """An array on the device, copied if it could be written to through the tensor."""
        values = np.ascontiguousarray(values)
        if self.device.type == "cpu" and not values.flags.writeable:
            values = values.copy()
        with warnings.catch_warnings():  # nothing writes to what is moved to another device
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.from_numpy(values).to(self.device, kind)

    def know(self, truth: Ints) -> None:
        """The items whose class is known; the same array as before is not moved again."""
        if truth is not self.truth:
            codes = np.asarray(truth)
            known = np.flatnonzero(codes >= 0)
            self.known, self.true = self.put(known, torch.int64), self.put(codes[known], torch.int64)
            self.truth = truth

    @torch.no_grad()
    def expect(
        self, log_score: Floats, log_prior: Floats, truth: Ints, posterior: bool = True
    ) -> tuple[Floats, Floats, float, Floats]:
        """See :func:`crowdwise.kernels.reference.expect`; without ``posterior`` the last array is empty."""
        K = log_score.shape[1]
        self.know(truth)
        logit = self.by_item.sums(self.put(log_score, torch.float64)) + self.put(log_prior, torch.float64)
        known = logit[self.known, self.true]
        log_q = torch.log_softmax(logit, 1)
        evidence = logit[:, 0] - log_q[:, 0]
        q = log_q.exp_()
        if len(self.known):
            evidence[self.known] = known
            q[self.known] = 0.0
            q[self.known, self.true] = 1.0
        counts, mass = self.by_cell.sums(q).cpu().numpy(), q.sum(0).cpu().numpy()
        return counts, mass, float(evidence.sum()), q.cpu().numpy() if posterior else np.empty((0, K))

    @torch.no_grad()
    def scatter(self, q: Floats) -> Floats:
        """See :func:`crowdwise.kernels.reference.scatter`."""
        return np.asarray(self.by_cell.sums(self.put(q, torch.float64)).cpu().numpy())


_resident: OrderedDict[tuple[int, ...], Resident] = OrderedDict()


def resident(indptr: Ints, cell: Ints, weight: Floats, n_cells: int, device: str | None = None) -> Resident:
    """These votes on the device: those of the last calls are there already."""
    arrays = (indptr, cell, weight)
    key = (*(id(one) if len(one) else 0 for one in arrays), n_cells, hash(device or DEVICE))
    if key not in _resident:
        while len(_resident) >= KEPT:
            _resident.popitem(last=False)
        _resident[key] = Resident(*arrays, n_cells, device)
    _resident.move_to_end(key)
    return _resident[key]


def release() -> None:
    """Forget the votes that are on the device."""
    _resident.clear()


def expect(
    indptr: Ints, cell: Ints, weight: Floats, log_score: Floats, log_prior: Floats, truth: Ints,
    posterior: bool = True, device: str | None = None,
) -> tuple[Floats, Floats, float, Floats]:  # fmt: skip
    """See :func:`crowdwise.kernels.reference.expect`."""
    return resident(indptr, cell, weight, len(log_score), device).expect(log_score, log_prior, truth, posterior)


def scatter(indptr: Ints, cell: Ints, weight: Floats, q: Floats, n_cells: int, device: str | None = None) -> Floats:
    """See :func:`crowdwise.kernels.reference.scatter`."""
    return resident(indptr, cell, weight, n_cells, device).scatter(q)
