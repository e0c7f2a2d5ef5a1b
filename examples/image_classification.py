"""Images with noisy labels: a folder of pictures and a table of votes in, a classifier and better labels out.

    python examples/image_classification.py FOLDER --network cnn --epochs 30

The folder holds ``labels.csv`` (item, annotator, label), ``images/`` with pictures named after the items, all of one
size, and perhaps ``truth.csv``. Without a folder, one is made from scikit-learn's handwritten digits, 8 x 8 pixels,
with ten annotators who are weak classifiers and two votes on each picture.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import crowdwise as cw


def digits(folder: Path, n_items: int = 400) -> Path:
    """A folder as annotation teams have them: PNG files, votes and truth."""
    from PIL import Image

    crowd = cw.simulate.machine(n_items, n_annotators=10, votes_per_item=2, random_state=0)
    (folder / "images").mkdir(parents=True)
    votes, names = crowd.votes, [f"scan-{n:04d}" for n in range(n_items)]
    for name, row in zip(names, crowd.features["x_train"], strict=True):
        pixels = (row.reshape(8, 8) * 255 / max(float(row.max()), 1.0)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{name}.png")
    columns = zip(votes.item.tolist(), votes.annotator.tolist(), votes.label.tolist(), strict=True)
    rows = [f"{names[n]},w{m},{votes.classes[k]}" for n, m, k in columns]
    (folder / "labels.csv").write_text("\n".join(["item,annotator,label", *rows]), encoding="utf-8")
    rows = [f"{name},{k}" for name, k in zip(names, crowd.truth, strict=True)]
    (folder / "truth.csv").write_text("\n".join(["item,label", *rows]), encoding="utf-8")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn from images and the votes on them.")
    parser.add_argument("folder", nargs="?", type=Path, help="labels.csv and images/; made-up ones without")
    parser.add_argument("--method", default="ccem", help="a learner of crowdwise methods --learners")
    parser.add_argument("--network", default="mlp", help="mlp, cnn, resnet18...")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--out", type=Path, help="save the classifier here")
    given = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        data = cw.read_dataset(given.folder or digits(Path(temporary) / "digits"))
        votes, images = data.votes, data.inputs  # the folder of images, which are found by the names of the items
        print(f"{votes}; images in {images.name}/")

        learner = cw.CrowdClassifier(given.method, network=given.network, epochs=given.epochs, random_state=0)
        learner.fit(images, votes, verbose=True)
        if votes.truth is not None:
            print(f"labels by votes alone:      {cw.aggregate(votes).score(votes.truth):.3f} right")
            print(f"labels by images and votes: {learner.consensus_.score(votes.truth):.3f}")

        names, sure = votes.items, learner.consensus_.posterior.max(axis=1)
        print("least sure:", ", ".join(f"{names[n]} ({sure[n]:.2f})" for n in np.argsort(sure, kind="stable")[:5]))
        if given.out:
            print("saved:", learner.save(given.out))


if __name__ == "__main__":
    main()
