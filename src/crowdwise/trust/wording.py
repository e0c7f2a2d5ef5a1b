"""Findings in words: the one place where kinds and numbers become sentences, for page, terminal, JSON and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from crowdwise.core.intervals import interval_text
from crowdwise.trust.flags import Finding, FindingKind, FindingWords, Flag, FlagKind, ItemReason, Verdict

FINDINGS: Mapping[str, FindingWords] = {
    FindingKind.CAPTURED: FindingWords(
        "One group may decide the consensus",
        "Label a few items yourself and pass them as gold, or fit again without the group.",
    ),
    FindingKind.CAMPS: FindingWords(
        "Two camps",
        "Label some of these items yourself and pass them as gold: that decides. A robust fit to compare with: m-msr.",
        Verdict.LOOK,
    ),
    FindingKind.RULES: FindingWords(
        "Rules", "Label some items that they cover, and pass them as gold.", Verdict.UNCLEAR
    ),
    FindingKind.ADVERSARY: FindingWords(
        "Adversaries", "Drop their votes, or ask whether they misread the classes.", Verdict.DROP
    ),
    FindingKind.SPAMMER: FindingWords(
        "Spammers", "Drop their votes; label again the items that have no other votes.", Verdict.DROP
    ),
    FindingKind.CONSTANT: FindingWords(
        "Constant labellers", "Drop their votes; label again the items that have no other votes.", Verdict.DROP
    ),
    FindingKind.COPIERS: FindingWords(
        "Copiers and colluders",
        "Count them as one: keep one of the group, or ask whether they worked together.",
        Verdict.LOOK,
    ),
    FindingKind.DRIFT: FindingWords(
        "Drift", "Look at their latest votes, and ask for a pause or a refresher.", Verdict.LOOK
    ),
    FindingKind.CONFUSION: FindingWords(
        "Annotators who confuse classes", "Show them the guideline for these classes.", Verdict.LOOK
    ),
    FindingKind.BIAS: FindingWords("Bias", "Show them examples of what this class is not.", Verdict.LOOK),
    FindingKind.PAIR: FindingWords(
        "Classes that the crowd confuses", "Sharpen the guideline between the two, or merge them."
    ),
    FindingKind.PANEL: FindingWords(
        "A panel that errs together",
        "More annotators of the same kind add little. Give gold labels: 50 show whose votes to go by.",
    ),
    FindingKind.ITEMS: FindingWords("Items to review", "Look at them in the order given."),
    FindingKind.IMPROVED: FindingWords("Improved"),
    FindingKind.LEANING: FindingWords("Small biases"),
    FindingKind.FEW: FindingWords("Too few votes", "Collect more votes before judging them.", Verdict.UNCLEAR),
}
"""The kinds of findings about votes, the most pressing first."""
INEXACT = FindingWords(
    "Less accurate than the others", "Look at their answers, and show them the guideline.", Verdict.LOOK
)
IN_DOUBT = FindingWords("In doubt", "Look at them in the order given.")
REASONS = {
    ItemReason.NO_VOTES: "no votes",
    ItemReason.SINGLE_VOTE: "a single vote",
    ItemReason.DISAGREEMENT: "more disagreement than its annotators explain",
    ItemReason.UNDECIDED: "undecided between {label} and {rival}",
    ItemReason.OVERRULED: "its annotators' record speaks for {rival}",
    ItemReason.MAY_FLIP: "one more vote may change it",
}
WEAKENS = {
    FindingKind.COPIERS: "some annotators repeat each other",
    FindingKind.PAIR: "some classes are easily confused",
}
"""What makes labels less sure than independent annotators would make them."""


def named(what: str, name: Any) -> str:
    """A name as it stands in a sentence: ``annotator 0``, ``class 3``, ``token 12:5`` where it is made of numbers."""
    return f"{what} {name}" if str(name).replace(".", "", 1).replace(":", "", 1).lstrip("-").isdigit() else str(name)


def percent(x: float, digits: int = 0) -> str:
    """``0.123`` as ``12%``; a little over nothing and a little under everything stay apart from both."""
    step = 10.0**-digits
    if 0.0 < x < step / 200.0:
        return f"<{step:.{digits}f}%"
    if 1.0 - step / 200.0 < x < 1.0:
        return f">{100.0 - step:.{digits}f}%"
    return f"{100 * x:.{digits}f}%"


def figure(x: float) -> str:
    """Three digits, without an exponent where it is large: ``0.0123``, ``9.39``, ``93,912,345``."""
    return f"{x:,.0f}" if abs(float(f"{x:.3g}")) >= 1000.0 else f"{x:.3g}"


def joined(words: Iterable[str], limit: int = 8) -> str:
    """``a, b and c``; after ``limit`` of them, how many more."""
    words = list(words)
    if len(words) > limit:
        return f"{', '.join(words[:limit])} and {len(words) - limit:,} more"
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""


def counted(n: int, noun: str) -> str:
    """``1 item``, ``1,200 items``, ``2 classes``"""
    return f"{n:,} {noun}{'' if n == 1 else 'es' if noun.endswith('s') else 's'}"


def begun(text: str) -> str:
    """A sentence; what is not a name begins with a capital."""
    return text[:1].upper() + text[1:] if text.startswith(("annotator ", "class ", "item ")) else text


def flag_words(flag: Flag) -> str:
    """``confuses class 3 with class 8``"""
    classes = [named("class", c) for c in flag.classes]
    if flag.kind is FlagKind.DRIFT:
        return f"got {'worse' if flag.change < 0 else 'better'} over time"
    return {
        FlagKind.WORSE_THAN_CHANCE: "worse than chance",
        FlagKind.RANDOM: "no better than guessing at their label rates",
        FlagKind.CONSTANT: f"always says {classes[0] if classes else ''}",
        FlagKind.CONFUSION: f"confuses {' with '.join(classes)}",
        FlagKind.BIAS: f"names {classes[0] if classes else ''} too often",
        FlagKind.FEW_VOTES: "few votes",
    }[flag.kind]


def flags_sentence(name: Any, flags: Iterable[Flag]) -> str:
    """``Annotator 3 is worse than chance and confuses class 1 with class 2.``"""
    verbs = {FlagKind.WORSE_THAN_CHANCE: "is ", FlagKind.RANDOM: "is ", FlagKind.FEW_VOTES: "has "}
    said = [verbs.get(flag.kind, "") + flag_words(flag) for flag in flags]
    return begun(f"{named('annotator', name)} {joined(said)}.")


def _right(numbers: Mapping[str, float]) -> str:
    ends = interval_text(numbers["accuracy_low"], numbers["accuracy_high"], form=percent)
    return f"right on {percent(numbers['accuracy'])} of {counted(int(numbers['votes']), 'vote')} ({ends})"


def _flags_of(finding: Finding) -> tuple[str, str]:
    """What the flags behind a finding say: of classes that are confused, and the first of the others."""
    confused = joined(flag_words(flag) for flag in finding.flags if flag.kind is FlagKind.CONFUSION)
    return confused, next((flag_words(flag) for flag in finding.flags if flag.kind is not FlagKind.CONFUSION), "")


def _about_annotator(finding: Finding) -> str:
    """What was found about one annotator, without the name."""
    x, flags = finding.numbers, finding.flags
    confused, said = _flags_of(finding)
    change, often = abs(100 * x.get("drift", 0.0)), percent(x["bias"])
    constant = any(flag.kind is FlagKind.CONSTANT for flag in flags)
    return {
        FindingKind.ADVERSARY: f"is {said or 'wrong in a consistent way'}: {_right(x)}"
        f"{f'; {confused}' if confused else ''}; they may have misread the classes",
        FindingKind.SPAMMER: f"is {said}: {_right(x)}",
        FindingKind.CONSTANT: f"{said}, whatever the item: {_right(x)}",
        FindingKind.DRIFT: f"{said}: accuracy fell by {change:.0f} points from the first vote to the last; {_right(x)}",
        FindingKind.IMPROVED: f"{said}: accuracy rose by {change:.0f} points from the first vote to the last",
        FindingKind.CONFUSION: f"{confused}: {_right(x)}",
        FindingKind.BIAS: f"nearly {said}, for most items of other classes too: {_right(x)}"  # and not blindly
        if constant
        else f"{said}, by {often} of their votes",
        FindingKind.LEANING: f"{said}, by {often} of their votes",
        FindingKind.FEW: f"has too few votes to be judged: {_right(x)}",
    }[FindingKind(finding.kind)]


@lru_cache(maxsize=4096)
def item_reasons(reasons: ItemReason, label: Any, rival: Any) -> str:
    """Why an item should be looked at again."""
    names = {"label": named("class", label), "rival": named("class", rival)}
    return "; ".join(words.format(**names) for reason, words in REASONS.items() if reason & reasons)


def pair_words(classes: tuple[Any, ...], numbers: Mapping[str, float]) -> str:
    """How often two classes are taken for each other."""
    words = f"{joined(named('class', c) for c in classes)} are confused in {percent(numbers['rate'])} of the votes"
    if np.isfinite(numbers["expected"]) and numbers["expected"] > 0:
        times = numbers["share"] / numbers["expected"]
        words += f" that name either, {times:.1f} times what unrelated mistakes would give"
    else:
        words += " that name either"
    return begun(f"{words}; {counted(int(numbers['items']), 'item')} undecided between them.")


def fairness_sentences(
    basis: str, rates: Mapping[str, Mapping[Any, Any]], gaps: Mapping[str, Any], differs: Mapping[str, bool]
) -> list[str]:
    """The gaps between groups of items, each with the two groups that are furthest apart."""
    out = (
        []
        if basis == "truth"
        else [
            "No truth was given: rates are expected ones, and intervals allow for a crowd that errs together, unseen. "
            "True classes of some items of each group would show more."
        ]
    )
    of = {"demographic parity": "selection", "equal opportunity": "true_positive", "accuracy": "accuracy"}
    names = {"selection": "the selection rate", "true_positive": "the true positive rate", "accuracy": "accuracy"}
    for criterion, rate in of.items():
        gap = gaps[criterion]
        values = {g: e.value for g, e in rates[rate].items() if np.isfinite(e.value)}
        if len(values) < 2:
            continue
        most, least = max(values, key=lambda g: values[g]), min(values, key=lambda g: values[g])
        ends = interval_text(gap.low, gap.high, level=gap.level, form=lambda x: f"{100 * x:.1f}")
        top, low = (percent(values[group], 1) for group in (most, least))
        where = f"{top} for {named('group', most)} and {low} for {named('group', least)}"
        where = where if most != least else f"{top} for every group"
        chance = "" if differs[criterion] else ", which chance may explain"
        what = f"{criterion.capitalize()}: {names[rate]} is {where}"
        out.append(f"{what}, a gap of {100 * gap.value:.1f} points ({ends}){chance}.")
    return out


def demographic_sentences(overall: Mapping[str, float], rows: list[dict[str, Any]], level: float) -> list[str]:
    """Attributes of annotators that matter, then groups that differ."""
    out = [f"{name} makes a difference (p = {p:.2g})." for name, p in overall.items()]
    for row in rows:
        d, outcome = row["difference"], row["outcome"]
        ends = interval_text(row["low"], row["high"], level=1 - level, form="{:+.3f}".format)
        if outcome == "(mean)":
            what = f"answers {abs(d):.2f} {'higher' if d > 0 else 'lower'} than others"
        else:
            said = "is right by the others" if outcome == "(right)" else f"says {named('class', outcome)}"
            what = f"{said} {abs(d):.1%} {'more' if d > 0 else 'less'} often than others"
        group = f"{row['attribute']} {row['group']}"
        out.append(f"{group} {what} on the same items ({ends}; {row['annotators']} annotators).")
    return out


def sentence(finding: Finding) -> str:
    """What was found, with the figures behind it."""
    kind, x = finding.kind, finding.numbers
    if finding.line:
        return finding.line
    if kind is FindingKind.CAPTURED:
        return (
            f"{x['size']:.0f} of {x['annotators']:.0f} annotators repeat each other and may have decided the "
            "consensus: then the others look wrong and are not. Annotators are not judged before that is resolved."
        )
    if kind is FindingKind.CAMPS:
        against = "contradict" if x["outside"] < 0.0 else "hardly agree with"
        asked = joined([named("item", item) for item in finding.items[:3]])
        where = f" They differ on {counted(round(x['items']), 'item')}, first {asked}." if finding.items else ""
        members = joined([named("annotator", m) for m in finding.annotators], 12)
        return (
            f"{len(finding.annotators)} annotators with {percent(x['share'])} of the votes agree with each other and "
            f"{against} the other {x['others']:,.0f}: {members}. Votes do not show which camp is right.{where}"
        )
    if kind is FindingKind.RULES:
        return (
            f"{len(finding.annotators):,} of {x['annotators']:,.0f} annotators name one class or nothing, as rules do. "
            "Too little truth is known to tell how often they are right."
        )
    if kind is FindingKind.COPIERS:
        shared = f"make the same mistakes ({percent(x['shared'])} of them in common)" if "shared" in x else ""
        who = joined(named("annotator", m) for m in finding.annotators)
        return begun(f"{who} {shared or 'always give the same answers, as one person would'}.")
    if kind is FindingKind.PAIR:
        return pair_words(finding.classes, x)
    if kind is FindingKind.PANEL:
        least, known = ("about", f"by {x['gold']:.0f} gold labels") if x["gold"] else ("at most", "without gold labels")
        return (
            f"{x['annotators']:.0f} annotators count as {least} {x['effective']:.1f} independent ones: they are right "
            f"and wrong about the same items (correlation {x['rho']:.2f}, {known})."
        )
    if kind is FindingKind.ITEMS:
        first = [named("item", item) for item in finding.items[: len(finding.reasons)]]
        first[0] += f" ({item_reasons(*finding.reasons[0])})"
        some = f"{x['suggested']:,.0f} of {counted(round(x['items']), 'item')} ({percent(x['suggested'] / x['items'])})"
        verb = "holds" if x["suggested"] == 1 else "hold"
        return f"{some} {verb} {percent(x['held'])} of the expected errors; first {joined(first)}."
    return begun(f"{named('annotator', finding.annotators[0])} {_about_annotator(finding)}.")


def folded(findings: Iterable[Finding], lines: int = 8, names: int = 12) -> list[str]:
    """Findings of one kind in sentences. Those that say the same of several annotators are one line with a count.

    At most so many lines, the largest groups first, and so many names in each.
    """
    same: dict[tuple[Any, ...], list[Finding]] = {}
    for n, finding in enumerate(findings):
        one = len(finding.annotators) == 1 and not finding.line
        same.setdefault((finding.kind, *_flags_of(finding)) if one else (n,), []).append(finding)
    groups = sorted(same.values(), key=lambda group: -len(group))
    out = [sentence(group[0]) if len(group) == 1 else _folded(group, names) for group in groups[:lines]]
    left = [finding for group in groups[lines:] for finding in group]
    rest = [" / ".join(named("class" if f.classes else "annotator", name) for name in f.names) for f in left]
    return [*out, f"Also: {joined(rest, names)}."] if rest else out


def _folded(group: list[Finding], names: int) -> str:
    """``No better than guessing (3 annotators): w7 (right on 48% of 540), w8 (right on 48% of 800) and ...``"""
    kind, (confused, said) = group[0].kind, _flags_of(group[0])
    what = {
        FindingKind.ADVERSARY: "; ".join(filter(None, [said or "wrong in a consistent way", confused])),
        FindingKind.CONFUSION: confused,
        FindingKind.FEW: "too few votes to be judged",
    }.get(FindingKind(kind), said)

    def one(finding: Finding) -> str:
        x, name = finding.numbers, named("annotator", finding.annotators[0])
        if kind in (FindingKind.BIAS, FindingKind.LEANING):
            return f"{name} (by {percent(x['bias'])} of their votes)"
        if kind in (FindingKind.DRIFT, FindingKind.IMPROVED):
            return f"{name} ({100 * x['drift']:+.0f} points)"
        if kind is FindingKind.FEW:
            return f"{name} ({x['votes']:,.0f})"
        return f"{name} (right on {percent(x['accuracy'])} of {x['votes']:,.0f})"

    listed = joined(map(one, group), names)
    return f"{what[:1].upper()}{what[1:]} ({counted(len(group), 'annotator')}): {listed}."


def to_dict(finding: Finding, words: FindingWords, most: int | None = None) -> dict[str, Any]:
    """A finding as JSON can hold it."""
    return {
        "kind": str(finding.kind), "title": words.title,
        "names": [str(name) for name in finding.names[:most]],
        "numbers": {name: round(float(x), 4) for name, x in finding.numbers.items() if np.isfinite(x)},
        "sentence": sentence(finding), "advice": words.advice,
    }  # fmt: skip
