"""No exception of another package leaves crowdwise: files that cannot be read, extreme numbers, mistakes of our own."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise.cli.main import app
from crowdwise.data.boundary import reading
from crowdwise.data.features import read_features
from crowdwise.errors import ColumnError, CrowdwiseError, DivergedError, InputError, InternalError, ReadError, SizeError

ROWS = {"item": ["a", "a", "b", "b"], "annotator": ["x", "y", "x", "y"], "label": ["p", "q", "p", "p"]}
TABLE = "item,annotator,label\na,x,p\na,y,q\nb,x,p\n"


def damaged_gzip() -> bytes:
    content = bytearray(gzip.compress((TABLE * 50).encode()))
    content[len(content) // 2] ^= 0xFF
    return bytes(content)


def lines(*rows: dict[str, Any]) -> bytes:
    return "\n".join(json.dumps({"item": "a", "annotator": "x", "label": "p"} | row) for row in rows).encode()


def whole(write: str) -> bytes:
    out = io.BytesIO()
    getattr(pl.DataFrame(ROWS), write)(out)
    return out.getvalue()


def claims(write: str, value: int, claim: int) -> bytes:
    """A file that claims another number of rows than it has: the reader would end the process."""
    content = whole(write)
    if write == "write_ipc":
        return content.replace(value.to_bytes(8, "little"), claim.to_bytes(8, "little"))
    return content.replace(bytes([2 * value]), bytes([0xFF, 0xFF, 0xFF, 0xFF, 0x7F]), 8)


FILES = {
    "damaged.csv.gz": (damaged_gzip(), ReadError, "damaged.csv.gz"),
    "cut.csv.gz": (gzip.compress(TABLE.encode())[:-12], ReadError, "cut.csv.gz"),
    "noise.csv.zst": (b"\x28\xb5\x2f\xfd" + b"\x07" * 40, ReadError, "noise.csv.zst"),
    "lists.jsonl": (lines({}, {"label": ["p", "q"]}), InputError, "label"),
    "no-object.jsonl": (lines({}) + b"\n[1, 2]\n", ReadError, "line 2"),
    "no-json.jsonl": (lines({}, {}) + b"\n{'item': 1}\n", ReadError, "line 3"),
    "weights.csv": ((TABLE.replace("label", "label,weight").replace("\na", "\na").replace("p\n", "p,1e308\n")
                     .replace("q\n", "q,1e308\n")).encode(), InputError, "line 2"),
    "cut.parquet": (whole("write_parquet")[:-20], ReadError, "cut.parquet"),
    "noise.parquet": (b"PAR1" + b"\x99" * 60 + b"PAR1", ReadError, "noise.parquet"),
    "claims.parquet": (claims("write_parquet", 4, 2**40), ReadError, "claims.parquet"),
    "claims.arrow": (claims("write_ipc", 4, 2**58), ReadError, "claims.arrow"),
    "cut.arrow": (whole("write_ipc")[:-20], ReadError, "cut.arrow"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    content, kind, said = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(kind, match=said) as caught:
        cw.read_votes(tmp_path / name)
    assert not isinstance(caught.value, InternalError)


def test_the_original_is_chained(tmp_path: Path) -> None:
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(TABLE.encode())[:-12])
    with pytest.raises(ReadError) as caught:
        cw.read_votes(tmp_path / "cut.csv.gz")
    assert caught.value.__cause__ is not None


def test_whole_files_with_many_forms_of_columns_are_read(tmp_path: Path) -> None:
    table = pl.DataFrame(ROWS).with_columns(
        more=pl.Series([[1], [], None, [2, 3]]), some=pl.Series([{"a": [None]}] * 4), none=pl.lit(None)
    )
    for compression in ("zstd", "uncompressed", "lz4", "snappy", "gzip"):
        table.write_parquet(tmp_path / "v.parquet", compression=compression)  # type: ignore[arg-type]
        assert cw.read_votes(tmp_path / "v.parquet").n_votes == 4
    for write in (table.write_ipc, table.write_ipc_stream):
        for packed in ("zstd", "uncompressed", "lz4"):
            write(tmp_path / "v.arrow", compression=packed)  # type: ignore[operator]
            assert cw.read_votes(tmp_path / "v.arrow").n_votes == 4


def test_links_that_lead_in_a_circle(tmp_path: Path) -> None:
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    for read in (cw.read_votes, cw.aggregate, cw.Votes.read_truth, cw.load, read_features):
        with pytest.raises(ReadError, match="loop"):
            read(loop)


def test_integers_of_any_size_are_names() -> None:
    large = [2**63, 2**64 + 1, -(2**63) - 1, 1]
    votes = cw.Votes.from_frame({**ROWS, "item": large})
    assert set(votes.items.tolist()) == {str(n) for n in large}


@pytest.mark.parametrize("array", [np.array(1.0), np.array("x"), np.array(True)])
def test_a_single_number_is_no_table_of_features(array: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", x=array)
    for name in ("x.npy", "x.npz"):
        with pytest.raises(InputError, match="shape"):
            read_features(tmp_path / name)


@pytest.mark.parametrize("weight", [1e308, 5e-324, 0.0, -1.0, float("inf")])
def test_weights_that_no_sum_can_hold(weight: float) -> None:
    with pytest.raises(InputError, match=r"Weights must (be positive numbers|lie between 1e-12 and 1e\+12): found"):
        cw.Votes.from_frame({**ROWS, "weight": [1.0, weight, 1.0, 1.0]})
    with pytest.raises(InputError, match="at edge 0"):
        cw.Graph.from_edges([("a", "b", weight)])


def test_ratings_that_no_square_can_hold() -> None:
    with pytest.raises(InputError, match="1e\\+50"):
        cw.Ratings.from_frame({"item": ["a"], "annotator": ["x"], "value": [1e200]})


def test_mistakes_of_ours_are_called_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of numpy below a fit is a bug, with its place; what the user's own code raises passes as it is."""
    votes = cw.Votes.from_frame(ROWS)
    monkeypatch.setattr("crowdwise.core.model.decide", lambda *_: np.zeros(3) @ np.zeros(2))
    with pytest.raises(ValueError, match="matmul"):  # raised in this file: not ours
        cw.MajorityVote().fit(votes)
    monkeypatch.setattr("crowdwise.core.model.decide", None)
    with pytest.raises(InternalError, match=r"majority: TypeError: .*model\.py, line \d+") as caught:
        cw.MajorityVote().fit(votes)
    assert isinstance(caught.value.__cause__, TypeError)


