"""The API reference, made from docstrings and signatures while the site is built: a hook of mkdocs.

Every public name has an entry: what ``crowdwise.__all__`` lists, and the ``__all__`` of the packages in ``PACKAGES``.
The module in which a name is defined says on which page it goes (``PAGES``), its file's prefix in which group. A base
class that several of them share has an entry too, and what they inherit from it is described there, once.

    python docs/reference.py FOLDER    write the pages into a folder, to look at
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "docs")]

import docstrings  # noqa: E402
from docstrings import Parsed, attribute_docs, inline, markdown, names_in_tables, parse, table  # noqa: E402

import crowdwise  # noqa: E402
from crowdwise import registry  # noqa: E402
from crowdwise.core.result import Result  # noqa: E402

PACKAGES = ("trust", "active", "store", "metrics", "simulate", "learners", "errors", "testing")
WIDTH = 96
"""Columns of a signature on one line."""


class Page(NamedTuple):
    """A page: its file, title, the parts of crowdwise whose names it holds, and the line below the title."""

    file: str
    title: str
    parts: tuple[str, ...]
    says: str


PAGES = (
    Page(
        "fitting",
        "Fitting and comparing",
        ("api", "out_of_core", "registry", "saved", "spark"),
        "From answers to a result in one call.",
    ),
    Page(
        "tables",
        "Tables and files",
        ("data", "reading", "file_check"),
        "Answers of annotators as tables, and how files are read.",
    ),
    Page(
        "tools", "Annotation tools", ("importers", "exporters"), "Exports of annotation tools, and labels back to them."
    ),
    Page(
        "methods",
        "Methods for votes",
        ("methods", "testing"),
        "Models that turn votes on classes into a consensus, by family.",
    ),
    Page(
        "answers", "Methods for other answer types", ("answers",), "Models for answers that are not classes, by type."
    ),
    Page("learners", "Learners", ("learners",), "Classifiers and regressions from inputs and answers, by family."),
    Page("results", "Results", ("core",), "What a fit returns."),
    Page("reliability", "Reliability", ("trust",), "Annotators, items and methods under review: `cw.trust`."),
    Page("report", "Reports", ("report",), "Findings in words, and the report as one HTML page."),
    Page(
        "campaigns",
        "Campaigns and streams",
        ("active", "store", "online", "client"),
        "Which label to collect next: `cw.active`.",
    ),
    Page("metrics", "Metrics", ("metrics",), "Measures against known truth: `cw.metrics`."),
    Page("simulation", "Simulation", ("simulate",), "Crowds with known truth: `cw.simulate`."),
    Page("errors", "Errors", ("errors",), "Everything crowdwise raises: `cw.errors`."),
)
SHARED = "Shared by several"
ALIKE = {
    "classes": "The names of the classes.",
    "items": "The names of the items, in the order of all arrays.",
    "annotators": "The names of the annotators, in the order of all arrays.",
    "label_codes": "The label of each item, as a code into `classes`.",
    "kind": "The kind of dataframe that tables are returned as.",
    "method": "The key of the method.",
    "params": "The parameters of the method.",
    "seed": "The seed of everything random.",
    "trace": "The objective after every accepted pass.",
    "iterations": "The number of passes.",
    "converged": "Whether the fit converged before `max_iter`.",
    "seconds": "The time of the fit.",
    "n_items": "The number of items.",
    "n_annotators": "The number of annotators.",
    "n_classes": "The number of classes.",
    "n_votes": "The number of votes (rows).",
    "n_answers": "The number of answers (rows).",
    "votes_per_item": "The number of votes on each item.",
    "votes_per_annotator": "The number of votes of each annotator.",
    "answers_per_item": "The number of answers on each item.",
    "answers_per_annotator": "The number of answers of each annotator.",
    "ratings_per_item": "The number of ratings of each item.",
    "ratings_per_annotator": "The number of ratings by each annotator.",
    "item_columns": "Further columns of the table of items.",
    "annotator_columns": "Further columns of the table of annotators.",
    "weight": "The weight of each row; 1 where absent.",
    "timestamp": "When each row was given.",
}
"""Attributes that mean the same wherever they are; a class may describe them in its own words."""


class Entry(NamedTuple):
    """A name with its object, the page and group it goes to, and where it is defined."""

    name: str
    value: Any
    page: str
    group: str
    module: str

    @property
    def title(self) -> str:
        return self.name.rpartition(".")[2] if self.page in ("metrics", "errors", "simulation") else self.name

    @property
    def address(self) -> str:
        return f"{self.page}.md#{self.name}"


# -------------------------------------------------------------------- what is public, and where it goes


@cache
def public() -> dict[str, Any]:
    """Public name -> object. One that can be reached twice has its shorter name."""
    names = {n: getattr(crowdwise, n) for n in crowdwise.__all__}
    for package in PACKAGES:
        module = import_module(f"crowdwise.{package}")
        names |= {f"{package}.{n}": getattr(module, n) for n in getattr(module, "__all__", ())}
    found = {n: v for n, v in names.items() if not isinstance(v, ModuleType)}
    seen: set[int] = set()
    return {n: v for n, v in found.items() if not (id(v) in seen or seen.add(id(v)))}  # type: ignore[func-returns-value]


@cache
def registered() -> dict[str, registry.Entry]:
    """Class name -> its line in the registry."""
    lists = [value for value in vars(registry).values() if isinstance(value, dict) and value]
    return {e.class_name: e for found in lists for e in found.values() if isinstance(e, registry.Entry)}


def defined_in(name: str, value: Any) -> str:
    """The module of an object, below ``crowdwise``."""
    module = getattr(value, "__module__", None)
    if not isinstance(module, str) or not module.startswith("crowdwise"):  # a constant: the module that assigns it
        last = name.rpartition(".")[2]
        having = [
            m for m in list(sys.modules) if m.startswith("crowdwise.") and vars(sys.modules[m]).get(last) is value
        ]
        module = next(m for m in sorted(having) if re.search(rf"^{last}\b.*=", inspect.getsource(sys.modules[m]), re.M))
    return module.removeprefix("crowdwise").lstrip(".")


def page_of(value: Any, module: str) -> str:
    """The page where an object goes."""
    if inspect.isclass(value) and issubclass(value, Result):
        return "results"
    entry = registered().get(getattr(value, "__name__", ""))
    if entry and entry.key in answer_methods():
        return "answers"
    found = next((page.file for page in PAGES if module.partition(".")[0] in page.parts), None)
    if found is None:
        raise SystemExit(f"docs/reference.py: no page for what {module} defines ({value!r}): add its part to PAGES.")
    return found


def answer_methods() -> dict[str, Any]:
    return registry.ANSWER_METHODS


@cache
def family_names() -> dict[str, str]:
    """File prefix -> the family's name in the registry."""
    return {prefix_of(e.module): e.family for e in registered().values()}


