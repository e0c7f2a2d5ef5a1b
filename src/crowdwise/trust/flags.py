"""What can be found about annotators, items and classes: kinds and numbers, no words (those are in ``wording``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntFlag, StrEnum
from typing import Any, NamedTuple


class FlagKind(StrEnum):
    """What a test says about one annotator (see :mod:`crowdwise.trust.annotators`)."""

    WORSE_THAN_CHANCE = "worse-than-chance"
    RANDOM = "random"
    CONSTANT = "constant"
    CONFUSION = "confusion"
    BIAS = "bias"
    DRIFT = "drift"
    FEW_VOTES = "few-votes"


@dataclass(frozen=True)
class Flag:
    """One flag: its kind, the classes it is about (truth before label), and the change of accuracy for a drift."""

    kind: FlagKind
    classes: tuple[Any, ...] = ()
    change: float = 0.0


class ItemReason(IntFlag):
    """Why an item should be looked at again; several may hold."""

    NO_VOTES = 1
    SINGLE_VOTE = 2
    DISAGREEMENT = 4
    UNDECIDED = 8
    MAY_FLIP = 16
    OVERRULED = 32


class Verdict(StrEnum):
    """What to do about an annotator, the most pressing first."""

    DROP = "drop"
    LOOK = "look"
    UNCLEAR = "unclear"
    KEEP = "keep"


class FindingKind(StrEnum):
    """What a diagnosis can find, the most pressing first (see :mod:`crowdwise.report.findings`)."""

    CAPTURED = "captured"
    CAMPS = "camps"
    RULES = "rules"
    ADVERSARY = "adversary"
    SPAMMER = "spammer"
    CONSTANT = "constant"
    COPIERS = "copiers"
    DRIFT = "drift"
    CONFUSION = "confusion"
    BIAS = "bias"
    PAIR = "pair"
    PANEL = "panel"
    ITEMS = "items"
    IMPROVED = "improved"
    LEANING = "leaning"
    FEW = "few"


class FindingWords(NamedTuple):
    """A kind of finding: its title, what to do about it (empty where nothing), and the verdict on annotators."""

    title: str
    advice: str = ""
    verdict: Verdict | None = None


@dataclass(frozen=True)
class Finding:
    """One finding: its kind, what it is about, the figures behind it, and what led to it."""

    kind: str
    """A :class:`FindingKind` of votes, or a kind of the answer type."""
    annotators: tuple[Any, ...] = ()
    classes: tuple[Any, ...] = ()
    items: tuple[Any, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()
    """Those of the annotator."""
    reasons: tuple[tuple[ItemReason, Any, Any], ...] = ()
    """Of the first items: why they are in doubt, their label, and its rival."""
    line: str = ""
    """The sentence, where the answer type writes it; of votes ``wording`` does."""
    noun: str = ""
    """What a name in ``line`` is of: ``"annotator"``, ``"token"``..."""

    @property
    def names(self) -> tuple[Any, ...]:
        """The annotators, classes or items."""
        return self.annotators or self.classes or self.items
