"""Files as they should not be: hostile cells, damaged bytes, other encodings, in every format and for every reader.

    python benchmarks/attack/reads.py [--seconds 60] [--seed 0] [--only votes,ratings,...,features,folder]

A file is read, or gives one of our errors; no other exception may come, no :class:`~crowdwise.errors.InternalError`
(that is a bug), and nothing may take ten seconds of the processor. Cells of plain text tables that are read must come
back as they were written. Counts go to standard output as JSON; the exit status is 1 where anything did not hold.
"""

from __future__ import annotations

import csv
import gzip
import html
import io
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from targets import conclude, options

import crowdwise as cw
from crowdwise.data.features import read_features
from crowdwise.errors import CrowdwiseError, InternalError

SLOW = 10.0
CELLS = (
    "", " ", "a", "b", "0", "1", "-0", "+1", "007", "1.0", "1.5", "1e308", "-1e308", "1e309", "nan", "NaN", "inf",
    "-inf", "null", "NULL", "None", "NA", "true", "False", "9223372036854775807", "9223372036854775808",
    "18446744073709551616", "-9223372036854775809", "1" * 400, "é", "\u202eabc", "\u0000", "\x1b[31m", "\ufeff", "😀",
    "a,b", 'say "x"', "two\nlines", "two\r\nlines", "\t", "=1+1", "[b]", "a|b", "a|a", "|", "4",
    "1 3", "13", "0 9223372036854775807 9223372036854775807 6", "o" * 500, "mask.png", "mask.npy",
    "/dev/zero", "..", "a' b'" * 50, "[]", "{}", "[1, 2]",
    '{"a": 1}', "B-PER", "I-PER", "O", "2024-01-01", "2024-01-01T00:00:00+02:00", "99999-01-01", "left", "tie",
    "same", "different", "x" * 5000,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    *CELLS, None, True, False, 0, 1, -1, 2**31, 2**53, 2**63, 2**64, -(2**63) - 1, 1.5, 1e308, -0.0, [], [1], ["a"],
    [[1]], {}, {"a": 1}, [None], ["a", 1],
)  # fmt: skip
NAMES: dict[str, tuple[str, ...]] = {
    "votes": ("item", "annotator", "label", "weight", "timestamp", "truth"),
    "ratings": ("item", "annotator", "value", "weight", "timestamp", "truth"),
    "comparisons": ("left", "right", "winner", "annotator", "weight", "timestamp", "question"),
    "rankings": ("item", "rank", "annotator", "question", "weight"),
    "similarities": ("item_a", "item_b", "annotator", "same", "weight"),
    "label_sets": ("item", "annotator", "labels", "offered", "weight", "truth"),
    "tags": ("sequence", "position", "annotator", "tag", "word", "truth"),
    "texts": ("item", "annotator", "text", "weight", "timestamp", "truth"),
    "boxes": ("item", "annotator", "x1", "y1", "x2", "y2", "label", "score", "timestamp"),
    "masks": ("item", "annotator", "mask", "height", "width", "category", "weight", "truth"),
    "spans": ("item", "annotator", "start", "end", "label", "timestamp", "length"),
    "graph": ("source", "target", "weight"),
    "truth": ("item", "label"),
    "guess": ("item", "annotator", "label", "value"),
    "check": ("item", "annotator", "label", "comment", "truth"),
    "map": ("from", "to", "votes", "why"),
}
VOTES = {"item": [1, 1, 2, 2], "annotator": list("xyxy"), "label": list("abba")}


def read_and_fit(read: Callable[..., Any], path: Path, **options: Any) -> None:
    """Read answers of types whose methods compare every two answers on an item, and fit one of these methods."""
    answers = read(path, **options)
    cw.aggregate(answers, random.Random(str(answers)).choice(METHODS[answers.answer_type]))


def check_file(path: Path) -> None:
    """Look at a file; what kept it from being read is an error here."""
    found = cw.check(path)
    str(found), json.dumps(found.to_dict())
    if found.error is not None:
        raise found.error


