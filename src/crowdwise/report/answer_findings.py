"""What is worth acting on in answers that are no votes: a rule for each finding, by the tables of the result.

==============  =========================  ==========================================================================
type            finding                    condition
==============  =========================  ==========================================================================
ratings         ``scale``                  the interval of an annotator's scale contains 0
                ``bias``                   the interval of the bias is on one side of 0, ``MATTERS`` of the spread away
                ``noise``                  the whole interval of the noise is above ``LOUD`` times the median
                ``wide``                   the interval of a value is ``WIDE`` times as wide as the median
comparisons,    ``reversed``               the interval of the reliability is under one half
rankings        ``guessing``               it contains one half, with ``ENOUGH`` answers or more
                ``position``               how often the first of two is chosen is ``MATTERS`` away from one half, and
                                           its interval does not contain that
                ``open``                   more than one item may have the first place
                ``apart``                  items without any comparison between them
similarities,   ``guessing``               sensitivity + specificity - 1 is under ``USEFUL``, and may be 0
label-sets      ``splits``, ``joins``      the interval of sensitivity, or of specificity, is under one half
label-sets      ``missed``                 a label whose sensitivity is under one half
tags            ``inexact``                the whole interval of the accuracy is under the median accuracy
                ``confused``               a tag that is given as another one in ``OFTEN`` of the answers or more
all but scores  ``items``                  the answer has a probability under ``DOUBT``
==============  =========================  ==========================================================================

Intervals are those of the result, at 95 %. A method without such a column has no such finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats, share_interval
from crowdwise.trust.wording import begun, counted, figure, joined, named, percent

MATTERS, LOUD, WIDE, ENOUGH, USEFUL, OFTEN, DOUBT = 0.1, 1.5, 2.0, 20, 0.2, 0.2, 0.95
NAMED = 10
"""Names in one line."""
Frame = Mapping[str, npt.NDArray[Any]]
WORDS = {
    "reversed": ("Annotators who reverse the order", "Drop their answers, or ask whether they read the question."),
    "scale": ("Ratings that do not follow the truth", "Drop their ratings, or ask how they used the scale."),
    "guessing": ("No better than guessing", "Drop their answers, or give them examples."),
    "splits": ("Annotators who miss much", "Show them examples of what belongs."),
    "joins": ("Annotators who accept too much", "Show them examples of what does not belong."),
    "inexact": ("Less accurate than the others", "Look at their answers, and show them the guideline."),
    "noise": ("Noisy annotators", "Look at their ratings; the method gives them little weight."),
    "bias": ("Annotators with a bias", "Agree on what the scale means; the method corrects for it."),
    "position": ("The order of two decides", "Show every pair in both orders, or fit position-bt."),
    "open": ("The first place is open", "Collect more answers on these."),
    "apart": ("Scores that cannot be compared", "Collect answers that link them."),
    "missed": ("Labels that are often left out", "Say in the guideline when they apply."),
    "confused": ("Tags that are confused", "Sharpen the guideline between them."),
    "wide": ("Values that are least known", "Collect more ratings on these."),
    "items": ("In doubt", "Look at them in the order given."),
}
"""Title and advice of each finding, the most pressing first."""


DROP = ("reversed", "scale", "guessing")
"""Findings about annotators whose answers should not count; ``LOOK``: those that a person should look at."""
LOOK = ("splits", "joins", "inexact", "noise", "bias", "position")


class Found(NamedTuple):
    """One line of a finding, and whom or what it names."""

    kind: str
    line: str
    names: list[str]


def answer_actions(kind: str, result: Any) -> list[dict[str, Any]]:
    """What to do first: one entry for each kind of finding, in the form of those of votes."""
    frames = {
        name: {column: np.asarray(values) for column, values in result.to_frame(name, kind="dict").items()}
        for name in ("items", "annotators", "labels", "confusion")
        if name in result.TABLES
    }
    rules = {"ratings": _ratings, "comparisons": _scores, "rankings": _scores, "tags": _tags}
    found = list(rules.get(kind, _rates)(frames, kind))
    return [
        {
            "kind": name, "title": title, "advice": advice,
            "names": [one for f in found if f.kind == name for one in f.names],
            "lines": [f.line for f in found if f.kind == name],
        }
        for name, (title, advice) in WORDS.items()
        if any(f.kind == name for f in found)
    ]  # fmt: skip


def whom(actions: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The annotators that the findings name, each once, those to drop first."""
    out: dict[str, str] = {}
    for verdict, kinds in (("drop", DROP), ("look", LOOK)):
        for name in (name for action in actions if action["kind"] in kinds for name in action["names"]):
            out.setdefault(name, verdict)
    return [{"annotator": name, "verdict": verdict} for name, verdict in out.items()]


