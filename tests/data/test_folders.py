"""Folders and files are written all or nothing, and only what was written by us is ever removed."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdwise.data import folders
from crowdwise.data.folders import (
    NEW,
    Manifest,
    check_target,
    kind_of,
    read_saved,
    replacing,
    seal,
    temporary,
    write_arrays,
    write_json,
    write_text,
    write_whole,
)
from crowdwise.errors import OutputError, ReadError


def put(folder: Path, value: int, kind: str = "thing", more: tuple[str, ...] = ()) -> None:
    with replacing(folder, kind) as made:
        write_json(made / "facts.json", {"value": value})
        write_arrays(made / "arrays.npz", {"x": np.full(1_000, value)})
        for name in more:
            (made / name).parent.mkdir(exist_ok=True)
            (made / name).write_text(str(value), encoding="utf-8")


def value_of(folder: Path) -> int:
    saved = read_saved(folder, "thing")
    value = int(saved.json("facts.json")["value"])
    assert (saved.arrays("arrays.npz")["x"] == value).all()
    return value


def names(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


SWAPS = ["exchange", "move up"]


@pytest.fixture(params=SWAPS)
def swap(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the new folder takes the place of the old one."""
    if request.param == "move up":
        monkeypatch.setattr(folders, "exchange", lambda *_: False)
    return str(request.param)


# -------------------------------------------------------------------- what is replaced


def test_an_earlier_one_is_replaced_and_nothing_is_left_over(swap: str, tmp_path: Path) -> None:
    place = tmp_path / "deep" / "kept"
    put(place, 1, more=("more/a.txt", "b.txt"))
    put(place, 2, more=("c.txt",))
    assert value_of(place) == 2 and kind_of(place) == "thing"
    assert names(place) == ["arrays.npz", "c.txt", "facts.json", "manifest.json"]
    assert os.listdir(place.parent) == ["kept"] and not (place / "more").exists()


@pytest.mark.parametrize("own", ["thesis.txt", "arrays.npz/x", "data/labels.csv", ".hidden", "empty/"])
def test_a_folder_with_anything_else_in_it_is_refused_and_untouched(own: str, tmp_path: Path) -> None:
    place = tmp_path / "mine"
    if own != "arrays.npz/x":
        put(place, 1)
    (place / own).parent.mkdir(parents=True, exist_ok=True)
    if own.endswith("/"):
        (place / own).mkdir()
    else:
        (place / own).write_text("years of work", encoding="utf-8")
    before = {name: (place / name).read_bytes() for name in names(place)}
    with pytest.raises(OutputError, match=r"Nothing was touched"):
        put(place, 2)
    assert before == {name: (place / name).read_bytes() for name in names(place)}
    assert os.listdir(tmp_path) == ["mine"]


def test_other_kinds_old_markers_and_damaged_manifests_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "a", 1, "other")
    with pytest.raises(OutputError, match=r"something else than a saved thing \(a saved other\)"):
        put(tmp_path / "a", 2)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "consensus.json").write_text("{}", encoding="utf-8")
    with pytest.raises(OutputError, match="something else than a saved consensus"):
        check_target(tmp_path / "b", "consensus")
    put(tmp_path / "c", 1)
    text = (tmp_path / "c" / "manifest.json").read_text(encoding="utf-8")
    (tmp_path / "c" / "manifest.json").write_text(text.replace("facts.json", "thesis.docx"), encoding="utf-8")
    with pytest.raises(OutputError, match=r"is damaged.*It is not replaced"):
        put(tmp_path / "c", 2)
    (tmp_path / "d").write_text("a file", encoding="utf-8")
    with pytest.raises(OutputError, match="is a file"):
        put(tmp_path / "d", 2)
    assert (tmp_path / "d").read_text(encoding="utf-8") == "a file"


