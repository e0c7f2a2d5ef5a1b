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
from crowdwise.data import columns, plain_files, spellings
from crowdwise.data.sheets import write_xlsx
from crowdwise.errors import ColumnError, DuplicateError, InputError, InputWarning, LabelError, ParameterError

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
    """Rows of a file, and what the check must say: words of a finding, options that fix it, proposals, facts."""

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

SHEET = [row[1:] for row in wide()[1:]]
ITEMS = [row[0] for row in wide()[1:]]
IN_ROWS = [[name, *(row[m] for row in SHEET)] for m, name in enumerate(PEOPLE)]

MESSY: dict[str, Messy] = {
    # Columns that are not annotators.
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
    "grades are not misspellings": Messy(changed(long(("grade 1", "grade 2", "grade 3")), {2: "grade 4"})),
    "opposites are none": Messy(changed(long(("typical", "other", "odd")), {2: "atypical"})),
    "Excel dates": Messy(changed(long(RANGES), {n: "2024-02-01 00:00:00" for n in (1, 2, 3)}), "made a date", MAP,
                         (("2024-02-01 00:00:00", "1-2"),)),
    "dates as shown": Messy(changed(long(("1-2", "3-4", "5-10")), {1: "10. Mai"}), "made a date", MAP,
                            (("10. Mai", "5-10"),)),
    "question marks": Messy(changed(long(), {n: "?" for n in (4, 9, 30)}), "read as a class.*no answer",
                       {"abstain": "?"}),
    "NA": Messy(changed(long(), {n: "NA" for n in (4, 9, 30)}), "3 of them hold 'NA', .*null_values",
                {"on_missing": "drop"}),
    "errors of formulas": Messy(changed(long(), {4: "#NV"}), "is read as a class.*no answer", {"abstain": "#NV"}),
    "a column of means": Messy(wide(Moyenne=[n / 7 for n in range(N)]), "Left out column 'Moyenne'.*totals"),
    "certainty in short": Messy(
        [["item", *(w for name in PEOPLE for w in (f"{name}_label", f"{name}_conf"))],
         *([row[0], *(w for k, v in enumerate(row[1:]) for w in (v, (n + k) % 5 / 5))]
           for n, row in enumerate(wide()[1:]))], "Left out columns 'Anna_conf'"),
    # Rows.
    "a total below": Messy(
        [*long(), ["Total", None, 160]], "Left out the last row, 'Total': totals", facts={"items": N}),
    "a total of all below": Messy(
        [*long(), ["Summe", "alle", 160]], "Left out the last row, 'Summe': totals", facts={"items": N}),
    "a total by one who votes": Messy(
        [*long(), ["Total", PEOPLE[0], WORDS[0]]], "'Total', may hold totals: read as an item",
        facts={"items": N + 1}),
    "rows without an annotator": Messy([*long(), ["t99", None, WORDS[0]]], "1 row has no annotator.* leave them out",
                                       {"on_missing": "drop"}, facts={"items": N}),
    "a column and a row of totals": Messy(
        [["item", *PEOPLE, "Total yes"], *([i, *(n % 2 for n in range(4)), 2] for i in ITEMS),
         ["Total", 3, N, 5, N, 80]],
        "Left out the last row, 'Total'.*Left out column 'Total yes'", facts={"items": N}),
    "totals that are labels, too": Messy(
        [["item", *PEOPLE], *([i, *(n % 2 for n in range(4))] for i in ITEMS), ["Total", 1, N, 5, N]],
        "The last row, 'Total', may hold totals: read as an item", facts={"items": N + 1}),
    "a line below the names": Messy(
        [long()[0], ["---", ":--:", "---"], *long()[1:]], "Left out 1 rows", facts={"answers": 4 * N}),
    "joined in another order": Messy(
        [*long()[:50], ["annotator", "item", "label"], *(r[1::-1] + r[2:] for r in long()[50:])],
        "columns have another order below .* 51: 'annotator'", annotators=None),
    "a truth among annotators": Messy([*long(), *([i, "gold", v] for i, v in zip(ITEMS, FINAL, strict=True))],
                                      "'gold' counts as an annotator", annotators=5),
    "counts of votes": Messy(
        [["item", "label", "count"], *([i, w, n + 1] for i in ITEMS for n, w in enumerate(WORDS))],
        "'count' is not read.*--column weight=count", {"anonymous": True},
        annotators=3),
    "no names of columns": Messy(long()[1:], "first line holds answers.*Write the names above it", annotators=None),
    "identical duplicates": Messy([*long(), long()[1], long()[2]], "2 duplicated votes.*All are identical",
                                  {"on_duplicate": "first"}, facts={"duplicates": {"identical": 2, "conflicting": 0}}),
    "conflicting duplicates": Messy([*long(), long()[1], ["t0", "Ben", "neutral"], ["t1", "Anna", "x"]],
                                    "conflicting", {"on_duplicate": "first"}),
    "empty labels": Messy(changed(long(), {7: None}), "1 row has no label", {"on_missing": "drop"}),
    "merged cells": Messy(every(long(), lambda n, v: None if n % 4 else v, 0), "say --on-missing fill",
                          {"on_missing": "fill"}, facts={"items": N, "answers": 4 * N}),
    "annotators in merged cells": Messy(
        every([long()[0], *sorted(long()[1:], key=lambda r: r[1])], lambda n, v: None if n % N else v, 1),
        "Filled 156 empty cells of column 'annotator'", {"on_missing": "fill"}, facts={"items": N, "answers": 4 * N}),
    "nobody knows who": Messy([[r[0], r[2]] for r in long()], "the plain majority can be taken: --anonymous",
                              {"anonymous": True}),
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
    # Layouts.
    "a row of totals": Messy([*wide(), ["Summe", N, N, N, N]], "Left out the last row, 'Summe'", facts={"items": N}),
    "an item called total": Messy([*wide(), ["total", "neutral", "neutral", "neutral", "neutral"]],
                                  facts={"items": N + 1}),
    "no name above the items": Messy([["", *PEOPLE], *wide()[1:]], "items are those of the first column",
                                     facts={"items": N, "form": "wide"}),
    "numbered texts": Messy(
        [["Nr.", "Satz", *PEOPLE], *([n, f"Das ist Satz {n}", *r[1:]] for n, r in enumerate(wide()[1:]))],
        "items are those of the first column, 'Nr.'.*Left out column 'Satz'", facts={"items": N, "form": "wide"}),
    "two rows of names": Messy([["item", "Team A", None, "Team B", None], [None, *PEOPLE], *wide()[1:]],
                               "found in (row|line) 2", facts={"items": N, "form": "wide"}),
    "pairs of columns": Messy(
        [["item", "Rater 1", "Label 1", "Rater 2", "Label 2"],
         *([ITEMS[n], *(x for m in (n % 4, (n + 1) % 4) for x in (PEOPLE[m], r[m]))] for n, r in enumerate(SHEET))],
        "'Rater 1', 'Rater 2' name the annotators of 'Label 1', 'Label 2'", facts={"items": N, "answers": 2 * N}),
    "a tick per class": Messy(
        [["item", "worker", *WORDS], *([*r[:2], *("x" if r[2] == w else None for w in WORDS)] for r in long()[1:])],
        "are classes, of which every row has one marked", facts={"items": N, "answers": 4 * N}),
    "annotators in rows": Messy([["Kodierer", *ITEMS], *IN_ROWS],
                                "an annotator .column 'Kodierer'., and 40 columns are items", facts={"items": N}),
    "mail addresses": Messy(every(long(), lambda n, v: f"{v}@x.org", 1),
                            "4 annotators .* e-mail.*--pseudonymise key.csv"),
    "a form": Messy(
        [["Timestamp", "Email Address", *ITEMS], *(["1/3/24 9:00 GMT+1", f"{r[0]}@x.org", *r[1:]] for r in IN_ROWS)],
        "Each row is an annotator .column 'Email Address'", facts={"items": N, "answers": 4 * N}),
    "columns of other names": Messy(long(names=("Doc No", "Rater", "Code")), "No column found for: item.*--label Code",
                                    {"item": "Doc No", "label": "Code"}, facts={"items": N}),
    "marks of doubt": Messy(changed(long(), {3: "negativ?", 4: "Neutral (unsure)"}), "'negativ.' .1. like 'negativ'",
                            MAP, (("Neutral (unsure)", "neutral"), ("negativ?", "negativ"))),
    "certainty beside labels": Messy(
        [["text_id", *(w for name in PEOPLE for w in (f"{name} label", f"{name} sure?"))],
         *([row[0], *(w for k, v in enumerate(row[1:]) for w in (v, str(1 + (n + k) % 5)))]
           for n, row in enumerate(wide()[1:]))], "Left out columns 'Anna sure.'.*certainty"),
    "certainty in the first word": Messy(
        [["item", *(w for name in PEOPLE for w in (f"Label {name}", f"Confidence {name}"))],
         *([row[0], *(w for k, v in enumerate(row[1:]) for w in (v, str(1 + (n + k) % 5)))]
           for n, row in enumerate(wide()[1:]))], "Left out columns 'Confidence Anna'"),
    "votes that were counted": Messy(
        [["item", *WORDS], *([row[0], *(row.count(word) for word in WORDS)] for row in wide()[1:])],
        "'positiv' add up to 4 in every row.*count votes", annotators=None),
    "the truth called label": Messy(
        [["item", "worker", "worker_label", "label"],
         *([*row, FINAL[ITEMS.index(row[0])]] for row in long()[1:])],
        "all labels of an item are the same.*--label worker_label"),
    "texts beside labels of an odd name": Messy(
        [["Task ID", "Worker ID", "Text", "Mood of it"], *([i, who, f"the text {i}", v] for i, who, v in long()[1:])],
        "No column found for: label.*--label 'Mood of it'", {"label": "Mood of it"}, facts={"answer_type": "votes"}),
    "rows are numbered": Messy(
        [["id", "text", "worker", "label"], *([n, *row] for n, row in enumerate(long()[1:]))],
        "No column found for: item.*--item text", {"item": "text"}, facts={"items": N}),
    "names of columns again": Messy(
        [*long()[:50], long()[0], *long()[50:]], "Left out 1 rows that repeat the names of the columns"),
    "items with zeros": Messy(every(long(), lambda n, v: f"{int(v[1:]):03d}" if n % 2 else f"{v[1:]}.0", 0),
                              "names of some items differ only in.*the form of numbers", facts={"items": 2 * N}),
    "classes with zeros": Messy(every(long(("1", "2", "3")), lambda n, v: f"0{v}" if n % 4 == 0 else v),
                                "like '1'", MAP, (("01", "1"), ("02", "2"), ("03", "3"))),
    "yes and y": Messy(every(long(("yes", "no", "maybe")), lambda n, v: v[0] if n % 4 == 0 and v != "maybe" else v),
                       "'y'.*like 'yes'", MAP, (("n", "no"), ("y", "yes"))),
    "certainty in labels": Messy(every(long(), lambda n, v: f"{v} ({5 + n % 2}0 %)"), "like 'negativ'", MAP,
                                 tuple((f"{word} ({p}0 %)", word) for word in WORDS for p in (5, 6))),
    "a codebook's 99": Messy(changed(long(("1", "2", "3")), {4: "99", 9: "99"}), "99 is read as a class.*--abstain 99"),
    "several in two orders": Messy(changed(long(), {3: "a, b", 9: "b, a"}), "several of the other labels in one cell"),
    "capitals without accents": Messy(long(names=("ELEMENT_ID", "Evaluateur", "Reponse"))),
    "Prolific's names": Messy(long(names=("stimulus", "PROLIFIC_PID", "response"))),
    "columns without a name": Messy([[None, *row, None] for row in wide()], facts={"form": "wide"}),
    "several in a cell": Messy(changed(long(), {3: "negativ; neutral", 9: "positiv;neutral"}),
                               "several of the other labels in one cell.*--answers label-sets"),
    "rounded numbers": Messy(every(long(), lambda n, v: f"1.2{v[1:]}E+11", 0),
                             "40 items are numbers that a spreadsheet rounded"),
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
    said = " ".join(f"{found['found']} {found['fix']}" for found in facts["findings"])
    assert facts["readable"] == (messy.annotators is not None) == (done.returncode == 0)
    if messy.says:
        assert pl.Series([said]).str.contains(messy.says)[0], said
    assert facts["options"] == messy.options
    assert [(p["found"], p["proposed"]) for p in facts["proposals"]] == list(messy.proposals)
    assert facts.get("annotators") == messy.annotators
    assert {key: facts[key] for key in messy.facts} == messy.facts
    if not (messy.says or messy.options):
        assert facts["findings"] == [] and facts["command"] == ""


def test_names_of_columns_in_quotes_and_other_encodings(tmp_path: Path) -> None:
    rows = [["Email", *(f'the ""{item}""' for item in ITEMS)], *IN_ROWS]
    path = tmp_path / "form.csv"
    path.write_text("\n".join(",".join(f'"{cell}"' for cell in row) for row in rows), encoding="utf-8")
    with pytest.warns(InputWarning, match="Each row is an annotator"):
        assert 'the "t0"' in cw.read_votes(path).items.tolist()

    chinese = tmp_path / "gbk.csv"
    said = ("正面", "负面", "中性")
    text = "\n".join(",".join(row) for row in long(said, names=("样本编号", "标注员", "标签")))
    chinese.write_bytes(text.encode("gbk"))
    with pytest.warns(InputWarning, match="was read as GB18030"):
        assert set(cw.read_votes(chinese).classes.tolist()) == set(said)
    for other, encoding in (("né", "latin-1"), ("Prüfung ÄÖ", "cp1252"), ("привет да нет", "cp1251")):
        assert not plain_files.looks_chinese(f"item,{other}\n1,{other}\n".encode(encoding))


def test_answers_in_lists_of_parquet_and_json(tmp_path: Path) -> None:
    sheet = crowd()
    rows = list(zip(*(sheet[name] for name in PEOPLE), strict=True))
    frames = {
        "lists": pl.DataFrame({"text": ITEMS, "annotators": [PEOPLE] * N, "labels": rows}),
        "objects": pl.DataFrame({
            "item": ITEMS,
            "answers": [[{"annotator": w, "label": v} for w, v in zip(PEOPLE, row, strict=True)] for row in rows],
        }),
    }  # fmt: skip
    for name, frame in frames.items():
        frame.write_parquet(tmp_path / f"{name}.parquet")
        found = cw.check(tmp_path / f"{name}.parquet")
        assert (found.error, found.facts["answers"], found.facts["annotators"]) == (None, 4 * N, 4)
    votes = [{"item_id": i, "user": w, "value": v} for i, w, v in long()[1:]]
    (tmp_path / "two.json").write_text(json.dumps({"items": [{"id": i} for i in ITEMS], "votes": votes}))
    assert cw.check(tmp_path / "two.json").facts["answers"] == 4 * N

    cells = tmp_path / "cells.csv"
    cells.write_text('item,answers\na,"[{""worker"": ""x""}]"\nb,"[{""worker"": ""y""}]"\n')
    with pytest.raises(ColumnError, match="Column 'answers' holds JSON in its cells"):
        cw.read_votes(cells)


def test_labels_that_are_objects_are_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "votes.arrow"
    table = {"item": [0, 0, 1, 1], "annotator": list("abab"), "label": [{"a": 1}] * 4, "comment": ["x"] * 4}
    pl.DataFrame(table).write_ipc(path)
    assert "'label'" in str(cw.check(path).error)


def test_what_an_export_left_out_and_one_annotator_are_said() -> None:
    exports = Path(__file__).parents[1] / "exports"
    assert "left out: 4 suggestions of models" in str(cw.check(exports / "argilla_flat.json"))
    one = cw.check({"item": list("abcd"), "who": ["x"] * 4, "label": list("uvuv")}, annotator="who")
    assert "All answers are by one annotator, 'x'" in str(one)


# -------------------------------------------------------------------- what fixes them


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
    assert "To fix it: crowdwise aggregate" in done.stdout and "--map labels.csv" in done.stdout
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
        spellings.as_label_map(tmp_path / "map.csv")
    with pytest.raises(ParameterError, match="expected a mapping of labels, or a file"):
        spellings.as_label_map(5)


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
    assert spellings.edits(a, b) == spellings.edits(b, a) == steps


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
    """Where everybody mostly agrees, one who always does is not a consensus; of few items nothing is said."""
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


def test_all_questions_into_a_folder(tmp_path: Path) -> None:
    path, out = write(QUESTIONS, tmp_path / "votes", "csv"), tmp_path / "labels"
    done = run("aggregate", path)
    assert done.returncode == 1 and "All of them, into a folder: --question all --out FOLDER." in done.stderr
    assert run("aggregate", path, "--question", "all", "--out", out, "--method", "majority").returncode == 0
    for name in ("toxic", "sentiment"):
        alone = cw.aggregate(path, "majority", question=name).to_frame("items", kind="polars")
        assert pl.read_csv(out / f"{name}.csv")["label"].to_list() == alone["label"].to_list()
        assert pl.read_csv(out / f"{name}-annotators.csv").height == 4
    for more, words in (((), "name the folder"), (("--out", out, "--save", tmp_path / "s"), "--save: not with")):
        done = run("aggregate", path, "--question", "all", *more)
        assert done.returncode == 2 and words in " ".join(done.stderr.split())
    done = run("aggregate", write(long(), tmp_path / "one", "csv"), "--question", "all", "--out", out)
    assert done.returncode == 2 and "are to one question" in done.stderr


def test_votes_without_annotators_have_a_majority(tmp_path: Path) -> None:
    path, known = write([[r[0], r[2]] for r in long()], tmp_path / "votes", "csv"), cw.Votes.from_records(long()[1:])
    found = cw.aggregate(path, anonymous=True)
    assert found.method == "majority"
    assert found.labels.tolist() == cw.aggregate(known, "majority").labels.tolist()
    assert "(majority)" in run("aggregate", path, "--anonymous").stderr
    with pytest.raises(ColumnError, match="'annotator' names the annotators"):
        cw.read_votes(write(long(), tmp_path / "known", "csv"), anonymous=True)


def test_a_class_called_na(tmp_path: Path) -> None:
    path = write(changed(long(), {3: "NA", 9: "NA"}), tmp_path / "votes", "csv")
    assert "NA" in cw.read_votes(path, null_values=()).classes
    assert "4 classes" in run("aggregate", path, "--column", "null_values=", "--method", "majority").stderr


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


def test_sheets_of_one_form_are_one_table(tmp_path: Path) -> None:
    head, *rows = long()
    path = write_xlsx(
        tmp_path / "votes.xlsx", {"May": [head, *rows[:80]], "Info": [["a"], ["b"]], "June": [head, *rows[80:]]}
    )
    with pytest.warns(InputWarning, match="sheets 'May', 'June' have the same columns and were read, as one table"):
        assert cw.read_votes(path).to_frame().equals(cw.Votes.from_records(rows).to_frame())
    assert cw.read_votes(path, sheet="June").n_votes == 80
    with pytest.warns(InputWarning), pytest.raises(LabelError, match="1 row has no label"):
        cw.read_votes(write_xlsx(path, {"May": [head, *rows[:80]], "June": [head, ["t99", "Anna", None]]}))


def test_a_sheet_for_each_annotator(tmp_path: Path) -> None:
    head, *rows = long()
    sheets = {who: [[head[0], head[2]], *([r[0], r[2]] for r in rows if r[1] == who)] for who in PEOPLE}
    with pytest.warns(
        InputWarning, match="'Anna', 'Ben', 'Cem', 'Dora' have the same columns and were read, each is an"
    ):
        votes = cw.read_votes(write_xlsx(tmp_path / "votes.xlsx", sheets))
    assert votes.annotators.tolist() == list(PEOPLE)
    clean = cw.Votes.from_records(rows)
    assert cw.aggregate(votes, "majority").labels.tolist() == cw.aggregate(clean, "majority").labels.tolist()
    batches = {who: [["item", "label"], *([f"{who}{r[0]}", r[1]] for r in page[1:])] for who, page in sheets.items()}
    with pytest.raises(ColumnError, match="No column found for: annotator"):
        cw.read_votes(write_xlsx(tmp_path / "batches.xlsx", batches))


def test_labels_in_a_spreadsheet_and_with_decimal_commas(tmp_path: Path) -> None:
    rows = every(long(("=1+1", "007", "x")), lambda n, v: v)
    path, out = write(rows, tmp_path / "votes", "csv"), tmp_path / "out"
    for ending in ("xlsx", "csv"):
        assert (
            run(
                "aggregate", path, "-o", f"{out}.{ending}", "-m", "majority", "--annotators", f"{out}-who.{ending}"
            ).returncode
            == 0
        )
    text, sheet = pl.read_csv(f"{out}.csv", infer_schema=False), pl.read_excel(f"{out}.xlsx")
    assert sheet.columns == text.columns and sheet["label"].to_list() == text["label"].to_list()
    assert sheet["probability"].to_list() == pytest.approx(text["probability"].cast(pl.Float64).to_list())
    assert pl.read_excel(f"{out}-who.xlsx").height == 4
    done = run("aggregate", path, "-m", "majority", "--decimal-comma")
    commas = pl.read_csv(done.stdout.encode(), separator=";", decimal_comma=True)
    assert commas["probability"].to_list() == pytest.approx(sheet["probability"].to_list())


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


# -------------------------------------------------------------------- decisions, names


def test_verdicts_are_written_and_come_back_in(tmp_path: Path) -> None:
    crowd = cw.simulate.hammer_spammer(300, n_annotators=10, share=0.8, votes_per_item=6, random_state=0)
    path, people = tmp_path / "votes.csv", tmp_path / "people.csv"
    crowd.votes.to_frame(kind="polars").write_csv(path)
    assert run("aggregate", path, "-o", tmp_path / "o.csv", "--annotators", people).returncode == 0
    table, found = pl.read_csv(people), cw.diagnose(crowd.votes)
    drop = {str(name) for name in found.by_verdict("drop")}
    assert drop and set(table.filter(pl.col("verdict") == "drop")["annotator"].cast(str)) == drop
    assert table.filter(pl.col("verdict") == "drop")["reason"].str.len_chars().min() > 0
    without = cw.aggregate(path, "majority", exclude=people)
    assert not drop & set(map(str, without.annotators.tolist())) and len(without.annotators) == 10 - len(drop)
    keep = {str(name) for name in found.by_verdict("keep")}
    done = run("describe", path, "--exclude", people, "--only-verdict", "keep", "--json")
    assert json.loads(done.stdout)["annotators"] == len(keep)
    with pytest.raises(InputError, match="no annotator has the verdict 'kep'"):
        cw.aggregate(path, exclude=people, only_verdict="kep")
    (tmp_path / "names.csv").write_text("annotator,why\n3,slow\n")
    with pytest.raises(ColumnError, match="only_verdict needs a column 'verdict'"):
        cw.aggregate(path, exclude=tmp_path / "names.csv", only_verdict="keep")
    with pytest.raises(ParameterError, match=r"only_verdict: name the file.*exclude='annotators.csv'"):
        cw.aggregate(path, only_verdict="keep")


def test_no_name_of_an_annotator_leaves_the_house(tmp_path: Path) -> None:
    rows = [[r[0], f"{r[1]}@firma.de", r[2]] for r in long()[1:]]
    path, key = write([long()[0], *rows], tmp_path / "votes", "csv"), tmp_path / "key.csv"
    done = run("aggregate", path, "-v", "-o", tmp_path / "o.csv", "--annotators", tmp_path / "a.csv", "--report",
               tmp_path / "r.html", "--pseudonymise", key)  # fmt: skip
    assert done.returncode == 0 and "annotator 1" in done.stderr
    pages = [(tmp_path / name).read_text() for name in ("o.csv", "a.csv", "r.html")]
    assert not any("firma" in text for text in (done.stderr, done.stdout, *pages))
    who = dict(pl.read_csv(key).rows())
    assert sorted(who) == sorted({row[1] for row in rows}) and len(set(who.values())) == 4
    assert key.stat().st_mode & 0o077 == 0
    more = write([long()[0], *rows, ["t0", "new@firma.de", "neutral"]], tmp_path / "more", "csv")
    assert cw.aggregate(more, "majority", pseudonymise=key).annotators.tolist()[:4] == [
        who[f"{p}@firma.de"] for p in PEOPLE
    ]
    assert dict(pl.read_csv(key).rows()) == {**who, "new@firma.de": "annotator 5"}
    plain, renamed = cw.aggregate(path), cw.aggregate(path, pseudonymise=key)
    assert plain.labels.tolist() == renamed.labels.tolist() and np.allclose(plain.posterior, renamed.posterior)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ColumnError, match="expected the columns annotator and pseudonym"):
        cw.aggregate(path, pseudonymise=tmp_path / "other.csv")


