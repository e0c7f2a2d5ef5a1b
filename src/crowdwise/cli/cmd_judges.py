"""``crowdwise judges``: which judge agrees with people, what each favours, and which small panel is enough."""

from __future__ import annotations

import json
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from crowdwise.answers.comparisons_judges import BIASES, judge_panels
from crowdwise.answers.scores_board import has_scores
from crowdwise.cli import cmd_rank
from crowdwise.cli import options as opt
from crowdwise.cli.options import option
from crowdwise.cli.outputs import check_apart, check_outputs, emit, piped, write_table
from crowdwise.cli.show import console, written
from crowdwise.data.comparisons import Comparisons
from crowdwise.data.files import TableFile
from crowdwise.data.heavy import pl
from crowdwise.data.votes import Votes
from crowdwise.errors import ColumnError, InputError, ParameterError, ReadError

PathArgument = Annotated[
    Path,
    typer.Argument(
        help="A file of comparisons (two items and the better one on each line, or chosen and rejected), or of votes. "
        "- is standard input.",
        show_default=False,
        callback=piped,
    ),
]
CostOption = Annotated[str | None, option("--cost", help="What a verdict of each judge costs: gpt-4=10,mini=1.")]
MostOption = Annotated[int, typer.Option("--panel", min=1, help="The largest panel of judges to look at.")]
OutOption = Annotated[
    Path | None, option("--out", "-o", help="Write the table of judges here: .csv, .xlsx, .jsonl, .parquet.")
]
PanelsOption = Annotated[Path | None, option("--panels", help="Write the table of panels here.")]
HtmlOption = Annotated[Path | None, option("--html", help="Write one page here: .html.")]
MEASURES = {
    "agreement": ("agreement with people", "{:.0%}"), "kappa": ("Cohen's kappa", "{:.2f}"),
    "alpha": ("Krippendorff's alpha", "{:.2f}"),
    "calibration": ("scale of its log odds (1: right, less: too sure)", "{:.2f}"),
    "position": ("for the first answer, log odds", "{:+.2f}"),
    "verbosity": ("for twice the length, log odds", "{:+.2f}"),
    "self_preference": ("for its own answers, log odds", "{:+.2f}"), "drift": ("drift of agreement", "{:+.2f}"),
}  # fmt: skip


