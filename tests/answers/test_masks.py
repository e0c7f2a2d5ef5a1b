"""Masks: run lengths, files, the vote on pixels, STAPLE, distances to the edge, measures."""

from __future__ import annotations

import itertools
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise.answer_types.masks import MaskRules
from crowdwise.answers.masks_consensus import VotePatterns, dice, signed_distance, staple
from crowdwise.cli.main import app
from crowdwise.data.masks import from_run_lengths, pack, run_lengths, unpack
from crowdwise.errors import ColumnError, InputError, ReadError
from crowdwise.metrics.structures import edge_distances

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")
METHODS = ("signed-distance", "mask-majority", "staple")
SHAPES = st.tuples(st.integers(1, 7), st.integers(1, 7))
MASK = SHAPES.flatmap(lambda shape: arrays(bool, shape))
CROWD = SHAPES.flatmap(lambda shape: st.lists(arrays(bool, shape), min_size=1, max_size=4))


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def records(masks, items=("i",)):
    return [(item, f"a{m}", mask) for item in items for m, mask in enumerate(masks)]


def compressed(counts):
    """COCO's text, from its definition: six bits to a character, from the fourth number on differences."""
    out = ""
    for n, count in enumerate(counts):
        value = count - counts[n - 2] if n > 2 else count
        more = True
        while more:
            bits = value & 31
            value >>= 5
            more = value != (-1 if bits & 16 else 0)
            out += chr(48 + bits + 32 * more)
    return out


@given(MASK)
def test_run_lengths_and_bytes_come_back(mask):
    counts = run_lengths(mask)
    assert sum(counts) == mask.size and all(count > 0 for count in counts[1:])
    np.testing.assert_array_equal(from_run_lengths(counts, *mask.shape), mask)
    np.testing.assert_array_equal(from_run_lengths(" ".join(map(str, counts)), *mask.shape), mask)
    np.testing.assert_array_equal(unpack(pack(mask), *mask.shape), mask)


def test_the_compressed_text_of_coco():
    mask = np.zeros((60, 50), dtype=bool)
    mask[5:40, 7:30] = mask[50:, 45:] = True
    text = compressed(run_lengths(mask))
    np.testing.assert_array_equal(from_run_lengths(text, 60, 50), mask)
    table = cw.Masks.from_records([("i", "ann", {"size": [60, 50], "counts": text})])
    np.testing.assert_array_equal(table.of_item(0)[0], mask)


@given(CROWD)
def test_patterns_are_those_of_the_pixels(masks):
    found = VotePatterns.of_masks(masks)
    flat = np.array([mask.ravel() for mask in masks])
    np.testing.assert_array_equal(found.votes[:, found.of], flat)
    np.testing.assert_array_equal(found.times, np.bincount(found.of))
    assert len({tuple(votes) for votes in found.votes.T.tolist()}) == len(found.times)


def test_many_masks_have_only_the_patterns_that_occur():
    masks = list(np.random.default_rng(0).random((40, 6, 6)) < 0.5)
    found = VotePatterns.of_masks(masks)
    np.testing.assert_array_equal(found.votes[:, found.of], np.array(masks).reshape(40, -1))


@given(MASK)
def test_distances_are_those_of_the_definition(mask):
    places = list(itertools.product(*map(range, mask.shape)))
    found = np.zeros(mask.size, dtype=np.float16)
    if not mask.any():
        mask = ~mask
    signed_distance(mask, np.arange(mask.size, dtype=np.int32), found)
    H, W = mask.shape
    for n, (y, x) in enumerate(places):
        others = [np.hypot(y - a, x - b) for a, b in places if mask[a, b] != mask[y, x]]
        far = min(others) if others else min(y + 1, H - y, x + 1, W - x)
        assert found[n] == pytest.approx((far - 0.5) * (1 if mask[y, x] else -1), abs=2e-3)