def test_names_of_codes_are_shown_and_codes_are_written(tmp_path: Path) -> None:
    path, names = write(long(("0", "1", "2")), tmp_path / "votes", "csv"), tmp_path / "names.csv"
    names.write_text("class,name\n0,schlecht\n1,mittel\n2,gut\n")
    out, page, truth = tmp_path / "o.csv", tmp_path / "r.html", tmp_path / "truth.csv"
    truth.write_text("item,label\nt0,2\nt1,1\nt3,0\n")
    done = run("aggregate", path, "-v", "-o", out, "--report", page, "--names", names, "--truth", truth)
    assert "schlecht" in done.stderr and "schlecht" in page.read_text() and "3 items" in done.stderr
    assert set(pl.read_csv(out, infer_schema=False)["label"]) == {"0", "1", "2"}
    assert "class 0" not in run("diagnose", path, "--names", names).stdout
    names.write_text("item,name\nt6,Haus am See\nt99,nirgends\n")
    done = run("report", path, "--names", names, "-o", page)
    assert "Haus am See" in page.read_text() and "No item is called 't99'" in done.stderr
    for text, words in (
        ("class,name\n0,a\n1,a\n", "Two classes have the same name"),
        ("x,y\n1,2\n", "class (or item) and name"),
    ):
        names.write_text(text)
        done = run("report", path, "--names", names, "-o", page)
        assert done.returncode == 1 and words in done.stderr


