"""``crowdwise label-studio``: annotations of a Label Studio server in, consensus back, and what to label next."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.options import JsonOption, MethodOption, SetOption, assignments, option
from crowdwise.cli.outputs import check_outputs, emit, emit_table, say, write_table
from crowdwise.data.heavy import pl

label_studio = typer.Typer(
    help="Work with a Label Studio server: pull annotations, push consensus.",
    no_args_is_help=True,
)

UrlOption = Annotated[str, option("--url", help="The address of the server, such as http://localhost:8080.")]
ProjectOption = Annotated[int, typer.Option("--project", min=1, help="The number of the project.")]
OutOption = Annotated[Path, option("--out", "-o", help="The folder with what was pulled; made where there is none.")]
QuestionOption = Annotated[
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

        found = pull(self.client, self.project.number, self.out, whole=whole)
        say(
            f"{found.new:,} new annotations, {found.changed:,} changed, {found.removed:,} removed, on {found.tasks:,} "
            f"tasks that were looked at. {self.out} holds {found.known_annotations:,} annotations of "
            f"{found.known_tasks:,} tasks."
        )
        return found

    def fit(self, question: str | None, method: str | None, set_: list[str] | None, gold: bool) -> Any:
        from crowdwise.label_studio.ls_round import fit

        return fit(self.out, self.project.control(question), method, assignments(set_), gold=gold)

    def push(self, consensus: Any, version: str | None, keep: bool) -> Any:
        """Push, and say what was put there."""
        from crowdwise.label_studio.ls_round import push

        found = push(self.project, consensus, version=version, keep=keep)
        gone = f" Removed: those of {', '.join(found.removed)}." if found.removed else ""
        say(f"{found.predictions:,} predictions of {found.version} are on the tasks.{gone}")
        return found

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
    url: UrlOption, project: ProjectOption, out: OutOption, whole: WholeOption = False, as_json: JsonOption = False
) -> None:
    """Pull annotations into a folder that every command reads; the second time only what changed.

    The token is read from the environment variable LABEL_STUDIO_API_KEY.

    Example:

    `crowdwise label-studio pull --url http://localhost:8080 --project 7 --out reviews && crowdwise report reviews`
    """
    found = PulledProject.of(url, project, out).pull(whole)
    if as_json:
        emit(json.dumps(asdict(found)))
    elif found.known_annotations:
        say(f"Try: crowdwise report {out}")


@label_studio.command("push")
def push(
    url: UrlOption, project: ProjectOption, out: OutOption, question: QuestionOption = None,
    method: MethodOption = None, set_: SetOption = None, gold: GoldOption = False, version: VersionOption = None,
    keep: KeepOption = False, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Pull, fit, and put the consensus on the tasks as predictions, with score and model version.

    Example: `crowdwise label-studio push --url http://localhost:8080 --project 7 --out reviews`
    """
    work = PulledProject.of(url, project, out)
    work.project.control(question)  # before anything is done
    work.pull()
    found = work.push(work.fit(question, method, set_, gold), version, keep)
    if as_json:
        emit(json.dumps(asdict(found)))


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
    url: UrlOption, project: ProjectOption, out: OutOption, n: NOption = 20, most: MostOption = None,
    show: ShowOption = False, question: QuestionOption = None, method: MethodOption = None, set_: SetOption = None,
    gold: GoldOption = False, table: TableOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Pull, fit, and say which tasks to label next, the most uncertain first; --set-tab selects them in Label Studio.

    Example: `crowdwise label-studio next --url http://localhost:8080 --project 7 --out reviews -n 50 --set-tab`
    """
    check_outputs(table)
    work = PulledProject.of(url, project, out)
    work.project.control(question)
    work.pull()
    found = [asdict(task) for task in work.say_next(work.fit(question, method, set_, gold), n, most, show)]
    frame = pl.DataFrame(found)
    if table is not None:
        write_table(frame, table)
    if as_json:
        emit(json.dumps({"tasks": found}))
    elif not found:
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
    url: UrlOption, project: ProjectOption, out: OutOption, every: EveryOption = 60.0, listen: ListenOption = None,
    callback: CallbackOption = None, n: NOption = 20, most: MostOption = None, show: ShowOption = False,
    question: QuestionOption = None, method: MethodOption = None, set_: SetOption = None, gold: GoldOption = False,
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
