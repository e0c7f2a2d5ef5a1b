"""Sums of rows of a table over bags of row numbers, as one kernel of Triton's for a GPU.

A program takes 32 short bags, a row of each at a time, or one long bag, 32 rows at a time, and up to 32 columns.
Each sum is made by one program, in an order that depends on nothing but the sizes: it is the same from run to run.
"""

from __future__ import annotations

import functools
import warnings

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 32
"""The most columns that a program sums."""
LONG = 64
"""Mean rows per bag from which a program has one bag."""


@triton.jit  # type: ignore[untyped-decorator]
def _sums(  # type: ignore[no-untyped-def] # Triton reads annotations, and knows its own alone
    rows, offsets, weight, table, out, n_bags, K,
    BAGS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    bag = tl.program_id(0).to(tl.int64) * BAGS + tl.arange(0, BAGS)
    inside = bag < n_bags
    start = tl.load(offsets + bag, mask=inside, other=0).to(tl.int64)
    end = tl.load(offsets + bag + 1, mask=inside, other=0).to(tl.int64)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    used = column < K
    ahead = tl.arange(0, ROWS)
    total = tl.zeros([BAGS, WIDTH], dtype=tl.float64)
    longest = tl.max(end - start, axis=0)
    begin = 0
    while begin < longest:
        at = (start + begin)[:, None] + ahead[None, :]
        there = at < end[:, None]
        row = tl.load(rows + at, mask=there, other=0).to(tl.int64)
        value = tl.load(
            table + row[:, :, None] * K + column[None, None, :],
            mask=there[:, :, None] & used[None, None, :],
            other=0.0,
        )
        if WEIGHTED:
            value *= tl.load(weight + at, mask=there, other=0.0)[:, :, None]
        total += tl.sum(value, axis=1)
        begin += ROWS
    tl.store(out + bag[:, None] * K + column[None, :], total, mask=inside[:, None] & used[None, :])


def bag_sums(rows: Tensor, table: Tensor, offsets: Tensor, weight: Tensor | None = None) -> Tensor:
    """The sum of the rows ``rows[offsets[b]:offsets[b + 1]]`` of a table for each bag b, in double precision."""
    n_bags, K = len(offsets) - 1, table.shape[1]
    out = table.new_empty(n_bags, K)
    width = min(COLUMNS, triton.next_power_of_2(K))
    long = len(rows) >= LONG * n_bags
    bags, ahead = (1, 32) if long else (32, 1)  # the fastest of 36 tiles on an H200, 5 and 20 columns
    grid = (triton.cdiv(n_bags, bags), triton.cdiv(K, width))
    _sums[grid](
        rows, offsets, rows if weight is None else weight, table.contiguous(), out, n_bags, K,
        BAGS=bags, ROWS=ahead, WIDTH=width, WEIGHTED=weight is not None, num_warps=1,
    )  # fmt: skip
    return out


@functools.cache
def works(device: torch.device) -> bool:
    """Whether Triton can compile for this device: it needs a C compiler. Where it cannot, that is said once."""
    try:
        table = torch.arange(6.0, dtype=torch.float64, device=device).reshape(3, 2)
        rows, offsets = torch.tensor([0, 2, 1], device=device), torch.tensor([0, 2, 2, 3], device=device)
        sums = bag_sums(rows, table, offsets).tolist()
        if sums == [[4.0, 6.0], [0.0, 0.0], [2.0, 3.0]]:
            return True
        why = f"wrong sums, {sums}"
    except Exception as error:  # of the compiler, the driver or the device
        why = str(error)
    slower = "passes over the votes on the GPU take longer. A C compiler on the path usually fixes it."
    warnings.warn(f"Triton does not work here ({why}): {slower}", RuntimeWarning, stacklevel=2)
    return False
