"""One round with a project: pull annotations, fit, push consensus as predictions, and say what to label next.

Tasks are pulled by the time of their last update: annotations that are added, edited or removed move it, imported
predictions do not. Where tasks were removed from the project, all of it is pulled again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise import api
from crowdwise.core.numerics import Floats
from crowdwise.core.result import Estimates
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.exporters.write_labels import described, labelled
from crowdwise.importers.collect import seconds
from crowdwise.importers.export import Export, read_export
from crowdwise.importers.label_studio import TASKS
from crowdwise.label_studio.ls_client import LabelStudioClient
from crowdwise.label_studio.ls_project import PREFIX, Control, Folder, Project, Pulled, kept

OVERLAP = 5.0  # seconds that are pulled twice: what was being written while the last pull looked
MARK = "%Y-%m-%dT%H:%M:%S.%fZ"


def pull(client: LabelStudioClient, project: int, path: Path, *, whole: bool = False) -> Pulled:
    """Bring a folder up to date with a project: only tasks that changed since the last pull, or the whole of it."""
    folder, there = Folder(path), Project(client, project)
    folder.check(client.url, project)
    state = folder.state()
    client.clock = None
    about = there.about()
    since = None if whole or not state else state["since"]
    began = client.clock
    pulled = _pulled(client, there, folder, since, began)
    if since is not None and pulled.known_tasks != about.get("task_number", pulled.known_tasks):
        again = _pulled(client, there, folder, None, began)
        both = {name: getattr(pulled, name) + getattr(again, name) for name in ("new", "changed", "removed")}
        return replace(again, **both)
    return pulled


def _pulled(
    client: LabelStudioClient, there: Project, folder: Folder, since: str | None, began: float | None
) -> Pulled:
    query: dict[str, Any] = {"ordering": ["tasks:id"]}
    if since is not None:
        changed = {"filter": "filter:tasks:updated_at", "operator": "greater_or_equal", "type": "Datetime"}
        query["filters"] = {"conjunction": "and", "items": [{**changed, "value": since}]}
    tasks = list(client.tasks(there.number, query))
    people = there.annotators() if any(task.get("annotations") for task in tasks) else {}
    latest = max((t for task in tasks if (t := seconds(task.get("updated_at"))) is not None), default=None)
    state = {"url": client.url, "project": there.number, "since": _mark(began or latest, since)}
    return folder.merge((kept(task, people) for task in tasks), state, whole=since is None)


def _mark(known: float | None, since: str | None) -> str:
    """The time from which the next pull takes tasks, as the server reads it."""
    if known is None:
        return since or datetime.fromtimestamp(0, UTC).strftime(MARK)
    return datetime.fromtimestamp(known - OVERLAP, UTC).strftime(MARK)


@dataclass(frozen=True, eq=False)
class ProjectConsensus:
    """What the annotations of a folder say about one question."""

    export: Export
    control: Control
    result: Any

    @property
    def task_of(self) -> dict[str, Any]:
        """Item, as text -> the number of its task."""
        return {name: about.get("task_id") for name, about in described(self.export.item_table).items()}

    def answers(self) -> Iterator[tuple[str, list[Any], float | None]]:
        """Item, labels (or one number) and score, item by item; numbers have no score."""
        if isinstance(self.result, Estimates):
            for item, value in zip(self.result.items.tolist(), self.result.values.tolist(), strict=True):
                yield str(item), [value], None
        else:
            for row in labelled(self.result, {}):
                yield str(row.item), row.labels, row.score

    def predictions(self) -> list[dict[str, Any]]:
        """A prediction for each task with answers, without a version."""
        tasks, rows = self.task_of, []
        for item, labels, score in self.answers():
            result = self.control.result(labels)
            if tasks.get(item) is not None and result:
                rows.append({"task": tasks[item], "result": result} | ({} if score is None else {"score": score}))
        return rows


def fit(
    source: Path | list[Any], control: Control, method: str | None = None, params: Mapping[str, Any] | None = None, *,
    gold: bool = False,
) -> ProjectConsensus:  # fmt: skip
    """Fit a method to what was pulled, or to tasks in memory; with ``gold`` it may use annotations of ground truth."""
    tasks = source / TASKS if isinstance(source, Path) and source.is_dir() else source
    export = read_export(tasks, "label-studio", question=control.name)
    table = _declared(export, control)
    if gold and getattr(table, "truth", None) is None:
        raise InputError("No annotation is marked as ground truth: there is no gold to use.")
    fitted = api.fit(table, method, params, gold=table.truth if gold else None)
    return ProjectConsensus(export, control, fitted.result)


def _declared(export: Export, control: Control) -> Any:
    """The answers; where all chose one class, with the others that the project offers."""
    table = export.table(control.name)
    if not isinstance(table, Votes) or table.n_classes > 1 or len(control.labels) < 2:
        return table
    chosen = table.classes.tolist()
    classes = [*chosen, *(label for label in control.labels if label not in map(str, chosen))]
    frame = export.answers[control.name].select("item", "annotator", "label")
    truth = None if table.truth is None else {n: chosen[0] for n in table.items[table.truth >= 0].tolist()}
    votes = Votes.from_frame(frame, classes=classes)
    return votes if truth is None else votes.with_truth(truth)


def new_version(taken: Mapping[str, int], method: str) -> str:
    """A name for the next version of our predictions: ``crowdwise-auto-3`` after ``crowdwise-dawid-skene-2``."""
    numbers = [name.rpartition("-")[2] for name in taken if name.startswith(f"{PREFIX}-")]
    return f"{PREFIX}-{method}-{1 + max((int(n) for n in numbers if n.isdecimal()), default=0)}"


@dataclass(frozen=True)
class Pushed:
    """What a push did: predictions of a version that are there now, and the versions that were removed for them."""

    version: str
    predictions: int
    removed: tuple[str, ...]


def push(project: Project, consensus: ProjectConsensus, *, version: str | None = None, keep: bool = False) -> Pushed:
    """Put consensus on the tasks as predictions, then remove our earlier ones (unless they are to be kept)."""
    taken = project.versions()
    if version is not None and not version.startswith(PREFIX):
        raise ParameterError(f"version={version!r}: expected a name that begins with {PREFIX!r}, to be known as ours.")
    version = version or new_version(taken, consensus.result.method)
    rows = consensus.predictions()
    if not rows:
        raise InputError(f"No task has a consensus to push for {consensus.control.name!r}.")
    count = project.add_predictions(rows, version)
    earlier = () if keep else tuple(name for name in taken if name.startswith(PREFIX))
    project.remove_predictions(earlier)
    return Pushed(version, count, earlier)


@dataclass(frozen=True)
class Next:
    """A task to label: its annotations so far, its label and score (none without answers), and why it comes."""

    task: int
    item: str
    annotations: int
    label: str
    score: float | None
    uncertainty: float
    """In bits; of numbers the spread. Tasks without answers are as uncertain as the class distribution."""


def next_tasks(consensus: ProjectConsensus, n: int, *, most: int | None = None) -> list[Next]:
    """The n tasks whose label is the least certain, most uncertain first; with ``most`` annotations none needs more."""
    result, table = consensus.result, consensus.export.table(consensus.control.name)
    uncertain, unseen = _uncertainty(result)
    names = list(map(str, result.items.tolist()))
    answers_on = np.bincount(table.item, minlength=len(table)).tolist()
    counts = dict(zip(map(str, table.items.tolist()), answers_on, strict=True))
    bits = dict(zip(names, uncertain.tolist(), strict=True))
    answers = {item: (", ".join(map(str, labels)), score) for item, labels, score in consensus.answers()}
    tasks = consensus.task_of
    open_ = [item for item in tasks if tasks[item] is not None and (most is None or counts.get(item, 0) < most)]
    ranked = sorted(open_, key=lambda item: (-round(bits.get(item, unseen), 9), counts.get(item, 0)))
    return [
        Next(int(tasks[item]), item, counts.get(item, 0), *answers.get(item, ("", None)), bits.get(item, unseen))
        for item in ranked[:n]
    ]


def _uncertainty(result: Any) -> tuple[Floats, float]:
    """N: how uncertain each item is, and a task without answers."""
    if isinstance(result, Estimates):
        return np.asarray(result.deviations, dtype=float), float("inf")
    p = np.clip(np.asarray(result.posterior, dtype=float), 1e-12, 1.0)
    if hasattr(result, "member"):  # every label may be there or not
        q = np.clip(1.0 - p, 1e-12, 1.0)
        return -(p * np.log2(p) + q * np.log2(q)).sum(axis=1), float("inf")
    prior = p.mean(axis=0)
    return -(p * np.log2(p)).sum(axis=1), float(-(prior * np.log2(prior)).sum())
