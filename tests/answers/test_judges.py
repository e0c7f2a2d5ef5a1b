"""Judges beside people: agreement, biases, panels, who is a judge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import crowdwise as cw
from answers.prompted import prompts
from crowdwise.answers.comparisons_judges import who_judges
from crowdwise.errors import InputError, ParameterError


def court(seed: int = 0, bias: float = 1.0) -> cw.Comparisons:
    """People who judge by quality, and a judge, gpt-9, who also favours the first, the longer and its own answers."""
    rng = np.random.default_rng(seed)
    names = np.array(["gpt-9", "owl", "rook", "wren"])
    quality = np.array([0.5, 0.8, -0.4, -0.9])
    rows = []
    for prompt in range(150):
        length = np.exp(rng.normal(5.0, 0.6, 4))
        for who in ("ann", "bob", "gpt-9-judge"):
            for i, j in zip(*np.triu_indices(4, 1), strict=True):
                a, b = (i, j) if rng.random() < 0.5 else (j, i)
                z = 1.5 * (quality[a] - quality[b])
                if who == "gpt-9-judge":
                    z += bias * (0.8 + 0.7 * np.log2(length[a] / length[b]) + 0.9 * (int(a == 0) - int(b == 0)))
                won = "left" if rng.random() < 1.0 / (1.0 + np.exp(-z)) else "right"
                rows.append((names[a], names[b], who, won, prompt, length[a], length[b]))
    columns = ("left", "right", "judge", "outcome", "prompt", "length_a", "length_b")
    return cw.Comparisons.from_frame(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))


def test_biases_of_a_judge_are_found() -> None:
    table = cw.judge_table(court(), kind="dict")
    assert table["annotator"].tolist() == ["gpt-9-judge", "people"]
    for name, true in (("position", 0.8), ("verbosity", 0.7), ("self_preference", 0.9)):
        z = []
        for seed in range(4):
            found = table if seed == 0 else cw.judge_table(court(seed), kind="dict")
            z.append((found[name][0] - true) / ((found[f"{name}_high"][0] - found[name][0]) / 1.96))
        assert np.abs(z).max() < 3.0 and abs(np.mean(z)) < 1.5
        assert table[f"{name}_low"][0] > 0.2
    assert table["position_low"][1] < 0.0 < table["position_high"][1]
    assert table["verbosity_low"][1] < 0.0 < table["verbosity_high"][1]
    assert np.isnan(table["self_preference"][1])
    assert table["pairs"].tolist() == [1800, 900]
    assert (table["agreement_low"] > 0.6).all() and (table["agreement_high"] < 0.75).all()
    fair = cw.judge_table(court(seed=1, bias=0.0), ["gpt-9-judge"], kind="dict")
    for name in ("position", "verbosity", "self_preference"):
        assert abs(fair[name][0]) < 3.0 * (fair[f"{name}_high"][0] - fair[name][0]) / 1.96


def test_what_the_columns_do_not_allow_is_empty() -> None:
    table = replace(court(), left_length=None, right_length=None, placed=False)
    row = {name: values[0] for name, values in cw.judge_table(table, own={}, kind="dict").items()}
    assert all(np.isnan(row[name]) for name in ("verbosity", "self_preference", "position", "first_rate", "flip_rate"))
    alone = cw.judge_table(table.only(["gpt-9-judge"]), kind="dict")
    assert alone["annotator"].tolist() == ["gpt-9-judge"] and np.isnan(alone["agreement"][0]) and alone["pairs"][0] == 0
    named = cw.judge_table(court(), own={"gpt-9-judge": ["owl", "gpt-9"]}, kind="dict")
    assert np.isfinite(named["self_preference"][0])
    with pytest.raises(InputError, match="No annotator has the name of a language model"):
        cw.judge_table(table.only(["ann", "bob"]))
    with pytest.raises(InputError, match="There is no annotator 'zoe'"):
        cw.judge_table(table, ["zoe"])
    with pytest.raises(InputError, match="own names 'raven'"):
        cw.judge_table(table, own={"gpt-9-judge": "raven"})


def test_both_orders_show_flips() -> None:
    rows = [("a", "b", "llm", "left", 1), ("b", "a", "llm", "left", 1), ("a", "b", "llm", "left", 2),
            ("b", "a", "llm", "right", 2), ("a", "b", "llm", "tie", 3), ("b", "a", "llm", "left", 3)]  # fmt: skip
    columns = dict(
        zip(("left", "right", "judge", "outcome", "prompt"), map(list, zip(*rows, strict=True)), strict=True)
    )
    assert cw.judge_table(cw.Comparisons.from_frame(columns), kind="dict")["flip_rate"].tolist() == [0.5]


def test_lengths_are_read_kept_and_checked() -> None:
    table = court()
    assert table.left_length is not None and table[:2].left_length is not None
    assert table.only(["ann"]).right_length.shape == (900,)
    again = cw.Comparisons.from_frame(table.to_frame("polars"))
    assert np.array_equal(again.left_length, table.left_length)
    with pytest.raises(InputError, match="a number of 0 or more"):
        cw.Comparisons.from_codes([0], [1], [0], [0], items=["a", "b"], annotators=["m"], left_length=[-1.0])


@pytest.mark.parametrize(
    ("name", "is_judge"),
    [(name, True) for name in ("gpt-4", "pandalm-7b", "prometheus-2", "auto-j", "nova-pro", "kimi-k2", "glm-4.5",
                               "yi-large", "claude-3", "o3-mini", "ChatGPT-0301|CoT", "gpt4_pair", "llm:mini",
                               "sonnet-4", "claude opus", "Nova Pro", "claude instant", "Claude 3")]
    + [(name, False) for name in ("claude", "Gemma", "nova", "philip", "yi", "Claude Dupont", "gemma.smith",
                                  "expert_17", "author_2", "ann")],
)  # fmt: skip
def test_who_is_taken_for_a_judge(name: str, is_judge: bool) -> None:
    table = cw.Comparisons.from_records(
        [("a", "b", name, "left"), ("a", "b", "gpt-9", "left"), ("a", "b", "ann x", "left")]
    )
    with pytest.warns(UserWarning, match="Taken for judges, by their names"):
        judges, people = who_judges(table, None)
    at = table.annotators.tolist().index(name)
    assert bool(judges[at]) is is_judge and bool(people[at]) is not is_judge


def test_judges_and_people_are_named() -> None:
    rows = [("a", "b", who, "left", kind) for who, kind in (("x", "human"), ("y", "LLM"), ("z", "expert"))]
    frame = dict(
        zip(("left", "right", "annotator", "outcome", "kind"), map(list, zip(*rows, strict=True)), strict=True)
    )
    table = cw.Comparisons.from_frame(frame, keep="kind")
    for named in ({"judges": ["y"]}, {"judges": None, "people": ["x", "z"]}, {"judges": None, "column": "kind"}):
        judges, people = who_judges(table, **named)
        assert judges.tolist() == [False, True, False] and (people == ~judges).all()
    judges, people = who_judges(table, ["y"], ["x"])
    assert people.tolist() == [True, False, False]
    with pytest.raises(InputError, match="Both a judge and a person: 'x'"):
        who_judges(table, ["x"], ["x"])
    with pytest.raises(InputError, match="No annotator has the name of a language model"):
        who_judges(table, None)
    with pytest.raises(InputError, match="no column 'sort'"):
        who_judges(table, None, column="sort")


def test_verdicts_as_votes_and_kappa() -> None:
    rows = [("a", "b", "x", "left", 1), ("b", "a", "x", "right", 1), ("b", "a", "y", "left", 1),
            ("a", "b", "y", "tie", 2),
            ("a", "b", "x", "left", 2), ("b", "a", "x", "left", 2)]  # fmt: skip
    names = ("left", "right", "annotator", "outcome", "question")
    table = cw.Comparisons.from_frame(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    votes = table.votes().to_frame("dict")
    said = {(i, m): v for i, m, v in zip(votes["item"], votes["annotator"], votes["label"], strict=True)}
    assert said == {
        ("1: a | b", "x"): "first",
        ("1: a | b", "y"): "second",
        ("2: a | b", "x"): "tie",
        ("2: a | b", "y"): "tie",
    }
    crowd = prompts(40, 1.0, seed=0).votes()  # and as many in which the other of two is called the first
    other = np.array([1, 0, 2])[crowd.label]
    both = cw.Votes.from_codes(
        np.append(crowd.item, crowd.item + len(crowd)), np.tile(crowd.annotator, 2), np.append(crowd.label, other),
        items=range(2 * len(crowd)), annotators=crowd.annotators, classes=crowd.classes,
    )  # fmt: skip
    kappa = cw.trust.cohen_kappa(prompts(40, 1.0, seed=0), 0, 1).value
    assert kappa == pytest.approx(cw.trust.cohen_kappa(both, 0, 1).value)


def test_panels() -> None:
    table = court()
    panels = cw.judge_panels(table, people=[n for n in table.annotators.tolist() if "gpt" not in n], kind="dict")
    assert panels["best"].sum() == 1 and (np.diff(panels["agreement"]) <= 0).all() and panels["units"].min() >= 20
    found = cw.judge_table(table, people=[n for n in table.annotators.tolist() if "gpt" not in n], kind="dict")
    assert found["kappa_low"][0] < found["kappa"][0] < found["kappa_high"][0]


def test_agreement_with_people_does_not_depend_on_names() -> None:
    """Which of two items is called the first is alphabetical: kappa was .21 or .62 by the names of the models."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 4, 300)
    b = (a + rng.integers(1, 4, 300)) % 4
    prompt = rng.integers(0, 200, 300)
    said = rng.random(900) < 1.0 / (1.0 + np.exp(1.5 * np.tile(a - b, 3)))
    found = []
    for names in (np.array(["w", "x", "y", "z"]), np.array(["z", "w", "y", "x"])):
        asked = cw.Comparisons.from_frame({
            "left": names[np.tile(a, 3)], "right": names[np.tile(b, 3)], "prompt": np.tile(prompt, 3),
            "winner": np.where(said, "left", "right"), "judge": np.repeat(["gpt-4", "ann", "bob"], 300),
        })  # fmt: skip
        row = cw.judge_table(asked, people=["ann", "bob"], kind="dict")
        kappa = cw.trust.cohen_kappa(asked, "gpt-4", "ann").value
        found.append([row["kappa"][0], row["alpha"][0], kappa])
    assert np.allclose(found[0], found[1]) and found[0][0] > 0.3
    assert np.isclose(found[0][0], 2.0 * row["agreement"][0] - 1.0, atol=0.1)  # two equal sides, hardly a tie


def test_names_and_costs_that_do_nothing_are_errors() -> None:
    table = court()
    people = [name for name in table.annotators if name not in ("gpt-9-judge",)]
    for call in (lambda: cw.judge_table(table, people=people, own={"gpt-5": "x"}),
                 lambda: cw.judge_panels(table, people=people, cost={"gpt-5": 1.0})):  # fmt: skip
        with pytest.raises(InputError, match="There is no annotator 'gpt-5'"):
            call()
    name = str(table.annotators[0])
    for cost in ("3", -3.0, float("nan")):
        with pytest.raises(ParameterError, match="expected a number, 0 or more"):
            cw.judge_panels(table, people=people, cost={name: cost})
