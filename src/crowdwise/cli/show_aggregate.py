"""What ``aggregate``, ``rank`` and ``describe`` show: labels, annotators, leaderboards, the shape of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from crowdwise.answers.comparisons_scales import MEANINGS as MEANS
from crowdwise.answers.comparisons_scales import Scale
from crowdwise.cli.show import (
    bar_cell,
    console,
    ends_cell,
    frame_table,
    histogram,
    measures,
    new_table,
    strong,
    whisker_cell,
    written,
)
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes
from crowdwise.trust.wording import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from crowdwise.api import Fitted
    from crowdwise.core.consensus import Consensus
    from crowdwise.out_of_core import WrittenConsensus

WIDTH = 36
"""Characters of a drawn interval."""


def facts(found: Fitted) -> dict[str, Any]:
    """The JSON object of ``--json``: what was fitted to what, and the figures against the truth."""
    result, votes = found.result, isinstance(found.table, Votes)
    out: dict[str, Any] = {
        "method": result.method, "answer_type": found.answer_type, "items": len(result.item_names),
        "annotators": len(result.annotator_names), **({"classes": len(result.classes)} if votes else {}),
        "votes" if votes else "answers": result.n_answers, "iterations": result.iterations,
        "converged": result.converged, "objective": result.objective, "seconds": round(result.seconds, 4),
        "notes": result.notes,
    }  # fmt: skip
    return out | figures(found.measured)


def figures(measured: dict[str, Any]) -> dict[str, Any]:
    """Figures against the truth with the ends of their intervals (``None`` where there is none), as JSON holds them."""
    out: dict[str, Any] = {}
    for name, e in measured.items():
        low, high = (e.low, e.high) if e.has_interval else (None, None)
        out |= {name: e.value, f"{name}_low": low, f"{name}_high": high}
    return out


def show_written(found: WrittenConsensus, paths: list[Any]) -> None:
    """A summary of a consensus that was written part by part, for people, to standard error."""
    sizes = f"{counted(found.n_items, 'item')}, {counted(len(found.annotator_names), 'annotator')}"
    first = strong(found.method, f": {sizes}, {counted(len(found.classes), 'class')}, {counted(found.n_votes, 'vote')}")
    screen = _begun(first, f"{found.iterations} passes", found.notes, found.measured)
    screen.print(class_table(found.classes, found.items_per_class))
    screen.print()
    if found.accuracy is not None:
        screen.print(annotator_table(found.annotator_names, found.votes_per_annotator, found.accuracy))
    written(screen, paths)


def show_fitted(found: Fitted, paths: list[Any], *, scale: Scale = "score", judges: Any = None) -> None:
    """A summary for people, to standard error. Of leaderboards: on a ``scale``, with a table of ``judges``."""
    result, votes = found.result, isinstance(found.table, Votes)
    passes = f"{result.iterations} passes, {result.seconds:.2f} s"
    screen = _begun(fitted_line(found), passes, result.notes, found.measured)
    if votes:
        tables = consensus_tables(result)
    elif "leaderboard" in result.TABLES:
        people = [ranking_annotators(result)] if len(result.annotator_names) > 1 else []
        tables = [leaderboard(result, scale), *people, *([] if judges is None else [judge_table(judges)])]
    else:
        parts = (("Items", "items"), ("Annotators", "annotators"))
        tables = [frame_table(title, result.to_frame(name, kind="polars")) for title, name in parts]
    for table in tables:
        screen.print(table)
        screen.print()
    if votes:
        screen.print(strong("Least certain items"))
        for line in least_certain(result):
            screen.print(f"  {line}")
    written(screen, paths)


def _begun(first: Any, passes: str, notes: list[str], measured: dict[str, Any]) -> Console:
    """A screen with the first lines of a summary."""
    screen = console()
    screen.print()
    screen.print(first)
    screen.print(passes)
    for words in notes:
        screen.print(words, soft_wrap=True)
    measures(screen, measured)
    screen.print()
    return screen


def fitted_line(found: Fitted) -> Any:
    """What was fitted to how much."""
    result, votes = found.result, isinstance(found.table, Votes)
    sizes = f"{counted(len(result.item_names), 'item')}, {counted(len(result.annotator_names), 'annotator')}"
    classes = f"{counted(len(result.classes), 'class')}, " if votes else ""
    return strong(result.method, f": {sizes}, {classes}{counted(result.n_answers, 'vote' if votes else 'answer')}")


def least_certain(consensus: Consensus, limit: int = 5) -> list[str]:
    """The items whose label is the least probable, with their two most probable classes."""
    out = []
    for n in np.argsort(consensus.posterior.max(axis=1), kind="stable")[:limit].tolist():
        q = consensus.posterior[n]
        two = [f"{consensus.classes[k]} {q[k]:.2f}" for k in np.argsort(-q, kind="stable")[:2]]
        out.append(f"{consensus.item_names[n]}: {', '.join(two)}")
    return out


def consensus_tables(consensus: Consensus) -> list[Table]:
    """Its labels and its annotators."""
    count = np.bincount(consensus.label_codes, minlength=len(consensus.classes))
    people = annotator_table(consensus.annotator_names, consensus.votes_per_annotator, consensus.accuracy())
    return [class_table(consensus.classes, count), people]


def class_table(classes: Any, count: Ints, limit: int = 12) -> Table:
    """How many items have each label."""
    table = new_table("class", ">items", "share", title="Labels")
    for k in np.argsort(-count, kind="stable")[:limit].tolist():
        table.add_row(str(classes[k]), f"{count[k]:,}", bar_cell(count[k] / max(count.max(), 1)))
    if len(count) > limit:
        table.add_row(f"... {len(count) - limit} more", "", "")
    return table


def annotator_table(names: Any, votes: Ints, found: tuple[Floats, ...], limit: int = 6) -> Table:
    """The best and the worst annotators, by the end of their interval that would have to be wrong. Those with too few
    votes to be judged, as in reports, have a question mark."""
    from crowdwise.trust.annotators import FEW

    accuracy, low, high = found
    order = np.argsort(-np.nan_to_num(low, nan=-1.0), kind="stable")
    if len(order) > 2 * limit:
        worst = np.argsort(np.nan_to_num(high, nan=2.0), kind="stable")[:limit][::-1]
        order = np.concatenate([order[:limit], [-1], worst])
    scale = ends_cell("0%", "100%", 40)
    table = new_table("annotator", ">votes", ">accuracy", scale, title="Annotators: accuracy, with a 95% interval")
    few = high - low > FEW
    room = " " if few[order[order >= 0]].any() else ""
    if room:
        table.caption = f"?: too few votes to judge (an interval of more than {100 * FEW:.0f} points)"
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


def leaderboard(ranking: Any, scale: Scale = "score", limit: int = 20) -> Table:
    """The best items (all, or the ends of a long list): rank and its interval, score and its interval as a bar."""
    rows = ranking.on_scale(scale, kind="dict")
    rows |= {"score": rows[scale], "low": rows[f"{scale}_low"], "high": rows[f"{scale}_high"]}
    N = len(rows["item"])
    shown = list(range(N)) if N <= limit else [*range(limit - 5), -1, *range(N - 4, N)]
    low, high = float(rows["low"].min()), float(rows["high"].max())
    ends = [f"{end:{DIGITS[scale].replace('+', '').replace('.2f', '.1f')}}" for end in (low, high)]
    title = f"Leaderboard: {MEANS[scale]}, with a 95% interval"
    table = new_table(">rank", "ranks", "item", f">{scale}", ends_cell(ends[0], ends[1], WIDTH), title=title)
    for n in shown:
        if n < 0:
            table.add_row("...", "", "", "", "")
            continue
        table.add_row(
            f"{rows['rank'][n]}", f"{rows['rank_low'][n]}–{rows['rank_high'][n]}", str(rows["item"][n])[:40],
            f"{rows['score'][n]:{DIGITS[scale]}}",
            whisker_cell(rows["low"][n], rows["score"][n], rows["high"][n], WIDTH, low, high),
        )  # fmt: skip
    return table


def judge_table(judges: Any) -> Table:
    """Judges beside people: agreement, and what each favours."""
    names = (">answers", ">agreement", ">first", ">flips", ">position", ">length", ">own")
    title = "Judges: agreement with people; log odds in favour of the first, the longer, their own (* 95% CI without 0)"
    table = new_table("annotator", *names, title=title)
    for row in judges.to_dicts():
        shares = [row[name] for name in ("agreement", "first_rate", "flip_rate")]
        biases = [_marked(row, name) for name in ("position", "verbosity", "self_preference")]
        table.add_row(
            row["annotator"], f"{row['comparisons']:,}", *("" if x != x else f"{x:.0%}" for x in shares), *biases
        )
    return table


def _marked(row: dict[str, Any], name: str) -> str:
    """A bias, marked where its interval excludes 0."""
    sure = row[f"{name}_low"] > 0.0 or row[f"{name}_high"] < 0.0
    return "" if row[name] != row[name] else f"{row[name]:+.2f}{'*' if sure else ' '}"


MEANINGS = {
    "reliability": "how often they answer by the scores, not at random",
    "position": "log odds in favour of the item shown first",
    "agreement": "how often they agree with the scores",
}


def ranking_annotators(ranking: Any, limit: int = 6) -> Table:
    """Annotators by what the method knows of them: reliability, position, or agreement with the scores."""
    people = ranking.to_frame("annotators", kind="dict")
    name = next(k for k in MEANINGS if k in people)
    value, low, high = (
        np.nan_to_num(np.asarray(people[k], dtype=float)) for k in (name, f"{name}_low", f"{name}_high")
    )
    order = np.argsort(-value, kind="stable").tolist()
    if len(order) > 2 * limit:
        order = [*order[:limit], -1, *order[-limit:]]
    ties = [">ties"] if "tie_rate" in people else []
    title = f"Annotators: {MEANINGS[name]}, with a 95% interval"
    table = new_table("annotator", ">answers", f">{name}", "95% interval", *ties, title=title)
    for m in order:
        if m < 0:
            table.add_row("...")
            continue
        table.add_row(
            str(people["annotator"][m]), f"{people['comparisons'][m]:g}", f"{value[m]:.2f}",
            f"{low[m]:.2f} to {high[m]:.2f}", *([f"{people['tie_rate'][m]:.0%}"] if ties else []),
        )  # fmt: skip
    return table


def show_description(table: Any) -> None:
    """The shape of some answers: counts, spreads, and (of votes) histograms."""
    d = table.describe()
    screen = console(stderr=False)
    if not isinstance(table, Votes):
        sizes = f"{counted(len(table), 'item')}, {counted(len(table.annotators), 'annotator')}"
        screen.print(strong(table.answer_type, f": {sizes}"))
        plain = {k: v for k, v in d.items() if not isinstance(v, (dict, list)) and k not in ("items", "annotators")}
        for name, value in plain.items():
            said = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
            screen.print(f"{name.replace('_', ' ')}: " + (f"{said:,}" if isinstance(said, int) else str(said)))
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
    screen.print(histogram("Votes per item", np.diff(table.indptr)))
    screen.print(histogram("Votes per annotator", np.bincount(table.annotator, minlength=len(table.annotators))))
    shares = new_table(title="Votes per class", header=False)
    top = max(d["votes_per_class"].values())
    for name, count in list(d["votes_per_class"].items())[:20]:
        shares.add_row(str(name), f"{count:,}", bar_cell(count / max(top, 1)), "" if count else "nobody used it")
    screen.print(shares)


def spread_table(described: dict[str, Any]) -> Table:
    """Smallest, middle and largest of every count that spreads."""
    table = new_table("", ">min", ">median", ">mean", ">max")
    for name, s in described.items():
        if isinstance(s, dict) and {"min", "median", "mean", "max"} <= set(s):
            middle = f"{s['median']:g}", f"{s['mean']:.1f}"
            table.add_row(name.replace("_", " "), f"{s['min']:,}", *middle, f"{s['max']:,}")
    return table
