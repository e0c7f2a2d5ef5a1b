"""Campaign status: whether there are questions to ask, and if not, why it has ended (``docs/active-campaign.md``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.active import acquisition
from crowdwise.active.state import AskablePairs, State
from crowdwise.active.stopping import AccuracyEstimate, Proof, Sentence, StopRule, estimate_accuracy, gold_to_stop
from crowdwise.core.dependence import Dependence, more_votes
from crowdwise.core.numerics import Floats, Ints
from crowdwise.online.stream import Online

Name = Literal["running", "waiting", "target-reached", "budget-spent", "exhausted", "out-of-reach"]
ENDS: tuple[Name, ...] = ("target-reached", "budget-spent", "exhausted", "out-of-reach")


@dataclass(frozen=True)
class Standing:
    """The status of a campaign."""

    state: Name
    why: str | None = None
    """Why no question can be asked; ``None`` where some can be."""
    advice: str | None = None
    """What would open it again."""

    @property
    def ended(self) -> bool:
        return self.state in ENDS

    def warned(self, rule: StopRule, reachable: float | None) -> Standing:
        """The same, with a warning where the target is above what all votes together are expected to reach."""
        if self.state != "running" or rule.target is None or reachable is None or reachable >= rule.target:
            return self
        advice = Sentence(
            "With all votes of the available annotators an accuracy of {reachable} at most is expected, and the "
            "target is {target}: add better annotators, or lower the target.",
            reachable=f"{reachable:.3f}", target=f"{rule.target:g}",
        )  # fmt: skip
        return replace(self, advice=advice)


@dataclass(frozen=True, eq=False)
class Situation:
    """Eligible (item, annotator) pairs, and what was spent."""

    state: State
    """``closed`` holds the items that are closed, finished or waited for; ``voted`` also the pairs that are asked or
    skipped."""
    shut: npt.NDArray[np.bool_]
    """N: items that were closed."""
    finished: npt.NDArray[np.bool_]
    """N: items that need no more votes by the rule."""
    spent: float
    awaited: float
    """The price of the questions that are out."""
    n_awaited: int
    proof: Proof
    at: int
    """The number of the last vote."""

    def look_due(self, rule: StopRule) -> bool:
        """Whether the labels should be compared with gold labels that the model has not seen."""
        if rule.max_error is None or self.why_no_look(rule) is not None:
            return False
        state, rows = self.state, self.to_label
        q, votes = state.corrected[rows].max(axis=1, initial=0.0), state.votes_per_item[rows]
        hopeful = len(q) > 0 and votes.mean() >= 2.0 and 1.0 - q.mean() <= rule.max_error
        return self.proof.due(self.at, self.n_awaited, bool(hopeful))

    def why_no_look(self, rule: StopRule) -> str | None:
        return self.proof.why_not(rule, self.state.votes_per_item, self.shut, self.state.gold)

    @property
    def to_label(self) -> npt.NDArray[np.bool_]:
        """N: items that are neither closed nor known."""
        return ~self.shut & ~self.state.gold

    def questions_left(self, items: npt.NDArray[np.bool_]) -> Ints:
        """M: about how many of these items each annotator can still be asked; 0 for those who are not available."""
        voted, M = self.state.voted, len(self.state.available)
        done = np.bincount(voted.annotator[items[voted.item]], minlength=M)
        return np.where(self.state.available & (self.state.load >= 1.0), int(items.sum()) - done, 0)

    def why_not(self, who: int, rule: StopRule, anybody: str | None) -> str | None:
        """Why an annotator (a code) can be asked nothing now; ``anybody``: why none can be."""
        state, name = self.state, repr(self.state.annotator_names[who])
        if not state.available[who]:
            return f"{name} is not available"
        if state.load[who] < 1.0:
            return f"{name} has given or been asked for the most votes that the annotator may give"
        if rule.why_spent(self.spent + self.awaited, float(state.price[who])) is not None:
            return f"a vote of {name} costs {state.price[who]:g}, more than is left of the budget"
        if anybody is None and not self.questions_left(self.to_label & ~state.closed)[who]:
            return f"{name} has answered, skipped or been asked everything that is open to others"
        return anybody


@dataclass(frozen=True, eq=False)
class People:
    """The annotators: M prices, whether each is available, the most votes of each (NaN: any number), votes so far."""

    price: Floats
    available: npt.NDArray[np.bool_]
    max_votes: Floats
    given: Floats


def find_situation(
    online: Online, rule: StopRule, people: People, shut: npt.NDArray[np.bool_], gold: npt.NDArray[np.bool_],
    asked: tuple[Ints, Ints], skipped: tuple[Ints, Ints], money: tuple[float, float], proof: Proof, at: int,
) -> Situation:  # fmt: skip
    """Eligible (item, annotator) pairs, in the codes of a stream: ``shut`` and ``gold`` are of N items, ``asked`` and
    ``skipped`` are pairs of an item and an annotator, ``money`` is what is spent and what open questions will cost,
    ``at`` the number of the last vote. Open questions count as if they were answered."""
    N, M = len(shut), len(people.price)
    load = np.where(np.isnan(people.max_votes), np.inf, people.max_votes)
    load = np.maximum(load - people.given - np.bincount(asked[1], minlength=M), 0.0)
    state = State.of(online, price=people.price, available=people.available, load=load, closed=shut)
    gold, voted = state.gold | gold, state.voted
    item, who = np.append(asked[0], skipped[0]), np.append(asked[1], skipped[1])
    if len(item):
        voted = AskablePairs.of(np.append(voted.item, item), np.append(voted.annotator, who), N)
    state = state.replace(gold=gold, voted=voted)
    finished = rule.finished(state)
    waiting = np.zeros(N, dtype=bool)
    waiting[asked[0]] = True  # one question at a time about an item
    state = state.replace(closed=shut | (finished & ~gold) | waiting)
    return Situation(state, shut, finished, *money, len(asked[0]), proof, at)


def find_standing(rule: StopRule, now: Situation, online: Online, found: AccuracyEstimate | None = None) -> Standing:
    """The status of a campaign; ``found``: the accuracy, where it has been estimated already."""
    reached, out = rule.why_enough(online, found), counted(now.n_awaited, *QUESTIONS)
    if reached is not None:
        return Standing("target-reached", reached, "To go on, raise the target.")
    proven = None if rule.max_error is None else now.proof.sentence(now.at)
    if proven is not None:
        return Standing("target-reached", proven, "To go on, lower max_error, and draw gold items again.")
    if rule.max_error is not None and now.proof.last_proven is not None and now.n_awaited:
        why = "the labels were good enough, and {questions} out that may change them"
        return Standing("waiting", Sentence(why, questions=out), "Add the answers, or release the questions.")
    unfinished = now.to_label & ~now.finished
    if not now.to_label.any():
        return Standing("waiting", "there are no items to label", "Add items.")
    left = now.questions_left(unfinished)
    if not unfinished.any():
        return _all_finished(rule, now)
    if rule.budget is not None:
        price = now.state.price
        some = price[left > 0] if (left > 0).any() else price[now.state.available]
        cheapest = float(some.min()) if len(some) else 0.0
        spent = rule.why_spent(now.spent, cheapest)
        if spent is not None:
            return Standing("budget-spent", spent, "To go on, raise the budget.")
        if rule.why_spent(now.spent + now.awaited, cheapest) is not None:
            why = Sentence("{questions} out and may take the rest of the budget", questions=out)
            return Standing("waiting", why, "Add the answers, or release the questions.")
    if not now.state.available.any():
        return Standing("waiting", "no annotator is available", "Add annotators, or make some available.")
    if not now.questions_left(unfinished & ~now.state.closed).any():
        if now.n_awaited:
            why = Sentence(NO_OTHER, questions=out)
            return Standing("waiting", why, "Add the answers, or release the questions.")
        return _all_asked(rule, now, unfinished)
    return Standing("running")


def _all_finished(rule: StopRule, now: Situation) -> Standing:
    """Every item is finished by the rule."""
    done = Sentence("every item is finished ({rule})", rule=_finishes(rule))
    if rule.target is None:
        return Standing("exhausted", done, "To go on, raise the probability at which an item is finished.")
    if now.questions_left(now.to_label).any():
        missed = Sentence("{why}, and the target of {target} is not reached", why=done, target=f"{rule.target:g}")
        return Standing("exhausted", missed, "To go on, raise the probability, or the votes on an item.")
    return _unreachable(rule, now)


def _all_asked(rule: StopRule, now: Situation, unfinished: npt.NDArray[np.bool_]) -> Standing:
    """No annotator is left to ask about the unfinished items."""
    if rule.target is not None and not now.questions_left(now.to_label).any():
        return _unreachable(rule, now)
    found = all_asked(int(unfinished.sum()), now.state.available, now.state.load)
    if rule.target is None:
        return found
    pattern = "{why}; the target of {target} is not reached"
    return replace(found, why=Sentence(pattern, why=found.why or "", target=f"{rule.target:g}"))


def all_asked(unfinished: int, available: npt.NDArray[np.bool_], load: Floats) -> Standing:
    """Of so many items that are not finished, every annotator who is available has answered or skipped all, or may give
    no more votes (``load``: M, how many each may give)."""
    who = Sentence(
        "everybody available has voted or skipped, or may give no more votes"
        if (available & (load < 1.0)).any()
        else "everybody available has voted or skipped"
    )
    why = Sentence("{items} not finished, and {who}", items=counted(unfinished, *ITEMS), who=who)
    return Standing("exhausted", why, Sentence("To go on, {add}.", add=_more_people(available)))


def _unreachable(rule: StopRule, now: Situation) -> Standing:
    why = "the target of {target} is out of reach with these annotators: all votes that they can give are in"
    advice = Sentence("To go on, {add}, or lower the target.", add=_more_people(now.state.available))
    return Standing("out-of-reach", Sentence(why, target=f"{rule.target:g}"), advice)


def _more_people(available: npt.NDArray[np.bool_]) -> Sentence:
    away = int((~available).sum())
    both = "add annotators or make the {n} who are not available so"
    return Sentence(both, n=f"{away:,}") if away else Sentence("add annotators")


def _finishes(rule: StopRule) -> Sentence:
    """What finishes an item."""
    parts = [
        None if rule.probability is None else Sentence("a class with probability {p}", p=f"{rule.probability:g}"),
        None if rule.stake is None else Sentence("no vote that is worth its price"),
        None if rule.max_votes is None else counted(rule.max_votes, "{n} vote", "{n} votes"),
    ]
    first, *rest = [part for part in parts if part is not None] or [Sentence("")]
    for one in rest:
        first = Sentence("{one} or {other}", one=first, other=one)
    return first


QUESTIONS, ITEMS = ("{n} question is", "{n} questions are"), ("{n} item is", "{n} items are")
NO_OTHER = "{questions} out, and no other can be asked"


def counted(n: int, one: str, several: str) -> Sentence:
    """How many there are, in the form for one or for several."""
    return Sentence(one if n == 1 else several, n=f"{n:,}")


def status_of(rule: StopRule, now: Situation, online: Online) -> dict[str, Any]:
    """Counts, money, the estimated accuracy, and the status of a campaign."""
    out: dict[str, Any] = {
        "items": len(now.shut), "closed": int(now.shut.sum()), "annotators": len(now.state.available),
        "spent": now.spent, "budget": rule.budget, "asked": now.n_awaited,
        "finished": int((now.finished & (now.state.votes_per_item > 0)).sum()), "voted_on": 0, "target": rule.target,
        "probability": rule.probability, "max_error": rule.max_error, "proof": proof_status(rule, now),
        "accuracy": None, "accuracy_low": None, "accuracy_high": None,
        "accuracy_known": False, "reachable": None,
    }  # fmt: skip
    found = None
    if online.store.n_votes:
        found = estimate_accuracy(online)
        out |= {"accuracy": found.accuracy, "accuracy_low": found.low, "accuracy_high": found.high}
        out |= {"accuracy_known": found.known, "voted_on": len(online.store.items)}
        if found.known and now.state.available.any():
            out["reachable"] = reachable_accuracy(now.state, online.shown_dependence())
    standing = find_standing(rule, now, online, found).warned(rule, out["reachable"])
    return out | {"state": standing.state, "stop": standing.why, "advice": standing.advice}


def proof_status(rule: StopRule, now: Situation) -> dict[str, Any] | None:
    """Gold labels that prove how many labels are wrong: those drawn and known, the looks, and what is missing."""
    if rule.max_error is None:
        return None
    proof = now.proof
    return {
        "drawn": len(proof.drawn), "known": len(proof.known), "looks": len(proof.looks),
        "needed": gold_to_stop(rule, len(now.state.gold)),
        "proven": proof.sentence(now.at), "missing": now.why_no_look(rule),
    }  # fmt: skip


def reachable_accuracy(state: State, found: Dependence) -> float:
    """The expected accuracy of the labels if everybody available voted on every item, from what is stated of them now
    (:mod:`crowdwise.active.votes_ahead`). A target above it is out of reach."""
    people = np.flatnonzero(state.available)
    crowd = acquisition.mean(state.dirichlet[people]).mean(axis=0)
    after = np.maximum(state.votes_per_item, len(people))
    right = more_votes(state.corrected, state.votes_per_item, after, crowd, found, np.random.default_rng(0))
    return float(right[~state.gold].mean()) if (~state.gold).any() else 1.0