READERS: dict[str, Callable[..., Any]] = {
    "votes": cw.read_votes, "ratings": cw.read_ratings, "comparisons": cw.read_comparisons,
    "rankings": cw.read_rankings, "similarities": cw.read_similarities, "label_sets": cw.read_label_sets,
    "tags": cw.read_tags, "graph": cw.read_graph, "truth": cw.Votes.read_truth,
    "guess": lambda path: cw.aggregate(path, "majority"), "check": check_file,
    "texts": partial(read_and_fit, cw.read_texts), "boxes": partial(read_and_fit, cw.read_boxes),
    "masks": partial(read_and_fit, cw.read_masks), "spans": partial(read_and_fit, cw.read_spans),
    "map": lambda path: cw.aggregate(VOTES, "majority", label_map=path),
}  # fmt: skip
METHODS = {
    "texts": ("text-auto", "rover", "medoid", "rasa", "hrrasa"), "boxes": ("box-crowd", "box-majority", "box-fusion"),
    "masks": ("signed-distance", "staple", "mask-majority"),
    "spans": ("span-detection", "span-majority", "character-majority"),
}  # fmt: skip
FORMS = (
    "csv", "tsv", "csv.gz", "csv.zst", "jsonl", "parquet", "arrow", "json", "json.gz", "jsonl.gz", "xlsx", "ods", "zip",
)  # fmt: skip
Rows = list[dict[str, Any]]


def rows_of(target: str, rng: random.Random, hostile: tuple[Any, ...]) -> Rows:
    """A few rows, most of them as they should be."""
    plain = {
        "weight": (1, 2, 0.5), "timestamp": (1, 2, 3), "value": (1, 2.5, 3), "position": (0, 1, 2),
        "winner": ("left", "right", "tie"), "same": ("same", "different"), "labels": ("a|b", "a", ""),
        "offered": ("a|b|c",), "text": ("a red house", "A red mouse.", ""), "x1": (0, 1.5), "y1": (0, 1),
        "x2": (4, 5.5), "y2": (3, 4), "score": (0.5, 1), "mask": ("1 3", "13", "4", "0 4", "mask.png", "mask.npy"),
        "height": (2,), "width": (2,), "start": (0, 2), "end": (5, 6), "length": (9,), "word": ("w",),
        "from": ("a", "b"), "to": ("b", "c"), "tag": ("B-PER", "O"), "truth": ("a",), "label": ("a", "b"),
    }  # fmt: skip
    names = [name for name in NAMES[target] if rng.random() < 0.8 or name in NAMES[target][:4]]
    share = rng.choice((0.0, 0.0, 0.02, 0.1, 1.0))
    if rng.random() < 0.1:
        names = rng.sample(names, rng.randint(1, len(names)))
    if rng.random() < 0.1:
        names.append(rng.choice([*CELLS, *NAMES[target]]))
    out = []
    for n in range(rng.choice((0, 1, 2, 5, 20))):
        row = {name: rng.choice(plain.get(name, (f"{name}{n}", f"{name}{n % 4}"))) for name in names}
        row |= {"rank": n + 1} if "rank" in names else {}
        row |= {"truth": "1 3"} if target == "masks" and "truth" in names else {}
        row |= {"truth": 1.5} if target == "ratings" and "truth" in names else {}
        for name in names:
            if rng.random() < share:
                row[name] = rng.choice(hostile)
        out.append(row)
    return out


def as_text(rows: Rows, separator: str, rng: random.Random) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, lineterminator=rng.choice(("\n", "\r\n")))
    names = list(rows[0]) if rows else ["item", "annotator", "label"]
    writer.writerow(names)
    for row in rows:
        cells = [row[name] for name in names]
        if rng.random() < 0.02:
            cells = cells[: rng.randrange(len(cells) + 1)] + ["more"] * rng.randrange(3)
        writer.writerow(cells)
    encoding = rng.choice(("utf-8",) * 8 + ("utf-8-sig", "utf-16", "latin-1", "cp1252", "utf-32"))
    return out.getvalue().encode(encoding, errors="replace")


def as_frame(rows: Rows) -> pl.DataFrame:
    columns = []
    for name in rows[0] if rows else ("item",):
        values = [row[name] for row in rows]
        try:
            columns.append(pl.Series(name, values))
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            columns.append(pl.Series(name, [None if v is None else str(v) for v in values], dtype=pl.String))
    return pl.DataFrame({c.name: c for c in columns})


