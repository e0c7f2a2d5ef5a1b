"""The plan of the papers' tables: a TOML file that names networks, crowds, learners, seeds and settings.

::

    [tables.max-mig-cifar10]
    title = "..."
    network = "vgg16"
    crowds = ["high-independent", "low-copied"]
    seeds = 3
    learners = ["max-mig", "two-stage:dawid-skene"]
    alone = ["truth/two-stage"]          # further crowd/learner pairs
    [tables.max-mig-cifar10.settings]    # of all learners
    epochs = 30
    [tables.max-mig-cifar10.own.trace]   # of one learner
    weight = 0.01
    [tables.max-mig-cifar10.own.trace-0] # a learner by another name, with other settings
    learner = "trace"
    weight = 0.0
    [tables.max-mig-cifar10.published.accuracy_last]
    max-mig = [86.33, 67.59]             # one figure for each crowd
    [tables.max-mig-cifar10.reasons]     # why a cell is behind its published figure: learner/crowd
    "max-mig/low-copied" = "..."
    [tables.max-mig-cifar10.figures.high]
    title = "..."
    crowds = { high-independent = "independent", high-copied = "copied" }

Every (table, crowd, learner, seed) is a cell, with the name ``table/crowd/learner/seed``. Curves over a setting have
``columns`` instead of ``crowds``: a column is a crowd with settings for those learners that have them::

    [tables.clip.columns]
    "0.55" = { crowd = "beta-1", max_probability = 0.55 }
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from papers_data import CROWDS

from crowdwise import registry
from crowdwise.data.boundary import reason
from crowdwise.errors import ParameterError, ReadError

KEYS = {
    "title", "network", "crowds", "seeds", "learners", "alone", "settings", "own", "note", "published", "source",
    "reasons", "figures", "columns", "curves", "measures",
}  # fmt: skip


@dataclass(frozen=True)
class PaperCell:
    """One training: a learner with a network on a crowd, with a seed."""

    table: str
    crowd: str
    learner: str
    seed: int
    network: str
    data: str
    """The crowd that is loaded: that of the column, or the one of the cell's name."""
    settings: dict[str, Any] = field(hash=False)
    key: str = ""
    """The learner, with its first stage after a colon; ``learner`` may be another name for it."""
    curve: bool = False
    """Whether the test accuracy after every epoch is stored."""

    @property
    def name(self) -> str:
        return f"{self.table}/{self.crowd}/{self.learner}/{self.seed}"


@dataclass(frozen=True)
class PaperFigure:
    """Curves over some crowds of a table, one for each learner."""

    name: str
    title: str
    crowds: dict[str, str]
    """What each crowd is called below the figure."""
    learners: list[str]
    measure: str = "accuracy_last"
    x_label: str = ""


@dataclass(frozen=True)
class PaperTable:
    """One table: its cells, in the order in which they are run, and the published figures beside them."""

    name: str
    title: str
    network: str
    crowds: list[str]
    learners: list[str]
    alone: list[tuple[str, str]]
    cells: list[PaperCell]
    note: str
    source: str
    published: dict[str, dict[str, list[float | None]]]
    """measure -> learner -> one figure for each crowd."""
    reasons: dict[str, str]
    """learner/crowd -> why it is behind its published figure; ``*``: one sentence for all."""
    figures: list[PaperFigure]
    measures: list[str]
    """Measures that the page shows, beside those that have published figures."""

    @property
    def seeds(self) -> int:
        """How many there are of each cell."""
        return 1 + max(cell.seed for cell in self.cells)


def read_plan(file: Path, changes: Sequence[str] = ()) -> list[PaperTable]:
    """All tables of a plan, with other settings (``key=value``, as in TOML); what is unknown is refused."""
    try:
        other = tomllib.loads("\n".join(changes))
    except ValueError as error:
        raise ParameterError(f"Expected KEY=VALUE as in TOML (texts in quotes) and found {changes}: {error}.") from None
    try:
        plan = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReadError(f"{file} cannot be read as a plan: {reason(error)}.") from None
    if not plan.get("tables"):
        raise ReadError(f"{file} has no tables: expected [tables.NAME] with network, crowds and learners.")
    return [_table(name, dict(facts), other) for name, facts in plan["tables"].items()]


