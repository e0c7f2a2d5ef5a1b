"""``crowdwise rank``: from a file of comparisons to a leaderboard."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from crowdwise.answers.comparisons_leaderboard import Scale
from crowdwise.cli import options as opt
from crowdwise.cli.options import option
from crowdwise.cli.outputs import check_apart, check_outputs, emit, write_results, write_table
from crowdwise.cli.piped import piped
from crowdwise.data.comparisons import Comparisons, OnSelf
from crowdwise.data.folders import check_target
from crowdwise.errors import InputError, ParameterError, listing, suggestion

if TYPE_CHECKING:
    from crowdwise.reading import Opened

PathArgument = Annotated[
    Path,
    typer.Argument(
        help="A file of comparisons: two items and the better one on each line (or chosen and rejected). Or of "
        "rankings: item and rank. - is standard input.",
        show_default=False,
        callback=piped,
    ),
]
MethodOption = Annotated[
    str | None,
    option(
        "--method",
        "-m",
        help="crowd-bt (default), bradley-terry (default for one annotator), position-bt, mixture-bt; for "
        "rankings plackett-luce.",
    ),
]
LeftOption = Annotated[str | None, option("--left", help="The column of one item (left, item_a, model_a...).")]
RightOption = Annotated[str | None, option("--right", help="The column of the other (right, item_b...).")]
OutcomeOption = Annotated[str | None, option("--outcome", help="The column of the better one (winner...).")]
QuestionOption = Annotated[
    str | None, option("--question", help="The column of what they were compared on (prompt...).")
]
OutcomesOption = Annotated[
    str | None, option("--outcomes", help="What the words for outcomes mean, such as 1=left,2=right,0=tie.")
]
SelfOption = Annotated[
    OnSelf, typer.Option("--on-self", help="Rows that compare an item with itself: stop, or leave them out.")
]
OutOption = Annotated[Path | None, option("--out", "-o", help="Write the leaderboard here: .csv, .jsonl or .parquet.")]


GroupOption = Annotated[
    str | None,
    option(
        "--group", help="The column whose rows hang together (prompt...): errors allow for it. The same as --question."
    ),
]
OnlyOption = Annotated[str | None, option("--only", help="Only these annotators, comma-separated.")]
WithoutOption = Annotated[str | None, option("--without", help="All but these annotators, comma-separated.")]
ScaleOption = Annotated[
    Scale,
    typer.Option("--scale", help="The scale of scores: log odds, Elo, or the probability of beating the mean."),
]
PlotOption = Annotated[Path | None, option("--plot", help="Draw the leaderboard with intervals here: .svg or .png.")]
WinRatesOption = Annotated[
    Path | None,
    option("--win-rates", help="Write how often each item won against each other: .csv, .jsonl, .parquet."),
]
JudgesOption = Annotated[
    str | None,
    option(
        "--judges",
        help="Compare judges with people, whoever is ranked by: names, comma-separated, or auto (language models).",
    ),
]


def rank(
    path: PathArgument, method: MethodOption = None, set_: opt.SetOption = None, left: LeftOption = None,
    right: RightOption = None, outcome: OutcomeOption = None, annotator: opt.AnnotatorOption = None,
    question: QuestionOption = None, group: GroupOption = None, outcomes: OutcomesOption = None,
    on_self: SelfOption = "error", on_missing: opt.MissingOption = "error", only: OnlyOption = None,
    without: WithoutOption = None, seed: opt.SeedOption = None, scale: ScaleOption = "score", out: OutOption = None,
    annotators: opt.AnnotatorsOption = None, plot: PlotOption = None, win_rates: WinRatesOption = None,
    judges: JudgesOption = None, save: opt.SaveOption = None, as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Turn comparisons into a leaderboard: scores and ranks, with intervals.

    Where there is a prompt, question or group column, the intervals allow for judgements on one prompt that hang
    together. Without --out, and with standard output sent to a file or a pipe, the leaderboard goes there as CSV.

    Examples:

    `crowdwise rank battles.csv --out leaderboard.csv --scale elo --plot leaderboard.svg`

    `crowdwise rank verdicts.csv --outcomes 1=left,2=right,0=tie --on-self drop`

    `crowdwise rank judgments.jsonl --method position-bt --left model_a --right model_b --outcome verdict --json`

    `crowdwise rank judgments.csv --group prompt_id --without gpt-4 --judges auto`
    """
    from crowdwise.cli import show_aggregate

    check_outputs(out, annotators, win_rates)
    check_outputs(plot, endings=(".svg", ".png"))
    check_apart([path], [out, annotators, plot, win_rates])
    check_target(save, "consensus")
    if group is not None and question not in (None, group):
        raise ParameterError(f"--group {group} and --question {question} name one thing: give one of them.")
    given = {"left": left, "right": right, "outcome": outcome, "question": question or group, "outcomes": outcomes}
    given["on_self"] = None if on_self == "error" else on_self
    named = [f"{name}={value}" for name, value in given.items() if value is not None]
    reading = opt.Reading(annotator=annotator, column=named, on_missing=on_missing)
    params = opt.assignments(set_, seed)
    opened = open_answers(path, method, reading, bool(named))
    whole = opened.answers.table
    found = opt.fitted(opened, params, select=lambda table: of_annotators(table, only, without))
    table = found.table
    ranking = found.result
    if (win_rates is not None or judges is not None) and not isinstance(whole, Comparisons):
        raise ParameterError("--win-rates and --judges are about comparisons, and these are rankings.")
    board = ranking.to_frame("leaderboard", kind="polars")
    if scale != "score":
        more_columns = ranking.on_scale(scale, kind="polars").select(scale, f"{scale}_low", f"{scale}_high")
        board = board.with_columns(more_columns)
    paths = write_results(board, ranking, out, annotators, save, as_json)
    if win_rates is not None:
        write_table(table.win_rates("polars"), win_rates)
        paths.append(win_rates)
    if plot is not None:
        ranking.plot(plot, scale=scale)
        paths.append(plot)
    compared = None if judges is None else judged(whole, judges)
    if as_json:
        more = {"components": int(ranking.components.max()) + 1, "tie": ranking.tie, "groups": ranking.n_groups}
        more |= {"leaderboard": rows_of(board)} | ({} if compared is None else {"judges": rows_of(compared)})
        emit(json.dumps(show_aggregate.facts(found) | more))
    else:
        show_aggregate.show_fitted(found, paths, scale=scale, judges=compared)