def as_json(rows: Rows, rng: random.Random) -> bytes:
    """JSON in one of the forms that are read, or nearly."""
    names = list(rows[0]) if rows else ["item"]
    cells = [[row[name] for name in names] for row in rows]
    forms: tuple[Any, ...] = (
        rows, [names, *cells], {name: [row[name] for row in rows] for name in names}, {"data": rows, "version": 2},
        {name: {str(n): row[name] for n, row in enumerate(rows)} for name in names}, {"columns": names, "data": cells},
        [{"id": n, "meta": {"lang": "en"}, "annotations": [row]} for n, row in enumerate(rows)],
        {f"q{n}": row for n, row in enumerate(rows)}, {f"q{n}": [row, row] for n, row in enumerate(rows)},
        {"a": rows, "b": rows}, {"data": [rows]}, [rows, rows], rows[0] if rows else {}, rng.choice(VALUES),
    )  # fmt: skip
    text = json.dumps(rng.choice(forms))
    if rng.random() < 0.03:
        text = rng.choice(("[" * 100_000, '{"a":' * 100_000, text + text, "NaN", "[NaN, Infinity]", text[1:]))
    return text.encode("utf-8", errors="replace")


def as_sheet(rows: Rows, form: str, rng: random.Random) -> bytes:
    """A spreadsheet of one or two sheets, as few parts as a reader needs."""
    names = list(rows[0]) if rows else ["item"]
    table = [names, *([row[name] for name in names] for row in rows)]

    def cell(value: Any, place: str) -> str:
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.8
        text = html.escape(str(value)).replace("\x00", "").replace("\x1b", "")
        if form == "ods":
            kind = f'office:value-type="float" office:value="{value}"' if number else 'office:value-type="string"'
            return f"<table:table-cell {kind}><text:p>{text}</text:p></table:table-cell>"
        kind = rng.choice(("inlineStr",) * 20 + ("s", "b", "e", "d"))
        return (
            f'<c r="{place}"><v>{value}</v></c>' if number else f'<c r="{place}" t="{kind}"><is><t>{text}</t></is></c>'
        )

    lines = [
        "".join(cell(value, f"{chr(65 + c)}{n + 1}") for c, value in enumerate(values))
        for n, values in enumerate(table)
    ]
    out, head = io.BytesIO(), '<?xml version="1.0" encoding="UTF-8"?>'
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        if form == "ods":
            body = "".join(f"<table:table-row>{line}</table:table-row>" for line in lines)
            spaces = " ".join(
                f'xmlns:{x}="urn:oasis:names:tc:opendocument:xmlns:{x}:1.0"' for x in ("office", "table", "text")
            )
            archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
            manifest = "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"
            archive.writestr("META-INF/manifest.xml", f'{head}<m:manifest xmlns:m="{manifest}"></m:manifest>')
            inside = f'<table:table table:name="a">{body}</table:table>'
            archive.writestr("content.xml", f"{head}<office:document-content {spaces}><office:body><office:spreadsheet>"
                             f"{inside}</office:spreadsheet></office:body></office:document-content>")  # fmt: skip
        else:
            main, office = (
                "http://schemas.openxmlformats.org/spreadsheetml/2006/main",
                "http://schemas.openxmlformats.org",
            )
            links = f"{office}/officeDocument/2006/relationships"
            body = "".join(f'<row r="{n + 1}">{line}</row>' for n, line in enumerate(lines))
            parts = {
                "_rels/.rels": f'<Relationships xmlns="{office}/package/2006/relationships"><Relationship Id="r1" '
                f'Type="{links}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
                "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{links}"><sheets><sheet name="a" sheetId="1" '
                'r:id="r1"/></sheets></workbook>',
                "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{office}/package/2006/relationships">'
                f'<Relationship Id="r1" Type="{links}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
                "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{body}</sheetData></worksheet>',
            }
            for name, part in parts.items():
                content = (head + part).encode("utf-8", errors="replace")
                archive.writestr(name, damaged(content, rng) if rng.random() < 0.05 else content)
    return out.getvalue()