def test_memory_and_numbers_have_errors_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(error: Exception) -> Any:
        namespace: dict[str, Any] = {"__name__": "crowdwise.somewhere"}
        exec("def _fit(self, *_): raise self.error", namespace)  # code of ours, as far as anybody can see
        monkeypatch.setattr(cw.MajorityVote, "_fit", namespace["_fit"])
        monkeypatch.setattr(cw.MajorityVote, "error", error, raising=False)
        return cw.MajorityVote().fit(cw.Votes.from_frame(ROWS))

    with pytest.raises(SizeError, match="majority: that does not fit into memory"):
        fails(MemoryError())
    with pytest.raises(DivergedError, match="Singular"):
        fails(np.linalg.LinAlgError("Singular matrix"))
    with pytest.raises(InternalError, match="KeyError"):
        fails(KeyError("x"))


@pytest.mark.parametrize("given", [{"item": ["a"]}, 5, None], ids=["table", "number", "none"])
@pytest.mark.parametrize("name", sorted(name for name in cw.__all__ if name.startswith("read_")))
def test_what_is_no_path_is_said(name: str, given: Any) -> None:
    with pytest.raises(InputError, match=r"path of a file, and found \w+\. .*crowdwise\.aggregate") as caught:
        getattr(cw, name)(given)
    assert not isinstance(caught.value, InternalError)


def test_what_a_callback_raises_passes() -> None:
    def stop(_: Any) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        cw.DawidSkene().fit(cw.Votes.from_frame(ROWS), callback=stop)


def test_requests_to_stop_pass() -> None:
    with pytest.raises(KeyboardInterrupt), reading("file"):
        raise KeyboardInterrupt


def test_debug_shows_where_errors_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    (tmp_path / "v.csv").write_text(TABLE)
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(TABLE.encode())[:-12])

    def run(*words: str) -> Any:
        return CliRunner().invoke(app, list(words))

    plain = run("aggregate", str(tmp_path / "cut.csv.gz"))
    assert plain.exit_code == 1 and "Traceback" not in plain.stderr and "could not be read" in plain.stderr
    for words in (("--debug", "aggregate"), ("aggregate", "--debug")):
        traced = run(*words, str(tmp_path / "cut.csv.gz"))
        assert traced.exit_code == 1 and "Traceback" in traced.stderr and "direct cause" in traced.stderr
    monkeypatch.setattr("crowdwise.cli.cmd_aggregate.items_of", None)
    bug = run("aggregate", str(tmp_path / "v.csv"))
    assert bug.exit_code == 3 and "This is a mistake in crowdwise" in bug.stderr and "cmd_aggregate.py" in bug.stderr
    assert "Traceback" not in bug.stderr
    assert "Traceback" in run("aggregate", "--debug", str(tmp_path / "v.csv")).stderr


def test_lists_in_columns_that_cannot_hold_them() -> None:
    pairs = {"item_a": ["a"], "item_b": ["b"], "annotator": ["x"], "same": [["yes"]]}
    tags = {"sequence": ["s"], "position": [[1]], "annotator": ["x"], "tag": ["O"]}
    sets = {"item": ["a"], "annotator": ["x"], "labels": [[["p"]]]}
    with pytest.raises(InputError, match="same"):
        cw.Similarities.from_frame(pl.DataFrame(pairs))
    with pytest.raises(ColumnError, match="position"):
        cw.Tags.from_frame(pl.DataFrame(tags))
    with pytest.raises(InputError, match="labels"):
        cw.LabelSets.from_frame(pl.DataFrame(sets))
    with pytest.raises(CrowdwiseError, match="label"):
        cw.Votes.from_frame(pl.DataFrame({**ROWS, "label": [["p"]] * 4}))


@pytest.mark.parametrize("given", ["", "a\0b", TABLE * 20], ids=["empty", "zero byte", "text of a table"])
def test_what_is_no_path_is_an_error_of_ours(given: str) -> None:
    for reader in (cw.aggregate, cw.diagnose, cw.read_votes, cw.load):
        with pytest.raises(CrowdwiseError, match=r"path|There is no file|too long"):
            reader(given)


def test_an_empty_path_is_not_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "labels.csv").write_text(TABLE)
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["aggregate", ""])
    assert found.exit_code == 2 and "The path is empty" in found.stderr
    assert CliRunner().invoke(app, ["describe", "."]).exit_code == 0
