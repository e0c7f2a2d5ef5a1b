"""Many calls at a time, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, TypeVar

from crowdwise.core.constraints import Bounds

__all__ = ["Jobs", "Progress", "run_tasks"]

T = TypeVar("T")
Jobs = Annotated[int, Bounds(minimum=1)] | None
"""How many processes at a time; ``None``: as many as there are cores."""
Progress = Callable[[str], None]
"""Called with the name of each task when it is done."""


def run_tasks(
    tasks: Sequence[Callable[[], T]], names: Sequence[str], n_jobs: Jobs = 1, progress: Progress | None = None
) -> list[T]:
    """The results of some calls, in order. With several processes, the calls and their results are pickled."""
    out = []
    for name, result in zip(names, _results(tasks, min(n_jobs or os.cpu_count() or 1, len(tasks))), strict=True):
        out.append(result)
        if progress is not None:
            progress(name)
    return out


def _results(tasks: Sequence[Callable[[], T]], n_jobs: int) -> Iterator[T]:
    if n_jobs <= 1:
        yield from (task() for task in tasks)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # Fresh processes: a fork of one in which other libraries have threads can hang.
    with ProcessPoolExecutor(n_jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(task) for task in tasks]
        try:
            yield from (future.result() for future in waiting)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