def _table(name: str, facts: dict[str, Any], changes: dict[str, Any]) -> PaperTable:
    columns = {crowd: {"crowd": crowd} for crowd in facts.get("crowds", [])} | facts.get("columns", {})
    unknown = sorted(set(facts) - KEYS)
    lost = [key for key in ("network", "learners") if key not in facts] + ([] if columns else ["crowds"])
    if unknown or lost:
        raise ReadError(f"Table {name}: {', '.join(unknown)} unknown." if unknown else f"Table {name} lacks {lost[0]}.")
    alone = [(pair.partition("/")[0], pair.partition("/")[2]) for pair in facts.get("alone", [])]
    pairs = [(column, learner) for column in columns for learner in facts["learners"]] + alone
    extra = {column: dict(given) for column, given in columns.items()}
    data = {column: given.pop("crowd", "") for column, given in extra.items()} | {crowd: crowd for crowd, _ in alone}
    bad = sorted(set(data.values()) - set(CROWDS))
    if bad:
        raise ReadError(f"Table {name}: there is no crowd {bad[0]!r}; there are {', '.join(CROWDS)}.")
    own, cells = facts.get("own", {}), []
    for seed in range(int(facts.get("seeds", 1))):
        for column, learner in pairs:
            mine = dict(own.get(learner, {}))
            known = settings_of(key := mine.pop("learner", learner))
            more = {setting: value for setting, value in extra.get(column, {}).items() if setting in known}
            settings = facts.get("settings", {}) | more | mine | changes
            check(name, learner, settings, known)
            place = (name, column, learner, seed, facts["network"], data[column])
            cells.append(PaperCell(*place, settings, key, bool(facts.get("curves"))))
    spare = sorted({key for given in extra.values() for key in given} - {key for c in cells for key in c.settings})
    if spare:
        raise ReadError(f"Table {name}: none of its learners has the setting {spare[0]!r} of its columns.")
    return PaperTable(
        name, facts.get("title", name), facts["network"], list(columns), facts["learners"], alone, cells,
        facts.get("note", ""), facts.get("source", ""), facts.get("published", {}), facts.get("reasons", {}),
        [_figure(name, key, row, facts["learners"], list(columns)) for key, row in facts.get("figures", {}).items()],
        facts.get("measures", []),
    )  # fmt: skip


def _figure(table: str, name: str, row: dict[str, Any], learners: list[str], columns: list[str]) -> PaperFigure:
    given = {"title": name, "learners": learners, "crowds": {column: column for column in columns}} | row
    unknown = sorted(set(given) - {field.name for field in fields(PaperFigure)})
    lost = sorted(set(given["crowds"]) - set(columns))
    if unknown or lost:
        raise ReadError(f"Table {table}, figure {name}: {(unknown or lost)[0]!r} unknown.")
    return PaperFigure(name, **given)


@cache
def settings_of(learner: str) -> frozenset[str]:
    """The settings that a learner has."""
    return frozenset(registry.find(learner.partition(":")[0], inputs=True).load().parameters())


def check(table: str, learner: str, settings: dict[str, Any], known: frozenset[str]) -> None:
    """Refuse settings that the learner does not know."""
    unknown = sorted(set(settings) - known)
    if unknown:
        raise ReadError(f"Table {table}: {learner} has no setting {unknown[0]!r}.")


def chosen(
    tables: Sequence[PaperTable], only: Sequence[str] | None, seeds: Sequence[int] | None
) -> list[PaperCell]:  # fmt: skip
    """The cells whose name matches one of some patterns, with these seeds: by pattern, then the first seed first."""
    cells = sorted((cell for table in tables for cell in table.cells), key=lambda cell: cell.seed)
    if only:
        matching = [[c for c in cells if fnmatchcase(c.name, p) or fnmatchcase(c.name, f"{p}/*")] for p in only]
        cells = list({cell.name: cell for some in matching for cell in some}.values())
    if seeds is not None:
        cells = [cell for cell in cells if cell.seed in seeds]
    if not cells:
        raise ParameterError("No cell of the plan matches: names are table/crowd/learner/seed.")
    return cells
