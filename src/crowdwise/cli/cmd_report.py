"""The commands ``report`` and ``diagnose``: read, fit, judge, show."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli import answer_types
from crowdwise.cli.answer_types import AnswersOption, ColumnOption
from crowdwise.cli.options import (
    AS_USUAL,
    JsonOption,
    MethodOption,
    PathArgument,
    Reading,
    SeedOption,
    SetOption,
    assignments,
    check_apart,
    check_outputs,
    emit,
    load,
    reads,
    say,
)
from crowdwise.data.folders import write_text
from crowdwise.errors import ParameterError

if TYPE_CHECKING:
    from crowdwise.core.consensus import Consensus
    from crowdwise.data.dataset import Dataset

ClassMethodOption = Annotated[str, typer.Option("--method", "-m", help="The method; `crowdwise methods` lists them.")]
TruthOption = Annotated[
    Path | None,
    typer.Option(
        "--truth",
        help="True classes to measure against (item and label columns). Used for evaluation only.",
        show_default=False,
    ),
]
JudgingGoldOption = Annotated[
    Path | None,
    typer.Option(
        "--gold",
        help="True classes that the method, and the judgement of annotators, may use.",
        show_default=False,
    ),
]
LevelOption = Annotated[
    float, typer.Option("--level", help="The error rate of each detector: how rarely the innocent are named.")
]


@reads
def report(
    path: PathArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The page to write: .html; or .json. [default: report.html]", show_default=False
        ),
    ] = None,
    answers: AnswersOption = None,
    method: MethodOption = None,
    truth: TruthOption = None,
    gold: JudgingGoldOption = None,
    title: Annotated[str | None, typer.Option("--title", help="What the report is about.", show_default=False)] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute",
            help="A column of items.csv whose groups are compared; repeat for more. [default: all that group]",
            show_default=False,
        ),
    ] = None,
    level: LevelOption = 0.05,
    set_: SetOption = None,
    reading: Reading = AS_USUAL,
    column: ColumnOption = None,
    seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write one page that shows whom to believe, what to look at, and how sure it all is.

    The page is a single HTML file that loads nothing. A dataset folder may hold more than votes: texts.csv or items.csv
    (texts and attributes of items), a folder images (pictures named after items), annotators.csv (demographics).
    With --json what the page shows is printed instead; with --out as well, both are done.

    Answers of other kinds (numbers, pairs, label sets...) are told by their columns; --answers says which they are.

    Examples:

    `crowdwise report labels.csv --out report.html`

    `crowdwise report folder --method dawid-skene --truth truth.csv --json > report.json`
    """
    from crowdwise.cli.show_report import stages
    from crowdwise.report.build import build_report, choose_attributes
    from crowdwise.report.inspection import STEPS
    from crowdwise.report.page import check_extra, page

    target = out if out is not None or as_json else Path("report.html")
    check_outputs(target, endings=(".html", ".json"))
    check_apart([path, truth, gold], [target])
    if target is not None and target.suffix.lower() == ".html":
        check_extra()
    kind = answer_types.kind_of(path, answers, method)
    if kind == "votes":
        answer_types.refuse_columns(column)
        data = load(path, reading)
        data, consensus, known = fitted(data, method or registry.DEFAULT, assignments(set_), seed, truth, gold)
        attributes = choose_attributes(data.attributes, attribute)
        with stages(len(STEPS) + 1) as progress:
            facts = build_report(
                data,
                consensus,
                gold=known,
                title=title,
                attributes=attributes,
                level=level,
                progress=progress,
                all_items=True,
            )
    else:
        if attribute:
            raise ParameterError(f"--attribute does not apply to {kind}: leave it out.")
        params = assignments(set_) | ({} if seed is None else {"random_state": seed})
        found = answer_types.fitted(path, kind, method, params, reading.given(), column, truth, gold)
        facts = answer_types.reported(found, title or path.name, level)
    plain = {name: value for name, value in facts.items() if name not in ("item_table", "annotator_table")}
    if target is not None:
        html = target.suffix.lower() == ".html"
        write_text(page(facts) if html else json.dumps(plain, ensure_ascii=False) + "\n", target)
        say(f"{facts['summary']['headline']}")
        say(f"written: {target}")
    if as_json:
        emit(json.dumps(plain, ensure_ascii=False))


@reads
def diagnose(
    path: PathArgument,
    method: ClassMethodOption = registry.DEFAULT,
    truth: TruthOption = None,
    gold: JudgingGoldOption = None,
    level: LevelOption = 0.05,
    set_: SetOption = None,
    reading: Reading = AS_USUAL,
    seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say in sentences what is wrong with some votes: the report's short form.

    Spammers, lazy constant labellers, adversaries, copiers and colluders, drift, bias, classes that are hard to tell
    apart, and the items to review, each with the figures behind it and what to do.

    Example: `crowdwise diagnose labels.csv`
    """
    from crowdwise.cli import show
    from crowdwise.cli.show_report import diagnosed, show_diagnosis, stages
    from crowdwise.report.findings import diagnose as find
    from crowdwise.report.inspection import STEPS

    answer_types.check_classes(path, "diagnose", reading)
    data = load(path, reading)
    data, consensus, known = fitted(data, method, assignments(set_), seed, truth, gold)
    with stages(len(STEPS)) as progress:
        found = find(data.votes, consensus, gold=known, level=level, progress=progress)
    measured = show.measure(consensus, data.votes.truth, known)
    if as_json:
        emit(json.dumps(diagnosed(found, measured), ensure_ascii=False))
    else:
        show_diagnosis(found, measured)


def fitted(
    data: Dataset, method: str, params: dict[str, Any], seed: int | None, truth: Path | None, gold: Path | None
) -> tuple[Dataset, Consensus, Any]:
    """The data with the truth that was named, the consensus, and the codes of the truth it was told."""
    from crowdwise.cli import show
    from crowdwise.data.votes import read_truth

    if seed is not None:
        params["random_state"] = seed
    model = registry.create(method, **params)
    votes = data.votes if truth is None else data.votes.with_truth(read_truth(truth))
    known = None if gold is None else votes.encode_truth(read_truth(gold))
    with show.progress(method) as callback:
        consensus = model.fit(votes, known, callback=callback).consensus_
    return replace(data, votes=votes), consensus, known


def write_page(data: Dataset, consensus: Consensus, known: Any, path: Path) -> None:
    """The page of ``aggregate --report``, whole or not at all."""
    from crowdwise.cli.show_report import stages
    from crowdwise.report.build import build_report
    from crowdwise.report.inspection import STEPS
    from crowdwise.report.page import page

    with stages(len(STEPS) + 1) as progress:
        facts = build_report(data, consensus, gold=known, progress=progress, all_items=True)
    write_text(page(facts), path)
