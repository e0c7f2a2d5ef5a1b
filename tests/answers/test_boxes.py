"""Boxes: matching, which objects are real, where they are, what annotators are like, figures, bad input."""

from __future__ import annotations

import itertools
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise.answers.boxes_consensus import BoxClusters, existence, in_clusters, joined
from crowdwise.cli.main import app
from crowdwise.core.loop import Rounds
from crowdwise.data.boxes import EDGES, iou, matched
from crowdwise.errors import InputError, InputWarning

METHODS = ("box-crowd", "box-majority", "box-fusion")
BOX = st.tuples(*[st.integers(0, 20)] * 2, *[st.integers(1, 12)] * 2).map(
    lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3])
)
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.sampled_from(["cat", "dog"]), BOX), min_size=1, max_size=12,
    unique=True,
)  # fmt: skip


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def objects(result, by="item"):
    table = result.to_frame("candidates", kind="dict")
    return sorted(
        (str(table["item"][n]), str(table["label"][n]), *(round(float(table[e][n]), 5) for e in EDGES),
         round(float(table["probability"][n]), 5))
        for n in range(len(table["item"]))
    )  # fmt: skip


def made(rows, **change):
    name, who = change.get("name", str), change.get("who", str)
    shift, scale = change.get("shift", (0, 0)), change.get("scale", (1, 1))
    moved = [tuple(scale[k % 2] * b[k] + shift[k % 2] for k in range(4)) for *_, b in rows]
    return cw.Boxes.from_records([
        (name(n), who(m), label, *box) for (n, m, label, _), box in zip(rows, moved, strict=True)
    ])  # fmt: skip


@given(BOX, BOX)
def test_iou_counts_cells(one, two):
    cells = [{(x, y) for x in range(b[0], b[2]) for y in range(b[1], b[3])} for b in (one, two)]
    expected = len(cells[0] & cells[1]) / len(cells[0] | cells[1])
    assert iou(np.array([one], float), np.array([two], float))[0, 0] == pytest.approx(expected)


@given(st.lists(BOX, min_size=1, max_size=4), st.lists(BOX, min_size=1, max_size=4))
def test_matches_are_the_most_there_can_be(one, two):
    overlap = iou(np.array(one, float), np.array(two, float))
    found = len(matched(overlap, 0.5))
    small, large = sorted((overlap, overlap.T), key=len)[:2] if overlap.shape[0] != overlap.shape[1] else (overlap,) * 2
    best = max(
        sum(small[i, j] >= 0.5 for i, j in enumerate(columns))
        for columns in itertools.permutations(range(large.shape[0] if small is not large else len(small)), len(small))
    )  # fmt: skip
    assert found == best


@given(ROWS)
def test_clusters_have_one_box_of_an_annotator(rows):
    answers = made(rows)
    clusters = in_clusters(answers, 0.3)
    pairs = list(zip(clusters.cluster.tolist(), clusters.who.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)) == (answers.label >= 0).sum()
    for c in range(len(clusters)):
        some = np.flatnonzero(clusters.cluster == c)
        near = iou(clusters.edges[some], clusters.edges[some])[np.triu_indices(len(some), 1)]
        assert len(near) == 0 or near.max() >= 0.3


def test_many_boxes_on_one_image_are_compared_with_those_that_they_touch():
    """In time and memory of the pairs that overlap; the same clusters as of each image by itself."""
    crowd = cw.simulate.boxes(40, random_state=0).answers
    one = crowd.edges + np.tile(1e4 * crowd.item[:, None], 4)
    rows = crowd.label >= 0
    found = joined(one[rows], crowd.label[rows], crowd.annotator[rows], 0.3)
    apart = [
        [int(at[k]) for k in group]
        for n in range(len(crowd))
        for at in [np.flatnonzero(crowd.item[rows] == n)]
        for group in joined(crowd.edges[rows][at], crowd.label[rows][at], crowd.annotator[rows][at], 0.3)
    ]
    assert sorted(map(sorted, found)) == sorted(map(sorted, apart))
    rng = np.random.default_rng(0)
    places, who = np.tile(rng.random((6_000, 2)) * 2e4, (3, 1)), np.repeat(np.arange(3), 6_000)
    edges = np.hstack([places, places + 9.0]) + rng.normal(0.0, 0.1, size=(18_000, 1))
    assert np.median([len(group) for group in joined(edges, np.zeros(18_000), who, 0.5)]) == 3