def as_zip(target: str, path: Path, rng: random.Random) -> bytes:
    """Tables in a zip archive: one, or another number."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that come twice
        for _ in range(rng.choice((1, 1, 1, 1, 0, 2))):
            inner = path.with_name("inner")
            form = rng.choice([form for form in FORMS if form != "zip"])
            written(target, form, inner, rng)
            name = rng.choice(("votes", "a/b", "../x", "__MACOSX/x", "/x", "x" * 300, "é"))
            archive.writestr(f"{name}.{form}", inner.read_bytes())
            inner.unlink()
    return out.getvalue()


def written(target: str, form: str, path: Path, rng: random.Random) -> None:
    """One file, whole or damaged."""
    text = form.startswith(("csv", "tsv"))
    rows = rows_of(target, rng, CELLS if text else VALUES)
    if text:
        content = as_text(rows, "\t" if form == "tsv" else rng.choice(",,,;|"), rng)
        if rng.random() < 0.2:
            content = damaged(content, rng)
        if form.endswith("zst"):
            packed = io.BytesIO()
            text_of = pl.DataFrame({"x": [content.decode("utf-8", errors="replace")]})
            text_of.write_csv(packed, include_header=False, quote_style="never", compression="zstd")
            content = packed.getvalue()
        elif form.endswith("gz"):
            content = gzip.compress(content)
    elif form.startswith("json"):
        lines = [json.dumps(row) if rng.random() < 0.98 else rng.choice(CELLS) for row in rows]
        plain = "\n".join(lines).encode("utf-8", errors="replace")
        content = plain if form.startswith("jsonl") else as_json(rows, rng)
        content = gzip.compress(content) if form.endswith("gz") else content
    elif form in ("xlsx", "ods"):
        content = as_sheet(rows, form, rng)
    elif form == "zip":
        content = as_zip(target, path, rng)
    else:
        out, frame = io.BytesIO(), as_frame(rows)
        if form == "parquet":
            with suppress(pl.exceptions.PolarsError):  # it has no way to write some nested values
                frame.write_parquet(out)
        else:
            (frame.write_ipc if rng.random() < 0.7 else frame.write_ipc_stream)(out)
        content = out.getvalue()
    path.write_bytes(damaged(content, rng) if rng.random() < 0.3 else content)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, cut, doubled or removed."""
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.randrange(len(content)) if content else 0
        end = min(len(content), at + rng.choice((1, 4, 64)))
        way = rng.randrange(6)
        if way == 0:
            content = content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
        elif way == 1:
            content = content[:at]
        elif way == 2:
            content = content[:at] + rng.randbytes(end - at) + content[end:]
        elif way == 3:
            content = content[:at] + content[end:]
        elif way == 4:
            content = content[:end] + content[at:]
        else:
            content = content[:at] + rng.choice((b"\x00", b"\xff", b'"', b",", b"\n", b"\r", b"[", b"}")) + content[at:]
    return content


def write_images(place: Path, rng: random.Random) -> None:
    """Two masks beside their table, whole, damaged, or of a size that is not theirs."""
    from PIL import Image

    mask, out, array = np.array([[0, 1], [1, 1]], dtype=np.uint8), io.BytesIO(), io.BytesIO()
    Image.fromarray(mask * rng.choice((1, 255))).convert(rng.choice(("L", "1", "RGB", "P"))).save(out, "PNG")
    np.save(array, mask.astype(rng.choice(("u1", "f8", "?", "i8"))))
    for name, content in (("mask.png", out.getvalue()), ("mask.npy", array.getvalue())):
        if rng.random() < 0.2:
            side = rng.choice((0, 3, 10**5, 2**31 - 1)).to_bytes(4, "big")
            content = (
                content[:16] + side + content[20:] if name == "mask.png" else content.replace(b"2, 2", b"9999, 9999")
            )
        (place / name).write_bytes(damaged(content, rng) if rng.random() < 0.3 else content)


def read_table(target: str, place: Path, rng: random.Random) -> None:
    path = place / f"file.{rng.choice(FORMS)}"
    written(target, path.name.partition(".")[2], path, rng)
    options: dict[str, Any] = {}
    if target in ("votes", "ratings") and rng.random() < 0.2:
        options["form"] = rng.choice(("wide", "long"))
    if target == "masks":
        write_images(place, rng)
    if target not in ("graph", "truth", "guess", "check", "map"):
        if rng.random() < 0.5:
            options["on_missing"] = "drop"
        if rng.random() < 0.5 and target in ("votes", "ratings", "tags", "texts", "masks"):
            options["on_duplicate"] = "last"
    if target == "tags" and rng.random() < 0.5:
        options["on_invalid"] = "repair"
    READERS[target](path, **options)


