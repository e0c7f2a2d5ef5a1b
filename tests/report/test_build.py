"""The dict of a report: plain, complete, the same every time; and its pictures and words."""

from __future__ import annotations

import json
import struct
import zlib
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from crowdwise.core.leave_one_out import LeaveOneOut
from crowdwise.errors import InputError, ParameterError
from crowdwise.report import build, votes
from crowdwise.report.build import choose_attributes
from crowdwise.report.votes import histogram, layout, png, review, thumbnail
from crowdwise.trust.flags import Finding, FindingKind
from crowdwise.trust.wording import folded

KEYS = [
    "format", "answer_type", "says", "title", "date", "version", "level", "summary", "findings", "data", "truth",
    "proof", "more", "annotators", "matrix", "confusion", "groups", "items", "pairs", "fairness", "agreement",
    "candidates", "method", "notes", "reading_notes",
]  # fmt: skip


@pytest.fixture(scope="module")
def crowd():
    return cw.simulate.hammer_spammer(
        300, n_annotators=12, n_classes=3, accuracy=0.75, share=0.7, votes_per_item=8, random_state=3
    )


@pytest.fixture(scope="module")
def report(crowd):
    return cw.build_report(crowd.votes, cw.aggregate(crowd.votes, "dawid-skene"), title="Three", all_items=True)


def test_it_is_strict_json_with_every_key(report):
    assert [key for key in report if key != "item_table"] == KEYS
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_every_key_is_explained():
    assert [key for key in KEYS if f"``{key}``" not in build.__doc__ + votes.__doc__] == []


def test_the_votes_are_judged_once(monkeypatch, crowd):
    """One pass of leave-one-out evidence serves every part of a report; without the consensus' own votes, too."""
    from dataclasses import replace

    made, real = [], LeaveOneOut.of.__func__

    def counted(cls, *args, **kwargs):
        made.append(1)
        return real(cls, *args, **kwargs)

    monkeypatch.setattr(LeaveOneOut, "of", classmethod(counted))
    groups = {n: "even" if n % 2 else "odd" for n in crowd.votes.items.tolist()}
    people = dict(zip(crowd.votes.annotators.tolist(), ["young", "old"] * 6, strict=True))
    gold = {int(n): int(crowd.truth[n]) for n in range(50)}
    own = cw.aggregate(crowd.votes, "majority")
    for consensus in (own, replace(own, votes=None)):
        for known in (None, gold):
            made.clear()
            cw.build_report(crowd.votes, consensus, gold=known, attributes={"parity": groups}, demographics=people)
            assert len(made) <= 1
    assert len(made) == 1


def test_the_numbers_are_those_of_the_tables(crowd, report):
    from crowdwise.trust.annotators import assess_annotators

    consensus = cw.aggregate(crowd.votes, "dawid-skene")
    table = assess_annotators(crowd.votes, consensus).to_frame(kind="dict")
    rows = {row["annotator"]: row for row in report["annotators"]}
    for m, name in enumerate(table["annotator"].tolist()):
        assert rows[name]["accuracy"] == pytest.approx(table["accuracy"][m], abs=1e-4)
        assert rows[name]["votes"] == table["votes"][m]
    spammers = crowd.votes.annotators[crowd.parameters["spammers"]].tolist()
    assert spammers and sorted(n for n, row in rows.items() if row["verdict"] == "drop") == sorted(spammers)
    assert [row["verdict"] for row in report["annotators"]] == sorted(
        (row["verdict"] for row in report["annotators"]), key=["drop", "look", "unclear", "keep"].index
    )
    assert report["summary"]["annotators"]["drop"] == len(spammers)
    assert report["data"]["votes"] == crowd.votes.n_votes
    assert sum(b["count"] for b in report["data"]["histograms"]["votes_per_annotator"]) == 12
    assert report["truth"]["accuracy"]["value"] == pytest.approx(consensus.score(crowd.truth), abs=1e-4)
    assert report["method"]["key"] == "dawid-skene"
    assert report["method"]["notes"] == []
    assert len(report["method"]["trace"]) > 1