def test_the_nearest_boxes_are_joined_first():
    edges = np.array([[0, 0, 10, 10], [0, 0, 10, 9], [2, 0, 12, 10], [0, 0, 10, 10]], float)
    # b's second box is nearer to a's than the first.
    assert joined(edges, np.zeros(4), np.array([0, 1, 1, 2]), 0.3) == [[0, 1, 3], [2]]
    assert joined(edges[:2], np.array([0, 1]), np.array([0, 1]), 0.85) == [[0], [1]]  # of different labels


@settings(max_examples=20)
@given(ROWS, st.randoms(use_true_random=False))
@pytest.mark.parametrize("key", METHODS)
def test_rows_names_origin_and_unit_do_not_matter(key, rows, random):
    base = objects(cw.aggregate(made(rows), key, **({"base": "majority"} if key == "box-crowd" else {})))
    more = {"base": "majority"} if key == "box-crowd" else {}
    shuffled = random.sample(rows, len(rows))
    assert objects(cw.aggregate(made(shuffled), key, **more)) == base
    other = cw.aggregate(made(rows, who=lambda m: f"z{ord('z') - ord(m)}"), key, **more)
    assert [row[0] for row in objects(other)] == [row[0] for row in base]
    assert np.allclose([row[2:] for row in objects(other)], [row[2:] for row in base], atol=1e-4)
    moved = objects(cw.aggregate(made(rows, shift=(64, -128), scale=(2, 4)), key, **more))
    back = [((x1 - 64) / 2, (y1 + 128) / 4, (x2 - 64) / 2, (y2 + 128) / 4, q) for _, _, x1, y1, x2, y2, q in moved]
    assert np.allclose(back, [row[2:] for row in base], atol=1e-3)


def test_probabilities_are_those_of_the_formula():
    """One pass over patterns by brute force: all nodes, all annotators, one by one."""
    rows = [("i", m, "cat", 0, 0, 9, 9) for m in "ab"] + [("i", "a", "cat", 50, 50, 60, 60), ("i", "c", *[None] * 5)]
    answers = cw.Boxes.from_records(rows)
    clusters = in_clusters(answers, 0.3)
    q, seen, *_ = existence(clusters, np.ones(3, dtype=int), 0.1, Rounds(1, 1), 0.0, 0)
    z, w = np.polynomial.hermite_e.hermegauss(9)
    w = w / w.sum()
    s, f = expit(0.5 + z), 0.1 * 0.5
    start = np.where(np.bincount(clusters.cluster) > 1, 0.9, 0.3).mean()
    for c, size in enumerate(np.bincount(clusters.cluster).tolist()):
        real = (w * s**size * (1 - s) ** (3 - size)).sum() / (1 - (w * (1 - s) ** 3).sum())
        nothing = f**size * (1 - f) ** (3 - size) / (1 - (1 - f) ** 3)
        assert q[c] == pytest.approx(start * real / (start * real + (1 - start) * nothing))
        assert seen[c] == pytest.approx(1 - (w * (1 - s) ** 3).sum())
    assert isinstance(clusters, BoxClusters)


@pytest.mark.parametrize("people", ["a", "ab", "abc"])
@pytest.mark.parametrize("images", [1, 3])
def test_what_all_annotators_drew_is_an_object(people, images):
    """With little data too; what one of two drew is not certain."""
    rows = [(n, m, k, x, 0, x + 6, 5) for n in range(images) for m in people for x, k in ((0, "cat"), (20, "dog"))]
    found = cw.aggregate(cw.Boxes.from_records(rows))
    assert found.accepted.all() and found.probability.min() > (0.85 if len(people) == 1 else 0.99)
    more = cw.aggregate(cw.Boxes.from_records([*rows, (0, "a", "cat", 70, 70, 80, 80)] if people != "a" else rows))
    assert more.probability[more.box_annotators == len(people)].min() > 0.85