@pytest.mark.parametrize(
    ("classes", "hint"),
    [("12345", "1 to 5"), (("-3", "-2", "-1", "0", "1"), "-3 to 1"), ("012", ""), ("01", ""), ("124", ""), ("abc", "")],
)
def test_numbers_in_a_row_may_be_ordered(classes: Any, hint: str, tmp_path: Path) -> None:
    path = write(long(tuple(classes)), tmp_path / "votes", "csv")
    done = run("aggregate", path, "-m", "majority")
    assert (
        (f"The classes are the numbers {hint}, read as" in done.stderr)
        == ("say --answers ordinal" in done.stderr)
        == bool(hint)
    )
    assert any("say answer_type='ordinal'" in str(found) for found in cw.check(path).findings) == bool(hint)
    assert "answer_type" not in cw.check(path).options
    assert "ordinal" not in str(cw.check(path, answer_type="votes"))


def test_columns_that_each_answer_a_question_are_named(tmp_path: Path) -> None:
    rows = [["doc", "annotator", "toxic", "tone", "created_at"]]
    rows += [[n, a, "ny"[(n + k) % 2], "ab"[(n * k) % 2], f"2026-03-01 10:{n:02d}:00"]
             for n in range(20) for k, a in enumerate(PEOPLE)]  # fmt: skip
    path = write(rows, tmp_path / "votes", "csv")
    with pytest.raises(ColumnError, match=r"'toxic', 'tone' may each answer a question .*label='toxic' or"):
        cw.read_votes(path)
    assert cw.check(path).options == {"label": "toxic"}
    assert "--label toxic or tone" in run("aggregate", path).stderr


def test_empty_columns_are_no_annotators_and_files_are_items(tmp_path: Path) -> None:
    sheet = {"Filename": [f"{n:03d}.jpg" for n in range(N)], **crowd(), "Unnamed: 6": [None] * N}
    del sheet["item"]
    rows = [list(sheet), *(list(row) for row in zip(*sheet.values(), strict=True))]
    found = cw.check(write(rows, tmp_path / "votes", "csv"))
    roles = {column["column"]: column["role"] for column in found.facts["columns"]}
    assert roles["Filename"] == "item" and roles["Unnamed: 6"] == "empty" and found.facts["annotators"] == 4
