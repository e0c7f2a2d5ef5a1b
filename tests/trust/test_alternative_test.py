"""The alternative annotator test, against a plain version of it and the authors' own figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import ttest_1samp
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise.cli.main import app
from crowdwise.errors import InputError
from crowdwise.report.page import page

PUBLISHED = {
    "wax": ("votes", 0.1, {
        "gemini_flash": (0.38, 0.69), "gemini_pro": (0.5, 0.74), "gpt-4o": (0.5, 0.73), "llama-31": (0.0, 0.57),
        "gpt-4o-mini": (0.0, 0.59), "mistral-v03": (0.0, 0.5)}),
    "lgbteen": ("votes", 0.2, {
        "gemini_flash": (0.25, 0.71), "gemini_pro": (0.0, 0.67), "gpt-4o": (0.75, 0.77), "llama-31": (0.0, 0.72),
        "gpt-4o-mini": (0.75, 0.76), "mistral-v03": (0.25, 0.75)}),
    "framing": ("votes", 0.15, {
        "gemini_flash": (1.0, 0.83), "gemini_pro": (1.0, 0.91), "gpt-4o": (1.0, 0.92), "llama-31": (0.5, 0.8),
        "gpt-4o-mini": (1.0, 0.87), "mistral-v03": (0.25, 0.8)}),
    "summeval": ("ratings", 0.2, {
        "gemini_flash": (0.0, 0.46), "gemini_pro": (0.0, 0.44), "gpt-4o": (0.0, 0.48), "llama-31": (0.0, 0.58),
        "gpt-4o-mini": (0.0, 0.54), "mistral-v03": (0.0, 0.62)}),
    "10k_prompts": ("ratings", 0.15, {
        "gemini_flash": (0.31, 0.67), "gemini_pro": (0.08, 0.63), "gpt-4o": (0.69, 0.76), "llama-31": (0.15, 0.67),
        "gpt-4o-mini": (0.92, 0.8), "mistral-v03": (0.15, 0.67)}),
    "cebab_stars": ("ratings", 0.1, {
        "gemini_flash": (0.6, 0.82), "gemini_pro": (0.8, 0.87), "gpt-4o": (0.9, 0.9), "llama-31": (0.6, 0.85),
        "gpt-4o-mini": (0.9, 0.89), "mistral-v03": (0.5, 0.83)}),
}  # fmt: skip
"""Set -> answer type, epsilon, and the winning rate and advantage of each model, as the authors print them
(nitaytech/AltTest, alt_test_example.ipynb)."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_verdicts_are_the_published_ones(real: Callable[[str], Path], name: str) -> None:
    kind, epsilon, models = PUBLISHED[name]
    read = {"votes": cw.read_votes, "ratings": cw.read_ratings}[kind]
    found = cw.alternative_test(read(real(f"alttest_{name}") / "labels.csv"), "llm:*", epsilon)
    for c, who in enumerate(found.candidates.tolist()):
        rate, advantage = models[who.removeprefix("llm:")]
        assert found.winning_rate[c] == pytest.approx(rate, abs=0.0051)
        assert found.advantage[c].value == pytest.approx(advantage, abs=0.0051)
        assert found.passes[c] == (rate >= 0.5)


def plain(
    people: dict[str, dict[int, Any]], model: dict[int, Any], score: Any, epsilon: float, least: int
) -> tuple[float, float]:
    """Winning rate and mean advantage, answer by answer."""
    p, advantages = [], []
    for who, own in people.items():
        d, wins = [], []
        for item, answer in own.items():
            others = [given[item] for name, given in people.items() if name != who and item in given]
            if not others or item not in model:
                continue
            a, b = (round(float(score(x, others)), 9) for x in (answer, model[item]))
            d.append(float(a >= b) - float(b >= a))
            wins.append(float(b >= a))
        if len(d) >= least:
            p.append(ttest_1samp(d, epsilon, alternative="less").pvalue)
            advantages.append(np.mean(wins))
    order, m = np.sort(p), len(p)
    levels = np.arange(1, m + 1) / m * 0.05 / (1.0 / np.arange(1, m + 1)).sum()
    below = np.flatnonzero(order <= levels)
    return (below[-1] + 1 if len(below) else 0) / m, float(np.mean(advantages))


def rows_of(seed: int, answer: Callable[[np.random.Generator, float], Any]) -> list[tuple[int, str, Any]]:
    rng = np.random.default_rng(seed)
    skill = {"ann": 0.8, "bob": 0.6, "cem": 0.7, "dee": 0.5, "model": 0.75}
    rows = []
    for item in range(80):
        level = rng.integers(1, 6)
        for who, right in skill.items():
            if who == "model" or rng.random() < 0.8:
                rows.append(
                    (item, who, answer(rng, float(level) if rng.random() < right else float(rng.integers(1, 6))))
                )
    return rows


