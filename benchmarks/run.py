"""Measure crowdwise beside crowd-kit and beside the floor, in one run; write results/*.json and the page of the docs.

    python benchmarks/run.py            everything (about twenty minutes on two cores)
    python benchmarks/run.py --quick    a tenth of the sizes, into a scratch folder: does it run?
    python benchmarks/run.py speed      one part of it

Times are the least of several repeats, since machines are noisy; what counts is their ratio within the run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import crowdwise as cw
from crowdwise.bench import runs
from crowdwise.core.em import Params, Part
from crowdwise.core.loop import Progress
from crowdwise.kernels import native
from crowdwise.kernels.compiler import threads_for

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # the parts in files of their own, imported where they are used: pandas is memory, too
SETS = (
    "bluebird", "d_product", "d_sentiment", "dog", "face", "imagenet15n", "labelme", "music_genre", "rte", "s_adult",
    "sentiment_polarity", "trec2010_binary", "web", "wsd",
)  # fmt: skip


# -------------------------------------------------------------------- the floor and the clock


def least(work: Callable[[], Any], repeats: int = 5) -> float:
    """The least time of several, in seconds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def floor_kernel(part: Part, K: int) -> Callable[[], None]:
    """What no pass can do without: gather K scores and scatter K counts for every vote.

    One thread, no arithmetic between.
    """
    from numba import njit

    @njit(nogil=True)
    def run(indptr: Any, cell: Any, score: Any, counts: Any) -> None:
        x = np.empty(K)
        for n in range(len(indptr) - 1):
            for k in range(K):
                x[k] = 0.0
            for s in range(indptr[n], indptr[n + 1]):
                for k in range(K):
                    x[k] += score[cell[s], k]
            for s in range(indptr[n], indptr[n + 1]):
                for k in range(K):
                    counts[cell[s], k] += x[k]

    score, counts = np.random.default_rng(0).random((part.n_cells, K)), np.zeros((part.n_cells, K))
    run(part.indptr, part.cell, score, counts)
    return lambda: run(part.indptr, part.cell, score, counts)


def crowd(n_votes: int, M: int = 2000, K: int = 5, seed: int = 0) -> Any:
    """Five votes per item by annotators whose confusion matrices vary widely: EM takes its time."""
    return cw.simulate.dirichlet(
        n_votes // 5, n_annotators=M, n_classes=K, diagonal=3, votes_per_item=5, random_state=seed
    )


def one_pass(part: Part, threads: int) -> Callable[[], None]:
    K = part.n_classes
    rng = np.random.default_rng(0)
    params = Params(np.log(rng.dirichlet(np.ones(K), part.n_cells)), np.log(np.full((1, K), 1.0 / K)))
    arguments = (part.indptr, part.cell, part.weight, params.log_score, params.log_prior, part.truth)
    native.expect(*arguments, posterior=False, threads=threads)
    return lambda: native.expect(*arguments, posterior=False, threads=threads)


# -------------------------------------------------------------------- speed beside crowd-kit


def speed(scale: float) -> dict[str, Any]:
    """Time per iteration, time to the same log-likelihood, and peak memory, at 5 M votes."""
    S = int(5_000_000 * scale)
    votes = crowd(S).votes
    part = Part.of(votes)
    K = votes.n_classes
    threads = threads_for(votes.n_votes, part.n_cells)
    out: dict[str, Any] = {
        "votes": votes.n_votes,
        "items": len(votes),
        "annotators": votes.n_annotators,
        "classes": K,
        "threads": threads,
        "pass_seconds": least(one_pass(part, threads)),
        "pass_seconds_one_thread": least(one_pass(part, 1)),
        "floor_seconds_one_thread": least(floor_kernel(part, K)),
    }
    out["floor_ratio_one_thread"] = out["pass_seconds_one_thread"] / out["floor_seconds_one_thread"]
    same = to_the_same_likelihood(votes)
    table = pl.DataFrame({"item": votes.item, "annotator": votes.annotator, "label": votes.label})
    named = table.with_columns(
        pl.format("image-{}.jpg", "item").alias("item"), pl.format("w{}", "annotator").alias("annotator")
    )
    with tempfile.TemporaryDirectory() as folder:
        for kind, frame in (("text", named), ("integers", table)):
            file = Path(folder) / f"{kind}.parquet"
            frame.write_parquet(file)
            child("crowdwise-fit", file)  # fills the cache of compiled code
            ours, peer = child("crowdwise-fit", file), child("crowd-kit-fit", file)
            theirs = peer["setup_seconds"] + same["plain_passes"] * peer["iteration_seconds"]
            out[kind] = {
                "crowdwise": ours,
                "crowd_kit": peer,
                "iteration_ratio": peer["iteration_seconds"] / ours["iteration_seconds"],
                "peak_ratio": ours["peak_mb"] / peer["peak_mb"],
                "fit_memory_ratio": ours["fit_mb"] / peer["fit_mb"],
                "crowd_kit_likelihood_seconds": theirs,
                "likelihood_ratio": theirs / same["crowdwise_seconds"],
            }
    return out | {"same_likelihood": same}