def test_measured_accuracy_is_that_of_the_truth(crowd, report):
    votes = crowd.votes
    for row in report["annotators"]:
        mine = votes.annotators[votes.annotator] == row["annotator"]
        right = (votes.label == crowd.truth[votes.item])[mine].mean()
        assert row["measured"] == pytest.approx(right, abs=1e-4)
        assert row["measured_on"] == mine.sum()


def test_confusions_are_shares_of_rows(report):
    assert report["confusion"]["classes"] == ["0", "1", "2"]
    for matrix in [report["confusion"]["crowd"], *report["confusion"]["annotators"].values()]:
        assert all(98 <= sum(row) <= 102 for row in matrix["share"])


def test_items_have_votes_and_probabilities(crowd, report):
    assert report["items"]
    assert len(report["items"]) <= report["summary"]["review"]
    names = [str(n) for n in crowd.votes.items.tolist()]
    for row in report["items"]:
        n = names.index(row["item"])
        said = crowd.votes.label[crowd.votes.indptr[n] : crowd.votes.indptr[n + 1]]
        assert sum(v["votes"] for v in row["votes"]) == len(said)
        assert {v["label"]: v["votes"] for v in row["votes"]} == {
            str(k): int((said == k).sum()) for k in set(said.tolist())
        }
        assert sum(p["p"] for p in row["posterior"]) == pytest.approx(1.0, abs=0.01)
        assert row["truth"] == str(crowd.truth[n])
    table = report["item_table"]
    assert {len(column) for column in table.values()} == {300}
    assert sum(x == "yes" for x in table["suggested"]) == report["summary"]["review"]


def test_labels_that_are_not_the_majoritys_come_with_how_right_they_are(crowd):
    consensus = cw.aggregate(crowd.votes)
    found = cw.build_report(crowd.votes, consensus)["summary"]["majority"]
    shares, q = crowd.votes.shares(), consensus.corrected_posterior
    at = np.flatnonzero(shares[range(300), consensus.label_codes] < shares.max(axis=1) - 1e-9)
    assert found["differs"] == len(at) > 0
    assert found["right"] == pytest.approx(q[at, consensus.label_codes[at]].mean(), abs=1e-3)
    assert found["majority_right"] == pytest.approx(q[at, shares[at].argmax(axis=1)].mean(), abs=1e-3)
    plain = cw.build_report(crowd.votes, cw.aggregate(crowd.votes, "majority"))["summary"]["majority"]
    assert plain["differs"] == 0 and plain["right"] is None


def test_the_notes_of_a_consensus_are_shown(crowd):
    consensus = cw.aggregate(crowd.votes, "majority")
    object.__setattr__(consensus, "notes", ["Chosen because the votes say so."])
    report = cw.build_report(crowd.votes, consensus)
    assert report["method"]["notes"] == ["Chosen because the votes say so."]
    assert report["method"]["trace"] == []


def test_gold_judges_and_is_left_out_of_the_measure(crowd):
    known = {int(n): int(crowd.truth[n]) for n in range(100)}
    report = cw.build_report(crowd.votes, gold=known)
    assert report["truth"]["accuracy"]["n"] == 200


@pytest.mark.parametrize("method", ["majority", "one-coin", "wawa", "glad"])
def test_methods_without_confusions_have_a_whole_report(crowd, method):
    report = cw.build_report(crowd.votes, cw.aggregate(crowd.votes, method))
    assert report["confusion"]["crowd"] is not None
    assert len(report["annotators"]) == 12


@pytest.mark.parametrize(
    "records",
    [
        [("only", "ann", "yes"), ("only", "bob", "no")],
        [("a", "ann", "yes"), ("b", "ann", "no"), ("c", "ann", "no")],
        [("a", "ann", "yes"), ("a", "bob", "yes"), ("b", "ann", "no"), ("b", "bob", "yes")],
    ],
    ids=["one item", "one annotator", "two annotators"],
)
def test_tiny_crowds(records):
    votes = cw.Votes.from_records(records)
    report = cw.build_report(votes, cw.aggregate(votes, "majority"))
    json.dumps(report, allow_nan=False)
    assert report["summary"]["headline"]
    assert report["notes"]