def _line(kind: str, what: str, noun: str, names: npt.NDArray[Any], figures: list[str]) -> Iterator[Found]:
    """``Rates too high (3 annotators): ann (by 0.6), bob (by 0.5) and ...``; nothing where nobody is meant."""
    listed = [named(noun, name) for name in names.tolist()]
    if not listed:
        return
    said = [f"{name} ({figure})" if figure else name for name, figure in zip(listed, figures, strict=True)]
    count = f" ({counted(len(listed), noun)})" if len(listed) > 1 else ""
    yield Found(kind, f"{what}{count}: {joined(said, NAMED)}.", listed)


def _where(mask: npt.NDArray[np.bool_], by: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The places where something holds, the largest ``by`` first."""
    places = np.flatnonzero(mask)
    return places[np.argsort(-by[places], kind="stable")]


def _ratings(frames: Mapping[str, Frame], _: str) -> Iterator[Found]:
    people, items = frames["annotators"], frames["items"]
    names, value = people["annotator"], items["value"].astype(float)
    follows = np.ones(len(names), dtype=bool)
    if "scale" in people:
        follows = (people["scale_low"] > 0.0) | (people["scale_high"] < 0.0)
        flat = _where(~follows, -people["scale"])
        figures = [f"{x:.2f} for a step of 1" for x in people["scale"][flat]]
        yield from _line("scale", "Their ratings may not move with the truth at all", "annotator", names[flat], figures)
    if "bias" in people:
        bias, enough = people["bias"], MATTERS * float(np.std(value))
        sides = (("too high", people["bias_low"] > 0.0), ("too low", people["bias_high"] < 0.0))
        for side, sure in sides:
            some = _where(sure & follows & (np.abs(bias) >= enough), np.abs(bias))
            figures = [f"by {figure(abs(x))}" for x in bias[some]]
            yield from _line("bias", f"Rates {side}", "annotator", names[some], figures)
    if "noise" in people:
        loud = _where((people["noise_low"] > LOUD * np.median(people["noise"])) & follows, people["noise"])
        figures = [f"± {figure(x)}, the median is {figure(np.median(people['noise']))}" for x in people["noise"][loud]]
        yield from _line("noise", "Scatters more than others", "annotator", names[loud], figures)
    if "low" in items:
        width = (items["high"] - items["low"]) / 2.0
        wide = _where(width > WIDE * np.median(width), width)
        figures = [f"± {figure(x)}" for x in width[wide]]
        yield from _line("wide", "Known half as well as the median item", "item", items["item"][wide], figures)


def _scores(frames: Mapping[str, Frame], _: str) -> Iterator[Found]:
    people, items = frames["annotators"], frames["items"]
    names, n = people["annotator"], people["comparisons"]
    rate = "reliability" if "reliability" in people else "agreement"
    low, middle, high = people[f"{rate}_low"], people[rate], people[f"{rate}_high"]
    against = _where(high < 0.5, -middle)
    figures = [f"with the order in {percent(middle[m])} of {n[m]:,.0f} answers" for m in against]
    yield from _line("reversed", "Answers the other way round", "annotator", names[against], figures)
    blind = _where((low <= 0.5) & (high >= 0.5) & (n >= ENOUGH), n)
    figures = [f"{percent(middle[m])} of {n[m]:,.0f} answers" for m in blind]
    yield from _line("guessing", "May be guessing", "annotator", names[blind], figures)
    if "first_rate" in people:
        first = people["first_rate"]
        for side, sure in (("first", people["first_rate_low"] > 0.5), ("second", people["first_rate_high"] < 0.5)):
            lean = _where(sure & (np.abs(first - 0.5) >= MATTERS), np.abs(first - 0.5))
            figures = [percent(first[m] if side == "first" else 1.0 - first[m]) for m in lean]
            yield from _line("position", f"Prefers the {side} of two", "annotator", names[lean], figures)
    order = np.argsort(items["rank"], kind="stable")
    best = order[items["rank_low"][order] <= 1]
    if len(best) > 1:
        figures = [f"score {items['score'][i]:.2f}" for i in best]
        yield from _line("open", "May be the best", "item", items["item"][best], figures)
    parts = len(np.unique(items["component"])) if "component" in items else 1
    if parts > 1:
        yield Found("apart", f"The items fall into {parts:,} groups without a comparison between them.", [])


def _rates(frames: Mapping[str, Frame], kind: str) -> Iterator[Found]:
    people = frames["annotators"]
    names, sensitivity, specificity = people["annotator"], people["sensitivity"], people["specificity"]
    gain = sensitivity + specificity - 1.0
    blind = (gain < USEFUL) & (people["sensitivity_low"] + people["specificity_low"] <= 1.0)
    some = _where(blind, -gain)
    figures = [f"finds {percent(sensitivity[m])}, rules out {percent(specificity[m])}" for m in some]
    yield from _line("guessing", "Hardly knows what is there", "annotator", names[some], figures)
    what = ("Separates what belongs together", "Joins what does not belong together")
    if kind == "label-sets":
        what = ("Leaves out labels that apply", "Adds labels that do not apply")
    for name, words, rate in (("splits", what[0], "sensitivity"), ("joins", what[1], "specificity")):
        some = _where((people[f"{rate}_high"] < 0.5) & ~blind, -people[rate])
        figures = [f"in {percent(1.0 - people[rate][m])} of the cases" for m in some]
        yield from _line(name, words, "annotator", names[some], figures)
    if "labels" in frames:
        labels = frames["labels"]
        missed = _where(labels["sensitivity"] < 0.5, -labels["sensitivity"])
        figures = [f"in {percent(1.0 - labels['sensitivity'][k])} of the cases" for k in missed]
        yield from _line("missed", "Left out where they apply", "label", labels["label"][missed], figures)
    yield from _in_doubt(frames["items"], "item")


def less_accurate(accuracy: Floats, votes: Floats, margin: float = 0.0) -> npt.NDArray[np.int64]:
    """The annotators whose accuracy is, with its interval, under the median less a margin; the least accurate first.

    The interval is that of their votes alone: the error of the crowd is the same for all.
    """
    _, high = share_interval(np.nan_to_num(accuracy) * votes, votes, np.zeros(len(votes)))
    return _where(high < np.nanmedian(accuracy) - margin, -accuracy)


def _tags(frames: Mapping[str, Frame], _: str) -> Iterator[Found]:
    people = frames["annotators"]
    if "accuracy_high" in people:
        accuracy = people["accuracy"]
        weak = less_accurate(accuracy, people["votes"])
        figures = [f"{percent(accuracy[m])} right, the median is {percent(np.median(accuracy))}" for m in weak]
        yield from _line(
            "inexact", "Less accurate than half of the others", "annotator", people["annotator"][weak], figures
        )
    if "confusion" in frames:
        table = frames["confusion"]
        tags, truth = np.unique(table["truth"].astype(str), return_inverse=True)
        said, label = np.unique(table["label"].astype(str), return_inverse=True)
        counts = np.zeros((len(tags), len(said)))
        np.add.at(counts, (truth, label), table["count"].astype(float))
        share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-12)
        cells = [(k, j) for k, j in np.argwhere(share >= OFTEN).tolist() if tags[k] != said[j]]
        for k, j in sorted(cells, key=lambda cell: -share[cell])[:5]:
            one, other = named("tag", tags[k]), named("tag", said[j])
            yield Found("confused", f"{one} is tagged {other} in {percent(share[k, j])} of the answers.", [one, other])
    yield from _in_doubt(frames["items"], "token")


def _in_doubt(items: Frame, noun: str) -> Iterator[Found]:
    probability = items["probability"]
    doubt = _where(probability < DOUBT, -probability)
    if len(doubt):
        listed = [f"{named(noun, items['item'][n])} ({percent(probability[n])})" for n in doubt[:3]]
        share = percent(len(doubt) / len(probability))
        words = f"{len(doubt):,} of {counted(len(probability), noun)} ({share}); first {joined(listed)}."
        yield Found("items", begun(words), [named(noun, name) for name in items["item"][doubt[:NAMED]].tolist()])
