"""The call chains of docs/architecture.md, followed: what they list is called, in that order, and nothing reaches up.

Each chain is run once, under a profiler that notes every call inside crowdwise. A method counts for the class of its
object, so that what a base class does is done by the model at hand. What may call whom is what may import whom
(``MAY_IMPORT`` in test_architecture.py). Objects and functions may be passed down and called from below; a function or
class that the caller names itself may not lie above it.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import crowdwise as cw
from conftest import ROOT
from crowdwise.cli.main import app

PACKAGE = Path(cw.__file__).parent
_spec = importlib.util.spec_from_file_location("test_architecture", ROOT / "tests" / "test_architecture.py")
assert _spec and _spec.loader
architecture = importlib.util.module_from_spec(_spec)
sys.modules.setdefault("test_architecture", architecture)
_spec.loader.exec_module(architecture)


WRAPPERS = ("core.constraints.checked",)
"""Decorators, whose inner functions stand for what they decorate."""


class Call(NamedTuple):
    """A call between two functions (``part.module.Class.name``); ``by_name``: the caller names the callee itself."""

    caller: str
    callee: str
    by_name: bool


def name_of(frame: FrameType) -> str:
    """``data.votes.Votes.from_frame`` for a frame of ours."""
    code = frame.f_code
    first = code.co_varnames[0] if code.co_argcount else ""
    owner: Any = frame.f_locals.get(first) if first in ("self", "cls") else None
    owner = type(owner) if first == "self" else owner
    if owner is not None and owner.__module__.startswith("crowdwise.") and "<locals>" not in code.co_qualname:
        return f"{owner.__module__.removeprefix('crowdwise.')}.{owner.__qualname__}.{code.co_name}"
    return f"{module_of(code.co_filename)}.{code.co_qualname}"


@cache
def module_of(file: str) -> str:
    """``data.votes`` for a file of ours, nothing for others."""
    path = Path(file)
    inside = path.is_relative_to(PACKAGE)
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__") if inside else ""


def is_ours(frame: FrameType) -> bool:
    return bool(module_of(frame.f_code.co_filename))


def is_body(frame: FrameType) -> bool:
    """Whether it is that of a module or class, which runs when it is imported."""
    return not frame.f_code.co_flags & inspect.CO_OPTIMIZED


def caller_of(frame: FrameType) -> FrameType | None:
    """The nearest function of ours above; None within an import."""
    above = frame.f_back
    while above is not None:
        if is_ours(above):
            if is_body(above):
                return None
            if not above.f_code.co_name.startswith("<") and not name_of(above).startswith(WRAPPERS):
                return above
        above = above.f_back
    return None


def stack_of(frame: FrameType) -> Iterator[str]:
    while (above := caller_of(frame)) is not None:
        yield name_of(above)
        frame = above


def follow(action: Callable[[], None]) -> tuple[list[Call], dict[str, list[str]]]:
    """Every call between functions of ours while an action runs, in order; and for each function who was at work when
    it was first called, the nearest first."""
    calls: list[Call] = []
    stacks: dict[str, list[str]] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not is_ours(frame) or is_body(frame) or frame.f_code.co_name.startswith("<"):
            return
        callee, above = name_of(frame), caller_of(frame)
        if callee.startswith(WRAPPERS) or (above is None and calls):
            return
        bound = frame.f_code.co_varnames[:1] == ("self",) or "<locals>" in frame.f_code.co_qualname
        named = above is not None and frame.f_code.co_name in (*above.f_code.co_names, *above.f_code.co_varnames)
        calls.append(Call(name_of(above) if above else "", callee, named and not bound))
        if callee not in stacks:
            stacks[callee] = list(stack_of(frame))

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls, stacks


def run(*words: str | Path) -> None:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output


# -------------------------------------------------------------------- the four scenarios


def file_to_report(folder: Path) -> Callable[[], None]:
    importlib.import_module("jinja2")  # imports are slow under a profiler
    cw.simulate.dirichlet(60, n_annotators=6, votes_per_item=4, random_state=0).save(folder / "crowd")
    return lambda: run(
        "report", folder / "crowd" / "labels.csv", "--method", "dawid-skene", "--out", folder / "report.html"
    )


def inputs_to_classifier(folder: Path) -> Callable[[], None]:
    importlib.import_module("torch")
    importlib.import_module("crowdwise.learners.alternating_em")
    cw.simulate.machine(60, n_annotators=5, subset=(30, 60), votes_per_item=3, random_state=0).save(folder / "digits")
    return lambda: run(
        "learn", folder / "digits", "--method", "aggnet", "--epochs", "1", "--seed", "0", "--out", folder / "m"
    )


def comparisons_to_leaderboard(folder: Path) -> Callable[[], None]:
    crowd = cw.simulate.comparisons(6, n_annotators=4, n_comparisons=80, random_state=0)
    crowd.comparisons.to_frame("polars").write_csv(folder / "battles.csv")
    return lambda: run("rank", folder / "battles.csv", "--out", folder / "leaderboard.csv")


def vote_to_question(folder: Path) -> Callable[[], None]:
    crowd = cw.simulate.one_coin(20, n_annotators=5, votes_per_item=2, random_state=0)
    votes = crowd.votes
    names = {"items": votes.items.tolist(), "annotators": votes.annotators.tolist(), "classes": votes.classes.tolist()}
    campaign = cw.Campaign.create(folder / "campaign", cw.OneCoin(), **names)
    rows = votes.to_frame("dict")
    answers = list(zip(rows["item"], rows["annotator"], rows["label"], strict=True))

    def act() -> None:
        campaign.add(answers)
        campaign.propose(3)

    return act


SCENARIOS = {
    "File to report": file_to_report,
    "Inputs and votes to classifier": inputs_to_classifier,
    "Comparisons to leaderboard": comparisons_to_leaderboard,
    "Vote to next question": vote_to_question,
}


def chain(title: str) -> list[str]:
    """The functions that docs/architecture.md lists under a title."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    part = page.partition(f"\n### {title}\n")[2].partition("\n##")[0]
    return re.findall(r"^\d+\. `([\w.]+)`", part, flags=re.M)


