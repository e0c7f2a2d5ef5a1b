"""The pages of the annotation tools, docs/tools/KEY.md, and the table of all: from the export button to the report.

``docs/generate.py`` writes them from ``tool_pages.toml`` and from the docstrings of the importers.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib import import_module
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
    lines = ["| tool | key | files | item | annotator | left out |", "| --- | --- | --- | --- | --- | --- |"]
    for key, entry in registry.IMPORTERS.items():
        tool = TOOLS[key]
        cells = (f"[{entry.title}](tools/{key}.md)", f"`{key}`", tool.kinds, tool.item, tool.annotator, tool.left_out)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def tool_page(key: str) -> str:
    """What a page says: the lines from the export button to the report, and where everything is in the file."""
    tool, entry = TOOLS[key], registry.IMPORTERS[key]
    out = "ranking.csv" if tool.command == "rank" else "report.html"
    lines = [f"crowdwise import {tool.file} --out votes", f"crowdwise {tool.command} votes --out {out}"]
    if tool.command == "report":
        lines.append("crowdwise aggregate votes --save result")
    if tool.back:
        lines.append(f"crowdwise export result {tool.back}")
    if not tool.command:
        lines = [f"crowdwise import {tool.file}"]
    steps = "\n".join(lines)
    known = parts(key) or [
        ("item", tool.item),
        ("annotator", tool.annotator or "not named"),
        ("left out", tool.left_out),
    ]
    where = "\n".join(f"| {name} | {text} |" for name, text in known if text)
    how = tool.how if tool.how.endswith((".", ")")) else f"{tool.how}."
    return (
        f"{how} Then:\n\n```sh\n{steps}\n```\n\n{tool.notes}\n\n| | where it is in the export |\n| --- | --- |\n"
        f"{where}\n\nRecognised by its content as `{key}` ({entry.title}). All tools: [exports](../exports.md)."
    )


def parts(key: str) -> list[tuple[str, str]]:
    """The table in the docstring of an importer."""
    text = import_module(f"crowdwise.importers.{registry.IMPORTERS[key].module}").__doc__ or ""
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