def to_the_same_likelihood(votes: Any) -> dict[str, Any]:
    """How long a fit takes to come within 1e-6 per vote of the best log-likelihood that it or plain EM reaches.

    crowd-kit's iterations are plain EM's, to six digits (a test says so), so the passes plain EM needs are the
    iterations crowd-kit needs; they cost what one of its iterations is measured to cost.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = cw.aggregate(votes, "dawid-skene", prior=1e-9, accelerate=False, tol=1e-9, max_iter=400)
        fast = cw.aggregate(votes, "dawid-skene", prior=1e-9, tol=1e-9, max_iter=400)
    goal = max(plain.trace[-1], fast.trace[-1]) - 1e-6 * votes.n_votes
    plain_passes = int(np.argmax(plain.trace >= goal)) + 1 if plain.trace[-1] >= goal else len(plain.trace)
    reached: dict[str, Any] = {}

    def watch(step: Progress) -> None:
        if "seconds" not in reached and step.objective >= goal:
            reached.update(seconds=time.perf_counter() - began, passes=step.iteration)

    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cw.aggregate(votes, "dawid-skene", prior=1e-9, tol=1e-9, max_iter=400, callback=watch)
    return {
        "plain_passes": plain_passes,
        "accelerated_passes": reached["passes"],
        "crowdwise_seconds": reached["seconds"],
    }


def child(job: str, file: Path, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Run one job in a process of its own, so that its peak memory is its own."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--job", job, str(file)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode != 0:
        raise RuntimeError(f"{job} failed: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def held_mb(field: str) -> float:
    """``VmRSS``, the memory the process holds, or ``VmHWM``, the most it held (Linux; nan elsewhere)."""
    status = Path("/proc/self/status")
    return int(status.read_text().split(f"{field}:")[1].split()[0]) / 1024 if status.exists() else float("nan")


def memory_of(work: Callable[[], Any]) -> dict[str, float]:
    """The peak of the process until some work is done, and by how much it grew while it was."""
    peak, before = held_mb("VmHWM"), held_mb("VmRSS")
    if peak == peak:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from here
    work()
    after = held_mb("VmHWM")
    return {"fit_mb": after - before, "peak_mb": max(peak, after)}


def crowdwise_fit(file: Path) -> dict[str, Any]:
    began = time.perf_counter()
    votes = cw.read_votes(file)
    coding = time.perf_counter() - began
    options: dict[str, Any] = {"prior": 1e-9, "accelerate": False, "tol": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        memory = memory_of(lambda: cw.aggregate(votes, "dawid-skene", max_iter=2, **options))
        few = least(lambda: cw.aggregate(votes, "dawid-skene", max_iter=2, **options), 3)
        many = least(lambda: cw.aggregate(votes, "dawid-skene", max_iter=12, **options), 3)
    iteration = (many - few) / 10
    return {
        "coding_seconds": coding,
        "iteration_seconds": iteration,
        "setup_seconds": few - 2 * iteration,
        **memory,
    }


def crowd_kit_fit(file: Path) -> dict[str, Any]:
    import pandas as pd
    from crowdkit.aggregation import DawidSkene

    warnings.simplefilter("ignore")
    frame = pd.read_parquet(file).rename(columns={"item": "task", "annotator": "worker"})

    def fit(passes: int) -> None:
        DawidSkene(n_iter=passes, tol=0).fit(frame)

    memory = memory_of(lambda: fit(2))
    few, many = least(lambda: fit(1), 2), least(lambda: fit(3), 2)
    iteration = (many - few) / 2
    return {
        "iteration_seconds": iteration,
        "setup_seconds": few - iteration,
        **memory,
    }


# -------------------------------------------------------------------- growth, reading, starting


def growth(scale: float) -> dict[str, Any]:
    """Seconds per pass from 1e5 to 5e7 votes, and the exponent of their growth."""
    rows = []
    for S in (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 50_000_000):
        S = max(50_000, int(S * scale))
        part = Part.of(crowd(S).votes)
        seconds = least(one_pass(part, threads_for(S, part.n_cells)), 5)
        rows.append({"votes": S, "seconds": seconds, "ns_per_vote": 1e9 * seconds / S})
    x, y = np.log([r["votes"] for r in rows]), np.log([r["seconds"] for r in rows])
    return {"rows": rows, "exponent": float(np.polyfit(x, y, 1)[0])}


def reading(scale: float) -> dict[str, Any]:
    """Reading and coding 10 M rows, beside what polars takes to read the same file."""
    N, out = int(2_000_000 * scale), {}
    rng = np.random.default_rng(0)
    M = max(50, N // 400)
    table = pl.DataFrame(
        {"item": rng.permutation(np.repeat(np.arange(N), 5)), "annotator": rng.integers(0, M, 5 * N)}
    ).unique(["item", "annotator"], maintain_order=True)
    table = table.with_columns(label=pl.Series(rng.integers(0, 5, table.height)))
    named = table.select(
        pl.format("image-{}.jpg", "item").alias("item"), pl.format("w{}", "annotator").alias("annotator"), "label"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, frame in (("integers", table), ("integers, grouped by item", table.sort("item")), ("text", named)):
            file = Path(folder) / "votes.csv"
            frame.write_csv(file)
            cw.read_votes(file)  # loads the compiled code
            polars = least(lambda file=file: pl.read_csv(file), 5)
            ours = least(lambda file=file: cw.read_votes(file), 5)
            out[name] = {
                "rows": frame.height,
                "polars_seconds": polars,
                "crowdwise_seconds": ours,
                "ratio": ours / polars,
            }
    return out


def starting(scale: float) -> dict[str, Any]:
    """A cold ``crowdwise aggregate`` on a crowd of the size of RTE, beside a bare import of numpy, scipy.sparse
    and polars."""
    with tempfile.TemporaryDirectory() as folder:
        sim = cw.simulate.two_coin(800, n_annotators=164, votes_per_item=10, random_state=0)
        sim.save(Path(folder) / "rte")
        command = [sys.executable, "-m", "crowdwise", "aggregate", str(Path(folder) / "rte"), "--json"]
        bare = [sys.executable, "-c", "import numpy, scipy.sparse, polars"]
        run = lambda c: subprocess.run(c, capture_output=True, check=True)  # noqa: E731
        run(command)
        a, b = least(lambda: run(bare), 7), least(lambda: run(command), 7)
    return {"import_seconds": a, "crowdwise_seconds": b, "ratio": b / a}


# -------------------------------------------------------------------- other methods


def peers(scale: float) -> dict[str, Any]:
    """Methods that crowd-kit has too, all in one process on one thread."""
    one = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "CROWDWISE_THREADS")}
    return child("peers", Path(str(scale)), one)


def linear(scale: float) -> dict[str, Any]:
    """Every method at 5 M votes."""
    import linear as at_size

    return at_size.linear(scale, Path(__file__).resolve())


def linear_fit(key: str, file: Path) -> dict[str, Any]:
    import linear as at_size

    return at_size.measure(file, key, memory_of)


def peers_fit(scale: float) -> dict[str, Any]:
    import peers as beside

    return beside.peers(scale)


# -------------------------------------------------------------------- real data


def labels(scale: float) -> dict[str, Any]:
    """What ``crowdwise bench`` measures on the real crowds with truth."""
    folder = runs.data_folder()
    sets = [name for name in SETS if (folder / name).is_dir()]
    return runs.measure_all(folder, sets, list(cw.METHODS))


PARTS: dict[str, Callable[[float], dict[str, Any]]] = {
    "speed": speed,
    "growth": growth,
    "reading": reading,
    "starting": starting,
    "peers": peers,
    "linear": linear,
    "labels": labels,
}
JOBS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "crowdwise-fit": crowdwise_fit,
    "crowd-kit-fit": crowd_kit_fit,
    "peers": lambda scale: peers_fit(float(str(scale))),
    **{f"linear:{key}": partial(linear_fit, key) for key in cw.METHODS},
}


def machine() -> dict[str, Any]:
    import numba

    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "polars": pl.__version__,
        "crowdwise": cw.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"which of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes, into a scratch folder")
    parser.add_argument("--job", nargs=2, metavar=("JOB", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        sys.stdout.write(json.dumps(JOBS[given.job[0]](Path(given.job[1]))) + "\n")
        return
    unknown = set(given.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    results = Path(tempfile.mkdtemp()) if given.quick else HERE / "results"
    for name in given.parts or PARTS:
        sys.stderr.write(f"{name} ...\n")
        found = PARTS[name](0.1 if given.quick else 1.0)
        text = json.dumps({"machine": machine(), **({"result": found})}, indent=1)
        (results / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        sys.stderr.write(f"  {results / name}.json\n")
    if not given.quick:
        import page

        page.write()


if __name__ == "__main__":
    main()