def test_images_with_one_annotator_have_the_share_of_objects_that_one_draws():
    """An annotator alone draws fewer objects and far fewer false boxes than five: their boxes are not judged as those
    on images that five looked at."""
    rng, rows = np.random.default_rng(0), []
    for n in range(60):
        for m in range(5) if n < 30 else [int(rng.integers(5))]:
            real = [(x, 20.0 * n) for x in (0.0, 20.0, 40.0) if rng.random() < 0.8]
            false = rng.uniform(100, 900, (rng.poisson(2.0), 2)).tolist()
            rows += [(n, f"a{m}", "cat", x, y, x + 10, y + 10) for x, y in (*real, *false)]
    found = cw.aggregate(cw.Boxes.from_records(rows))
    alone = found.items[found.box_item] >= 30
    true = found.boxes[:, 0] < 90
    assert found.probability[alone].mean() == pytest.approx(true[alone].mean(), abs=0.1)
    assert found.probability[~alone].mean() == pytest.approx(true[~alone].mean(), abs=0.1)
    assert true[alone].mean() > true[~alone].mean() + 0.2


@pytest.fixture(scope="module")
def crowd():
    return cw.simulate.boxes(200, n_annotators=15, annotators_per_item=5, random_state=0)


@pytest.fixture(scope="module")
def consensus(crowd):
    return cw.aggregate(crowd.answers)


def test_what_annotators_are_like_is_recovered(crowd, consensus):
    people, true = consensus.to_frame("annotators", kind="dict"), crowd.parameters
    assert np.abs(people["detection_rate"] - true["detection"]).max() < 0.05
    assert np.abs(people["false_alarms"] - true["false_alarms"]).mean() < 0.12
    assert np.allclose(consensus.spread / true["spread"], 1.0, atol=0.15)
    shared = (consensus.bias - true["bias"]).mean(axis=0)
    assert np.abs(consensus.bias - true["bias"] - shared).max() < 0.03
    assert np.corrcoef((consensus.bias - shared).ravel(), true["bias"].ravel())[0, 1] > 0.95
    held = (people["spread_low"] < true["spread"]) & (true["spread"] < people["spread_high"])
    assert held.mean() > 0.75


def test_intervals_of_edges_and_probabilities_hold(crowd, consensus):
    real, held = np.zeros(len(consensus.boxes), dtype=bool), []
    for n in range(len(consensus.items)):
        at = np.flatnonzero(consensus.box_item == n)
        true = np.array([box[1:] for box in crowd.truth[n]]).reshape(-1, 4)
        pairs = matched(iou(consensus.boxes[at], true), 0.5)
        real[at[pairs[:, 0]]] = True
        off = np.abs(consensus.boxes[at[pairs[:, 0]]] - true[pairs[:, 1]])
        held.append(off < 1.96 * consensus.deviations[at[pairs[:, 0]]])
    assert 0.88 < np.concatenate(held).mean() < 0.98
    assert abs(consensus.probability.mean() - real.mean()) < 0.03


@pytest.mark.parametrize("each", [3, 5])
def test_it_is_ahead_of_fusion_and_of_the_majority(each):
    f1 = {key: [] for key in METHODS}
    for seed in range(3):
        crowd = cw.simulate.boxes(80, n_annotators=15, annotators_per_item=each, random_state=seed)
        for key in METHODS:
            found = cw.metrics.box_scores(cw.aggregate(crowd.answers, key), crowd.truth, resamples=20)
            f1[key].append([found[name].value for name in ("f1_50", "f1_75", "f1_mean")])
    ours, *others = (np.mean(f1[key], axis=0) for key in METHODS)
    for other in others:
        assert (ours >= other).all() and ours[2] > other[2] + 0.02


