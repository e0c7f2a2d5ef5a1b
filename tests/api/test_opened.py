"""A file is opened at most twice, and its answer type decided once, whatever is done with it."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from command_line import run
from crowdwise import reading, registry
from crowdwise.data import guess, plain_files
from crowdwise.data.packing import names_of
from crowdwise.errors import InputError
from crowdwise.label_studio import ls_round
from crowdwise.label_studio.ls_project import Control

EXPORTS = Path(__file__).parents[1] / "exports"
WATCHED: list[tuple[str, list[str]]] = []
"""Files that are watched, with the calls that opened them: audit hooks cannot be taken away again."""


WRITTEN: list[list[str]] = []
"""Lists of the files that are opened to be written."""


def _hook(event: str, args: tuple[Any, ...]) -> None:
    for file, calls in WATCHED if event == "open" else ():
        if isinstance(args[0], str) and args[0] == file:
            calls.append("open")
    for names in WRITTEN if event == "open" else ():
        if args[2] & (os.O_WRONLY | os.O_RDWR):
            names.append(str(args[0]))


sys.addaudithook(_hook)


@contextmanager
def opens(file: Path) -> Iterator[list[str]]:
    """The calls that open a file: those of Python, and readers of polars that get its path."""
    calls: list[str] = []
    WATCHED.append((str(file), calls))

    def counted(name: str, reader: Callable[..., Any]) -> Callable[..., Any]:
        def read(source: Any, *args: Any, **kwargs: Any) -> Any:
            named = source if isinstance(source, (list, tuple)) else [source]
            calls.extend(name for one in named if isinstance(one, (str, Path)) and str(one) == str(file))
            return reader(source, *args, **kwargs)

        return read

    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in dir(pl) if name.startswith(("read_", "scan_"))]:
            patch.setattr(pl, name, counted(name, getattr(pl, name)))
        try:
            yield calls
        finally:
            WATCHED.pop()


@contextmanager
def nothing_is_written() -> Iterator[None]:
    """No file is written in the block, a temporary one neither."""
    names: list[str] = []
    WRITTEN.append(names)
    try:
        yield
    finally:
        WRITTEN.remove(names)
    assert names == []


@contextmanager
def decisions() -> Iterator[list[str]]:
    """The answer types that are decided: looks at the first rows, and at the labels."""
    made: list[str] = []
    guessed, decided = guess.guess, vars(reading.Opened)["answer_type"].func

    def look(*args: Any, **kwargs: Any) -> Any:
        made.append("guess")
        return guessed(*args, **kwargs)

    def decide(opened: reading.Opened) -> Any:
        if not reading.was_read(opened.source):
            made.append("decision")
        return decided(opened)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guess, "guess", look)
        patch.setattr(vars(reading.Opened)["answer_type"], "func", decide)
        yield made


@pytest.fixture(scope="module")
def crowd() -> Any:
    return cw.simulate.one_coin(60, n_annotators=8, votes_per_item=4, random_state=0)


@pytest.fixture
def votes(crowd: Any, tmp_path: Path) -> Path:
    crowd.votes.to_frame("polars").with_columns(
        text=pl.format("It is {}.", "item"), note=pl.lit("as it came")
    ).write_csv(tmp_path / "labels.csv")
    return tmp_path / "labels.csv"


@pytest.fixture
def battles(tmp_path: Path) -> Path:
    made = cw.simulate.comparisons(6, n_annotators=5, random_state=0).answers
    made.to_frame("polars").write_csv(tmp_path / "battles.csv")
    return tmp_path / "battles.csv"


COMMANDS = {
    "aggregate": ["--method", "majority"], "aggregate, by default": [], "aggregate, as JSON": ["--json"],
    "report": ["--json"], "diagnose": [], "describe": [], "agreement": [], "gold": [],
    "compare": ["--methods", "majority,one-coin", "--repeats", "1", "--replicates", "0"],
    "learn": ["--text", "text", "--epochs", "1"],
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_open_a_file_at_most_twice_and_decide_its_type_once(votes: Path, name: str) -> None:
    with opens(votes) as calls, decisions() as made:
        done = run(name.partition(",")[0], votes, *COMMANDS[name])
    assert done.returncode == 0, done.stderr
    assert 1 <= len(calls) <= 2 and made.count("decision") == 1 and made.count("guess") <= 1, (calls, made)


def test_rank_opens_a_file_at_most_twice_and_decides_its_type_once(battles: Path) -> None:
    for more in ([], ["--without", "0"]):
        with opens(battles) as calls, decisions() as made:
            assert run("rank", battles, *more).returncode == 0
        assert 1 <= len(calls) <= 2 and made == ["decision"]


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "csv.zst", "jsonl", "json", "parquet", "arrow", "xlsx", "zip"])
@pytest.mark.parametrize("large", [False, True])
def test_python_opens_a_file_at_most_twice(
    crowd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, large: bool
) -> None:
    file = tmp_path / f"labels.{ending}"
    write(crowd.votes.to_frame("polars"), file)
    monkeypatch.setattr(plain_files, "LARGE", 0 if large else plain_files.LARGE)
    with opens(file) as calls, decisions() as made:
        consensus = cw.aggregate(file, "majority")
        assert consensus.method == "majority" and 1 <= len(calls) <= 2, calls
    assert made == ["decision"]
    with opens(file) as calls, decisions() as made:
        cw.diagnose(file, consensus)
        assert 1 <= len(calls) <= 2 and made.count("decision") == 1, (calls, made)


def write(frame: pl.DataFrame, file: Path) -> None:
    import gzip
    import zipfile

    from crowdwise.data.sheets import write_xlsx

    match file.name.partition(".")[2]:
        case "csv.gz":
            file.write_bytes(gzip.compress(frame.write_csv().encode()))
        case "csv.zst":
            frame.write_csv(file, compression="zstd")
        case "jsonl":
            frame.write_ndjson(file)
        case "xlsx":
            write_xlsx(file, {"votes": [frame.columns, *map(list, frame.rows())]})
        case "zip":
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("labels.csv", frame.write_csv())
        case ending:
            getattr(frame, {"arrow": "write_ipc"}.get(ending, f"write_{ending}"))(file)


def test_an_opened_file_is_what_it_was_when_it_was_opened(votes: Path) -> None:
    opened = reading.Opened(votes)
    assert opened.answer_type == "votes" and opened.export is None
    votes.unlink()
    assert opened.answers.table.n_votes == 240 and opened.answers is opened.answers


def test_the_same_file_as_another_type_is_not_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "ranks.csv"
    file.write_text("item,annotator,rank\na,ann,1\nb,ann,2\na,bob,2\nb,bob,1\n")
    with opens(file) as calls:
        opened = reading.Opened(file, "comparisons")
        assert not opened.has_columns and opened.as_type("rankings").has_columns
    assert len(calls) == 1
    assert run("rank", file).returncode == 0


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_report_opens_a_large_file_at_most_twice(
    crowd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    file = tmp_path / f"labels.{ending}"
    write(crowd.votes.to_frame("polars"), file)
    monkeypatch.setattr(plain_files, "LARGE", 0)
    with opens(file) as calls, decisions() as made:
        done = run("report", file, "--json")
    assert done.returncode == 0, done.stderr
    assert 1 <= len(calls) <= 2 and made.count("decision") == 1, (calls, made)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("sample", ["prodigy_choice.jsonl", "mturk_batch_results.csv", "doccano_individual.zip"])
def test_an_export_is_opened_at_most_twice(sample: str, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_files, "LARGE", 0 if large else plain_files.LARGE)
    with opens(EXPORTS / sample) as calls, decisions() as made:
        opened = reading.Opened(EXPORTS / sample)
        assert opened.export is not None and opened.answers.table.n_answers > 0
    assert len(calls) <= 2 and made == ["decision"]


def test_files_in_parts_follow_the_rules_of_files_in_memory(battles: Path, votes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with pytest.raises(InputError, match=r"battles.csv holds comparisons, since .* answer_type='votes'"):
        cw.aggregate(battles, out=out)
    with pytest.raises(InputError, match=r"mturk_batch_results.csv is an export of Mechanical Turk"):
        cw.aggregate(EXPORTS / "mturk_batch_results.csv", out=out)
    done = run("aggregate", battles, "--engine", "stream", "--out", out)
    assert done.returncode != 0 and "say --answers votes" in " ".join(done.stderr.split())
    whole = cw.aggregate(votes, "majority").labels
    assert cw.aggregate(votes, "majority", out=out).n_items == len(whole) == pl.read_csv(out).height


# -------------------------------------------------------------------- what needs no file, or one look


def test_predict_reads_the_folder_of_a_model_once(crowd: Any, tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(size=(60, 4)) + crowd.truth[:, None]
    learner = registry.find("raykar", inputs=True).create().fit(features, crowd.votes)
    model, new = learner.save(tmp_path / "model"), tmp_path / "new.npz"
    np.savez(new, X=features)
    with ExitStack() as stack:
        files = [file for file in sorted(Path(model).rglob("*")) if file.is_file()]
        calls = {file: stack.enter_context(opens(file)) for file in files}
        done = run("predict", model, "--features", new, "--json")
    assert done.returncode == 0, done.stderr
    assert sorted({len(found) for found in calls.values()})[-1] == 1
    assert all(len(calls[file]) == 1 for file in files if file.parent == Path(model))


def test_names_of_annotators_and_labels_need_no_file() -> None:
    names = ["b,c", 'say "a"', "two\nlines", "7"]
    with nothing_is_written():
        codes, found = names_of(pl.Series(names), "annotator", from_text=True)
        labels, classes = names_of(pl.Series([" yes", "no ", "Yes"]), "label", normalise_labels=True)
    assert [str(found[code]) for code in codes] == names
    assert [classes[code] for code in labels] == ["yes", "no", "yes"]


def test_a_refit_of_label_studio_needs_no_file() -> None:
    tasks = [
        {"id": n, "data": {"text": f"text {n}"}, "annotations": [
            {"id": 10 * n + m, "completed_by": m, "result": [
                {"from_name": "kind", "to_name": "text", "type": "choices",
                 "value": {"choices": ["ab"[(n + m // 3) % 2]]}}
            ]} for m in range(1, 4)
        ]} for n in range(1, 9)
    ]  # fmt: skip
    control = Control("kind", "text", "choices", ("a", "b"))
    ls_round.fit(tasks, control)  # what is imported and compiled at the first call
    with nothing_is_written():
        found = ls_round.fit(tasks, control)
    assert len(found.predictions()) == 8
