"""The pass over the votes on a GPU beside one core of compiled code, and whole fits (the GPU with the threads of its
host, one core alone), in one run.

python benchmarks/gpu_pass.py [--votes 50e6] [--classes 5,20] [--annotators 2000] [--fit 10e6] [--out gpu_pass.json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from crowdwise import DawidSkene, Votes
from crowdwise.kernels import cuda, native

VOTES_PER_ITEM = 5


def crowd(S: int, M: int, K: int, seed: int = 0) -> Votes:
    """Annotators who are right two times of three, with very unequal numbers of votes."""
    rng = np.random.default_rng(seed)
    N = S // VOTES_PER_ITEM
    truth = rng.integers(0, K, N, dtype=np.int32)
    annotator = np.minimum((M * rng.random(N * VOTES_PER_ITEM) ** 2).astype(np.int32), M - 1)
    other = rng.integers(0, K, N * VOTES_PER_ITEM, dtype=np.int32)
    label = np.where(rng.random(N * VOTES_PER_ITEM) < 0.6, np.repeat(truth, VOTES_PER_ITEM), other)
    indptr = np.arange(N + 1, dtype=np.int64) * VOTES_PER_ITEM
    return Votes(indptr, annotator, label, np.arange(N), np.arange(M), np.arange(K))


def seconds(run: Callable[[], Any], times: int) -> float:
    """The median time of a call."""
    taken = []
    for _ in range(times):
        torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def one_pass(S: int, M: int, K: int) -> dict[str, Any]:
    votes = crowd(S, M, K)
    cell = votes.annotator * K + votes.label
    none, no_truth = np.empty(0), np.empty(0, dtype=np.int32)
    log_score = np.log(np.random.default_rng(1).dirichlet(np.ones(K), M * K))
    log_prior = np.log(np.full((1, K), 1.0 / K))
    given = (votes.indptr, cell, none, log_score, log_prior, no_truth)
    began = time.perf_counter()
    part = cuda.Resident(votes.indptr, cell, none, M * K)
    torch.cuda.synchronize()
    moved = time.perf_counter() - began
    first = part.expect(log_score, log_prior, no_truth, posterior=False)
    gpu = seconds(lambda: part.expect(log_score, log_prior, no_truth, posterior=False), 9)
    native.expect(*given, posterior=False, threads=1)
    cpu = seconds(lambda: native.expect(*given, posterior=False, threads=1), 3)
    plain = native.expect(*given, posterior=False, threads=1)
    error = float(np.abs(first[0] - plain[0]).max() / plain[0].max())
    return {
        "votes": S, "annotators": M, "classes": K, "transfer": moved, "gpu": gpu, "one_core": cpu, "ratio": cpu / gpu,
        "relative_error": error,
    }  # fmt: skip


def whole_fit(S: int, M: int, K: int) -> dict[str, Any]:
    votes = crowd(S, M, K)
    out: dict[str, Any] = {"votes": S, "annotators": M, "classes": K}
    found = {}
    for engine in ("cuda", "native"):
        os.environ["CROWDWISE_ENGINE"] = engine
        os.environ["CROWDWISE_THREADS"] = "0" if engine == "cuda" else "1"  # beside a GPU the host has its threads
        DawidSkene(max_iter=3).fit(votes[np.arange(20_000)])  # compile, start the device
        cuda.release()
        began = time.perf_counter()
        found[engine] = DawidSkene().fit(votes).consensus_
        out[engine] = time.perf_counter() - began
        out[f"{engine}_iterations"] = found[engine].iterations
    out["ratio"] = out["native"] / out["cuda"]
    difference = np.abs(found["cuda"].posterior - found["native"].posterior).max()
    out["largest_difference"] = float(difference)
    out["labels_that_differ"] = int((found["cuda"].label_codes != found["native"].label_codes).sum())
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--votes", type=float, default=50e6)
    parser.add_argument("--classes", default="5,20")
    parser.add_argument("--annotators", type=int, default=2000)
    parser.add_argument("--fit", type=float, default=10e6, help="votes of the whole fit")
    parser.add_argument("--out")
    given = parser.parse_args()
    result: dict[str, Any] = {"device": torch.cuda.get_device_name(), "passes": [], "fits": []}
    for K in map(int, given.classes.split(",")):
        for kind, run, S in (("passes", one_pass, given.votes), ("fits", whole_fit, given.fit)):
            row = run(int(S), given.annotators, K)
            print(json.dumps(row), flush=True)
            result[kind].append(row)
            if given.out:
                with open(given.out, "w") as out:
                    json.dump(result, out, indent=1)


if __name__ == "__main__":
    main()
