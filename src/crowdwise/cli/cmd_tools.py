"""Annotation tools: ``crowdwise import`` and ``export`` (their files to tables that every command reads, and labels
back), ``label-studio`` (annotations of a server in, consensus back, and what to label next)."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli.options import JsonOption, MethodOption, SetOption, assignments, option
from crowdwise.cli.outputs import check_outputs, emit, emit_table, say, write_table
from crowdwise.data.folders import check_target
from crowdwise.data.heavy import pl
from crowdwise.errors import ReadError

ExportArgument = Annotated[
    Path,
    typer.Argument(help="What the tool exported: a file, a zip archive or a folder.", show_default=False),
]
FolderOption = Annotated[Path | None, option("--out", "-o", help="The folder to write tables into; new, or empty.")]
FromOption = Annotated[
    str, typer.Option("--tool", help=f"The tool: {', '.join(registry.IMPORTERS)}; auto recognises it.")
]
OneQuestionOption = Annotated[str | None, option("--question", help="Import this question alone.")]
PredictionsOption = Annotated[
    bool, typer.Option("--predictions", help="Take predictions of models as annotators called model:NAME.")
]


def import_(
    path: ExportArgument, out: FolderOption = None, tool: FromOption = "auto", question: OneQuestionOption = None,
    predictions: PredictionsOption = False, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Read an export of an annotation tool: a folder of tables for each question.

    The tables are labels, items and annotators. The tool is recognised by the content of the file. What was left out
    (skipped, rejected, drafts...) is said, with counts. Without --out nothing is written.

    Examples:

    `crowdwise import project-7.json --out votes && crowdwise report votes`

    `crowdwise import batch_results.csv --out votes --question sentiment`
    """
    from crowdwise.importers.export import read_export

    check_target(out, None)
    export_ = read_export(path, tool, question=question, predictions=predictions)
    folders = [] if out is None else export_.save(out)
    if as_json:
        emit(json.dumps(facts(export_, folders)))
        return
    say(f"{path.name} is an export of {registry.IMPORTERS[export_.tool].title}.")
    for line in export_.lines():
        say(line)
    for folder in folders:
        say(f"Written: {folder}. Try: crowdwise report {folder}")


def facts(export_: Any, folders: list[Path]) -> dict[str, Any]:
    """What was read, as JSON."""
    questions = {
        name: {"answer_type": table.answer_type, "items": table.n_items, "annotators": table.n_annotators,
               "answers": table.n_answers}
        for name, table in export_.tables.items()
    }  # fmt: skip
    return {
        "tool": export_.tool, "questions": questions, "left_out": dict(export_.left_out),
        "left_alone": dict(export_.alone), "notes": list(export_.notes), "folders": [str(folder) for folder in folders],
    }  # fmt: skip


PathArgument = Annotated[
    Path, typer.Argument(help="A result that was saved: crowdwise aggregate ... --save FOLDER.", show_default=False)
]
ToolOption = Annotated[
    str, typer.Option("--to", help="label-studio, argilla, prodigy, doccano, coco, cvat, labelme, brat or huggingface.")
]
OutOption = Annotated[Path, option("--out", "-o", help="The file to write: .json or .jsonl.")]
ItemsOption = Annotated[
    Path | None,
    option("--items", help="Texts of items: the folder of crowdwise import, or a table with an item column."),
]
QuestionOption = Annotated[str, typer.Option("--question", help="The name of the question there.")]
FieldOption = Annotated[str, typer.Option("--field", help="The column with texts or addresses, and its name there.")]


def export(
    path: PathArgument, to: ToolOption, out: OutOption, items: ItemsOption = None, question: QuestionOption = "label",
    field: FieldOption = "text",
) -> None:  # fmt: skip
    """Write consensus labels in the form that an annotation tool imports.

    Tools take them as predictions, suggestions or tasks.

    Example:

    `crowdwise import project.json -o votes && crowdwise aggregate votes --save result`

    `crowdwise export result --to label-studio --items votes --question sentiment --out predictions.json`
    """
    from crowdwise.data.dataset import find_table
    from crowdwise.data.files import read_table
    from crowdwise.exporters.write_labels import write_labels
    from crowdwise.saved import load

    check_outputs(out, endings=(".json", ".jsonl", ".xml", ".zip"))
    result = load(path)
    table = None
    if items is not None:
        file = find_table(items, "items") if items.is_dir() else items
        if file is None:
            raise ReadError(f"{items} has no table of items: expected items.csv (or .parquet, .jsonl, ...) in it.")
        table = read_table(file)[0]
    count = write_labels(result, out, to, items=table, question=question, field=field)
    say(f"Written: {out}, labels of {count:,} items for {to}.")


