"""The default learner on texts, beside logistic regression: how near it comes to the votes on texts it has not seen.

    python benchmarks/text_sets.py --data FOLDER --out FILE.json [--splits 2] [--only rte]

A fifth of the texts is held out with all votes, of at most 2,000 texts drawn by a fixed seed. All figures are of the
held-out texts: the cross-entropy to the shares of their votes, and the accuracy against their majority label.

=================  ===================================================================================================
``ensemble``       the default of ``crowdwise learn``, which makes its own features of the texts
``majority``       logistic regression of scikit-learn's (C = 1) on majority labels, on TF-IDF of words and pairs of
                   words that occur twice or more
``shares``         the same on vote shares: a row for every text and label, weighted by the label's share
``constant``       the vote shares of all texts learned from
=================  ===================================================================================================
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from perspectives import load

from crowdwise import metrics, registry
from crowdwise.data.votes import Votes

SETS = ("lewidi_hs_brexit", "lewidi_md_agreement", "popquorn_offensiveness", "sentiment_polarity", "rte")
MOST = 2_000


def logistic(train: list[str], votes: Votes, test: list[str], soft: bool) -> Any:
    """N x K probabilities of test texts."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    vectors = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    x, shares = vectors.fit_transform(train), votes.shares()
    q = shares if soft else np.eye(votes.n_classes)[shares.argmax(axis=1)]
    row, label = np.nonzero(q)
    model = LogisticRegression(max_iter=2_000).fit(x[row], label, sample_weight=q[row, label])
    out = np.zeros((len(test), votes.n_classes))
    out[:, model.classes_] = model.predict_proba(vectors.transform(test))
    return out


def split(texts: list[str], votes: Votes, seed: int) -> dict[str, Any]:
    """Figures of one split."""
    drawn = np.random.default_rng(0).permutation(len(texts))[:MOST]
    order = drawn[np.random.default_rng(seed).permutation(len(drawn))]
    out, rest = np.sort(order[: len(order) // 5]), np.sort(order[len(order) // 5 :])
    train, test = votes[rest], votes[out]
    learned, new = ([texts[n] for n in part] for part in (rest, out))
    shares = test.shares()

    def ensemble() -> Any:
        learner = registry.find("ensemble", inputs=True).create(random_state=seed, device="cpu")
        return learner.fit(learned, train, items=train.items).predict_proba(new)

    makers = {
        "ensemble": ensemble,
        "majority": lambda: logistic(learned, train, new, soft=False),
        "shares": lambda: logistic(learned, train, new, soft=True),
        "constant": lambda: np.tile(train.shares().mean(axis=0), (len(new), 1)),
    }
    found: dict[str, Any] = {}
    for name, make in makers.items():
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            q = make()
        found[name] = {
            "cross_entropy": round(metrics.cross_entropy(q, test).value, 4),
            "accuracy": round(float((q.argmax(axis=1) == shares.argmax(axis=1)).mean()), 4),
            "seconds": round(time.process_time() - began, 1),
        }
    return found


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
        facts[name] = [split(texts, votes, seed) for seed in range(given.splits)]
        given.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        print(name, json.dumps(facts[name]), flush=True)


if __name__ == "__main__":
    main()
