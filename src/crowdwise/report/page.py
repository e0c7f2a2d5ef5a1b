"""The dict of a report -> one HTML page that needs nothing else: no network, no other file.

The templates hold all markup and escape every name and text. A policy in the page itself forbids it to load anything
and to run any script but its own (by that script's hash), so a name that is a script does nothing even if it got in.

Tables and the dict stand in the page compressed, for the buttons that save them. A page stays small however large the
crowd: it shows the first annotators and items, and says where it cut. Of the table of items the page keeps as many
as fit in ``MOST_TABLE``, those to review first.
"""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import itertools
import json
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from crowdwise import registry
from crowdwise.core.intervals import interval_text
from crowdwise.data.folders import write_text
from crowdwise.data.sheets import DRAWN, safe_cell
from crowdwise.errors import ExtraError, OutputError
from crowdwise.report.build import build_report
from crowdwise.report.section_summary import interval_words
from crowdwise.report.votes import MOST_ROWS
from crowdwise.trust.wording import named, percent

TEMPLATES = Path(__file__).parent / "templates"
MOST_TABLE = 2_600_000
"""Characters of a compressed table in the page."""
MOST_LINK = 1_500_000
"""Characters of the labels that stand in the page as a link; beyond it they are in the table of items only."""
LABEL_COLUMNS = ("item", "label", "probability")
"""Columns of the table of items that are the labels of votes; of other answers all are what was found."""
SAMPLE = 20_000
"""Rows from which the size of a large table is estimated before all of it is written."""


def write_report(
    answers: Any, result: Any, path: str | os.PathLike[str], *, truth: Any = None, gold: Any = None,
    title: str | None = None, **options: Any,
) -> Path:  # fmt: skip
    """Write a report as one HTML file, for votes and for every other answer type.

    Parameters
    ----------
    answers, result
        Votes (or a dataframe, a file, a data set, a table of other answers), and the result of a fit; ``None`` fits the
        default method.
    path
        The file, whose name ends in ``.html`` (or ``.htm``).
    truth, gold, title, **options
        As in :func:`crowdwise.build_report`: also texts, images, attributes and demographics to show, ``level`` and
        ``progress``.

    >>> import crowdwise as cw, tempfile, pathlib
    >>> crowd = cw.simulate.one_coin(100, n_annotators=8, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = cw.write_report(crowd.votes, None, pathlib.Path(folder) / "report.html")
    ...     file.read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise OutputError(f"{path}: a report is an HTML page: expected a name ending in .html.")
    check_extra()
    report = build_report(answers, result, truth=truth, gold=gold, title=title, all_items=True, **options)
    write_text(page(report), path)
    return Path(path)


def check_extra() -> None:
    """Raise where the templates' engine is not installed, before any work is done."""
    from importlib.util import find_spec

    if find_spec("jinja2") is None:
        raise ExtraError("A report needs jinja2, not installed here: pip install 'crowdwise[report]'.")


def page(report: dict[str, Any]) -> str:
    """The page of a report made by :func:`crowdwise.build_report`, with ``item_table`` or without."""
    check_extra()
    from jinja2 import Environment, FileSystemLoader

    engine = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    filters = {"pct": pct, "num": num, "count": count, "safejson": safe_json, "short": short, "ends": ends, "ci": ci}
    engine.filters |= filters | {"called": called, "people": people, "begun": lambda text: text[:1].upper() + text[1:]}
    parts = engine.get_template("parts.html").module
    engine.globals |= {name: macro for name, macro in vars(parts).items() if not name.startswith("_")}
    script = (TEMPLATES / "script.js").read_text(encoding="utf-8")
    return engine.get_template("answers.html" if "tables" in report else "votes.html").render(
        r=report, rows=report.get("annotators", [])[:MOST_ROWS], files=_files(report), labels=_labels(report),
        sheet=_sheet(report), trace=objective_line(report["method"]["trace"]),
        diagram=reliability_diagram(report.get("truth")), style=(TEMPLATES / "style.css").read_text(encoding="utf-8"),
        script=script, digest=base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii"),
    )  # fmt: skip