def judges(
    path: PathArgument, judges: cmd_rank.JudgesOption = None, people: cmd_rank.PeopleOption = None,
    judge_column: cmd_rank.JudgeColumnOption = None, own: cmd_rank.OwnOption = None, cost: CostOption = None,
    most: MostOption = 3, left: cmd_rank.LeftOption = None, right: cmd_rank.RightOption = None,
    outcome: cmd_rank.OutcomeOption = None, annotator: opt.AnnotatorOption = None,
    group: cmd_rank.GroupOption = None, outcomes: opt.OutcomesOption = None, out: OutOption = None,
    panels: PanelsOption = None, html: HtmlOption = None, as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Compare LLM judges with people: agreement, biases, drift, the best small panel.

    The file has comparisons (two items and the better one), or votes: verdicts such as pass and fail, or classes.

    Examples:

    `crowdwise judges judgments.csv --people ann,bob --out judges.csv --html judges.html`

    `crowdwise judges judgments.csv --judge-column kind --own gpt-4=gpt-4-turbo,gpt-4o --cost gpt-4=10,mini=1`
    """
    check_outputs(out, panels)
    check_outputs(html, endings=(".html",))
    check_apart([path], [out, panels, html])
    given = {"left": left, "right": right, "outcome": outcome, "question": group, "outcomes": outcomes,
             "keep": judge_column}  # fmt: skip
    asked = "comparisons" if left or right or outcome else None
    try:
        table = opt.opened(path, cmd_rank.columns_named(given, annotator, answers=asked)).answers.table
    except ColumnError as error:
        with suppress(ReadError):
            if asked is None and has_scores(TableFile.of(path).read()[0].columns):
                raise _no_scores(path, "scores") from error
        raise
    if not isinstance(table, (Comparisons, Votes)):
        raise _no_scores(path, table.answer_type)
    found = cmd_rank.judged(table, judges, people, judge_column, own)
    who = {str(name): name for name in table.annotators.tolist()}
    chosen = [who[name] for name in found["annotator"].to_list() if name in who]
    others = None if people is None else cmd_rank.named(table.annotators, people, "--people")
    small, why_not = None, ""
    try:
        fewest = min(most, len(chosen))
        small = judge_panels(table, chosen, people=others, cost=prices(cost, table), most=fewest, kind="polars")
    except InputError as error:
        why_not = str(error)
    tests, columns = alternative_tests(table, chosen, others)
    if columns is not None:
        found = found.join(columns, "annotator", "left", maintain_order="left")
    paths = [place for place in (out, panels, html) if place is not None]
    if out is not None:
        write_table(found, out)
    if panels is not None:
        if small is None:
            raise InputError(why_not)
        write_table(small, panels)
    if html is not None:
        from crowdwise.data.folders import write_text

        rest = [str(name) for name in (others if others is not None else who.values()) if name not in chosen]
        write_text(
            page(found.to_dicts(), None if small is None else small.to_dicts(), why_not, tests, str(path), rest), html
        )
    if as_json:
        rows = {"judges": cmd_rank.rows_of(found), "panels": None if small is None else cmd_rank.rows_of(small)}
        emit(json.dumps(rows | {"alternative_test": tests}))
        return
    from crowdwise.cli.show_aggregate import judge_table, panel_lines

    screen = console()
    screen.print(judge_table(found))
    for line in [*tests, *([why_not] if small is None else panel_lines(small))]:
        screen.print(line, soft_wrap=True)
    written(screen, paths)


def _no_scores(path: Path, kind: str) -> InputError:
    return InputError(
        f"crowdwise judges is about comparisons and votes, and {path} holds {kind}. Of scores make a leaderboard: "
        "crowdwise rank."
    )


def prices(cost: str | None, table: Any) -> dict[Any, float]:
    """What each judge costs, from ``gpt-4=10,mini=1``."""
    out = {}
    for text in opt.words_in(cost) or []:
        name, _, value = text.rpartition("=")
        try:
            price = float(value)
        except ValueError:
            raise ParameterError(f"--cost {text}: expected a judge and a number, such as gpt-4=10.") from None
        out[cmd_rank.named(table.annotators, [name], "--cost")[0]] = price
    return out


def alternative_tests(table: Any, judges: list[Any], people: list[Any] | None) -> tuple[list[str], Any]:
    """The alternative annotator test in sentences and as columns of the table, or why there is none."""
    from crowdwise.trust.alternative_test import alternative_test

    try:
        votes = table if isinstance(table, Votes) else table.votes()
        test = alternative_test(votes, judges, people=people)
    except InputError as error:
        return [str(error)], None
    passes = pl.Series(test.passes).set(pl.Series(~test.tested.any(axis=1)), None)
    names = pl.Series("annotator", [str(name) for name in test.candidates], dtype=pl.String)
    return list(test.sentences()), pl.DataFrame({"annotator": names, "winning_rate": test.winning_rate,
                                                 "may_replace_people": passes})  # fmt: skip


def page(rows: list[dict[str, Any]], panels: Any, why_not: str, tests: list[str], name: str, people: list[str]) -> str:
    """One page: a card for each judge, the panels, the test. It loads nothing."""
    from crowdwise.report.page import TEMPLATES

    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    cards = "".join(card(row) for row in rows)
    more = f" and {len(people) - 12} more" if len(people) > 12 else ""
    who = f"People: {escape(', '.join(people[:12]))}{more}." if people else "There are no people among the annotators."
    if panels is None:
        small = f"<p>{escape(why_not)}</p>"
    else:
        lines = "".join(
            f"<tr{' class=best' if row['best'] else ''}><td>{escape(row['panel'])}</td><td>{row['agreement']:.0%} ± "
            f"{1.96 * row['error']:.0%}</td><td>{row['effective']:.1f}</td><td>{row['cost']:g}</td></tr>"
            for row in panels[:20]
        )
        words = ("panel", "has the people's verdict", "worth so many judges", "cost")
        head = "".join(f"<th>{word}</th>" for word in words)
        small = f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
        small += "<p class=quiet>Ties count. Marked: the cheapest panel within one standard error of the best.</p>"
    said = "".join(f"<li>{escape(text)}</li>" for text in tests)
    test = f"<section><h2>May a judge replace people?</h2><ul>{said}</ul>{EPSILON}</section>" if tests else ""
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Judges: {escape(name)}</title><style>{style}{STYLE}</style></head><body><div class=frame>"
        f"<header class=top><div><p class=eyebrow>{escape(name)}</p><h1>Judges and people</h1>"
        f"<p class=quiet>{who}</p></div></header>"
        f"<div class=judges>{cards}</div>{test}<section><h2>Panels</h2>{small}</section></div></body></html>\n"
    )


EPSILON = "<p class=quiet>Epsilon: by what share of items a judge may be worse than a person, who costs more.</p>"
STYLE = """
.judges { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
.judge { background: var(--surface); border: 1px solid var(--line); border-radius: .6rem; padding: 1rem; }
.judge dl { display: grid; grid-template-columns: 1fr auto; gap: .2rem 1rem; margin: .5rem 0 0; }
.judge dt { color: var(--muted); } .judge dd { margin: 0; text-align: right; } .sure { font-weight: 680; }
.judge h3 { margin: 0; }
@media (max-width: 30rem) {
  .judge dl { grid-template-columns: 1fr; } .judge dd { text-align: left; margin-bottom: .4rem; }
}
section { margin-top: 2rem; } .wide { overflow-x: auto; } .best td { font-weight: 680; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .3rem .9rem .3rem 0; }
"""


def card(row: dict[str, Any]) -> str:
    """A judge, or all people."""
    facts = [("verdicts", f"{row.get('comparisons', row.get('votes')):,}")]
    if row.get("may_replace_people") is not None:
        facts.append(("may replace people", "yes" if row["may_replace_people"] else "no"))
    facts += [(words, f"{row[key]:.0%}") for key, words in (("tie_rate", "ties"), ("first_rate", "chooses the first"))
              if key in row and not np.isnan(row[key])]  # fmt: skip
    if not np.isnan(row.get("flip_rate", np.nan)):
        facts.append(("same answer in both orders", f"{1.0 - row['flip_rate']:.0%}"))
    body = "".join(f"<dt>{words}</dt><dd>{value}</dd>" for words, value in facts)
    for key, (words, form) in MEASURES.items():
        value, low, high = (row.get(f"{key}{end}", np.nan) for end in ("", "_low", "_high"))
        if np.isnan(value):
            continue
        sure = " class=sure" if key in BIASES and (low > 0.0 or high < 0.0) else ""
        words += ", ties left out" if key == "agreement" and "comparisons" in row else ""
        body += f"<dt>{words}</dt><dd{sure}>{form.format(value)} ({form.format(low)} to {form.format(high)})</dd>"
    return f"<article class=judge><h3>{escape(row['annotator'])}</h3><dl>{body}</dl></article>"