def read_arrays(place: Path, rng: random.Random) -> None:
    """Features: archives and arrays of odd kinds and shapes, damaged or not."""
    arrays = (
        np.zeros((3, 2)), np.zeros((3, 2), np.float32), np.array(1.0), np.zeros(0), np.zeros((0, 4)), np.zeros(3, int),
        np.array(["a", "b", "c"]), np.array([["a"]]), np.array([1 + 2j]), np.zeros((2, 2, 2)), np.array([True]),
        np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]), np.array(["2020-01-01"], "M8[D]"),
        np.full((3, 2), np.nan),
    )  # fmt: skip
    out = io.BytesIO()
    path = place / rng.choice(("x.npz", "x.npy"))
    if path.suffix == ".npy":
        np.save(out, rng.choice(arrays))
    else:
        names = rng.sample(("x_train", "x", "id_train", "x_test", "y_test", "id_test", "other", "indices", "indptr",
                            "data", "shape", "format"), rng.randint(0, 5))  # fmt: skip
        if rng.random() < 0.2:
            names = ["indices", "indptr", "data", "shape", "format"]
        (np.savez if rng.random() < 0.5 else np.savez_compressed)(out, **{name: rng.choice(arrays) for name in names})
    content = out.getvalue()
    path.write_bytes(damaged(content, rng) if rng.random() < 0.7 else content)
    found = read_features(path)
    found.rows_of(
        np.array(rng.choice((["a", "b"], [0, 1], [0], [2**40])), dtype=object if rng.random() < 0.5 else None)
    )
    found.unseen()


def read_folder(place: Path, rng: random.Random) -> None:
    """A data set of several files, links and folders among them."""
    folder = place / "set"
    folder.mkdir()
    written("votes", "csv", folder / "labels.csv", rng)
    written("truth", "csv", folder / "truth.csv", rng)
    for name in ("items", "annotators"):
        written("votes", "jsonl", folder / f"{name}.jsonl", rng)
    meta = json.dumps({"classes": rng.choice((["a", "b"], [1], "x", [[1]], [{}], None, {"a": 1}))}).encode()
    (folder / "meta.json").write_bytes(damaged(meta, rng) if rng.random() < 0.5 else meta)
    odd = folder / rng.choice(("meta.json", "labels.csv", "images", "features.npz"))
    if rng.random() < 0.4:
        odd.unlink(missing_ok=True)
        if rng.random() < 0.5:
            odd.symlink_to(odd.name)
        else:
            odd.mkdir()
    data = cw.read_dataset(folder, on_missing="drop", on_duplicate="last")
    data.texts, data.attributes, data.legend  # noqa: B018
    with suppress(CrowdwiseError):
        data.inputs  # noqa: B018


TARGETS = (*READERS, "features", "folder")


def one(target: str, place: Path, rng: random.Random) -> None:
    if target == "features":
        read_arrays(place, rng)
    elif target == "folder":
        read_folder(place, rng)
    else:
        read_table(target, place, rng)


def attack(target: str, seconds: float, rounds: int, seed: int, counts: dict[str, Any], trace: bool) -> None:
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as base:
        n = 0
        while n < rounds if rounds else time.monotonic() < until:
            rng, place = random.Random(f"{seed} {target} {n}"), Path(base) / "place"
            n += 1
            place.mkdir()
            if trace:
                sys.stderr.write(f"{target} {n - 1}\n")
            counts["reads"] += 1
            began = time.process_time()
            try:
                one(target, place, rng)
                counts["read"] += 1
            except InternalError as error:
                noted(counts, "bugs", error.__cause__ or error, n - 1)
            except CrowdwiseError:
                counts["our_errors"] += 1
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                noted(counts, "foreign", error, n - 1)
            counts["slow"] += time.process_time() - began > SLOW
            shutil.rmtree(place)


def noted(counts: dict[str, Any], kind: str, error: BaseException, n: int) -> None:
    counts[kind] += 1
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "crowdwise" in f.filename]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    key = f"{type(error).__name__} at {where}"
    counts["errors"].setdefault(key, f"n={n}: {str(error)[:200]}")


def main() -> int:
    parser = options(__doc__, TARGETS)
    parser.add_argument("--trace", action="store_true", help="name every file on standard error before it is read")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    names, out = given.only.split(","), {}
    for target in names:
        out[target] = dict.fromkeys(("reads", "read", "our_errors", "bugs", "foreign", "slow"), 0) | {"errors": {}}
        attack(target, given.seconds / len(names), given.rounds, given.seed, out[target], given.trace)
    bad = sum(c["bugs"] + c["foreign"] + c["slow"] for c in out.values())
    return conclude(given.seed, out, bad)


if __name__ == "__main__":
    sys.exit(main())
