"""The default learner on texts, beside logistic regression: how near it comes to the votes on texts it has not seen.

    python benchmarks/text_sets.py --data FOLDER --out FILE.json [--splits 2] [--only rte]

A fifth of the texts is held out with all votes, of at most 2,000 texts with votes drawn by a fixed seed. All figures
are of the held-out texts: the cross-entropy to the shares of their votes, and the accuracy against their majority
label and, where it is there, against the truth.

=================  ===================================================================================================
``ensemble``       the default of ``crowdwise learn``, which makes its own features of the texts
``plain``          the same learner on TF-IDF of words and pairs of words that occur twice or more
``features``       logistic regression (as below) on majority labels, on the features that the default makes
``majority``       logistic regression of scikit-learn's (C = 1) on majority labels, on TF-IDF of words and pairs of
                   words that occur twice or more
``shares``         the same on vote shares: a row for every text and label, weighted by the label's share
``constant``       the vote shares of all texts learned from
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
from perspectives import load

from crowdwise import metrics, registry
from crowdwise.data.votes import Votes
from crowdwise.learners.text_features import TextAxes

SETS = (
    "lewidi_hs_brexit", "lewidi_md_agreement", "popquorn_offensiveness", "sentiment_polarity", "rte", "rules_youtube",
    "rules_trec", "toxicity_demographics",
)  # fmt: skip
MOST = 2_000


def tf_idf(train: list[str], test: list[str]) -> tuple[Any, Any]:
    """Words and pairs of words that occur twice or more."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    return vectors.fit_transform(train), vectors.transform(test)


def logistic(x: Any, votes: Votes, test: Any, soft: bool = False) -> Any:
    """N x K probabilities of test texts."""
    from sklearn.linear_model import LogisticRegression

    shares = votes.shares()
    q = shares if soft else np.eye(votes.n_classes)[shares.argmax(axis=1)]
    row, label = np.nonzero(q)
    model = LogisticRegression(max_iter=2_000).fit(x[row], label, sample_weight=q[row, label])
    out = np.zeros((test.shape[0], votes.n_classes))
    out[:, model.classes_] = model.predict_proba(test)
    return out


def split(texts: list[str], votes: Votes, truth: dict[str, str], seed: int) -> dict[str, Any]:
    """Figures of one split."""
    voted = np.unique(votes.item)
    drawn = voted[np.random.default_rng(0).permutation(len(voted))[:MOST]]
    order = drawn[np.random.default_rng(seed).permutation(len(drawn))]
    out, rest = np.sort(order[: len(order) // 5]), np.sort(order[len(order) // 5 :])
    train, test = votes[rest], votes[out]
    learned, new = ([texts[n] for n in part] for part in (rest, out))
    shares = test.shares()
    codes = {str(name): k for k, name in enumerate(votes.classes.tolist())}
    true = np.array([codes.get(truth.get(str(item), ""), -1) for item in test.items.tolist()])

    def ensemble(x: Any, new: Any) -> Any:
        learner = registry.find("ensemble", inputs=True).create(random_state=seed, device="cpu")
        return learner.fit(x, train, items=train.items).predict_proba(new)

    def features() -> Any:
        axes, rows = TextAxes.fitted(learned)
        return logistic(rows, train, axes.rows(new))

    words, new_words = tf_idf(learned, new)
    makers = {
        "ensemble": lambda: ensemble(learned, new),
        "plain": lambda: ensemble(words, new_words),
        "features": features,
        "majority": lambda: logistic(words, train, new_words),
        "shares": lambda: logistic(words, train, new_words, soft=True),
        "constant": lambda: np.tile(train.shares().mean(axis=0), (len(new), 1)),
    }
    found: dict[str, Any] = {}
    for name, make in makers.items():
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            q = make()
        said = q.argmax(axis=1)
        found[name] = {
            "cross_entropy": round(metrics.cross_entropy(q, test).value, 4),
            "accuracy": round(float((said == shares.argmax(axis=1)).mean()), 4),
            "truth": round(float((said == true)[true >= 0].mean()), 4) if (true >= 0).any() else None,
            "seconds": round(time.process_time() - began, 1),
        }
    return found


def true_labels(data: Path, name: str) -> dict[str, str]:
    """Truth by item; none where the set has none."""
    path = data / name / "truth.csv"
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as lines:
        return {row["task"]: row["label"] for row in csv.DictReader(lines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--only", default=",".join(SETS))
    given = parser.parse_args()
    facts = json.loads(given.out.read_text(encoding="utf-8")) if given.out.is_file() else {}
    for name in given.only.split(","):
        texts, votes = load(given.data, name)
        truth = true_labels(given.data, name)
        facts[name] = [split(texts, votes, truth, seed) for seed in range(given.splits)]
        given.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        print(name, json.dumps(facts[name]), flush=True)


if __name__ == "__main__":
    main()
