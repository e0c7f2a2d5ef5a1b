"""``crowdwise check``: forty small messy files, as people have them, and what the check says of each."""

from __future__ import annotations

import datetime
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from command_line import run
from crowdwise.data import columns, label_proposals, plain_files
from crowdwise.errors import ColumnError, DuplicateError, InputError, InputWarning, LabelError, ParameterError
from spreadsheets import write_xlsx

N, PEOPLE = 40, ("Anna", "Ben", "Cem", "Dora")
WORDS = ("negativ", "neutral", "positiv")
RIGHT = (0.85, 0.8, 0.75, 0.7)


def crowd(words: tuple[Any, ...] = WORDS, seed: int = 0) -> dict[str, list[Any]]:
    """A wide sheet without flaws: an item column, and a column for each of four annotators."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, len(words), N)
    said = {
        name: [words[k] for k in np.where(random.random(N) < right, truth, random.integers(0, len(words), N))]
        for name, right in zip(PEOPLE, RIGHT, strict=True)
    }
    return {"item": [f"t{n}" for n in range(N)], **said}


def majority(sheet: dict[str, list[Any]]) -> list[Any]:
    rows = zip(*(sheet[name] for name in PEOPLE), strict=True)
    return [max(sorted(set(row)), key=row.count) for row in rows]


def long(
    words: tuple[Any, ...] = WORDS, names: tuple[str, str, str] = ("item", "annotator", "label")
) -> list[list[Any]]:
    """The same in the long form, with a header."""
    sheet = crowd(words)
    rows = [[item, name, sheet[name][n]] for n, item in enumerate(sheet["item"]) for name in PEOPLE]
    return [list(names), *rows]


def wide(**more: list[Any]) -> list[list[Any]]:
    sheet = {**crowd(), **more}
    return [list(sheet), *(list(row) for row in zip(*sheet.values(), strict=True))]


def changed(rows: list[list[Any]], changes: dict[int, Any], column: int = 2) -> list[list[Any]]:
    """Rows with other cells in some of them (row 0 is the header)."""
    out = [list(row) for row in rows]
    for at, value in changes.items():
        out[at][column] = value
    return out


def every(rows: list[list[Any]], change: Callable[[int, Any], Any], column: int = 2) -> list[list[Any]]:
    return [rows[0], *([*r[:column], change(n, r[column]), *r[column + 1 :]] for n, r in enumerate(rows[1:]))]


def titled(n: int, value: str) -> str:
    return value.title() if n % 4 == 0 and value != "unsure" else value


class Messy(NamedTuple):
    """Rows of a file, and what the check must say: words of a finding, options that mend it, proposals, facts."""

    rows: list[list[Any]]
    says: str = ""
    options: dict[str, Any] = {}  # noqa: RUF012
    proposals: tuple[tuple[str, str], ...] = ()
    annotators: int | None = 4
    facts: dict[str, Any] = {}  # noqa: RUF012


NORMALISE, MAP = {"normalise_labels": True}, {"label_map": "labels.csv"}
FINAL = majority(crowd())
ONE = ["unklar"] + [None] * (N - 1)
QUESTIONS = [
    ["item", "worker", "question", "label"],
    *([i, w, q, WORDS[(n + m + k) % 3]] for n, i in enumerate("abcdef") for m, w in enumerate(PEOPLE)
      for k, q in enumerate(("toxic", "sentiment"))),
]  # fmt: skip
RANGES = ("1-2", "3-4", "5-6")

MESSY: dict[str, Messy] = {
    # Columns that are no annotators.
    "a final column": Messy(wide(Final=FINAL), "Left out column 'Final'.*agreed on.*--annotator-columns"),
    "a consensus column": Messy(wide(consensus_label=FINAL), "Left out column 'consensus_label'"),
    "Konsens": Messy(wide(Konsens=FINAL), "Left out column 'Konsens'"),
    "étiquette finale": Messy(wide(**{"Étiquette finale": FINAL}), "Left out column 'Étiquette finale'"),
    "etiqueta definitiva": Messy(wide(**{"Etiqueta definitiva": FINAL}), "Left out column 'Etiqueta definitiva'"),
    "maioria": Messy(wide(Maioria=FINAL), "Left out column 'Maioria'"),
    "最终标签": Messy(wide(最终标签=FINAL), "Left out column '最终标签'"),
    "adjudicated, misnamed": Messy(wide(QA=FINAL), "'QA' agrees with the majority.*Anna,Ben,Cem,Dora", annotators=5),
    "Kommentar": Messy(wide(Kommentar=ONE), "Left out column 'Kommentar'"),
    "commentaire": Messy(wide(Commentaire=ONE), "Left out column 'Commentaire'"),
    "observación": Messy(wide(Observación=ONE), "Left out column 'Observación'"),
    "备注": Messy(wide(备注=ONE), "Left out column '备注'"),
    "nearly empty": Messy(wide(Erik=["neutral"] + [None] * (N - 1)), "'Erik' has 1 answer", annotators=5),
    "gold is truth": Messy(wide(gold=FINAL), facts={"form": "wide"}),
    # Labels.
    "1 and 1.0": Messy(every(long(("1", "2", "3")), lambda n, v: f"{v}.0" if n % 2 else v), "form of numbers",
                       NORMALISE, (("1.0", "1"), ("2.0", "2"), ("3.0", "3"))),
    "case": Messy(every(long(), lambda n, v: v.upper() if n % 3 == 0 else v), "case or blanks", NORMALISE,
                  (("NEGATIV", "negativ"), ("NEUTRAL", "neutral"), ("POSITIV", "positiv"))),
    "blanks": Messy(changed(long(), {5: " positiv ", 6: "neutral "}), "case or blanks", NORMALISE,
                    ((" positiv ", "positiv"), ("neutral ", "neutral"))),
    "TRUE, True, true": Messy(every(long(("TRUE", "unsure", "FALSE")), titled),
                              "case or blanks", NORMALISE, (("False", "FALSE"), ("True", "TRUE"))),
    "accents of a Mac": Messy(changed(long(("né", "vu", "su")), {1: "ne\u0301"}), "Unicode", NORMALISE,
                              (("ne\u0301", "né"),)),
    "wide signs": Messy(changed(long(("A1", "B1", "C1")), {1: "Ａ１"}), "case or blanks", NORMALISE, (("Ａ１", "A1"),)),
    "a misspelling": Messy(changed(long(), {3: "negatv"}), "'negatv' .1. like 'negativ'", MAP,
                           (("negatv", "negativ"),)),
    "letters exchanged": Messy(changed(long(), {3: "neturla"}), "", {}, ()),
    "two exchanged": Messy(changed(long(), {3: "netural"}), "like 'neutral'", MAP, (("netural", "neutral"),)),
    "grades are no misspellings": Messy(changed(long(("grade 1", "grade 2", "grade 3")), {2: "grade 4"})),
    "opposites are none": Messy(changed(long(("typical", "other", "odd")), {2: "atypical"})),
    "Excel dates": Messy(changed(long(RANGES), {n: "2024-02-01 00:00:00" for n in (1, 2, 3)}), "made a date", MAP,
                         (("2024-02-01 00:00:00", "1-2"),)),
    "dates as shown": Messy(changed(long(("1-2", "3-4", "5-10")), {1: "10. Mai"}), "made a date", MAP,
                            (("10. Mai", "5-10"),)),
    "question marks": Messy(changed(long(), {n: "?" for n in (4, 9, 30)}), "may stand for no answer", {"abstain": "?"}),
    "errors of formulas": Messy(changed(long(), {4: "#NV"}), "may stand for no answer", {"abstain": "#NV"}),
    # Rows.
    "identical duplicates": Messy([*long(), long()[1], long()[2]], "2 duplicated votes.*All are identical",
                                  {"on_duplicate": "first"}, facts={"duplicates": {"identical": 2, "conflicting": 0}}),
    "conflicting duplicates": Messy([*long(), long()[1], ["t0", "Ben", "neutral"], ["t1", "Anna", "x"]],
                                    "conflicting", {"on_duplicate": "first"}),
    "empty labels": Messy(changed(long(), {7: None}), "1 row has no label", {"on_missing": "drop"}),
    "questions in a column": Messy(QUESTIONS, "Column 'question' says which of 2 questions.*--question sentiment",
                                   {"question": "sentiment"}, facts={"questions": ["sentiment", "toxic"]}),
    "Frage": Messy([["Aufgabe", "Kodierer", "Frage", "Antwort"], *QUESTIONS[1:]], "Column 'Frage' says which",
                   {"question": "sentiment"}),
    # Headers.
    "German names": Messy(long(names=("Dokument", "Kodierer", "Kategorie"))),
    "French names": Messy(long(names=("Élément", "Annotateur", "Étiquette"))),
    "Spanish names": Messy(long(names=("Tarea", "Anotador", "Respuesta"))),
    "Portuguese names": Messy(long(names=("Tarefa", "Avaliador", "Rótulo"))),
    "Chinese names": Messy(long(names=("样本", "标注员", "标签"))),
    "titles above": Messy([["Projekt 2024", None, None], [None, None, None], *long()], "found in (row|line) 3",
                          facts={"header_row": 3}),
    "titles above a wide sheet": Messy([["Team A"] + [None] * 5, *wide(Kommentar=ONE)], "found in (row|line) 2",
                                       facts={"header_row": 2, "form": "wide"}),
    "no column of annotators": Messy([["photo", "x"], ["a", 1], ["b", 2]], "No column found for", annotators=None),
}  # fmt: skip


def write(rows: list[list[Any]], path: Path, form: str) -> Path:
    if form == "xlsx":
        return write_xlsx(path.with_suffix(".xlsx"), {"Tabelle1": rows})
    cells = ["" if cell is None else str(cell) for row in rows for cell in row]
    sep = next(sign for sign in (",", ";", "\t") if not any(sign in cell for cell in cells))
    lines = [sep.join("" if cell is None else str(cell) for cell in row) for row in rows]
    path = path.with_suffix(".csv")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("form", ["csv", "xlsx"])
@pytest.mark.parametrize("name", MESSY)
def test_a_messy_file(name: str, form: str, tmp_path: Path) -> None:
    messy = MESSY[name]
    path = write(messy.rows, tmp_path / "votes", form)
    done = run("check", path, "--json")
    facts = json.loads(done.stdout)
    said = " ".join(f"{found['found']} {found['mend']}" for found in facts["findings"])
    assert facts["readable"] == (messy.annotators is not None) == (done.returncode == 0)
    if messy.says:
        assert pl.Series([said]).str.contains(messy.says)[0], said
    assert facts["options"] == messy.options
    assert [(p["found"], p["proposed"]) for p in facts["proposals"]] == list(messy.proposals)
    assert facts.get("annotators") == messy.annotators
    assert {key: facts[key] for key in messy.facts} == messy.facts
    if not (messy.says or messy.options):
        assert facts["findings"] == [] and facts["command"] == ""


# -------------------------------------------------------------------- what mends them


def test_the_mending_options_give_the_clean_votes(tmp_path: Path) -> None:
    clean = cw.read_votes(write(long(), tmp_path / "clean", "csv"))
    rows = changed(
        every(long(), lambda n, v: v.upper() if n % 9 == 0 else v), {3: long()[3][2][:-2] + long()[3][2][-1]}
    )
    path = write([*rows, rows[1]], tmp_path / "messy", "csv")
    found = cw.check(path)
    assert found.options == {"on_duplicate": "first", "normalise_labels": True, "label_map": "labels.csv"}
    assert found.error is None and found.label_map()[rows[3][2]] == long()[3][2]
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        votes = cw.read_votes(path, **{**found.options, "label_map": found.label_map()})
    assert votes.to_frame().equals(clean.to_frame())


def test_check_writes_a_map_that_aggregate_reads(tmp_path: Path) -> None:
    rows = changed(long(("1-2", "3-4", "5-10")), {1: "2024-02-01 00:00:00", 7: "10-May"})
    path, mapped, out = write(rows, tmp_path / "votes", "csv"), tmp_path / "labels.csv", tmp_path / "out.csv"
    done = run("check", path, "--write-map", mapped)
    assert "To mend it: crowdwise aggregate" in done.stdout and "--map labels.csv" in done.stdout
    assert pl.read_csv(mapped).columns == ["from", "to", "votes", "why"]
    done = run("aggregate", path, "--map", mapped, "--out", out, "--method", "majority")
    assert "3 classes" in done.stderr and set(pl.read_csv(out)["label"]) <= {"1-2", "3-4", "5-10"}
    done = run("aggregate", path, "--out", out, "--method", "majority")
    assert "2 labels with 2 votes look like another" in done.stderr and "--map labels.csv" in done.stderr


def test_dates_in_the_cells_of_a_sheet(tmp_path: Path) -> None:
    first, second = datetime.date(2024, 2, 1), datetime.date(2024, 4, 3)
    some = every(long(RANGES), lambda n, v: first if v == "1-2" else v)
    path = write_xlsx(tmp_path / "some.xlsx", {"S": some})
    found = cw.check(path)
    assert found.label_map() == {"2024-02-01 00:00:00": "1-2"}
    assert cw.read_votes(path, label_map=found.label_map()).classes.tolist() == [*RANGES]
    path = write_xlsx(tmp_path / "all.xlsx", {"S": every(some, lambda n, v: second if n % 2 else first)})
    with pytest.raises(
        LabelError, match=r"2 dates, such as '2024-02-01 00:00:00': a spreadsheet makes dates.*label_map="
    ):
        cw.read_votes(path)
    stands = {"2024-02-01 00:00:00": "1-2", "2024-04-03 00:00:00": "3-4"}
    assert cw.read_votes(path, label_map=stands).classes.tolist() == ["1-2", "3-4"]
    assert cw.check(path).error is not None


def test_texts_are_not_proposed_to_be_classes(tmp_path: Path) -> None:
    path = write(every(long(), lambda n, v: f"Text{n} is {v}"), tmp_path / "votes", "csv")
    found = cw.check(path, label="label")
    assert "answer_type" not in found.options or found.options["answer_type"] != "votes"


@pytest.mark.parametrize("words", [("TRUE", "FALSE"), ("true", "false"), ("1", "0"), ("1.0", "2.5")])
@pytest.mark.parametrize("form", ["csv", "xlsx"])
def test_labels_are_written_as_they_were_read(words: tuple[str, ...], form: str, tmp_path: Path) -> None:
    path, out = write(long(words), tmp_path / "votes", form), tmp_path / "out.csv"
    assert run("aggregate", path, "--out", out, "--method", "majority", "--answers", "votes").returncode == 0
    assert set(pl.read_csv(out, infer_schema=False)["label"]) <= set(words)


def test_truth_may_be_spelled_as_a_boolean(tmp_path: Path) -> None:
    votes = cw.read_votes(write(long(("TRUE", "FALSE")), tmp_path / "votes", "csv"))
    assert votes.classes.tolist() == ["FALSE", "TRUE"]
    for truth in ({"t0": True, "t1": "false"}, {"t0": "True", "t1": False}):
        assert votes.encode_truth(truth)[:2].tolist() == [1, 0]


def test_a_map_of_labels() -> None:
    table = {"item": [1, 1, 2], "annotator": ["a", "b", "a"], "label": [1, 9, 2], "truth": [9, 9, 2]}
    votes = cw.Votes.from_frame(table, label_map={9: 1})
    assert votes.classes.tolist() == [1, 2] and votes.truth.tolist() == [0, 1]
    with pytest.warns(InputWarning, match="No label is 'x', which the map of labels names"):
        cw.Votes.from_frame(table, label_map={"x": 1})
    sets = cw.LabelSets.from_frame(
        {"item": ["a", "b"], "annotator": ["w", "w"], "labels": [["cat", "kat"], ["dog"]]}, label_map={"kat": "cat"}
    )
    assert sets.labels.tolist() == ["cat", "dog"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a,b\nx,y\n", "columns from and to, and this has 'a', 'b'"),
        ("from,to\nx,\n", "'x' stand for nothing"),
        ("from,to\nx,y\nx,z\n", "'x' stands for 'y' and for 'z'"),
    ],
)
def test_a_map_that_cannot_be_used(text: str, error: str, tmp_path: Path) -> None:
    (tmp_path / "map.csv").write_text(text)
    with pytest.raises(InputError, match=error):
        label_proposals.as_label_map(tmp_path / "map.csv")
    with pytest.raises(ParameterError, match="expected a mapping of labels, or a file"):
        label_proposals.as_label_map(5)


@pytest.mark.parametrize(
    ("a", "b"), [("negatv", "negativ"), ("ab", "ba"), ("kitten", "sitting"), ("", "abc"), ("abc", "abc")]
)
def test_edits_are_the_fewest(a: str, b: str) -> None:
    """Against a search through all strings that one edit more reaches."""
    letters, reached, steps = sorted({*a, *b}), {a}, 0
    while b not in reached:
        steps += 1
        reached |= {
            new for word in reached for i in range(len(word) + 1)
            for new in (
                word[:i] + word[i + 1 :], word[:i] + word[i : i + 2][::-1] + word[i + 2 :],
                *(word[:i] + c + word[i:] for c in letters), *(word[:i] + c + word[i + 1 :] for c in letters),
            ) if len(new) <= max(len(a), len(b))
        }  # fmt: skip
    assert label_proposals.edits(a, b) == label_proposals.edits(b, a) == steps


def test_declared_classes_are_no_misspellings() -> None:
    table = {"item": range(30), "annotator": ["w"] * 30, "label": ["negativ"] * 29 + ["negatv"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        cw.Votes.from_frame(table, classes=["negativ", "negatv"])


# -------------------------------------------------------------------- columns and questions


def test_columns_that_were_left_out_can_be_kept(tmp_path: Path) -> None:
    path = write(wide(Final=FINAL, Kommentar=ONE), tmp_path / "votes", "csv")
    done = run("describe", path, "--annotator-columns", "Anna,Final", "--json")
    assert json.loads(done.stdout)["annotators"] == 2 and "Left out" not in done.stderr
    votes = cw.read_votes(path, truth="Final", annotator_columns=["Anna", "Ben"])
    assert votes.annotators.tolist() == ["Anna", "Ben"] and (votes.truth >= 0).all()
    with pytest.raises(ColumnError, match=r"no column 'Ana' of an annotator.*Did you mean 'Anna'"):
        cw.read_votes(path, annotator_columns=["Ana"])


def test_the_columns_of_annotators_are_listed(tmp_path: Path) -> None:
    done = run("aggregate", write(wide(), tmp_path / "votes", "csv"), "--method", "majority")
    assert "each annotator has a column: 'Anna', 'Ben', 'Cem', 'Dora'." in done.stderr
    done = run("aggregate", write(wide(Final=FINAL), tmp_path / "votes", "csv"), "--method", "majority")
    assert "The annotators are 'Anna', 'Ben', 'Cem', 'Dora'." in done.stderr and "has a column" not in done.stderr


def test_verdicts_alone_are_annotators() -> None:
    table = {"item": range(4), "final": list("xyxy"), "consensus": list("xyyy")}
    assert cw.Votes.from_frame(table).annotators.tolist() == ["final", "consensus"]


def test_annotators_who_agree_are_not_doubted() -> None:
    """Where everybody mostly agrees, one who always does is no consensus; of few items nothing is said."""
    random = np.random.default_rng(1)
    truth = random.integers(0, 2, 200)
    table = pl.DataFrame(
        {name: np.where(random.random(200) < 0.98, truth, 1 - truth) for name in "abcde"} | {"f": truth}
    )
    assert columns.doubted(table, table.columns) == {}
    assert columns.doubted(table.head(10), table.columns) == {}


def test_majorities_are_counted_right() -> None:
    random = np.random.default_rng(2)
    table = pl.DataFrame({name: random.choice(["x", "y", "z", None], 50).tolist() for name in "abcd"}, strict=False)
    for name, (rate, items) in columns._with_majority(table, table.columns).items():
        same = []
        for row in table.to_dicts():
            others = [row[other] for other in table.columns if other != name and row[other] is not None]
            ranked = sorted(((others.count(label), label) for label in set(others)), reverse=True)
            clear = ranked and ranked[0][0] > 1 and (len(ranked) == 1 or ranked[0][0] > ranked[1][0])
            if row[name] is not None and clear:
                same.append(row[name] == ranked[0][1])
        assert items == len(same) and rate == pytest.approx(np.mean(same) if same else 0)


@pytest.mark.parametrize("form", ["csv", "xlsx"])
def test_one_question_of_a_column(form: str, tmp_path: Path) -> None:
    path = write(QUESTIONS, tmp_path / "votes", form)
    with pytest.raises(ColumnError, match=r"'question' says which of 2 questions a row answers: 'sentiment', 'toxic'"):
        cw.aggregate(path)
    assert cw.read_votes(path, question="toxic").n_votes == 24
    done = run("describe", path, "--question", "toxic", "--json")
    assert json.loads(done.stdout)["votes"] == 24
    done = run("describe", path, "--question", "toxc")
    assert done.returncode == 1 and "Did you mean 'toxic'" in done.stderr
    with pytest.raises(ColumnError, match="no column that says which question"):
        cw.read_votes(write(long(), tmp_path / "other", form), question="toxic")


def test_a_question_that_tells_no_rows_apart_is_left_alone(tmp_path: Path) -> None:
    same = [[*row[:2], "toxic", row[3]] for row in QUESTIONS]
    same[0] = QUESTIONS[0]
    with pytest.raises(DuplicateError, match="duplicated votes"):
        cw.read_votes(write(same, tmp_path / "same", "csv"))
    rows = [["item", "worker", "aspect", "label"], *([n, w, n % 3, "x"] for n in range(6) for w in "ab")]
    assert cw.read_votes(write(rows, tmp_path / "aspect", "csv")).n_votes == 12  # an attribute of items


# -------------------------------------------------------------------- sheets, lines, annotators


def test_the_sheet_with_the_answers_is_read(tmp_path: Path) -> None:
    cover = [["Read me", "Version"], ["Label all texts", "3"], ["Ask Anna", "4"]]
    path = write_xlsx(tmp_path / "votes.xlsx", {"Cover": cover, "Data": long(), "Old": long()})
    with pytest.warns(InputWarning, match="sheet 'Data' was read, and not 'Cover', 'Old'"):
        assert cw.read_votes(path).n_votes == 4 * N
    found = cw.check(path)
    assert found.facts["sheet"] == "Data" and cw.read_votes(path, sheet="Old").n_votes == 4 * N
    assert json.loads(run("check", path, "--sheet", "Old", "--json").stdout)["sheet"] == "Old"
    done = run("check", path, "--sheet", "Dat")
    assert done.returncode == 1 and "Did you mean 'Data'" in done.stdout


@pytest.mark.parametrize("form", ["csv", "xlsx"])
def test_rows_are_counted_below_titles(form: str, tmp_path: Path) -> None:
    path = write([["Projekt", None, None], *changed(long(), {4: None})], tmp_path / "votes", form)
    with pytest.warns(InputWarning, match="titles"), pytest.raises(InputError, match=r"(line|sheet row) 6"):
        cw.read_votes(path)
    with pytest.warns(InputWarning, match="without a label"):
        assert cw.read_votes(path, skip_rows=1, on_missing="drop").n_votes == 4 * N - 1
    with pytest.raises(ParameterError, match="skip_rows=-1: expected a number of rows"):
        cw.read_votes(path, skip_rows=-1)


@pytest.mark.parametrize("text", ["Ben\nZoe\n", "worker;why\nBen;slow\nZoe;\n"])
def test_annotators_are_left_out_by_a_file(text: str, tmp_path: Path) -> None:
    path = write(long(), tmp_path / "votes", "csv")
    (tmp_path / "banned.csv").write_text(text)
    done = run("aggregate", path, "--exclude", tmp_path / "banned.csv", "--method", "majority")
    assert "3 annotators" in done.stderr and "No annotator is called 'Zoe', of 2 to leave out" in done.stderr
    assert cw.aggregate(path, "majority", exclude=["Ben", "Cem"]).annotators.tolist() == ["Anna", "Dora"]
    with pytest.raises(InputError, match="all 4 annotators"):
        cw.aggregate(path, "majority", exclude=PEOPLE)


def test_a_file_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened = write([*QUESTIONS, QUESTIONS[2]], tmp_path / "votes", "csv"), []
    held = plain_files.held
    monkeypatch.setattr(plain_files, "held", lambda file: (opened.append(file), held(file))[1])
    found = cw.check(path)
    assert set(found.options) == {"question", "on_duplicate"} and opened == [path]


def test_a_check_of_a_dataframe_in_words() -> None:
    found = cw.check(pl.DataFrame(wide()[1:], schema=wide()[0], orient="row"))
    assert str(found).splitlines()[0].startswith("votes in the wide form: 160 votes by 4 annotators on 40 items")
    assert "'Anna' one annotator" in str(found) and str(found).endswith("Nothing looks wrong.")
    assert cw.check(cw.Votes.from_records([("a", "w", "x")])).facts["annotators"] == 1


@pytest.mark.parametrize("name", ["doccano_individual.zip", "qualtrics.csv", "labelstudio/choices_single.json"])
def test_an_export_is_checked_by_its_questions(name: str) -> None:
    found = json.loads(run("check", Path(__file__).parents[1] / "exports" / name, "--json").stdout)
    assert found["readable"] and found["tool"] and len(found["questions"]) >= 1 and "columns" not in found
    assert found["annotators"] == 3


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = run("check", tmp_path / "none.csv")
    assert done.returncode == 1 and "There is no file" in done.stdout