label_studio = typer.Typer(
    help="Work with a Label Studio server: pull annotations, push consensus.",
    no_args_is_help=True,
)

UrlOption = Annotated[str, option("--url", help="The address of the server, such as http://localhost:8080.")]
ProjectOption = Annotated[int, typer.Option("--project", min=1, help="The number of the project.")]
PulledOption = Annotated[Path, option("--out", "-o", help="The folder with what was pulled; made where there is none.")]
AskedOption = Annotated[
    str | None, option("--question", help="The question (its name in the labelling configuration), of several.")
]
WholeOption = Annotated[bool, typer.Option("--whole", help="Pull everything again, not only what changed.")]
GoldOption = Annotated[
    bool, typer.Option("--gold", help="Let the method use the annotations that are marked as ground truth.")
]
VersionOption = Annotated[
    str | None, option("--model-version", help="The version of the predictions; by default crowdwise-METHOD-NUMBER.")
]
KeepOption = Annotated[bool, typer.Option("--keep", help="Keep earlier predictions of crowdwise on the tasks.")]


@dataclass(frozen=True)
class PulledProject:
    """A project, and the folder of what was pulled from it."""

    client: Any
    project: Any
    out: Path

    @classmethod
    def of(cls, url: str, project: int, out: Path) -> PulledProject:
        from crowdwise.label_studio.ls_client import LabelStudioClient
        from crowdwise.label_studio.ls_project import Project

        client = LabelStudioClient(url)
        return cls(client, Project(client, project), out)

    def pull(self, whole: bool = False) -> Any:
        """Pull, and say what came."""
        from crowdwise.label_studio.ls_round import pull

        pulled = pull(self.client, self.project.number, self.out, whole=whole)
        say(
            f"{pulled.new:,} new annotations, {pulled.changed:,} changed, {pulled.removed:,} removed, on "
            f"{pulled.tasks:,} tasks that were looked at. {self.out} holds {pulled.known_annotations:,} annotations of "
            f"{pulled.known_tasks:,} tasks."
        )
        return pulled

    def fit(self, question: str | None, method: str | None, set_: list[str] | None, gold: bool) -> Any:
        from crowdwise.label_studio.ls_round import fit

        return fit(self.out, self.project.control(question), method, assignments(set_), gold=gold)

    def push(self, consensus: Any, version: str | None, keep: bool) -> Any:
        """Push, and say what was put there."""
        from crowdwise.label_studio.ls_round import push

        pushed = push(self.project, consensus, version=version, keep=keep)
        gone = f" Removed: those of {', '.join(pushed.removed)}." if pushed.removed else ""
        say(f"{pushed.predictions:,} predictions of {pushed.version} are on the tasks.{gone}")
        return pushed

    def say_next(self, consensus: Any, n: int, most: int | None, show: bool) -> list[Any]:
        """The tasks to label next; ``show`` puts them into a tab of the project."""
        from crowdwise.label_studio.ls_project import TAB
        from crowdwise.label_studio.ls_round import next_tasks

        asked = self.project.about().get("maximum_annotations") or 1
        found = next_tasks(consensus, n, most=most)
        full = sum(task.annotations >= asked for task in found)
        if show and most is not None and most > asked:
            self.project.ask_for(most)
        elif full:
            say(
                f"Note: {full:,} of these tasks have {asked} annotations or more, which is what the project asks for: "
                f"Label Studio gives them to no annotator. Ask for more: --max-annotations {asked + 1} --set-tab."
            )
        if show and found:
            tab = self.project.show_next([task.task for task in found])
            say(f"Selected in the tab {TAB!r}: {self.client.url}/projects/{self.project.number}/data?tab={tab}")
        return found


@label_studio.command("pull")
def pull(
    url: UrlOption, project: ProjectOption, out: PulledOption, whole: WholeOption = False, as_json: JsonOption = False
) -> None:
    """Pull annotations into a folder that every command reads; the second time only what changed.

    The token is read from the environment variable LABEL_STUDIO_API_KEY.

    Example:

    `crowdwise label-studio pull --url http://localhost:8080 --project 7 --out reviews && crowdwise report reviews`
    """
    pulled = PulledProject.of(url, project, out).pull(whole)
    if as_json:
        emit(json.dumps(asdict(pulled)))
    elif pulled.known_annotations:
        say(f"Try: crowdwise report {out}")


