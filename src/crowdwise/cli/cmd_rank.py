"""``crowdwise rank``: from a file of comparisons to a leaderboard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from crowdwise.answers.comparisons_leaderboard import Scale, draw_heat_map
from crowdwise.cli import options as opt
from crowdwise.cli import show_aggregate
from crowdwise.cli.options import option
from crowdwise.cli.outputs import check_apart, check_outputs, emit, piped, say, write_results, write_table
from crowdwise.data.comparisons import Comparisons, OnSelf
from crowdwise.data.folders import check_target
from crowdwise.data.heavy import pl
from crowdwise.errors import InputError, ParameterError, ReadError, listing, suggestion

if TYPE_CHECKING:
    from crowdwise.reading import Opened

PathArgument = Annotated[
    Path,
    typer.Argument(
        help="A file of comparisons: two items and the better one on each line (or chosen and rejected). Of rankings: "
        "item and rank. Or of scores: model, prompt, judge, and a score or pass and fail. - is standard input.",
        show_default=False,
        callback=piped,
    ),
]
MethodOption = Annotated[
    str | None,
    option(
        "--method",
        "-m",
        help="judge-bt (default), bradley-terry, position-bt, crowd-bt, mixture-bt; for rankings plackett-luce.",
    ),
]
LeftOption = Annotated[str | None, option("--left", help="The column of one item (left, item_a, model_a...).")]
RightOption = Annotated[str | None, option("--right", help="The column of the other (right, item_b...).")]
OutcomeOption = Annotated[str | None, option("--outcome", help="The column of the better one (winner...).")]
QuestionOption = Annotated[
    str | None, option("--question", help="The column of what they were compared on (prompt...).")
]
SelfOption = Annotated[
    OnSelf, typer.Option("--on-self", help="Rows that compare an item with itself: stop, or leave them out.")
]
OutOption = Annotated[
    Path | None, option("--out", "-o", help="Write the leaderboard here: .csv, .xlsx, .jsonl or .parquet.")
]


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
    option("--win-rates", help="Write how often each item won against each other: .csv, .xlsx, .jsonl, .parquet."),
]
JudgesOption = Annotated[
    str | None,
    option("--judges", help="Compare judges with people: their names, comma-separated, or auto (by their names)."),
]
PeopleOption = Annotated[str | None, option("--people", help="Who is a person, comma-separated: all others judge.")]
JudgeColumnOption = Annotated[
    str | None, option("--judge-column", help="The column that says whether a person (human, expert...) answered.")
]
OwnOption = Annotated[
    list[str] | None, option("--own", help="What a judge made itself, for self-preference: judge=item,item.")
]
ControlOption = Annotated[
    str | None,
    option("--control", help="Covariates of the two answers to allow for: length for length_a and length_b, style..."),
]
ControlByOption = Annotated[bool, typer.Option("--control-by-judge", help="Effects of covariates for each annotator.")]
ByOption = Annotated[
    str | None, option("--by", help="A column of categories: a board for each, and a heat map (--plot).")
]
VersusOption = Annotated[
    tuple[str, str] | None,
    option("--versus", help="Two items: their difference, how sure it is, how many verdicts would tell them apart.",
           metavar="A B"),
]  # fmt: skip
AnchorOption = Annotated[
    str | None, option("--anchor", help="An item and its value on the scale of --scale, such as gpt-4=1000.")
]
GoldOption = Annotated[
    Path | None,
    option(
        "--gold", help="Of pass and fail: what people say about some answers, drawn at random (model, prompt, label)."
    ),
]
NextOption = Annotated[int, typer.Option("--next", min=0, help="Propose so many pairs to ask about next.")]


def rank(
    path: PathArgument, method: MethodOption = None, set_: opt.SetOption = None, left: LeftOption = None,
    right: RightOption = None, outcome: OutcomeOption = None, annotator: opt.AnnotatorOption = None,
    question: QuestionOption = None, group: GroupOption = None, outcomes: opt.OutcomesOption = None,
    on_self: SelfOption = "error", on_missing: opt.MissingOption = "error", only: OnlyOption = None,
    without: WithoutOption = None, seed: opt.SeedOption = None, scale: ScaleOption = "score", out: OutOption = None,
    annotators: opt.AnnotatorsOption = None, plot: PlotOption = None, win_rates: WinRatesOption = None,
    judges: JudgesOption = None, people: PeopleOption = None, judge_column: JudgeColumnOption = None,
    own: OwnOption = None, control: ControlOption = None, control_by_judge: ControlByOption = False,
    by: ByOption = None, versus: VersusOption = None, anchor: AnchorOption = None, next_: NextOption = 0,
    gold: GoldOption = None,
    save: opt.SaveOption = None, as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Turn comparisons into a leaderboard: scores and ranks, with intervals.

    Where there is a prompt, question or group column, the intervals allow for judgements on one prompt that hang
    together. Without --out, and with standard output sent to a file or a pipe, the leaderboard goes there as CSV.

    Examples:

    `crowdwise rank battles.csv --out leaderboard.csv --scale elo --plot leaderboard.svg`

    `crowdwise rank verdicts.csv --outcomes 1=left,2=right,0=tie --on-self drop`

    `crowdwise rank judgments.jsonl --method position-bt --left model_a --right model_b --outcome verdict --json`

    `crowdwise rank judgments.csv --group prompt_id --without gpt-4 --people ann,bob`

    `crowdwise rank judgments.csv --control length,style --by category --versus gpt-4 claude`

    `crowdwise rank judgments.csv --scale elo --anchor gpt-4=1000`

    `crowdwise rank scores.csv --versus gpt-4 claude --plot board.svg`
    """
    check_outputs(out, annotators, win_rates)
    check_outputs(plot, endings=(".svg", ".png"))
    check_apart([path], [out, annotators, plot, win_rates])
    check_target(save, "consensus")
    if group is not None and question not in (None, group):
        raise ParameterError(f"--group {group} and --question {question} name one thing: give one of them.")
    given = {"left": left, "right": right, "outcome": outcome, "question": question or group, "outcomes": outcomes}
    given["on_self"] = None if on_self == "error" else on_self
    keep = [*(opt.words_in(control) or []), *([by] if by else []), *([judge_column] if judge_column else [])]
    given["keep"] = ",".join(keep) or None
    reading = columns_named(given, annotator, on_missing=on_missing)
    params = opt.assignments(set_, seed)
    params |= {"control": control} if control else {}
    params |= {"control_by_judge": True} if control_by_judge else {}
    opened = open_answers(path, method, reading)
    if opened is None:
        wrong = {"--control": control, "--judges": judges, "--people": people, "--next": next_ or None, "--own": own,
                 "--scale": None if scale == "score" else scale, "--win-rates": win_rates, "--set": set_,
                 "--only": only, "--without": without}  # fmt: skip
        if unfit := [flag for flag, value in wrong.items() if value is not None]:
            raise ParameterError(f"{unfit[0]} is for comparisons, and this file has scores.")
        how = {"prompt": question or group, "judge": annotator, "gold": gold, "random_state": seed or 0}
        rank_scores(path, how, by, versus, anchor, out, annotators, plot, save, as_json)
        return
    if gold is not None:
        raise ParameterError("--gold is for pass and fail; comparisons have no known truth.")
    whole = opened.answers.table
    found = opt.fitted(opened, params, select=lambda table: of_annotators(table, only, without))
    table = found.table
    ranking = found.result
    about_judges = any(v is not None for v in (judges, people, judge_column))
    if (win_rates is not None or about_judges or by is not None) and not isinstance(whole, Comparisons):
        raise ParameterError("--win-rates, --judges, --people and --by are about comparisons, and these are rankings.")
    parts = None if by is None else boards(table, by, found.method, params)
    fixed, board, paths = write_board(ranking, parts, scale, anchor, by, out, annotators, plot, save, as_json)
    if win_rates is not None:
        write_table(table.win_rates("polars"), win_rates)
        paths.append(win_rates)
    compared = judged(whole, judges, people, judge_column, own) if about_judges else None
    facts = about_two(ranking, versus)
    if next_:
        facts["next"] = rows_of(ranking.next_pairs(next_, kind="polars"))
    if ranking.effects is not None:
        facts["effects"] = rows_of(ranking.to_frame("effects", kind="polars"))
    if as_json:
        more = {"components": int(ranking.components.max()) + 1, "tie": ranking.tie, "groups": ranking.n_groups}
        more |= {"leaderboard": rows_of(board)} | ({} if compared is None else {"judges": rows_of(compared)})
        more |= {name: value for name, value in facts.items() if name != "effects" or value}
        more |= {"caveat": ranking.caveat} if ranking.caveat else {}
        emit(json.dumps(show_aggregate.facts(found) | more))
    else:
        show_aggregate.show_fitted(found, paths, scale=scale, judges=compared, anchor=fixed)
        show_aggregate.show_more(facts, parts)


