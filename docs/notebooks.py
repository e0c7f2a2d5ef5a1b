"""The tutorials: notebooks under docs/tutorials, run from top to bottom, and pages of the site with their output.

    python docs/notebooks.py            run all notebooks and store what they print
    python docs/notebooks.py FILE...    these alone

``tests/test_docs.py`` runs them again and compares what they print with what is stored, but for cells tagged
``varies``: what a network learns differs a little between processors. mkdocs calls ``on_files``.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "tutorials"


def run(path: Path) -> Any:
    """The notebook after a run in a kernel of its own, in an empty folder."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=300, resources=resources, record_timing=False).execute()
    notebook.metadata.pop("language_info", None)  # says which Python ran it
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
    return notebook


def joined(outputs: list[Any]) -> list[Any]:
    """What was printed in pieces, as one."""
    out: list[Any] = []
    for output in outputs:
        if out and output.output_type == "stream" == out[-1].output_type:
            out[-1].text += output.text
        else:
            out.append(output)
    return out


def text_of(output: dict[str, Any]) -> str:
    """An output as text: what was printed, or the plain form of a table."""
    text = output["text"] if "text" in output else output["data"].get("text/plain", "")
    return text if isinstance(text, str) else "".join(text)


def page(path: Path) -> str:
    """A notebook with its stored outputs as Markdown."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
        parts += [as_markdown(output) for output in cell.get("outputs", ())]
    link = f"This page is a notebook, shown with what it printed when it was last run: [{path.name}]({path.name})."
    return "\n\n".join([parts[0], link, *parts[1:]]) + "\n"


def as_markdown(output: dict[str, Any]) -> str:
    data = {kind: "".join(value) for kind, value in output.get("data", {}).items()}
    if "text/html" in data:  # tables: the site has its own style for them
        html = re.sub(r"<style.*?</style>", "", data["text/html"], flags=re.S)
        return re.sub(r"\n\s*", "", re.sub(r'(<table)[^>]*>|(<tr) style="[^"]*">', r"\1\2>", html))
    if "image/svg+xml" in data:
        return re.sub(r"\n\s*", " ", data["image/svg+xml"])
    if "image/png" in data:
        return f'<img alt="figure" src="data:image/png;base64,{data["image/png"].strip()}">'
    return f"```text\n{text_of(output).rstrip()}\n```"


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs: the pages join those of the folder, the notebooks stay there to download."""
    from mkdocs.structure.files import File

    for path in sorted(FOLDER.glob("*.ipynb")):
        files.append(File.generated(config, f"tutorials/{path.stem}.md", content=page(path)))
    return files


if __name__ == "__main__":
    import nbformat

    for file in [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(run(file), file)
        print(f"written: {file.name}")
