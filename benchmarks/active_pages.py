"""Figures of the pages about active crowdsourcing, from the results of the other scripts.

    python benchmarks/active_pages.py

Fills the blocks between ``<!-- figures NAME:begin -->`` and ``<!-- figures NAME:end -->`` of docs/active*.md and draws
docs/assets/active-*.svg.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from crowdwise.active.curve_drawing import Line, draw

ROOT = Path(__file__).resolve().parents[1]
RESULTS, DOCS = ROOT / "benchmarks" / "results", ROOT / "docs"


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def table(head: list[str], rows: list[list[str]]) -> str:
    right = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, right, *rows])


def picture(name: str, svg: str, what: str) -> str:
    (DOCS / "assets" / f"active-{name}.svg").write_text(svg, encoding="utf-8")
    return f"![{what}](assets/active-{name}.svg)"


def replays() -> str:
    facts = read("active_replay")
    rules = list(next(iter(facts["sets"].values()))["strategies"])
    rows, own, pictures = [], [], []
    for name, row in facts["sets"].items():
        cells = row["strategies"]
        head = [name, str(row["seeds"]), f"{100 * row['batch fit']:.1f}"]
        rows.append(
            head
            + [
                f"{100 * cells[r]['share']:.0f} ± {100 * cells[r]['share_sd']:.0f}"
                + (f" ({cells[r]['never']})" if cells[r]["never"] else "")
                for r in rules
            ]
        )
        own.append([name] + [f"{100 * cells[r]['own']:.0f} → {100 * cells[r]['end']:.1f}" for r in rules])
        lines = [Line(r, row["at"], cells[r]["accuracy"], cells[r]["low"], cells[r]["high"]) for r in rules]
        svg = draw(
            lines, title=f"{name}: accuracy by votes spent", x_label="share of the votes", y_label="accuracy",
            x_percent=True, at=row["batch fit"], at_label="all votes, batch fit",
        )  # fmt: skip
        pictures.append(picture(f"replay-{name.replace('_', '-')}", svg, f"Accuracy by votes spent on {name}"))
    mean = ["mean", "", ""]
    mean += [f"**{100 * sum(s['strategies'][r]['share'] for s in facts['sets'].values()) / 5:.0f}**" for r in rules]
    mean_own = ["mean"]
    mean_own += [f"**{100 * sum(s['strategies'][r]['own'] for s in facts['sets'].values()) / 5:.0f}**" for r in rules]
    return "\n\n".join([
        table(["data set", "seeds", "batch fit", *(f"`{r}`" for r in rules)], [*rows, mean]),
        "The same relative to the end of each curve, less half a point, and that end (accuracy in percent):",
        table(["data set", *(f"`{r}`" for r in rules)], [*own, mean_own]),
        *pictures,
    ])  # fmt: skip


def battery() -> str:
    facts = read("active_battery")
    parts = list(next(iter(facts["share"].values())))
    rows = [
        [name, *(f"{100 * cells[p]:.1f}" for p in parts), f"{100 * facts['accuracy'][name]['mean']:.1f}"]
        for name, cells in facts["share"].items()
    ]
    return table(["strategy", *parts, "mean accuracy, first half"], rows) + f"\n\n{facts['seeds']} crowds of each kind."


def prices() -> str:
    facts = read("active_prices")
    rules = ("random", "entropy-random", "information", "value", "matrices known")
    rows = []
    for name, by in facts["cost"].items():
        for target in ("0.95",):
            cells = [
                f"{by[r][target]['cost']:,.0f}" + (f" ({by[r][target]['missed']})" if by[r][target]["missed"] else "")
                for r in rules
            ]
            base = by["entropy-random"][target]["cost"]
            ratios = [f"{by[r][target]['cost'] / base:.2f}" for r in ("value", "matrices known")]
            rows.append([name, *cells, *ratios])
    head = ["crowd, stream", *(f"`{r}`" for r in rules[:4]), rules[4], "ratio", "ratio, known"]
    return table(head, rows) + f"\n\n{facts['seeds']} crowds of each kind."


def estimates() -> str:
    rows = []
    for row in read("active_estimates")["estimates"]:
        if row["stage"] in (2, 4, 8) and row["strategy"] == "value":
            rows.append([
                row["kind"], str(row["stage"]), f"{100 * row['real']:.1f}",
                f"{100 * row['bias']:+.1f}", f"{100 * row['off']:.1f}", f"{100 * row['width']:.0f}",
                f"{100 * row['inside']:.0f} %", f"{100 * row['posterior']:+.1f}",
            ])  # fmt: skip
    head = ["crowd", "votes per item", "accuracy", "estimate less real", "off by", "width of the interval",
            "real is inside", "posterior less real"]  # fmt: skip
    return table(head, rows)


def scale() -> str:
    facts = read("active_scale")
    rows = [
        ["`State.of` and `Strategy.propose`, first time",
         f"{facts['strategy']['state, first'] + facts['strategy']['propose, first']:.1f}"],
        ["the same, next time", f"{facts['strategy']['state, next'] + facts['strategy']['propose, next']:.1f}"],
        ["`Strategy.propose`, at most 20 questions for anybody", f"{facts['strategy']['with at most 20 each']:.1f}"],
        ["`Campaign.propose`, first after opening", f"{facts['campaign']['first after opening']:.1f}"],
        ["`Campaign.propose`, next", f"{facts['campaign']['next']:.1f}"],
    ]  # fmt: skip
    return table(["1,000 questions, a million items, 10,000 annotators", "seconds"], rows)


def plan() -> str:
    facts = read("active_plan")
    learners = [k for k in ("crowd-layer", "two-stage", "max-mig") if k in facts]
    rows = [
        [str(c), str(facts["items"][i]), f"{100 * facts['accuracy'][i][0]:.1f}", f"{facts['right'][i][0]:.0f}",
         *(f"{100 * facts[k][i][0]:.1f}" for k in learners)]
        for i, c in enumerate(facts["choices"])
    ]  # fmt: skip
    lines = []
    for key in learners:
        mean, low, high = (list(c) for c in zip(*facts[key], strict=True))
        lines.append(Line(key, facts["choices"], mean, low, high))
    mean, low, high = (list(c) for c in zip(*facts["accuracy"], strict=True))
    lines.append(Line("labels that are right", facts["choices"], mean, low, high))
    svg = draw(
        lines, title=f"Digits: {facts['budget']} votes", x_label="votes per item", y_label="accuracy",
        description="Learners are best with one vote per item, labels with nine.",
    )  # fmt: skip
    return "\n\n".join([
        table(["votes per item", "items", "labels right", "right labels", *(f"`{k}`, test" for k in learners)], rows),
        picture("plan-digits", svg, "Test accuracy of learners and accuracy of labels by votes per item"),
    ])  # fmt: skip


BLOCKS = {
    "replays": replays, "battery": battery, "prices": prices, "estimates": estimates, "scale": scale, "plan": plan,
}  # fmt: skip


def main() -> None:
    for page in sorted(DOCS.glob("active*.md")):
        text = page.read_text(encoding="utf-8")

        def filled(found: re.Match[str]) -> str:
            if found[2] not in BLOCKS:  # active_stops.py writes its own
                return found[0]
            return f"{found[1]}\n\n{BLOCKS[found[2]]()}\n\n{found[3]}"

        pattern = r"(<!-- figures (\w+):begin -->).*?(<!-- figures \2:end -->)"
        page.write_text(re.sub(pattern, filled, text, flags=re.S), encoding="utf-8")


if __name__ == "__main__":
    main()
