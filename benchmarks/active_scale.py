"""Seconds to choose 1,000 questions among a million items and ten thousand annotators.

    python benchmarks/active_scale.py [items] [annotators]

Through ``Strategy.propose`` on a stream with two votes on every item, and through ``Campaign.propose`` with a vote on
every fifth. Writes benchmarks/results/active_scale.json.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import crowdwise as cw
from crowdwise.active.state import State
from crowdwise.active.strategies import DEFAULT, find_strategy

ROOT = Path(__file__).resolve().parents[1]
CLASSES = ("x", "y", "z")
QUESTIONS = 1_000


def timed(what: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    out = what()
    return time.perf_counter() - began, out


def some(first: int, last: int, M: int, each: int, rng: np.random.Generator) -> cw.Votes:
    """Votes on the items first to last, each by different annotators, right seven times in ten."""
    N = last - first
    item = np.repeat(np.arange(N), each)
    who = (rng.integers(0, M, N)[:, None] + np.arange(each)).ravel() % M
    label = np.where(rng.random(len(item)) < 0.7, item % 3, rng.integers(0, 3, len(item)))
    return cw.Votes.from_codes(
        item, who, label, items=np.arange(first, last), annotators=np.arange(M), classes=list(CLASSES)
    )


def by_strategy(N: int, M: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    online = cw.Online(cw.OneCoin(), classes=CLASSES, step=None, prior_strength=9.0, revisit=0.0)
    for first in range(0, N, 50_000):
        online.partial_fit(some(first, min(first + 50_000, N), M, 2, rng))
    online.declare(range(N), range(M))
    out = {}
    for name in ("first", "next"):
        out[f"state, {name}"], seen = timed(lambda: State.of(online))
        out[f"propose, {name}"], asked = timed(lambda seen=seen: find_strategy(DEFAULT).propose(seen, QUESTIONS, rng))
        assert len(asked) == QUESTIONS
    out["with at most 20 each"], _ = timed(
        lambda: find_strategy(DEFAULT).propose(seen.replace(load=np.full(M, 20.0)), QUESTIONS, rng)
    )
    return out


def by_campaign(N: int, M: int, folder: str) -> dict[str, float]:
    rng = np.random.default_rng(0)
    model = cw.OneCoin()
    out = {}
    with cw.Campaign.create(
        f"{folder}/large", model, classes=list(CLASSES), items=range(N), annotators=range(M), budget=5.0 * N
    ) as made:
        for first in range(0, N // 5, 20_000):
            made.add(some(first, min(first + 20_000, N // 5), M, 1, rng))
        made.status()
    opened = cw.Campaign.open(f"{folder}/large", model)
    for name in ("first after opening", "next"):
        out[name], asked = timed(lambda: opened.propose(QUESTIONS))
        assert len(asked) == QUESTIONS
    made = opened.add([(q.item, q.annotator, "x") for q in asked])
    out["next, after 1,000 votes"], _ = timed(lambda: opened.propose(QUESTIONS))
    opened.close()
    return out


def main(N: int, M: int) -> None:
    facts = {"items": N, "annotators": M, "questions": QUESTIONS, "strategy": by_strategy(N, M)}
    with tempfile.TemporaryDirectory() as folder:
        facts["campaign"] = by_campaign(N, M, folder)
    text = json.dumps(facts, indent=1) + "\n"
    (ROOT / "benchmarks" / "results" / "active_scale.json").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]) if len(sys.argv) > 1 else (1_000_000, 10_000))
