"""Docstrings as Markdown: the numpy layout (Parameters, Attributes, Examples), simple tables, literal blocks, roles."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

Link = Callable[[str], str | None]
"""The address of what a role names (``crowdwise.Votes.from_frame``), or None."""

SECTIONS = ("Parameters", "Attributes", "Returns", "Yields", "Raises", "Notes", "Examples", "References")


class Parsed(NamedTuple):
    """A docstring in parts. ``entries``: section -> (names, text) of each of its entries."""

    summary: str
    body: str
    entries: dict[str, list[tuple[tuple[str, ...], str]]]
    prose: dict[str, str]

    def described(self, section: str) -> dict[str, str]:
        """Name -> text, of a section of entries."""
        return {name: text for names, text in self.entries.get(section, []) for name in names}


@cache
def parse(doc: str | None) -> Parsed:
    """A docstring in parts: the first paragraph, what follows, and the sections with a title."""
    text = inspect.cleandoc(doc or "")
    titles = "|".join(SECTIONS)
    pieces = re.split(rf"^({titles})\n-{{3,}}\n", text, flags=re.M)
    head, parts = pieces[0], dict(zip(pieces[1::2], pieces[2::2], strict=True))
    for title in ("Parameters", "Attributes", "Raises"):  # an example may follow without a title
        part, found, example = parts.get(title, "").partition("\n>>> ")
        if found:
            parts[title] = part
            parts["Examples"] = f">>> {example}\n\n{parts.get('Examples', '')}"
    summary, _, body = head.strip().partition("\n\n")
    listed = {title: entries(part) for title, part in parts.items() if title in ("Parameters", "Attributes", "Raises")}
    prose = {title: part.strip("\n") for title, part in parts.items() if title not in listed}
    return Parsed(" ".join(summary.split()), body, listed, prose)


def entries(part: str) -> list[tuple[tuple[str, ...], str]]:
    """(names, text) of each entry: names at the margin, text indented below."""
    found: list[tuple[tuple[str, ...], str]] = []
    for line in part.splitlines():
        if line and not line.startswith(" "):
            names = line.partition(" : ")[0]
            found.append((tuple(name.strip() for name in names.split(",")), ""))
        elif found and line.strip():
            names, text = found[-1]
            found[-1] = (names, f"{text} {line.strip()}".strip())
    return found


# -------------------------------------------------------------------- Markdown


def inline(text: str, link: Link | None = None) -> str:
    """One paragraph: roles become links or code, double backticks single ones, and nothing else is markup."""

    def convert(match: re.Match[str]) -> str:
        role, name, code = match["role"], match["name"], match["code"]
        if code is not None:
            return f"`{code}`"
        target = name.lstrip("~")
        shown = target if role == "mod" else ".".join(target.split(".")[-2 if role in ("meth", "attr") else -1 :])
        address = link(target) if link else None
        return f"[`{shown}`]({address})" if address else f"`{shown}`"

    pattern = r":(?P<role>\w+):`(?P<name>[^`]+)`|``(?P<code>.+?)``"
    out, end = [], 0
    for match in re.finditer(pattern, text, flags=re.S):
        out += [escape(text[end : match.start()]), convert(match)]
        end = match.end()
    return "".join([*out, escape(text[end:])])


def escape(text: str) -> str:
    """Plain words with nothing that Markdown takes for markup."""
    return re.sub(r"([\\*_\[\]<])", r"\\\1", text).replace(r"\<", "&lt;")


def markdown(text: str, link: Link | None = None) -> str:
    """Paragraphs, lists, simple tables, literal blocks and examples as Markdown."""
    out: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text).strip("\n")):
        if not block.strip():
            continue
        if block.startswith(" "):
            previous = out[-1] if out else ""
            body = textwrap.dedent(block)
            if previous.startswith("```text") and previous.endswith("```"):
                out[-1] = f"{previous[:-3]}\n{body}\n```"  # a literal block with empty lines
            else:
                out.append(f"```text\n{body}\n```")
        elif block.startswith(">>>"):
            if out and out[-1].startswith("```pycon"):
                out[-1] = f"{out[-1][:-3]}\n{block}\n```"
            else:
                out.append(f"```pycon\n{block}\n```")
        elif re.match(r"=+( +=+)+\s*$", block.splitlines()[0]):
            out.append(simple_table(block.splitlines(), link))
        elif block == "::":
            pass
        elif re.match(r"[-*] ", block):
            items = re.split(r"\n(?=[-*] )", block)
            out.append("\n".join("- " + inline(" ".join(item[2:].split()), link) for item in items))
        else:
            out.append(inline(" ".join(re.sub(r"\s*::$", ":", block).split()), link))
    return "\n\n".join(out)


def simple_table(lines: list[str], link: Link | None = None) -> str:
    """A table between lines of ``=``: columns begin where these do, and a row without a first cell goes on."""
    starts = [m.start() for m in re.finditer(r"=+", lines[0])]
    borders = [i for i, line in enumerate(lines) if re.match(r"=+( +=+)+\s*$", line)]

    def cells(line: str) -> list[str]:
        cuts = [0]
        cuts += [s for s in starts[1:] if s >= len(line) or line[s - 1] == " "]  # a cell over two columns
        parts = [line[a:b].strip() for a, b in zip(cuts, [*cuts[1:], None], strict=True)]
        return parts + [""] * (len(starts) - len(parts))

    header = [cells(line) for line in lines[borders[0] + 1 : borders[1]]] if len(borders) > 2 else []
    rows: list[list[str]] = []
    for line in lines[borders[-2] + 1 : borders[-1]]:
        row = cells(line)
        if rows and not row[0]:
            rows[-1] = [f"{a} {b}".strip() for a, b in zip(rows[-1], row, strict=True)]
        elif line.strip():
            rows.append(row)
    titles = header[0] if header else [""] * len(starts)
    return table(tuple(titles), [tuple(inline(cell, link) for cell in row) for row in rows])


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table. Inside code a pipe does not end a cell."""
    lines = [header, ("---",) * len(header), *rows]
    outside = re.compile(r"(`[^`]*`)|\|")
    return "\n".join(
        "| " + " | ".join(outside.sub(lambda m: m[1] or "\\|", cell) for cell in line) + " |" for line in lines
    )


def names_in_tables(doc: str | None) -> dict[str, str]:
    """Name -> last cell, of the rows in a docstring's tables that begin with names as code."""
    found: dict[str, str] = {}
    for row in re.findall(r"^(``\w+``(?:, ``\w+``)*) {2,}(\S.*)$", inspect.cleandoc(doc or ""), flags=re.M):
        for name in re.findall(r"``(\w+)``", row[0]):
            found.setdefault(name, re.split(r" {2,}", row[1])[-1].strip())
    return found


# -------------------------------------------------------------------- what stands under assignments


@cache
def attribute_docs(owner: Any) -> dict[str, str]:
    """Name -> the string under its assignment, in the source of a class or module."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, TypeError):
        return {}
    body = tree.body[0].body if inspect.isclass(owner) else tree.body  # type: ignore[attr-defined]
    found = {}
    for node, after in pairwise(body):
        target = node.target if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [None])[0]
        if (
            isinstance(target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            found[target.id] = " ".join(after.value.value.split())
    return found
