"""What an epoch of each learner costs beside plain cross-entropy on the same network; write results/epochs.json.

    python benchmarks/epochs.py            1,000 annotators on two networks, then 100,000 (some minutes on one core)
    python benchmarks/epochs.py --quick    a tenth of the items, into a scratch folder: does it run?

The yardstick is ``two-stage``, whose network is trained on one label per item: the same loop, batches and optimiser,
and no annotators in the loss. Every item has five votes. Times are those of the processor, on one thread, and the least
of several epochs of several interleaved fits; work before the first and after the last epoch is left out. The networks
are an MLP on 512 features, so small that the fixed cost of a few more operations per batch counts, and LeNet-5 on
28 x 28 images, where it matters less.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "CROWDWISE_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402
import torch  # noqa: E402

from crowdwise import registry  # noqa: E402
from crowdwise.data.votes import Votes  # noqa: E402

HERE = Path(__file__).resolve().parent
NETWORKS: dict[str, tuple[int, ...]] = {"mlp": (512,), "lenet5": (1, 28, 28)}
YARDSTICK, LIMIT = "two-stage", 1.3
SLOW = ("deep-bp", "transition-x", "weighted-doctor-net")
"""Messages between a thousand annotators and their items take minutes; the others have stages, so no one epoch."""
FITS, EPOCHS = 2, 4


def crowd(n_items: int, n_annotators: int, n_classes: int, shape: tuple[int, ...]) -> tuple[npt.NDArray[Any], Votes]:
    """Random inputs, and five votes for each by random annotators who are right seven times out of ten."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_items, *shape)).astype(np.float32)
    truth = rng.integers(n_classes, size=(n_items, 1))
    # From a random one on, evenly around the circle of all: five different annotators for every item.
    who = (rng.integers(n_annotators, size=(n_items, 1)) + np.arange(5) * (n_annotators // 5)) % n_annotators
    label = np.where(rng.random(who.shape) < 0.7, truth, rng.integers(n_classes, size=who.shape))
    item = np.repeat(np.arange(n_items), 5)
    votes = Votes.from_codes(
        item, who.ravel(), label.ravel(), items=range(n_items), annotators=range(n_annotators), classes=range(n_classes)
    )
    return X, votes


def epoch_seconds(key: str, network: str, X: Any, votes: Votes, epochs: int) -> float:
    """The least time of an epoch of one fit, the first left out."""
    settings = {"network": network, "epochs": epochs, "random_state": 0, "device": "cpu"}
    if key == "mbem":  # its later rounds start the network anew, which is not part of an epoch
        settings["n_rounds"] = 1
    reported: list[float] = []
    registry.find(key, inputs=True).create(**settings).fit(
        X, votes, callback=lambda _: reported.append(time.process_time())
    )
    return float(np.diff(reported).min())


def keys() -> list[str]:
    """Learners with a network, the yardstick first."""
    networked = [k for k, entry in registry.LEARNERS.items() if "network" in entry.load().parameters()]
    return [YARDSTICK, *(k for k in networked if k != YARDSTICK and k not in SLOW)]


def ratios(network: str, n_items: int, n_annotators: int = 1000, n_classes: int = 10) -> dict[str, Any]:
    """Seconds of an epoch and their ratio to the yardstick's, for every learner."""
    X, votes = crowd(n_items, n_annotators, n_classes, NETWORKS[network])
    least: dict[str, float] = {}
    for _ in range(FITS):
        for key in keys():
            least[key] = min(epoch_seconds(key, network, X, votes, EPOCHS), least.get(key, np.inf))
    return {
        "network": network,
        "items": n_items,
        "annotators": n_annotators,
        "classes": n_classes,
        "votes": votes.n_votes,
        "batch": 64,
        "learners": {key: {"seconds": seconds, "ratio": seconds / least[YARDSTICK]} for key, seconds in least.items()},
    }


def many(n_items: int, n_annotators: int = 100_000, n_classes: int = 4) -> dict[str, Any]:
    """A fit of two epochs with more annotators than items: does it work, and how long does an epoch take?"""
    X, votes = crowd(n_items, n_annotators, n_classes, (32,))
    out: dict[str, Any] = {}
    for key in keys():
        began = time.process_time()
        settings = {"epochs": 2, "random_state": 0, "device": "cpu", "batch_size": 256}
        learner = registry.find(key, inputs=True).create(**settings).fit(X, votes)
        out[key] = {
            "epoch_seconds": min(step.seconds for step in learner.history_),
            "fit_seconds": time.process_time() - began,
            "finite": bool(np.isfinite(learner.consensus_.posterior).all()),
        }
    return {"items": n_items, "annotators": n_annotators, "classes": n_classes, "batch": 256, "learners": out}


def table(facts: dict[str, Any]) -> str:
    """The ratios as lines of text."""
    lines = [f"{'epoch / epoch of ' + YARDSTICK:24s}" + "".join(f"{f['network']:>10s}" for f in facts["ratios"])]
    for key in facts["ratios"][0]["learners"]:
        lines.append(
            f"{key:24s}" + "".join(f"{f['learners'][key]['ratio']:10.2f}" for f in facts["ratios"])
        )  # fmt: skip
    for f in facts["ratios"]:
        over = [key for key, x in f["learners"].items() if x["ratio"] > LIMIT]
        lines.append(f"over {LIMIT} with {f['network']}: {', '.join(over) or 'none'}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the items, into a scratch folder")
    parser.add_argument("--no-many", action="store_true", help="leave out the run with 100,000 annotators")
    given = parser.parse_args()
    torch.set_num_threads(1)
    scale = 0.1 if given.quick else 1.0
    folder = Path(tempfile.mkdtemp(prefix="crowdwise-")) if given.quick else HERE / "results"
    facts: dict[str, Any] = {
        "machine": {"python": platform.python_version(), "processor": platform.machine(), "torch": torch.__version__},
        "ratios": [ratios(network, int(4000 * scale)) for network in NETWORKS],
    }
    if not given.no_many:
        facts["many"] = many(int(10_000 * scale))
    (folder / "epochs.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{table(facts)}\nwritten: {folder / 'epochs.json'}\n")


if __name__ == "__main__":
    main()
