"""Write what the documentation says about the code from the code itself.

    python docs/generate.py              write every generated block
    python docs/generate.py --pictures   and the pictures of the demonstration and its report
    python docs/generate.py --check      write nothing; exit with 1 and name the files that are out of date

A generated block stands between ``<!-- name:begin -->`` and ``<!-- name:end -->``; the rest of the page is written by
hand.

==================  ======================================  ====================================
block               where                                   from
==================  ======================================  ====================================
``methods``         docs/methods.md                         the registry
``learners``        docs/learners.md                        the registry
``parameters KEY``  docs/methods*.md, one for each method   the link to the class in the reference
                    docs/learners*.md, docs/answers*.md     the same
``answers``         docs/answers.md                          the registry
``shared BASE``     docs/learners.md                        the same, of what learners share
``aliases``         docs/votes.md                           ``crowdwise.data.columns.ALIASES``
``commands``        docs/cli.md                             the first line of every command's help
``routes``          docs/serve.md                           the routes of the server and their roles
``settings``        docs/serve.md                           the fields of its configuration
``tools``           docs/exports.md                         docs/tool_pages.toml
``sections``        docs/tools.md                           the same, and the docstrings of the importers
==================  ======================================  ====================================

``docs/assets/demo.svg`` shows how long each method took, which is different every time, so pictures are drawn on
request; ``docs/assets/report.png`` where Chromium and playwright are installed.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "docs")]

WIDTH = 80
"""Columns of the help texts."""
PICTURE = 80
"""Columns of the picture: the longest line of the demonstration fits."""

# The help must not depend on who asks for it: a fixed width, no colours. Read when typer is imported.
os.environ.update(
    COLUMNS=str(WIDTH), TERMINAL_WIDTH=str(WIDTH), NO_COLOR="1", TERM="dumb", _TYPER_FORCE_DISABLE_TERMINAL="1"
)
for _name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS"):
    os.environ.pop(_name, None)

import reference  # noqa: E402
from docstrings import parse  # noqa: E402
from tool_pages import tool_sections, tool_table  # noqa: E402

import crowdwise  # noqa: E402
from crowdwise import registry  # noqa: E402


def blocks() -> dict[str, dict[str, Callable[[], str]]]:
    """File -> block -> the function that makes its text."""
    pages: dict[str, dict[str, Callable[[], str]]] = {"docs/methods.md": {"methods": method_table}}
    for key in registry.METHODS:
        page = pages.setdefault(f"docs/{home(key)}", {})
        page[f"parameters {key}"] = lambda key=key: parameter_list(key)
    pages["docs/learners.md"] = {
        "learners": learner_table,
        "shared NetworkEstimator": lambda: shared_parameters("learner", "Learner"),
        "shared Tabular": lambda: shared_parameters("tabular", "Tabular"),
    }
    for key in registry.LEARNERS:
        page = pages.setdefault(f"docs/{home(key, 'learners')}", {})
        page[f"parameters {key}"] = lambda key=key: learner_parameters(key)
    pages["docs/answers.md"] = {"answers": answer_table}
    for key, entry in registry.ANSWER_METHODS.items():
        page = pages.setdefault(f"docs/{home(key, 'answers')}", {})
        write = learner_parameters if entry.inputs else parameter_list
        page[f"parameters {key}"] = lambda key=key, write=write: write(key)
    return {
        **pages,
        "docs/votes.md": {"aliases": alias_table},
        "docs/serve.md": {"routes": route_table, "settings": setting_table},
        "docs/cli.md": {"commands": command_table},
        "docs/exports.md": {"tools": tool_table},
        "docs/tools.md": {"sections": tool_sections},
    }


# -------------------------------------------------------------------- the blocks


def home(key: str, pages: str = "methods") -> str:
    """The page with a method's section (docs/methods.md, or docs/methods-FAMILY.md), or a learner's."""
    for page in sorted((ROOT / "docs").glob(f"{pages}*.md")):
        if re.search(rf"^## {re.escape(key)}$", page.read_text(encoding="utf-8"), flags=re.M):
            return page.name
    raise SystemExit(f"No page docs/{pages}*.md has a section '## {key}': write one.")


def method_table() -> str:
    """The registry as a table, with links to each method's section."""
    rows = [
        (
            f"[`{entry.key}`]({home(entry.key)}#{entry.key})",
            f"`{entry.class_name}`",
            entry.summary,
            entry.reference,
        )
        for entry in registry.METHODS.values()
    ]
    return table(("method", "class", "what it does", "reference"), rows)


def parameter_list(key: str) -> str:
    """The link to the parameters of a method."""
    return parameter_line((registry.ANSWER_METHODS.get(key) or registry.find(key)).load())


def parameter_line(model: Any) -> str:
    """A link to the reference, which has names, defaults and meanings; the docstring must describe them all."""
    described = {name for names, _ in descriptions(model) for name in names}
    unnamed = [name for name in model.parameters() if name not in described]
    if unnamed:
        raise SystemExit(f"{model.__name__} does not describe {', '.join(unnamed)}: add them to its docstring.")
    return f"[Parameters of `{model.__name__}`](reference/{reference.entries()[model.__name__].address})."