def split(rows: list[tuple[int, str, Any]]) -> tuple[dict[str, dict[int, Any]], dict[int, Any]]:
    people: dict[str, dict[int, Any]] = {}
    for item, who, answer in rows:
        people.setdefault(who, {})[item] = answer
    model = people.pop("model")
    return people, model


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_it_agrees_with_the_plain_version(epsilon: float, seed: int = 1) -> None:
    numbers = rows_of(seed, lambda rng, x: x)
    sets = rows_of(seed, lambda rng, x: tuple(str(k) for k in range(1, int(x) + 1) if k != 2))
    ratings, votes = cw.Ratings.from_records(numbers), cw.Votes.from_records([(i, w, f"c{x}") for i, w, x in numbers])
    label_sets = cw.LabelSets.from_records([(i, w, list(x)) for i, w, x in sets])

    def jaccard(a: Any, b: Any) -> float:
        return len({*a} & {*b}) / len({*a} | {*b}) if {*a} | {*b} else 1.0

    cases = [
        (ratings, numbers, lambda x, others: -np.sqrt(np.mean([(x - o) ** 2 for o in others]))),
        (votes, numbers, lambda x, others: np.mean([x == o for o in others])),
        (label_sets, sets, lambda x, others: np.mean([jaccard(x, o) for o in others])),
    ]
    for answers, rows, score in cases:
        found = cw.alternative_test(answers, ["model"], epsilon, min_items=20)
        rate, advantage = plain(*split(rows), score, epsilon, 20)
        assert found.winning_rate[0] == pytest.approx(rate)
        assert found.advantage[0].value == pytest.approx(advantage)
        assert found.advantage[0].low < advantage < found.advantage[0].high
        least = found.least_epsilon[0]
        assert cw.alternative_test(answers, ["model"], float(least), min_items=20).passes[0]
        assert (
            least < 0.002 or not cw.alternative_test(answers, ["model"], float(least) - 0.002, min_items=20).passes[0]
        )


def test_a_similarity_of_ones_own_and_chosen_people() -> None:
    rows = rows_of(3, lambda rng, x: x)
    votes = cw.Votes.from_records([(i, w, f"c{x}") for i, w, x in rows])
    same = cw.alternative_test(votes, "model", similarity=lambda a, b: float(a == b))
    assert (same.difference == cw.alternative_test(votes, "model").difference).all()
    some = cw.alternative_test(votes, "model", people=["ann", "b*", "cem"])
    assert some.annotators.tolist() == ["ann", "bob", "cem"]
    assert same.to_frame("annotators", kind="polars").columns[:4] == ["candidate", "annotator", "items", "advantage"]
    assert "model" in repr(same) and "of 4 annotators" in repr(same)


def test_order_and_names_do_not_matter() -> None:
    rows = rows_of(4, lambda rng, x: f"c{x}")
    found = cw.alternative_test(cw.Votes.from_records(rows), "model")
    new = {"ann": "zoe", "bob": "yan", "cem": "xia", "dee": "wim", "model": "a-model"}
    other = cw.alternative_test(cw.Votes.from_records([(i, new[w], x) for i, w, x in rows[::-1]]), "a-model")
    for table in ("difference", "p_value"):
        a, b = (dict(zip(x.annotators.tolist(), getattr(x, table)[0].tolist(), strict=True)) for x in (found, other))
        assert {new[who]: value for who, value in a.items()} == b


def test_what_cannot_be_tested_is_said() -> None:
    rows = rows_of(5, lambda rng, x: f"c{x}")
    votes = cw.Votes.from_records(rows)
    with pytest.raises(InputError, match="'gpt' is not an annotator: they are "):
        cw.alternative_test(votes, "gpt")
    with pytest.raises(InputError, match="needs two people beside the candidates, and found 1"):
        cw.alternative_test(votes, "model", people="ann")
    with pytest.raises(InputError, match="expected the name of an annotator"):
        cw.alternative_test(votes, [])
    twice = cw.Votes.from_records([*rows, (0, "model", "c1.0")], on_duplicate="all")
    with pytest.raises(InputError, match="'model' answered 0 more than once"):
        cw.alternative_test(twice, "model")
    with pytest.raises(InputError, match="No item has answers of a candidate and of two people"):
        cw.alternative_test(cw.Votes.from_records([(0, "a", "x"), (1, "b", "x"), (2, "m", "y")]), "m")
    few = cw.alternative_test(votes[list(range(10))], "model")
    assert np.isnan(few.winning_rate[0]) and not few.passes[0] and "no annotator has 30 items" in repr(few)


def test_people_who_always_agree_are_beaten_only_with_epsilon() -> None:
    votes = cw.Votes.from_dense(np.zeros((40, 4), dtype=int), annotators=["a", "b", "c", "m"], classes=[0, 1])
    assert cw.alternative_test(votes, "m", 0.1).winning_rate[0] == 1.0
    assert cw.alternative_test(votes, "m", 0.0).winning_rate[0] == 0.0


def test_the_command(tmp_path: Path) -> None:
    rows = rows_of(6, lambda rng, x: f"c{x}")
    pl.DataFrame(rows, schema=["item", "annotator", "label"], orient="row").write_csv(tmp_path / "labels.csv")
    arguments = ["alternative-test", str(tmp_path / "labels.csv"), "--candidate", "model", "--epsilon", "0.2"]
    done = CliRunner().invoke(app, [*arguments, "--annotators", str(tmp_path / "pairs.csv")], prog_name="crowdwise")
    assert done.exit_code == 0, done.output
    found = cw.alternative_test(cw.read_votes(tmp_path / "labels.csv"), "model", 0.2)
    assert found.sentences()[0] in done.stderr.replace("\n", " ")
    assert pl.read_csv(tmp_path / "pairs.csv").height == 4
    done = CliRunner().invoke(app, arguments[:2], prog_name="crowdwise")
    assert done.exit_code != 0 and "Name the model with --candidate" in done.stderr


def test_the_report_has_the_verdict(tmp_path: Path) -> None:
    rows = rows_of(7, lambda rng, x: f"c{x}")
    votes = cw.Votes.from_records(rows)
    report = cw.build_report(votes, cw.aggregate(votes, "majority"), candidates="model", epsilon=0.2)
    found = cw.alternative_test(votes, "model", 0.2)
    assert report["candidates"]["sentences"] == found.sentences()
    text = page(report)
    assert "May a model replace the annotators?" in text and f"{found.winning_rate[0]:.2f}" in text
    assert "replace the annotators" not in page(cw.build_report(votes, cw.aggregate(votes, "majority")))
