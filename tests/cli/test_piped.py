"""Answers through a pipe: ``-``, a fifo, and what the bytes are."""

from __future__ import annotations

import gzip
import io
import os
import sys
import threading
from pathlib import Path
from unittest import mock

import polars as pl
import pytest

from command_line import run
from crowdwise.cli.outputs import ending_of
from crowdwise.data.votes import read_votes
from crowdwise.errors import ReadError

TABLE = pl.DataFrame(
    [(f"i{n}", w, "yes" if n % 2 else "no") for n in range(6) for w in ("ann", "bob", "cem")],
    schema=["item", "annotator", "label"], orient="row",
)  # fmt: skip


def as_bytes(ending: str) -> bytes:
    out = io.BytesIO()
    write = {"csv": "write_csv", "jsonl": "write_ndjson", "json": "write_json", "parquet": "write_parquet"}
    getattr(TABLE, write[ending.removesuffix(".gz")])(out)
    return gzip.compress(out.getvalue()) if ending.endswith(".gz") else out.getvalue()


def through(content: bytes, *words: object) -> object:
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(content))):
        return run(*words)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "jsonl.gz", "json", "parquet"])
def test_standard_input_is_read_as_what_it_is(tmp_path: Path, ending: str):
    (tmp_path / "votes.csv").write_bytes(as_bytes("csv"))
    assert ending_of(as_bytes(ending)) == f".{ending}"
    done = through(as_bytes(ending), "aggregate", "-", "-m", "majority")
    assert done.returncode == 0 and done.stdout == run("aggregate", tmp_path / "votes.csv", "-m", "majority").stdout
    nothing = through(b"", "aggregate", "-")
    assert nothing.returncode == 1 and nothing.stderr.startswith("Error: Standard input is empty (0 bytes)")


def test_every_command_that_reads_answers_takes_it(tmp_path: Path):
    assert '"votes": 18' in through(as_bytes("csv"), "describe", "-", "--json").stdout
    pairs = b"left,right,winner\na,b,a\nb,c,b\na,c,a\n"
    assert through(pairs, "rank", "-", "--json").returncode == 0
    assert run("campaign", "init", tmp_path / "c", "--classes", "yes,no", "--unknown", "add").returncode == 0
    assert '"added": 18' in through(as_bytes("csv"), "campaign", "add", tmp_path / "c", "-", "--json").stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no fifos")
def test_a_fifo(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(as_bytes("csv")))
    writer.start()
    assert '"votes": 18' in run("describe", tmp_path / "pipe", "--json").stdout
    writer.join()
    with pytest.raises(ReadError, match="is a pipe or a device"):
        read_votes(tmp_path / "pipe")


def test_a_check_of_standard_input_names_no_file_that_is_gone() -> None:
    rows = "\n".join(f"{n},{who},{said}" for n in range(9) for who, said in (("x", "Yes"), ("y", "yes"), ("z", "no")))
    done = through(f"item,annotator,label\n{rows}\n".encode(), "check", "-")
    assert "To fix it: crowdwise aggregate - --normalise-labels" in done.stdout and "standard-input" not in done.stdout
    assert "- Standard input is empty" in through(b"", "check", "-").stdout
