"""Seconds of an epoch on whatever device there is: ResNet-18, 32 x 32 images, 1,000 annotators, 5 votes per image.

    python benchmarks/device.py [--items 20000] [--batch 256,512] [--graphs] [--out FILE.json]

Images and votes are random: only the time is of interest. The least of the epochs after the first is reported, and its
ratio to plain cross-entropy (``two-stage``) with the same batch, measured just before. Losses with an E-step in every
epoch are marked: theirs includes it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crowdwise import registry
from crowdwise.data.votes import Votes

PLAIN = "two-stage"
LEARNERS = ("ccem", "trace", "geocrowdnet-f", "geocrowdnet-w", "coinnet", "crowd-layer", "conal", "max-mig",
            "doctor-net", "aggnet", "deep-mf")  # fmt: skip
EVERY_EPOCH = ("aggnet", "deep-mf")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=20000)
    parser.add_argument("--learners", default=",".join(LEARNERS))
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--batch", default="256,512,1024")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--augment", default="crop")
    parser.add_argument("--graphs", action="store_true", help="record the network as CUDA graphs, too")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    X, votes = crowd(given.items)
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    rows: list[dict[str, Any]] = []

    def note(key: str, batch: int, graphs: bool, plain: float | None = None) -> float:
        settings = {
            "network": given.network, "batch_size": batch, "epochs": given.epochs, "augment": given.augment,
            "cuda_graphs": graphs,
        }  # fmt: skip
        seconds = epoch_seconds(key, X, votes, **settings)
        rows.append({
            "device": name, "torch": torch.__version__, "items": given.items, "learner": key, "batch": batch,
            "graphs": graphs, "augment": given.augment, "seconds": seconds,
            "ratio": None if plain is None else seconds / plain, "e_step": key in EVERY_EPOCH,
        })  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
        if given.out is not None:
            given.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        return seconds

    found = {
        (batch, graphs): note(PLAIN, batch, graphs)
        for batch in map(int, given.batch.split(","))
        for graphs in ((False, True) if given.graphs else (False,))
    }
    batch, graphs = min(found, key=lambda pair: found[pair])
    for key in filter(None, given.learners.split(",")):
        note(key, batch, graphs, note(PLAIN, batch, graphs))


if __name__ == "__main__":
    main()