@pytest.mark.slow
def test_on_boxes_of_a_crowd(real):
    folder = real("boxes_crowd")
    answers = cw.read_boxes(folder / "labels.csv", truth_path=folder / "truth.csv")
    f1 = {key: cw.metrics.box_scores(cw.aggregate(answers, key), answers.truth, resamples=20) for key in METHODS}
    assert f1["box-crowd"]["f1_50"].value > 0.80 and f1["box-crowd"]["f1_75"].value > 0.59
    assert max(f1[key]["f1_50"].value for key in METHODS[1:]) < 0.70


def test_fusion_is_the_weighted_mean():
    rows = [
        {"item": "i", "annotator": m, "label": "cat", "x1": x, "y1": 0, "x2": x + 10, "y2": 10, "score": s}
        for m, x, s in (("a", 0.0, 0.9), ("b", 1.0, 0.6), ("c", 50.0, 0.5))
    ]
    found = cw.aggregate(cw.Boxes.from_records(rows), "box-fusion", threshold=0.4)
    assert found.boxes[0].tolist() == pytest.approx([0.4, 0, 10.4, 10])
    assert found.probability.tolist() == pytest.approx([0.75 * 2 / 3, 0.5 / 3]) and found.accepted.tolist() == [
        True,
        False,
    ]
    unsure = cw.Boxes.from_records([row | {"score": 0.0} for row in rows[:2]])
    assert cw.aggregate(unsure, "box-fusion").boxes.tolist() == [[0.0, 0.0, 10.0, 10.0]]


def test_figures_are_those_of_a_count():
    rows = [("i", "a", "cat", 0, 0, 10, 10), ("i", "a", "dog", 50, 50, 60, 60), ("j", "a", None, *[None] * 4)]
    found = cw.aggregate(cw.Boxes.from_records(rows), "box-majority")
    truth = {"i": [("cat", 0, 0, 10, 8), ("cat", 50, 50, 60, 60)], "j": [("cat", 0, 0, 1, 1)]}
    scores = cw.metrics.box_scores(found, truth)
    assert found.score(truth) == scores["f1_50"].value == pytest.approx(2 / 5)
    assert scores["mean_iou"].value == pytest.approx(0.8) and scores["count_ratio"].value == pytest.approx(2 / 3)
    assert scores["f1_mean"].value == pytest.approx(2 / 5 * 7 / 10)
    with pytest.raises(InputError, match="x1 < x2"):
        found.score({"i": [("cat", 5, 0, 4, 1)]})


def test_events_in_time_are_boxes():
    crowd = cw.simulate.boxes(60, n_annotators=8, annotators_per_item=4, n_classes=1, random_state=1)
    table = crowd.answers.with_truth(None).to_frame("dict")
    drawn = ~np.isnan(table["x1"])
    flat = table | {"y1": np.where(drawn, 0.0, np.nan), "y2": np.where(drawn, 1.0, np.nan)}
    truth = {n: [(box[0], box[1], 0, box[3], 1) for box in some] for n, some in enumerate(crowd.truth)}
    answers = cw.Boxes.from_frame(flat)
    assert cw.aggregate(answers).score(truth) > cw.aggregate(answers, "box-fusion").score(truth) - 0.02


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("i", "ann", "cat", 5, 0, 4, 9), r"The x2 in row 1 .* is 4: expected more than x1, which is 5"),
        (("i", "ann", "cat", 0, 9, 4, 9), r"The y2 in row 1 .* is 9: expected more than y1"),
        (("i", "ann", "cat", None, 0, 4, 9), r"The x1 in row 1 .* expected a finite number"),
        (("i", "ann", "cat", float("nan"), 0, 4, 9), r"The x1 in row 1 .* expected a finite number"),
        (("i", "ann", "cat", 0, 0, float("inf"), 9), r"The x2 in row 1 .* is inf: expected a finite number"),
        (("i", "ann", None, 0, 0, 4, 9), r"The label in row 1 .* is None: expected the class of the box"),
        (("i", None, "cat", 0, 0, 4, 9), "annotator"),
    ],
)  # fmt: skip
def test_bad_boxes_are_errors_of_ours(row, message):
    good = ("i", "bob", "cat", 1, 1, 2, 2)
    with pytest.raises(InputError, match=message):
        cw.Boxes.from_records([good, row])


