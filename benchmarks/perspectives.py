"""What each annotator would say, and how votes divide: predicted for unseen texts on three sets where people disagree.

    python benchmarks/perspectives.py --data FOLDER --out FILE.json [--splits 2] [--only lewidi_hs_brexit]

A third of the texts is held out with all votes. Two questions are asked of them:

=================  ===================================================================================================
``votes``          each held-out vote: accuracy and log loss of ``predict_annotators``, beside the shares of the labels
                   that the annotator has given in training (with five votes of the crowd's shares)
``distribution``   the shares of an item's votes: Manhattan, Wasserstein and cross-entropy, of the mean of
                   ``predict_annotators`` over its annotators and of a network on vote shares, beside the crowd's shares
``newcomers``      (with ``--newcomers``) votes of a third of the annotators, who are held out as well, on the held-out
                   texts: by the crowd, and by what is known of them (``workers.csv``), a group being one annotator
=================  ===================================================================================================
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise import metrics, registry
from crowdwise.data.votes import Votes

ATTRIBUTES = ("gender", "race", "age", "education", "politic")
SETS = ("lewidi_hs_brexit", "lewidi_md_agreement", "popquorn_offensiveness")
LEARNERS: dict[str, dict[str, Any]] = {
    "ccem": {},
    "aggnet": {},
    "crowd-layer": {},
    "doctor-net": {},
    "two-stage": {"aggregator": "majority", "labels": "soft"},
}
CROWD_VOTES = 5.0


def load(data: Path, name: str) -> tuple[list[str], Votes]:
    """Texts and votes of the same items."""
    with (data / name / "texts.csv").open(encoding="utf-8", newline="") as lines:
        texts = {row["task"]: row["text"] for row in csv.DictReader(lines)}
    with (data / name / "labels.csv").open(encoding="utf-8", newline="") as lines:
        said = [row for row in csv.DictReader(lines) if row["task"] in texts]
    items, who = list(texts), sorted({row["worker"] for row in said})
    classes = sorted({row["label"] for row in said})
    codes = [{name: n for n, name in enumerate(names)} for names in (items, who, classes)]
    item, annotator, label = (
        np.array([code[row[column]] for row in said])
        for code, column in zip(codes, ("task", "worker", "label"), strict=True)
    )
    votes = Votes.from_codes(item, annotator, label, items=items, annotators=who, classes=classes, on_duplicate="last")
    return list(texts.values()), votes


def label_shares(votes: Votes) -> Any:
    """M x K: how often annotators give each label, with some votes of the whole crowd's shares."""
    count = np.zeros((votes.n_annotators, votes.n_classes))
    np.add.at(count, (votes.annotator, votes.label), 1.0)
    crowd = count.sum(axis=0) / count.sum()
    count += CROWD_VOTES * crowd
    return count / count.sum(axis=1, keepdims=True)


def measured(each: Any, shares: Any, test: Votes) -> dict[str, float]:
    """``each`` (N x M x K): what annotators would say; ``shares`` (N x K): how the votes would divide."""
    q = each[test.item, test.annotator] if each.ndim == 3 else each[test.annotator]
    said = q[np.arange(test.n_answers), test.label]
    return {
        "accuracy": float((q.argmax(axis=1) == test.label).mean()),
        "log_loss": float(-np.log(np.maximum(said, 1e-10)).mean()),
        "manhattan": metrics.manhattan(shares, test).value,
        "wasserstein": metrics.wasserstein(shares, test).value,
        "cross_entropy": metrics.cross_entropy(shares, test).value,
    }


def of_item(each: Any, test: Votes) -> Any:
    """N x K: the mean over the annotators of each item of what they would say."""
    q = each[test.item, test.annotator] if each.ndim == 3 else each[test.annotator]
    total = np.zeros((len(test), test.n_classes))
    np.add.at(total, test.item, q)
    return total / np.maximum(total.sum(axis=1, keepdims=True), 1e-12)


