"""Seconds of an epoch on whatever device there is: ResNet-18, 32 x 32 images, 1,000 annotators, 5 votes per image.

    python benchmarks/device.py [--items 20000] [--out FILE.json]

Images and votes are random: only the time is of interest. The second of two epochs is reported.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from crowdwise import registry
from crowdwise.data.votes import Votes

LEARNERS = ("two-stage", "ccem", "trace", "geocrowdnet-f", "crowd-layer", "max-mig", "aggnet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=20000)
    parser.add_argument("--learners", default=",".join(LEARNERS))
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    N, M, K, per = given.items, 1000, 10, 5
    X = rng.integers(256, size=(N, 32, 32, 3), dtype=np.uint8)
    who = (rng.integers(M, size=(N, 1)) + np.arange(per) * 17) % M
    votes = Votes.from_codes(
        np.repeat(np.arange(N), per), who.ravel(), rng.integers(K, size=N * per), items=range(N), annotators=range(M),
        classes=range(K),
    )  # fmt: skip
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    rows = []
    for precision in ("bfloat16", "float32"):
        for key in given.learners.split(","):
            settings = {
                "network": "resnet18",
                "batch_size": 256,
                "epochs": 2,
                "precision": precision,
                "random_state": 0,
            }
            learner = registry.find(key, inputs=True).create(**settings).fit(X, votes)
            rows.append({"device": name, "torch": torch.__version__, "learner": key, "precision": precision,
                         "items": N, "seconds": learner.history_[-1].seconds})  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
