"""Boards: scales, figures, two items, scores and pass rates, odd logs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from answers.prompted import prompts
from crowdwise.errors import InputError, InputWarning, ParameterError


def test_scales_are_one_score() -> None:
    ranking = cw.aggregate(prompts(30, 0.5, seed=0), "bradley-terry")
    elo, chance = (ranking.on_scale(scale, kind="dict", table="items") for scale in ("elo", "probability"))
    assert (
        np.allclose(elo["elo"], 1000.0 + 400.0 * ranking.scores / np.log(10.0)) and abs(elo["elo"].mean() - 1000) < 1e-9
    )
    assert np.allclose(chance["probability"], 1.0 / (1.0 + np.exp(-ranking.scores)))
    for rows, name in ((elo, "elo"), (chance, "probability")):
        assert (rows[f"{name}_low"] < rows[name]).all() and (rows[name] < rows[f"{name}_high"]).all()
    i, j = 4, 0
    assert np.isclose(ranking.probability(i, j), 1.0 / (1.0 + 10.0 ** ((elo["elo"][j] - elo["elo"][i]) / 400.0)))
    with pytest.raises(ParameterError, match="scale='points'"):
        ranking.on_scale("points")


def test_win_rates_are_counted() -> None:
    rows = [("a", "b", "m", "left"), ("b", "a", "m", "left"), ("a", "b", "n", "tie"), ("a", "b", "n", "left"),
            ("b", "c", "n", "right")]  # fmt: skip
    table = cw.Comparisons.from_records(rows)
    rates = table.win_rates("dict")
    assert rates["item"].tolist() == ["a", "b", "c"]
    found = np.stack([rates[name] for name in "abc"], axis=1)
    assert found[0, 1] == 2.5 / 4.0 and found[1, 0] == 1.5 / 4.0 and found[2, 1] == 1.0 and found[1, 2] == 0.0
    assert np.isnan(found[0, 2]) and np.isnan(np.diag(found)).all()
    matrix = cw.aggregate(table, "bradley-terry").win_probabilities("dict")
    assert matrix["item"].tolist() == ["c", "a", "b"]
    assert np.isclose(matrix["a"][0] + matrix["c"][1], 1.0) and matrix["a"][1] == 0.5


def test_a_leaderboard_is_drawn(tmp_path: Any) -> None:
    ranking = cw.aggregate(prompts(30, 0.5, seed=0), "bradley-terry")
    named = replace(ranking, items=np.array(["a & b", "<c>", "d", "e", "a name that is much too long to be shown"]))
    figure = named.plot(tmp_path / "board.svg", scale="elo", limit=4)
    svg = (tmp_path / "board.svg").read_text(encoding="utf-8")
    assert svg == figure.svg == figure._repr_svg_()
    tree = ElementTree.fromstring(svg)
    texts = ["".join(node.itertext()) for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert "a name that is much too long …" in texts and "<c>" in texts and "1 more items are not shown" in texts
    circles = [float(node.get("cx")) for node in tree.iter("{http://www.w3.org/2000/svg}circle")]
    assert circles == sorted(circles, reverse=True) and len(circles) == 4
    named.plot(tmp_path / "board.png")
    assert (tmp_path / "board.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(ParameterError, match=r"\.svg or \.png"):
        named.plot(tmp_path / "board.pdf")


def test_two_items_an_anchor_and_what_to_ask_next() -> None:
    crowd = cw.simulate.comparisons(6, n_annotators=3, n_comparisons=300, random_state=0)
    ranking = cw.aggregate(crowd.comparisons)
    order = ranking.leaderboard["item"].to_list()
    first = ranking.next_pairs(3, kind="dict")
    assert first["gain"][0] >= first["gain"][-1] > 0 and (first["sure"] < 0.98).all()
    a, b = first["left"][0], first["right"][0]
    far, near = ranking.versus(order[0], order[-1]), ranking.versus(a, b)
    assert far["low"] > 0.0 and far["more"] == 0.0 and far["sure"] > 0.99
    assert near["difference"] == pytest.approx(-ranking.versus(b, a)["difference"])
    assert near["low"] < 0.0 < near["high"] and near["more"] >= 1.0
    few = [((a, b) if n % 2 else (b, a)) + (n % 3, a if n % 100 < 100 * near["probability"] else b) for n in range(100)]
    more = cw.Comparisons.from_records(few * max(1, round(2 * near["more"] / 100)))
    names = ["left", "right", "annotator", "outcome"]
    both = [table.to_frame("polars").select(names) for table in (crowd.comparisons, more)]
    table = cw.Comparisons.from_frame(both[0].vstack(both[1]))
    assert cw.aggregate(table).versus(a, b)["more"] == 0.0
    elo = ranking.on_scale("elo", anchor={order[-1]: 1000}, kind="dict")
    assert elo["elo"][-1] == pytest.approx(1000) and elo["elo"][0] > 1100 and elo["elo_low"][-1] < 1000
    with pytest.raises(ParameterError, match="An anchor is one item"):
        ranking.on_scale("probability", anchor={order[0]: 1})


SCALES = (1.4, 1.0, 0.6)


def scored(seed: int, n_prompts: int, missing: float = 0.0) -> tuple[Any, dict[str, Any]]:
    """Three judges with levels and scales of their own on five models; prompts differ in difficulty."""
    rng, s = np.random.default_rng(seed), np.linspace(-1.0, 1.0, 5)
    hard, here = rng.normal(0, 1.5, n_prompts), s + rng.standard_normal((n_prompts, 5))
    p, i, j = (x.ravel() for x in np.meshgrid(np.arange(n_prompts), np.arange(5), np.arange(3), indexing="ij"))
    y = 5 + 0.7 * j + np.array(SCALES)[j] * (hard[p] + here[p, i]) + 0.8 * rng.standard_normal(len(p))
    kept = rng.random(len(p)) >= missing
    names = [f"m{k}" for k in range(5)]
    return s, {
        "model": [names[k] for k in i[kept]],
        "prompt": p[kept],
        "judge": [f"j{k}" for k in j[kept]],
        "score": y[kept],
    }


@pytest.mark.parametrize(("n_prompts", "missing"), [(5, 0.0), (10, 0.3), (20, 0.0)])
def test_scores_make_a_board_with_scales_of_judges(n_prompts: int, missing: float) -> None:
    inside, scale, spread = [], [], []
    for seed in range(30):
        s, frame = scored(seed, n_prompts, missing)
        board = cw.score_board(frame)
        rows, judges = board.to_frame("items", kind="dict"), board.to_frame("annotators", kind="dict")
        mean = rows["score"].mean()
        inside.append((rows["low"] - mean <= s) & (s <= rows["high"] - mean))
        scale.append((judges["slope_low"] <= SCALES) & (judges["slope_high"] >= SCALES))
        spread.append((rows["score"] - mean) @ s / (s @ s))
    assert 0.88 <= np.mean(inside) <= 0.995 and np.mean(scale) >= 0.87 and 0.9 < np.mean(spread) < 1.1
    assert board.unit == "points" and board.n_groups == n_prompts and np.allclose(board.slope.mean(), 1.0)
    two = board.versus("m4", "m0")
    assert two["low"] > 0.0 and two["more"] == 0.0 and "probability" not in two
    with pytest.raises(InputError, match="scores are in points"):
        board.on_scale("elo")
    with pytest.raises(InputError, match="scores are in points"):
        board.probability("m4", "m0")


def test_few_prompts_of_scores_have_a_caveat(tmp_path: Any) -> None:
    _, frame = scored(0, 4)
    board = cw.score_board(frame)
    assert "there are 4 prompts, and 5 are needed" in board.caveat and "caveat" in board.leaderboard.columns
    board.save(tmp_path / "board")
    again = cw.Ranking.load(tmp_path / "board")
    assert again.unit == "points" and np.array_equal(again.scores, board.scores)
    assert "points" in board.plot().svg and "log odds" not in board.plot().svg


def graded(seed: int, n_prompts: int = 60) -> tuple[Any, dict[Any, str], dict[str, Any]]:
    """Three models that pass in 80, 70 and 50 %; judges who let bad answers of the last one pass."""
    rng, rows, truth = np.random.default_rng(seed), [], {}
    for i, rate in enumerate((0.8, 0.7, 0.5)):
        for p in range(n_prompts):
            good = rng.random() < rate
            truth[f"m{i}", p] = "pass" if good else "fail"
            fooled = good or (i == 2 and rng.random() < 0.5)
            rows += [(f"m{i}", p, f"j{k}", "pass" if fooled == (rng.random() < 0.9) else "fail") for k in range(3)]
    shares = np.array([np.mean([truth[f"m{i}", p] == "pass" for p in range(n_prompts)]) for i in range(3)])
    return shares, truth, dict(zip(("model", "prompt", "judge", "verdict"), zip(*rows, strict=True), strict=True))


def test_pass_and_fail_make_pass_rates() -> None:
    fooled, right = [], []
    for seed in range(6):
        shares, truth, frame = graded(seed)
        board = cw.score_board(frame)
        rows = board.to_frame("items", kind="dict")
        assert board.unit == "pass rate" and np.isfinite(rows["error"]).all()
        assert ((rows["low"][:2] <= shares[:2]) & (shares[:2] <= rows["high"][:2])).all()
        fooled.append(rows["score"][2] - shares[2])
        drawn = np.random.default_rng(seed).permutation(len(truth))[:90]
        keys = list(truth)
        gold = cw.score_board(frame, gold={keys[k]: truth[keys[k]] for k in drawn}).to_frame("items", kind="dict")
        right.append((gold["low"] <= shares) & (shares <= gold["high"]))
    assert np.mean(fooled) > 0.1 and np.mean(right) >= 0.85  # gold takes off what judges let pass
    with pytest.raises(ParameterError, match="gold is for pass and fail"):
        cw.score_board(scored(0, 5)[1], gold={("m0", 0): "pass"})
    with pytest.raises(InputError, match="no column of the score"):
        cw.score_board({"model": ["a", "b"], "prompt": [1, 1]})


def test_gold_of_a_board_is_in_the_words_of_verdicts_and_of_every_model() -> None:
    _, truth, frame = graded(0, 40)
    gold = {key: truth[key] for key in list(truth)[::2]}
    rows = cw.score_board(frame, gold=gold).to_frame("items", kind="dict")
    words = {"pass": "Yes", "fail": False}
    assert cw.score_board(frame, gold={key: words[word] for key, word in gold.items()}).scores.tolist() == (
        rows["score"].tolist()
    )
    with pytest.raises(InputError, match="gold says 'perhaps': expected pass or fail"):
        cw.score_board(frame, gold=gold | {("m0", 0): "perhaps"})
    with pytest.raises(InputError, match="gold names no answer of 'm1', 'm2'"):
        cw.score_board(frame, gold={key: word for key, word in gold.items() if key[0] == "m0"})


def test_the_interval_of_a_pass_rate_by_gold_is_that_of_the_estimate() -> None:
    rows = [(m, p, "ann", "pass" if m == "a" or p % 2 else "fail") for m in "ab" for p in range(40)]
    frame = dict(zip(("model", "prompt", "judge", "verdict"), zip(*rows, strict=True), strict=True))
    gold = {(m, p): verdict for m, p, _, verdict in rows if p < 20}
    board = cw.score_board(frame, gold=gold).to_frame("items", kind="dict")
    votes = cw.Votes.from_records([(f"{m} {p}", judge, verdict) for m, p, judge, verdict in rows])
    known = {f"{m} {p}": verdict for (m, p), verdict in gold.items()}
    by = np.array([name.split()[0] for name in votes.items])
    estimate = cw.estimate(votes, "share", gold=known, by=by, positive="pass", method="majority").to_frame(kind="dict")
    assert board["low"][0] == pytest.approx(estimate["low"][0]) and board["high"].tolist()[0] == 1.0


def test_no_interval_of_a_pass_rate_leaves_0_to_1() -> None:
    frame = {"model": ["a"] * 12 + ["b"] * 12, "prompt": [*range(12)] * 2, "verdict": ["pass"] * 12 + ["fail"] * 12}
    rows = cw.score_board(frame).to_frame("items", kind="dict")
    assert rows["low"].min() >= 0.0 and rows["high"].max() <= 1.0 and (rows["low"] < rows["high"]).all()


def test_methods_for_comparisons_are_compared() -> None:
    crowd = cw.simulate.comparisons(8, n_annotators=4, n_comparisons=1500, position=1.0, random_state=0)
    found = cw.compare(crowd.comparisons, repeats=2)
    assert set(found.methods) == {"judge-bt", "bradley-terry", "position-bt", "crowd-bt"}
    assert found.methods[-1] != "judge-bt" and found.low[found.methods.index("bradley-terry")] > 0.0
    assert found.agreement.shape == (4, 4) and (found.score < 0).all()
    with pytest.raises(ParameterError, match="is for"):
        cw.compare(crowd.comparisons, ["majority"])


def test_boards_of_logs_with_brackets_odd_names_and_words_for_no_score() -> None:
    rows = [(f"p{n % 8}", "a", "b", ("x", "y")[n % 2], ("[[A]]", "[[B]]", "[[C]]", "[[A]]")[n % 4]) for n in range(40)]
    names = ("prompt", "model_1", "model_2", "judge", "verdict")
    table = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    told = cw.Comparisons.from_frame(table)
    assert np.bincount(told.outcome).tolist() == [20, 10, 10]
    graded = table | {"verdict": [(-3, 1, 2, 3)[n % 4] for n in range(40)]}
    with pytest.raises(InputError, match=r"is -3: .*If these are grades, say which end means which"):
        cw.Comparisons.from_frame(graded)
    chosen = cw.Comparisons.from_frame(
        {"chosen_model": list("abc"), "rejected_model": list("bca"), "judge": list("xyx")}
    )
    assert chosen.n_answers == 3

    said = [(f"t{n // 6}", "abc"[n % 3], "xy"[n // 3 % 2], "N/A" if n == 7 else 4 + n % 3 + n % 2) for n in range(60)]
    scores = pl.DataFrame(said, schema=["test_case", "model", "judge", "score"], orient="row", strict=False)
    scores = scores.with_columns(pl.Series("score", [str(row[3]) for row in said]))
    with pytest.warns(InputWarning, match="Left out 1 rows without a score: 'N/A'"):
        board = cw.score_board(scores)
    assert board.n_answers == 59 and "Errors allow for 10 prompts" in " ".join(board.notes)


def test_what_rests_on_the_prior_or_on_the_judges_disagreement_is_said() -> None:
    never = {"a": ["x", "x", "x", "x"] * 5, "b": ["y", "z", "y", "z"] * 5, "winner": ["a", "a", "tie", "tie"] * 5}
    ranking = cw.aggregate(cw.Comparisons.from_frame(never, left="a", right="b", outcome="winner"))
    assert any("beaten each other round a circle" in note for note in ranking.notes)

    random = np.random.default_rng(0)
    rates = {"a": 0.38, "b": 0.68, "c": 0.92}
    rows = [(f"t{q}", m, j, bool(random.random() < rates[m])) for q in range(60) for m in rates for j in ("gpt", "ann")]
    table = dict(zip(("test_id", "model", "judge", "passed"), map(list, zip(*rows, strict=True)), strict=True))
    board = cw.score_board(table)
    assert any(note.startswith("The judges pass 6") and "gold decides it" in note for note in board.notes)


def answers_of(models: dict[str, float], n: int = 40, seed: int = 0) -> dict[str, Any]:
    """Scores of three judges for the answers of models to prompts, around a mean of each model."""
    rng = np.random.default_rng(seed)
    model, prompt, judge = (x.ravel() for x in np.meshgrid(list(models), range(n), ["j1", "j2", "j3"], indexing="ij"))
    score = np.array([models[name] for name in model]) + rng.normal(0.0, 1.0, len(model)).round(2)
    return {"model": model, "prompt": prompt, "judge": judge, "score": score}


def test_models_that_share_no_prompts_have_their_means() -> None:
    """Without prompts that join them nothing separates prompts from models: scores were all equal."""
    frame = answers_of({"a": 5.0, "b": 6.0, "c": 7.0})
    both, alone = (cw.score_board({k: v for k, v in frame.items() if k != "prompt"} | more) for more in (
        {"prompt": frame["prompt"]}, {}))  # fmt: skip
    assert np.allclose(both.scores, [5.0, 6.0, 7.0], atol=0.3) and np.allclose(alone.scores, both.scores, atol=0.1)
    one = {k: v[frame["judge"] == "j1"] for k, v in frame.items() if k != "prompt"}
    assert np.allclose(cw.score_board(one).scores, [5.0, 6.0, 7.0], atol=0.4)
    own = frame | {"prompt": [f"{m} {p}" for m, p in zip(frame["model"], frame["prompt"], strict=True)]}
    apart = cw.score_board(own)
    assert np.allclose(apart.scores, both.scores, atol=0.2) and any("own prompts" in note for note in apart.notes)


def test_judges_who_share_no_model_are_an_error() -> None:
    frame = answers_of({"a": 5.0, "b": 6.0})
    frame["judge"] = np.where(frame["model"] == "a", "j1", "j2")
    with pytest.raises(InputError, match="No judge scored both 'a' and 'b'"):
        cw.score_board(frame)


def test_scores_given_again_missing_ones_and_odd_judges() -> None:
    frame = answers_of({"a": 5.0, "b": 6.0})
    twice = cw.score_board({name: np.concatenate([values, values]) for name, values in frame.items()})
    once = cw.score_board(frame)
    assert np.allclose(twice.scores, once.scores) and np.allclose(twice.errors, once.errors)
    assert twice.n_answers == 480 and any("240 scores are of an answer" in note for note in twice.notes)
    with pytest.raises(InputError, match="finite score"):
        cw.score_board(frame | {"score": np.where(np.arange(240) == 3, np.inf, frame["score"])})
    with pytest.warns(InputWarning, match="Left out 3 rows without a score"):
        cw.score_board(pl.DataFrame(frame).with_columns(score=pl.when(pl.int_range(240) >= 3).then("score")))
    with pytest.warns(InputWarning, match="3 scores are -1"):
        cw.score_board(frame | {"score": np.where(np.arange(240) < 3, -1.0, np.maximum(frame["score"], 0.0))})
    odd = cw.score_board(frame | {"score": np.where(frame["judge"] == "j1", 11.0 - frame["score"], frame["score"])})
    flat = cw.score_board(frame | {"score": np.where(frame["judge"] == "j1", 5.0, frame["score"])})
    assert "'j1' scores all alike" in " ".join(flat.notes) and odd.slope[0] < 0.5 < odd.slope[1]
