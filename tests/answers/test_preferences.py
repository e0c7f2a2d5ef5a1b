"""Preference data: weights, lines to train on, and losses that know how often answers are turned round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.errors import InputError, OutputError, ParameterError


@pytest.fixture(scope="module")
def crowd() -> Any:
    return cw.simulate.comparisons(12, n_annotators=10, n_comparisons=5000, reversed_=0.3, tie=-1.0, random_state=0)


@pytest.fixture(scope="module")
def ranking(crowd: Any) -> cw.Ranking:
    found: cw.Ranking = cw.aggregate(crowd.comparisons, "crowd-bt")
    return found


def test_weights_are_what_they_say(crowd: Any, ranking: cw.Ranking) -> None:
    table = cw.preference_weights(crowd.comparisons, ranking, kind="dict")
    assert len(table["weight"]) == int((crowd.comparisons.outcome != 2).sum())
    whole = crowd.comparisons.to_frame("dict")
    for name in ("left", "right", "annotator"):
        whole[name] = np.asarray(whole[name])[table["row"]]
    won = np.asarray(whole["outcome"])[table["row"]] == "left"
    assert (np.where(won, whole["left"], whole["right"]) == table["chosen"]).all()
    assert (whole["annotator"] == table["annotator"]).all()
    row = 17
    i, j, m = (table[k][row] for k in ("chosen", "rejected", "annotator"))
    assert table["probability"][row] == pytest.approx(ranking.probability(i, j))
    assert ranking.reliability is not None
    eta, p = ranking.reliability[m], ranking.probability(i, j)
    straight = eta * p / (eta * p + (1 - eta) * (1 - p))  # Bayes' rule
    assert table["weight"][row] == pytest.approx(straight) and table["flip_rate"][row] == pytest.approx(1 - eta)
    back = np.isin(table["annotator"], np.flatnonzero(crowd.reliability < 0.5))
    assert table["weight"][back].mean() < 0.2 < 0.8 < table["weight"][~back].mean()


def test_methods_without_reliabilities_trust_everybody(crowd: Any) -> None:
    table = cw.preference_weights(crowd.comparisons, cw.aggregate(crowd.comparisons, "bradley-terry"), kind="dict")
    assert (table["weight"] == 1).all() and (table["flip_rate"] == 0).all()


def test_unseen_annotators_count_as_the_mean_and_unknown_items_are_an_error(ranking: cw.Ranking) -> None:
    new = cw.Comparisons.from_records([{"left": 0, "right": 1, "outcome": "left", "annotator": 99}])
    assert ranking.reliability is not None
    found = cw.preference_weights(new, ranking, kind="dict")["flip_rate"][0]
    assert found == pytest.approx(1 - ranking.reliability.mean())
    with pytest.raises(InputError, match="no score for 77"):
        other = [{"left": 0, "right": 77, "outcome": "left", "annotator": 0}]
        cw.preference_weights(cw.Comparisons.from_records(other), ranking)
    with pytest.raises(InputError, match="all are ties"):
        tied = [{"left": 0, "right": 1, "outcome": "tie", "annotator": 0}]
        cw.preference_weights(cw.Comparisons.from_records(tied), ranking)
    with pytest.raises(InputError, match="Expected Comparisons and a Ranking"):
        cw.preference_weights(new, None)  # type: ignore[arg-type]


def test_lines_to_train_on(tmp_path: Path) -> None:
    rows = [
        {"prompt": "hello", "left": "x", "right": "y", "winner": "x", "judge": m} for m in ("ann", "bob", "cem")
    ] + [{"prompt": "hello", "left": "y", "right": "x", "winner": "y", "judge": "eve"}]
    table = cw.Comparisons.from_records(rows)
    ranking = cw.aggregate(table, "crowd-bt")
    file = tmp_path / "pairs.jsonl"
    texts = {"x": "Good morning \u2600", "y": "Go away"}
    assert cw.write_preferences(file, table, ranking, texts=texts, prompts={"hello": "Say hello"}) == 4
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert lines[0]["prompt"] == "Say hello" and {line["chosen"] for line in lines} == set(texts.values())
    assert set(lines[0]) == {
        "prompt", "chosen", "rejected", "annotator", "probability", "flip_rate", "flipped", "weight"
    }  # fmt: skip
    assert cw.write_preferences(file, table, ranking, each="pair") == 1
    line = json.loads(file.read_text(encoding="utf-8"))
    assert (line["chosen"], line["rejected"]) == ("x", "y") and line["weight"] == line["probability"] > 0.5
    sure = cw.preference_weights(table, ranking, kind="dict")["weight"]
    assert cw.write_preferences(file, table, ranking, min_weight=float(sure.max())) == int((sure == sure.max()).sum())
    again = cw.read_comparisons(file)  # what is written can be read
    assert not again.placed


def test_writing_is_all_or_nothing(tmp_path: Path, ranking: cw.Ranking, crowd: Any) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text("earlier", encoding="utf-8")
    with pytest.raises(InputError, match="no text for item"):
        cw.write_preferences(file, crowd.comparisons, ranking, texts={})
    assert file.read_text(encoding="utf-8") == "earlier" and [p.name for p in tmp_path.iterdir()] == ["pairs.jsonl"]
    with pytest.raises(OutputError, match="could not be written"):
        cw.write_preferences(tmp_path / "none" / "pairs.jsonl", crowd.comparisons, ranking)
    with pytest.raises(OutputError, match="is a folder"):
        cw.write_preferences(tmp_path, crowd.comparisons, ranking)
    with pytest.raises(ParameterError, match="each='row'"):
        cw.write_preferences(file, crowd.comparisons, ranking, each="row")
    with pytest.raises(ParameterError, match="min_weight=2"):
        cw.write_preferences(file, crowd.comparisons, ranking, min_weight=2.0)
