"""What all tables of answers have in common, tried on each of them."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from crowdwise.errors import ColumnError, CrowdwiseError, InputError, ParameterError, ReadError, SelectionError
from crowdwise.registry import ANSWER_TYPES

MADE = {
    "votes": cw.simulate.one_coin(12, n_annotators=4).votes,
    "ratings": cw.simulate.ratings(12, n_annotators=4).ratings,
    "comparisons": cw.simulate.comparisons(12, n_annotators=4, n_comparisons=80).comparisons,
    "rankings": cw.simulate.rankings(12, n_annotators=4, n_rankings=40).rankings,
    "similarities": cw.simulate.similarities(12, n_annotators=4, pairs_per_item=8).answers,
    "label-sets": cw.simulate.label_sets(12, n_labels=3, n_annotators=4).answers,
    "tags": cw.simulate.tag_chain(12, n_annotators=4, length=(3, 5)).tags,
    "texts": cw.simulate.texts(12, n_annotators=4, texts_per_item=3).answers,
    "boxes": cw.simulate.boxes(12, n_annotators=4, annotators_per_item=3).answers,
    "masks": cw.simulate.masks(12, n_annotators=4, masks_per_item=3, size=24).answers,
    "spans": cw.simulate.spans(12, n_annotators=4, answers_per_item=3).answers,
}
EVERY = pytest.mark.parametrize("table", MADE.values(), ids=list(MADE))


def test_every_answer_type_has_a_table():
    assert MADE.keys() == ANSWER_TYPES.keys() - {"ordinal", "graph"}
    assert all(type(table) is ANSWER_TYPES[kind].load() and table.answer_type == kind for kind, table in MADE.items())


def weighted(table):
    """Whether the table has a column of weights: boxes and spans have none."""
    return any(column.name == "weight" for column in table.columns)


def columns(table):
    frame = table.to_frame("dict")
    return sorted(zip(*(np.asarray(column).tolist() for column in frame.values()), strict=True), key=str)


@EVERY
def test_the_length_is_the_number_of_items(table):
    assert len(table) == table.n_items == len(table.items) == 12 and table.shape == (12,)
    assert table.n_annotators == len(table.annotators) == 4
    assert table.n_answers == len(table.weights) == len(table.annotator) and (table.weights == 1.0).all()
    facts = table.describe()
    assert facts["annotators"] == 4 and facts["weighted"] is False and facts["timestamps"] is False


@EVERY
def test_an_index_selects_items(table):
    mask = np.arange(12) < 5
    names = table.items[:5].tolist()
    for index in (slice(5), range(5), [0, 1, 2, 3, 4], np.arange(5), mask, mask.tolist(), (slice(5), ...)):
        part = table[index]
        assert part.items.tolist() == names and columns(part) == columns(table[:5])
    assert len(table[3]) == len(table[-1]) == 1 and table[-1].items[0] == table.items[11]
    assert len(table[[]]) == 0 and table[[]].n_answers == 0 and "0" in repr(table[[]])
    turned = table[::-1]
    assert turned.items.tolist() == table.items[::-1].tolist() and columns(turned[::-1]) == columns(table)
    assert table[6:][2:].items.tolist() == table[8:].items.tolist() and columns(table[6:][2:]) == columns(table[8:])


@EVERY
@pytest.mark.parametrize(
    "index", [12, -13, [0, 12], "first", 1.5, np.ones(11, dtype=bool), [[0, 1]], (0, 1), (0, 1, 2), (slice(3), [0, 1])]
)
def test_an_index_that_chooses_no_items_is_an_error_of_ours(table, index):
    with pytest.raises(SelectionError, match=type(table).__name__) as raised:
        table[index]
    assert isinstance(raised.value, CrowdwiseError) and isinstance(raised.value, IndexError)


@pytest.mark.parametrize("kind", ["comparisons", "rankings", "similarities"])
def test_answers_about_several_items_know_each_once(kind):
    with pytest.raises(SelectionError, match="different items"):
        MADE[kind][[0, 1, 0]]


@EVERY
def test_going_through_the_items_ends(table):
    assert [part.items.tolist() for part in table] == [[name] for name in table.items.tolist()]


@EVERY
def test_a_mask_selects_rows(table):
    mask = table.annotator == 1
    assert columns(table.select(mask)) == columns(table.only([table.annotators[1]])) or table.answer_type == "tags"
    assert table.select(mask).n_answers == int(mask.sum()) and len(table.select(mask)) == 12
    for wrong in (mask[1:], mask.astype(int), np.flatnonzero(mask)):
        with pytest.raises(InputError, match=f"the {table.n_answers} {table._rows}"):
            table.select(wrong)


@EVERY
def test_annotators_are_chosen_by_name(table):
    some = table.annotators[[0, 2]].tolist()
    kept, left = table.only(some), table.without(some)
    assert kept.annotators.tolist() == some and left.annotators.tolist() == table.annotators[[1, 3]].tolist()
    assert kept.n_answers + left.n_answers == table.n_answers and len(kept) == len(left) == 12
    with pytest.raises(InputError, match=f"No annotator named 'eve': the {table._rows} have"):
        table.only(["eve"])


@EVERY
def test_a_table_is_frozen_and_so_is_a_copy(table):
    for twin in (table, pickle.loads(pickle.dumps(table))):
        assert not any(value.flags.writeable for value in vars(twin).values() if isinstance(value, np.ndarray))
        assert columns(twin) == columns(table)


@EVERY
def test_out_and_in_again(table, tmp_path):
    again = type(table).from_frame(table.to_frame())
    assert columns(again) == columns(table)
    table.to_frame("polars").write_parquet(tmp_path / "table.parquet")
    assert columns(type(table).read(tmp_path / "table.parquet")) == columns(table)
    heavy = table.to_frame("polars").with_columns(pl.lit(2.0).alias("weight"), pl.lit(7.0).alias("timestamp"))
    made = type(table).from_frame(heavy)
    assert (made.timestamp == 7.0).all() and (made[:6].timestamp == 7.0).all()
    weight = 2.0 if weighted(table) else 1.0
    assert (made.weights == weight).all() and made.describe()["weighted"] == weighted(table)
    assert (made.only([table.annotators[0]]).weights == weight).all()


@EVERY
def test_signatures_come_from_the_columns(table):
    kind = type(table)
    declared = [column.name for column in kind.columns]
    for method in (kind.from_frame, kind.read):
        parameters = list(inspect.signature(method).parameters)
        assert parameters[1 : len(declared) + 1] == declared
        assert all(option.name in parameters for option in kind.options)
        assert all(name in str(method.__doc__) for name in parameters)
    codes = inspect.signature(kind.from_codes if kind is not cw.Tags else kind.from_votes).parameters
    assert all(name in codes for name in ("weight", "timestamp", "truth", "kind")) or kind is cw.Tags
    reader = getattr(cw, f"read_{table.answer_type.replace('-', '_')}")
    assert inspect.signature(reader) == inspect.signature(kind.read) and reader.__module__ == kind.__module__


@EVERY
def test_an_unknown_keyword_is_named(table):
    with pytest.raises(ParameterError, match=r"has no option 'on_mising': it has .* Did you mean 'on_missing'\?"):
        type(table).from_frame(table.to_frame(), on_mising="drop")
    with pytest.raises(ParameterError, match=r"on_missing='guess': expected 'error'(, 'drop' or 'fill'| or 'drop')"):
        type(table).from_frame(table.to_frame(), on_missing="guess")


@EVERY
def test_errors_use_the_words_of_the_table(table, tmp_path):
    kind, frame, rows = type(table), table.to_frame("polars"), table._rows
    with pytest.raises(InputError, match=f"No {rows}: the table has 0 rows"):
        kind.from_frame(frame[:0])
    frame[:0].write_csv(tmp_path / "none.csv")
    with pytest.raises(ReadError, match=f"has no {rows}"):
        kind.read(tmp_path / "none.csv")
    with pytest.raises(InputError, match=f"No {rows}: the records are empty"):
        kind.from_records([])
    with pytest.raises(ColumnError, match="No column found for: "):
        kind.from_frame(frame.rename({name: f"x{n}" for n, name in enumerate(frame.columns)}))


@pytest.mark.parametrize("table", [table for table in MADE.values() if weighted(table)], ids=lambda t: t.answer_type)
def test_weights_are_positive(table):
    with pytest.raises(InputError) as raised:
        type(table).from_frame(table.to_frame("polars").with_columns(pl.lit(-1.0).alias("weight")))
    assert "Weights must be positive numbers: found -1.0 in row 0" in str(raised.value)
    if table._rows not in ("votes", "tags"):
        assert "vote" not in str(raised.value)


TRUE = {
    "votes": ({"item": [0, 1], "label": [1, 0]}, {0: 1, 1: 0}),
    "ratings": ({"item": [0, 1], "value": ["1.5", None]}, {0: 1.5}),
    "comparisons": ({"item": [0, 1], "value": [1.5, -2]}, {0: 1.5, 1: -2.0}),
    "rankings": ({"item": [0, 1], "value": [1.5, -2]}, {0: 1.5, 1: -2.0}),
    "similarities": ({"item": [0, 1], "label": ["x", "y"]}, {0: "x", 1: "y"}),
    "label-sets": ({"item": [0, 1], "labels": ["l0|l2", None]}, {0: ["l0", "l2"], 1: []}),
    "tags": ({"sequence": [0, 0], "position": [0, 1], "tag": ["t1", "t0"]}, {"0:0": "t1", "0:1": "t0"}),
}


@pytest.mark.parametrize("kind", list(TRUE))
def test_every_table_reads_its_truth(kind, tmp_path):
    given, expected = TRUE[kind]
    table, path = MADE[kind], tmp_path / "truth.csv"
    pl.DataFrame(given, strict=False).write_csv(path)
    assert type(table).read_truth(path) == expected
    if kind != "comparisons":  # theirs has an outcome for each row
        known = table.with_truth(expected)
        assert known.truth is not None and known.with_truth(None).truth is None
        name = "tokens_with_truth" if kind == "tags" else "items_with_truth"
        assert known.describe()[name] == len(expected)
    pl.DataFrame({"item": [0]}).write_csv(path)
    with pytest.raises(ColumnError, match="A truth table needs"):
        type(table).read_truth(path)
    with pytest.raises(ParameterError, match="read_truth has no option 'lable'"):
        type(table).read_truth(path, lable="x")


def test_answers_go_in_by_codes():
    sets = cw.LabelSets.from_codes([1, 0], [0, 0], [0, 2, 2], [1, 0], items="ab", annotators="m", labels=["x", "y"])
    assert sets.to_frame("dict")["labels"].tolist() == ["", "x|y"] and sets.items.tolist() == ["a", "b"]
    for ends in ([0, 1, 1], [1, 2, 2], [0, 3, 2]):
        with pytest.raises(InputError, match="set_indptr must rise"):
            cw.LabelSets.from_codes([1, 0], [0, 0], ends, [1, 0], items="ab", annotators="m", labels=["x", "y"])
    scores = {"soup": 1.0, "rice": 0.5}
    ballots = cw.Rankings.from_records([("ann", "q", ["soup", "rice", "fish"])]).with_truth(scores)
    assert np.allclose(ballots.truth, [np.nan, 0.5, 1.0], equal_nan=True) and ballots[[2]].truth.tolist() == [1.0]


def test_a_second_index_is_not_dropped():
    answers = MADE["label-sets"]
    with pytest.raises(SelectionError, match="LabelSets are indexed by item alone and were asked for"):
        answers[[0, 1, 2], [0]]
    assert answers[[4, 2, 7]][[1]].items.tolist() == [2]


@EVERY
def test_a_table_without_rows_can_still_be_looked_at(table):
    nothing = np.zeros(table.n_answers, dtype=bool)
    for left in (table[[]], table.select(nothing), table.only([]), table.without(table.annotators.tolist())):
        assert left.n_answers == 0 and left.describe()["annotators"] == left.n_annotators and "0" in repr(left)
        assert left.to_frame("dict").keys() <= {*table.to_frame("dict"), "truth"}
    if isinstance(table, cw.Rankings):
        with pytest.raises(InputError, match="No comparisons"):
            table[[]].comparisons()


@EVERY
def test_errors_speak_of_the_answers_at_hand(table, tmp_path):
    """Whatever is odd, a table of ratings says ratings, never votes."""
    Table = type(table)
    (tmp_path / "a.xlsx").write_text("x")
    (tmp_path / "a.csv").write_text("a,b\n")
    attempts = [
        lambda: Table.from_frame("answers.csv"), lambda: Table.from_frame(3), lambda: Table.from_frame({}),
        lambda: Table.from_records([]), lambda: Table.from_records([(1,)]), lambda: Table.read(tmp_path / "a.xlsx"),
        lambda: Table.read(tmp_path / "a.csv"), lambda: table.select([True]), lambda: table.only(["eve"]),
        lambda: table.with_truth({"eve": 1}), lambda: table.with_truth(3), lambda: table[99], lambda: table[0, 1],
    ]  # fmt: skip
    for attempt in attempts:
        with pytest.raises(CrowdwiseError) as raised:
            attempt()
        assert isinstance(table, (cw.Votes, cw.Tags)) or "vote" not in str(raised.value).lower()


@pytest.mark.parametrize("kind", ["votes", "similarities", "label-sets", "tags"])
def test_truth_that_names_no_class_is_an_error_of_ours(kind):
    table = MADE[kind]
    name = table.votes.items[0] if kind == "tags" else table.items[0]
    for truth in ({name: [["x"]]}, {name: object()} if kind == "label-sets" else {name: {}}, 3):
        with pytest.raises(CrowdwiseError, match=r"truth|true"):
            table.with_truth(truth)
