"""What is kept of tasks, what is pushed, what comes next, and how a project is watched."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest

import crowdwise as cw
from command_line import run
from crowdwise.errors import InputError, OutputError, ParameterError, ReadError, ServiceError
from crowdwise.label_studio.ls_client import LabelStudioClient
from crowdwise.label_studio.ls_project import Control, Folder, Project, Pulled, find_control
from crowdwise.label_studio.ls_round import fit, new_version, next_tasks, pull, push
from crowdwise.label_studio.ls_watch import SECRET, Listener, listening_at, watch, when_changed

STATE = {"url": "http://x", "project": 1, "since": "2026-01-01T00:00:00.000000Z"}
CONFIG = {"q": {"type": "Choices", "to_name": ["t"], "labels": ["yes", "no"]}}
CONTROL = Control("q", "t", "choices", ("yes", "no"))


def annotation(number: int, who: int, value: dict[str, Any], kind: str = "choices", **more: Any) -> dict[str, Any]:
    result = [{"from_name": "q", "to_name": "t", "type": kind, "value": value}]
    return {"id": number, "completed_by": who, "result": result, "updated_at": "2026-01-01T00:00:00Z", **more}


def task(number: int, annotations: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": number, "project": 1, "data": {"text": f"t{number}"}, "annotations": annotations}


def said(*labels: str) -> list[dict[str, Any]]:
    return [annotation(100 + who, who, {"choices": [label]}) for who, label in enumerate(labels, 1)]


# -------------------------------------------------------------------- the folder


def test_newer_tasks_take_the_place_of_older_ones(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new" / "pulled")
    folder.merge([task(1, said("yes", "no")), task(2, [])], STATE)
    edited = {**said("yes")[0], "updated_at": "2026-01-02T00:00:00Z"}
    found = folder.merge([task(1, [edited]), task(3, said("no"))], STATE)
    assert (found.new, found.changed, found.removed) == (1, 1, 1)
    assert (found.known_tasks, found.known_annotations) == (3, 2)
    found = folder.merge([task(3, said("no"))], STATE, whole=True)
    assert (found.known_tasks, found.removed) == (1, 1)
    assert [t["id"] for t in folder.tasks()] == [3]


def test_a_folder_of_another_project_is_not_touched(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.merge([task(1, [])], STATE)
    with pytest.raises(ParameterError, match="holds project 1 of http://x: choose another folder"):
        folder.check("http://x", 2)
    folder.check("http://x", 1)
    (tmp_path / "pulled.json").write_text("{")
    with pytest.raises(ReadError, match=r"Remove it and tasks\.jsonl to pull everything again"):
        folder.check("http://x", 1)
    (tmp_path / "pulled.json").unlink()
    with pytest.raises(ParameterError, match="exists already"):
        folder.check("http://x", 1)
    with pytest.raises(OutputError, match="is a file"):
        Folder(tmp_path / "tasks.jsonl").check("http://x", 1)


def test_our_own_predictions_do_not_come_back(tmp_path: Path) -> None:
    from crowdwise.label_studio.ls_project import kept

    guesses = [{"id": n, "model_version": v, "result": []} for n, v in enumerate(("crowdwise-auto-1", "m1"))]
    made = kept({**task(1, said("yes")), "predictions": guesses}, {1: {"id": 1, "email": "ann@x.org"}})
    assert [p["model_version"] for p in made["predictions"]] == ["m1"]
    assert made["annotations"][0]["completed_by"] == {"id": 1, "email": "ann@x.org"}


# -------------------------------------------------------------------- questions


def test_the_question_of_a_project() -> None:
    assert find_control(CONFIG) == CONTROL
    two = {**CONFIG, "stars": {"type": "Rating", "to_name": ["t"]}}
    assert find_control(two, "stars").kind == "rating"
    with pytest.raises(ParameterError, match="several questions: q, stars"):
        find_control(two)
    with pytest.raises(ParameterError, match="no question 'x'"):
        find_control(two, "x")
    with pytest.raises(InputError, match=r"something else: box \(RectangleLabels\)"):
        find_control({"box": {"type": "RectangleLabels", "to_name": ["i"]}})
    with pytest.raises(InputError, match="something else: none"):
        find_control({})


@pytest.mark.parametrize(
    ("kind", "labels", "value"),
    [
        ("choices", ["a", "b"], {"choices": ["a", "b"]}),
        ("taxonomy", ["a > b", "c"], {"taxonomy": [["a", "b"], ["c"]]}),
        ("rating", [3.6], {"rating": 4}),
        ("number", [3.6], {"number": 3.6}),
    ],
)
def test_results(kind: str, labels: list[Any], value: dict[str, Any]) -> None:
    assert Control("q", "t", kind).result(labels) == [{"from_name": "q", "to_name": "t", "type": kind, "value": value}]


# -------------------------------------------------------------------- predictions, and what comes next


@pytest.fixture
def pulled(tmp_path: Path) -> Path:
    tasks = [task(1, said("yes", "yes", "yes")), task(2, said("yes", "no")), task(3, []), task(4, said("no", "no"))]
    Folder(tmp_path).merge(tasks, STATE)
    return tmp_path


def test_predictions_are_the_consensus(pulled: Path) -> None:
    rows = {row["task"]: row for row in fit(pulled, CONTROL, "majority").predictions()}
    assert set(rows) == {1, 2, 4}
    assert rows[1] == {"task": 1, "score": 1.0, "result": CONTROL.result(["yes"])}
    assert rows[2]["score"] == 0.5


def test_numbers_are_predicted_without_a_score(tmp_path: Path) -> None:
    stars = [task(n, [annotation(10 * n + who, who, {"rating": n}, "rating") for who in (1, 2)]) for n in (1, 2, 3)]
    Folder(tmp_path).merge([*stars, task(4, [])], STATE)
    found = fit(tmp_path, Control("q", "t", "rating"), "mean")
    assert [row["result"][0]["value"]["rating"] for row in found.predictions()] == [1, 2, 3]
    assert all("score" not in row for row in found.predictions())
    assert next_tasks(found, 1)[0].task == 4


def test_several_labels(tmp_path: Path) -> None:
    chosen = [task(n, [annotation(10 * n + who, who, {"choices": ["a", "b"]}) for who in (1, 2)]) for n in (1, 2)]
    Folder(tmp_path).merge([*chosen, task(3, [])], STATE)
    found = fit(tmp_path, CONTROL)
    assert found.predictions()[0]["result"][0]["value"] == {"choices": ["a", "b"]}
    assert next_tasks(found, 1)[0].task == 3


def test_the_most_uncertain_task_comes_next(pulled: Path) -> None:
    found = next_tasks(fit(pulled, CONTROL, "majority"), 10)
    assert [(t.task, t.annotations) for t in found] == [(3, 0), (2, 2), (4, 2), (1, 3)]
    assert [t.task for t in next_tasks(fit(pulled, CONTROL, "majority"), 10, most=2)] == [3]


def test_gold_is_what_is_marked_as_ground_truth(tmp_path: Path) -> None:
    tasks = [task(n, said("yes", "no")) for n in range(1, 6)]
    Folder(tmp_path).merge(tasks, STATE)
    with pytest.raises(InputError, match="no gold to use"):
        fit(tmp_path, CONTROL, "dawid-skene", gold=True)
    for one in tasks:
        one["annotations"][1]["ground_truth"] = True
    Folder(tmp_path).merge(tasks, STATE)
    rows = fit(tmp_path, CONTROL, "dawid-skene", gold=True).predictions()
    assert all(row["result"][0]["value"] == {"choices": ["no"]} for row in rows)


def test_versions_count_up() -> None:
    assert new_version({}, "auto") == "crowdwise-auto-1"
    assert new_version({"crowdwise-auto-9": 5, "crowdwise-x": 1, "m-77": 2}, "mace") == "crowdwise-mace-10"


class Fake(httpx.BaseTransport):
    """A server with versions of predictions alone; ``lost`` predictions are not taken, as Label Studio does with
    labels that the configuration does not have."""

    def __init__(self, lost: int = 0) -> None:
        self.lost, self.versions, self.current = lost, {"m1": 7, "crowdwise-auto-1": 3}, None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        method, given = request.method, json.loads(request.content) if request.content else None
        if request.url.path.endswith("/import/predictions"):
            version = given[0]["model_version"]
            self.versions[version] = self.versions.get(version, 0) + len(given) - self.lost
        elif method == "DELETE":
            self.versions.pop(given["model_version"])
        elif method == "PATCH":
            self.current = given["model_version"]
        return httpx.Response(200, json=self.versions)


def test_earlier_predictions_go_when_new_ones_are_there(pulled: Path) -> None:
    server = Fake()
    project = Project(LabelStudioClient("http://x", "t", transport=server), 1)
    consensus = fit(pulled, CONTROL, "majority")
    assert push(project, consensus).removed == ("crowdwise-auto-1",)
    assert server.versions == {"m1": 7, "crowdwise-majority-2": 3} and server.current == "crowdwise-majority-2"
    assert push(project, consensus, version="crowdwise-x", keep=True).removed == ()
    assert set(server.versions) == {"m1", "crowdwise-majority-2", "crowdwise-x"}
    with pytest.raises(ParameterError, match="has predictions of 'crowdwise-x' already"):
        push(project, consensus, version="crowdwise-x")
    with pytest.raises(ParameterError, match="begins with 'crowdwise'"):
        push(project, consensus, version="m1")


def test_predictions_that_were_not_taken_are_an_error_and_leave_nothing(pulled: Path) -> None:
    server = Fake(lost=1)
    with pytest.raises(ServiceError, match="took 2 predictions of 3"):
        push(Project(LabelStudioClient("http://x", "t", transport=server), 1), fit(pulled, CONTROL, "majority"))
    assert server.versions == {"m1": 7, "crowdwise-auto-1": 3} and server.current is None


# -------------------------------------------------------------------- watching


def test_what_is_new_counts_where_another_task_was_removed(tmp_path: Path) -> None:
    """All tasks are pulled again then, which has seen the new annotations before."""
    tasks = [task(1, []), task(2, [])]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/projects/1/":
            return httpx.Response(200, json={"title": "x", "task_number": len(tasks)})
        rows = tasks if request.url.path == "/api/tasks" else []
        return httpx.Response(200, json={"tasks": rows, "total": len(rows)})

    client = LabelStudioClient("http://x", "t", transport=httpx.MockTransport(answer))
    assert pull(client, 1, tmp_path).tasks == 2
    tasks = [task(1, said("yes"))]
    pulled = pull(client, 1, tmp_path)
    assert (pulled.new, pulled.known_tasks, pulled.any) == (1, 1, True)


def test_a_call_with_the_secret_is_heard() -> None:
    with Listener("127.0.0.1", 0) as listener:
        address = f"http://127.0.0.1:{listener.port}/"
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urllib.request.Request(address, b"{}", {SECRET: "wrong"}), timeout=60)
        assert not listener.called.is_set()
        with urllib.request.urlopen(urllib.request.Request(address, b"{}", {SECRET: listener.secret}), timeout=60):
            pass
        assert listener.called.wait(5) and listener.calls == 1
        with pytest.raises(OutputError, match="Cannot listen on"):
            Listener("127.0.0.1", listener.port)


def test_a_round_after_each_call_and_errors_do_not_end_it() -> None:
    called, steps, complaints = threading.Event(), [], []

    def step() -> None:
        steps.append(len(steps))
        called.set()  # somebody annotates while we work
        if len(steps) == 2:
            raise ServiceError("http://x does not answer.")

    watch(step, complaints.append, every=60.0, quiet=0.01, called=called, rounds=3)
    assert steps == [0, 1, 2]
    assert complaints == ["http://x does not answer. The next attempt follows."]


def test_without_calls_it_looks_from_time_to_time() -> None:
    steps: list[int] = []
    watch(lambda: steps.append(1), steps.append, every=0.01, rounds=3)
    assert steps == [1, 1, 1]


def test_what_could_not_be_pushed_is_pushed_in_the_next_round() -> None:
    """The pull before it took what is new: the next one brings nothing."""
    pulls = [Pulled(new=2, known_annotations=2), Pulled(known_annotations=2), Pulled(known_annotations=2)]
    done: list[int] = []

    def work() -> None:
        done.append(len(pulls))
        if len(done) == 1:
            raise ServiceError("http://x does not answer.")

    step = when_changed(lambda: pulls.pop(0), work)
    watch(step, lambda _: None, every=0.01, rounds=3)
    assert done == [2, 1]
    when_changed(Pulled, work)()  # nobody annotated yet
    assert len(done) == 2


def test_where_to_listen() -> None:
    assert listening_at(":80") == ("127.0.0.1", 80) and listening_at("[::1]:8090") == ("::1", 8090)
    with pytest.raises(ParameterError, match="expected a host and a port"):
        listening_at("localhost")


# -------------------------------------------------------------------- the command


def test_a_pulled_folder_is_an_export(pulled: Path) -> None:
    assert cw.read_export(pulled).tool == "label-studio"
    made = run("aggregate", str(pulled), "--method", "majority")
    assert made.returncode == 0 and "item,label" in made.stdout


def test_the_command_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABEL_STUDIO_API_KEY", raising=False)
    words = ["label-studio", "pull", "--url", "http://127.0.0.1:9", "--project", "1", "--out", str(tmp_path / "p")]
    made = run(*words)
    assert made.returncode == 2 and "set LABEL_STUDIO_API_KEY" in made.stderr
    assert not (tmp_path / "p").exists()
