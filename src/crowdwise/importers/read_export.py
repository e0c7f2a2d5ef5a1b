"""Read an export of an annotation tool, which is recognised by its content."""

from __future__ import annotations

import os
from typing import Any

from crowdwise import registry
from crowdwise.data.boundary import guarded, reading
from crowdwise.errors import CrowdwiseError, ParameterError, ReadError, suggestion
from crowdwise.importers.collect import Collector
from crowdwise.importers.export import Export, build
from crowdwise.importers.export_files import ExportFiles, Peek
from crowdwise.importers.loaded_dataset import LoadedDataset, LoadedObjects, LoadedPeek, is_dataset


@guarded
def read_export(path: Any, tool: str = "auto", *, predictions: bool = False, question: str | None = None) -> Export:
    """The answers in an export of an annotation tool, question by question.

    Parameters
    ----------
    path
        A file, a zip archive or a folder, as the tool writes it; a loaded ``datasets.Dataset``; or a list of the
        objects in its JSON file.
    tool
        A key of ``crowdwise.registry.IMPORTERS``, such as ``"label-studio"``. By default it is recognised.
    predictions
        Whether answers of models are read too, as annotators that are called ``model:NAME``.
    question
        Read this question alone.
    """
    with _opened(path) as files:
        file = files.path
        if tool == "auto":
            found = _recognised(files)
            if found is None and isinstance(files, LoadedDataset):
                found = "huggingface"
            if found is None:
                known = ", ".join(entry.title for entry in registry.IMPORTERS.values())
                raise ReadError(f"{file} was not recognised as an export of an annotation tool ({known}).")
            tool = found
        if tool not in registry.IMPORTERS:
            near = suggestion(tool, list(registry.IMPORTERS))
            raise ParameterError(f"Unknown tool {tool!r}: there are {', '.join(registry.IMPORTERS)}.{near}")
        into = Collector(predictions)
        with reading(file, f"an export of {registry.IMPORTERS[tool].title}"):
            registry.IMPORTERS[tool].load("read")(files, into)
    if question is not None:
        into.questions = {name: q for name, q in into.questions.items() if name == question} or into.questions
        into.alone = {name: kinds for name, kinds in into.alone.items() if name == question}
    export = build(into, tool, file)
    if question is not None:
        export.question(question)
    return export


def _opened(source: Any) -> ExportFiles:
    if is_dataset(source):
        return LoadedDataset(source)
    return LoadedObjects(source) if isinstance(source, list) else ExportFiles(source)


def recognise(path: str | os.PathLike[str]) -> str | None:
    """The tool that an export is from, by its content; ``None`` where it is none that is known."""
    try:
        with ExportFiles(path) as files:
            return _recognised(files)
    except (CrowdwiseError, OSError):
        return None


def _recognised(files: ExportFiles) -> str | None:
    peek = LoadedPeek(files) if isinstance(files, LoadedObjects) else Peek(files)
    return next((key for key, entry in registry.IMPORTERS.items() if entry.load("recognises")(peek)), None)