def prefix_of(module: str) -> str:
    return ".".join(module.split("_")[:1]) if module.partition(".")[0] in ("methods", "answers", "learners") else ""


def group_of(name: str, value: Any, module: str, page: str) -> str:
    """The heading under which an object stands; empty at the top of a page."""
    entry = registered().get(getattr(value, "__name__", ""))
    if entry:
        return entry.family
    if page in ("methods", "answers", "learners"):
        return family_names().get(prefix_of(module), "")
    if page == "tables":
        return "Reading files" if inspect.isfunction(value) else ""
    if page == "reliability":
        return module.partition(".")[2].replace("_", " ").capitalize()
    return ""


@cache
def entries() -> dict[str, Entry]:
    """All entries by name, in the order of the registry where they are in it; bases that several share at the end."""
    found: list[Entry] = []
    for name, value in public().items():
        module = defined_in(name, value)
        page = page_of(value, module)
        found.append(Entry(name, value, page, group_of(name, value, module, page), module))
    order = {name: place for place, name in enumerate(registered())}
    found.sort(
        key=lambda e: (
            order.get(e.name, -1),
            not callable(e.value),
            inspect.isfunction(e.value) == (e.page == "tables"),  # tables before readers, elsewhere functions first
            e.name.lower(),
        )
    )
    return {e.name: e for e in [*found, *shared_bases(found)]}


