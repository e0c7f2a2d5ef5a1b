"""The least that labels can cost where nothing has to be learned: what no strategy can beat.

    python benchmarks/active_floor.py

For the crowds of two classes of benchmarks/active_prices.py. One item, everybody's accuracy known, one vote at a time;
after each vote it is decided whether to stop, or whom to ask. With g the log odds of an item and a price L on an error,

    V(g) = min( L min(p, 1 - p),  min over annotators m of  price[m] + E V(g + vote of m) )

is solved by iteration on a grid of g, once where any annotator may be chosen and once where the next vote is always of
somebody at random. Over all L that gives the least cost for each rate of errors (mixtures of two such rules included).
Writes benchmarks/results/active_floor.json: money for 600 items.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from active_prices import CLASSES, CROWDS, TARGETS

ROOT = Path(__file__).resolve().parents[1]
ITEMS = 600
GRID = np.linspace(-12.0, 12.0, 4801)
P = 1.0 / (1.0 + np.exp(-GRID))
ERROR = np.minimum(P, 1.0 - P)
Action = tuple[float, list[tuple[float, float]]]
"""A price, and (probability, accuracy) of who answers."""


def after(value: Any, answers: list[tuple[float, float]]) -> Any:
    """The expectation of a value after a vote."""
    out = np.zeros_like(value)
    for share, accuracy in answers:
        step, yes = np.log(accuracy / (1.0 - accuracy)), P * accuracy + (1.0 - P) * (1.0 - accuracy)
        up, down = (np.interp(np.clip(GRID + way * step, -12.0, 12.0), GRID, value) for way in (1.0, -1.0))
        out += share * (yes * up + (1.0 - yes) * down)
    return out


def solved(actions: list[Action], penalty: float) -> tuple[float, float]:
    """The cost and the rate of errors, from no vote on, of the best rule at a price on an error."""
    value = penalty * ERROR
    for _ in range(3000):
        options = np.array([penalty * ERROR, *(price + after(value, answers) for price, answers in actions)])
        change = np.abs(options.min(axis=0) - value).max()
        value = options.min(axis=0)
        if change < 1e-7:
            break
    rule, cost, error = options.argmin(axis=0), np.zeros_like(P), ERROR.copy()
    for _ in range(3000):
        costs = np.array([np.zeros_like(P), *(price + after(cost, answers) for price, answers in actions)])
        errors = np.array([ERROR, *(after(error, answers) for _, answers in actions)])
        new = np.take_along_axis(costs, rule[None], 0)[0], np.take_along_axis(errors, rule[None], 0)[0]
        change = max(np.abs(new[0] - cost).max(), np.abs(new[1] - error).max())
        cost, error = new
        if change < 1e-7:
            break
    middle = len(GRID) // 2
    return float(cost[middle]), float(error[middle])


def least(actions: list[Action], errors: list[float]) -> list[float]:
    """The least cost of an item for each rate of errors."""
    points = [(0.0, 0.5), *(solved(actions, penalty) for penalty in np.geomspace(8.0, 900.0, 26))]
    out = []
    for e in errors:
        mixed = [c + (c2 - c) * (r - e) / (r - r2) for c, r in points for c2, r2 in points if r >= e >= r2 and r > r2]
        out.append(min(mixed))
    return out


def main() -> None:
    facts, errors = {}, [1.0 - t for t in TARGETS]
    for name, kinds in CROWDS.items():
        if name in CLASSES:
            continue
        many = sum(n for n, _, _ in kinds.values())
        anybody = [(sum(n * p for n, _, p in kinds.values()) / many, [(n / many, a) for n, a, _ in kinds.values()])]
        best: list[Action] = [(p, [(1.0, a)]) for _, a, p in kinds.values() if a > 0.5]
        one, other = least(anybody, errors), least(best, errors)
        facts[name] = {
            str(t): {"anybody": ITEMS * a, "best": ITEMS * b, "ratio": b / a}
            for t, a, b in zip(TARGETS, one, other, strict=True)
        }
    text = json.dumps(facts, indent=1) + "\n"
    (ROOT / "benchmarks" / "results" / "active_floor.json").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