def descriptions(model: Any) -> list[tuple[tuple[str, ...], str]]:
    """The parameters as a class and its bases describe them, "As in" another class looked up there."""
    found: list[tuple[tuple[str, ...], str]] = []
    for owner in model.__mro__:
        described = {name for names, _ in found for name in names}
        for names, text in section(owner):
            mine = tuple(name for name in names if name not in described)
            elsewhere = re.match(r"As in :class:`(\w+)`", text)
            if mine and elsewhere:
                bases = {c.__name__: c for c in model.__mro__}
                other = descriptions(bases.get(elsewhere[1]) or getattr(crowdwise, elsewhere[1]))
                found += [(n, t) for n, t in other if set(n) & set(mine)]
            elif mine:
                found.append((mine, markdown(text)))
    return found


def section(model: Any) -> list[tuple[tuple[str, ...], str]]:
    """(names, text) of each entry under ``Parameters`` in the docstring."""
    return parse(model.__doc__).entries.get("Parameters", [])


def learner_table() -> str:
    """The learners as a table, with links to each one's section."""
    rows = [
        (
            f"[`{entry.key}`]({home(entry.key, 'learners')}#{entry.key})",
            entry.family,
            f"`{entry.class_name}`",
            entry.summary,
            entry.reference,
        )
        for entry in registry.LEARNERS.values()
    ]
    return table(("learner", "family", "class", "what it does", "reference"), rows)


def answer_table() -> str:
    """The methods for other answers than classes, by kind, with links to each one's section."""
    rows = []
    for kind, default, says in ((t.name, t.default, t.says) for t in registry.ANSWER_TYPES.values()):
        for n, entry in enumerate(e for e in registry.ANSWER_METHODS.values() if e.answer_type == kind):
            name = f"[`{entry.key}`]({home(entry.key, 'answers')}#{entry.key})"
            rows.append(
                (
                    f"`{kind}`: {says}" if n == 0 else "",
                    f"{name} (default)" if entry.key == default else name,
                    f"`{entry.class_name}`",
                    f"{entry.summary} (with inputs)" if entry.inputs else entry.summary,
                    entry.reference,
                )
            )
    return table(("answers", "method", "class", "what it does", "reference"), rows)


def shared_parameters(module: str, name: str) -> str:
    """The parameters of a base of learners."""
    base = getattr(import_module(f"crowdwise.learners.{module}"), name)
    return parameter_line(base)


def learner_parameters(key: str) -> str:
    """The links to the parameters of a learner and of all networks."""
    model = (registry.ANSWER_METHODS.get(key) or registry.find(key, inputs=True)).load()
    base = next((c for c in model.__mro__ if c.__name__ in ("Learner", "NetworkEstimator", "Tabular")), None)
    if base is None:  # a learner without a network, of other answers than votes
        return parameter_line(model)
    network = base.__name__ != "Tabular"
    link = "[all networks](learners.md#parameters)" if network else "[its kind](learners.md#without-a-network)"
    return parameter_line(model).removesuffix(".") + f", and of {link}."


def route_table() -> str:
    """The routes of the API, with the roles that they let in and what they do."""
    from crowdwise.server.app import ROUTERS
    from crowdwise.server.caller import Needs

    rows = []
    for route in (route for router in ROUTERS for route in router.routes):
        roles = [part.call.roles for part in route.dependant.dependencies if isinstance(part.call, Needs)]
        if route.path.startswith("/api/v1") and roles:
            words = " ".join(inspect.cleandoc(route.endpoint.__doc__ or "").split("\n\n")[0].split())
            path = route.path.removeprefix("/api/v1").replace("/campaigns/{campaign}", "…") or "/"
            (method,) = route.methods
            rows.append(
                (f"`{method} {path}`", ", ".join(roles[0]), words.partition(". ")[0].rstrip(".").replace("``", "`"))
            )
    made = table(("route", "roles", "what it does"), rows)
    return f"`…` stands for `/campaigns/{{campaign}}`; all are below `/api/v1`.\n\n{made}"


def setting_table() -> str:
    """The settings of the server."""
    from dataclasses import fields

    from crowdwise.server.configuration import PREFIX, Configuration

    rows = []
    for field in fields(Configuration):
        text = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
        default = f"`{text}`" if text else ""
        rows.append((f"`{field.name}`", f"`{PREFIX}{field.name.upper()}`", default, field.metadata["help"]))
    return table(("setting", "variable", "default", "what it is"), rows)


def alias_table() -> str:
    """The usual English names of the columns of votes."""
    from crowdwise.data.columns import ALIASES

    english = {"item": 12, "annotator": 12, "label": 12, "weight": 1, "timestamp": 4, "truth": 8, "n_options": 4}
    shown = {part: ALIASES[part][:most] for part, most in english.items()}
    rows = [(f"`{part}`", ", ".join(f"`{name}`" for name in names)) for part, names in shown.items()]
    return table(("part", "column names that are understood"), rows)


