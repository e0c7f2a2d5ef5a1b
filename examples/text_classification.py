"""Texts with noisy labels: learn a classifier from texts and the votes on them, and find the labels to look at again.

    python examples/text_classification.py reviews.csv --item task --text text --out model

The file has a row for each vote: an item, an annotator, a label, and the item's text beside them. Without a file,
short reviews are made up, with five annotators, one of which guesses.

The classifier is compared with plain aggregation, on texts without votes too (where the truth is known), and
saved: ``crowdwise predict model --features new.csv`` labels further texts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

import crowdwise as cw

WORDS = {
    "good": ["great", "wonderful", "loved", "brilliant", "moving", "funny", "warm", "perfect"],
    "bad": ["awful", "boring", "hated", "dull", "wooden", "clumsy", "flat", "endless"],
}
EITHER = [
    "the",
    "film",
    "plot",
    "acting",
    "story",
    "scene",
    "music",
    "end",
    "was",
    "and",
    "with",
    "a",
    "really",
    "very",
]


def made_up_reviews(n_items: int = 400, seed: int = 0) -> tuple[pl.DataFrame, dict[str, str]]:
    """Reviews with two votes each, in a random order, and the truth of all of them; a fifth has no votes."""
    rng = np.random.default_rng(seed)
    accuracy = [0.85, 0.8, 0.75, 0.7, 0.5]
    truth = {f"review-{n}": str(rng.choice(["good", "bad"])) for n in range(n_items)}
    rows = []
    for item, label in truth.items():
        text = " ".join(rng.permutation([*rng.choice(WORDS[label], 2), *rng.choice(EITHER, 8)]))
        voters = rng.choice(5, size=2, replace=False) if rng.random() < 0.8 else []
        for m in voters:
            said = label if rng.random() < accuracy[m] else ("bad" if label == "good" else "good")
            rows.append({"item": item, "annotator": f"ann-{m}", "label": said, "text": text})
        if not len(voters):
            rows.append({"item": item, "annotator": None, "label": None, "text": text})
    order = rng.permutation(len(rows))
    return pl.DataFrame([rows[n] for n in order]), truth


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn from texts and the votes on them.")
    parser.add_argument("file", nargs="?", type=Path, help="votes with texts; made-up ones without")
    parser.add_argument("--item", default="item", help="the column of items")
    parser.add_argument("--text", default="text", help="the column of texts")
    parser.add_argument("--out", type=Path, help="save the classifier here")
    given = parser.parse_args()

    table, truth = (pl.read_csv(given.file), {}) if given.file else made_up_reviews()
    votes = cw.Votes.from_frame(table.drop_nulls("label").drop(given.text), item=given.item)
    texts = table.select(given.item, given.text).unique(given.item, keep="first", maintain_order=True)

    learner = cw.Raykar()  # softmax regression and a confusion matrix for each annotator, learned together
    learner.fit(texts, votes)  # rows are found by the names of the items; texts become TF-IDF features
    plain = cw.aggregate(votes)
    print(f"{votes}; {len(learner.text_features_.words)} words")

    if truth:
        voted = {item: truth[item] for item in votes.items.tolist()}
        unseen = {item: label for item, label in truth.items() if item not in voted}
        print(f"labels by votes alone:         {plain.score(voted):.3f} right")
        print(f"labels by texts and votes:     {learner.consensus_.score(voted):.3f}")
        print(f"{len(unseen)} unlabelled texts: {learner.score(texts, unseen):.3f}")

    # Votes that the classifier and the other annotators find least probable: labels to look at again.
    posterior = learner.consensus_.posterior[votes.item, votes.label]
    text = dict(texts.iter_rows())
    print("\nlabels to look at again")
    for row in np.argsort(posterior, kind="stable")[:5]:
        item, who = votes.items[votes.item[row]], votes.annotators[votes.annotator[row]]
        print(f"  {item}, {who} said {votes.classes[votes.label[row]]}: {text[item][:60]}")

    if given.out:
        print(f"\nsaved: {learner.save(given.out)}")


if __name__ == "__main__":
    main()
