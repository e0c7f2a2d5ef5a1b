"""Images a second of networks that share one GPU, by how their passes are made: as they are, recorded, compiled.

    python benchmarks/shared_gpu.py [--processes 8] [--networks vgg16,resnet18] [--seconds 6] [--out FILE.json]

Each process trains one of the networks (in turn) on random images of 32 x 32 in batches of 500. Time is taken from the
third epoch on, when all processes have compiled; images of a network are added over its processes. Start NVIDIA's MPS
first where several processes shall compute at the same moment.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import time
from pathlib import Path
from typing import Any

import torch
from device import crowd

from crowdwise import registry

WAYS = {"plain": {}, "graphs": {"cuda_graphs": True}, "compile": {"compile": True},
        "both": {"compile": True, "cuda_graphs": True}}  # fmt: skip
ITEMS, BATCH = 5000, 500


def train(network: str, way: str, seconds: float, barrier: Any, found: Any) -> None:
    """Train until the time is over; the images a second go into a queue."""
    X, votes = crowd(ITEMS, per=3)
    began, epochs = 0.0, -2

    def after(epoch: Any) -> bool:
        nonlocal began, epochs
        epochs += 1
        if epochs == 0:
            barrier.wait()
            began = time.perf_counter()
        return epochs > 0 and time.perf_counter() - began > seconds

    settings = {"network": network, "batch_size": BATCH, "augment": "crop", "optimiser": "adamw", "epochs": 100_000}
    registry.find("ccem", inputs=True).create(random_state=0, **settings, **WAYS[way]).fit(X, votes, callback=after)
    found.put((network, epochs * ITEMS / (time.perf_counter() - began)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--networks", default="vgg16,resnet18")
    parser.add_argument("--ways", default="graphs,compile,both")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    networks, context = given.networks.split(","), mp.get_context("spawn")
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    rows: list[dict[str, Any]] = []
    for way in given.ways.split(","):
        barrier, found = context.Barrier(given.processes), context.Queue()
        own = [networks[i % len(networks)] for i in range(given.processes)]
        workers = [context.Process(target=train, args=(net, way, given.seconds, barrier, found)) for net in own]
        for worker in workers:
            worker.start()
        rates = [found.get(timeout=600) for _ in workers]
        for worker in workers:
            worker.join()
        total = {net: round(sum(rate for other, rate in rates if other == net)) for net in networks}
        rows.append({"device": name, "processes": given.processes, "way": way, "images_per_second": total})
        print(json.dumps(rows[-1]), flush=True)
        if given.out is not None:
            given.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
