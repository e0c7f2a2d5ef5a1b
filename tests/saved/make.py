"""Writes one of everything that can be saved into tests/saved/VERSION, for the tests of later versions.

    python tests/saved/make.py

Run it before a release, once, and commit the folder; folders of released versions are never written again.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import crowdwise as cw

HERE = Path(__file__).resolve().parent


def main() -> None:
    folder = HERE / cw.__version__
    folder.mkdir(exist_ok=True)
    crowd = cw.simulate.dirichlet(40, n_annotators=6, n_classes=3, votes_per_item=4, random_state=0)
    votes = crowd.votes.with_truth(None)
    found = cw.aggregate(votes)
    found.save(folder / "consensus")
    table = votes.to_frame("polars")
    table.write_csv(folder / "labels.csv")
    cw.aggregate(folder / "labels.csv", "one-coin", out=folder / "parts")
    ratings = cw.simulate.ratings(20, n_annotators=5, random_state=0).ratings
    cw.aggregate(ratings).save(folder / "estimates")
    stream = cw.Online(cw.OneCoin(), classes=[0, 1, 2])
    stream.partial_fit(votes)
    stream.save(folder / "stream")
    rng = np.random.default_rng(0)
    x = np.eye(3)[crowd.truth] + 0.1 * rng.standard_normal((40, 3))
    learner = cw.Raykar(random_state=0).fit(x, votes)
    learner.save(folder / "learner")
    campaign = cw.Campaign.create(
        folder / "campaign", cw.OneCoin(), classes=["x", "y"], items=range(6), annotators=["ann", "bob"]
    )
    campaign.add([(0, "ann", "x"), (0, "bob", "y"), (1, "ann", "y")])
    campaign.close()
    facts = {
        "consensus": found.labels.tolist(),
        "estimates": np.round(cw.aggregate(ratings).mean, 6).tolist(),
        "stream": stream.consensus().labels.tolist(),
        "learner": learner.predict(x).tolist(),
        "x": np.round(x, 12).tolist(),
    }
    (folder / "expected.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