def open_answers(path: Path, method: str | None, reading: opt.Reading, named: bool) -> Opened:
    """A file of comparisons; of rankings where the method is for these, or it has no columns of comparisons."""
    asked = "rankings" if method == "plackett-luce" else "comparisons"
    opened = opt.opened(path, replace(reading, answers=asked), method)
    if method is not None or named or opened.has_columns:
        return opened
    rankings = opened.as_type("rankings")
    return rankings if rankings.has_columns else opened


def of_annotators(table: Any, only: str | None, without: str | None) -> Any:
    """The answers of some annotators; items that nobody is left to compare are left out."""
    if only is None and without is None:
        return table
    kept = table if only is None else table.only(named_annotators(table, only, "--only"))
    if without is not None:
        names = named_annotators(table, without, "--without")
        kept = kept.without([name for name in names if name in set(kept.annotators.tolist())])
    if kept.n_answers == 0:
        raise InputError("No answers are left: --only and --without leave out all annotators.")
    asked = np.unique(np.concatenate([kept.left, kept.right]) if isinstance(kept, Comparisons) else kept.item)
    return kept[asked] if len(asked) < kept.n_items else kept


def named_annotators(table: Any, text: str, flag: str) -> list[Any]:
    """Annotators by the text of their names."""
    known = {str(name): name for name in table.annotators.tolist()}
    names = opt.words_in(text) or []
    for name in names:
        if name not in known:
            near = suggestion(name, list(known))
            raise InputError(f"{flag} {name}: there is no such annotator, there are {listing(known)}.{near}")
    return [known[name] for name in names]


def judged(table: Any, judges: str) -> Any:
    """The table of judges."""
    from crowdwise.answers.comparisons_judges import judge_table

    names = None if judges.strip().lower() == "auto" else named_annotators(table, judges, "--judges")
    return judge_table(table, names, kind="polars")


def rows_of(frame: Any) -> list[dict[str, Any]]:
    """The rows of a table as JSON holds them."""
    return [{name: None if value != value else value for name, value in row.items()} for row in frame.to_dicts()]