def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    put(tmp_path / "a", 1)
    for name in ("../victim", "/etc/victim", "a/../../victim", ".", "a\\b"):
        (tmp_path / "a" / "manifest.json").write_text(Manifest("thing", {name: (1, "x")}).text(), encoding="utf-8")
        with pytest.raises(ReadError, match="damaged"):
            read_saved(tmp_path / "a", "thing")
        with pytest.raises(OutputError, match="damaged"):
            put(tmp_path / "a", 2)


def test_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is not swapped away under the shell: it is filled, and only when it is empty or ours."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    put(Path("."), 1, more=("more/a.txt",))
    put(Path("."), 2)
    assert value_of(Path(".")) == 2
    assert sorted(os.listdir(".")) == ["arrays.npz", "facts.json", "manifest.json"]
    Path("mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match=r"holds more than a saved thing: 'mine.txt'"):
        put(Path("."), 3)
    assert value_of(place) == 2


def test_links_lead_to_the_folder(swap: str, tmp_path: Path) -> None:
    put(tmp_path / "real", 1)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    put(tmp_path / "link", 2)
    assert (tmp_path / "link").is_symlink() and value_of(tmp_path / "real") == 2
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OutputError):
        put(tmp_path / "loop", 2)


def test_what_comes_in_while_it_is_saved_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "kept"
    put(place, 1)
    real = folders.exchange

    def late(one: Path, other: Path) -> bool:
        (place / "letter.txt").write_text("dear", encoding="utf-8")
        return real(one, other)

    monkeypatch.setattr(folders, "exchange", late)
    put(place, 2)
    assert (place / "letter.txt").read_text(encoding="utf-8") == "dear" and value_of(place) == 2


# -------------------------------------------------------------------- umask


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o002])
def test_permissions_follow_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        put(tmp_path / "kept", 1, more=("more/a.txt",))
        write_text("x", tmp_path / "x.csv")
    finally:
        os.umask(before)
    for path in (tmp_path / "kept", tmp_path / "kept" / "more"):
        assert path.stat().st_mode & 0o777 == 0o777 & ~umask
    for name in ("kept/facts.json", "kept/arrays.npz", "kept/manifest.json", "x.csv"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o666 & ~umask


def test_permissions_of_what_is_replaced_stay(swap: str, tmp_path: Path) -> None:
    put(tmp_path / "kept", 1)
    write_text("x", tmp_path / "x.csv")
    (tmp_path / "kept").chmod(0o700)
    (tmp_path / "x.csv").chmod(0o600)
    put(tmp_path / "kept", 2)
    write_text("y", tmp_path / "x.csv")
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "x.csv").stat().st_mode & 0o777 == 0o600


# -------------------------------------------------------------------- interruptions


def stop_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop dead at the n-th call that changes the disk, as kill -9 does."""
    calls = 0
    for name in ("rename", "replace", "unlink", "rmdir", "mkdir", "fsync"):
        real = getattr(os, name)

        def counted(*given: Any, real: Any = real, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                os._exit(9)
            return real(*given, **more)

        monkeypatch.setattr(os, name, counted)
    real_exchange = folders.exchange

    def exchanged(*given: Any) -> bool:
        nonlocal calls
        calls += 1
        if calls == number:
            os._exit(9)
        return real_exchange(*given)

    monkeypatch.setattr(folders, "exchange", exchanged)


@pytest.mark.parametrize("there", [True, False])
def test_killed_at_every_step_the_name_shows_one_or_the_other(
    swap: str, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every single step that changes the disk, in turn: the old one or the new one, never none, and no rest stays."""
    found = []
    for number in range(1, 100):
        place = tmp_path / str(number) / "kept"
        place.parent.mkdir()
        if there:
            put(place, 1, more=("more/a.txt", "b.txt"))
        process = multiprocessing.get_context("fork").Process(target=_save_and_die, args=(place, number, monkeypatch))
        process.start()
        process.join()
        if there or place.exists():
            found.append(value_of(place))
        put(place, 3, more=("more/c.txt",))
        assert value_of(place) == 3
        assert names(place) == ["arrays.npz", "facts.json", "manifest.json", "more/c.txt"]
        assert os.listdir(place.parent) == ["kept"]
        if process.exitcode == 0:
            break
    assert process.exitcode == 0 and number > 8
    assert set(found) == ({1, 2} if there else {2}) and sorted(found) == found


