"""What ``aggregate``, ``rank``, ``describe`` and ``learn`` show: labels, annotators, leaderboards, shapes of files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdwise.cli.show import (
    bar_cell,
    console,
    ends_cell,
    frame_table,
    histogram_table,
    measures,
    new_table,
    show_tables,
    strong,
    whisker_cell,
    written,
)
from crowdwise.core.crowd_kind import rules_in
from crowdwise.core.dependence import agreeing_items, copied_note
from crowdwise.core.numerics import TIE, Floats, Ints, share_interval
from crowdwise.data.votes import Votes
from crowdwise.trust.annotators import FEW, coverage_table, less_accurate
from crowdwise.trust.wording import counted, joined, named, percent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from crowdwise.answers.comparisons_leaderboard import Scale
    from crowdwise.api import Fitted
    from crowdwise.core.consensus import Consensus, VoteResult
    from crowdwise.core.consensus_in_parts import ConsensusInParts

WIDTH = 36
"""Characters of a drawn interval."""
MARGIN = 0.1
"""How far under the median the accuracy of an annotator to look at is, with its interval."""
ALONE = (
    "How many labels are right cannot be said: no item has votes of two annotators. Second votes on some items, or "
    "gold labels, would show it."
)
BRIEF = {
    "Inputs were used": "Inputs were used.",
    "Inputs were not used": "Inputs were not used: the labels are those of votes alone.",
    "Annotators say one class": "Taken for rules: annotators say one class or nothing.",
    "Nearly everybody answered": "Taken for a panel: nearly everybody answered nearly every item.",
}
"""How a note begins -> what is said of it without ``--verbose``."""


def facts(fitted: Fitted) -> dict[str, Any]:
    """The JSON object of ``--json``: what was fitted to what, and the figures against the truth."""
    result, votes = fitted.result, isinstance(fitted.table, Votes)
    out: dict[str, Any] = {
        "method": result.method, "answer_type": fitted.answer_type, "items": len(result.items),
        "annotators": len(result.annotators), **({"classes": len(result.classes)} if votes else {}),
        "votes" if votes else "answers": result.n_answers, "iterations": result.iterations,
        "converged": result.converged, "objective": result.objective, "seconds": round(result.seconds, 4),
        "notes": result.notes,
    }  # fmt: skip
    return out | figures(fitted.measured)


def figures(measured: dict[str, Any]) -> dict[str, Any]:
    """Figures against the truth with the ends of their intervals (``None`` where there is none), as JSON holds them."""
    out: dict[str, Any] = {}
    for name, e in measured.items():
        low, high = (e.low, e.high) if e.has_interval else (None, None)
        out |= {name: e.value, f"{name}_low": low, f"{name}_high": high}
    return out


def show_written(consensus: ConsensusInParts, paths: list[Any], *, verbose: bool = False) -> None:
    """A summary of a consensus that was written part by part, for people, to standard error."""
    alone = not consensus.dependence.pairs and consensus.dependence.source != "gold"
    _show_labels(consensus, [ALONE] if alone else expected_line(consensus), consensus.measured, verbose)
    written(console(), paths)


def show_fitted(
    fitted: Fitted, paths: list[Any], *, scale: Scale = "score", judges: Any = None, anchor: Any = None,
    verbose: bool = False,
) -> None:  # fmt: skip
    """A summary for people, to standard error. Of leaderboards: on a ``scale``, with a table of ``judges``."""
    result = fitted.result
    if isinstance(fitted.table, Votes):
        screen = _show_labels(result, how_right(result, fitted.table), fitted.measured, verbose, *tied(result))
        if verbose:
            screen.print()
            screen.print(strong("Least certain items"))
            for line in least_certain(result):
                screen.print(f"  {line}")
    else:
        screen = _begun(fitted_line(fitted))
        if verbose:
            screen.print(passes(result))
        _say(screen, *result.notes)
        measures(screen, fitted.measured)
        show_tables(screen, _answer_tables(result, scale, judges, anchor))
    if not paths and sys.stdout.isatty():
        console().print("\nNo file was written: --out consensus.csv writes the result.", soft_wrap=True)
    written(console(), paths)


def _answer_tables(result: Any, scale: Scale, judges: Any, anchor: Any = None) -> list[Table]:
    """The tables of a result of other answers than votes."""
    if "leaderboard" not in result.TABLES:
        parts = (("Items", "items"), ("Annotators", "annotators"))
        return [frame_table(title, result.to_frame(name, kind="polars")) for title, name in parts]
    people = [ranking_annotators(result)] if len(result.annotators) > 1 else []
    return [leaderboard(result, scale, anchor=anchor), *people, *([] if judges is None else [judge_table(judges)])]


def _show_labels(
    result: Consensus | ConsensusInParts, right: list[str], measured: dict[str, Any], verbose: bool, *lines: str
) -> Console:
    """Labels by votes in a few lines; ``verbose``: with tables, and how they were computed."""
    crowd = f"{counted(len(result.annotators), 'annotator')}, {counted(len(result.classes), 'class')}"
    votes = counted(result.n_votes, "vote")
    screen = _begun(strong(counted(result.n_items, "label"), f" from {votes} by {crowd} ({result.method})"))
    _say(screen, *right)
    measures(screen, measured)
    notes = [note for note in result.notes if note != result.dependence.reason]  # how probabilities were corrected
    notes = [next((brief for start, brief in BRIEF.items() if note.startswith(start)), note) for note in notes]
    _say(screen, *notes, *lines)
    if is_judged(result):
        _say(screen, weakest(result.annotators, result.votes_per_annotator, result.accuracy()[0]))
    if verbose:
        screen.print()
        screen.print(strong("How it was computed"))
        _say(screen, passes(result), *result.notes)
        show_tables(screen, consensus_tables(result))
    return screen


def _begun(first: Any) -> Console:
    """A screen with the first line of a summary."""
    screen = console()
    screen.print()
    screen.print(first)
    return screen


def _say(screen: Console, *lines: str) -> None:
    """Lines that can be searched for; those without a word are left out."""
    for line in filter(None, lines):
        screen.print(line, soft_wrap=True)


def passes(result: Any) -> str:
    """How long a fit took."""
    return f"{counted(result.iterations, 'pass')}, {result.seconds:.2f} s"


def how_right(result: Consensus, votes: Votes) -> list[str]:
    """The share of labels that are expected to be right; why it cannot be said, where votes alone do not show it."""
    agreeing, known = agreeing_items(votes), result.gold is not None and bool((result.gold >= 0).any())
    if not agreeing[0] and not known and result.item_prior is None:
        return [ALONE]
    return [] if copied_note(agreeing) else expected_line(result)  # a note says that votes look copied


def expected_line(result: VoteResult) -> list[str]:
    """The share of labels that are expected to be right, where it is known: not if all of them are gold."""
    value, low, high = result.expected_accuracy()
    if not np.isfinite(value):
        return []
    return [f"{percent(value)} of the labels are expected to be right (95% CI {percent(low)} to {percent(high)})"]


def tied(result: Consensus) -> list[str]:
    """How many labels are as probable as another class."""
    q = result.posterior
    count = int(((q >= q.max(axis=1, keepdims=True) - TIE).sum(axis=1) > 1).sum())
    return [f"Ties: {count:,} of {counted(len(q), 'label')}; another class is as probable."] if count else []


def too_few(votes: Ints, accuracy: Floats) -> Any:
    """Which annotators have too few votes to judge them by."""
    low, high = share_interval(np.nan_to_num(accuracy) * votes, votes, np.zeros(len(votes)))
    return high - low > FEW


def weakest(names: Any, votes: Ints, accuracy: Floats) -> str:
    """The annotators clearly less accurate than the median, by votes enough to judge them. It is no verdict."""
    few = too_few(votes, accuracy)
    at = [m for m in less_accurate(accuracy, votes, MARGIN).tolist() if not few[m]]
    if not at:
        return ""
    listed = joined([f"{named('annotator', names[m])} ({percent(accuracy[m])} right)" for m in at], 5)
    middle = percent(float(np.nanmedian(accuracy)))
    return f"Clearly less accurate: {listed}; the median is {middle}. More: --verbose, or crowdwise diagnose."


def fitted_line(fitted: Fitted) -> Any:
    """What was fitted to how much."""
    result, votes = fitted.result, isinstance(fitted.table, Votes)
    sizes = f"{counted(len(result.items), 'item')}, {counted(len(result.annotators), 'annotator')}"
    classes = f"{counted(len(result.classes), 'class')}, " if votes else ""
    return strong(result.method, f": {sizes}, {classes}{counted(result.n_answers, 'vote' if votes else 'answer')}")


def least_certain(consensus: Consensus, limit: int = 5) -> list[str]:
    """The items whose label is the least probable, with their two most probable classes."""
    out = []
    for n in np.argsort(consensus.posterior.max(axis=1), kind="stable")[:limit].tolist():
        q = consensus.posterior[n]
        two = [f"{consensus.classes[k]} {q[k]:.2f}" for k in np.argsort(-q, kind="stable")[:2]]
        out.append(f"{consensus.items[n]}: {', '.join(two)}")
    return out


def is_judged(result: VoteResult) -> bool:
    """Whether the accuracy of annotators is known, or can be computed from the votes."""
    return result.judged is not None or getattr(result, "votes", None) is not None


def consensus_tables(result: Consensus | ConsensusInParts) -> list[Table]:
    """Its labels and its annotators."""
    who = result.annotators, result.votes_per_annotator
    people = [annotator_table(*who, result.accuracy())] if is_judged(result) else []
    return [class_table(result.classes, result.items_per_class), *people]


def class_table(classes: Any, count: Ints, limit: int = 12) -> Table:
    """How many items have each label."""
    table = new_table("class", ">items", "share", title="Labels")
    for k in np.argsort(-count, kind="stable")[:limit].tolist():
        table.add_row(str(classes[k]), f"{count[k]:,}", bar_cell(count[k] / max(count.max(), 1)))
    if len(count) > limit:
        table.add_row(f"... {len(count) - limit} more", "", "")
    return table


def annotator_table(names: Any, votes: Ints, estimates: tuple[Floats, ...], limit: int = 6) -> Table:
    """The best and the worst annotators, by the end of their interval that would have to be wrong. Those with too few
    votes to be judged, as in reports, have a question mark."""
    accuracy, low, high = estimates
    order = np.argsort(-np.nan_to_num(low, nan=-1.0), kind="stable")
    if len(order) > 2 * limit:
        worst = np.argsort(np.nan_to_num(high, nan=2.0), kind="stable")[:limit][::-1]
        order = np.concatenate([order[:limit], [-1], worst])
    scale = ends_cell("0%", "100%", 40)
    table = new_table("annotator", ">votes", ">accuracy", scale, title="Annotators: accuracy, with a 95% interval")
    few = too_few(votes, accuracy)
    room = " " if few[order[order >= 0]].any() else ""
    if room:
        table.caption = f"?: too few votes to judge (by them alone, an interval of more than {100 * FEW:.0f} points)"
        table.caption_justify, table.caption_style = "left", ""
    for m in order.tolist():
        if m < 0:
            table.add_row("...", "", "", "")
        else:
            table.add_row(
                str(names[m]), f"{votes[m]:,}", f"{accuracy[m]:.3f}{'?' if few[m] else room}",
                whisker_cell(low[m], accuracy[m], high[m], 40, blank="·"),
            )  # fmt: skip
    return table


DIGITS: dict[Scale, str] = {"score": "+.2f", "elo": ",.0f", "probability": ".1%"}
"""How a score is written, by its scale."""


def show_board(ranking: Any, paths: list[Any], anchor: Any = None) -> None:
    """A leaderboard from scores: models, and the judges' levels, scales and noise."""
    what = {"points": "scores", "pass rate": "verdicts"}[ranking.unit]
    sizes = f"{len(ranking.items):,} models, {len(ranking.annotators):,} judges, {ranking.n_answers:,} {what}"
    screen = _begun(strong(sizes))
    _say(screen, *ranking.notes)
    tables = [leaderboard(ranking, anchor=anchor)]
    if len(ranking.annotators) > 1:
        tables.append(frame_table("Judges", ranking.to_frame("annotators", kind="polars")))
    show_tables(screen, tables)
    written(screen, paths)


