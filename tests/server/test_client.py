"""The Python client and ``crowdwise campaign --server``: over a real connection, with retries."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from command_line import run
from crowdwise.client import AccessError
from crowdwise.errors import DuplicateError, InputError, LabelError, NotFittedError, OutputError, ParameterError
from crowdwise.server.configuration import load_configuration
from server_site import listening


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    with listening(load_configuration({"data": str(tmp_path_factory.mktemp("client"))}, environment={})) as (
        url,
        secret,
        _,
    ):
        yield url, secret


@pytest.fixture
def client(server: tuple[str, str]) -> Iterator[cw.Client]:
    with cw.Client(server[0], server[1], retries=3) as made:
        yield made


def test_a_campaign_from_python(client: cw.Client) -> None:
    birds = client.create_campaign("birds", classes=["wren", "robin"], budget=20)
    assert birds.add_items(["a", "b"], payloads={"a": {"text": "brown"}}, gold={"b": "robin"}) == 2
    assert birds.add_items(["a"], groups={"b": "x"}) == 0  # what is shown of it stays
    assert birds.add_annotators({"ann": 1.0, "bob": 2.0}) == 2 and birds.add_annotators(["ann"]) == 0
    with pytest.raises(NotFittedError, match="No votes"):
        list(birds.labels())
    (question,) = birds.next_for("ann")
    assert (question.item, question.payload) == ("a", {"text": "brown"})
    assert birds.vote(question, "wren", seconds=2.5)["added"] == 1
    assert birds.add([("a", "bob", "wren"), ("b", "bob", "robin")]).added == 2
    assert birds.add([("a", "bob", "wren")]).repeated == 1
    assert {row["item"]: row["label"] for row in birds.labels(limit=1)} == {"a": "wren", "b": "robin"}
    assert next((v["item"], v["annotator"], v["label"]) for v in birds.votes()) == ("a", "ann", "wren")
    assert birds.change(budget=30) == {"budget": (20.0, 30.0)} and birds.status()["budget"] == 30
    birds.set_annotator("bob", available=False)
    assert birds.next_for("bob") == [] and birds.why_none("bob") == "'bob' is not available"
    assert birds.undo("bob", "b")["label"] == "robin"
    assert [row["what"] for row in birds.history()][:2] == ["create campaign", "add items"]
    assert client.campaign("birds").id == birds.id
    birds.delete()
    with pytest.raises(InputError, match="There is no campaign 'birds'"):
        client.campaign("birds")


def test_votes_and_names_are_taken_as_by_a_folder(client: cw.Client) -> None:
    """A table of votes, arrays of numpy, and ids of a column that lacks some."""
    odd = client.create_campaign("odd", classes=["wren", "robin"], unknown="add")
    votes = cw.Votes.from_records([("a", "ann", "wren"), ("b", "ann", "robin")])
    assert odd.add(votes).added == 2 and odd.add(votes).repeated == 2
    numbered = client.create_campaign("numbered", classes=[1, 2])
    assert numbered.add_items(np.arange(3)) == 3 and numbered.add_annotators(np.array(["ann"])) == 1
    assert numbered.add([(np.int64(0), np.str_("ann"), np.int64(2))], ids=[7.0]).added == 1
    assert [(vote["item"], vote["label"], vote["id"]) for vote in numbered.votes()] == [(0, 2, "7")]
    with pytest.raises(InputError, match="cannot be sent"):
        numbered.add([({"a"}, "ann", 1)])


def test_errors_are_those_of_the_library(client: cw.Client, server: tuple[str, str]) -> None:
    birds = client.create_campaign("errors", classes=["wren", "robin"])
    birds.add_items(["a"])
    birds.add_annotators(["ann"])
    with pytest.raises(LabelError, match="says 'hawk'"):
        birds.add([("a", "ann", "hawk")])
    birds.add([("a", "ann", "wren")], ids=["v1"])
    with pytest.raises(DuplicateError, match="'ann' has voted on 'a' before"):
        birds.add([("a", "ann", "robin")], ids=["v2"])
    with pytest.raises(InputError, match="budgte"):
        birds.change(budgte=3)
    with pytest.raises(AccessError, match="valid token"):
        cw.Client(server[0], "cw_forged").campaigns()
    with pytest.raises(ParameterError, match="not a server URL"):
        cw.Client("labels.example.org", "x")


def test_a_text_or_a_table_is_no_list_of_names(client: cw.Client) -> None:
    with pytest.raises(InputError, match=r"write \['wren'\]"):
        client.create_campaign("birds", classes="wren")
    campaign = client.create_campaign("birds", classes=["wren", "robin"])
    with pytest.raises(InputError, match=r"write \['ann'\]"):
        campaign.add_annotators("ann")
    with pytest.raises(InputError, match="found a table"):
        campaign.add_items(pl.DataFrame({"item": ["a"]}))


def test_a_call_is_repeated_where_the_connection_fails(server: tuple[str, str]) -> None:
    """A server that cuts the first connections after the request, as a worker that is killed does."""
    host, port = server[0].removeprefix("http://").split(":")
    door = socket.create_server(("127.0.0.1", 0))
    seen: list[bytes] = []

    def forward() -> None:
        while True:
            try:
                inside, _ = door.accept()
            except OSError:
                return
            request = inside.recv(65536)
            while b"\r\n\r\n" not in request or len(request) < _length(request):
                request += inside.recv(65536)
            seen.append(request)
            with socket.create_connection((host, int(port))) as out:
                out.sendall(request.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nConnection: close\r\n", 1))
                answer = b""
                while part := out.recv(65536):
                    answer += part
            if len(seen) > 1:  # the first answer is lost
                inside.sendall(answer)
            inside.close()

    with cw.Client(server[0], server[1]) as direct:
        birds = direct.create_campaign("cut", classes=["wren", "robin"], unknown="add")
    threading.Thread(target=forward, daemon=True).start()
    broken = cw.Client(f"http://127.0.0.1:{door.getsockname()[1]}", server[1])
    cut = type(birds)(broken, birds.id, "cut")
    receipt = cut.add([("a", "ann", "wren")])
    door.close()
    assert len(seen) == 2 and (receipt.added, receipt.repeated) == (0, 1)
    assert birds.status()["votes"] == 1


def _length(request: bytes) -> int:
    head, _, _ = request.partition(b"\r\n\r\n")
    lines = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return len(head) + 4 + (int(lines[0].split(b":")[1]) if lines else 0)


def test_nobody_there_is_an_error_after_some_tries() -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    with pytest.raises(OutputError, match="could not be reached"):
        cw.Client(f"http://127.0.0.1:{port}", "cw_x", retries=1).campaigns()


def test_the_commands_of_campaigns_work_on_a_server(
    server: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CROWDWISE_TOKEN", server[1])
    Path("items.csv").write_text("item,truth\nphoto0,\nphoto1,\nphoto2,robin\n")
    Path("people.csv").write_text("annotator,price\nann,1\nbob,0.5\n")
    Path("today.csv").write_text("item,annotator,label\nphoto0,ann,wren\nphoto0,bob,wren\nphoto1,ann,robin\n")

    def campaign(*words: str) -> Any:
        return run("campaign", "--server", server[0], *words)

    made = campaign("init", "wrens", "--classes", "wren,robin", "--items", "items.csv", "--annotators", "people.csv")
    assert made.returncode == 0, made.stderr
    assert campaign("add", "wrens", "today.csv").returncode == 0
    status = json.loads(campaign("status", "wrens", "--json").stdout)
    assert (status["votes"], status["spent"], status["items"]) == (3, 2.5, 3)
    asked = json.loads(campaign("next", "wrens", "-a", "bob", "-n", "1", "--json").stdout)
    assert asked["questions"][0] == {"item": "photo1", "annotator": "bob", "price": 0.5, "value": None}
    assert campaign("set", "wrens", "--budget", "9").returncode == 0
    assert campaign("release", "wrens", "--annotator", "bob").returncode == 0
    assert campaign("skip", "wrens", "bob", "photo1").returncode == 0
    assert campaign("skip", "wrens", "bob", "photo1", "--undo").returncode == 0
    assert campaign("close-items", "wrens", "photo2").returncode == 0
    assert campaign("set-annotator", "wrens", "bob", "--away").returncode == 0
    assert campaign("export", "wrens", "--out", "l.csv", "--votes", "v.csv", "--annotators", "a.csv").returncode == 0
    assert Path("l.csv").read_text().startswith("item,label,probability")
    assert Path("v.csv").read_text().splitlines()[1].startswith("photo0,ann,wren")
    assert "change annotator" in campaign("history", "wrens").stdout
    none = campaign("next", "wrens")
    assert none.returncode == 2 and "one annotator at a time" in none.stderr


def test_a_campaign_stops_when_random_gold_proves_its_labels(client: cw.Client, tmp_path: Path) -> None:
    items = [f"i{n}" for n in range(60)]
    birds = client.create_campaign("proof", classes=["wren", "robin"], max_error=0.1, probability=None)
    birds.add_items(items)
    birds.add_annotators(["ann", "bob", "cem", "dan"])
    birds.add([(item, who, "wren") for item in items for who in ("ann", "bob", "cem")])
    assert birds.status()["proof"]["missing"].startswith("draw items at random, and label them (")
    drawn = birds.draw_for_gold(40)
    assert len(set(drawn)) == 40
    with pytest.raises(InputError, match="were not drawn"):
        birds.prove({next(item for item in items if item not in drawn): "wren"})
    assert birds.prove(dict.fromkeys(drawn[1:], "wren"))["missing"].startswith("1 of the 40")
    found = birds.prove({drawn[0]: "wren"})
    assert "at most 10% of the 60 labels are wrong" in found["proven"]
    status = birds.status()
    assert (status["state"], status["stop"]) == ("target-reached", found["proven"])
    assert birds.next_for("dan") == []
    assert "proof" not in birds.settings  # which items were drawn is not shown
    assert birds.settings["max_error"] == 0.1
