"""The commands ``report`` and ``diagnose``: fit, inspect, show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from crowdwise import registry
from crowdwise.cli import options as opt
from crowdwise.cli.options import option
from crowdwise.cli.outputs import check_apart, check_outputs, emit, say
from crowdwise.data.folders import write_text
from crowdwise.errors import ParameterError

if TYPE_CHECKING:
    from crowdwise.api import Fitted
    from crowdwise.core.consensus_in_parts import ConsensusInParts

OutOption = Annotated[
    Path | None, option("--out", "-o", help="The page to write: .html; or .json. [default: report.html]")
]
TitleOption = Annotated[str | None, option("--title", help="What the report is about.")]
AttributeOption = Annotated[
    list[str] | None,
    option(
        "--attribute",
        help="A column of items.csv whose groups are compared; repeat for more. [default: all that group]",
    ),
]
CandidateOption = Annotated[
    list[str] | None,
    option("--candidate", help="A model that may replace the annotators: its name, or llm:*; repeat for more."),
]
EpsilonOption = Annotated[float, option("--epsilon", show_default=True, help="How much worse it may be.")]


@opt.reads
def report(
    path: opt.PathArgument, out: OutOption = None, method: opt.MethodOption = None, truth: opt.TruthOption = None,
    gold: opt.GoldOption = None, title: TitleOption = None, attribute: AttributeOption = None,
    candidate: CandidateOption = None, epsilon: EpsilonOption = 0.1,
    level: opt.LevelOption = 0.05, set_: opt.SetOption = None, reading: opt.Reading = opt.DEFAULT_READING,
    no_inputs: opt.NoInputsOption = False, max_seconds: opt.MaxSecondsOption = registry.MAX_SECONDS,
    seed: opt.SeedOption = None, names: opt.NamesOption = None, as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Write one page on how reliable annotators and labels are, and what to review.

    The page is a single HTML file that loads nothing. A dataset folder may hold more than votes: texts.csv or items.csv
    (texts and attributes of items), a folder images (pictures named after items), annotators.csv (demographics).
    With --json what the page shows is printed instead; with --out as well, both are done. Features, images and texts
    count for the labels as in `crowdwise aggregate`.

    Other answer types (ratings, comparisons, label sets...) are recognised by their columns; --answers names the type.

    Examples:

    `crowdwise report labels.csv --out report.html`

    `crowdwise report folder --method dawid-skene --truth truth.csv --json > report.json`

    `crowdwise report consensus --out report.html` (what `aggregate --out consensus` wrote, without its votes)
    """
    from crowdwise.data.vote_files import find_consensus
    from crowdwise.report.build import choose_attributes, written_report
    from crowdwise.report.page import check_extra

    target = out if out is not None or as_json else Path("report.html")
    check_outputs(target, endings=(".html", ".json"))
    check_apart([path, truth, gold], [target])
    if target is not None and target.suffix.lower() == ".html":
        check_extra()
    opened = opt.opened(path, reading, method)
    files = (
        find_consensus(opened.file if path.is_file() and opened.file else path)
        if reading == opt.DEFAULT_READING
        else None
    )
    if files is not None:
        unused = {"--method": method, "--truth": truth, "--gold": gold, "--attribute": attribute, "--set": set_}
        useless = [name for name, value in unused.items() if value]
        if useless:
            raise ParameterError(f"{', '.join(useless)}: {path} is a consensus without its votes. Leave it out.")
        _write(written_report(files, title), target, as_json)
        return
    inputs = opt.chosen_inputs(opened, None, None, no_inputs)
    params = opt.assignments(set_, seed)
    fitted = opt.fitted(opened, params, gold=gold, truth=truth, inputs=inputs, max_seconds=max_seconds)
    fitted = opt.with_names(fitted, names)
    data = fitted.answers.dataset
    if attribute and data is None:
        raise ParameterError(f"--attribute does not apply to {fitted.answer_type}: leave it out.")
    attributes = None if data is None else choose_attributes(data.attributes, attribute)
    more = {"candidates": candidate, "epsilon": epsilon} if candidate else {}
    _write(reported(fitted, path, title=title, level=level, attributes=attributes, **more), target, as_json)


def _write(facts: dict[str, Any], target: Path | None, as_json: bool) -> None:
    """The page of a report, and its JSON."""
    from crowdwise.report.page import page

    plain = {name: value for name, value in facts.items() if name not in ("item_table", "annotator_table")}
    if target is not None:
        html = target.suffix.lower() == ".html"
        write_text(page(facts) if html else json.dumps(plain, ensure_ascii=False) + "\n", target)
        say(f"{facts['summary']['headline']}")
        say(f"written: {target}")
    if as_json:
        emit(json.dumps(plain, ensure_ascii=False))


@opt.reads
def diagnose(
    path: opt.PathArgument, method: opt.MethodOption = None, truth: opt.TruthOption = None, gold: opt.GoldOption = None,
    level: opt.LevelOption = 0.05, set_: opt.SetOption = None, reading: opt.Reading = opt.DEFAULT_READING,
    seed: opt.SeedOption = None, names: opt.NamesOption = None, as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Say in sentences what is wrong with some answers: the report's short form.

    Of votes: spammers, lazy constant labellers, adversaries, copiers and colluders, drift, bias, classes that are often
    confused, and the items to review. Of other answers: annotators who are biased, noisy, guessing or reversed, and
    what is in doubt. Each with the figures behind it and what to do.

    Example: `crowdwise diagnose labels.csv`
    """
    from crowdwise.cli import show, show_report
    from crowdwise.report.findings import STEPS
    from crowdwise.report.findings import diagnose as find

    opened = opt.opened(path, reading, method)
    fitted = opt.with_names(opt.fitted(opened, opt.assignments(set_, seed), gold=gold, truth=truth), names)
    with show.steps(len(STEPS)) as progress:
        diagnosis = find(fitted.table, fitted.result, gold=fitted.gold, level=level, progress=progress)
    if as_json:
        emit(json.dumps(show_report.diagnosed(diagnosis, fitted.measured), ensure_ascii=False))
    else:
        show_report.show_diagnosis(diagnosis, fitted.measured)


def reported(fitted: Fitted, path: Path, *, title: str | None = None, **options: Any) -> dict[str, Any]:
    """The dict of a report, with a progress bar."""
    from crowdwise.cli import show
    from crowdwise.data.dataset import named_images, texts_beside
    from crowdwise.file_check import mailed
    from crowdwise.report.findings import STEPS

    mails = mailed(fitted.result.annotators)
    if mails is not None:
        opt.note(mails, "--pseudonymise")
    if fitted.answers.dataset is None and path.is_dir():  # of votes the dataset has them
        options |= {"images": named_images(path / "images", fitted.table.items), "texts": texts_beside(path)}
    title = path.name if title is None and fitted.answers.dataset is None else title
    with show.steps(len(STEPS) + 1) as progress:
        return fitted.report(title=title, progress=progress, all_items=True, **options)


def write_page(fitted: Fitted, path: Path, out: Path) -> None:
    """The page of ``aggregate --report``, whole or not at all."""
    from crowdwise.report.page import page

    write_text(page(reported(fitted, path)), out)


def write_report_of(consensus: ConsensusInParts, title: str, out: Path) -> None:
    """The page of ``aggregate --report`` on what a stream has written."""
    from crowdwise.data.vote_files import ConsensusFiles
    from crowdwise.report.build import written_report
    from crowdwise.report.page import page

    assert consensus.out is not None
    files = ConsensusFiles(consensus.out, consensus.item_table, consensus.annotator_table, consensus.about())
    write_text(page(written_report(files, title)), out)