def command_table() -> str:
    """Every command with the first line of its help."""
    import typer

    from crowdwise.cli.main import app

    def walk(command: Any, words: list[str]) -> Iterator[tuple[str, str]]:
        for name, inner in getattr(command, "commands", {}).items():
            first = (inner.help or "").strip().partition("\n\n")[0]
            yield f"`{' '.join([*words, name])}`", " ".join(first.split())
            yield from walk(inner, [*words, name])

    return table(("command", "what it does"), list(walk(typer.main.get_command(app), [])))


# -------------------------------------------------------------------- the pieces


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def markdown(text: str) -> str:
    """A docstring's markup as Markdown."""
    text = (
        re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
        if ":mod:" not in text
        else re.sub(r":\w+:`~?([\w.]+)`", _short, text)
    )
    return text.replace("``", "`")


def _short(match: re.Match[str]) -> str:
    """Modules keep their whole name, everything else its last part."""
    return f"`{match[1] if match[0].startswith(':mod:') else match[1].rpartition('.')[2]}`"


def fill(page: str, name: str, text: str) -> str:
    """The page with one block replaced."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"The block {name!r} is missing: expected {begin} and {end}.")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def render(file: str) -> tuple[str, str]:
    """A page as it is and as it should be."""
    now = (ROOT / file).read_text(encoding="utf-8")
    then = now
    for name, make in blocks()[file].items():
        then = fill(then, name, make())
    return now, then


def draw_demo() -> None:
    """The demonstration's terminal output as a picture that needs no font from elsewhere."""
    from rich.console import Console
    from rich.terminal_theme import MONOKAI

    from crowdwise.cli.cmd_trying import run

    looks = {"highlight": False, "force_terminal": True, "color_system": "truecolor", "no_color": False}
    screen = Console(record=True, width=PICTURE, height=60, file=io.StringIO(), **looks)  # type: ignore[arg-type]
    screen.print("[bold]$ crowdwise demo[/bold]")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # where the report goes
        run(screen=screen)
        draw_report(next(Path(folder).glob("*.html")))
    screen.print()
    svg = screen.export_svg(title="crowdwise demo", theme=MONOKAI, unique_id="demo")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)
    svg = svg.replace(
        "Fira Code, monospace", "ui-monospace, 'Cascadia Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace"
    )
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.S)
    # Rich clips lines to the height of a font that we do not ship, which cuts off underscores.
    svg = re.sub(r"<clipPath id=\"demo-line-\d+\">.*?</clipPath>\s*", "", svg, flags=re.S)
    svg = re.sub(r" clip-path=\"url\(#demo-line-\d+\)\"", "", svg)
    (ROOT / "docs/assets/demo.svg").write_text(svg, encoding="utf-8")


def draw_judges() -> None:
    """The page of judges and a board by category, of the made-up panel of ``examples/judge_panel.py``."""
    import runpy

    import polars as pl
    from typer.testing import CliRunner

    from crowdwise.cli.main import app

    panel = runpy.run_path(str(ROOT / "examples/judge_panel.py"))["made_up"]().to_frame("polars")
    even = pl.col("question").str.tail(1).is_in(list("02468"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        panel.with_columns(category=pl.when(even).then(pl.lit("code")).otherwise(pl.lit("prose"))).write_csv(
            "panel.csv"
        )
        board = str(ROOT / "docs/assets/board-by-category.svg")
        for words in (["judges", "panel.csv", "--people", "ann,bob", "--html", "judges.html"],
                      ["rank", "panel.csv", "--by", "category", "--plot", board, "--out", "board.csv"]):  # fmt: skip
            CliRunner().invoke(app, words, catch_exceptions=False)
        draw_report(Path(folder) / "judges.html", "judges", 820)


def draw_report(page: Path, name: str = "report", height: int = 980) -> None:
    """The first screen of a page, where a browser is installed."""
    browser = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := which(name))), None)
    if browser is None or find_spec("playwright") is None:
        return
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as engine:
        window = engine.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        tab = window.new_page(viewport={"width": 1180, "height": height})
        tab.goto(page.as_uri())
        image = Image.open(io.BytesIO(tab.screenshot()))
        window.close()
    image.convert("RGB").quantize(160).save(ROOT / f"docs/assets/{name}.png", optimize=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the generated parts of the documentation.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 and name the files that are out of date"
    )
    parser.add_argument("--pictures", action="store_true", help="draw the demonstration, its report and judges, too")
    options = parser.parse_args()
    check = options.check
    stale = []
    for file in blocks():
        now, then = render(file)
        if now != then:
            stale.append(file)
            if not check:
                (ROOT / file).write_text(then, encoding="utf-8")
    if check:
        for file in stale:
            print(f"{file} is out of date: run python docs/generate.py", file=sys.stderr)
        return 1 if stale else 0
    if options.pictures:
        draw_demo()
        draw_judges()
        stale += [f"docs/assets/{name}" for name in ("demo.svg", "report.png", "judges.png", "board-by-category.svg")]
    print(f"written: {', '.join(stale) or 'nothing, all is up to date'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