RUNS = (
    (150, 3, 12, 9, 11, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 16, 3, 66),
    (146, 2, 3, 3, 11, 10, 10, 10, 10, 10, 11, 9, 11, 9, 10, 10, 10, 9, 11, 2, 3, 3, 17, 3, 18, 1, 48),
    (131, 1, 14, 2, 1, 4, 11, 10, 10, 12, 8, 13, 7, 13, 7, 12, 9, 11, 9, 10, 11, 9, 12, 2, 3, 3, 65),
    (147, 6, 13, 8, 11, 9, 10, 11, 9, 11, 9, 11, 9, 11, 10, 9, 12, 2, 1, 4, 17, 3, 67),
)
SENSITIVITY = (0.9321339367373543, 0.8511205037025337, 0.9684855692813638, 0.9028544069484935)
SPECIFICITY = (0.9999999999971544, 0.9890305129436213, 0.9556844545959696, 0.991354076337331)
POSTERIOR = {
    "0000": 9.344827808924486e-06, "0001": 0.009860158950000357, "0010": 0.00615511370090882,
    "0011": 0.8684172520648565, "0100": 0.004793668795568055, "0101": 0.836946292783267, "0110": 0.7614646530112527,
    "0111": 0.9997061245348772, "1010": 0.9999999999665472, "1100": 0.9999999999569875, "1111": 1.0,
}  # fmt: skip
"""Of SimpleITK 2.5's STAPLE, for four masks of 20 x 20 pixels: rates of the masks, and the posterior by votes."""


def test_staple_is_that_of_simpleitk():
    masks = [from_run_lengths(runs, 20, 20) for runs in RUNS]
    found = VotePatterns.of_masks(masks)
    w, p, q, _, converged = staple(found.votes, found.times, np.ones(4), 1000, 1e-10)
    assert converged
    np.testing.assert_allclose(p, SENSITIVITY, atol=1e-6)
    np.testing.assert_allclose(q, SPECIFICITY, atol=1e-6)
    by_votes = {"".join(str(int(v)) for v in votes): w[c] for c, votes in enumerate(found.votes.T)}
    for votes, posterior in POSTERIOR.items():
        assert by_votes[votes] == pytest.approx(posterior, abs=1e-6)
    result = cw.aggregate(cw.Masks.from_records(records(masks)), "staple")
    np.testing.assert_array_equal(result.mask(0).ravel(), (w > 0.5)[found.of])


@pytest.mark.parametrize("key", METHODS)
@given(CROWD, st.sampled_from([(-1, 1), (1, -1), (-1, -1)]))
def test_flips_and_turns_go_through(key, masks, way):
    turned = [mask.T[:: way[0], :: way[1]] for mask in masks]
    one, two = (cw.aggregate(cw.Masks.from_records(records(some)), key) for some in (masks, turned))
    np.testing.assert_array_equal(one.mask(0).T[:: way[0], :: way[1]], two.mask(0))
    np.testing.assert_allclose(one.probability(0).T[:: way[0], :: way[1]].astype(int), two.probability(0), atol=1)


@pytest.mark.parametrize("key", METHODS)
@given(CROWD, st.randoms(use_true_random=False))
def test_order_and_names_do_not_matter(key, masks, rng):
    rows = records(masks)
    other = [(f"z{item}", f"b{9 - int(who[1:])}", mask) for item, who, mask in rows]
    rng.shuffle(other)
    one, two = (cw.aggregate(cw.Masks.from_records(some), key) for some in (rows, other))
    np.testing.assert_array_equal(one.mask(0), two.mask(0))
    np.testing.assert_allclose(one.probability(0).astype(int), two.probability(0), atol=1)


@pytest.mark.parametrize("key", METHODS)
@given(arrays(bool, (5, 6)), st.integers(1, 4))
def test_masks_that_agree_are_the_consensus(key, mask, count):
    result = cw.aggregate(cw.Masks.from_records(records([mask] * count)), key)
    np.testing.assert_array_equal(result.mask(0), mask)