def test_a_small_crowd_has_no_empty_section_and_pairs_of_classes_stay_pairs():
    crowd = cw.simulate.hammer_spammer(30, n_annotators=5, n_classes=6, votes_per_item=5, random_state=0)
    assert cw.build_report(crowd.votes)["proof"] is None
    numbers = {"rate": 0.3, "share": 0.3, "expected": 0.1, "items": 1.0}
    pairs = [Finding(FindingKind.PAIR, classes=(f"c{k}", f"d{k}"), numbers=numbers) for k in range(10)]
    assert folded(pairs)[-1] == "Also: c8 / d8 and c9 / d9."


def test_a_single_class_is_shown_with_what_there_is():
    votes = cw.Votes.from_records([("a", "ann", "yes"), ("a", "bob", "yes")])
    with pytest.raises(InputError):
        cw.build_report(votes)  # the default method has nothing to decide, and says so


def test_what_is_not_votes_is_refused():
    with pytest.raises(InputError, match="No votes: the table has 0 rows and 0 columns"):
        cw.build_report({})


# -------------------------------------------------------------------- a data set


@pytest.fixture(scope="module")
def folder(tmp_path_factory, crowd):
    path = tmp_path_factory.mktemp("data") / "animals"
    crowd.save(path)
    names = crowd.votes.items.tolist()
    pl.DataFrame(
        {
            "item": names,
            "text": [f"the text of {n}" for n in names],
            "source": ["web" if n % 2 else "book" for n in names],
            "split": ["train"] * len(names),
        }
    ).write_csv(path / "items.csv")
    pl.DataFrame(
        {
            "annotator": crowd.votes.annotators.tolist(),
            "age": ["young", "old"] * 6,
        }
    ).write_csv(path / "annotators.csv")
    (path / "images").mkdir()
    for n in names:
        (path / "images" / f"{n}.png").write_bytes(png(np.full((4, 4), n % 256, dtype=np.uint8)))
    return path


def test_a_dataset_brings_texts_images_attributes_and_demographics(folder):
    data = cw.read_dataset(folder)
    assert data.texts[0] == "the text of 0"
    assert list(data.attributes) == ["source"]
    assert set(data.attributes["source"].values()) == {"web", "book"}
    assert data.images[7].name == "7.png"
    report = cw.build_report(data, cw.aggregate(data.votes, "dawid-skene"))
    assert report["title"] == "animals"
    assert all(row["text"] == f"the text of {row['item']}" for row in report["items"])
    assert all(row["image"].startswith("data:image/") for row in report["items"])
    fair = report["fairness"]
    assert [f["attribute"] for f in fair["items"]] == ["source"]
    assert len(fair["items"][0]["classes"]) == 3
    assert {row["group"] for row in fair["annotators"]["rows"]} == {"young", "old"}
    json.dumps(report, allow_nan=False)


def test_what_lacks_a_group_is_said_not_raised(crowd):
    report = cw.build_report(
        crowd.votes, cw.aggregate(crowd.votes, "majority"), attributes={"colour": {0: "red"}}, demographics={"a0": "x"}
    )
    assert report["fairness"]["items"] == []
    assert len(report["fairness"]["notes"]) == 2


def test_attributes_are_chosen_by_name():
    assert list(choose_attributes({"a": 1, "b": 2}, None)) == ["a", "b"]
    assert list(choose_attributes({"a": 1, "b": 2}, ["b"])) == ["b"]
    with pytest.raises(ParameterError, match="no attribute 'c' of items: the table of items has 'a', 'b'"):
        choose_attributes({"a": 1, "b": 2}, ["c"])


# -------------------------------------------------------------------- the pieces