CELL = "{score:+.2f} ({rank}, {rank_low}–{rank_high})"
"""A score in a board of categories."""


def show_more(facts: dict[str, Any], boards: Any) -> None:
    """Effects of covariates, two items against each other, pairs to ask about next, boards of categories."""
    screen = console()
    tables = []
    if "effects" in facts:
        table = new_table("effect", ">log odds", "95% interval", title="Effects of what was controlled for")
        for row in facts["effects"]:
            ends = f"{row['log_odds_low']:+.2f} to {row['log_odds_high']:+.2f}"
            table.add_row(row["effect"], f"{row['log_odds']:+.2f}", ends)
        tables.append(table)
    if boards is not None:
        names = list(dict.fromkeys(boards["category"].to_list()))
        cells = {(row["item"], row["category"]): row for row in boards.to_dicts()}
        items = list(dict.fromkeys(boards.sort("score", descending=True)["item"].to_list()))
        wide = [
            2 + max(map(len, map(str, column)))
            for column in (items, [CELL.format(score=-9, rank=99, rank_low=9, rank_high=99), *names])
        ]
        fit = max(1, (screen.width - wide[0]) // wide[1])  # so many categories beside each other
        for first in range(0, len(names), fit):
            some = names[first : first + fit]
            title = "" if first else "Scores by category (rank, its 95% interval)"
            table = new_table("item", *(f">{name}" for name in some), title=title)
            for item in items:
                found = [cells.get((item, name)) for name in some]
                table.add_row(str(item), *("" if r is None else CELL.format(**r) for r in found))
            tables.append(table)
    if "next" in facts:
        table = new_table("ask about", "and", ">order sure", title="Pairs to ask about next")
        for row in facts["next"]:
            table.add_row(str(row["left"]), str(row["right"]), f"{row['sure']:.0%}")
        tables.append(table)
    show_tables(screen, tables)
    if "versus" in facts:
        v = facts["versus"]
        what, chance = "prompts", ""
        if "probability" in v:
            what, chance = "verdicts on these two", f"found better with a probability of {v['probability']:.0%}, "
        more = f"About {v['more']:,.0f} more {what} would tell them apart." if v["more"] else "They differ."
        screen.print(
            f"\n{v['left']} against {v['right']}: {v['difference']:+.2f} ({v['low']:+.2f} to {v['high']:+.2f}), "
            f"{chance}higher score with {v['sure']:.1%}. {more}",
            soft_wrap=True,
        )


def leaderboard(ranking: Any, scale: Scale = "score", limit: int = 20, anchor: Any = None) -> Table:
    """The best items (all, or the ends of a long list): rank and its interval, score and its interval as a bar."""
    rows = ranking.on_scale(scale, anchor=anchor, kind="dict")
    rows |= {"score": rows[scale], "low": rows[f"{scale}_low"], "high": rows[f"{scale}_high"]}
    N = len(rows["item"])
    shown = list(range(N)) if N <= limit else [*range(limit - 5), -1, *range(N - 4, N)]
    low, high = float(rows["low"].min()), float(rows["high"].max())
    ends = [f"{end:{DIGITS[scale].replace('+', '').replace('.2f', '.1f')}}" for end in (low, high)]
    from crowdwise.answers.comparisons_leaderboard import MEANINGS

    unit = MEANINGS[scale] if ranking.unit == "log odds" else ranking.unit
    title = f"Leaderboard: {unit}, with a 95% interval"
    table = new_table(">rank", "ranks", "item", f">{scale}", ends_cell(ends[0], ends[1], WIDTH), title=title)
    for n in shown:
        if n < 0:
            table.add_row("...", "", "", "", "")
            continue
        table.add_row(
            f"{rows['rank'][n]}", f"{rows['rank_low'][n]}–{rows['rank_high'][n]}", str(rows["item"][n])[:40],
            f"{rows['score'][n]:{DIGITS[scale] if ranking.unit == 'log odds' else '.2f'}}",
            whisker_cell(rows["low"][n], rows["score"][n], rows["high"][n], WIDTH, low, high),
        )  # fmt: skip
    return table


def judge_table(judges: Any) -> Table:
    """Judges beside people: agreement, and what each favours; columns that are empty throughout are left out."""
    title = "Judges: agreement with people but for ties; log odds for the first, the longer, their own (* CI without 0)"
    rows = judges.to_dicts()

    def plain(name: str, form: str) -> list[str]:
        values = [row.get(name) for row in rows]
        return ["" if x is None or x != x else format(x, form) for x in values]

    cells = {">answers": plain("comparisons" if "comparisons" in judges.columns else "votes", ",")}
    cells |= {">agreement": plain("agreement", ".0%"), ">kappa": plain("kappa", ".2f"), ">alpha": plain("alpha", ".2f")}
    cells |= {">first": plain("first_rate", ".0%"), ">flips": plain("flip_rate", ".0%")}
    for head, name in ((">position", "position"), (">length", "verbosity"), (">own", "self_preference")):
        found = [(row.get(name, np.nan), row.get(f"{name}_low", 0.0), row.get(f"{name}_high", 0.0)) for row in rows]
        marked = ["*" if low > 0.0 or high < 0.0 else " " for _, low, high in found]  # its interval excludes 0
        cells[head] = ["" if x != x else f"{x:+.2f}{mark}" for (x, _, _), mark in zip(found, marked, strict=True)]
    cells |= {">calibration": plain("calibration", ".2f")}
    replaces = [row.get("may_replace_people") for row in rows]
    cells["may replace"] = ["" if x is None else "yes" if x else "no" for x in replaces]
    cells = {head: column for head, column in cells.items() if any(column)}
    table = new_table("annotator", *cells, title=title if ">position" in cells else "Judges: agreement with people")
    for n, row in enumerate(rows):
        table.add_row(row["annotator"], *(column[n] for column in cells.values()))
    return table


def panel_lines(panels: Any) -> list[str]:
    """The best small panel, and the best one."""
    rows = panels.to_dicts()
    best = next(row for row in rows if row["best"])
    lines = [
        f"{words}: {row['panel']}, the people's verdict in {row['agreement']:.0%} of {row['units']:,} (± "
        f"{1.96 * row['error']:.1%}), worth {row['effective']:.1f} independent judges, cost {row['cost']:g}."
        for words, row in (("Cheapest panel near the best", best), ("Best panel", rows[0]))
    ]  # fmt: skip
    return lines[:1] if best is rows[0] else lines


RATE_MEANINGS = {
    "slope": "how much of the differences they see (1: as the mean annotator, 0: none)",
    "reliability": "how often they answer by the scores, not at random",
    "position": "log odds in favour of the item shown first",
    "agreement": "how often they agree with the scores",
}


def ranking_annotators(ranking: Any, limit: int = 6) -> Table:
    """Annotators by what the method knows of them: slope, reliability, position, or agreement with the scores."""
    people = ranking.to_frame("annotators", kind="dict")
    name = next(k for k in RATE_MEANINGS if k in people)
    value, low, high = (
        np.nan_to_num(np.asarray(people[k], dtype=float)) for k in (name, f"{name}_low", f"{name}_high")
    )
    order = np.argsort(-value, kind="stable").tolist()
    if len(order) > 2 * limit:
        order = [*order[:limit], -1, *order[-limit:]]
    ties = [">ties"] if "tie_rate" in people else []
    title = f"Annotators: {RATE_MEANINGS[name]}, with a 95% interval"
    also = [">position", "95% interval"] if name == "slope" and "position" in people else []
    table = new_table("annotator", ">answers", f">{name}", "95% interval", *also, *ties, title=title)
    for m in order:
        if m < 0:
            table.add_row("...")
            continue
        table.add_row(
            str(people["annotator"][m]), f"{people['comparisons'][m]:g}", f"{value[m]:.2f}",
            f"{low[m]:.2f} to {high[m]:.2f}", *(_position(people, m) if also else ()),
            *([f"{people['tie_rate'][m]:.0%}"] if ties else []),
        )  # fmt: skip
    return table


def _position(people: Any, m: int) -> tuple[str, str]:
    value, low, high = (float(people[f"position{end}"][m]) for end in ("", "_low", "_high"))
    return ("", "") if value != value else (f"{value:+.2f}", f"{low:+.2f} to {high:+.2f}")


def show_description(table: Any) -> None:
    """The shape of some answers: counts, spreads, and (of votes) histograms."""
    d = table.describe()
    screen = console(stderr=False)
    if not isinstance(table, Votes):
        sizes = f"{counted(len(table), 'item')}, {counted(len(table.annotators), 'annotator')}"
        screen.print(strong(table.answer_type, f": {sizes}"))
        plain = {k: v for k, v in d.items() if not isinstance(v, (dict, list)) and k not in ("items", "annotators")}
        for name, value in plain.items():
            words = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
            screen.print(f"{name.replace('_', ' ')}: " + (f"{words:,}" if isinstance(words, int) else str(words)))
        screen.print()
        screen.print(spread_table(d))
        return
    screen.print(
        strong(
            counted(d["votes"], "vote"),
            f" by {counted(d['annotators'], 'annotator')} on {counted(d['items'], 'item')}, "
            + counted(len(d["classes"]), "class"),
        )
    )
    screen.print(f"{d['density']:.2%} of all (item, annotator) pairs")
    if d["unanimous"] is not None:
        screen.print(f"{d['unanimous']:.1%} of the items with two votes or more are unanimous")
    screen.print(f"truth known for {d['items_with_truth']:,} items" if d["items_with_truth"] else "no truth")
    for word, there in (("weighted", d["weighted"]), ("with timestamps", d["timestamps"])):
        if there:
            screen.print(word)
    screen.print()
    screen.print(spread_table(d))
    screen.print()
    screen.print(histogram_table("Votes per item", np.diff(table.indptr)))
    screen.print(histogram_table("Votes per annotator", np.bincount(table.annotator, minlength=len(table.annotators))))
    shares = new_table(title="Votes per class", header=False)
    top = max(d["votes_per_class"].values())
    for name, count in list(d["votes_per_class"].items())[:20]:
        shares.add_row(str(name), f"{count:,}", bar_cell(count / max(top, 1)), "" if count else "never used")
    screen.print(shares)
    if is_of_rules(table):
        screen.print()
        screen.print(frame_table("Annotators", coverage_table(table, kind="polars"), limit=20))


def is_of_rules(table: Any) -> bool:
    """Whether answers are votes of rules, whose coverage is shown."""
    return isinstance(table, Votes) and bool(rules_in(table).any())


def spread_table(described: dict[str, Any]) -> Table:
    """Smallest, middle and largest of every count that spreads."""
    table = new_table("", ">min", ">median", ">mean", ">max")
    for name, s in described.items():
        if isinstance(s, dict) and {"min", "median", "mean", "max"} <= set(s):
            middle = f"{s['median']:g}", f"{s['mean']:.1f}"
            table.add_row(name.replace("_", " "), f"{s['min']:,}", *middle, f"{s['max']:,}")
    return table


def learned(fitted: Fitted) -> dict[str, Any]:
    """The JSON object of ``crowdwise learn --json``."""
    result, history = fitted.result, fitted.model.history_
    held = [step.held_out for step in history if step.held_out is not None]
    out: dict[str, Any] = {
        "method": result.method, "items": len(result.items), "annotators": len(result.annotators),
        "classes": len(result.classes), "votes": result.n_answers, "seed": fitted.model.seed_,
        "seconds": round(result.seconds, 4),
        "history": {
            "epochs": len(history), "loss_first": history[0].loss, "loss_last": history[-1].loss,
            "held_out_last": held[-1] if held else None,
            "held_out_best": max(held) if held else None,
            "held_out_best_epoch": history[int(np.argmax(held))].epoch if held else None,
        },
    }  # fmt: skip
    return out | figures(fitted.measured) | _test(fitted.tested)


def _test(tested: tuple[float, int] | None) -> dict[str, Any]:
    return {} if tested is None else {"accuracy_test": tested[0], "items_test": tested[1]}


def predictions(names: Any, classes: Any, q: Any, probabilities: bool) -> dict[str, Any]:
    """The columns of a table of predictions."""
    columns = {"item": names, "label": classes[q.argmax(axis=1)], "probability": q.max(axis=1)}
    return columns | ({f"p({name})": q[:, k] for k, name in enumerate(classes)} if probabilities else {})


def predicted(learner: Any, votes: Votes | None, items: int, tested: tuple[float, int] | None) -> dict[str, Any]:
    """The JSON object of ``crowdwise predict --json``."""
    out: dict[str, Any] = {
        "method": learner.key, "items": items, "classes": len(learner.classes_),
        "votes": 0 if votes is None else votes.n_votes,
    }  # fmt: skip
    return out | _test(tested)


def show_learned(fitted: Fitted, out: Any) -> None:
    screen = console()
    result, history = fitted.result, learned(fitted)["history"]
    screen.print()
    screen.print(fitted_line(fitted))
    held = "" if history["held_out_last"] is None else f", held-out votes {history['held_out_last']:.4f}"
    screen.print(f"{history['epochs']} epochs, loss {history['loss_last']:.4f}{held}, {result.seconds:.2f} s")
    measures(screen, fitted.measured, of=" of the consensus")
    if fitted.tested is not None:
        screen.print(f"accuracy on {fitted.tested[1]:,} items without votes:", strong(f"{fitted.tested[0]:.4f}"))
    screen.print()
    for table in consensus_tables(result):
        screen.print(table)
    saved = "nothing was saved: --out DIR saves the classifier" if out is None else f"written: {out}"
    screen.print(saved, soft_wrap=True)


def show_predicted(learner: Any, table: Any, tested: tuple[float, int] | None, out: Any) -> None:
    screen = console()
    sure = float(table["probability"].mean())
    screen.print(f"{learner.key}: {table.height:,} items labelled, with a probability of {sure:.3f} on average")
    if tested is not None:
        screen.print(f"accuracy on {tested[1]:,} items whose class is known:", strong(f"{tested[0]:.4f}"))
    if out is not None:
        screen.print(f"written: {out}", soft_wrap=True)
