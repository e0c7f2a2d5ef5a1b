"""A panel of language models that judge: a leaderboard with honest intervals, and what each judge favours.

    python examples/judge_panel.py verdicts.csv --judges gpt-a,gpt-b --out board.svg

The file has a row per verdict: two models, the judge, the winner, the prompt (and, where known, the lengths of the two
answers). Without a file, a panel is made up: three judges see every prompt in both orders, two people see some of them;
one judge takes the first answer too often, another favours the model of its own family. On a prompt some models are
better than they are on the whole, so that the verdicts on it are not independent.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import crowdwise as cw

MODELS = {"gpt-b": 0.3, "finch": 0.9, "heron": 0.4, "stork": -0.5, "plover": -1.1}
"""Models and how good they are, in log odds."""
JUDGES = {"gpt-a": (1.3, 0.0, 0.0), "gpt-b-judge": (0.0, 0.0, 1.6), "llama-judge": (0.0, 0.6, 0.0)}
"""Judges and what they favour: the first answer, the longer one, their own."""


def made_up(n_prompts: int = 60, seed: int = 0) -> cw.Comparisons:
    """Verdicts of the judges in both orders, and of two people on every second prompt."""
    rng = np.random.default_rng(seed)
    names, rows = list(MODELS), []
    for prompt in range(n_prompts):
        quality = {name: score + 0.8 * rng.standard_normal() for name, score in MODELS.items()}
        words = {name: float(np.exp(rng.normal(5.0, 0.5))) for name in names}
        people = ("ann", "bob") if prompt % 2 == 0 else ()
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
        for who in (*JUDGES, *people):
            first, longer, own = JUDGES.get(who, (0.0, 0.0, 0.0))
            for pair in pairs:
                for a, b in (pair, pair[::-1]) if who in JUDGES else (pair if rng.random() < 0.5 else pair[::-1],):
                    z = quality[a] - quality[b] + first + longer * np.log2(words[a] / words[b])
                    z += own * (who.startswith(a) - who.startswith(b))
                    won = a if rng.random() < 1.0 / (1.0 + np.exp(-z)) else b
                    rows.append((a, b, who, won, f"p{prompt}", words[a], words[b]))
    columns = ("model_a", "model_b", "judge", "winner", "prompt", "length_a", "length_b")
    return cw.Comparisons.from_frame(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description="A leaderboard by a panel of judges.")
    parser.add_argument("file", nargs="?", help="a file of verdicts; without it a panel is made up")
    parser.add_argument("--judges", help="the judges, comma-separated; by default those with the name of a model")
    parser.add_argument("--out", type=Path, default=Path("leaderboard.svg"), help="where the picture goes")
    given = parser.parse_args()
    table = cw.read_comparisons(given.file) if given.file else made_up()
    print(table)

    # All judges together: reliability and position of each are estimated with the scores, errors are by prompt.
    ranking = cw.aggregate(table)
    for note in ranking.notes:
        print("-", note)
    board = ranking.on_scale("elo", kind="dict")
    for rank, item, elo, low, high in zip(
        *(board[k] for k in ("rank", "item", "elo", "elo_low", "elo_high")), strict=True
    ):
        print(f"{rank:3} {item:16} {elo:6.0f}  95% CI {low:.0f}-{high:.0f}")
    ranking.plot(given.out, scale="elo", title="Leaderboard by the panel")

    # Without one of the judges: does the order depend on it?
    for judge in (name for name in table.annotators.tolist() if name in JUDGES and not given.file):
        first = cw.aggregate(table.without([judge])).on_scale("elo", kind="dict")["item"][:2]
        print(f"without {judge}: {' before '.join(first)}")

    # Each judge beside the people.
    judges = cw.judge_table(table, given.judges.split(",") if given.judges else None, kind="dict")
    for m, name in enumerate(judges["annotator"].tolist()):
        parts = [f"{name:12} {judges['comparisons'][m]:5} verdicts"]
        if not np.isnan(judges["agreement"][m]):
            parts.append(f"agrees with people in {judges['agreement'][m]:.0%}")
        for bias in ("position", "verbosity", "self_preference"):
            low, high = judges[f"{bias}_low"][m], judges[f"{bias}_high"][m]
            if low > 0.0 or high < 0.0:  # an empty one is neither
                parts.append(f"{bias.replace('_', '-')} {judges[bias][m]:+.1f} ({low:+.1f} to {high:+.1f})")
        print(", ".join(parts))
    print(f"{given.out} shows the leaderboard.")


if __name__ == "__main__":
    main()