def test_long_texts_are_cut(crowd):
    found = cw.diagnose(crowd.votes, cw.aggregate(crowd.votes, "dawid-skene"))
    rows = review(found, texts={n: "x" * 5000 for n in range(300)})
    assert all(len(row["text"]) == 600 and row["text"].endswith("…") for row in rows)


def test_an_array_becomes_a_png_that_can_be_read_back():
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    data = png(array)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (4, 3)
    at = data.index(b"IDAT")
    size = struct.unpack(">I", data[at - 4 : at])[0]
    lines = np.frombuffer(zlib.decompress(data[at + 4 : at + 4 + size]), dtype=np.uint8).reshape(3, 5)
    assert (lines[:, 1:] == array).all()


def test_pictures_of_every_kind(tmp_path):
    from PIL import Image

    assert thumbnail(np.zeros((8, 8))).startswith("data:image/png;base64,")
    assert thumbnail(np.zeros((500, 300, 3))).startswith("data:image/png;base64,")
    file = tmp_path / "large.png"
    Image.new("RGB", (900, 700), "red").save(file)
    small = thumbnail(file)
    assert small.startswith("data:image/jpeg;base64,")
    assert len(small) < 20_000
    (tmp_path / "broken.png").write_text("no picture")
    assert thumbnail(tmp_path / "broken.png") is None
    with pytest.raises(InputError, match="shape \\(3,\\)"):
        thumbnail(np.zeros(3))


def test_a_layout_is_the_same_every_time_and_stays_inside():
    members = [f"m{i}" for i in range(7)]
    links = [{"from": "m0", "to": "m3", "strength": 0.5}, {"from": "m0", "to": "elsewhere", "strength": 0.5}]
    one, two = layout(members, links), layout(members, links)
    assert one == two
    assert len(one["links"]) == 1
    assert all(0 < n["x"] < one["width"] and 0 < n["y"] < one["height"] for n in one["nodes"])
    assert len({(n["x"], n["y"]) for n in one["nodes"]}) == 7


def test_histograms_count_everything():
    rng = np.random.default_rng(0)
    for counts in (
        np.array([3]),
        np.arange(5),
        rng.integers(500, 600, 99),
        rng.integers(1, 5000, 999),
        np.array([0, 0]),
    ):
        bins = histogram(counts)
        assert sum(b["count"] for b in bins) == len(counts)
        assert len(bins) <= 15
        assert all(a["to"] + 1 == b["from"] for a, b in pairwise(bins))


def test_dataframes_files_and_folders_are_read_as_aggregate_reads_them(tmp_path):
    crowd = cw.simulate.hammer_spammer(200, n_annotators=10, share=0.8, votes_per_item=5, random_state=0)
    votes = crowd.votes.with_truth(None)
    frame = votes.to_frame("pandas")
    expected = cw.build_report(votes)
    votes.to_frame("polars").write_csv(tmp_path / "labels.csv")
    for source in (frame, votes.to_frame("polars"), tmp_path / "labels.csv"):
        report = cw.build_report(source)
        assert report["summary"] == expected["summary"]
        assert cw.diagnose(source).sentences() == cw.diagnose(votes).sentences()
    assert cw.write_report(frame, cw.aggregate(frame), tmp_path / "report.html").stat().st_size > 10_000
    crowd.save(tmp_path / "folder")
    assert cw.build_report(tmp_path / "folder")["title"] == "folder"
    ratings = cw.simulate.ratings(30, n_annotators=6, random_state=0).ratings
    assert cw.build_report(ratings.to_frame("pandas"))["answer_type"] == "ratings"
    assert len(cw.diagnose(ratings.to_frame("pandas")).verdicts) == 6


def test_a_printed_diagnosis_shows_its_findings():
    crowd = cw.simulate.hammer_spammer(400, n_annotators=12, share=0.8, votes_per_item=6, random_state=0)
    found = cw.diagnose(crowd.votes)
    first, *lines = str(found).splitlines()
    assert first == repr(found) and 0 < len(lines) <= len(found.findings)
    assert all(line.startswith("- ") for line in lines)
    assert all(str(name) in str(found) for name in found.names("spammer"))


