"""The plan of the house, enforced: who may import whom, what a bare import costs, and habits no file may pick up."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import crowdwise
from crowdwise import registry
from crowdwise.registry import ANSWER_TYPES, VOTES

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "crowdwise"
FILES = sorted(PACKAGE.rglob("*.py"))
parsed = cache(ast.parse)
SOURCES = {file.relative_to(PACKAGE): file.read_text(encoding="utf-8") for file in FILES}
KEYS = set(ANSWER_TYPES) - {VOTES}
HEAVY = ["jinja2", "narwhals", "numba", "pandas", "polars", "pyspark", "scipy", "sklearn", "torch", "typer"]

# A part is a module or a folder right under src/crowdwise; "__init__" is the package's own face
# (`from crowdwise import Votes`). A part may import itself and what is listed, inside functions too.
BASE = {"errors", "kernels", "data"}
MODEL = BASE | {"core"}
FITS = MODEL | {"online", "methods", "answers", "learners", "registry"}
BELOW = FITS | {"simulate", "metrics", "trust", "active", "store", "report", "importers", "exporters", "reading", "api"}
BELOW |= {"saved", "out_of_core", "item_inputs", "file_check"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "kernels": set(),
    "data": {"errors", "kernels"},
    "simulate": MODEL,
    "core": BASE,
    "registry": {"errors"},  # it names classes as strings, and nobody else does
    "online": MODEL,
    "methods": MODEL | {"online"},
    "answers": MODEL | {"methods", "registry"},  # binary-relevance takes any method by its key
    "learners": MODEL | {"methods", "answers", "registry"},  # two-stage takes any method by its key
    "metrics": MODEL | {"registry"},
    "trust": MODEL | {"metrics", "registry"},
    "answer_types": MODEL | {"metrics", "trust", "report"},  # reached by the registry's records alone
    "active": MODEL | {"online", "metrics", "registry"},
    "store": MODEL | {"online", "active", "registry", "migrations"},  # a campaign makes its model by its key
    "report": MODEL | {"metrics", "trust", "registry", "reading"},
    "importers": BASE | {"registry"},
    "exporters": BASE,
    "reading": BASE | {"registry", "importers"},
    "file_check": BASE | {"registry", "importers", "reading"},
    "item_inputs": BASE | {"registry", "importers", "reading", "learners"},
    "api": (BELOW - {"api"}) | {"spark"},
    "label_studio": BELOW | {"client"},
    "out_of_core": FITS | {"reading", "importers", "metrics"},
    "spark": FITS,
    "saved": FITS | {"store", "out_of_core"},
    "bench": BELOW,
    "testing": MODEL | {"methods", "simulate"},
    "client": {"errors", "store"},  # it reads votes as a campaign does
    "migrations": set(),
    "server": BELOW | {"label_studio"},
    "cli": BELOW | {"bench", "__init__", "server", "label_studio", "client"},
    "__main__": {"cli"},
    "__init__": BELOW | {"bench", "cli", "spark", "client", "testing"},
}
KINDS = {kind.prefix for kind in registry.ANSWER_TYPES.values()}
"""Answer types: the only file names that several folders may share."""


class Import(NamedTuple):
    """One import of ours: the line, the dotted module below crowdwise ("" is the package's face), and the names."""

    line: int
    module: str
    names: tuple[str, ...]

    @property
    def part(self) -> str:
        return self.module.partition(".")[0] or "__init__"


def is_module(words: list[str]) -> bool:
    path = PACKAGE.joinpath(*words)
    return path.is_dir() or path.with_suffix(".py").is_file()


def our_imports(source: str, path: Path) -> Iterator[Import]:
    """Every import of crowdwise in a file, under ``if TYPE_CHECKING`` and inside functions too.

    ``from crowdwise.data import votes`` imports the module ``data.votes``, ``from crowdwise import Votes`` the face.
    """
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            found = [(alias.name.split("."), "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, path).split(".")
            found = [(base, alias.name) for alias in node.names]
        else:
            continue
        for base, name in found:
            if base[0] != "crowdwise":
                continue
            if name and is_module([*base[1:], name]):
                yield Import(node.lineno, ".".join([*base[1:], name]), ())
            else:
                yield Import(node.lineno, ".".join(base[1:]), (name,) if name else ())


def absolute(node: ast.ImportFrom, path: Path) -> str:
    """The module of a ``from`` import, with leading dots spelled out."""
    package = ["crowdwise", *path.parent.parts]
    base = package[: len(package) - (node.level - 1)] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


def part_of(path: Path) -> str:
    """``data`` for ``data/votes.py``, ``api`` for ``api.py``, ``__init__`` for the package's own."""
    return path.parts[0] if len(path.parts) > 1 else path.stem


def violations(source: str, path: Path) -> list[str]:
    """One sentence for each import that the table does not allow."""
    part = part_of(path)
    if part not in MAY_IMPORT:
        return [f"{path}:1: no rule says what {part!r} may import. Add it to MAY_IMPORT in {Path(__file__).name}."]
    allowed = MAY_IMPORT[part] | ({part} if part not in ("__init__", "errors") else set())
    rule = f"{part} may import {', '.join(sorted(allowed)) or 'nothing'} of ours"
    return [
        f"{path}:{found.line}: imports {'the package itself' if found.part == '__init__' else found.part}, but {rule}."
        for found in our_imports(source, path)
        if found.part not in allowed and found.names != ("__version__",)
    ]


def test_public_class_names_are_unique() -> None:
    """One name, one thing: a reader who sees ``State`` knows which."""
    found: dict[str, list[str]] = {}
    for path, source in SOURCES.items():
        for node in parsed(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path))
    assert not {name: paths for name, paths in found.items() if len(paths) > 1}


@pytest.mark.parametrize("part", ["active", "metrics", "simulate", "trust"])
def test_the_public_names_of_a_package_are_there(part: str) -> None:
    package = importlib.import_module(f"crowdwise.{part}")
    assert package.__all__ and all(hasattr(package, name) for name in package.__all__)


def compared_types(source: str) -> list[int]:
    """The lines that compare an answer type with the name of one."""
    lines = []
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Compare):
            words = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
            names = {getattr(n, "attr", getattr(n, "id", "")) for n in ast.walk(node)}
            if ("answer_type" in names and words & set(ANSWER_TYPES)) or ("kind" in names and words & KEYS):
                lines.append(node.lineno)
    return lines


def test_answer_types_are_asked_not_named() -> None:
    """What depends on the type of answers is in its record: only the registry, a type's own files and the tables of
    ``data`` know a type by its name."""
    own = tuple(f"{kind.prefix}_" for kind in ANSWER_TYPES.values())
    found = [
        f"{path}:{line}"
        for path, source in SOURCES.items()
        if path.parts[0] not in ("registry.py", "data", "answer_types") and not path.name.startswith(own)
        for line in compared_types(source)
    ]
    assert not found, f"{found}: ask registry.ANSWER_TYPES[...] or its rules."
    assert compared_types('if row.answer_type == "ratings":\n    pass') == [1]
    assert compared_types('x = 1\ny = kind in ("tags", "ordinal")') == [2]


def test_imports_follow_the_plan() -> None:
    found = [complaint for path, source in SOURCES.items() for complaint in violations(source, path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source", "line", "reached"),
    [
        ("kernels/native.py", "import numpy\nfrom crowdwise.data.votes import Votes\n", 2, "data"),
        ("kernels/native.py", "from crowdwise import data\n", 1, "data"),
        ("data/votes.py", "import crowdwise.core.model as model\n", 1, "core"),
        ("data/votes.py", "from ..methods import ds_auto\n", 1, "methods"),
        ("core/em.py", "if TYPE_CHECKING:\n    from crowdwise.methods.bayes_ibcc import IBCC\n", 2, "methods"),
        ("core/em.py", "class A:\n    def f(self):\n        from crowdwise import registry\n", 3, "registry"),
        ("core/result.py", "def f():\n    from crowdwise.report.page import write_report\n", 2, "report"),
        ("methods/bayes_ibcc.py", "from crowdwise import Votes\n", 1, "the package itself"),
        ("methods/bayes_ibcc.py", "from crowdwise.learners import trainer\n", 1, "learners"),
        ("errors.py", "import crowdwise\n", 1, "the package itself"),
        ("trust/spammers.py", "from crowdwise.reading import read\n", 1, "reading"),
        ("registry.py", "def f():\n    from crowdwise.core.model import Model\n", 2, "core"),
        ("bench/runs.py", "from crowdwise.cli.main import main\n", 1, "cli"),
    ],
)
def test_a_violation_is_flagged(path: str, source: str, line: int, reached: str) -> None:
    (message,) = violations(source, Path(path))
    assert message.startswith(f"{path}:{line}: imports {reached}, but {part_of(Path(path))} may import ")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("data/votes.py", "import polars\nfrom . import columns\nfrom ..errors import InputError\n"),
        ("methods/bayes_ibcc.py", "from crowdwise.core.model import Model\nfrom crowdwise.methods import ds_auto\n"),
        ("cli/main.py", "import crowdwise\nfrom crowdwise import bench, registry\n"),
        ("__init__.py", "from crowdwise.data.votes import Votes\nfrom .core import model\n"),
    ],
)
def test_what_is_allowed_is_not_flagged(path: str, source: str) -> None:
    assert violations(source, Path(path)) == []


