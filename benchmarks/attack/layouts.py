"""Tables as people and programs lay them out, written in many ways and read back: what differs must be said.

    python benchmarks/attack/layouts.py [--seconds 60] [--seed 0] [--only votes,ratings,...]

A table of answers is made up, with names as they occur (numbers with leading zeros, mail addresses, quotes, other
alphabets, labels that look like numbers, dates or nothing), and written in one of many layouts, formats and encodings,
with what lies around such tables: comments, times, totals, titles, rows that repeat the names of columns. It is read
twice: as its answer type, and as a file of which nothing is known. The answers must be those that were written; else
there must be an error or a warning. ``silent`` counts tables that came back different without a word, ``slow`` reads of
more than five seconds. Counts go to standard output as JSON; the exit status is 1 where anything did not hold.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from targets import conclude, options

import crowdwise as cw
from crowdwise.data.columns import ALIASES
from crowdwise.data.sheets import write_xlsx
from crowdwise.errors import CrowdwiseError, InternalError
from crowdwise.reading import Opened

SLOW = 5.0
Row = tuple[Any, Any, Any]
"""Item, annotator, answer."""
Grid = list[list[Any]]

ITEMS: tuple[Callable[[int], str], ...] = (
    "t{}".format, str, "{:03d}".format, "10{:05d}".format, "photo {}.jpg".format, "Is {} true, or not?".format,
    'He said "{}"'.format, "Straße {}".format, "样本{}".format, "2024-01-{:02d}".format, "1.{}".format, "doc/{}".format,
    "{}e5".format, "https://x.org/{}".format, "two\nlines {}".format,
)  # fmt: skip
PEOPLE: tuple[Callable[[int], str], ...] = (
    "ann{}".format, str, "{:02d}".format, "A{}".format, "p{}@x.org".format, "Lee, {}".format, "Zoë {}".format,
    "评{}".format, "gpt-4.{}".format, "Rater {}".format, "user_{}".format, "final{}x".format, "R{}".format,
)  # fmt: skip
CLASSES: tuple[tuple[str, ...], ...] = (
    ("cat", "dog"), ("yes", "no"), ("0", "1"), ("1", "2", "3"), ("01", "02"), ("TRUE", "FALSE"), ("a, b", "c"),
    ("neu;tral", "good"), ("positiv", "négatif"), ("好", "坏"), ("+", "-"), ("<b>", "&amp;"), ("A", "B", "C", "D"),
    ("1.0", "2.0"), ("10%", "20%"), ("1,5", "2,5"), ("None", "some"), ("=x", "@y"), ("left", "right"), ("-1", "1"),
    ("same", "different"), ("1-2", "3-4"), ("2024-01-05", "2024-02-05"), ("low", "medium", "high"), ("1e3", "2e3"),
)  # fmt: skip
LATIN = ("utf-8",) * 6 + ("utf-8-sig", "utf-16", "cp1252", "gb18030")


def drawn(rng: random.Random, answer: Callable[[], Any]) -> list[Row]:
    """Answers of a few annotators on a few items; most of them answer most."""
    item, person, start = rng.choice(ITEMS), rng.choice(PEOPLE), rng.choice((0, 1, 7))
    n_items, n_people, share = rng.randint(3, 14), rng.randint(2, 6), rng.choice((1.0, 1.0, 0.7, 0.4))
    rows = [
        (item(start + n), person(start + m), answer())
        for n in range(n_items)
        for m in range(n_people)
        if rng.random() < share or n % n_people == m
    ]
    if rng.random() < 0.5:
        rng.shuffle(rows)
    return rows


def heading(rng: random.Random, part: str) -> str:
    """A name that readers know for a part, as people write it."""
    name = rng.choice(ALIASES[part][:12] if rng.random() < 0.7 else ALIASES[part])
    return rng.choice(
        (name, name.title(), name.upper(), name.replace(" ", "_"), f"{name}_id" if part != "label" else name)
    )


def long(rows: list[Row], rng: random.Random, answer: str = "label") -> Grid:
    """A row for each answer, and what lies beside it."""
    columns = {
        heading(rng, "item"): [row[0] for row in rows], heading(rng, "annotator"): [row[1] for row in rows],
        heading(rng, answer): [row[2] for row in rows],
    }  # fmt: skip
    if len(columns) < 3:
        return long(rows, rng, answer)
    beside: dict[str, Callable[[int], Any]] = {
        "comment": lambda n: rng.choice(("", f"not sure about {n}")), "seconds": lambda n: rng.randint(1, 90),
        "timestamp": lambda n: f"2024-03-{n % 28 + 1:02d}T10:{n % 60:02d}:00", "row": lambda n: n,
        "batch": lambda n: "b1", "language": lambda n: rng.choice(("en", "de")), "confidence": lambda n: rng.random(),
    }  # fmt: skip
    for name in rng.sample(list(beside), rng.choice((0, 0, 1, 2))):
        columns[name] = [beside[name](n) for n in range(len(rows))]
    names = list(columns)
    if rng.random() < 0.4:
        rng.shuffle(names)
    grid: Grid = [names, *([columns[name][n] for name in names] for n in range(len(rows)))]
    return grid


def wide(rows: list[Row], rng: random.Random, answer: str = "label") -> Grid:
    """A row for each item, a column for each annotator, and what lies beside them."""
    items, people = list(dict.fromkeys(r[0] for r in rows)), list(dict.fromkeys(r[1] for r in rows))
    cells = {row[:2]: row[2] for row in rows}
    first = rng.choice((heading(rng, "item"), heading(rng, "item"), "", "Nr.", "ID"))
    grid: Grid = [[first, *people], *([item, *(cells.get((item, who)) for who in people)] for item in items)]
    if rng.random() < 0.1:
        grid[0].append("Comment")
        for n, line in enumerate(grid[1:]):
            line.append(rng.choice((None, f"see {n}", "unclear")))
    if rng.random() < 0.1:
        grid[0].append(rng.choice(("Final", "Consensus", "Gold")))
        for line in grid[1:]:
            line.append(rng.choice([x for x in line[1:] if x is not None]))
    if rng.random() < 0.1:
        low = rng.choice((0, 0, 100))
        grid.append([rng.choice(("Total", "Summe", "Total:")), *(str(low + n) for n in range(len(grid[0]) - 1))])
    return grid


def by_person(rows: list[Row], rng: random.Random, answer: str = "label") -> Grid:
    """A row for each annotator, a column for each item."""
    items, people = list(dict.fromkeys(r[0] for r in rows)), list(dict.fromkeys(r[1] for r in rows))
    cells = {row[:2]: row[2] for row in rows}
    return [
        [heading(rng, "annotator"), *items],
        *([who, *(cells.get((item, who)) for item in items)] for who in people),
    ]


def ticked(rows: list[Row], rng: random.Random, answer: str = "label") -> Grid:
    """A column for each class, with a mark in one of them."""
    classes, mark = sorted({row[2] for row in rows}), rng.choice(("x", "1", "✓", "TRUE"))
    blank = {"1": "0", "TRUE": "FALSE"}.get(mark) if rng.random() < 0.5 else None
    return [
        [heading(rng, "item"), heading(rng, "annotator"), *classes],
        *([item, who, *(mark if label == one else blank for one in classes)] for item, who, label in rows),
    ]


def paired(rows: list[Row], rng: random.Random, answer: str = "label") -> Grid:
    """``Annotator 1``, ``Label 1``, ``Annotator 2``..."""
    items: dict[Any, list[Any]] = {}
    for item, who, label in rows:
        items.setdefault(item, []).extend((who, label))
    most = max(map(len, items.values()))
    names = [f"{word} {n + 1}" for n in range(most // 2) for word in ("Annotator", "Label")]
    return [
        [heading(rng, "item"), *names],
        *([item, *cells, *[None] * (most - len(cells))] for item, cells in items.items()),
    ]


def framed(grid: Grid, rng: random.Random) -> Grid:
    """With a title above, empty lines, or the names of columns again."""
    if rng.random() < 0.06:
        return [["Project X, round 2"], [], *grid]
    if rng.random() < 0.06:
        at = rng.randint(1, len(grid))
        return [*grid[:at], [None] * len(grid[0]), *grid[at:]]
    if rng.random() < 0.04:
        at = rng.randint(2, len(grid))
        return [*grid[:at], grid[0], *grid[at:]]
    return grid


def as_csv(grid: Grid, rng: random.Random) -> tuple[str, bytes]:
    separator, out = rng.choice(",,,;\t|"), io.StringIO()
    quoting = rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    writer = csv.writer(out, delimiter=separator, lineterminator=rng.choice(("\n", "\r\n")), quoting=quoting)
    writer.writerows([["" if cell is None else cell for cell in line] for line in grid])
    encoding = rng.choice(LATIN)
    try:
        content = out.getvalue().encode(encoding)
    except UnicodeEncodeError:
        content = out.getvalue().encode()
    if rng.random() < 0.1 and content.isascii():
        return f"{'tsv' if separator == chr(9) else 'csv'}.gz", gzip.compress(content)
    return ("tsv" if separator == "\t" else "csv"), content


def as_sheet(grid: Grid, rng: random.Random) -> tuple[str, bytes]:
    """A workbook, with numbers as numbers where these say the same, and another sheet."""

    def typed(cell: Any) -> Any:
        plain = isinstance(cell, str) and cell.isdigit() and str(int(cell)) == cell
        return int(cell) if plain and numbers else cell

    numbers = rng.random() < 0.7
    sheets = {"Sheet1": [[typed(cell) for cell in line] for line in grid]}
    if rng.random() < 0.15:
        sheets["Notes"] = [["read me"], ["written by hand"]]
    with tempfile.TemporaryDirectory() as folder:
        return "xlsx", write_xlsx(Path(folder) / "x.xlsx", sheets).read_bytes()


def objects(grid: Grid) -> list[dict[str, Any]]:
    return [dict(zip(map(str, grid[0]), line, strict=True)) for line in grid[1:]]


def as_json(grid: Grid, rng: random.Random) -> tuple[str, bytes]:
    rows = objects(grid)
    if rng.random() < 0.5:
        return "jsonl", "\n".join(json.dumps(row, ensure_ascii=rng.random() < 0.5) for row in rows).encode()
    forms: tuple[Any, ...] = (
        rows, {"data": rows}, {name: [row[name] for row in rows] for name in rows[0]}, grid,
        {"columns": grid[0], "data": grid[1:]},
    )  # fmt: skip
    return "json", json.dumps(rng.choice(forms), indent=rng.choice((None, 1))).encode()


def as_binary(grid: Grid, rng: random.Random) -> tuple[str, bytes]:
    out, form = io.BytesIO(), rng.choice(("parquet", "arrow"))
    frame = pl.DataFrame(objects(grid), infer_schema_length=None, strict=False)
    if rng.random() < 0.3:
        frame = frame.with_columns(pl.col(pl.String).cast(pl.Categorical))
    (frame.write_parquet if form == "parquet" else frame.write_ipc)(out)
    return form, out.getvalue()


def nested(rows: list[Row], rng: random.Random, answer: str = "label") -> tuple[str, bytes]:
    """JSON with the answers of an item inside it."""
    items: dict[Any, list[Row]] = {}
    for row in rows:
        items.setdefault(row[0], []).append(row)
    who = rng.choice(("annotator", "worker", "rater"))
    forms: tuple[Any, ...] = (
        [{"item": n, "annotations": [{who: m, answer: k} for _, m, k in some]} for n, some in items.items()],
        [{"task": n, f"{who}s": [m for _, m, _ in some], "labels": [k for *_, k in some]} for n, some in items.items()],
        {n: {m: k for _, m, k in some} for n, some in items.items()},
        {n: [{who: m, answer: k} for _, m, k in some] for n, some in items.items()},
    )  # fmt: skip
    form = rng.choice(forms if answer == "label" else forms[:1])
    if isinstance(form, list) and rng.random() < 0.5:
        return "jsonl", "\n".join(map(json.dumps, form)).encode()
    return "json", json.dumps(form).encode()


def merged(rows: list[Row], rng: random.Random, answer: str = "label") -> tuple[str, bytes]:
    """A workbook whose items stand once, in cells that are merged down; with a heading that is merged over columns."""
    rows, beside = sorted(rows, key=lambda row: str(row[0])), rng.random() < 0.3
    names = [heading(rng, "item"), heading(rng, "annotator"), heading(rng, answer)]
    grid, places = [names], list[str]()
    if beside:
        grid, places = [["Round 2", None, None], names], ["A1:C1"]
    for n, row in enumerate(rows):
        first = not n or rows[n - 1][0] != row[0]
        grid.append([row[0] if first else None, *row[1:]])
        last = n + 1 == len(rows) or rows[n + 1][0] != row[0]
        if last and not first:
            begin = next(i for i, one in enumerate(rows) if one[0] == row[0])
            places.append(f"A{begin + len(grid) - n}:A{len(grid)}")
    with tempfile.TemporaryDirectory() as folder:
        path = write_xlsx(Path(folder) / "x.xlsx", {"Votes": grid})
        with zipfile.ZipFile(path) as book:
            parts = {info.filename: book.read(info) for info in book.infolist()}
    cells = "".join(f"<mergeCell ref='{place}'/>" for place in places)
    sheet = "xl/worksheets/sheet1.xml" if "xl/worksheets/sheet1.xml" in parts else "xl/worksheets/s1.xml"
    parts[sheet] = parts[sheet].replace(b"</sheetData>", f"</sheetData><mergeCells>{cells}</mergeCells>".encode())
    with zipfile.ZipFile(out := io.BytesIO(), "w") as book:
        for name, part in parts.items():
            book.writestr(name, part)
    return "xlsx", out.getvalue()


def sheets(rows: list[Row], rng: random.Random, answer: str = "label") -> tuple[str, bytes]:
    """A workbook with a sheet for each annotator, or for each part of the rows."""
    pages: dict[str, Grid] = {}
    names = [heading(rng, "item"), heading(rng, answer)]
    if rng.random() < 0.5:
        for item, who, label in rows:
            name = "".join(letter for letter in str(who) if letter not in "[]:*?/\\'")[:31]
            pages.setdefault(name, [names]).append([item, label])
    else:
        names.insert(1, heading(rng, "annotator"))
        half = len(rows) // 2
        pages = {"Part 1": [names, *map(list, rows[:half])], "Part 2": [names, *map(list, rows[half:])]}
    with tempfile.TemporaryDirectory() as folder:
        return "xlsx", write_xlsx(Path(folder) / "x.xlsx", pages).read_bytes()


def grouped(rows: list[Row], rng: random.Random, answer: str = "label") -> Grid:
    """A wide table whose names stand below headings of groups."""
    grid = wide(rows, rng, answer)
    half = len(grid[0]) // 2
    top = [None, "Team A", *[None] * (len(grid[0]) - 2)]
    if half > 1:
        top[half] = "Team B"
    return [top, *grid]


WHOLE = (nested, merged, sheets)
"""Layouts that are files of their own."""


def written(rows: list[Row], rng: random.Random, layouts: Any, answer: str) -> tuple[str, str, bytes]:
    """A layout, the ending of a file, and its content."""
    layout = rng.choice(layouts)
    if layout in WHOLE:
        return layout.__name__, *layout(rows, rng, answer)
    grid = layout(rows, rng, answer)
    form = rng.choice((as_csv, as_csv, as_csv, as_sheet, as_sheet, as_json, as_binary))
    if form in (as_csv, as_sheet):
        grid = framed(grid, rng)
    elif len(set(grid[0])) < len(grid[0]):
        form = rng.choice((as_csv, as_sheet))
    ending, content = form(grid, rng)
    if rng.random() < 0.05:
        with zipfile.ZipFile(out := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"votes.{ending}", content)
        return layout.__name__, "zip", out.getvalue()
    return layout.__name__, ending, content


def plain(cell: Any) -> str:
    """A name or an answer as it is compared: a number is the same however it is typed."""
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return str(cell)


def number(cell: Any) -> str:
    return f"{float(cell):.9g}"


def read_back(answers: Any, column: str, as_text: Callable[[Any], str]) -> Counter[tuple[str, str, str]]:
    frame = answers.to_frame(kind="polars")
    if column == "outcome":
        rows = frame.select("left", "right", "annotator", "outcome").rows()
        return Counter(sided((a, b), m, ("left", "right", "tie").index(word)) for a, b, m, word in rows)
    names = ("item", "annotator", column)
    return Counter(
        (plain(a), plain(b), as_text(c)) for a, b, c in zip(*(frame[name].to_list() for name in names), strict=True)
    )


def of_votes(rng: random.Random) -> tuple[list[Row], Any, str]:
    classes = rng.choice(CLASSES)
    layouts = (long, long, wide, wide, by_person, ticked, paired, nested, merged, sheets, grouped)
    return drawn(rng, lambda: rng.choice(classes)), layouts, "label"


def of_ratings(rng: random.Random) -> tuple[list[Row], Any, str]:
    """Numbers as text: with decimals, of thousands, negative, with signs."""
    form = rng.choice((
        lambda: f"{rng.uniform(0, 100):.2f}", lambda: f"{rng.uniform(-5, 5):.3f}", lambda: f"{rng.uniform(0, 1):.4f}",
        lambda: str(rng.randint(0, 100)), lambda: f"{rng.uniform(0, 100):.2f}".replace(".", ","),
        lambda: f"{rng.randint(0, 100)}%", lambda: f"{rng.uniform(1e3, 9e4):.0f}", lambda: f"${rng.randint(1, 99)}",
        lambda: f"{rng.uniform(1e-6, 1e-3):.3e}", lambda: f"{rng.randint(1000, 99999):,}",
        lambda: f"{rng.uniform(1e3, 9e4):,.2f}",
    ))  # fmt: skip
    return drawn(rng, form), (long, long, wide, wide, by_person, nested, merged, sheets, grouped), "value"


def value(cell: Any) -> float:
    """The number that a person means."""
    text = str(cell).strip("%$")
    whole, comma, digits = text.rpartition(",")
    return float(text.replace(",", "") if "." in text or len(digits) == 3 else f"{whole}.{digits}" if comma else text)


def of_texts(rng: random.Random) -> tuple[list[Row], Any, str]:
    words = (
        "a red house",
        'she said "no"',
        "one, two; three",
        "Café au lait",
        "two\nlines",
        "NA",
        "7",
        "  blanks  ",
        "句子",
    )
    return drawn(rng, lambda: " ".join(rng.choices(words, k=rng.randint(1, 3)))), (long, long, wide, nested), "text"


def of_label_sets(rng: random.Random) -> tuple[list[Row], Any, str]:
    classes, between = rng.choice((("cat", "dog", "bird"), ("a b", "c", "d"), ("1", "2", "3"))), rng.choice("||,;")
    return drawn(rng, lambda: between.join(sorted(rng.sample(classes, rng.randint(1, 3))))), (long,), "labels"


MODELS = (
    ("gpt-4", "claude", "llama-3"), ("model 1", "model 2", "model 3"), ("tie-dye", "bothy", "drawing"), ("1", "2", "3"),
    ("x", "y", "z"), ("left", "right", "middle"), ("A", "B", "C"), ("007", "7", "07"), ("Qwen, chat", 'say "hi"', "评"),
)  # fmt: skip
VERDICTS: tuple[tuple[str, str, str], ...] = (
    ("left", "right", "tie"), ("A", "B", "tie"), ("model_a", "model_b", "tie (bothbad)"), ("[[A]]", "[[B]]", "[[C]]"),
    ("A>B", "B>A", "A=B"), ("first", "second", "equal"), ("a", "b", "neither"), ("Left", "Right", "Draw"),
    ("1", "2", "tie"),
)  # fmt: skip


def of_comparisons(rng: random.Random) -> tuple[list[Row], Any, str]:
    """Pairs of models, each with the side that an annotator prefers (2: none)."""
    models, ties = rng.choice(MODELS), rng.random() < 0.5
    who = rng.choice(PEOPLE)
    rows = [
        (tuple(rng.sample(models, 2)), who(m), rng.choice((0, 1, 2) if ties else (0, 1)))
        for m in range(rng.randint(1, 4))
        for _ in range(rng.randint(3, 9))
    ]
    return rows, (verdicts,), "outcome"


def verdicts(rows: list[Row], rng: random.Random, answer: str) -> Grid:
    """A row for each comparison: by words for sides, by the name of the winner, or winners beside losers."""
    words, ways = rng.choice(VERDICTS), ["words", "words", "names"]
    if all(side < 2 for *_, side in rows):
        ways.append("both")
    sides, who = (
        rng.choice((("left", "right"), ("model_a", "model_b"), ("item_a", "item_b"))),
        heading(rng, "annotator"),
    )
    way = rng.choice(ways)
    if way == "both":
        return [["chosen", "rejected", who], *([pair[side], pair[1 - side], m] for pair, m, side in rows)]
    said = [words[side] if way == "words" else (*pair, "tie")[side] for pair, _, side in rows]
    grid = [[*sides, rng.choice(("winner", "outcome", "verdict")), who]]
    return grid + [[*pair, word, m] for (pair, m, _), word in zip(rows, said, strict=True)]


def of_rankings(rng: random.Random) -> tuple[list[Row], Any, str]:
    item, who, n = rng.choice(ITEMS), rng.choice(PEOPLE), rng.randint(3, 7)
    rows = []
    for m in range(rng.randint(1, 4)):
        some = rng.sample(range(n), rng.randint(2, n))
        rows += [(item(i), who(m), str(place + 1)) for place, i in enumerate(some)]
    return rows, (ranked,), "rank"


def ranked(rows: list[Row], rng: random.Random, answer: str) -> Grid:
    names = [heading(rng, "item"), heading(rng, "annotator"), rng.choice(("rank", "position", "Rank"))]
    return [names, *map(list, rows)] if len(set(names)) == 3 else ranked(rows, rng, answer)


def sided(pair: Any, who: Any, side: Any) -> tuple[str, str, str]:
    """A comparison, whichever item was named first."""
    first, second = map(plain, pair)
    return (
        f"{min(first, second)} = {max(first, second)}"
        if side == 2
        else f"{(first, second)[side]} > {(second, first)[side]}",
        plain(who),
        "",
    )


READERS: dict[str, Any] = {
    "comparisons": (of_comparisons, cw.read_comparisons, "outcome", None, None),
    "rankings": (of_rankings, cw.read_rankings, "rank", plain, plain),
    "votes": (of_votes, cw.read_votes, "label", plain, plain),
    "ratings": (of_ratings, cw.read_ratings, "value", lambda cell: number(value(cell)), number),
    "texts": (of_texts, cw.read_texts, "text", str, str),
    "label_sets": (
        of_label_sets, cw.read_label_sets, "labels",
        lambda cell: "|".join(sorted(cell.replace(";", "|").replace(",", "|").split("|"))), str,
    ),
}  # fmt: skip


def read(kind: str, path: Path, known: bool) -> tuple[Any, tuple[str, ...]]:
    """Answers, and what the reader notes about them."""
    if known:
        return READERS[kind][1](path), ()
    found = Opened(path).answers
    return found.table, found.notes


def attack(kind: str, seconds: float, rounds: int, seed: int, counts: dict[str, Any]) -> None:
    until, n = time.monotonic() + seconds, 0
    make, _, column, before, after = READERS[kind]
    with tempfile.TemporaryDirectory() as folder:
        while n < rounds if rounds else time.monotonic() < until:
            rng = random.Random(f"{seed} {kind} {n}")
            rows, layouts, answer = make(rng)
            layout, ending, content = written(rows, rng, layouts, answer)
            path = Path(folder) / f"table.{ending}"
            path.write_bytes(content)
            for known in (True, False):
                judge(kind, path, known, f"{layout} {ending}", n, rows, (column, before, after), counts)
            path.unlink()
            n += 1


def judge(
    kind: str, path: Path, known: bool, what: str, n: int, rows: list[Row], how: Any, counts: dict[str, Any]
) -> None:
    column, before, after = how
    counts["reads"] += 1
    began = time.process_time()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            answers, notes = read(kind, path, known)
        except InternalError as error:
            note(counts, "bugs", what, n, "".join(traceback.format_exception(error.__cause__ or error))[-300:])
            return
        except CrowdwiseError as error:
            counts["our_errors"] += 1
            note(counts, "refused", what, n, str(error)[:150], few=True)
            return
        except Exception as error:
            note(counts, "foreign", what, n, repr(error)[:300])
            return
        finally:
            counts["slow"] += time.process_time() - began > SLOW
    wanted = Counter(sided(*row) if before is None else (plain(row[0]), plain(row[1]), before(row[2])) for row in rows)
    try:
        found = read_back(answers, column, after)
    except (pl.exceptions.ColumnNotFoundError, ValueError, TypeError):
        found = Counter()
    if found == wanted:
        counts["same"] += 1
    elif said or notes or (not known and type(answers) is not type_of(kind)):
        counts["said"] += 1
    else:
        less, more = list((wanted - found).items())[:2], list((found - wanted).items())[:2]
        note(counts, "silent", what, n, f"known={known} written {less}, read {more}")


def type_of(kind: str) -> type:
    types = {"votes": cw.Votes, "ratings": cw.Ratings, "texts": cw.Texts, "label_sets": cw.LabelSets}
    return (types | {"comparisons": cw.Comparisons, "rankings": cw.Rankings})[kind]


def note(counts: dict[str, Any], outcome: str, what: str, n: int, text: str, few: bool = False) -> None:
    if not few:
        counts[outcome] += 1
    shown = counts["examples"].setdefault(outcome, {})
    shown.setdefault(what, f"n={n}: {text}")


def main() -> int:
    given = options(__doc__, READERS).parse_args()
    out, names = {}, given.only.split(",")
    for kind in names:
        out[kind] = dict.fromkeys(("reads", "same", "said", "our_errors", "silent", "bugs", "foreign", "slow"), 0)
        out[kind]["examples"] = {}
        attack(kind, given.seconds / len(names), given.rounds, given.seed, out[kind])
    bad = sum(one[what] for one in out.values() for what in ("silent", "bugs", "foreign", "slow"))
    return conclude(given.seed, out, bad)


if __name__ == "__main__":
    sys.exit(main())