@given(CROWD)
def test_the_majority_is_that_of_the_definition(masks):
    result = cw.aggregate(cw.Masks.from_records(records(masks)), "mask-majority")
    share = np.mean(masks, axis=0)
    np.testing.assert_array_equal(result.mask(0), share > 0.5)
    np.testing.assert_allclose(result.probability(0) / 255.0, share, atol=0.002)


def test_in_simulation_it_is_ahead_and_finds_offsets_and_scatter():
    crowd = cw.simulate.masks(50, random_state=0)
    scores = {key: cw.aggregate(crowd.answers, key).score(crowd.truth) for key in METHODS}
    assert scores["signed-distance"] > max(scores["mask-majority"], scores["staple"]) + 0.005
    found = cw.aggregate(crowd.answers)
    true = crowd.parameters["offset"]
    assert np.corrcoef(found.offset, true)[0, 1] > 0.98
    assert np.corrcoef(found.scatter, crowd.parameters["scatter"])[0, 1] > 0.8
    kinds = {f.kind: set(f.annotators) for f in MaskRules().findings(
        {name: found.to_frame(name, kind="dict") for name in ("items", "annotators")}
    )}  # fmt: skip
    assert f"a{true.argmax()}" in kinds["large"] and f"a{true.argmin()}" in kinds["small"]
    assert not kinds["large"] & kinds["small"] and "inexact" in kinds


def test_one_who_draws_too_large_is_corrected_where_alone():
    y, x = np.mgrid[:60, :60] - 30.0
    far = np.hypot(y, x)
    rows = []
    for n in range(6):
        rows += [(n, f"p{m}", far < 15 + n) for m in range(3)] + [(n, "large", far < 19 + n)]
    table = cw.Masks.from_records([*rows, (6, "large", far < 24)])
    found = cw.aggregate(table)
    assert dice(found.mask(6), far < 20) > 0.95 > 0.85 > dice(far < 24, far < 20)
    np.testing.assert_allclose(found.offset - found.offset.min(), 4.0 * (table.annotators == "large"), atol=0.3)


@pytest.mark.parametrize("crowd", ["thin", "whole", "large", "noise"])
def test_a_few_careless_annotators_do_not_make_it_worse_than_the_majority(crowd):
    rng = np.random.default_rng(0)
    far = np.hypot(*(np.mgrid[:60, :60] - 30.0))
    rows, truth = [], {}
    for n in range(8):
        for m in range(7):
            mask, few = far < 12 + n % 4 + rng.normal(), m < 2
            if crowd == "thin":  # lines of one pixel, with gaps
                truth[n] = np.eye(60, k=n, dtype=bool)
                mask = truth[n] & (rng.random((60, 60)) < 0.8)
            else:
                truth[n] = far < 12 + n % 4
            if crowd == "whole" and few:
                mask = np.ones_like(mask)
            if crowd == "large" and few:
                mask = far < 20 + n % 4 + rng.normal()
            if crowd == "noise" and few:
                mask = mask ^ (rng.random(mask.shape) < 0.25)
            rows.append((n, f"p{m}", mask))
    table = cw.Masks.from_records(rows)
    dices = {key: cw.aggregate(table, key).score(truth) for key in ("mask-majority", "signed-distance")}
    assert dices["signed-distance"] > dices["mask-majority"] - 0.005


def test_nothing_there_and_all_there():
    none, all_ = np.zeros((5, 5), dtype=bool), np.ones((5, 5), dtype=bool)
    disc = np.hypot(*(np.mgrid[:5, :5] - 2.0)) < 2
    found = cw.aggregate(cw.Masks.from_records(records([none, none, disc])))
    assert not found.mask(0).any() and found.score({"i": none}) == 1.0
    found = cw.aggregate(cw.Masks.from_records(records([none, disc, disc])))
    np.testing.assert_array_equal(found.mask(0), disc)
    assert cw.aggregate(cw.Masks.from_records(records([all_, all_, disc]))).mask(0).all()


