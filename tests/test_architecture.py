"""The plan of the house, enforced: who may import whom, what a bare import costs, and habits no file may pick up."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import crowdwise

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "crowdwise"
FILES = sorted(PACKAGE.rglob("*.py"))
HEAVY = ["jinja2", "narwhals", "numba", "pandas", "polars", "pyspark", "scipy", "sklearn", "torch", "typer"]

# A part is a module or a folder right under src/crowdwise; "__init__" is the package's own face
# (`from crowdwise import Votes`).
BASE = {"core", "data", "kernels", "errors"}
PARTS = BASE | {
    "__init__",
    "__main__",
    "methods",
    "deep",
    "beyond",
    "metrics",
    "metrics_tags",
    "trust",
    "active",
    "engines",
    "registry",
}


def named(prefix: str) -> set[str]:
    """Modules right under src/crowdwise that share a prefix: ``cli`` and all ``cli_...``."""
    return {file.stem for file in FILES if file.parent == PACKAGE and re.fullmatch(rf"{prefix}(_\w+)?", file.stem)}


FRONT = named("cli") | {"server", "__main__"}
TERMINAL, BENCH, METRICS = named("terminal"), named("bench"), named("metrics")
PARTS |= {"api", "report", "demo"} | TERMINAL | BENCH | METRICS | FRONT
BELOW_THE_FRONT = PARTS - FRONT
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "kernels": {"kernels"},
    "data": {"errors", "kernels", "data"},
    "core": BASE,
    "methods": BASE | {"methods"},
    "deep": BASE | {"deep", "methods", "beyond", "registry"},  # two-stage takes any method by its key
    "beyond": BASE | {"beyond", "methods", "registry"},  # binary-relevance takes any method by its key
    "trust": BASE | {"metrics", "trust"},
    "active": BASE | {"metrics", "active"},
    "engines": BASE | {"metrics", "engines"},
    "registry": {"errors"},  # it names classes as strings; what its functions load is no matter of this rule
    "api": BASE | {"registry", "trust"},
    "report": BELOW_THE_FRONT,
    "demo": BELOW_THE_FRONT,
    "__init__": PARTS,
}
MAY_IMPORT |= {part: {"data", "core", "errors"} | METRICS for part in METRICS}
MAY_IMPORT |= {part: PARTS for part in FRONT} | {part: BELOW_THE_FRONT for part in BENCH}
MAY_IMPORT |= {part: BASE | {"beyond", "metrics", "registry", "report", "trust"} | TERMINAL for part in TERMINAL}
MODULE_LEVEL_ONLY = {"registry"}
# Doors upwards, inside a function only: result.report(...) is where people look for a report, and it does nothing
# but hand itself to the one who writes it. Nothing in core depends on what comes back.
DOORS = {("core/result.py", "report")}


class Import(NamedTuple):
    """One import of ours: where it stands and the part it reaches for."""

    line: int
    part: str
    inside_function: bool


def part_of(path: Path) -> str:
    """``data`` for ``data/votes.py``, ``cli`` for ``cli.py``, ``__init__`` for the package's own."""
    return path.parts[0] if len(path.parts) > 1 else path.stem


