"""Other users of the machine can read nothing that the server writes, and no copy of the store signs a session."""

import os
import stat
import threading
import zipfile
from pathlib import Path

import pytest

from crowdwise.errors import OutputError
from crowdwise.server.access_tokens import COOKIE, Signer
from crowdwise.server.configuration import load_configuration
from crowdwise.store.backups import back_up
from crowdwise.store.campaign_folders import export_folder
from crowdwise.store.database import load_key
from server_site import running


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_others(folder: Path) -> list[str]:
    """What another user could reach: a closed folder closes all that is in it."""
    if not mode(folder) & 0o077:
        return []
    return [str(folder), *(str(path) for path in folder.rglob("*") if path.is_file() and mode(path) & 0o077)]


def test_store_backup_and_export_are_closed_under_any_umask(tmp_path: Path, open_umask: None) -> None:
    data = tmp_path / "data"
    (tmp_path / "old.zip").write_bytes(b"")  # an earlier backup that everybody could read
    with running(load_configuration({"data": str(data)}, environment={})) as site:
        campaign = site.campaign()
        site.votes(campaign, ("p0", "ann", "wren"))
        assert mode(data) == 0o700 and open_to_others(data) == []
        assert {path.name: mode(path) for path in data.iterdir() if path.is_file()} == {
            name: 0o600 for name in ("server.db", "server.db-wal", "server.db-shm", "session.key")
        }
        for name in ("new.zip", "old.zip"):
            back_up(site.service.database, tmp_path / name)
            assert mode(tmp_path / name) == 0o600
        with site.service.database.reading() as conn:
            export_folder(conn, campaign, tmp_path / "folder")
        assert open_to_others(tmp_path / "folder") == []


def test_what_was_open_is_closed_at_the_start_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configuration = load_configuration({"data": str(tmp_path / "data")}, environment={})
    with running(configuration) as site:
        cookie = site.service.signer.begin("t", 1.0)
    for path in (tmp_path / "data", *(tmp_path / "data").iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with running(configuration) as site:
        assert open_to_others(tmp_path / "data") == [] and mode(tmp_path / "data" / "server.db") == 0o600
        assert site.service.signer.read(cookie) is None  # the key could have been read: it is another one
    said = " ".join(record.getMessage() for record in caplog.records)
    assert "server.db was open to other users of this machine (mode 644)" in said and "All sessions have ended" in said


def test_neither_the_store_nor_a_backup_holds_the_key(tmp_path: Path) -> None:
    with running(load_configuration({"data": str(tmp_path / "data")}, environment={})) as site:
        site.campaign()
        back_up(site.service.database, tmp_path / "b.zip")
        key = (tmp_path / "data" / "session.key").read_text()
        with zipfile.ZipFile(tmp_path / "b.zip") as archive:
            texts = [archive.read(name) for name in archive.namelist()]
        texts += [path.read_bytes() for path in (tmp_path / "data").glob("server.db*")]
        assert len(key) > 60 and not any(key.encode() in text for text in texts)
        token = site.call("GET", "/tokens")[0]["id"]  # ids are in the store; a cookie needs the key besides
        forged = {"Cookie": f"{COOKIE}={Signer('').begin(token, 1.0)}"}
        assert site.client.get("/api/v1/tokens", headers=forged).status_code == 401


def test_processes_that_start_at_once_have_one_key(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(load_key(tmp_path / "key"))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1 and [path.name for path in tmp_path.iterdir()] == ["key"]
    (tmp_path / "key").write_text("short")
    with pytest.raises(OutputError, match="holds no key"):
        load_key(tmp_path / "key")


def test_a_session_that_was_logged_out_of_is_over(tmp_path: Path) -> None:
    with running(load_configuration({"data": str(tmp_path)}, environment={})) as site:
        browser, headers = site.browser(site.campaign())
        cookie = browser.cookies[COOKIE]
        again = {**headers, "Cookie": f"{COOKIE}={cookie}"}
        assert site.client.get("/", headers=again, follow_redirects=False).headers["location"] != "/login"
        browser.post("/logout", headers=headers)
        assert site.client.get("/", headers=again, follow_redirects=False).headers["location"] == "/login"