def test_measures_are_those_of_their_definition():
    one, two = (np.zeros((12, 12), dtype=bool) for _ in range(2))
    one[2:8, 2:8], two[4:8, 2:8] = True, True
    result = cw.aggregate(cw.Masks.from_records([(n, "ann", one) for n in range(12)]), "mask-majority")
    scores = cw.metrics.mask_scores(result, [two] * 12)
    assert scores["dice"].value == pytest.approx(48 / 60) and scores["iou"].value == pytest.approx(24 / 36)

    def edge(mask):
        wide = np.pad(mask, 1)
        return [
            (y, x) for y, x in np.argwhere(mask)
            if not all(wide[y + 1 + a, x + 1 + b] for a, b in ((0, 1), (1, 0), (0, -1), (-1, 0)))
        ]  # fmt: skip

    a, b = edge(one), edge(two)
    every = [min(np.hypot(p[0] - q[0], p[1] - q[1]) for q in to) for of, to in ((a, b), (b, a)) for p in of]
    assert edge_distances(one, two) == pytest.approx((max(every), np.mean(every)))
    assert edge_distances(one, np.zeros_like(one)) == (pytest.approx(np.hypot(12, 12)),) * 2


def test_agreement_is_the_mean_dice_of_pairs():
    crowd = cw.simulate.masks(12, n_annotators=5, masks_per_item=3, size=32, random_state=0)
    found = MaskRules().agreement(crowd.answers, {})["dice"]
    pairs = [dice(*p) for n in range(12) for p in itertools.combinations(crowd.answers.of_item(n), 2)]
    assert found.value == pytest.approx(np.mean(pairs)) and found.low < found.value < found.high


def test_bad_masks_are_errors_of_ours(tmp_path):
    square = np.ones((3, 3))
    for rows, message in (
        ([("i", "ann", square), ("i", "bob", np.ones((3, 4)))], "differ in size: 3 x 3 and 3 x 4"),
        ([("i", "ann", square * 2)], "holds 2.0: expected 0 and 1"),
        ([("i", "ann", np.ones(3))], "rows and columns"),
        ([("i", "ann", square), ("i", "ann", square)], "duplicated mask"),
    ):
        with pytest.raises(InputError, match=message):
            cw.Masks.from_records(rows)
    columns = {"item": ["i"], "annotator": ["ann"], "mask": ["4 4"], "height": [3], "width": [3]}
    with pytest.raises(InputError, match=r"ann.* sum to 8: expected 3 x 3 = 9 pixels"):
        cw.Masks.from_frame(columns)
    with pytest.raises(InputError, match="add columns height and width"):
        cw.Masks.from_frame({name: columns[name] for name in ("item", "annotator", "mask")})
    with pytest.raises(InputError, match="is not a mask"):
        cw.Masks.from_frame(columns | {"mask": ["a cat!"]})
    with pytest.raises(ReadError, match="There is no file"):
        cw.Masks.from_frame(columns | {"mask": [str(tmp_path / "gone.npy")]})
    (tmp_path / "text.png").write_text("no picture", encoding="utf-8")
    with pytest.raises(ReadError, match="could not be read as a mask"):
        cw.Masks.from_frame(columns | {"mask": [str(tmp_path / "text.png")]})
    with pytest.raises(ColumnError, match="mask"):
        cw.Masks.from_frame({"item": ["i"], "annotator": ["ann"]})
    table = cw.Masks.from_records([("i", "ann", square)])
    with pytest.raises(InputError, match=r"3 x 4 pixels: expected 3 x 3"):
        table.with_truth({"i": np.ones((3, 4))})
    with pytest.raises(InputError, match="None of the 1 items"):
        table.with_truth({"j": square})