def rank_scores(
    path: Path, how: dict[str, Any], by: str | None, versus: tuple[str, str] | None, anchor: str | None,
    out: Path | None, annotators: Path | None, plot: Path | None, save: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """A leaderboard from scores, or from pass and fail."""
    from crowdwise.api import score_board
    from crowdwise.data.files import TableFile

    if how["gold"] is not None:
        rows = TableFile.of(how["gold"]).read()[0]
        if rows.width < 3:
            raise InputError(f"{how['gold']} has {rows.width} columns: expected model, prompt and label.")
        how["gold"] = {(a, b): str(v).strip().lower() for a, b, v in rows.select(rows.columns[:3]).rows()}
    frame = TableFile.of(path).read()[0]
    ranking = score_board(frame, **how)
    parts = None
    if by is not None:
        if by not in frame.columns:
            raise InputError(f"There is no column {by!r}: there are {listing(frame.columns, 12)}.")
        of = frame[by].cast(pl.String)
        parts = stacked(
            {name: score_board(frame.filter(of == name), **how) for name in of.drop_nulls().unique().sort().to_list()}
        )
    fixed, board, paths = write_board(ranking, parts, "score", anchor, by, out, annotators, plot, save, as_json)
    facts = about_two(ranking, versus)
    if as_json:
        about = {"unit": ranking.unit, "groups": ranking.n_groups, "notes": ranking.notes, "answers": ranking.n_answers}
        emit(json.dumps(about | {"leaderboard": rows_of(board)} | facts))
        return
    show_aggregate.show_board(ranking, paths, fixed)
    show_aggregate.show_more(facts, parts)


def columns_named(columns: dict[str, Any], annotator: str | None, **more: Any) -> opt.Reading:
    """How a file is read whose columns are named, those of them that are."""
    named = [f"{name}={value}" for name, value in columns.items() if value is not None]
    return opt.Reading(annotator=annotator, column=named, **more)


def open_answers(path: Path, method: str | None, reading: opt.Reading) -> Opened | None:
    """A file of comparisons; of rankings where the method is for these, or it has no columns of comparisons; nothing
    where it has columns of scores instead."""
    from crowdwise.answers.scores_board import has_scores
    from crowdwise.data.files import TableFile

    asked = "rankings" if method == "plackett-luce" else "comparisons"
    opened = opt.opened(path, replace(reading, answers=asked), method)
    if method is None and not opened.has_columns:
        with suppress(ReadError):
            if has_scores(TableFile.of(path).read()[0].columns):
                return None
    if method is not None or reading.column or opened.has_columns:
        return opened
    rankings = opened.as_type("rankings")
    return rankings if rankings.has_columns else opened


def of_annotators(table: Any, only: str | None, without: str | None) -> Any:
    """The answers of some annotators; items without answers are left out."""
    if only is None and without is None:
        return table
    kept = table if only is None else table.only(named(table.annotators, only, "--only"))
    if without is not None:
        names = named(table.annotators, without, "--without")
        kept = kept.without([name for name in names if name in set(kept.annotators.tolist())])
    if kept.n_answers == 0:
        raise InputError("No answers are left: --only and --without leave out all annotators.")
    return of_compared(kept)


def of_compared(table: Any) -> Any:
    """Without the items that are not compared, or ranked, any more."""
    asked = np.unique(np.concatenate([table.left, table.right]) if isinstance(table, Comparisons) else table.item)
    return table[asked] if len(asked) < table.n_items else table


def named(known: Any, texts: str | Sequence[str], flag: str, noun: str = "annotator") -> list[Any]:
    """Names by their text: a list, or with commas."""
    names = {str(name): name for name in known.tolist()}
    texts = opt.words_in(texts) or [] if isinstance(texts, str) else texts
    for text in texts:
        if text not in names:
            near = suggestion(text, list(names))
            raise InputError(f"{flag} {text}: there is no such {noun}, there are {listing(names)}.{near}")
    return [names[text] for text in texts]


def judged(table: Any, judges: str | None, people: str | None, column: str | None, own: list[str] | None) -> Any:
    """The table of judges."""
    from crowdwise.answers.comparisons_judges import judge_table, who_judges

    auto = judges is None or judges.strip().lower() == "auto"
    names = None if auto else named(table.annotators, judges or "", "--judges")
    persons = None if people is None else named(table.annotators, people, "--people")
    if names is not None or persons is not None or column is not None:  # a guess has a note of its own
        is_judge, is_person = who_judges(table, names, persons, column)
        who = [f"{words}: {listing(table.annotators[some], 8)}" if some.any() else f"{words}: none"
               for words, some in (("Judges", is_judge), ("people", is_person))]  # fmt: skip
        say(f"{'; '.join(who)}.")
    return judge_table(table, names, people=persons, column=column, own=own_items(table, own), kind="polars")


def own_items(table: Any, own: list[str] | None) -> dict[Any, list[Any]] | None:
    """What each judge made itself, from ``judge=item,item``."""
    found = {}
    for text in own or ():
        judge, equals, names = text.partition("=")
        if not equals:
            raise ParameterError(f"--own {text}: expected judge=item,item.")
        found[named(table.annotators, judge, "--own")[0]] = named(table.items, names, "--own", "item")
    return found or None


def anchored(ranking: Any, anchor: str | None) -> dict[Any, float] | None:
    """An item and its value, from ``item=1000``."""
    if anchor is None:
        return None
    name, equals, value = anchor.rpartition("=")
    try:
        if equals:
            return {named(ranking.items, [name], "--anchor", "item")[0]: float(value)}
        raise ValueError
    except ValueError:
        raise ParameterError(f"--anchor {anchor}: expected an item and a number, such as gpt-4=1000.") from None


def write_board(
    ranking: Any, parts: Any, scale: Scale, anchor: str | None, by: str | None, out: Path | None,
    annotators: Path | None, plot: Path | None, save: Path | None, as_json: bool,
) -> tuple[dict[Any, float] | None, Any, list[Path]]:  # fmt: skip
    """Write the leaderboard on a scale, with an item at its fixed value, and boards of categories; what was fixed, the
    table, and what was written."""
    from crowdwise.data.figures import Figure

    fixed = anchored(ranking, anchor)
    board = ranking.to_frame("leaderboard", kind="polars")
    if scale != "score" or fixed:
        names = {"score_low": "low", "score_high": "high"}
        moved = ranking.on_scale(scale, anchor=fixed, kind="polars")
        ends = [f"{scale}{end}" for end in ("", "_low", "_high")]
        board = board.with_columns(moved[name].alias(names.get(name, name)) for name in ends)
    if parts is not None:
        board = with_category([*board.to_dicts(), *parts.to_dicts()])
    paths = write_results(board, ranking, out, annotators, save, as_json)
    if plot is not None:
        heat = parts is not None and Figure(draw_heat_map(parts.to_dicts(), by or "", ranking.unit))
        (heat or ranking.plot(scale=scale)).save(plot)
        paths.append(plot)
    return fixed, board, paths


def about_two(ranking: Any, versus: tuple[str, str] | None) -> dict[str, Any]:
    """How two items differ; nothing where none are named."""
    if versus is None:
        return {}
    a, b = named(ranking.items, versus, "--versus", "item")
    return {"versus": {"left": str(a), "right": str(b)} | ranking.versus(a, b)}


def boards(table: Any, column: str, method: str, params: dict[str, Any]) -> Any:
    """A leaderboard for each category, one below the other."""
    from crowdwise import api

    of = np.array([str(v) for v in table.kept(column)])
    return stacked({
        name: api.fit(of_compared(table.select(of == name)), method, params=params).result
        for name in sorted(set(of.tolist()))
    })  # fmt: skip


def stacked(parts: dict[str, Any]) -> Any:
    """Leaderboards by category as one table."""
    return with_category([row | {"category": name} for name, ranking in parts.items()
                          for row in ranking.to_frame("leaderboard", kind="polars").to_dicts()])  # fmt: skip


def with_category(rows: list[dict[str, Any]]) -> Any:
    """Rows of boards as a table; those of all together are the category ``all``."""
    return pl.DataFrame([{"category": "all"} | row for row in rows], infer_schema_length=None)


def rows_of(frame: Any) -> list[dict[str, Any]]:
    """The rows of a table as JSON holds them."""
    return [{name: None if value != value else value for name, value in row.items()} for row in frame.to_dicts()]
