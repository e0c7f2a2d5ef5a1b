"""The annotation tools: their table in docs/exports.md and their sections in docs/tools.md.

``docs/generate.py`` writes both from ``tool_pages.toml`` and from the docstrings of the importers.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from crowdwise import registry


@dataclass(frozen=True)
class Tool:
    """``file``: what the export is called here; ``how``: how it is made; ``kinds``: what the tool writes."""

    kinds: str
    file: str
    how: str
    item: str
    annotator: str
    left_out: str
    notes: str
    back: str = ""
    """The tool of ``crowdwise export``, and its options."""
    command: str = "report"
    """``report``, ``rank`` (comparisons), or nothing where there is no table yet."""


TOOLS = {
    key: Tool(**about)
    for key, about in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}


def tool_table() -> str:
    """The table of all tools."""
    lines = ["| tool | key | files |", "| --- | --- | --- |"]
    for key, entry in registry.IMPORTERS.items():
        lines.append(f"| [{entry.title}](tools.md#{key}) | `{key}` | {TOOLS[key].kinds} |")
    return "\n".join(lines)


def tool_sections() -> str:
    """A section for each tool: how its export is made, what is read, and where everything is in the file."""
    return "\n\n".join(tool_section(key) for key in registry.IMPORTERS)


def tool_section(key: str) -> str:
    tool, entry = TOOLS[key], registry.IMPORTERS[key]
    known = parts(key) or [
        ("item", tool.item),
        ("annotator", tool.annotator or "not named"),
        ("left out", tool.left_out),
    ]
    where = "\n".join(f"| {name} | {text} |" for name, text in known if text)
    commands = f"`crowdwise import {tool.file} --out votes`" if tool.command else f"`crowdwise import {tool.file}`"
    if tool.command == "rank":
        commands += ", `crowdwise rank votes`"
    back = f" Back into the tool: `crowdwise export result {tool.back}`." if tool.back else ""
    how = tool.how if tool.how.endswith((".", ")")) else f"{tool.how}."
    return (
        f"## {entry.title} {{ #{key} }}\n\n{how} Then {commands}.{back}\n\n{tool.notes.strip()}\n\n"
        f"| | where it is in the export |\n| --- | --- |\n{where}"
    )


def parts(key: str) -> list[tuple[str, str]]:
    """The table in the docstring of an importer."""
    entry = registry.IMPORTERS[key]
    text = f"{inspect.getdoc(entry.load('read'))}\n{inspect.getdoc(inspect.getmodule(entry.load('read')))}"
    found = re.findall(r"^=+ +=+\n(.*?)^=+ +=+$", text, re.MULTILINE | re.DOTALL)
    rows: list[tuple[str, str]] = []
    for line in found[0].splitlines() if found else ():
        name, _, rest = line.partition("  ")
        said = rest.strip().replace("``", "`")
        if line.startswith(" ") and rows:
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip().replace('``', '`')}")
        elif line.strip():
            rows.append((name.strip(), said))
    return rows