def shared_bases(found: list[Entry]) -> list[Entry]:
    """Bases that are not public themselves and that two or more entries share, on the page of most of these."""
    classes = [e for e in found if inspect.isclass(e.value)]
    mine = {e.value for e in classes}
    count: dict[Any, Counter[str]] = {}
    for entry in classes:
        for base in entry.value.__mro__[1:]:
            if base.__module__.startswith("crowdwise") and base not in mine and not base.__name__.startswith("_"):
                count.setdefault(base, Counter())[entry.page] += 1
    bases = [b for b, pages in count.items() if pages.total() > 1 and (members(b) or parse(b.__doc__).entries)]
    bases.sort(key=lambda b: -count[b].total())
    return [
        Entry(b.__name__, b, count[b].most_common(1)[0][0], SHARED, b.__module__.removeprefix("crowdwise."))
        for b in bases
    ]


# -------------------------------------------------------------------- links


@cache
def addresses() -> dict[str, str]:
    """Every way to name an entry or a member -> its address; a member's is where it is described."""
    found: dict[str, str] = {}
    for entry in entries().values():
        names = {entry.name, entry.name.rpartition(".")[2], f"{entry.module}.{entry.name.rpartition('.')[2]}"}
        inside = {name: entry.address for name in attributes(entry.value)} if inspect.isclass(entry.value) else {}
        inside |= described_members(entry)
        for name in names:
            found.setdefault(name, entry.address)
            for member, address in inside.items():
                found.setdefault(f"{name}.{member}", address)
    return found


def described_members(entry: Entry) -> dict[str, str]:
    """Method -> the address of its description, here or at the base that has it."""
    found: dict[str, str] = {}
    for cls in entry.value.__mro__ if inspect.isclass(entry.value) else ():
        owner = by_class().get(cls)
        for name in own_members(cls) if owner else ():
            found.setdefault(name, f"{owner.address}.{name}")  # type: ignore[union-attr]
    return found


@cache
def by_class() -> dict[type, Entry]:
    return {e.value: e for e in entries().values() if inspect.isclass(e.value)}


def link(target: str) -> str | None:
    """The address of what a role names."""
    name = target.removeprefix("crowdwise.").removesuffix("()")
    known = addresses()
    return known.get(name) or known.get(".".join(name.split(".")[-2:])) or known.get(name.rpartition(".")[2])


def linker(owner: Any) -> docstrings.Link:
    """As :func:`link`, with the members of a class known by their own name."""
    name = getattr(owner, "__qualname__", "").partition(".")[0]
    return lambda target: addresses().get(f"{name}.{target}") or link(target)


# -------------------------------------------------------------------- members of classes


def members(owner: type) -> dict[str, Any]:
    """Public methods that are defined in crowdwise, in the order of definition, own ones first."""
    found: dict[str, Any] = {}
    for cls in owner.__mro__:
        if cls.__module__.startswith("crowdwise"):
            for name, value in vars(cls).items():
                function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
                if not name.startswith("_") and inspect.isfunction(function):
                    found.setdefault(name, value)
    return found


@cache
def own_members(owner: type) -> dict[str, Any]:
    """Those that no other entry describes: its own, and those of bases that have no entry; only with a docstring."""
    inherited = {name for base in owner.__mro__[1:] if base in by_class() for name in members(base)}
    mine = {name: value for name, value in members(owner).items() if name not in inherited or name in vars(owner)}
    return {name: value for name, value in mine.items() if inspect.getdoc(getattr(owner, name))}


