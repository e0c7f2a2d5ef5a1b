"""A campaign: questions go out, votes come in, until the labels are good enough or the budget is spent.

A campaign is a folder with a journal (:mod:`crowdwise.active.journal`) and snapshots of the model. Names become codes
where votes come in (:mod:`crowdwise.active.intake`); the journal, the vote store and the stream hold codes, and names
are looked up again for what is shown. The model is a function of the journal (:mod:`crowdwise.active.journal_stream`).
Threads and processes may share a campaign.

``add`` is all or nothing and may be repeated: a vote is identified by its id, and counts once. ``propose`` notes what
it hands out, so that two who ask at once are not sent the same question; a question that is not answered within
``patience`` is handed out again.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np

from crowdwise.active.canonical import name_text, one_kind
from crowdwise.active.fair_assignment import Gap, propose_fairly
from crowdwise.active.intake import Receipt, add_votes, class_code
from crowdwise.active.journal import Journal
from crowdwise.active.journal_stream import JournalStream
from crowdwise.active.proposals import Proposal
from crowdwise.active.questions import OpenQuestions, Question
from crowdwise.active.roster import Roster
from crowdwise.active.snapshots import Snapshots
from crowdwise.active.state import Pairs, State
from crowdwise.active.stopping import AccuracyEstimate, Probability, StopRule, estimate_accuracy
from crowdwise.active.strategies import DEFAULT, Strategy, find_strategy
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Check, Count, CountFromZero, Positive, RandomState, checked, fixed_seed
from crowdwise.core.model import EMModel
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, NotFittedError, OutputError, ParameterError
from crowdwise.online.stream import Online

NO_VOTES = "No votes have come in yet: hand some over with campaign.add(votes), or crowdwise campaign add."

__all__ = ["Campaign", "Question", "Receipt"]


def _differ(names: Any) -> bool:
    try:
        texts = [name_text(name, "class", booleans=True) for name in names]
        one_kind(texts, "classes")
    except InputError:
        return False
    return len(texts) >= 2 and len(set(texts)) == len(texts)


F = TypeVar("F", bound=Callable[..., Any])
Classes = Annotated[Sequence[Any], Check(_differ, "two or more different classes, all text, integers or booleans")]


def alone(method: F) -> F:
    """A method that one thread at a time is in."""

    @wraps(method)
    def locked(self: Campaign, *given: Any, **named: Any) -> Any:
        with self._lock:
            return method(self, *given, **named)

    return locked  # type: ignore[return-value]


class Campaign:
    """An open campaign: make one with :meth:`create`, open it again with :meth:`open`.

    >>> import crowdwise as cw, tempfile
    >>> folder = tempfile.mkdtemp() + "/birds"
    >>> campaign = cw.Campaign.create(folder, cw.OneCoin(), classes=["wren", "robin"], items=["a", "b"],
    ...                               annotators={"ann": 1.0, "bob": 0.5}, budget=10)
    >>> campaign.add([("a", "ann", "wren"), ("a", "bob", "wren"), ("b", "ann", "robin")])
    Receipt(added=3, repeated=0)
    >>> [(q.item, q.annotator) for q in campaign.propose(1)]
    [('b', 'bob')]
    >>> campaign.status()["spent"]
    2.5
    """

    def __init__(self, folder: Path, journal: Journal, model: EMModel) -> None:
        self.folder, self.journal, self.model = folder, journal, model
        self.facts = journal.facts()
        self.classes: list[Any] = self.facts["classes"]
        with journal.decoding():
            self.rule, self.strategy = StopRule(**self.facts["rule"]), Strategy(**self.facts["strategy"])
        self.roster, self.open_questions = Roster(journal), OpenQuestions(journal)
        self.stream = JournalStream(
            journal, self.roster, Snapshots(folder, model), lambda: self.strategy.stream(model, self.classes)
        )
        self._lock = threading.RLock()

    @classmethod
    @checked
    def create(
        cls,
        folder: str | os.PathLike[str],
        model: EMModel,
        *,
        classes: Classes,
        items: Iterable[Any] = (),
        annotators: Mapping[Any, float] | Iterable[Any] = (),
        price: Positive = 1.0,
        budget: Positive | None = None,
        target: Probability | None = None,
        rule: StopRule | None = None,
        gold: Mapping[Any, Any] | None = None,
        groups: Mapping[Any, Any] | None = None,
        gap: Gap | None = None,
        strategy: str | Strategy = DEFAULT,
        unknown: Literal["error", "add"] = "error",
        patience: Positive = 3600.0,
        random_state: RandomState = 0,
    ) -> Self:
        """Make a new campaign.

        Parameters
        ----------
        folder
            Where it is kept; there must be nothing there yet.
        model
            A model that can follow a stream.
        classes
            All classes: a vote for another is refused.
        items, gold
            The items to be labelled, and the classes of those that are known; more can be added later.
        annotators
            Who labels: names, or names with the price of a vote.
        price
            The price of a vote where none is given.
        budget, target
            Stop when so much is spent, or when the labels are so accurate; :class:`StopRule` has more (``rule``).
        groups, gap
            Item -> its group (those of no group are left out), and the largest gap between the expected errors of any
            two groups that questions should lead to (:mod:`crowdwise.active.fair_assignment`).
        strategy
            A strategy or its name.
        unknown
            Votes on items or by annotators that were not declared: an ``"error"``, or ``"add"`` them.
        patience
            Seconds after which a question that was not answered is asked of somebody else.
        random_state
            Of all random choices.
        """
        folder = Path(folder)
        if gap is not None and len({name_text(group, "group", booleans=True) for group in (groups or {}).values()}) < 2:
            raise ParameterError("A gap is between groups: give groups={item: group} with two of them at least.")
        if rule is not None and (budget is not None or target is not None):
            raise ParameterError("Give budget and target with the rule: StopRule(budget=..., target=...).")
        chosen = rule or StopRule(budget=budget, target=target)
        Online(model, classes=classes)  # raises an error where the model cannot follow a stream
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise OutputError(f"{folder} is there already and holds something: choose another folder.")
        facts = {
            "classes": [json.loads(name_text(name, "class", booleans=True)) for name in classes],
            "rule": chosen.get_params(), "strategy": find_strategy(strategy).get_params(),
            "unknown": unknown, "patience": float(patience), "price": float(price), "seed": fixed_seed(random_state),
            "proposals": 0, "method": model.key, "gap": gap,
        }  # fmt: skip
        people = dict(annotators) if isinstance(annotators, Mapping) else dict.fromkeys(annotators, price)
        made = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            campaign = cls(folder, Journal.create(folder / "campaign.db", facts), model)
            known = campaign._class_codes(gold)
            with campaign.journal.writing():
                campaign.roster.add_items(items, known, groups or {})
                campaign.roster.set_prices(people)
        except BaseException:
            for left in folder.glob("campaign.db*"):
                left.unlink()
            if made:
                folder.rmdir()
            raise
        return campaign

    @classmethod
    def open(cls, folder: str | os.PathLike[str], model: EMModel) -> Self:
        """Open a campaign; ``model`` must be like the one that it was made with."""
        folder = Path(folder)
        journal = Journal.open(folder / "campaign.db")
        made_with = journal.facts()["method"]
        if model.key != made_with:
            raise ParameterError(f"{folder} was made with {made_with}: open it with that, not with {model.key}.")
        return cls(folder, journal, model)

    @alone
    def close(self) -> None:
        """Save a snapshot of the model and close the files."""
        try:
            self.stream.follow()
            self.stream.save()
        finally:
            self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.journal.close()

    @alone
    def add_items(
        self, items: Iterable[Any], gold: Mapping[Any, Any] | None = None, groups: Mapping[Any, Any] | None = None
    ) -> int:
        """Declare more items, with their classes where these are known (questions that test) and their groups; how many
        are new. Classes and groups may be of earlier items, too; of unknown items they are an error."""
        known = self._class_codes(gold)
        with self.journal.writing():
            return self.roster.add_items(items, known, groups or {})

    def _class_codes(self, gold: Mapping[Any, Any] | None) -> dict[Any, int]:
        return {item: class_code(label, item, self.classes) for item, label in (gold or {}).items()}

    @alone
    def add_annotators(self, annotators: Mapping[Any, float]) -> None:
        """Declare more annotators with the price of a vote, or change prices."""
        with self.journal.writing():
            self.roster.set_prices(annotators)

    @alone
    @checked
    def set_annotator(
        self, name: Any, *, available: bool | None = None, max_votes: CountFromZero | None = None
    ) -> None:
        """Say whether an annotator is available, and how many votes the annotator may give in all."""
        facts = {"available": available, "max_votes": max_votes}
        with self.journal.writing():
            self.roster.set_annotator(name, **{key: int(value) for key, value in facts.items() if value is not None})

    @alone
    def close_items(self, items: Iterable[Any], closed: bool = True) -> None:
        """Ask nothing more about some items, and refuse votes on them (or open them again)."""
        with self.journal.writing():
            self.roster.close_items(items, closed)

    @alone
    def add(self, votes: Any, ids: Sequence[Any] | None = None) -> Receipt:
        """Add votes, all or none.

        Parameters
        ----------
        votes
            :class:`~crowdwise.Votes`, or (item, annotator, class) for each.
        ids
            A name for each vote: a vote that is added twice with the same id counts once. By default a vote is
            identified by its item and annotator.
        """
        price = self.facts["price"] if self.facts["unknown"] == "add" else None
        return add_votes(self.roster, votes, ids, self.classes, price)

    @alone
    @checked
    def propose(self, n: Count) -> list[Question]:
        """The next questions, up to n, best first; none where the campaign should stop (:meth:`status` says why).

        What is handed out counts against the budget until it is answered or its time is over.
        """
        self.stream.follow()  # most of it before others have to wait
        with self.journal.writing():
            self.stream.follow()
            self.open_questions.expire(self.facts["patience"])
            if self._why_stop() is not None:
                return []
            number = self.journal.facts()["proposals"]
            state = self._state()
            proposal = self._proposal(state, n, [self.facts["seed"], number])
            if self.rule.budget is not None:
                left = self.rule.budget - self._spent() - self.open_questions.price()
                proposal = proposal[: int(np.searchsorted(np.cumsum(proposal.price), left * (1.0 + 1e-12), "right"))]
            self.open_questions.hand_out(proposal)
            self.journal.note(proposals=number + 1)
        items, people = state.item_names[proposal.item], state.annotator_names[proposal.annotator]
        columns = (items.tolist(), people.tolist(), proposal.price.tolist(), proposal.value.tolist())
        return [Question(*row) for row in zip(*columns, strict=True)]

    def _proposal(self, state: State, n: int, seed: list[int]) -> Proposal:
        """The proposal of the strategy, under the bound on the gap between groups where there is one."""
        groups = {} if self.facts["gap"] is None else self.roster.items_with("grp")
        with self.journal.decoding():
            groups = {code: json.loads(text) for code, text in groups.items()}
        if len(set(groups.values())) < 2:
            return self.strategy.propose(state, n, np.random.default_rng(seed))
        group = np.array([groups.get(code) for code in range(len(state.item_names))], dtype=object)
        random_state = int(np.random.SeedSequence(seed).generate_state(1)[0])
        state = state.replace(group=group)
        return propose_fairly(state, n, self.facts["gap"], self.strategy, random_state=random_state).proposal

    def _state(self) -> State:
        """The state of the stream; open questions count as if they were answered."""
        self.roster.refresh()
        N, M = len(self.roster.items), len(self.roster.annotators)
        people = self.journal.read("SELECT price, available, max_votes FROM annotators ORDER BY id LIMIT ?", (M,))
        with self.journal.decoding():
            price, available, max_votes = np.array(people, dtype=np.float64).reshape(-1, 3).T
            asked_item, asked_annotator = self.open_questions.pairs()
            if (asked_item >= N).any() or (asked_annotator >= M).any():
                raise ValueError("a question is of an item or an annotator that is not there")
            load = np.where(np.isnan(max_votes), np.inf, max_votes)
            if np.isfinite(load).any():
                given = dict(self.journal.read("SELECT annotator - 1, count(*) FROM votes GROUP BY annotator"))
                votes = np.bincount(asked_annotator, minlength=M) + [given.get(m, 0) for m in range(M)]
                load = np.maximum(load - votes, 0.0)
            closed = np.zeros(N, dtype=bool)
            closed[list(self.roster.items_with("closed"))] = True
        state = State.of(self.stream.online, price=price, available=available, load=load, closed=closed)
        gold = state.gold.copy()
        gold[list(self.roster.items_with("gold"))] = True
        voted = state.voted
        if len(asked_item):
            item, annotator = np.append(voted.item, asked_item), np.append(voted.annotator, asked_annotator)
            voted = Pairs.of(item, annotator, N)
        state = state.replace(gold=gold, voted=voted)
        waiting = np.zeros(N, dtype=bool)
        waiting[asked_item] = True  # one question at a time about an item
        return state.replace(closed=state.closed | (self.rule.finished(state) & ~state.gold) | waiting)

    @alone
    def consensus(self) -> Consensus:
        """The consensus of the votes so far."""
        online = self.stream.follow()
        if not online.store.n_votes:
            raise NotFittedError(NO_VOTES)
        return online.consensus()

    @alone
    def status(self) -> dict[str, Any]:
        """Counts, money, the accuracy as it is estimated without truth, and why to stop."""
        with self.journal.reading():
            online = self.stream.follow()
            out: dict[str, Any] = {
                "items": self.journal.count("items"), "closed": len(self.roster.items_with("closed")),
                "annotators": self.journal.count("annotators"), "votes": self.journal.count("votes"),
                "spent": self._spent(), "budget": self.rule.budget, "asked": len(self.open_questions),
                "method": self.model.key, "finished": 0, "voted_on": 0, "accuracy": None, "accuracy_low": None,
                "accuracy_high": None, "accuracy_known": False,
            }  # fmt: skip
            found = None
            if online.store.n_votes:
                found, state = estimate_accuracy(online), self._state()
                out |= {"accuracy": found.accuracy, "accuracy_low": found.low, "accuracy_high": found.high}
                out |= {"accuracy_known": found.known, "voted_on": found.items}
                out["finished"] = int((self.rule.finished(state) & (state.votes_per_item > 0)).sum())
            out["stop"] = self._why_stop(found)
        return out

    @alone
    def votes(self) -> Votes:
        """All votes of the journal, as a table."""
        with self.journal.reading():
            self.roster.refresh()
            rows, when, _ = self.roster.votes_after(0, "")
        if not len(rows):
            raise NotFittedError(NO_VOTES)
        _, item, annotator, label = rows.T
        items, annotators = self.roster.items.array()[item], self.roster.annotators.array()[annotator]
        columns = {"item": items.tolist(), "annotator": annotators.tolist(), "timestamp": when}
        columns["label"] = [self.classes[k] for k in label.tolist()]
        return Votes.from_frame(columns, classes=self.classes)

    def _why_stop(self, found: AccuracyEstimate | None = None) -> str | None:
        cheapest = self.journal.read("SELECT min(price) FROM annotators WHERE available = 1")[0][0]
        if cheapest is None:
            return "nobody is available"
        return self.rule.why_stop(self._spent() + self.open_questions.price(), cheapest, self.stream.online, found)

    def _spent(self) -> float:
        return float(self.journal.read("SELECT coalesce(sum(price), 0) FROM votes")[0][0])