def split(texts: list[str], votes: Votes, seed: int, epochs: int) -> dict[str, Any]:
    """Figures of one split."""
    order = np.random.default_rng(seed).permutation(len(texts))
    out, rest = np.sort(order[: len(texts) // 3]), np.sort(order[len(texts) // 3 :])
    train, test = votes[rest], votes[out]
    own = label_shares(train)
    crowd = np.bincount(train.label, minlength=votes.n_classes) / train.n_answers
    found = {
        "annotator's shares": measured(own, of_item(own, test), test),
        "crowd's shares": measured(np.tile(crowd, (votes.n_annotators, 1)), np.tile(crowd, (len(out), 1)), test),
    }
    for key, settings in LEARNERS.items():
        began = time.perf_counter()
        learner = registry.find(key, inputs=True).create(
            network="linear", epochs=epochs, random_state=seed, device="cpu", **settings
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            learner.fit([texts[n] for n in rest], train, items=train.items)
            new = [texts[n] for n in out]
            each = learner.predict_annotators(new, test.annotators)
            shares = learner.predict_proba(new) if key == "two-stage" else of_item(each, test)
        found[key] = measured(each, shares, test) | {"seconds": round(time.perf_counter() - began, 1)}
    return found


def newcomers(data: Path, name: str, texts: list[str], votes: Votes, seed: int, epochs: int) -> dict[str, Any]:
    """Figures of one split in which annotators are held out, too."""
    with (data / name / "workers.csv").open(encoding="utf-8", newline="") as lines:
        known = {row["worker"]: row for row in csv.DictReader(lines)}
    rng = np.random.default_rng(seed)
    new_text = rng.permutation(len(texts)) < len(texts) // 3
    new_who = rng.permutation(votes.n_annotators) < votes.n_annotators // 3
    train = votes.select(~new_text[votes.item] & ~new_who[votes.annotator])
    test = votes.select(new_text[votes.item] & new_who[votes.annotator])
    rest, out = np.flatnonzero(~new_text), np.flatnonzero(new_text)
    said = test.label

    def figures(q: Any) -> dict[str, float]:
        return {"accuracy": float((q.argmax(axis=1) == said).mean()),
                "log_loss": float(-np.log(np.maximum(q[np.arange(len(said)), said], 1e-10)).mean())}  # fmt: skip

    found = {}
    for attribute in ("", *(a for a in ATTRIBUTES if a in next(iter(known.values())))):
        given = [known[who][attribute] if attribute else "all" for who in map(str, votes.annotators)]
        groups = sorted(set(given))
        group = np.array([groups.index(g) for g in given])
        grouped = Votes.from_codes(
            train.item, group[train.annotator], train.label, items=votes.items, annotators=groups,
            classes=votes.classes, on_duplicate="all",
        )  # fmt: skip
        share = label_shares(grouped)
        found[f"shares, {attribute or 'crowd'}"] = figures(share[group[test.annotator]])
        for key in ("ccem", "aggnet"):
            settings: dict[str, Any] = {"network": "linear", "epochs": epochs, "random_state": seed, "device": "cpu"}
            learner = registry.find(key, inputs=True).create(**settings)
            some = grouped[rest]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                learner.fit([texts[n] for n in rest], some, items=some.items)
                each = learner.predict_annotators([texts[n] for n in out], groups)
            at = np.searchsorted(out, test.item), group[test.annotator]
            found[f"{key}, {attribute or 'crowd'}"] = figures(each[at])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(SETS))
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--newcomers", action="store_true", help="hold annotators out, too")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(given.out.read_text(encoding="utf-8")) if given.out.is_file() else []
    for name in given.only.split(","):
        texts, votes = load(given.data, name)
        for seed in range(given.splits):
            part = "newcomers" if given.newcomers else "found"
            if any((row["set"], row["split"]) == (name, seed) and part in row for row in rows):
                continue
            if given.newcomers:
                figures = newcomers(given.data, name, texts, votes, seed, given.epochs)
            else:
                figures = split(texts, votes, seed, given.epochs)
            rows.append({"set": name, "split": seed, part: figures})
            print(json.dumps(rows[-1]), flush=True)
            given.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