def test_odd_tables():
    with pytest.raises(InputError, match="No annotator drew a box"):
        cw.aggregate(cw.Boxes.from_records([("i", "ann", *[None] * 5)]))
    with pytest.warns(InputWarning, match="Left out 1 of 2 boxes"):
        cw.Boxes.from_records([("i", "ann", "cat", 0, 0, 1, 1)] * 2)
    with pytest.raises(InputError, match="from 0 to 1"):
        cw.Boxes.from_frame({"item": [1], "annotator": [1], **{e: [k] for k, e in enumerate(EDGES)}, "score": [2.0]})
    one = cw.Boxes.from_records([("i", "ann", "cat", 0, 0, 1, 1)])
    assert one.only(["ann"]).n_answers == 1 and len(one[[0]]) == 1


def test_boxes_by_corner_and_size(tmp_path):
    path = tmp_path / "a.csv"

    def written(names, *rows):
        path.write_text("\n".join([f"item,annotator,label,{names}", *rows]), encoding="utf-8")
        return cw.aggregate(path, base="majority")

    result = written("left,top,width,height", "i,a,cat,1,2,10,20", "i,b,cat,1,2,10,20", "i,c,,,,,")
    assert result.boxes.round(6).tolist() == [[1, 2, 11, 22]] and result.accepted.all()
    with pytest.raises(InputError, match=r"The width in line 2 .* is '-10': expected a number above 0"):
        written("left,top,w,h", "i,a,cat,1,2,-10,20")
    for names in ("x,y,width,height", "x,y,w,h"):  # a box, or a point on an image of that size
        with pytest.raises(InputError, match="Call x and y left and top for boxes"):
            written(names, "i,a,cat,1,2,10,20", "i,b,dog,1,2,10,20")


def test_files_are_recognised_and_reported(tmp_path, crowd):
    few = crowd.answers[:60]
    frame = few.with_truth(None).to_frame("polars")
    names = dict(zip(EDGES, ("x_min", "y_min", "x_max", "y_max"), strict=True))
    for n, table in enumerate((frame, frame.rename(names), frame.drop("label"))):
        table.write_csv(tmp_path / f"{n}.csv")
        assert json.loads(run("aggregate", tmp_path / f"{n}.csv", "--json").stdout)["answer_type"] == "boxes"
    few.truth_frame().write_csv(tmp_path / "truth.csv")
    done = run("aggregate", tmp_path / "0.csv", "--truth", tmp_path / "truth.csv", "--out", tmp_path / "out.csv")
    assert done.exit_code == 0, done.stderr
    assert pl.read_csv(tmp_path / "out.csv").columns[:6] == ["item", "label", *EDGES]
    for command in ("report", "diagnose", "agreement", "describe"):
        more = ["--out", tmp_path / "page.html"] if command == "report" else []
        assert run(command, tmp_path / "0.csv", *more).exit_code == 0, command


def test_annotators_who_miss_draw_too_much_or_are_imprecise_are_named():
    rng = np.random.default_rng(0)
    rows = []
    for n in range(60):
        for k in range(4):
            box = np.array([k * 200, 0, k * 200 + 100, 100])
            for who in ("ann", "bob", "cem", "misses", "rough"):
                if who != "misses" or rng.random() < 0.3:
                    noise = rng.normal(size=4) * (12 if who == "rough" else 2)
                    rows.append((n, who, "cat", *(box + noise)))
        rows += [(n, "draws", "cat", x, y, x + 50, y + 50) for x, y in rng.random((2, 2)) * 900 + [0, 300]]
        rows += [(n, "draws", "cat", k * 200, 0, k * 200 + 100, 100) for k in range(4)]
    found = cw.diagnose(cw.Boxes.from_records(rows))
    named = {finding.kind: finding.annotators for finding in found.findings}
    assert named["misses"] == ("misses",) and named["draws"] == ("draws",) and named["imprecise"] == ("rough",)


