"""A project of Label Studio: what it asks, who annotates, its predictions, and the tab of what to label next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crowdwise.errors import InputError, ParameterError, ServiceError, listing
from crowdwise.label_studio.ls_client import Client

ANSWERED = {"Choices": "choices", "Taxonomy": "taxonomy", "Rating": "rating", "Number": "number"}
"""Controls whose consensus can be a prediction -> the type of their results."""
PREFIX = "crowdwise"
"""How the versions of our predictions begin."""
TAB = "crowdwise: label next"
BATCH = 500


@dataclass(frozen=True)
class Control:
    """A question of a project: its name (``from_name``), what it is about (``to_name``), its type and its labels."""

    name: str
    to_name: str
    kind: str
    labels: tuple[str, ...] = ()

    def result(self, labels: Sequence[Any]) -> list[dict[str, Any]]:
        """Some labels, or one number, as a result; nothing where there are none."""
        if not labels:
            return []
        match self.kind:
            case "choices":
                value: Any = [str(label) for label in labels]
            case "taxonomy":
                value = [str(label).split(" > ") for label in labels]
            case "rating":
                value = round(float(labels[0]))
            case _:
                value = float(labels[0])
        return [{"from_name": self.name, "to_name": self.to_name, "type": self.kind, "value": {self.kind: value}}]


def find_control(config: Mapping[str, Any], question: str | None = None) -> Control:
    """The question of a project by its name, or the only one that labels or numbers answer.

    ``config`` is ``parsed_label_config`` of the project.
    """
    known = {name: about for name, about in config.items() if isinstance(about, Mapping)}
    fit = [name for name, about in known.items() if about.get("type") in ANSWERED]
    if question is not None and question not in known:
        raise ParameterError(f"The project has no question {question!r}: it has {listing(known, 12) or 'none'}.")
    if not fit or (question is not None and question not in fit):
        kinds = ", ".join(f"{name} ({about.get('type')})" for name, about in known.items()) or "none"
        raise InputError(
            f"Consensus can be a prediction for {', '.join(ANSWERED)}; the project asks something else: {kinds}."
        )
    if question is None and len(fit) > 1:
        raise ParameterError(f"The project has several questions: {', '.join(fit)}. Choose one of them by its name.")
    name = question or fit[0]
    about = known[name]
    to = about.get("to_name") or [""]
    return Control(name, str(to[0]), ANSWERED[str(about["type"])], tuple(map(str, about.get("labels") or ())))


class Project:
    """A project on a server."""

    def __init__(self, client: Client, number: int) -> None:
        self.client, self.number = client, number
        self.path = f"/api/projects/{number}"

    def about(self) -> dict[str, Any]:
        """Title, labelling configuration and counts."""
        found = self.client.get(f"{self.path}/")
        if not isinstance(found, dict) or "title" not in found:
            raise ServiceError(f"{self.client.url}{self.path}/ did not answer with a project.")
        return found

    def control(self, question: str | None = None) -> Control:
        """The question that consensus answers."""
        return find_control(self.about().get("parsed_label_config") or {}, question)

    def annotators(self) -> dict[int, dict[str, Any]]:
        """Number -> e-mail address and name of those who annotated; nothing where the token may not know."""
        try:
            found = self.client.get(f"{self.path}/annotators/")
        except ServiceError:
            return {}
        wanted = ("id", "email", "first_name", "last_name")
        people = found if isinstance(found, list) else []
        return {who["id"]: {key: who.get(key) for key in wanted} for who in people if isinstance(who, dict)}

    def versions(self) -> dict[str, int]:
        """The versions of models with predictions, and how many."""
        found = self.client.get(f"{self.path}/model-versions/")
        return {str(name): int(count) for name, count in found.items()} if isinstance(found, dict) else {}

    def add_predictions(self, rows: Sequence[Mapping[str, Any]], version: str) -> int:
        """Import predictions of a version that is new, all or none; then make it the version of the project."""
        if version in self.versions():
            raise ParameterError(f"The project has predictions of {version!r} already: choose another version.")
        try:
            for start in range(0, len(rows), BATCH):
                batch = [{**row, "model_version": version} for row in rows[start : start + BATCH]]
                self.client.send("POST", f"{self.path}/import/predictions", batch)
            there = self.versions().get(version, 0)
            if there != len(rows):
                raise ServiceError(f"{self.client.url} took {there:,} predictions of {len(rows):,}.")
        except ServiceError:
            self.remove_predictions([version])
            raise
        self.client.send("PATCH", f"{self.path}/", {"model_version": version})
        return len(rows)

    def remove_predictions(self, versions: Iterable[str]) -> None:
        """Remove the predictions of some versions, where they are there."""
        for version in versions:
            self.client.send("DELETE", f"{self.path}/model-versions/", {"model_version": version})

    def show_next(self, tasks: Sequence[int]) -> int:
        """Make a tab of the data manager that selects these tasks, uncertain ones first; its number."""
        data = {
            "title": TAB, "ordering": ["tasks:predictions_score"],
            "filters": {"conjunction": "and", "items": []},
            "selectedItems": {"all": False, "included": list(tasks)},
        }  # fmt: skip
        views = self.client.get("/api/dm/views/", project=self.number)
        ours = [v for v in views if isinstance(v, dict) and (v.get("data") or {}).get("title") == TAB]
        if ours:
            made = self.client.send("PATCH", f"/api/dm/views/{ours[0]['id']}/", {"data": data, "project": self.number})
        else:
            made = self.client.send("POST", "/api/dm/views/", {"data": data, "project": self.number})
        return int(made["id"])

    def ask_for(self, annotations: int) -> None:
        """How many annotators each task is given to, at most."""
        self.client.send("PATCH", f"{self.path}/", {"maximum_annotations": annotations})
