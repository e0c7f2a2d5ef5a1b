"""The documentation tells the truth: its code runs, prints what it says it prints, and leaves nothing public out.

In README.md, CONTRIBUTING.md and all pages under docs

- every ``python`` block is run, a page from top to bottom in one namespace and one empty folder;
- every line of a ``console`` or ``bash`` block that begins with ``crowdwise`` is run in the same folder;
- a ``text`` block after ``<!-- output -->`` holds what the block before it printed, ``...`` standing for anything;
- ``<!-- no-run -->`` above a block leaves it out.

Notebooks under docs/tutorials are run in a kernel and print what is stored in them.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import json
import re
import runpy
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
import yaml
from typer.testing import CliRunner

import crowdwise
from crowdwise import api, registry
from crowdwise.bench.runs import SHOWN
from crowdwise.cli.main import app
from crowdwise.cli.show_aggregate import facts

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LOOSE = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
NO_RUN, OUTPUT = "<!-- no-run -->", "<!-- output -->"


class Block(NamedTuple):
    """A fenced block: its language, text, first line in the file, and the comment above it."""

    language: str
    text: str
    line: int
    mark: str


def blocks(page: Path) -> list[Block]:
    source = page.read_text(encoding="utf-8")
    found = re.finditer(r"(?:^(<!-- [\w-]+ -->)\n+)?^```[ ]?(\w*)[^\n]*\n(.*?)^```[ ]*$", source, flags=re.M | re.S)
    return [Block(m[2], m[3], source.count("\n", 0, m.start(3)) + 1, m[1] or "") for m in found]


def run_python(block: Block, page: Path, namespace: dict[str, Any]) -> str:
    printed = io.StringIO()
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def run_console(block: Block, page: Path) -> str:
    printed = ""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words or words[0] != "crowdwise":
            continue
        target = words[words.index(">") + 1] if ">" in words else None
        result = CliRunner().invoke(
            app, words[1 : words.index(">")] if target else words[1:], prog_name="crowdwise", env={"COLUMNS": "120"}
        )
        assert result.exit_code == 0, (
            f"{page.name}, from line {block.line}: {line}\n{result.output}\n{result.exception!r}"
        )
        if target:
            Path(target).write_text(result.stdout, encoding="utf-8")
        printed += result.output
    return printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_run_and_print_what_they_say(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("__docs__")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where its classes are looked for
    namespace = vars(module)
    printed = ""
    for block in blocks(page):
        if block.mark == NO_RUN:
            continue
        if block.language == "python":
            printed = run_python(block, page, namespace)
        elif block.language in ("console", "bash"):
            printed = run_console(block, page)
        elif block.mark == OUTPUT:
            same = doctest.OutputChecker().check_output(block.text, printed, LOOSE)
            assert same, f"{page.name}, line {block.line} says\n{block.text}\nand the block above it prints\n{printed}"


def load_notebooks() -> types.SimpleNamespace:
    """docs/notebooks.py, which is not a module of the package."""
    return types.SimpleNamespace(**runpy.run_path(str(DOCS / "notebooks.py")))


@pytest.mark.parametrize("path", sorted(DOCS.glob("tutorials/*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_print_what_is_stored(path: Path) -> None:
    notebooks = load_notebooks()
    stored = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for cell, now in zip(stored, notebooks.run(path).cells, strict=True):
        if cell["cell_type"] != "code" or "varies" in cell["metadata"].get("tags", ()):
            continue
        was, printed = ("".join(map(notebooks.text_of, outputs)) for outputs in (cell["outputs"], now["outputs"]))
        same = doctest.OutputChecker().check_output(was, printed, doctest.NORMALIZE_WHITESPACE)
        assert same, f"{path.name} has\n{was}\nand now prints\n{printed}\nRun python docs/notebooks.py."


OWN = ("campaign_service.py", "spark_job.py")
"""Examples with tests of their own: below, and in tests/api/test_spark.py, where Spark runs."""
QUICK = [script for script in EXAMPLES if script.name not in OWN]


@pytest.mark.parametrize("script", QUICK, ids=lambda script: script.name)
def test_examples_run(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out


def test_the_example_that_reads_a_file_reads_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    crowdwise.simulate.one_coin(200, n_annotators=8, votes_per_item=4, random_state=0).save(tmp_path / "crowd")
    monkeypatch.setattr(sys, "argv", ["annotators_to_keep.py", str(tmp_path / "crowd" / "labels.csv"), "--bar", "0.5"])
    runpy.run_path(str(ROOT / "examples" / "annotators_to_keep.py"), run_name="__main__")
    assert "keep" in capsys.readouterr().out


def test_the_panel_of_judges_names_what_each_favours_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = runpy.run_path(str(ROOT / "examples" / "judge_panel.py"))["made_up"]()
    made.to_frame("polars").write_csv("verdicts.csv")
    monkeypatch.setattr(
        sys, "argv", ["judge_panel.py", "verdicts.csv", "--judges", "gpt-a,gpt-b-judge", "--out", "b.svg"]
    )
    runpy.run_path(str(ROOT / "examples" / "judge_panel.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "annotator gpt-a chose the item shown first in 72%" in printed
    assert "gpt-b-judge   1200 verdicts" in printed and "self-preference +1." in printed
    assert (tmp_path / "b.svg").read_text(encoding="utf-8").startswith("<svg")


def test_the_service_ends_and_keeps_its_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "birds"
    monkeypatch.setattr(sys, "argv", ["campaign_service.py", "--folder", str(folder)])
    runpy.run_path(str(ROOT / "examples" / "campaign_service.py"), run_name="__main__")
    printed = capsys.readouterr().out
    with crowdwise.Campaign.open(folder) as campaign:
        status = campaign.status()
    assert f"{status['votes']} votes on 20 items" in printed and status["votes"] > 30
    assert f"{status['state']}: {status['stop']}" in printed
    assert "says 'hawk', and the classes are" in printed


def test_the_annotation_lead_finds_the_spammers_of_an_export_and_writes_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    crowd = crowdwise.simulate.hammer_spammer(
        200, n_annotators=8, n_classes=3, share=0.8, accuracy=0.9, votes_per_item=4, random_state=0
    )
    crowd.save(tmp_path / "crowd")
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["lead", str(tmp_path / "crowd" / "labels.csv"), "--out", str(out)])
    runpy.run_path(str(ROOT / "examples" / "annotation_lead.py"), run_name="__main__")
    spammers = sorted(crowd.votes.annotators[crowd.parameters["spammers"]].tolist())
    dropped = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("drop "))
    assert sorted(dropped.split(maxsplit=2)[2].split(", ")) == spammers and spammers
    assert {file.name for file in out.iterdir()} == {"annotators.csv", "consensus.csv", "review.csv", "report.html"}
    assert len((out / "consensus.csv").read_text(encoding="utf-8").splitlines()) == 201


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 90


def test_readme_and_first_page_lead_to_the_examples() -> None:
    for page in (ROOT / "README.md", DOCS / "index.md"):
        linked = set(re.findall(r"examples/(\w+)\.py", page.read_text(encoding="utf-8")))
        wanted = {"annotation_lead", "judge_panel", "text_classification", "image_classification", "campaign_service"}
        assert wanted <= linked <= {script.stem for script in EXAMPLES}, page


def test_generated_parts_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_picture_shows_every_method_and_fetches_nothing() -> None:
    picture = (DOCS / "assets" / "demo.svg").read_text(encoding="utf-8")
    words = re.sub(r"<[^>]+>", " ", picture).replace("&#160;", " ")
    assert [key for key in SHOWN if key not in words] == []
    assert set(re.findall(r"https?://[^\"' )]+", picture)) <= {"http://www.w3.org/2000/svg"}


# -------------------------------------------------------------------- nothing left out


def text_of_docs() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def text_of_methods() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("methods*.md")))


def test_every_method_has_a_section() -> None:
    sections = re.findall(r"^## ([\w-]+)$", text_of_methods(), flags=re.M)
    assert [key for key in registry.METHODS if sections.count(key) != 1] == []


def test_every_parameter_is_described() -> None:
    """A method's section links to its place in the reference, whose text describes every parameter."""
    generate = types.SimpleNamespace(**runpy.run_path(str(DOCS / "generate.py")))
    text = text_of_docs()
    for entry in (*registry.METHODS.values(), *registry.LEARNERS.values(), *registry.ANSWER_METHODS.values()):
        model = entry.load()
        described = {name for names, _ in generate.descriptions(model) for name in names}
        assert [name for name in model.parameters() if name not in described] == [], entry.key
        address = generate.reference.entries()[model.__name__].address
        block = text.partition(f"<!-- parameters {entry.key}:begin -->")[2]
        assert f"(reference/{address})" in block.partition(f"<!-- parameters {entry.key}:end -->")[0], entry.key