def test_agreement_is_the_f1_of_two():
    rows = [
        ("i", "a", "cat", 0, 0, 10, 10), ("i", "b", "dog", 0, 0, 10, 8), ("i", "b", "cat", 50, 50, 60, 60),
        ("i", "c", *[None] * 5),
    ]  # fmt: skip
    found = cw.agreement(cw.Boxes.from_records(rows))
    assert found["f1"].value == pytest.approx(2 / 6) and found["labelled"].value == 0.0
    assert found["mean_iou"].value == pytest.approx(0.8)


@pytest.mark.parametrize("axes", [1, 3])
def test_events_and_volumes_are_boxes_with_other_edges(axes, tmp_path):
    crowd = cw.simulate.boxes(60, n_annotators=8, annotators_per_item=5, axes=axes, random_state=0)
    names = [f"{axis}{end}" for end in (1, 2) for axis in "xyz"[:axes]]
    path = tmp_path / "drawn.csv"
    crowd.answers.to_frame().write_csv(path)
    found = {key: cw.aggregate(cw.read_boxes(path), key) for key in METHODS}
    f1 = {key: cw.metrics.box_scores(result, crowd.truth)["f1_50"].value for key, result in found.items()}
    assert f1["box-crowd"] > max(f1["box-majority"], f1["box-fusion"], 0.85)
    table = found["box-crowd"].to_frame("objects", kind="dict")
    assert [name for name in table if name in EDGES or name in ("z1", "z2")] == names
    people = found["box-crowd"].to_frame("annotators", kind="dict")
    assert np.corrcoef(people["spread"], crowd.parameters["spread"])[0, 1] > 0.8
    truth = cw.Boxes.from_frame(crowd.answers.to_frame()).with_truth(crowd.truth).truth_frame()
    assert cw.metrics.box_scores(found["box-crowd"], truth)["f1_50"].value == pytest.approx(f1["box-crowd"])


def points(seed=0, n_items=60, noise=4.0):
    """Points that annotators click on objects, 200 apart or more; one of them 8 to the right."""
    rng = np.random.default_rng(seed)
    off = {"a": (8.0, 0.0), "b": (-4.0, 3.0), "c": (-4.0, -3.0), "d": (0.0, 0.0)}
    rows, truth = [], {}
    for n in range(n_items):
        cells = rng.permutation(16)[: rng.integers(1, 6)]
        spots = np.column_stack(np.divmod(cells, 4)) * 200.0 + rng.uniform(0, 60, (len(cells), 2))
        truth[n] = [("cell", *spot) for spot in spots.tolist()]
        for who, shift in off.items():
            seen = spots[rng.random(len(spots)) < 0.8]
            seen = seen + shift + noise * rng.normal(size=seen.shape)
            clicked = [*seen.tolist(), *rng.uniform(0, 800, (int(rng.random() < 0.3), 2)).tolist()]
            rows += [{"item": n, "annotator": who, "label": "cell", "x": x, "y": y} for x, y in clicked]
            rows += [] if clicked else [{"item": n, "annotator": who, "label": None, "x": None, "y": None}]
    return rows, truth, off