@label_studio.command("push")
def push(
    url: UrlOption, project: ProjectOption, out: PulledOption, question: AskedOption = None,
    method: MethodOption = None, set_: SetOption = None, gold: GoldOption = False, version: VersionOption = None,
    keep: KeepOption = False, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Pull, fit, and put the consensus on the tasks as predictions, with score and model version.

    Example: `crowdwise label-studio push --url http://localhost:8080 --project 7 --out reviews`
    """
    work = PulledProject.of(url, project, out)
    work.project.control(question)  # before anything is done
    work.pull()
    pushed = work.push(work.fit(question, method, set_, gold), version, keep)
    if as_json:
        emit(json.dumps(asdict(pushed)))


NOption = Annotated[int, typer.Option("-n", "--tasks", min=1, help="How many tasks.")]
MostOption = Annotated[
    int | None, option("--max-annotations", min=1, help="Tasks with so many annotations need no more.")
]
ShowOption = Annotated[
    bool, typer.Option("--set-tab", help="Select these tasks in a tab of the project, to be labelled from there.")
]
TableOption = Annotated[Path | None, option("--table", help="Write them here: .csv, .xlsx, .jsonl or .parquet.")]


@label_studio.command("next")
def next_(
    url: UrlOption, project: ProjectOption, out: PulledOption, n: NOption = 20, most: MostOption = None,
    show: ShowOption = False, question: AskedOption = None, method: MethodOption = None, set_: SetOption = None,
    gold: GoldOption = False, table: TableOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Pull, fit, and say which tasks to label next, the most uncertain first; --set-tab selects them in Label Studio.

    Example: `crowdwise label-studio next --url http://localhost:8080 --project 7 --out reviews -n 50 --set-tab`
    """
    check_outputs(table)
    work = PulledProject.of(url, project, out)
    work.project.control(question)
    work.pull()
    tasks = [asdict(task) for task in work.say_next(work.fit(question, method, set_, gold), n, most, show)]
    frame = pl.DataFrame(tasks)
    if table is not None:
        write_table(frame, table)
    if as_json:
        emit(json.dumps({"tasks": tasks}))
    elif not tasks:
        say("No task needs more annotations.")
    elif table is None:
        emit_table(frame)


EveryOption = Annotated[float, typer.Option("--every", min=1.0, help="Seconds between pulls without a webhook call.")]
ListenOption = Annotated[
    str | None, option("--listen", help="Listen here for webhooks, such as 127.0.0.1:8090; else only poll.")
]
CallbackOption = Annotated[
    str | None, option("--callback", help="The address at which Label Studio reaches us; by default that of --listen.")
]
RoundsOption = Annotated[int | None, option("--rounds", min=1, help="Stop after so many rounds.")]


@label_studio.command("watch")
def watch(
    url: UrlOption, project: ProjectOption, out: PulledOption, every: EveryOption = 60.0, listen: ListenOption = None,
    callback: CallbackOption = None, n: NOption = 20, most: MostOption = None, show: ShowOption = False,
    question: AskedOption = None, method: MethodOption = None, set_: SetOption = None, gold: GoldOption = False,
    rounds: RoundsOption = None,
) -> None:  # fmt: skip
    """Keep predictions up to date while people annotate: by webhook (--listen), or by looking every --every seconds.

    Example: `crowdwise label-studio watch --url http://localhost:8080 --project 7 --out reviews --listen :8090`
    """
    from crowdwise.label_studio.ls_watch import Listener, listening_at, watch, webhook, when_changed

    work = PulledProject.of(url, project, out)
    work.project.control(question)

    def update() -> None:
        consensus = work.fit(question, method, set_, gold)
        work.push(consensus, None, False)
        if show:
            work.say_next(consensus, n, most, show)

    with ExitStack() as stack:
        called = None
        if listen is not None:
            host, port = listening_at(listen)
            listener = stack.enter_context(Listener(host, port))
            address = callback or f"http://{host}:{listener.port}/"
            stack.enter_context(webhook(work.project, address, listener.secret))
            called = listener.called
            say(f"Listening at {address}.")
        watch(
            when_changed(work.pull, update),
            lambda words: say(f"Note: {words}"),
            every=every,
            called=called,
            rounds=rounds,
        )