def part_of(name: str) -> str:
    return name.partition(".")[0]


def may_call(caller: str, callee: str) -> bool:
    return part_of(callee) == part_of(caller) or part_of(callee) in architecture.MAY_IMPORT[part_of(caller)]


@pytest.mark.parametrize("title", SCENARIOS)
def test_a_chain_is_as_it_is_written(title: str, tmp_path: Path) -> None:
    listed = chain(title)
    assert len(listed) >= 10
    calls, stacks = follow(SCENARIOS[title](tmp_path))
    order = {name: place for place, name in enumerate(dict.fromkeys(call.callee for call in calls))}
    page = f"(docs/architecture.md, {title}: write there what is called now)"
    assert [name for name in listed if name not in order] == [], f"not called {page}"
    assert listed == sorted(listed, key=order.__getitem__), f"called in another order {page}"
    for name in listed[1:]:  # each is at work for one above it in the list, and in a part that this one may import
        caller = next((above for above in stacks[name] if above in listed), listed[0])
        assert listed.index(caller) < listed.index(name), f"{caller} calls {name}"
        assert may_call(caller, name), f"{caller} reaches up to {name}"
    reaches = {f"{c.caller} -> {c.callee}" for c in calls if c.by_name and not may_call(c.caller, c.callee)}
    assert {reach for reach in reaches if not reach.startswith("registry.")} == set()  # which loads what it names


def test_the_import_rules_of_the_page_are_those_of_the_test() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Allowed imports")[2].partition("\n## ")[0]
    parts = {name for row in re.findall(r"^\| (`.+?) \|", table, flags=re.M) for name in re.findall(r"`(\w+)`", row)}
    assert parts == set(architecture.MAY_IMPORT) - {"__init__", "__main__"}


def test_the_tree_of_the_page_is_the_tree() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = page.partition("src/crowdwise/\n")[2].partition("```")[0]
    named = set(re.findall(r"^  (\S+)", tree, flags=re.M))
    there = {f"{p.name}/" for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    there |= {p.name for p in PACKAGE.glob("*.py")} - {"__main__.py"}
    assert named == there