def text_of_learners() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("learners*.md")))


def test_every_learner_has_a_section() -> None:
    sections = re.findall(r"^## ([\w-]+)$", text_of_learners(), flags=re.M)
    assert [key for key in registry.LEARNERS if sections.count(key) != 1] == []
    page = (DOCS / "learners.md").read_text(encoding="utf-8")
    assert [key for key in registry.LEARNERS if f"[`{key}`](learners-" not in page] == []


def test_every_method_for_other_answers_has_a_section() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("answers*.md")))
    sections = re.findall(r"^## ([\w-]+)$", text, flags=re.M)
    assert [key for key in registry.ANSWER_METHODS if sections.count(key) != 1] == []


TEMPLATE = {
    "the model": r"\*\*Models?\b",
    "when to use it": r"\*\*Use it\*\*|\*\*When it works",
    "when it fails": r"\*\*It fails\*\*|\*\*it fails\*\*|\*\*When it fails|\*\*It is not worth",
    "its cost": r"\*\*Cost\b",
}


@pytest.mark.parametrize(
    ("pages", "keys"),
    [("methods", registry.METHODS), ("learners", registry.LEARNERS), ("answers", registry.ANSWER_METHODS)],
    ids=["methods", "learners", "answers"],
)
def test_every_section_of_a_method_follows_the_template(pages: str, keys: dict[str, registry.Entry]) -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.glob(f"{pages}*.md")))
    sections = dict(re.findall(r"^## ([\w-]+)\n(.*?)(?=^## |\Z)", text, flags=re.M | re.S))
    missing = [(key, part) for key in keys for part, says in TEMPLATE.items() if not re.search(says, sections[key])]
    assert missing == []


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its name."""

    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield name, command
        for inner, found in getattr(command, "commands", {}).items():
            yield from walk(f"{name} {inner}".removeprefix("crowdwise "), found)

    yield from walk("crowdwise", typer.main.get_command(app))


def test_every_command_is_shown_and_every_option_explained() -> None:
    """The page of commands has them all, some page shows each at work, and ``--help`` explains all options."""
    page, shown = (DOCS / "cli.md").read_text(encoding="utf-8"), text_of_docs()
    for name, command in commands():
        unexplained = [p.opts for p in command.params if p.param_type_name == "option" and not p.help]
        assert unexplained == [], f"crowdwise {name} --help says nothing about {unexplained}"
        if name != "crowdwise":
            assert f"\n| `{name}` | " in page, f"docs/cli.md does not list {name}: run python docs/generate.py"
            assert re.search(rf"\bcrowdwise {name}\b", shown), f"no page shows crowdwise {name}"


def test_every_field_of_the_json_is_described() -> None:
    fields = facts(api.fit(crowdwise.simulate.one_coin(50, n_annotators=5, random_state=0).votes))
    page = (DOCS / "cli.md").read_text(encoding="utf-8").partition("\n## JSON\n")[2].partition("\n## ")[0]
    assert [name for name in fields if f"`{name}`" not in page] == []


def test_the_summary_of_benchmarks_has_the_figures_of_their_pages() -> None:
    folder = DOCS / "benchmarks"
    for line in (folder / "index.md").read_text(encoding="utf-8").splitlines():
        pages = re.findall(r"\]\(([\w-]+\.md)\)", line)
        if pages:
            there = "\n".join((folder / page).read_text(encoding="utf-8") for page in pages)
            figures = re.findall(r"(?<![\w.])\d*\.\d+", line)
            assert [figure for figure in figures if figure not in there] == [], line


def test_every_page_is_in_the_menu() -> None:
    expand = runpy.run_path(str(DOCS / "reference.py"))["on_config"]
    site = expand(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8")))

    def pages(menu: list[Any]) -> Iterator[str]:
        for entry in menu:
            target = next(iter(entry.values())) if isinstance(entry, dict) else entry
            yield from pages(target) if isinstance(target, list) else [target]

    listed = [page for page in pages(site["nav"]) if not page.startswith("reference/")]  # made in the build
    pages_and_notebooks = [*DOCS.rglob("*.md"), *(path.with_suffix(".md") for path in DOCS.rglob("*.ipynb"))]
    assert sorted(listed) == sorted(path.relative_to(DOCS).as_posix() for path in pages_and_notebooks)


def test_links_between_files_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), f"{page.name} links to {target}"


# -------------------------------------------------------------------- the method of CONTRIBUTING.md


def test_the_method_that_contributing_adds_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file and its registry line are all it takes: library, command line and saved results know it."""
    page = ROOT / "CONTRIBUTING.md"
    python = [b for b in blocks(page) if b.language == "python"]
    file = next(b for b in python if "class TwoThirds(Model)" in b.text)
    line = next(b for b in python if b.text.startswith('("two-thirds"'))
    module = types.ModuleType("crowdwise.methods.votes_two_thirds")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    run_python(file, page, vars(module))
    key, target, *words = ast.literal_eval(line.text.strip().rstrip(","))
    entry = registry.Entry(key, f"methods.{target}", *words)
    monkeypatch.setitem(registry.METHODS, entry.key, entry)

    crowd = crowdwise.simulate.one_coin(100, n_annotators=9, n_classes=3, votes_per_item=5, random_state=0)
    consensus = crowdwise.aggregate(crowd.votes, entry.key, gold={0: int(crowd.truth[0])})
    assert consensus.score(crowd.truth) > 0.6
    decided = consensus.to_frame("items", kind="dict")["decided"]
    assert decided[0] and 0 < decided.sum() < 100
    consensus.save(tmp_path / "kept")
    assert (crowdwise.Consensus.load(tmp_path / "kept").item_columns["decided"] == decided).all()
    with pytest.raises(crowdwise.errors.ParameterError, match="threshold=2"):
        crowdwise.aggregate(crowd.votes, entry.key, threshold=2)
    try:
        assert examples_of(module) == ""
    finally:
        vars(crowdwise).pop("TwoThirds", None)

    crowd.save(tmp_path / "crowd")
    result = CliRunner().invoke(app, ["aggregate", str(tmp_path / "crowd"), "--method", "two-thirds"])
    assert result.exit_code == 0 and "decided" in result.stdout.splitlines()[0]
    assert "two-thirds" in CliRunner().invoke(app, ["methods", "--json"]).stdout


def examples_of(module: types.ModuleType) -> str:
    """Run the examples in a module's docstrings; what went wrong."""
    runner = doctest.DocTestRunner(verbose=False, optionflags=LOOSE)
    said = io.StringIO()
    for test in doctest.DocTestFinder().find(module, module.__name__):
        runner.run(test, out=said.write)
    return said.getvalue()