@cache
def attributes(owner: type) -> dict[str, tuple[str, str]]:
    """Name -> (type, meaning): fields of a dataclass, what ``Attributes`` lists, and properties."""
    found: dict[str, tuple[str, str]] = {}
    bases = [cls for cls in reversed(owner.__mro__) if cls.__module__.startswith("crowdwise")]
    listed = {n: t for cls in bases for n, t in parse(cls.__doc__).described("Attributes").items()}
    parameterised = hasattr(owner, "parameters")
    types = {f.name: f.type for f in fields(owner)} if is_dataclass(owner) and not parameterised else {}
    tables = {n: t for cls in bases for n, t in names_in_tables(sys.modules[cls.__module__].__doc__).items()}
    notes = tables | {n: t for cls in bases for n, t in attribute_docs(cls).items()}
    for name, kind in types.items():
        if not name.startswith("_"):
            found[name] = (annotation(kind), listed.get(name) or notes.get(name, ""))
    for name, text in listed.items():
        found.setdefault(name, ("", text))
    for cls in owner.__mro__:
        for name, value in vars(cls).items() if cls.__module__.startswith("crowdwise") else ():
            function = getattr(value, "fget", None) or getattr(value, "func", None)
            if not name.startswith("_") and inspect.isfunction(function):
                kind, text = found.get(name, ("", ""))
                back = annotation(function.__annotations__.get("return", ""))
                found[name] = (kind or back, text or parse(inspect.getdoc(function)).summary)
    return {name: (kind, text or ALIKE.get(name, "").replace("`", "``")) for name, (kind, text) in found.items()}


# -------------------------------------------------------------------- the text of an entry


def signature(shown: str, value: Any, *, bound: bool = False, types: bool = True) -> str:
    """``name(parameters) -> type`` as Python, over several lines where it is long."""
    parameters = list(_parameters(value).values())[1 if bound else 0 :]
    parts, star = [], False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        text = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + p.name
        kind = annotation(p.annotation) if types else ""
        text += f": {kind}" if kind else ""
        if p.default is not p.empty:
            text += (" = " if kind else "=") + default(p.default)
        parts.append(text)
    back = annotation(inspect.signature(value).return_annotation) if types and not inspect.isclass(value) else ""
    after = f" -> {back}" if back else ""
    line = f"{shown}({', '.join(parts)}){after}"
    return line if len(line) <= WIDTH else f"{shown}(\n" + "".join(f"    {p},\n" for p in parts) + f"){after}"