def our_imports(source: str, path: Path) -> Iterator[Import]:
    """Every import of crowdwise in a file, under ``if TYPE_CHECKING`` and inside functions too.

    The path is relative to the package.
    """

    def walk(node: ast.AST, inside_function: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                modules = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                modules = [f"{absolute(child, path)}.{alias.name}" for alias in child.names]
            else:
                modules = []
                yield from walk(
                    child, inside_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                )
            for words in (module.split(".") for module in modules):
                if words[0] == "crowdwise":
                    yield Import(
                        child.lineno,
                        words[1] if len(words) > 1 and words[1] in PARTS else named_part(words),
                        inside_function,
                    )

    yield from walk(ast.parse(source), False)


def absolute(node: ast.ImportFrom, path: Path) -> str:
    """The module of a ``from`` import, with leading dots spelled out."""
    package = ["crowdwise", *path.parent.parts]
    base = package[: len(package) - (node.level - 1)] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


def named_part(words: list[str]) -> str:
    """A part missing from the table if it is a file or folder of ours, else a public name: the package's own face."""
    exists = len(words) > 1 and ((PACKAGE / words[1]).is_dir() or (PACKAGE / f"{words[1]}.py").is_file())
    return words[1] if exists else "__init__"


def violations(source: str, path: Path) -> list[str]:
    """One sentence for each import that the table does not allow."""
    part = part_of(path)
    if part not in MAY_IMPORT:
        return [f"{path}:1: no rule says what {part!r} may import. Add it to MAY_IMPORT in {Path(__file__).name}."]
    allowed = MAY_IMPORT[part]
    rule = f"{part} may import {', '.join(sorted(allowed)) or 'nothing'} of ours"
    rule += " at module level" if part in MODULE_LEVEL_ONLY else ""
    return [
        f"{path}:{found.line}: imports {'the package itself' if found.part == '__init__' else found.part}, but {rule}."
        for found in our_imports(source, path)
        if found.part not in allowed
        and not (found.inside_function and (part in MODULE_LEVEL_ONLY or (path.as_posix(), found.part) in DOORS))
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_follow_the_plan(file: Path) -> None:
    found = violations(file.read_text(encoding="utf-8"), file.relative_to(PACKAGE))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source", "line", "reached"),
    [
        ("kernels/native.py", "import numpy\nfrom crowdwise.data.votes import Votes\n", 2, "data"),
        ("kernels/native.py", "from crowdwise import data\n", 1, "data"),
        ("data/votes.py", "import crowdwise.core.model as model\n", 1, "core"),
        ("data/votes.py", "from ..methods import dawid_skene\n", 1, "methods"),
        ("core/em.py", "if TYPE_CHECKING:\n    from crowdwise.methods.bayes import Bayes\n", 2, "methods"),
        ("core/em.py", "class A:\n    def f(self):\n        from crowdwise import registry\n", 3, "registry"),
        ("methods/bayes.py", "from crowdwise import Votes\n", 1, "the package itself"),
        ("methods/bayes.py", "from crowdwise.deep import trainer\n", 1, "deep"),
        ("deep/joint.py", "from crowdwise.bench import run\n", 1, "bench"),
        ("errors.py", "import crowdwise\n", 1, "the package itself"),
        ("metrics.py", "from crowdwise.kernels import reference\n", 1, "kernels"),
        ("trust/spammers.py", "from crowdwise.registry import METHODS\n", 1, "registry"),
        ("registry.py", "from crowdwise.core.model import Model\n", 1, "core"),
        ("bench.py", "from crowdwise.cli import main\n", 1, "cli"),
        ("core/result.py", "from crowdwise.report.page import write_report\n", 1, "report"),
        ("core/model.py", "def f():\n    from crowdwise.report.page import write_report\n", 2, "report"),
    ],
)
def test_a_violation_is_flagged(path: str, source: str, line: int, reached: str) -> None:
    (message,) = violations(source, Path(path))
    assert message.startswith(f"{path}:{line}: imports {reached}, but {part_of(Path(path))} may import ")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "data/tables.py",
            "import polars\nfrom crowdwise.data import coding\nfrom . import columns\nfrom .votes import Votes\n"
            "from ..errors import InputError\n",
        ),
        ("methods/bayes.py", "from crowdwise.core.model import Model\nfrom crowdwise.methods import dawid_skene\n"),
        (
            "registry.py",
            "from crowdwise.errors import ParameterError\ndef load():\n    from crowdwise.core.model import Model\n",
        ),
        ("cli.py", "import crowdwise\nfrom crowdwise import bench, demo, registry\n"),
        ("__init__.py", "from crowdwise.data.votes import Votes\nfrom .core import model\n"),
    ],
)
def test_what_is_allowed_is_not_flagged(path: str, source: str) -> None:
    assert violations(source, Path(path)) == []


def test_a_new_part_needs_a_rule() -> None:
    (message,) = violations("", Path("helpers/strings.py"))
    assert message.startswith("helpers/strings.py:1: no rule says what 'helpers' may import")


def test_two_levels_no_deeper() -> None:
    deeper = [str(file.relative_to(PACKAGE)) for file in FILES if len(file.relative_to(PACKAGE).parts) > 2]
    assert not deeper, f"a package inside a package of crowdwise: {deeper}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_every_public_module_says_what_it_is(file: Path) -> None:
    path, source = file.relative_to(PACKAGE), file.read_text(encoding="utf-8")
    private = file.stem.startswith("_") and file.stem != "__init__"
    if private or (
        file.name == "__init__.py" and path.parent.parts and not source.strip()
    ):  # an empty __init__ of a folder holds nothing to explain
        return
    assert ast.get_docstring(ast.parse(source)), f"{path}:1: starts without a docstring"


