"""A campaign: questions go out, votes come in, until the labels are good enough or the budget is spent.

A campaign is a folder with a journal (:mod:`crowdwise.store.journal`) and snapshots of the model, which is a function
of the journal (:mod:`crowdwise.store.vote_stream`). Names become codes where votes come in, and are looked up again for
what is shown. Threads and processes may share a campaign: two who ask at once are not sent the same question.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import wraps
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import numpy as np

from crowdwise import registry
from crowdwise.active.end_state import Situation, Standing, find_standing, proof_status, status_of
from crowdwise.active.fair_assignment import Gap
from crowdwise.active.stopping import Probability, Proof, StopRule
from crowdwise.active.strategies import DEFAULT, Strategy, find_strategy
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Count, CountFromZero, Positive, RandomState, checked, fixed_seed
from crowdwise.core.model import EMModel
from crowdwise.data.folders import PREFIX
from crowdwise.data.votes import Votes
from crowdwise.errors import NotFittedError, OutputError, ParameterError, Remedy, several_names
from crowdwise.online.stream import Online
from crowdwise.store.asking import Asking, Question
from crowdwise.store.canonical import name_text
from crowdwise.store.intake import UNKNOWN, Receipt, add_votes, class_codes
from crowdwise.store.journal import Journal
from crowdwise.store.roster import NO_VOTES, Roster
from crowdwise.store.settings import Classes, Settings, are_classes, change_settings, kept_params
from crowdwise.store.vote_stream import JournalStream, Snapshots

F = TypeVar("F", bound=Callable[..., Any])


def one_at_a_time(method: F) -> F:
    """A method of something with a ``lock`` that one thread at a time is in."""

    @wraps(method)
    def locked(self: Any, *args: Any, **options: Any) -> Any:
        with self.lock:
            return method(self, *args, **options)

    return locked  # type: ignore[return-value]


__all__ = ["Campaign", "Question", "Receipt"]


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
        self.classes: list[Any] = journal.facts()["classes"]
        with journal.decoding():
            if not are_classes(self.classes):
                raise ValueError("its classes are not as they were written")
        strategy = self.settings.strategy  # it never changes
        self.roster = Roster(journal)
        self.asking = Asking(journal, self.roster)
        self.stream = JournalStream(
            journal, self.roster, Snapshots(folder, model), lambda: strategy.stream(model, self.classes)
        )
        self.lock = threading.RLock()

    @property
    def settings(self) -> Settings:
        """The settings as the journal has them now: others may have changed them."""
        return Settings.of(self.journal)

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
            Seconds after which a question that was not answered is asked of another annotator.
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
        if folder.exists() and (not folder.is_dir() or any(not x.name.startswith(PREFIX) for x in folder.iterdir())):
            raise OutputError(f"{folder} is there already and holds something: choose another folder.")
        facts: dict[str, Any] = {
            "classes": [json.loads(name_text(name, "class", booleans=True)) for name in classes],
            "rule": chosen.get_params(), "strategy": find_strategy(strategy).get_params(),
            "unknown": unknown, "patience": float(patience), "price": float(price), "seed": fixed_seed(random_state),
            "proposals": 0, "method": model.key, "params": kept_params(model), "gap": gap,
        }  # fmt: skip
        items = several_names(items, "items")
        people = _with_prices(annotators, price)
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)

        def fill(journal: Journal) -> None:
            known, roster = class_codes(gold, facts["classes"]), Roster(journal)
            with journal.writing():
                roster.add_items(items, known, groups or {})
                roster.set_prices(people)

        try:
            journal = Journal.create(folder / "campaign.db", facts, fill)
        except BaseException:
            if is_new:
                with suppress(OSError):  # what a killed process left is in it
                    folder.rmdir()
            raise
        return cls(folder, journal, model)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], model: EMModel | None = None) -> Self:
        """Open a campaign, with the model that it was made with. A ``model`` that is given must be like that one."""
        folder = Path(folder)
        journal = Journal.open(folder / "campaign.db")
        facts = journal.facts()
        made_with, params = facts["method"], facts.get("params", {})
        if model is not None and model.key != made_with:
            raise ParameterError(f"{folder} was made with {made_with}: open it with that, not with {model.key}.")
        with journal.decoding():
            kept = registry.create(made_with, **params)
        if model is not None and "params" in facts and kept_params(model) != kept_params(kept):
            raise ParameterError(f"{folder} was made with {kept!r}: open it with that, not with {model!r}.")
        return cls(folder, journal, kept if model is None else model)

    @one_at_a_time
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

    @one_at_a_time
    def add_items(
        self, items: Iterable[Any], gold: Mapping[Any, Any] | None = None, groups: Mapping[Any, Any] | None = None
    ) -> int:
        """Declare more items, with their classes where these are known (questions that test) and their groups; how many
        are new. Classes and groups may be of earlier items, too; of unknown items they are an error."""
        items, known = several_names(items, "items"), class_codes(gold, self.classes)
        with self.journal.writing():
            new = self.roster.add_items(items, known, groups or {})
            self.journal.log("add items", {"new": new, "gold": len(known), "groups": len(groups or {})})
        return new

    @one_at_a_time
    def add_annotators(self, annotators: Mapping[Any, float] | Iterable[Any]) -> int:
        """Declare more annotators (names, or names with the price of a vote), or change prices; how many are new."""
        with self.journal.writing():
            before = self.journal.count("annotators")
            annotators = _with_prices(annotators, self.settings.price)
            self.roster.set_prices(annotators)
            self.journal.log("annotators", {str(name): {"price": price} for name, price in annotators.items()})
            return self.journal.count("annotators") - before

    @one_at_a_time
    @checked
    def set_annotator(
        self,
        name: Any,
        *,
        available: bool | None = None,
        max_votes: CountFromZero | None = None,
        price: Positive | None = None,
    ) -> None:
        """Say whether an annotator is available, how many votes the annotator may give in all, and what a vote costs
        from now on."""
        columns = {"available": (int, available), "max_votes": (int, max_votes), "price": (float, price)}
        changes: dict[str, Any] = {name: kind(value) for name, (kind, value) in columns.items() if value is not None}
        with self.journal.writing():
            for column, value in changes.items():
                self.roster.update("annotators", column, {name: value})
            self.journal.log("annotators", {str(name): changes})

    @one_at_a_time
    def close_items(self, items: Iterable[Any], closed: bool = True) -> None:
        """Ask nothing more about some items, and refuse votes on them (or open them again)."""
        items = several_names(items, "items")
        with self.journal.writing():
            self.roster.update("items", "closed", dict.fromkeys(items, int(closed)))
            self.journal.log("close items" if closed else "reopen items", [str(item) for item in items])

    @one_at_a_time
    def change(self, **settings: Any) -> dict[str, tuple[Any, Any]]:
        """Change settings of the running campaign; the change is in the journal, and other processes see it.

        Parameters
        ----------
        **settings
            ``budget``, ``target``, ``max_error``, ``confidence``, ``probability``, ``stake``, ``min_votes`` and
            ``max_votes`` (of an item) of the :class:`StopRule`; ``patience``, ``gap``, and the ``price`` of a vote
            where none is given (prices of annotators: :meth:`set_annotator`). ``None`` takes a limit away.

        Returns
        -------
        Name -> (before, now) of what is different.
        """
        with self.journal.writing():
            return change_settings(self.journal, settings)

    @one_at_a_time
    def history(self) -> list[dict[str, Any]]:
        """What was changed since the campaign was made: ``time`` (seconds since 1970), ``what`` and its ``detail``."""
        return [{"time": t, "what": what, "detail": detail} for t, what, detail in self.journal.changes()]

    @one_at_a_time
    def add(self, votes: Any, ids: Sequence[Any] | None = None) -> Receipt:
        """Add votes, all or none.

        Parameters
        ----------
        votes
            :class:`~crowdwise.Votes`, a dataframe or a dict of columns (item, annotator, label, as they are called in
            files), or for each vote a dict with these keys or (item, annotator, class).
        ids
            A name for each vote: a vote that is added twice with the same id counts once. By default the column
            ``vote_id`` of ``votes``; without one, a vote is identified by its item and annotator.
        """
        return add_votes(self.roster, votes, ids, self.classes, self.settings.price_of_unknown)

    @one_at_a_time
    @checked
    def propose(self, n: Count) -> list[Question]:
        """The next questions, up to n, best first; none where there are none now (:meth:`status` says why).

        What is handed out counts against the budget until it is answered, released, or its time is over.
        """
        self.stream.follow()  # most of it before others have to wait
        with self.journal.writing():
            settings, now = self._now()
            if find_standing(settings.rule, now, self.stream.online).state != "running":
                return []
            return self.asking.propose(now, settings, self.stream.online, n)

    @one_at_a_time
    @checked
    def next_for(self, annotator: Any, n: Count = 1) -> list[Question]:
        """What one annotator should do now, up to n questions: those that are out already, then new ones, best first.

        Asking again (a page that is loaded again) gives the same questions until they are answered, skipped or
        released. An annotator who is not known is an error, or is added (``unknown="add"``).
        """
        self.stream.follow()
        with self.journal.writing():  # a transaction of its own: the names below are those that are there
            (text,) = self.roster.written("annotators", [annotator])
            who = self.roster.codes("annotators", [text], self.settings.price_of_unknown, UNKNOWN)[text]
        with self.journal.writing():
            settings, now = self._now()
            open_ = self.asking.questions(now.state, settings, who)[:n]
            self.asking.renew(who)
            if len(open_) == n or find_standing(settings.rule, now, self.stream.online).state != "running":
                return open_
            return open_ + self.asking.propose(now, settings, self.stream.online, n - len(open_), who)

    @one_at_a_time
    def standing(self, annotator: Any = None) -> Standing:
        """The status: its ``state``, ``why`` there is no question now (for anybody, or for one annotator)
        and ``advice``. It is quicker than :meth:`status`."""
        with self._deciding() as (settings, online, now):
            standing = find_standing(settings.rule, now, online)
            if standing.ended or annotator is None:
                return standing
            who = self.roster.find("annotators", [annotator])[0]
            return replace(standing, why=now.why_not(who, settings.rule, standing.why))

    def why_none(self, annotator: Any = None) -> str | None:
        """Why there is no question now, for anybody or for one annotator; ``None`` where there is one."""
        return self.standing(annotator).why

    @one_at_a_time
    def questions(self, annotator: Any = None) -> list[Question]:
        """The open questions, of all annotators or of one: they are handed out and not answered yet."""
        with self.journal.reading():
            self.stream.follow()
            who = None if annotator is None else self.roster.find("annotators", [annotator])[0]
            settings = self.settings
            return self.asking.questions(self.asking.situation(self.stream.online, settings).state, settings, who)

    @one_at_a_time
    def release(self, annotator: Any = None, items: Iterable[Any] | None = None) -> int:
        """Take back open questions of an annotator, about some items, or both, so that others can be asked; how many
        there were. The annotator may be asked again."""
        if annotator is None and items is None:
            raise ParameterError(
                "Say what is released: the questions of an annotator, about items, or both.",
                remedy=Remedy(
                    "Give annotator='...' or items=[...].", command="Give --annotator NAME, or the names of items."
                ),
            )
        with self.journal.writing():
            who = None if annotator is None else self.roster.find("annotators", [annotator])[0]
            codes = None if items is None else self.roster.find("items", several_names(items, "items"))
            return self.asking.release(codes, who)

    @one_at_a_time
    def skip(self, annotator: Any, items: Iterable[Any], skipped: bool = True) -> None:
        """Never ask an annotator about some items again (or ask again); a vote that comes all the same counts."""
        items = several_names(items, "items")
        with self.journal.writing():
            who = self.roster.find("annotators", [annotator])[0]
            self.asking.skip(self.roster.find("items", items), who, skipped)
            self.journal.log("skip" if skipped else "ask again", {str(annotator): [str(item) for item in items]})

    def _now(self) -> tuple[Settings, Situation]:
        """The settings, and who can be asked about what; inside :meth:`Journal.writing`."""
        settings, online = self.settings, self.stream.follow()
        self.asking.expire(settings.patience)
        return settings, self._looked(settings, online)

    def _looked(self, settings: Settings, online: Online) -> Situation:
        """Eligible pairs; where a look at the gold labels of a proof is due, it is noted (:meth:`_deciding`)."""
        now = self.asking.situation(online, settings)
        if self.journal.read_only or not now.look_due(settings.rule):
            return now
        proof = now.proof.looked(settings.rule, online, now.state.gold, now.at)
        self.journal.note(proof=proof.facts())
        self.journal.log("look at gold", {"look": len(proof.looks), **asdict(proof.looks[-1])})
        return replace(now, proof=proof)

    @contextmanager
    def _deciding(self) -> Iterator[tuple[Settings, Online, Situation]]:
        """A transaction in which a look at gold labels can be noted, where the campaign may stop by one."""
        looks = self.settings.rule.max_error is not None and not self.journal.read_only
        with self.journal.writing() if looks else self.journal.reading():
            settings, online = self.settings, self.stream.follow()
            yield settings, online, self._looked(settings, online)

    @one_at_a_time
    @checked
    def draw_for_gold(self, n: Count = 100, random_state: RandomState = None) -> list[Any]:
        """Draw n items at random, of all whose class is not known. Their gold labels (:meth:`prove`) are never shown to
        the model and prove how many labels are wrong (``max_error``). Each call is a new draw, in place of the last.
        """
        with self.journal.writing():
            now = self.asking.situation(self.stream.follow(), self.settings)
            proof = now.proof.drawn_anew(n, now.state.gold, np.random.default_rng(random_state))
            self.journal.note(proof=proof.facts())
            self.journal.log("draw for gold", {"draw": proof.draw, "items": n})
            return [self.roster.items.names[code] for code in proof.drawn]

    @one_at_a_time
    def prove(self, gold: Mapping[Any, Any]) -> dict[str, Any] | None:
        """Hand in gold labels of items that were drawn (:meth:`draw_for_gold`); all of them are needed before labels
        are compared with them. What is then known, as in :meth:`status`."""
        known = class_codes(gold, self.classes)
        with self.journal.writing():
            codes = self.roster.find("items", list(known))
            proof = Proof.of(self.journal.facts().get("proof")).with_gold(dict(zip(codes, known.values(), strict=True)))
            self.journal.note(proof=proof.facts())
            self.journal.log("gold of a draw", {"draw": proof.draw, "labels": len(known)})
            settings = self.settings
            return proof_status(settings.rule, self._looked(settings, self.stream.follow()))

    @one_at_a_time
    def consensus(self) -> Consensus:
        """The consensus of the votes so far."""
        online = self.stream.follow()
        if not online.store.n_votes:
            raise NotFittedError(NO_VOTES)
        return online.consensus()

    @one_at_a_time
    def status(self) -> dict[str, Any]:
        """Counts, money, the accuracy as it is estimated without truth, and its status: its ``state``
        (:mod:`crowdwise.active.end_state`), why it stops (``stop``), and what would let it go on (``advice``)."""
        with self._deciding() as (settings, online, now):
            counts = {"votes": self.journal.count("votes"), "method": self.model.key}
            return counts | status_of(settings.rule, now, online)

    @one_at_a_time
    def votes(self) -> Votes:
        """All votes of the journal, as a table."""
        with self.journal.reading():
            return self.roster.votes_table(self.classes)


def _with_prices(annotators: Mapping[Any, float] | Iterable[Any], price: float) -> dict[Any, float]:
    """Annotators with the price of a vote; that of the campaign where they are names alone."""
    if isinstance(annotators, Mapping):
        return dict(annotators)
    return dict.fromkeys(several_names(annotators, "annotators"), price)