def annotation(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    text = re.sub(r"npt\.NDArray\[(?:np\.)?(\w+)\]", r"array[\1]", text).replace("array[Any]", "array")
    return re.sub(r"\b(?:npt|np|os|typing|crowdwise)\.(?=[A-Z])", "", text)


def default(value: Any) -> str:
    text = getattr(value, "__name__", None) if callable(value) else repr(value)
    return text if text and not text.startswith("<") else "..."


def meanings(value: Any, depth: int = 0) -> dict[str, str]:
    """Parameter -> its description, those that are said to be as elsewhere taken from there."""
    docs: list[Any] = value.__mro__ if inspect.isclass(value) else [value]
    found: dict[str, str] = {}
    for owner in docs:
        for name, text in parse(owner.__doc__).described("Parameters").items():
            elsewhere = re.match(r"As in :\w+:`~?([\w.]+)`", text)
            source = by_name(elsewhere[1]) if elsewhere and depth < 4 else None
            there = meanings(source, depth + 1).get(name.lstrip("*")) if source is not None else None
            found.setdefault(name.lstrip("*"), there or text)
    return found


def by_name(target: str) -> Any:
    """The object that a role names, or None."""
    name = target.removeprefix("crowdwise.")
    entry = next((e for e in entries().values() if name in (e.name, e.name.rpartition(".")[2])), None)
    if entry:
        return entry.value
    module, _, last = target.rpartition(".")
    loaded = sys.modules.get(module if module.startswith("crowdwise") else f"crowdwise.{module}")
    return getattr(loaded, last, None) if loaded else None


def parameter_table(value: Any, resolve: docstrings.Link) -> str:
    """The parameters that are described; those that share a description and all else, in one row."""
    said = meanings(value)
    allowed = value.constraints() if hasattr(value, "constraints") else {}
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, parameter in _parameters(value).items():
        if name in said:
            words = inline(allowed[name].expected) if name in allowed else ""
            given = "" if parameter.default is parameter.empty else f"`{default(parameter.default)}`"
            rows.setdefault((words, given, inline(said[name], resolve)), []).append(f"`{name}`")
    lines = [(", ".join(names), *rest) for rest, names in rows.items()]
    if any(line[1] for line in lines):
        return table(("parameter", "allowed", "default", "meaning"), lines)
    return table(("parameter", "default", "meaning"), [(a, c, d) for a, _, c, d in lines]) if lines else ""


def _parameters(value: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return {}


def prose_parts(parsed: Parsed, resolve: docstrings.Link) -> list[str]:
    """What the sections with running text say, under their titles."""
    out = []
    for title, text in parsed.prose.items():
        out += [f"**{title}**", markdown(text, resolve)]
    for names, text in parsed.entries.get("Raises", []):
        out.append(f"Raises {', '.join(f'`{n}`' for n in names)}: {inline(text, resolve)}")
    return out


def describe(entry: Entry, level: str) -> str:
    """One entry, from its heading to its last member."""
    value, resolve = entry.value, linker(entry.value)
    out = [f"{level} {entry.title} {{ #{entry.name} }}"]
    if not callable(value):
        said = attribute_docs(sys.modules[f"crowdwise.{entry.module}"]).get(entry.name.rpartition(".")[2], "")
        return "\n\n".join([*out, f"```python\n{entry.name}: {type(value).__name__}\n```", inline(said, resolve)])
    parsed = parse(value.__doc__)
    declared = hasattr(value, "constraints")
    word = "class " if inspect.isclass(value) else ""
    if not (inspect.isclass(value) and ((is_dataclass(value) and not declared) or issubclass(value, BaseException))):
        out.append(f"```python\n{word}{signature(entry.title, value, types=not declared)}\n```")
    out += [inline(parsed.summary, resolve), markdown(parsed.body, resolve), guide_line(value)]
    out += [parameter_table(value, resolve)]
    if inspect.isclass(value):
        out += [attribute_table(value, resolve)]
    out += prose_parts(parsed, resolve)
    if inspect.isclass(value):
        out += [describe_member(entry, name, member, level) for name, member in own_members(value).items()]
        out += [inherited_line(entry)]
    return "\n\n".join(part for part in out if part)


def guide_line(value: Any) -> str:
    """For what is in the registry: its key, its reference, and where the guide explains it."""
    entry = registered().get(getattr(value, "__name__", ""))
    if entry is None:
        return ""
    home = guide(entry.key)
    reference = f" Reference: {entry.reference}." if entry.reference else ""
    return f"Key: `{entry.key}`.{reference} The model, and when it fails: [{entry.key}](../{home}#{entry.key})."


@cache
def guide(key: str) -> str:
    """The page with a section of this name."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        if re.search(rf"^## {re.escape(key)}$", page.read_text(encoding="utf-8"), flags=re.M):
            return page.name
    raise SystemExit(f"No page has a section '## {key}': write one.")


def attribute_table(owner: type, resolve: docstrings.Link) -> str:
    """Its attributes, save those that a base with an entry has alike."""
    shared = {n: v for base in owner.__mro__[1:] if base in by_class() for n, v in attributes(base).items()}
    rows = [
        (f"`{name}`", f"`{kind}`" if kind else "", inline(text, resolve))
        for name, (kind, text) in attributes(owner).items()
        if shared.get(name) != (kind, text)
    ]
    return table(("attribute", "type", "meaning"), rows) if rows else ""


def describe_member(entry: Entry, name: str, member: Any, level: str) -> str:
    """A method of a class: heading, signature, text, parameters."""
    function = getattr(entry.value, name)
    bound = not isinstance(member, staticmethod) and not inspect.ismethod(function)
    parsed, resolve = parse(inspect.getdoc(function)), linker(entry.value)
    short = entry.name.rpartition(".")[2]
    shown = f"{short}.{name}"
    out = [
        f"{level}# {name} {{ #{entry.name}.{name} }}",
        f"```python\n{signature(shown, function, bound=bound)}\n```",
        inline(parsed.summary, resolve),
        markdown(parsed.body, resolve),
        parameter_table(function, resolve),
        *prose_parts(parsed, resolve),
    ]
    return "\n\n".join(part for part in out if part)


def inherited_line(entry: Entry) -> str:
    """What it has from bases that are described elsewhere."""
    elsewhere: dict[str, list[str]] = {}
    for name, address in described_members(entry).items():
        if name not in own_members(entry.value):
            owner = address.partition("#")[2].removesuffix(f".{name}")
            elsewhere.setdefault(owner, []).append(f"[`{name}`]({address})")
    lines = [f"From [`{owner}`]({entries()[owner].address}): {', '.join(links)}." for owner, links in elsewhere.items()]
    return "\n\n".join(lines)


# -------------------------------------------------------------------- pages


def write_page(page: Page) -> str:
    """A page: its list of names with one line each, then the entries by group."""
    mine = [e for e in entries().values() if e.page == page.file]
    groups: dict[str, list[Entry]] = {}
    for entry in mine:
        groups.setdefault(entry.group, []).append(entry)
    order = [g for g in groups if g != SHARED] + [SHARED] * (SHARED in groups)
    out = [f"# {page.title}", page.says]
    package = sys.modules.get(f"crowdwise.{page.parts[0]}")
    if package is not None and page.parts[0] in ("errors", "metrics", "simulate"):
        out.append(markdown((package.__doc__ or "").partition("\n")[2], link))
    out.append(index_table([e for e in mine if e.group != SHARED]))
    grouped = order != [""]
    for group in order:
        out += [f"## {heading(group, page)}"] if grouped else []
        out += [describe(e, "###" if grouped else "##") for e in groups[group]]
    return "\n\n".join(out) + "\n"


def heading(group: str, page: Page) -> str:
    if not group:
        return {"tables": "Tables", "reliability": "Reliability"}.get(page.file, "Functions and classes")
    return group[0].upper() + group[1:]


def index_table(found: list[Entry]) -> str:
    return table(("name", "what it is"), [(f"[`{e.title}`]({e.address})", first_line(e)) for e in found])


def first_line(entry: Entry) -> str:
    if not callable(entry.value):
        return inline(
            attribute_docs(sys.modules[f"crowdwise.{entry.module}"]).get(entry.name.rpartition(".")[2], ""), link
        )
    return inline(parse(entry.value.__doc__).summary, link)


def write_index() -> str:
    """The first page: what is where."""
    out = [
        "# API reference",
        "Every public name, made from the docstrings of this version. `import crowdwise as cw` makes all of them "
        "reachable, and loads each when it is first used.",
    ]
    for page in PAGES:
        names = [e for e in entries().values() if e.page == page.file and e.group != SHARED]
        out += [f"## [{page.title}]({page.file}.md)", page.says]
        out.append(" · ".join(f"[`{e.title}`]({e.address})" for e in names))
    return "\n\n".join(out) + "\n"


@cache
def pages() -> dict[str, str]:
    """File -> text of every page of the reference."""
    return {"index.md": write_index(), **{f"{page.file}.md": write_page(page) for page in PAGES}}


def on_config(config: Any) -> Any:
    """Called by mkdocs: the pages of answer types stand below their overview in the menu, in the registry's order."""
    below = next(entry["Other answer types"] for entry in config["nav"] if "Other answer types" in entry)
    names = [f"answers-{kind}.md" for kind in registry.ANSWER_TYPES]
    below += [name for name in names if (ROOT / "docs" / name).is_file() and name not in below]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs: the pages join those of the folder."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, f"reference/{name}", content=text))
    return files


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