def test_points_are_placed_and_annotators_have_a_bias_in_their_unit():
    rows, truth, off = points()
    answers = cw.Boxes.from_records(rows)
    assert 20 < answers.point_size < 100
    found = cw.aggregate(answers)
    assert found.score(truth) > 0.9
    table = found.to_frame("objects", kind="dict")
    assert set(table["label"]) == {"cell"}
    spots = zip(table["item"], table["x"], table["y"], strict=True)
    far = [min(np.hypot(x - a, y - b) for _, a, b in truth[n]) for n, x, y in spots]
    assert sum(d > 30 for d in far) <= 1
    people = found.to_frame("annotators", kind="dict")
    shared = np.mean(list(off.values()), axis=0)
    for m, name in enumerate(people["annotator"]):
        assert people["bias_x"][m] == pytest.approx(off[name][0] - shared[0], abs=1.5)
        assert people["bias_y"][m] == pytest.approx(off[name][1] - shared[1], abs=1.5)
        assert 2.5 < people["spread"][m] < 6.5
    assert cw.aggregate(cw.Boxes.from_records(rows, point_size=60.0)).score(truth) > 0.9


def test_points_that_are_near_by_chance_do_not_decide_how_far_apart_points_of_an_object_are():
    """Four fifths of the points are false: most that are nearest to each other are of different things."""
    rng = np.random.default_rng(0)
    rows, truth = [], {}
    for n in range(60):
        spots = rng.uniform(0, 800, (int(rng.random() < 0.3), 2))
        truth[n] = [("object", *spot) for spot in spots.tolist()]
        for who in "abcd":
            clicked = np.vstack([spots + rng.normal(0, 3, spots.shape), rng.uniform(0, 800, (rng.poisson(1.0), 2))])
            places = clicked.tolist() or [(None, None)]
            rows += [{"item": n, "annotator": who, "label": x and "object", "x": x, "y": y} for x, y in places]
    answers = cw.Boxes.from_records(rows)
    assert 15 < answers.point_size < 60
    assert cw.aggregate(answers).score(truth) > 0.9
    names = {who: f"z{9 - k}" for k, who in enumerate("abcd")}
    other = [row | {"item": 99 - row["item"], "annotator": names[row["annotator"]]} for row in rows]
    assert cw.Boxes.from_records(other).point_size == pytest.approx(answers.point_size)


def test_what_is_wrong_with_points_and_volumes_is_said():
    rows = [{"item": 1, "annotator": "a", "x": 1.0, "y": 2.0}]
    with pytest.raises(InputError, match=r"point_size is -1: expected a length above 0"):
        cw.Boxes.from_records(rows, point_size=-1.0)
    with pytest.raises(InputError, match="point_size is for points"):
        cw.Boxes.from_records([("i", "a", "cat", 0, 0, 1, 1)], point_size=3.0)
    with pytest.raises(InputError, match="z2"):
        cw.Boxes.from_records([{"item": 1, "annotator": "a", "x1": 0, "y1": 0, "z1": 5, "x2": 1, "y2": 1, "z2": 4}])
    with pytest.raises(InputError, match="x2"):
        cw.Boxes.from_records([{"item": 1, "annotator": "a", "x1": 0}])
    with pytest.raises(cw.errors.ParameterError, match="axes=4"):
        cw.simulate.boxes(2, axes=4)


def test_a_folder_brings_its_pictures_and_texts(tmp_path):
    from PIL import Image

    (tmp_path / "images").mkdir()
    rows = [("scan 1", m, "cat", 5, 5, 30, 30) for m in "abc"]
    cw.Boxes.from_records(rows).to_frame("polars").write_csv(tmp_path / "labels.csv")
    Image.new("RGB", (60, 40), "grey").save(tmp_path / "images" / "scan 1.png")
    done = run("report", tmp_path, "--answers", "boxes", "--json")
    (drawing,) = json.loads(done.stdout)["drawings"]
    assert drawing["image"]["src"].startswith("data:image/")
    for file in (tmp_path / "images").iterdir():
        file.unlink()
    spans = [("doc", m, "PER", 0, 3) for m in "abc"]
    cw.Spans.from_records(spans).to_frame("polars").write_csv(tmp_path / "labels.csv")
    (tmp_path / "items.csv").write_text("item,text\ndoc,Ada wrote it.\n", encoding="utf-8")
    done = run("report", tmp_path, "--answers", "spans", "--json")
    assert "wrote" in json.dumps(json.loads(done.stdout)["drawings"])


