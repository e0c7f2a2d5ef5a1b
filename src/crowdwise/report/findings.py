"""What was found, in sentences; what to do about it; and a verdict on every annotator.

=================  ================================================================  ==========================
kind               found where                                                       verdict
=================  ================================================================  ==========================
``adversary``      worse than chance; or called random although they swap most      drop
                   classes for others (``swaps``)
``spammer``        answers at random                                                 drop
``constant``       always says the same class, and skill is not above 0              drop
``copiers``        a group that makes the same mistakes, or agrees too much          look
``drift``          got worse over time                                               look
``confusion``      takes one class for another, far more often than the others do    look
``bias``           names a class too often, by ``MATTERS`` of their votes or more    look
``leaning``        the same, by less                                                 (none)
``better``         got better over time                                              (none)
``few``            the interval of the accuracy is too wide, and nothing was found   unclear
``pair``           two classes taken for one another beyond chance, and surely in    –
                   ``MATTERS`` of the votes that name either (the interval's end);
                   and more often than chance by ``MATTERS`` of that
``items``          labels in doubt                                                   –
``captured``       those who repeat each other may have made the consensus theirs    all others unclear
=================  ================================================================  ==========================

Whether there is a finding is decided by the tests in ``crowdwise.trust``, at the level that was asked for. ``MATTERS``
(one vote in twenty, the same bar as for labels in doubt) only keeps differences that are real but too small to act on
out of the way: with many votes a test finds a lean of one vote in a hundred.

When it fails: where most of a crowd errs in the same way, nothing in the votes shows it (see ``trust.annotators``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crowdwise import registry
from crowdwise.core.consensus import Consensus
from crowdwise.core.numerics import Floats
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.report.inspection import Inspection, Told, inspect
from crowdwise.trust.judged_votes import binomial_tail

__all__ = ["Diagnosis", "Finding", "diagnose"]

MATTERS = 0.05
USEFUL = 0.2
"""The skill under which an annotator is called random (``trust.annotators``); the same bar for being wrong."""
CONSISTENT = "wrong in a consistent way"
VERDICTS = ("drop", "look", "unclear", "keep")
TITLES = {
    "captured": "The crowd may be captured",
    "adversary": "Adversaries",
    "spammer": "Spammers",
    "constant": "Lazy constant labellers",
    "copiers": "Copiers and colluders",
    "drift": "Drift",
    "confusion": "Confused classes",
    "bias": "Bias",
    "pair": "Classes that are hard to tell apart",
    "items": "Items to review",
    "better": "Got better",
    "leaning": "Small leanings",
    "few": "Too few votes to say",
}
"""Kind -> heading, in the order in which they are told."""
VERDICT_OF = {
    "adversary": "drop", "spammer": "drop", "constant": "drop", "copiers": "look", "drift": "look",
    "confusion": "look", "bias": "look", "few": "unclear",
}  # fmt: skip
ADVICE = {
    "captured": "Label a few items yourself and hand them over as gold, or fit again without the group.",
    "adversary": "Drop their votes, or ask whether they misread the classes.",
    "spammer": "Drop their votes; label again the items that nobody else saw.",
    "constant": "Drop their votes; label again the items that nobody else saw.",
    "copiers": "Count them as one: keep one of the group, or ask whether they worked together.",
    "drift": "Look at their latest votes, and ask for a pause or a refresher.",
    "confusion": "Show them the guideline for these classes.",
    "bias": "Show them examples of what this class is not.",
    "pair": "Sharpen the guideline between the two, or merge them.",
    "items": "Look at them in the order given.",
    "better": "",
    "leaning": "",
    "few": "Collect more votes before judging them.",
}


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    Attributes
    ----------
    kind
        A key of ``TITLES``.
    who
        The annotators, classes or items it is about, by name.
    sentence
        What was found, with the figures behind it.
    """

    kind: str
    who: tuple[Any, ...]
    sentence: str

    @property
    def title(self) -> str:
        return TITLES[self.kind]

    @property
    def advice(self) -> str:
        """What to do about it; empty where nothing has to be done."""
        return ADVICE[self.kind]


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What was found, the most pressing first, and a verdict on every annotator.

    Attributes
    ----------
    findings
        In the order of ``TITLES``.
    verdicts
        Annotator -> ``"drop"``, ``"look"``, ``"unclear"`` or ``"keep"``.
    expected
        The share of labels that are expected to be right, by the votes alone; NaN where that cannot be told.
    inspection
        What the detectors returned.
    """

    findings: tuple[Finding, ...]
    verdicts: dict[Any, str]
    expected: float
    inspection: Inspection = field(repr=False)

    def who(self, kind: str) -> list[Any]:
        """Everybody (or everything) that a kind of finding names."""
        return [name for finding in self.findings if finding.kind == kind for name in finding.who]

    def sentences(self) -> list[str]:
        """One sentence for each finding."""
        return [finding.sentence for finding in self.findings]

    def by_verdict(self, verdict: str) -> list[Any]:
        """The annotators with a verdict."""
        return [name for name, given in self.verdicts.items() if given == verdict]


def diagnose(
    votes: Votes,
    consensus: Consensus | None = None,
    *,
    gold: Any = None,
    level: float = 0.05,
    told: Told | None = None,
) -> Diagnosis:
    """What is wrong with these votes, in sentences: spammers, copiers, drift, hard classes, labels in doubt.

    Parameters
    ----------
    votes
        The votes.
    consensus
        A consensus of them, by whatever method; by default that of the default method.
    gold
        True classes to judge by where they are known: a mapping from item to class, or N codes with -1 for unknown.
    level
        The error rate of each detector.
    told
        Called with the name of each step before it begins.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.hammer_spammer(400, n_annotators=12, share=0.8, votes_per_item=6, random_state=0)
    >>> found = cw.diagnose(crowd.votes, cw.aggregate(crowd.votes, "dawid-skene"))
    >>> sorted(found.who("spammer")) == sorted(crowd.votes.annotators[crowd.parameters["spammers"]].tolist())
    True
    """
    if not isinstance(votes, Votes):
        raise InputError(f"Expected Votes and found {type(votes).__name__}: {_instead(votes)}")
    if consensus is None:
        consensus = registry.create(registry.DEFAULT).fit(votes, gold).consensus_
    return concluded(inspect(votes, consensus, gold=gold, level=level, told=told))


def _instead(answers: Any) -> str:
    """What to do with something that is no votes."""
    if isinstance(kind := getattr(answers, "answer_type", None), str):
        return f"diagnose is about classes. For {kind}, write_report(answers, aggregate(answers), path) shows them."
    return "make them with Votes.from_frame."


def concluded(seen: Inspection) -> Diagnosis:
    """The findings and verdicts of an inspection."""
    found = [*_about_people(seen), *_about_groups(seen), *_about_pairs(seen), *_about_items(seen)]
    if seen.captured:  # a captured consensus convicts the innocent: no verdict rests on it
        found = [finding for finding in found if finding.kind in ("captured", "copiers")]
    order = {kind: i for i, kind in enumerate(TITLES)}
    found.sort(key=lambda finding: order[finding.kind])
    begin = "keep" if seen.people is not None and not seen.captured else "unclear"
    verdicts = dict.fromkeys(seen.votes.annotators.tolist(), begin)
    for finding in found:
        verdict = VERDICT_OF.get(finding.kind, "keep")
        for name in finding.who if finding.kind in VERDICT_OF else ():
            if VERDICTS.index(verdict) < VERDICTS.index(verdicts[name]):
                verdicts[name] = verdict
    right = seen.items.columns["right"] if seen.items is not None and not seen.captured else np.empty(0)
    return Diagnosis(tuple(found), verdicts, float(right.mean()) if len(right) else float("nan"), seen)


# -------------------------------------------------------------------- words


def percent(x: float, digits: int = 0) -> str:
    """``0.123`` as ``12 %``; a little over nothing and a little under everything stay apart from both."""
    if 0.0 < x < 0.5 * 10.0 ** (-digits - 2):
        return f"under {10.0**-digits:g} %"
    if 1.0 - 0.5 * 10.0 ** (-digits - 2) < x < 1.0:
        return f"over {100 - 10.0**-digits:g} %"
    return f"{100 * x:.{digits}f} %"


def joined(words: list[str], limit: int = 8) -> str:
    """``a, b and c``; after ``limit`` of them, how many more."""
    if len(words) > limit:
        return f"{', '.join(words[:limit])} and {len(words) - limit:,} more"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def _right(columns: dict[str, Any], m: int) -> str:
    a, low, high = (float(columns[name][m]) for name in ("accuracy", "accuracy_low", "accuracy_high"))
    votes = int(columns["votes"][m])
    several = "s" if votes != 1 else ""
    return f"right on {percent(a)} of {votes:,} vote{several} (95 % from {percent(low)} to {percent(high)})"


# -------------------------------------------------------------------- annotators


def _about_people(seen: Inspection) -> list[Finding]:
    report = seen.people
    if report is None:
        return []
    out: list[Finding] = []
    names, classes = report.names.tolist(), seen.votes.classes.tolist()
    level = seen.level / max(seen.votes.n_annotators, 1)
    for m in np.argsort(-report.columns["suspicion"], kind="stable").tolist():
        flags = report.flags[m]
        if "answers at random" in flags and seen.counts is not None:
            swapped = swaps(seen.counts[m], level)
            if swapped:
                words = [f"confuses {classes[k]} with {classes[said]}" for k, said in swapped[:3]]
                flags = (CONSISTENT, *words, *(flag for flag in flags if flag != "answers at random"))
        out += [Finding(kind, (names[m],), words) for kind, words in _words_on(names[m], m, flags, report.columns)]
    return out


def swaps(counts: Floats, level: float) -> list[tuple[int, int]]:
    """(class, what is said instead): most of the classes are taken for one and the same wrong class each.

    ``counts`` are one annotator's K x K (truth, label), every vote judged by the others. With h[l] the share of label l
    among their votes, somebody who answers from habit says l with probability h[l], and somebody who takes k for l
    with probability s, s = ``USEFUL``, says it with s + (1 - s) h[l]. A class is swapped where no more than that is
    rejected at ``level``, over all K (K - 1) cells (Bonferroni). Empty unless the swapped classes have more than half
    of the votes and go to more than one class: else it is a habit, not a swap.
    """
    K = len(counts)
    n = counts.sum(axis=1)
    habit = counts.sum(axis=0) / max(float(n.sum()), 1e-9)
    bar = np.clip(USEFUL + (1.0 - USEFUL) * habit, 0.0, 1.0 - 1e-9)
    p = binomial_tail(counts, np.broadcast_to(n[:, None], counts.shape), bar[None])
    p[np.arange(K), np.arange(K)] = 1.0
    said = p.argmin(axis=1)
    found = np.flatnonzero(p[np.arange(K), said] * K * max(K - 1, 1) <= level)
    if 2.0 * n[found].sum() <= n.sum() or len(set(said[found].tolist())) < 2:
        return []
    order = found[np.argsort(-n[found], kind="stable")]
    return [(int(k), int(said[k])) for k in order]


def _words_on(name: Any, m: int, flags: tuple[str, ...], columns: dict[str, Any]) -> list[tuple[str, str]]:
    """(kind, sentence) for each thing to say about one annotator."""
    out: list[tuple[str, str]] = []
    confused = [flag for flag in flags if flag.startswith("confuses ")]
    habit = "" if not confused else f"; {joined(confused)}"
    for flag in flags:
        if flag in ("worse than chance", CONSISTENT):
            out.append((
                "adversary",
                f"{name} is {flag}: {_right(columns, m)}{habit}. An adversary, or somebody who misread the classes.",
            ))  # fmt: skip
        elif flag == "answers at random":
            out.append(("spammer", f"{name} answers at random: {_right(columns, m)}. A spammer."))
        elif flag.startswith("always says ") and float(columns["skill_low"][m]) > 0.0:
            # Nearly always, and still not blindly: the rest of their votes goes with the truth.
            out.append(
                ("bias", f"{name} nearly {flag}, for most items of other classes too: {_right(columns, m)}. Bias.")
            )
        elif flag.startswith("always says "):
            out.append(
                ("constant", f"{name} {flag}, whatever the item: {_right(columns, m)}. A lazy constant labeller.")
            )
        elif flag == "got worse over time":
            change = abs(float(columns["drift"][m]))
            out.append((
                "drift",
                f"{name} got worse over time: {change * 100:.0f} points of accuracy lost from the first vote to the "
                f"last; {_right(columns, m)}. Drift.",
            ))  # fmt: skip
        elif flag == "got better over time":
            change = float(columns["drift"][m])
            out.append((
                "better",
                f"{name} got better over time: {change * 100:.0f} points of accuracy won from the first vote to the "
                "last.",
            ))  # fmt: skip
        elif flag == "few votes":
            out.append(("few", f"{name} has too few votes to be judged: {_right(columns, m)}."))
        elif flag.startswith("names "):
            lean = float(columns["bias"][m])
            kind, word = ("bias", "Bias") if lean >= MATTERS else ("leaning", "A small leaning")
            out.append((kind, f"{name} {flag}, by {percent(lean)} of their votes. {word}."))
    kinds = {kind for kind, _ in out}
    if confused and not kinds & {"adversary", "spammer", "constant"}:
        out.append(("confusion", f"{name} {joined(confused)}: {_right(columns, m)}."))
    if kinds & {"adversary", "spammer", "constant"}:  # what follows from it goes without saying
        out = [entry for entry in out if entry[0] not in ("bias", "leaning", "few", "better")]
    elif any(VERDICT_OF.get(kind) == "look" for kind, _ in out):  # a test found something: the votes were enough for it
        out = [entry for entry in out if entry[0] != "few"]
    return out


# -------------------------------------------------------------------- groups, pairs, items


def _about_groups(seen: Inspection) -> list[Finding]:
    out = []
    for members, why in seen.groups:
        reasons = []
        if "mistakes" in why:
            shares = _strengths(seen, members)
            reasons.append(
                "make the same mistakes" + (f" ({percent(max(shares))} of them in common)" if shares else "")
            )
        if "agreement" in why:
            reasons.append("agree more than independent annotators would")
        names = joined([str(m) for m in members])
        out.append(Finding("copiers", tuple(members), f"{names} {' and '.join(reasons)}. Copiers, or colluders."))
    if seen.captured:
        size = max((len(members) for members, _ in seen.groups), default=0)
        out.append(
            Finding(
                "captured", (),
                f"{size} of {seen.votes.n_annotators} annotators repeat each other, and may have made the consensus "
                "theirs: then the others look wrong and are not. Nobody is judged before that is cleared up.",
            )
        )  # fmt: skip
    return out


def _strengths(seen: Inspection, members: list[Any]) -> list[float]:
    inside = set(members)
    return [x for a, b, x in (seen.shared.edges if seen.shared is not None else []) if a in inside and b in inside]


def _about_pairs(seen: Inspection) -> list[Finding]:
    if seen.items is None:
        return []
    return [
        Finding("pair", pair.classes, f"{pair}.")
        for pair in seen.items.ambiguous()
        if pair.low >= MATTERS and not pair.share < (1.0 + MATTERS) * pair.expected  # NaN: nothing to compare with
    ]


def _about_items(seen: Inspection) -> list[Finding]:
    report = seen.items
    if report is None:
        return []
    suggested = int(report.columns["suggested"].sum())
    if suggested == 0:
        return []
    order = np.argsort(report.columns["rank"], kind="stable")
    order = order[report.columns["suggested"][order]]
    first = order[:3]
    words = [f"{n} ({why})" for n, why in zip(report.names[first].tolist(), report.why(first).tolist(), strict=True)]
    few = report.names[order[:50]].tolist()
    sentence = (
        f"{suggested:,} of {len(report.names):,} labels are in doubt ({percent(suggested / len(report.names))}); "
        f"first {joined(words)}."
    )
    return [Finding("items", tuple(few), sentence)]