def _sheet(report: dict[str, Any]) -> str:
    """The items to label by hand as a CSV file in a link."""
    names = (report.get("proof") or {}).get("sheet") or []
    return quote(_csv(["item", "label", DRAWN], ([name, "", len(names)] for name in names)))


def pct(x: float | None, digits: int = 0) -> str:
    """``0.934`` as ``93%``; an en dash for nothing."""
    return "–" if x is None else percent(x, digits)


def num(x: float | None, digits: int = 2) -> str:
    """A number with a true minus sign, an en dash for nothing."""
    if x is None:
        return "–"
    text = f"{x:,.{digits}f}"
    return (text.lstrip("-") if not text.strip("-0.") else text).replace("-", "\u2212")


def ends(interval: tuple[float | None, float | None], digits: int = 3, share: bool = False) -> str:
    """Two ends of an interval: ``0.61-0.66``; of a share ``61-66%``."""
    if interval[0] is None or interval[1] is None:
        return "–"
    if share:
        return interval_text(interval[0], interval[1], form=percent).partition("CI ")[2]
    low, high = (num(x, digits) for x in interval)
    return f"{low}-{high}" if low[0].isdigit() and high[0].isdigit() else f"{low} to {high}"


def ci(interval: dict[str, Any], digits: int = 1) -> str:
    """The interval of a share: ``95% CI 61.0-66.2%``; of a measured one, why there is none where that is so."""
    form = partial(percent, digits=digits)
    if interval["low"] is None:
        return interval_words(interval, form)
    return interval_text(interval["low"], interval["high"], level=interval["level"], form=form)


def count(x: float | None) -> str:
    """``12345`` as ``12,345``."""
    return "–" if x is None else f"{x:,.0f}"


def short(text: str, most: int = 14) -> str:
    """The beginning of a name that is too long for a drawing."""
    return text if len(text) <= most else text[: most - 1] + "…"


def called(name: Any, what: str) -> str:
    """A name as it is shown: ``annotator 59`` where it is a number."""
    return named(what, name)


def people(names: Sequence[str]) -> str:
    """``ann, bob``; ``annotators 3, 14`` where names are numbers."""
    plain = [name for name in names if named("", name) == name]
    numbers = [name for name in names if named("", name) != name]
    numbered = [f"annotator{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"] if numbers else []
    return ", ".join([*plain, *numbered])


