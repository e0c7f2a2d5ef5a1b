"""Seconds of an epoch on whatever device there is: ResNet-18, 32 x 32 images, 1,000 annotators, 5 votes per image.

    python benchmarks/device.py [--items 20000] [--batch 256,512] [--ways plain,graphs,compile] [--out FILE.json]

Images and votes are random: only the time is of interest. The least of the epochs after the first is reported, and its
ratio to plain cross-entropy (``two-stage``) with the same batch, measured just before. Losses with an E-step in every
epoch are marked: theirs includes it. The way ``whole`` is not a learner: it is the same network with cross-entropy and
AdamW, compiled, each step one CUDA graph from the crop to the new weights, which no learner's epoch can be faster than.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from crowdwise import registry
from crowdwise.data.votes import Votes
from crowdwise.learners import networks
from crowdwise.learners.inputs import Images

PLAIN = "two-stage"
LEARNERS = ("ccem", "trace", "geocrowdnet-f", "geocrowdnet-w", "coinnet", "crowd-layer", "conal", "max-mig",
            "doctor-net", "aggnet", "deep-mf")  # fmt: skip
EVERY_EPOCH = ("aggnet", "deep-mf")
WAYS: dict[str, dict[str, Any]] = {
    "plain": {}, "graphs": {"cuda_graphs": True}, "compile": {"compile": True},
    "both": {"compile": True, "cuda_graphs": True},
}  # fmt: skip


def crowd(N: int, M: int = 1000, K: int = 10, per: int = 5) -> tuple[Any, Votes]:
    """Random images and votes."""
    rng = np.random.default_rng(0)
    X = rng.integers(256, size=(N, 32, 32, 3), dtype=np.uint8)
    who = (rng.integers(M, size=(N, 1)) + np.arange(per) * 17) % M
    votes = Votes.from_codes(
        np.repeat(np.arange(N), per), who.ravel(), rng.integers(K, size=N * per), items=range(N), annotators=range(M),
        classes=range(K),
    )  # fmt: skip
    return X, votes


def epoch_seconds(key: str, X: Any, votes: Votes, **settings: Any) -> float:
    """The least time of an epoch, the first left out."""
    learner = registry.find(key, inputs=True).create(random_state=0, **settings).fit(X, votes)
    return float(min(step.seconds for step in learner.history_[1:]))


def whole_steps(name: str, X: Any, batch: int, epochs: int) -> float:
    """The least time of an epoch whose steps are one graph each, crop, network, loss and optimiser together."""
    device = torch.device("cuda")
    torch.backends.cudnn.benchmark = True
    images = Images(X, True, device)
    target = torch.randint(10, (len(X),), device=device)
    network = networks.build(name, (3, 32, 32), 10).to(device, memory_format=torch.channels_last)
    passes = torch.compile(network, mode="max-autotune-no-cudagraphs")
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=torch.tensor(1e-3, device=device), fused=True, capturable=True
    )
    index = torch.arange(batch, device=device)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            logits = passes(images.read(index, "crop"))
        nn.functional.cross_entropy(logits.float(), target[index]).backward()
        optimiser.step()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    optimiser.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph, stream=side):
        step()
    taken = []
    for _ in range(epochs):
        torch.cuda.synchronize()
        began = time.perf_counter()
        order = torch.randperm(len(X), device=device)
        for lo in range(0, len(X) - batch + 1, batch):
            index.copy_(order[lo : lo + batch])
            graph.replay()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - began) * len(X) / (len(X) // batch * batch))
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=20000)
    parser.add_argument("--learners", default=",".join(LEARNERS))
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--batch", default="256,512,1024")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--augment", default="crop")
    parser.add_argument("--ways", default="plain", help=f"{', '.join(WAYS)}, whole; with commas between")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    X, votes = crowd(given.items)
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    rows: list[dict[str, Any]] = []

    def note(key: str, batch: int, way: str, plain: float | None = None) -> float:
        settings = {"network": given.network, "batch_size": batch, "epochs": given.epochs, "augment": given.augment}
        if way == "whole":
            seconds = whole_steps(given.network, X, batch, given.epochs)
        else:
            seconds = epoch_seconds(key, X, votes, **settings, **WAYS[way])
        rows.append({
            "device": name, "torch": torch.__version__, "items": given.items, "learner": key, "batch": batch,
            "way": way, "augment": given.augment, "seconds": seconds,
            "ratio": None if plain is None else seconds / plain, "e_step": key in EVERY_EPOCH,
        })  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
        if given.out is not None:
            given.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        return seconds

    ways = given.ways.split(",")
    found = {(batch, way): note(PLAIN, batch, way) for way in ways for batch in map(int, given.batch.split(","))}
    batch, way = min((pair for pair in found if pair[1] != "whole"), key=lambda pair: found[pair])
    for key in filter(None, given.learners.split(",")):
        note(key, batch, way, note(PLAIN, batch, way))


if __name__ == "__main__":
    main()