def test_files_beside_a_table(tmp_path):
    from PIL import Image

    mask = np.zeros((6, 8), dtype=bool)
    mask[2:5, 3:6] = True
    np.save(tmp_path / "one.npy", mask)
    Image.fromarray(mask.astype(np.uint8) * 255).save(tmp_path / "two.png")
    pl.DataFrame({"item": ["i"] * 2, "annotator": ["ann", "bob"], "mask": ["one.npy", "two.png"]}).write_csv(
        tmp_path / "labels.csv"
    )
    pl.DataFrame({"item": ["i"], "mask": ["two.png"]}).write_csv(tmp_path / "truth.csv")
    table = cw.read_masks(tmp_path / "labels.csv", truth_path=tmp_path / "truth.csv")
    for found in (*table.of_item(0), table.true_mask(0)):
        np.testing.assert_array_equal(found, mask)
    Image.fromarray(np.array([[0, 1], [2, 2]], dtype=np.uint8)).save(tmp_path / "two.png")
    with pytest.raises(InputError, match="holds 2: expected 0 and 1 alone"):
        cw.read_masks(tmp_path / "labels.csv")


def test_categories_are_items_of_their_own():
    frame = {
        "item": ["i", "i", "j"], "annotator": ["ann"] * 3, "category": ["cat", "dog", "cat"], "mask": ["1 3"] * 3,
        "height": [2] * 3, "width": [2] * 3,
    }  # fmt: skip
    assert cw.Masks.from_frame(frame).items.tolist() == ["i [cat]", "i [dog]", "j [cat]"]


def test_a_saved_result_and_a_table_come_back(tmp_path):
    crowd = cw.simulate.masks(8, size=32, random_state=1)
    result = cw.aggregate(crowd.answers)
    back = cw.MaskConsensus.load(result.save(tmp_path / "kept"))
    again = cw.Masks.from_frame(crowd.answers.to_frame("polars"))
    for n in range(8):
        np.testing.assert_array_equal(back.mask(n), result.mask(n))
        np.testing.assert_array_equal(back.probability(n), result.probability(n))
        np.testing.assert_array_equal(again.true_mask(n), crowd.answers.true_mask(n))
    assert back.score(crowd.truth) == result.score(crowd.truth)


def test_the_command_line_takes_masks(tmp_path):
    assert run("simulate", "masks", "--set", "n_items=12", "--out", tmp_path / "crowd").exit_code == 0
    found = json.loads(run("aggregate", tmp_path / "crowd", "--json").stdout)
    assert found["answer_type"] == "masks"
    crowd = cw.simulate.masks(12, size=32, random_state=2)
    crowd.answers.with_truth(None).to_frame("polars").write_csv(tmp_path / "masks.csv")
    done = run("aggregate", tmp_path / "masks.csv", "--out", tmp_path / "out.csv")
    assert done.exit_code == 0, done.stderr
    out = pl.read_csv(tmp_path / "out.csv")
    first = from_run_lengths(out["mask"][0], 32, 32)
    np.testing.assert_array_equal(first, cw.aggregate(crowd.answers).mask(0))
    for command in ("report", "diagnose", "agreement", "describe"):
        more = ["--out", tmp_path / "page.html"] if command == "report" else []
        done = run(command, tmp_path / "masks.csv", *more)
        assert done.exit_code == 0, (command, done.stderr)


@pytest.mark.slow
def test_on_images_of_cells_it_is_above_the_majority(real):
    stored = np.load(real("masks_cells") / "masks.npz")
    rows, truth = [], {}
    for name in sorted({key.rsplit("/", 1)[0] for key in stored}):
        R, H, W = stored[f"{name}/shape"]
        masks = np.unpackbits(stored[f"{name}/crowd"], axis=2)[:, :, :W]
        rows += [(name, f"s{m}", mask) for m, mask in enumerate(masks)]
        truth[name] = np.unpackbits(stored[f"{name}/gold"], axis=1)[:, :W]
    table = cw.Masks.from_records(rows)
    ours, majority, peer = (cw.aggregate(table, key).score(truth) for key in METHODS)
    assert ours > 0.8775 > 0.8765 > majority > peer