# -- habits ------------------------------------------------------------------------------------------------------------

SEEDED = {"default_rng", "Generator", "SeedSequence"}


def dotted(node: ast.AST) -> str:
    """``np.random.seed`` for that expression; an empty string for one that is not a chain of names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        start = dotted(node.value)
        return f"{start}.{node.attr}" if start else ""
    return ""


def habits(source: str) -> list[tuple[int, str]]:
    """Line and complaint for each print, global random state and pickle in a source."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            if dotted(node.func) in {"print", "builtins.print"}:
                found.append((node.lineno, "prints; return the value, or hand it to the progress callback"))
            if any(
                k.arg == "allow_pickle" and not (isinstance(k.value, ast.Constant) and k.value.value is False)
                for k in node.keywords
            ):
                found.append((node.lineno, "allows pickle; files are JSON and plain npz"))
        if isinstance(node, ast.Attribute):
            words = dotted(node).split(".")
            if words[0] in {"np", "numpy"} and words[1:2] == ["random"] and len(words) == 3 and words[2] not in SEEDED:
                found.append((node.lineno, f"uses np.random.{words[2]}; draw from np.random.default_rng(random_state)"))
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for module in modules:
            words = module.split(".")
            if words[0] in {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve"}:
                found.append((node.lineno, f"imports {words[0]}; files are JSON and plain npz"))
            if words[:2] == ["numpy", "random"] and (len(words) == 2 or words[2] not in SEEDED):
                found.append((node.lineno, "imports numpy.random; draw from np.random.default_rng(random_state)"))
    return sorted(found)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_no_prints_no_global_randomness_no_pickle(file: Path) -> None:
    found = [
        f"{file.relative_to(PACKAGE)}:{line}: {complaint}."
        for line, complaint in habits(file.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("print(1)", "prints"),
        ("def f():\n    print('x')", "prints"),
        ("np.random.seed(0)", "np.random.seed"),
        ("x = numpy.random.rand(3)", "np.random.rand"),
        ("draw = np.random.normal", "np.random.normal"),
        ("from numpy import random", "numpy.random"),
        ("from numpy.random import randint", "numpy.random"),
        ("import pickle", "imports pickle"),
        ("from pickle import loads", "imports pickle"),
        ("np.load(f, allow_pickle=True)", "allows pickle"),
        ("np.load(f, allow_pickle=flag)", "allows pickle"),
    ],
)
def test_a_bad_habit_is_flagged(source: str, complaint: str) -> None:
    ((_, found),) = habits(source)
    assert complaint in found


@pytest.mark.parametrize(
    "source",
    [
        "rng = np.random.default_rng(0)",
        "def f(rng: np.random.Generator): ...",
        "np.load(f, allow_pickle=False)",
        "console.print(1)",
        "self.print(2)",
    ],
)
def test_a_good_habit_is_not_flagged(source: str) -> None:
    assert habits(source) == []


# -- the package's face ------------------------------------------------------------------------------------------------

PUBLIC: list[str] = list(getattr(crowdwise, "__all__", []))


def test_import_is_light() -> None:
    code = (
        "import json, sys, crowdwise; "
        "sys.stdout.write(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = sorted(set(HEAVY) & set(json.loads(run.stdout)))
    assert not loaded, f"`import crowdwise` loads {', '.join(loaded)}: import them where they are used"


def test_the_public_names_are_listed() -> None:
    assert PUBLIC, "crowdwise has no __all__"
    assert len(set(PUBLIC)) == len(PUBLIC), "crowdwise.__all__ names something twice"
    assert set(PUBLIC) <= set(dir(crowdwise)), f"dir(crowdwise) lacks {sorted(set(PUBLIC) - set(dir(crowdwise)))}"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(crowdwise, name) is getattr(crowdwise, name)


@pytest.mark.parametrize("name", [name for name in PUBLIC if (PACKAGE / f"{name}.py").is_file()])
def test_a_module_does_not_hide_the_public_name_it_shares(name: str) -> None:
    """``crowdwise.aggregate`` stays the function, even where the module of that name was imported first."""

    def resolves_to(*imports: str) -> str:
        code = "; ".join(
            [
                *(f"import {module}" for module in ("sys", "crowdwise", *imports)),
                f"sys.stdout.write(repr(type(crowdwise.{name})))",
            ]
        )
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert resolves_to(f"crowdwise.{name}") == resolves_to()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        crowdwise.no_such_name  # noqa: B018
