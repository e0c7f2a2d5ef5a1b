"""The rules of an answer type: what is asked of every type, and what most types have in common."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdwise import metrics  # its names are imported when they are used
from crowdwise.core.numerics import Floats, Ints
from crowdwise.errors import InputError
from crowdwise.metrics.bootstrap import Estimate, Options
from crowdwise.trust.agreement_coefficients import Patterns
from crowdwise.trust.flags import Finding, FindingWords, Verdict
from crowdwise.trust.wording import IN_DOUBT, begun, counted, joined, named, percent

Frame = Mapping[str, npt.NDArray[Any]]
Figures = dict[str, Estimate]
NAMED = 10
"""Names in one line."""
DOUBT = 0.95
"""Below this probability an answer counts as in doubt."""
USEFUL = 0.2
GUESSING = FindingWords("No better than guessing", "Drop their answers, or give them examples.", Verdict.DROP)


class AnswerRules:
    """What is particular to an answer type. A type overrides what differs from most.

    Attributes
    ----------
    answer, noun
        What a result gives, and what it gives one to: a label to an item.
    unit
        What intervals of agreement are over.
    scale
        The scale of votes, by which labels are compared; ``None`` for answers that are not votes.
    measured
        What is measured against the truth: a function of :mod:`crowdwise.metrics` that gives all figures, or the
        function of each.
    kinds
        The kinds of findings, the most pressing first.
    tables, headings, units
        Of the report: further tables of the result that it shows, what to call a column instead of its name, and what
        its numbers are (``%`` of shares).
    drawn
        What the drawings of a report show, in a sentence or two.
    """

    answer: ClassVar[str] = "answer"
    noun: ClassVar[str] = "item"
    unit: ClassVar[str] = "items"
    scale: ClassVar[Any] = None
    measured: ClassVar[str | Mapping[str, str]] = {}
    kinds: ClassVar[Mapping[str, FindingWords]] = {"items": IN_DOUBT}
    tables: ClassVar[tuple[str, ...]] = ()
    headings: ClassVar[Mapping[str, str]] = {}
    units: ClassVar[Mapping[str, str]] = {}
    drawn: ClassVar[str] = ""

    def agreement(self, answers: Any, options: Options, scale: Any = None, values: Any = None) -> Figures:
        """Coefficients of agreement by name; ``scale`` and ``values`` are for votes alone."""
        raise InputError(f"There is no coefficient of agreement for {answers.answer_type}.")

    def truth(self, answers: Any) -> Any:
        """The truth that lies with the answers, as :meth:`measures` takes it; ``None`` where nothing is known."""
        true = getattr(answers, "truth", None)
        return true if true is not None and any(one is not None and one != "" and one == one for one in true) else None

    def measures(self, answers: Any, result: Any, truth: Any) -> Figures:
        """Figures against the truth by name."""
        if isinstance(self.measured, str):
            return dict(getattr(metrics, self.measured)(result, truth))
        return {name: getattr(metrics, of)(result, truth) for name, of in self.measured.items()}

    def findings(self, frames: Mapping[str, Frame]) -> Iterator[Finding]:
        """What is worth acting on in the tables of a result, by name: ``items``, ``annotators`` and others."""
        if "probability" in frames["items"]:
            yield from in_doubt(frames["items"], self.noun)

    def headline(self, result: Any) -> str:
        """One sentence on what was found and how sure it is."""
        unsure = self.unsure(result)
        return f"{counted(len(result.items), self.answer)}{unsure and f', {unsure}'}."

    def unsure(self, result: Any, noun: str = "") -> str:
        """How many answers are in doubt, for sentences; empty where they have no probability."""
        probability = result.to_frame("items", kind="dict").get("probability")
        if probability is None:
            return ""
        doubt = int((np.asarray(probability) < DOUBT).sum())
        return f"{counted(doubt, noun) if noun else f'{doubt:,}'} in doubt" if doubt else "none in doubt"

    def doubts(self, result: Any) -> Floats:
        """N: the expected loss of each item, from 0 to 1; of a class the probability that it is wrong."""
        probability = result.to_frame("items", kind="dict").get("probability")
        if probability is None or len(probability) != len(result.items):
            raise InputError(f"There is no expected loss of items for {result.answer_type}.")
        return 1.0 - np.asarray(probability, dtype=np.float64)

    def losses(self, result: Any, truth: Any) -> Floats:
        """N: how wrong each item is, from 0 to 1; NaN where the truth is unknown."""
        raise InputError(f"There is no loss of items for {result.answer_type}: hand over score and loss.")

    def drawing(self, answers: Any, result: Any, n: int, about: Any) -> dict[str, Any] | None:
        """What a report draws of item n: what annotators said and what was found. ``about``: its text or picture."""
        return None

    def picture(self, result: Any, tables: list[dict[str, Any]]) -> dict[str, Any]:
        """The first picture of a report: how sure the answers are. ``tables`` are those that the page shows."""
        from crowdwise.report.section_summary import sureness

        probability = result.to_frame("items", kind="dict").get("probability")
        return {"kind": "none"} if probability is None else sureness(np.asarray(probability), self.answer, self.noun)


def estimates(patterns: Patterns, coefficients: Mapping[str, Any], options: Options, groups: Any = None) -> Figures:
    """Coefficients of agreement (functions of the patterns of answers) by name, with intervals."""
    return {name: patterns.estimate(of, groups, **options) for name, of in coefficients.items()}


def shown_image(image: Any) -> dict[str, Any] | None:
    """The address of a picture and its width and height; ``None`` where it cannot be shown."""
    from crowdwise.report.votes import image_size, thumbnail

    size = image_size(image)
    source = None if size is None else thumbnail(image, 420)  # the longest side
    return None if source is None else {"src": source, "size": size}


def right_to_left(text: str) -> bool:
    """Whether a text is written from right to left, by its first letter.

    >>> right_to_left("1. \u05e9\u05dc\u05d5\u05dd"), right_to_left("hello")
    (True, False)
    """
    kinds = (unicodedata.bidirectional(letter) for letter in text)
    return next((kind != "L" for kind in kinds if kind in ("L", "R", "AL")), False)


def f1_loss(item: Ints, probability: Floats, accepted: npt.NDArray[np.bool_], N: int) -> Floats:
    """N: 1 - the expected F1 of the accepted candidates: 2 sum of p over them / (their number + sum of p over all);
    where none is accepted the probability that there is something."""
    right, every = (np.bincount(item, probability * share, N) for share in (accepted, 1.0))
    count = np.bincount(item, accepted, N)
    none = np.exp(np.bincount(item, np.log1p(-np.minimum(probability, 1.0 - 1e-12)), N))
    return np.asarray(1.0 - np.where(count > 0, 2.0 * right / np.maximum(count + every, 1e-9), none))


def line(kind: str, what: str, noun: str, names: npt.NDArray[Any], figures: list[str]) -> Iterator[Finding]:
    """``Rates too high (3 annotators): ann (by 0.6), bob (by 0.5) and ...``; nothing without names."""
    members = tuple(names.tolist())
    if not members:
        return
    phrases = [f"{named(noun, name)} ({figure})" for name, figure in zip(members, figures, strict=True)]
    count = f" ({counted(len(members), noun)})" if len(members) > 1 else ""
    about: dict[str, Any] = {{"annotator": "annotators", "label": "classes"}.get(noun, "items"): members}
    yield Finding(kind, line=f"{what}{count}: {joined(phrases, NAMED)}.", noun=noun, **about)


def where(mask: npt.NDArray[np.bool_], by: npt.NDArray[Any]) -> Ints:
    """The places where something holds, the largest ``by`` first."""
    places = np.flatnonzero(mask)
    return places[np.argsort(-by[places], kind="stable")]


def in_doubt(items: Frame, noun: str) -> Iterator[Finding]:
    """The items whose answer has a probability under ``DOUBT``."""
    probability = items["probability"]
    doubt = where(probability < DOUBT, -probability)
    if len(doubt):
        listed = [f"{named(noun, items['item'][n])} ({percent(probability[n])})" for n in doubt[:3]]
        share = percent(len(doubt) / len(probability))
        words = f"{len(doubt):,} of {counted(len(probability), noun)} ({share}); first {joined(listed)}."
        yield Finding("items", items=tuple(items["item"][doubt[:NAMED]].tolist()), line=begun(words), noun=noun)


def wrong_rates(people: Frame, missing: str, adding: str) -> Iterator[Finding]:
    """Annotators by their sensitivity and specificity: those who guess, who miss much, and who accept too much.

    ``guessing``: sensitivity + specificity - 1 is under ``USEFUL``, and may be 0. ``splits``, ``joins``: the interval
    of sensitivity, or of specificity, is under one half.
    """
    names, sensitivity, specificity = people["annotator"], people["sensitivity"], people["specificity"]
    gain = sensitivity + specificity - 1.0
    blind = (gain < USEFUL) & (people["sensitivity_low"] + people["specificity_low"] <= 1.0)
    who = where(blind, -gain)
    figures = [f"finds {percent(sensitivity[m])}, rules out {percent(specificity[m])}" for m in who]
    yield from line("guessing", "Near chance", "annotator", names[who], figures)
    for kind, words, rate in (("splits", missing, "sensitivity"), ("joins", adding, "specificity")):
        who = where((people[f"{rate}_high"] < 0.5) & ~blind, -people[rate])
        figures = [f"in {percent(1.0 - people[rate][m])} of the cases" for m in who]
        yield from line(kind, words, "annotator", names[who], figures)


MISSES = FindingWords("Annotators who miss much", "Show them examples of what belongs.", Verdict.LOOK)
ACCEPTS = FindingWords("Annotators who accept too much", "Show them examples of what does not belong.", Verdict.LOOK)
RATES = {"guessing": GUESSING, "splits": MISSES, "joins": ACCEPTS}
"""The kinds of :func:`wrong_rates`."""
