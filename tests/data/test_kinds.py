"""The guess of what kind of answers a table holds: clear cases, and caution everywhere else."""

from __future__ import annotations

import polars as pl
import pytest

import crowdwise as cw
from crowdwise import registry
from crowdwise.data.files import TableFile
from crowdwise.data.guess import glance, guess
from crowdwise.errors import InputWarning

ITEM = ["item", "annotator"]


@pytest.mark.parametrize(
    ("columns", "rows", "kind"),
    [
        (["item_a", "item_b", "worker", "same"], {}, "similarities"),
        (["Left", "Right", "rater", "label"], {"label": ["same", "different"]}, "similarities"),
        (["item1", "item2", "worker", "winner"], {}, "comparisons"),
        (["model_a", "model_b", "judge", "winner"], {}, "comparisons"),
        (["left", "right", "judge", "label"], {"label": ["left", "tie"]}, "comparisons"),
        (["prompt", "chosen", "rejected"], {}, "comparisons"),
        ([*ITEM, "rank"], {}, "rankings"),
        (["annotator", "ranking"], {}, "rankings"),
        (["sentence", "token", "worker", "tag"], {}, "tags"),
        (["sentence", "position", "worker", "label"], {"label": ["O", "B-PER", "I-PER"]}, "tags"),
        ([*ITEM, "labels"], {"labels": ["a|b"]}, "label-sets"),
        ([*ITEM, "label"], {"label": [["a"], []]}, "label-sets"),
        ([*ITEM, "rating"], {"rating": ["1.5", "2", None]}, "ratings"),
        ([*ITEM, "score"], {"score": [0.25, 3.0]}, "ratings"),
        ([*ITEM, "score"], {"score": [7, 93]}, "ratings"),
        ([*ITEM, "grade"], {"grade": [7, 93]}, "ratings"),
        ([*ITEM, "label"], {"label": ["['a', 'b']", '["a"]', None]}, "label-sets"),
        ([*ITEM, "labels", "rating"], {"labels": ["a|b"], "rating": [1]}, "label-sets"),
        ([*ITEM, "annotation_id", "score"], {"annotation_id": list(range(20)), "score": [0.5] * 20}, "ratings"),
    ],
)
def test_clear_cases(columns, rows, kind):
    found = guess(columns, rows)
    assert found.kind == kind
    assert found.reason and found.kind in registry.ANSWER_TYPES


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        ([*ITEM, "label"], {"label": ["cat", "dog"]}),
        ([*ITEM, "label"], {"label": ["1", "5", "3"]}),  # whole numbers may be classes
        ([*ITEM, "rating"], {"rating": [1, 2, 3]}),
        ([*ITEM, "label"], {"label": ["1.5", "good"]}),
        ([*ITEM, "label"], {"label": ["a|b"]}),  # a class may be called so
        ([*ITEM, "label", "position"], {"label": ["left", "right"]}),
        ([*ITEM, "label"], {"label": ["yes", "no"]}),
        (["item", "ann", "bob", "cem"], {"ann": ["x"]}),
        (["document", "worker", "label"], {"label": ["O", "A"]}),
        (["left", "right", "worker", "label"], {"label": ["yes", "no"]}),
        (["first", "second", "annotator", "label"], {"label": ["cat"]}),
        ([*ITEM, "score", "label"], {"score": [0.5, 0.9], "label": ["cat", "dog"]}),  # a confidence, not a rating
        ([*ITEM, "rating", "label"], {"rating": [0.5, 0.9], "label": [0, 1]}),
        ([*ITEM, "label", "categories"], {"label": ["cat"], "categories": ["pets"]}),
        ([*ITEM, "rank", "label"], {"rank": [1, 2], "label": ["relevant", "not"]}),
        ([*ITEM, "chosen", "rejected", "label"], {"label": ["agree"]}),
        ([], {}),
    ],
)
def test_all_else_is_classes(columns, rows):
    assert guess(columns, rows).kind == "votes"


@pytest.mark.parametrize("columns", [["item", "annotator", "score", "mood"], ["item", "annotator", "mood", "labels"]])
def test_a_label_column_that_is_named_decides(columns):
    rows = {"score": [0.5], "mood": ["good"], "labels": ["a|b"]}
    assert guess(columns, rows).kind != "votes" == guess(columns, rows, {"label": "mood"}).kind
    assert guess([*ITEM, "labels"], {"labels": ["a|b"]}, {"label": "labels"}).kind == "label-sets"


def test_what_lies_beside_labels_is_a_doubt():
    found = guess([*ITEM, "rank", "label"], {"label": ["relevant", "not"]})
    assert (found.kind, found.doubt) == ("votes", "rankings") and "'rank'" in found.reason
    assert not guess([*ITEM, "rank", "label"], {"label": ["relevant"]}, {"label": "label"}).doubt


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_a_glance_at_files(tmp_path, ending):
    path = tmp_path / f"table.{ending}"
    table = pl.DataFrame({"item_a": [1, 2], "item_b": [3, 4], "worker": ["x", "y"], "same": [True, False]})
    if ending in ("csv", "tsv"):
        table.write_csv(path, separator="," if ending == "csv" else "\t")
    else:
        getattr(table, {"jsonl": "write_ndjson", "parquet": "write_parquet"}[ending])(path)
    head = glance(TableFile.of(path))
    assert head.columns == table.columns and head.height == 2
    path.write_bytes(b"\xff\xfe\x00\x01")
    assert glance(TableFile.of(path)) is None or ending in ("csv", "tsv")


def test_every_kind_but_linked_has_a_reader():
    kinds = registry.ANSWER_TYPES.items()
    assert all(kind.load().answer_type == name for name, kind in kinds if name not in ("ordinal", "graph"))


@pytest.mark.parametrize("labels", [[str(7 * n) for n in range(30)], list(range(30)), [*range(0, 300, 10), "x"]])
def test_whole_numbers_are_classes_as_far_as_a_few_rows_say(labels):
    assert guess([*ITEM, "label"], {"label": labels}).kind == "votes"


def test_offsets_with_a_wrong_row_are_offsets() -> None:
    """The row is an error then, and not one of votes by the label."""
    columns = [*ITEM, "label", "start", "end"]
    rows = {"label": ["PER"] * 4, "start": [0, 5, 9, 3], "end": [4, 9, 2, 3]}
    assert guess(columns, rows).kind == "spans"
    times = {"start": [1.7e9, 1.7e9], "end": [1.8e9, 1.8e9], "label": ["a", "b"]}
    assert guess(columns, times).kind == guess(columns, {**rows, "start": ["a"] * 4}).kind == "votes"


def test_several_labels_in_a_cell_are_pointed_out_and_read_as_sets() -> None:
    labels = ["cat", "dog", "cat|dog", "dog", "cat|dog", "cat"]
    votes = {"item": [1, 1, 2, 2, 3, 3], "annotator": ["ann", "bob"] * 3, "label": labels}
    with pytest.warns(InputWarning, match=r"may be label-sets, since 'label' holds several labels in a cell"):
        assert len(cw.aggregate(votes).classes) == 3
    sets = cw.aggregate(votes, answer_type="label-sets")
    assert sets.labels.tolist() == ["cat", "dog"]
    plain = {**votes, "label": ["Rome, GA", "Paris, TX", "Rome, GA", "Paris, TX", "1,5", "2,5"]}
    assert guess(list(plain), plain).doubt == ""