@pytest.mark.parametrize("ease", [0.0, 1.0])
def test_a_box_that_one_of_five_careful_annotators_drew_is_no_hard_object(ease):
    """They find 98 % of the objects, so that nothing but the prior of sigma tells hard objects from false alarms."""
    right = drawn = 0
    for seed in range(3):
        crowd = cw.simulate.boxes(60, detection=(60.0, 1.0), ease=ease, false_alarms=0.03, random_state=seed)
        found = cw.aggregate(crowd.answers, base="majority")
        good, mine, true, _ = found.matches(crowd.truth, (0.5,))[0].sum(axis=0)
        right, drawn = right + good, drawn + mine
        assert good > 0.98 * true
    assert right > 0.99 * drawn


def test_true_boxes_have_a_column_of_classes_by_any_name(tmp_path):
    (tmp_path / "truth.csv").write_text("item,species,x1,y1,x2,y2\na,cat,0,0,1,1\nb,,,,,\n")
    truth = cw.Boxes.read_truth(tmp_path / "truth.csv", label="species")
    assert truth == {"a": [("cat", 0.0, 0.0, 1.0, 1.0)], "b": []}


@pytest.fixture(scope="module")
def drawings():
    """Boxes on 25 images by five of ten annotators each, and the true ones: (image, annotator, label, edges)."""
    rng = np.random.default_rng(1)
    corner, size = rng.uniform(0, 900, (25, 4, 2)), rng.uniform(40, 150, (25, 4, 2))
    true = [[("cat", *at, *(at + wide)) for at, wide in zip(*of, strict=True)] for of in zip(corner, size, strict=True)]
    rows = []
    for n, boxes in enumerate(true):
        for m in rng.choice(10, 5, replace=False):
            kept = [box for box in boxes if rng.random() < 0.9]
            sides = [np.tile(np.subtract(box[3:], box[1:3]), 2) for box in kept]
            noisy = [np.add(box[1:], 0.04 * rng.normal(size=4) * side) for box, side in zip(kept, sides, strict=True)]
            rows += [(n, int(m), "cat", *edges) for edges in noisy]
    return rows, dict(enumerate(true))


def test_what_is_drawn_twice_counts_once_and_is_pointed_out(drawings):
    rows, truth = drawings
    again = [(*row[:3], *(edge + 0.5 for edge in row[3:])) for row in rows if row[1] < 7]
    with pytest.warns(InputWarning, match=f"drawn twice: {len(again)}, such as one by "):
        twice = cw.aggregate(cw.Boxes.from_records(rows + again))
    once = cw.aggregate(cw.Boxes.from_records(rows))
    assert twice.score(truth) == once.score(truth) > 0.98
    assert cw.aggregate(cw.Boxes.from_records(rows), "box-majority").score(truth) <= once.score(truth)
    assert len(twice.boxes) == len(once.boxes)
    apart = [(0, who, label, x, 0, x + 10, 10) for who in "ab" for x, label in ((0, "cat"), (0, "dog"), (4, "cat"))]
    assert in_clusters(cw.Boxes.from_records(apart), 0.3).cluster.max() == 2  # other labels, and an IoU of .43


def test_a_few_who_draw_much_too_large_do_not_move_the_boxes(drawings):
    rows, truth = drawings
    large = []
    for n, who, label, *box in rows:
        out = 0.3 * np.tile(np.subtract(box[2:], box[:2]), 2) * [-1, -1, 1, 1] if who < 3 else 0.0
        large.append((n, who, label, *np.add(box, out)))
    table = cw.Boxes.from_records(large)
    f1 = {}
    for key in ("box-crowd", "box-majority"):
        right, drawn, true = cw.aggregate(table, key).matches(truth, (0.75,))[0][:, :3].sum(axis=0)
        f1[key] = 2.0 * right / (drawn + true)
    assert f1["box-crowd"] > max(f1["box-majority"], 0.95)
