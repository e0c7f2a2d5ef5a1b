"""Many items with few votes, or few items with many: digits, for labels and for learners.

    python benchmarks/active_plan.py
    python benchmarks/active_plan.py --replay     are promised accuracies kept? Plans from three votes per item

A crowd of weak classifiers labels handwritten digits; the planner lets a crowd like it spend 700 votes. The paper of
deepBP (appendix A) finds that learners gain from large and sparse. Writes benchmarks/results/active_plan.json.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import crowdwise as cw
from crowdwise import registry
from crowdwise.active.budget_plan import LearningInputs, make_plan
from crowdwise.cli.cmd_active import new_learner

ROOT = Path(__file__).resolve().parents[1]
BUDGET, CHOICES, SEEDS, METHOD = 700, (1, 2, 3, 5, 9), 5, "anchored"
LEARNERS = ("crowd-layer", "two-stage", "max-mig")


def replay() -> None:
    """Plans of `auto` from three votes per item, against its accuracy with 2, 5 and 10 votes of the same sets."""
    import calibration

    from crowdwise.active.votes_ahead import fewer_votes, promise_accuracy
    from crowdwise.bench import runs

    model, kept, off = partial(registry.create, "auto"), [], []
    for name in calibration.PEOPLE:
        votes = cw.read_dataset(runs.data_folder() / name, on_duplicate="all").votes
        if votes.n_votes > 60_000 or votes.n_votes < 4.5 * len(votes):
            continue
        for seed in (0, 1):
            rng = np.random.default_rng(seed)
            fit = model().fit(fewer_votes(votes, 3, rng)).consensus_
            for promise in promise_accuracy(fit, model, (2, 5, 10)):
                each = int(promise.votes_per_item)
                if each > 3 and votes.n_votes < 0.9 * each * len(votes):
                    continue
                real = model().fit(fewer_votes(votes, each, rng)).consensus_.score(votes.truth)
                kept.append(promise.low <= real <= promise.high)
                off.append(abs(promise.accuracy - real))
                print(
                    f"{name} {each}: {promise.accuracy:.3f} ({promise.low:.3f} to {promise.high:.3f}), real {real:.3f}"
                )
    print(f"{len(kept)} runs, {np.mean(kept):.1%} inside the interval, {100 * np.mean(off):.1f} points off")


def main() -> None:
    if "--replay" in sys.argv[1:]:
        return replay()
    with tempfile.TemporaryDirectory() as folder:
        made = cw.simulate.machine(
            n_annotators=15, n_spammers=2, subset=(30, 120), slip=0.1, test_share=0.3, random_state=0
        )
        made.save(f"{folder}/digits")
        data = cw.read_dataset(f"{folder}/digits")
    fit = cw.aggregate(data.votes, METHOD)
    crowd = cw.simulate.FittedCrowd.of(data.votes, fit.confusion, fit.prior)
    inputs = LearningInputs(data.inputs, data.votes.truth, *map(np.asarray, data.test))
    facts: dict[str, Any] = {"budget": BUDGET, "seeds": SEEDS, "method": METHOD, "choices": CHOICES}
    for key in LEARNERS:
        plan = make_plan(
            crowd, BUDGET, partial(registry.create, METHOD), votes_per_item=CHOICES, n_seeds=SEEDS,
            learner=partial(new_learner, key, None), inputs=inputs, n_jobs=2,
        )  # fmt: skip
        facts[key] = plan.summary("test")
        facts |= {m: plan.summary(m) for m in ("accuracy", "right")} | {"items": [plan.items(c) for c in CHOICES]}
        path = ROOT / "benchmarks" / "results" / "active_plan.json"
        path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