def test_a_new_part_needs_a_rule() -> None:
    (message,) = violations("", Path("helpers/strings.py"))
    assert message.startswith("helpers/strings.py:1: no rule says what 'helpers' may import")


# -- the graph of modules ----------------------------------------------------------------------------------------------


def module_of(path: Path) -> str:
    """``data.votes`` for ``data/votes.py``, ``data`` for ``data/__init__.py``."""
    words = [*path.parent.parts, *([] if path.stem == "__init__" else [path.stem])]
    return ".".join(words)


def import_graph(sources: dict[Path, str]) -> dict[str, set[str]]:
    """Module -> modules it imports, lazy imports and those for types included; the package's face is left out."""
    return {
        module_of(path): {found.module for found in our_imports(source, path)} - {"", module_of(path)}
        for path, source in sources.items()
        if path != Path("__init__.py")
    }


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach each other (Tarjan's strongly connected components of two and more)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = [stack.pop()]
            while group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def test_no_modules_import_each_other() -> None:
    assert cycles(import_graph(SOURCES)) == []


def test_a_cycle_is_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def private_reaches(source: str, path: Path) -> list[str]:
    """Each use of another module's ``_private`` name: imported, or as an attribute of an imported module."""
    imports = list(our_imports(source, path))
    found = [f"{path}:{i.line}: takes {name} of {i.module}." for i in imports for name in i.names if is_private(name)]
    modules = {i.module.rpartition(".")[2] for i in imports if not i.names}
    found += [
        f"{path}:{node.lineno}: takes {node.value.id}.{node.attr}."
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
        and is_private(node.attr)
    ]
    return found


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def test_no_private_name_crosses_modules() -> None:
    found = [complaint for path, source in SOURCES.items() for complaint in private_reaches(source, path)]
    assert not found, "\n".join(found)


def test_a_private_reach_is_flagged() -> None:
    source = "from crowdwise.data.votes import _encode\nfrom crowdwise.core import em\nem._step()\n"
    assert len(private_reaches(source, Path("methods/x.py"))) == 2


def test_modules_are_named_as_strings_in_the_registry_alone() -> None:
    found = [
        f"{path}:{node.lineno}: {node.value!r}"
        for path, source in SOURCES.items()
        if path != Path("registry.py")
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and names_a_module(node.value)
    ]
    assert not found, "\n".join(found)


def names_a_module(text: str) -> bool:
    """``crowdwise.data.files:read_votes`` and the like."""
    module, colon, name = text.partition(":")
    return bool(colon) and name.isidentifier() and is_module(module.removeprefix("crowdwise.").split("."))


def test_file_names_are_unique() -> None:
    count = Counter(path.stem for path in SOURCES if path.stem not in {"__init__", "__main__"} | KINDS)
    assert [name for name, times in count.items() if times > 1] == []


def test_two_levels_no_deeper() -> None:
    deeper = [str(path) for path in SOURCES if len(path.parts) > 2]
    assert not deeper, f"a package inside a package of crowdwise: {deeper}"


def test_every_public_module_says_what_it_is() -> None:
    silent = [
        str(path)
        for path, source in SOURCES.items()
        if source.strip() and not ast.get_docstring(parsed(source))  # an empty __init__ holds nothing to explain
    ]
    assert not silent, f"start without a docstring: {silent}"


POSIX = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty", "uvloop"}


def posix_imports(source: str) -> list[int]:
    """Lines that import a module which only POSIX systems have when the file itself is imported."""
    nodes = list(parsed(source).body)
    found = []
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names}
        else:
            names = {(node.module or "").partition(".")[0]} if isinstance(node, ast.ImportFrom) else set()
        found += [node.lineno] if names & POSIX else []
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            nodes += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
    return sorted(found)


def test_no_file_needs_a_posix_system_to_be_imported() -> None:
    assert [f"{path}:{line}" for path, source in SOURCES.items() for line in posix_imports(source)] == []


def test_a_posix_import_is_found() -> None:
    source = "import os, fcntl\nif os.name:\n    from resource import getrusage\ndef f():\n    import pwd\n"
    assert posix_imports(source) == [1, 3]


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
    for node in ast.walk(parsed(source)):
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


def test_no_prints_no_global_randomness_no_pickle() -> None:
    found = [f"{path}:{line}: {complaint}." for path, source in SOURCES.items() for line, complaint in habits(source)]
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
    assert set(dir(crowdwise)) == {*PUBLIC, "__version__"}


@pytest.mark.parametrize("name", ["Any", "annotations", "import_module"])
def test_what_the_package_itself_imports_is_none_of_its_names(name: str) -> None:
    assert not hasattr(crowdwise, name)


def test_every_public_name_resolves() -> None:
    assert all(getattr(crowdwise, name) is getattr(crowdwise, name) for name in PUBLIC)


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