def test_more_labels_are_worth_what_they_cost(report, crowd):
    more, n = report["more"], report["summary"]["review"]
    review, three, gold, every, _ = more["rows"]
    assert review["items"] == gold["items"] == n == sum(x == "yes" for x in report["item_table"]["suggested"])
    assert (review["answers"], three["answers"], every["answers"], gold["what"]) == (n, 3 * n, 300, "gold")
    assert more["now"] == pytest.approx(report["summary"]["expected"], abs=1e-3)
    assert more["now"] < review["accuracy"] < three["accuracy"] < gold["accuracy"] <= 1.0
    assert review["per_100"] > every["per_100"] > 0  # which is why these items come first
    sure = cw.Votes.from_dense(np.zeros((4, 3), dtype=int), classes=[0, 1])
    assert cw.build_report(sure)["more"] is None or cw.build_report(sure)["summary"]["review"]


def test_annotators_agree_two_by_two():
    said = {"a": "0011", "b": "0010", "c": "1"}
    crowd = cw.Votes.from_records([(i, m, k) for m, labels in said.items() for i, k in enumerate(labels)])
    found = cw.build_report(crowd, cw.aggregate(crowd, "majority"))["matrix"]
    assert found["annotators"] == ["a", "b", "c"] and found["of"] == 3
    assert found["share"] == [[None, 75, 0], [75, None, 0], [0, 0, None]]
    assert found["common"] == [[0, 4, 1], [4, 0, 1], [1, 1, 0]]
    apart = cw.Votes.from_records([(0, "a", 0), (1, "b", 1)])
    assert votes.agreement_matrix(apart) is None


def test_votes_over_time():
    start = np.datetime64("2024-03-01T09:00")
    rows = [(n, m, n % 2, str(start + np.timedelta64(10 * (n + 48 * m), "m"))) for m in range(2) for n in range(48)]
    frame = pl.DataFrame(rows, schema=["item", "annotator", "label", "timestamp"], orient="row")
    crowd = cw.Votes.from_frame(frame)
    steps = cw.build_report(crowd, cw.aggregate(crowd, "majority"))["data"]["over_time"]
    assert len(steps) == votes.MOST_TIMES and sum(step["votes"] for step in steps) == 96
    assert steps[0]["from"] == "2024-03-01 09:00" and {step["agrees"] for step in steps} == {1.0}
    same = cw.Votes.from_frame(frame.with_columns(pl.lit(str(start)).alias("timestamp")))
    assert votes.over_time(same, np.arange(48) % 2) is None
    numbers = cw.Votes.from_frame(frame.with_columns(pl.Series("timestamp", np.arange(96) * 1000.0)))
    assert votes.over_time(numbers, np.arange(48) % 2)[1]["from"] == "3,958"


def test_one_number_of_items_to_review(report, crowd):
    """The headline, the tile, the finding, the table and the list say the same."""
    n = report["summary"]["review"]
    (finding,) = [f for f in report["findings"] if f["kind"] == "items"]
    assert f"review {n} item" in report["summary"]["headline"]
    assert finding["sentence"].startswith(f"{n} of 300 items (") and "in doubt" not in finding["sentence"]
    assert finding["numbers"]["suggested"] == n and "in_doubt" not in finding["numbers"]
    assert report["more"]["rows"][0]["items"] == n
    table = cw.diagnose(crowd.votes, cw.aggregate(crowd.votes, "dawid-skene")).review("dict")
    assert [str(item) for item in table["item"][:40]] == [row["item"] for row in report["items"]][: len(table["item"])]
    assert len(table["item"]) == n and all(table["why"])


def test_ties_that_were_decided_do_not_differ_from_the_majority():
    votes = cw.Votes.from_dense([[0, 1], [0, 1], [1, 1], [0, 0]])
    found = cw.build_report(votes, cw.aggregate(votes, "majority"))["summary"]["majority"]
    assert (found["differs"], found["ties"], found["items"]) == (0, 2, 4)