def _save_and_die(place: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(number, monkeypatch)
    put(place, 2, more=("more/c.txt", "d.txt"))
    os._exit(0)


def test_a_torn_manifest_of_a_killed_save_is_no_obstacle(swap: str, tmp_path: Path) -> None:
    put(tmp_path / "kept", 1)
    with folders.temporary(tmp_path, "kept", folder=True) as left:
        (left / "facts.json").write_text("{", encoding="utf-8")
        (left / "manifest.json").write_text((tmp_path / "kept" / "manifest.json").read_text(encoding="utf-8")[:50])
    put(tmp_path / "kept", 2)
    assert value_of(tmp_path / "kept") == 2 and os.listdir(tmp_path) == ["kept"]


def test_temporaries_of_live_processes_stay(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from crowdwise.data.folders import replacing\n"
        "with replacing(sys.argv[1], 'thing') as made:\n"
        "    (made / 'facts.json').write_text('{}'); print(made, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "kept")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    made = Path(process.stdout.readline().strip())
    put(tmp_path / "kept", 1)
    assert made.is_dir()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert made.is_dir()
    put(tmp_path / "kept", 2)
    assert os.listdir(tmp_path) == ["kept"]


def test_readers_see_whole_ones_while_it_is_replaced(swap: str, tmp_path: Path) -> None:
    put(tmp_path / "kept", 0)
    process = multiprocessing.get_context("fork").Process(target=_many, args=(tmp_path / "kept",))
    process.start()
    seen = []
    while process.is_alive():
        seen.append(value_of(tmp_path / "kept"))
    assert process.exitcode == 0
    assert seen == sorted(seen) and len(set(seen)) > 2


def _many(place: Path) -> None:
    until = time.monotonic() + 1.0
    number = 0
    while time.monotonic() < until or number < 50:
        put(place, number := number + 1)
    os._exit(0)


def test_two_who_save_at_once_leave_one_whole_result(tmp_path: Path) -> None:
    both = [multiprocessing.get_context("fork").Process(target=_many, args=(tmp_path / "kept",)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert value_of(tmp_path / "kept") > 0
    put(tmp_path / "kept", 1)
    assert os.listdir(tmp_path) == ["kept"]


@pytest.mark.parametrize("folder", [True, False])
def test_a_temporary_that_is_removed_before_its_lock_is_made_again(
    folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, taken = fcntl.flock, list[Path]()

    def removed_first(handle: int, how: int) -> None:
        if not taken:  # as by another process, which cleans up what was left behind
            taken.extend(tmp_path.iterdir())
            taken[0].rmdir() if folder else taken[0].unlink()
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with temporary(tmp_path, "kept", folder=folder) as made:
        assert taken and made.exists() and made != taken[0]


def _full(place: Path, path: Path, size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    said = []
    for save in (lambda: put(place, 2), lambda: write_text("y" * 10_000, path)):
        try:
            save()
        except OutputError as error:
            said.append(str(error))
    os._exit(0 if len(said) == 2 and all("File too large" in text for text in said) else 1)


@pytest.mark.parametrize("size", [0, 20, 300])
def test_on_a_full_disk_the_earlier_one_stays(size: int, tmp_path: Path) -> None:
    put(tmp_path / "kept", 1)
    write_text("x", tmp_path / "x.csv")
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=_full, args=(tmp_path / "kept", tmp_path / "x.csv", size))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert value_of(tmp_path / "kept") == 1 and (tmp_path / "x.csv").read_text(encoding="utf-8") == "x"
    assert sorted(os.listdir(tmp_path)) == ["kept", "x.csv"]


def test_errors_say_only_what_is_true(tmp_path: Path) -> None:
    def fail(_: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OutputError) as caught:
        write_whole(fail, tmp_path / "x.csv")
    assert str(caught.value) == f"{tmp_path / 'x.csv'} could not be written: No space left on device."
    write_text("x", tmp_path / "x.csv")
    with pytest.raises(OutputError, match="The file that was there is as it was"):
        write_whole(fail, tmp_path / "x.csv")
    assert os.listdir(tmp_path) == ["x.csv"]


# -------------------------------------------------------------------- reading


def test_every_flipped_bit_and_every_cut_is_found(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    put(place, 1)
    rng = np.random.default_rng(0)
    for name in names(place):
        whole = (place / name).read_bytes()
        for at in rng.choice(len(whole), min(len(whole), 60), replace=False).tolist():
            for content in (
                whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :],
                whole[:at],
                whole + b"x",
            ):
                (place / name).write_bytes(content)
                with pytest.raises(ReadError, match="damaged"):
                    value_of(place)
        (place / name).unlink()
        with pytest.raises(ReadError, match=r"is missing|There is no thing in"):
            value_of(place)
        (place / name).write_bytes(whole)
    assert value_of(place) == 1


def test_files_of_two_results_do_not_mix(tmp_path: Path) -> None:
    put(tmp_path / "a", 1)
    put(tmp_path / "b", 2)
    (tmp_path / "a" / "arrays.npz").write_bytes((tmp_path / "b" / "arrays.npz").read_bytes())
    with pytest.raises(ReadError, match=r"arrays.npz is damaged"):
        value_of(tmp_path / "a")


def test_what_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    put(tmp_path / "a", 1)
    (tmp_path / "a" / "facts.json").unlink()
    os.mkfifo(tmp_path / "a" / "facts.json")  # whoever opens it waits for ever
    with pytest.raises(ReadError, match=r"facts.json is damaged"):
        value_of(tmp_path / "a")
    (tmp_path / "a" / "manifest.json").unlink()
    os.mkfifo(tmp_path / "a" / "manifest.json")
    with pytest.raises(ReadError, match=r"manifest.json is damaged"):
        value_of(tmp_path / "a")


def npz(path: Path, shape: tuple[int, ...], content: bytes) -> None:
    """An archive with an array that claims a shape, and holds what it holds."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.encode() + content)


@pytest.mark.parametrize("shape", [(10**12,), (10**9, 10**9), (3,), (-1,)])
def test_sizes_claimed_in_headers_are_checked_before_memory_is_taken(shape: tuple[int, ...], tmp_path: Path) -> None:
    place = tmp_path / "kept"
    put(place, 1)
    npz(place / "arrays.npz", shape, b"\x00" * 16)
    seal(place, "thing")
    with pytest.raises(ReadError, match="readable thing"):
        read_saved(place, "thing").arrays("arrays.npz")
    npz(place / "arrays.npz", (2,), b"\x00" * 16)
    seal(place, "thing")
    assert read_saved(place, "thing").arrays("arrays.npz")["x"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("content", ["[1]", "{", "[" * 100_000, '{"value": ' + "9" * 5_000 + "}", "nul", ""])
def test_json_that_is_none_is_our_error(content: str, tmp_path: Path) -> None:
    put(tmp_path / "kept", 1)
    (tmp_path / "kept" / "facts.json").write_text(content, encoding="utf-8")
    seal(tmp_path / "kept", "thing")
    with pytest.raises(ReadError, match="readable thing"):
        value_of(tmp_path / "kept")


def test_a_new_version_that_is_moving_up_is_read(tmp_path: Path) -> None:
    put(tmp_path / "kept", 1, more=("b.txt",))
    put(tmp_path / "other", 2)
    (tmp_path / "other").rename(tmp_path / "kept" / NEW)
    assert value_of(tmp_path / "kept") == 2
    (tmp_path / "kept" / NEW / "arrays.npz").replace(tmp_path / "kept" / "arrays.npz")
    assert value_of(tmp_path / "kept") == 2
    folders.check_target(tmp_path / "kept", "thing")
    put(tmp_path / "kept", 3)
    assert names(tmp_path / "kept") == ["arrays.npz", "facts.json", "manifest.json"]