def safe_json(value: Any) -> Any:
    """JSON that may stand inside a script element: nothing in it can end the element."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _files(report: dict[str, Any]) -> list[dict[str, Any]]:
    """What the buttons save: name, words, size, compressed content."""
    people, items = report.get("annotator_table"), report.get("item_table")
    rows, out = report.get("annotators"), []
    if rows:  # votes
        every = len(rows) == report["data"]["annotators"]
        words = "All annotators" if every else f"The {len(rows):,} annotators that matter most"
        out.append(_file("annotators.csv", words, _csv_of_rows(rows)))
    if people is not None:
        out.append(_file("annotators.csv", "All annotators", _csv(list(people), zip(*people.values(), strict=True))))
    if (objects := report.get("object_table")) is not None:
        out.append(_file("objects.csv", "All objects", _csv(list(objects), zip(*objects.values(), strict=True))))
    if items is not None:
        out.append(_item_file(items, "items to review first" if "rank" in items else "items that come first"))
    pairs = [
        {"group": g + 1, "annotator": link["from"], "other": link["to"], "strength": link["strength"]}
        for g, group in enumerate(report.get("groups", {}).get("groups", []))
        for link in group["links"]
    ]
    tables = (
        ("groups.csv", "Pairs that go together", pairs),
        ("agreement.csv", "Agreement", report["agreement"] or []),
    )
    out += [_file(name, words, _csv_of_rows(table)) for name, words, table in tables if table]
    whole = {key: value for key, value in report.items() if not key.endswith("_table")}
    return [*out, _file("report.json", "Everything, as JSON", json.dumps(whole, ensure_ascii=False, allow_nan=False))]


def _labels(report: dict[str, Any]) -> dict[str, Any] | None:
    """The labels as a link that holds its own file; ``None`` where they are too many for that."""
    table = report.get("object_table", report.get("item_table"))
    if table is None:
        return None
    classes = registry.ANSWER_TYPES[report["answer_type"]].table == registry.ANSWER_TYPES[registry.VOTES].table
    names = [name for name in LABEL_COLUMNS if name in table] if classes else list(table)
    text = _csv(names, zip(*(table[name] for name in names), strict=True))
    if len(text) > MOST_LINK:
        return None
    data = text.encode("utf-8")
    link = f"data:text/csv;charset=utf-8;base64,{base64.b64encode(data).decode('ascii')}"
    return {"name": "consensus.csv", "rows": len(table["item"]), "size": len(data), "link": link}


def _file(name: str, words: str, text: str) -> dict[str, Any]:
    packed = base64.b64encode(gzip.compress(text.encode("utf-8"), 6, mtime=0)).decode("ascii")
    return {"name": name, "words": words, "size": len(text.encode("utf-8")), "packed": packed}


def _item_file(table: dict[str, list[Any]], which: str) -> dict[str, Any]:
    """All items; where that is too much for a page, those of the first ranks (without ranks, the first)."""
    names, total = list(table), len(table["item"])
    rows = list(zip(*table.values(), strict=True))
    sample = rows[:: total // SAMPLE] if total > 2 * SAMPLE else []
    size = len(_file("", "", _csv(names, sample))["packed"]) * total / len(sample) if sample else 0.0
    if size <= 1.25 * MOST_TABLE:  # a sample is packed less well than the whole: this may fit
        file = _file("items.csv", "All items", _csv(names, rows))
        if len(file["packed"]) <= MOST_TABLE:
            return file
        size = len(file["packed"])
    kept = int(0.9 * total * MOST_TABLE / size)
    rank = table.get("rank", range(total))
    order = sorted(range(total), key=lambda n: (rank[n] is None, rank[n]))[:kept]
    return _file("items.csv", f"The {kept:,} {which}, of {total:,}", _csv(names, (rows[n] for n in sorted(order))))


def _csv_of_rows(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = ([row.get(name) for name in names] for row in rows)
    return _csv(names, (["; ".join(map(str, v)) if isinstance(v, list) else v for v in row] for row in cells))


def _csv(names: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table for spreadsheets: no cell is a formula."""
    out = io.StringIO()
    writer = csv.writer(out)  # lines end as the standard says, which also quotes cells with a line end of any kind
    writer.writerows([safe_cell(cell) for cell in row] for row in itertools.chain([names], rows))
    return out.getvalue()


BOX = 300.0
"""Width and height of the reliability diagram."""


def objective_line(trace: list[float]) -> dict[str, Any] | None:
    """The objective as points of a line in a box of 100 x 40."""
    values = [x for x in trace if x is not None]
    if len(values) < 2:
        return None
    low, high = min(values), max(values)
    room = (high - low) or 1.0
    points = [f"{100 * i / (len(values) - 1):.2f},{38 - 36 * (x - low) / room:.2f}" for i, x in enumerate(values)]
    return {"points": " ".join(points), "first": values[0], "last": values[-1]}


def reliability_diagram(truth: dict[str, Any] | None) -> dict[str, Any] | None:
    """Points of the calibration curve with intervals, the larger the more items, and ticks, in a box of ``BOX``.

    Both axes begin at the tenth under the least value.
    """
    if not truth or not truth["reliability"]["probability"]:
        return None
    table = truth["reliability"]
    names = ("probability", "accuracy", "low", "high")
    start = min(float(np.floor(10.0 * min(x for name in names for x in table[name]))) / 10.0, 0.9)
    most = max(table["items"])

    def at(x: float) -> float:
        return round(BOX * (x - start) / (1.0 - start), 1)

    rows = zip(*(table[name] for name in (*names, "items")), strict=True)
    points = [
        {
            "x": at(p), "y": BOX - at(a), "low": BOX - at(low), "high": BOX - at(high),
            "r": round(3.0 + 7.0 * float(np.sqrt(n / most)), 1), "probability": p, "accuracy": a, "items": n,
        }
        for p, a, low, high, n in rows
    ]  # fmt: skip
    step = 0.1 if start >= 0.5 else 0.2
    ticks = [round(float(x), 2) for x in np.arange(1.0, start - 1e-9, -step)][::-1]
    return {"points": points, "ticks": [{"at": at(x), "value": x} for x in ticks], "box": BOX}
