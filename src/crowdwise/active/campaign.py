"""A campaign: labels are asked for, come in, and are asked for again, until they are good enough or the money is spent.

A campaign is a folder. ``campaign.db`` is its book (:mod:`crowdwise.active.journal`); beside it lie pictures of the
model (``model-NUMBER``: as it was after so many votes). The book is the truth: a picture only saves time. A campaign
that is opened takes the latest picture it can read and lets the votes after it come in once more.

``add`` is all or nothing and may be repeated: a vote is known by its id, and counts once. ``propose`` notes what it
hands out, so that two who ask at once are not sent the same question; what is not answered within ``patience`` is
handed out again.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from crowdwise.active import intake
from crowdwise.active.fair_assignment import propose_fairly
from crowdwise.active.journal import Journal
from crowdwise.active.state import Beliefs, Pairs, Roster
from crowdwise.active.stopping import AccuracyEstimate, StopRule, estimate_accuracy
from crowdwise.active.strategy import DEFAULT, Proposal, Strategy, strategy
from crowdwise.core.consensus import Consensus
from crowdwise.core.model import EMModel
from crowdwise.data.votes import Votes
from crowdwise.errors import CrowdwiseError, InputError, NotFittedError, OutputError, ParameterError, listing
from crowdwise.online.stream import Online

BLOCK = 1_000
"""The most votes that the model takes in at once."""
PICTURE = 20_000
"""After so many votes a new picture of the model is kept."""
NO_VOTES = "No votes have come in yet: hand some over with campaign.add(votes), or crowdwise campaign add."

__all__ = ["Campaign", "Question", "Receipt"]


@dataclass(frozen=True)
class Receipt:
    """What became of votes that were added. All of it is on the disk."""

    added: int
    repeated: int
    """Votes that were there already, with the same id and the same content."""


@dataclass(frozen=True)
class Question:
    """Somebody to be asked about something."""

    item: Any
    annotator: Any
    price: float
    value: float
    """What the vote is expected to tell, in the strategy's own units."""


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
        self.folder, self.journal = folder, journal
        self.facts = journal.facts()
        self.classes: list[Any] = self.facts["classes"]
        self.rule = StopRule(**self.facts["rule"])
        self.strategy = Strategy(**self.facts["strategy"])
        self.model = model
        self._roster, self._people = Roster(what="items"), Roster(what="annotators")
        self._items = self._roster.names
        self._online, self._seen = self._recall()
        self._pictured = self._seen

    # ---------------------------------------------------------------- making and opening

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        model: EMModel,
        *,
        classes: Sequence[Any],
        items: Iterable[Any] = (),
        annotators: Mapping[Any, float] | Iterable[Any] = (),
        price: float = 1.0,
        budget: float | None = None,
        target: float | None = None,
        rule: StopRule | None = None,
        groups: Mapping[Any, Any] | None = None,
        gap: float | None = None,
        how: str | Strategy = DEFAULT,
        unknown: str = "error",
        patience: float = 3600.0,
        seed: int = 0,
    ) -> Self:
        """Make a new campaign.

        Parameters
        ----------
        folder
            Where it is kept; there must be nothing there yet.
        model
            A model that can follow a stream.
        classes
            All classes: a vote for anything else is refused.
        items
            What is to be labelled; more can be added later.
        annotators
            Who labels: names, or names with the price of a vote.
        price
            What a vote costs where no price is given.
        budget, target
            Stop when so much is spent, or when the labels are so accurate; see :class:`StopRule`, which says more
            (``rule``).
        groups, gap
            Item -> its group (those of no group are left out), and the largest gap between any two groups, in the share
            of labels expected to be wrong, that questions should lead to (:mod:`crowdwise.active.fair_assignment`).
        how
            A strategy or its name.
        unknown
            Votes on items or by annotators that were not declared: an ``"error"``, or ``"add"`` them.
        patience
            Seconds after which a question that was not answered is asked of somebody else.
        seed
            Of everything random.
        """
        folder = Path(folder)
        if unknown not in ("error", "add"):
            raise ParameterError(f"unknown={unknown!r}: expected 'error' or 'add'.")
        for name, value in (("price", price), ("patience", patience)):
            intake.check_amount(name, value)
        names = list(classes)
        if len(names) < 2 or len({json.dumps(c) for c in names}) < len(names):
            raise ParameterError(f"classes={names!r}: expected two or more different classes.")
        if gap is not None and not (isinstance(gap, (int, float)) and 0.0 <= gap < 1.0):
            raise ParameterError(f"gap={gap!r}: expected a share from 0 to below 1, or None.")
        if gap is not None and len({json.dumps(group) for group in (groups or {}).values()}) < 2:
            raise ParameterError("A gap is between groups: give groups={item: group} with two of them at least.")
        if rule is not None and (budget is not None or target is not None):
            raise ParameterError("Give budget and target with the rule: StopRule(budget=..., target=...).")
        chosen = rule or StopRule(budget=budget, target=target)
        if not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ParameterError(f"seed={seed!r}: expected a whole number of at least 0.")
        Online(model, classes=names)  # complains where the model cannot follow a stream
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise OutputError(f"{folder} is there already and holds something: choose another folder.")
        facts = {
            "classes": names, "rule": vars(chosen), "strategy": vars(strategy(how)), "unknown": unknown,
            "patience": float(patience), "price": float(price), "seed": int(seed), "proposals": 0,
            "method": model.key, "gap": gap,
        }  # fmt: skip
        people = {name: price for name in annotators} if not isinstance(annotators, Mapping) else dict(annotators)
        rows = intake.priced(people)
        made = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            campaign = cls(folder, Journal.create(folder / "campaign.db", facts), model)
            with campaign.journal.writing():
                campaign._insert_items(list(items))
                campaign.journal.write(
                    "UPDATE items SET grp = ? WHERE name = ?",
                    [(json.dumps(group), json.dumps(item)) for item, group in (groups or {}).items()],
                )
                campaign.journal.write("INSERT INTO annotators (name, price) VALUES (?, ?)", rows)
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

    def close(self) -> None:
        """Keep a picture of the model and let go of the files."""
        self._follow()
        self._keep_picture()
        self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------- what comes in

    def add_items(
        self, items: Iterable[Any], truth: Mapping[Any, Any] | None = None, groups: Mapping[Any, Any] | None = None
    ) -> int:
        """Declare more items, with their truth where it is known (questions that test) and their groups; how many are
        new."""
        names = list(items)
        with self.journal.writing():
            before = self.journal.read("SELECT count(*) FROM items")[0][0]
            self._insert_items(names)
            if truth:
                rows = [
                    (intake.class_code(label, item, self.classes), json.dumps(item)) for item, label in truth.items()
                ]
                self.journal.write("UPDATE items SET truth = ? WHERE name = ?", rows)
            return int(self.journal.read("SELECT count(*) FROM items")[0][0] - before)

    def add_annotators(self, annotators: Mapping[Any, float]) -> None:
        """Declare more annotators with the price of a vote, or change prices."""
        query = (
            "INSERT INTO annotators (name, price) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET price = excluded.price"
        )
        with self.journal.writing():
            self.journal.write(query, intake.priced(annotators))

    def set_annotator(self, name: Any, *, available: bool | None = None, most_votes: int | None = None) -> None:
        """Say whether somebody is there, and how many votes they may give in all."""
        if most_votes is not None and most_votes < 0:
            raise ParameterError(f"most_votes={most_votes!r}: expected a whole number of at least 0.")
        key = json.dumps(name)
        if not self.journal.read("SELECT 1 FROM annotators WHERE name = ?", (key,)):
            raise InputError(f"There is no annotator {name!r} in this campaign.")
        with self.journal.writing():
            if available is not None:
                self.journal.write("UPDATE annotators SET available = ? WHERE name = ?", [(int(available), key)])
            if most_votes is not None:
                self.journal.write("UPDATE annotators SET load = ? WHERE name = ?", [(most_votes, key)])

    def close_items(self, items: Iterable[Any], closed: bool = True) -> None:
        """Ask nothing more about some items, and refuse votes on them (or take them up again)."""
        rows = [(int(closed), json.dumps(item)) for item in items]
        with self.journal.writing():
            intake.numbers_of(self.journal, "items", [name for _, name in rows], "error", 0.0)
            self.journal.write("UPDATE items SET closed = ? WHERE name = ?", rows)

    def add(self, votes: Any, ids: Sequence[Any] | None = None) -> Receipt:
        """Take in votes, all or none.

        Parameters
        ----------
        votes
            :class:`~crowdwise.Votes`, or (item, annotator, class) for each.
        ids
            A name for each vote (not with :class:`~crowdwise.Votes`): a vote that is added twice with the same id
            counts once. By default a vote is known by its item and annotator.
        """
        rows = intake.rows_of(votes, ids)
        labels = [intake.class_code(label, item, self.classes) for item, _, label, _ in rows]
        with self.journal.writing():
            unknown, price = self.facts["unknown"], self.facts["price"]
            items = intake.numbers_of(self.journal, "items", [json.dumps(item) for item, *_ in rows], unknown, price)
            people = intake.numbers_of(
                self.journal, "annotators", [json.dumps(who) for _, who, *_ in rows], unknown, price
            )
            new, repeated = intake.new_among(self.journal, rows, items, people, labels)
            closed = {n for (n,) in self.journal.read("SELECT id FROM items WHERE closed = 1")}
            shut = [rows[i][0] for i in new if items[i] in closed]
            if shut:
                raise InputError(f"Votes on closed items: {listing(dict.fromkeys(shut))}. Nothing was added.")
            prices = dict(self.journal.read("SELECT id, price FROM annotators"))
            now = time.time()
            self.journal.write(
                "INSERT INTO votes (vote_id, item, annotator, label, price, time) VALUES (?, ?, ?, ?, ?, ?)",
                [(rows[i][3], items[i], people[i], labels[i], prices[people[i]], now) for i in new],
            )
            self.journal.write(
                "DELETE FROM asked WHERE item = ? AND annotator = ?", [(items[i], people[i]) for i in new]
            )
        return Receipt(len(new), repeated)

    # ---------------------------------------------------------------- what goes out

    def propose(self, n: int) -> list[Question]:
        """The next questions, up to n, best first; none where the campaign should stop (:meth:`status` says why).

        What is handed out counts against the budget until it is answered or its time is over.
        """
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
            raise ParameterError(f"n={n!r}: expected a whole number of at least 1.")
        self._follow()
        self._refresh_items()
        with self.journal.writing():
            self.journal.write("DELETE FROM asked WHERE time < ?", [(time.time() - self.facts["patience"],)])
            if self._why_stop() is not None:
                return []
            number = self.journal.facts()["proposals"]
            beliefs, people = self._beliefs()
            proposal = self._chosen(beliefs, n, [self.facts["seed"], number])
            keep = len(proposal)
            if self.rule.budget is not None:
                left = self.rule.budget - self._spent() - self._outstanding()
                keep = int(np.searchsorted(np.cumsum(proposal.price), left * (1.0 + 1e-12), side="right"))
            chosen = [(int(i), int(m)) for i, m in zip(proposal.item[:keep], proposal.annotator[:keep], strict=True)]
            now = time.time()
            self.journal.write(
                "INSERT INTO asked (item, annotator, time, price) VALUES (?, ?, ?, ?)",
                [(i + 1, people[m], now, float(beliefs.price[m])) for i, m in chosen],
            )
            self.journal.note(proposals=number + 1)
        return [
            Question(self._items[i], beliefs.annotator_names[m], float(beliefs.price[m]), float(value))
            for (i, m), value in zip(chosen, proposal.value, strict=False)
        ]

    def _chosen(self, beliefs: Beliefs, n: int, seed: list[int]) -> Proposal:
        """What the strategy proposes, groups kept together where that was asked for."""
        if self.facts["gap"] is None:
            return self.strategy.propose(beliefs, n, np.random.default_rng(seed))
        named = {number: json.loads(group) for number, group in self.journal.read(
            "SELECT id, grp FROM items WHERE grp IS NOT NULL"
        )}  # fmt: skip
        if len(set(named.values())) < 2:
            return self.strategy.propose(beliefs, n, np.random.default_rng(seed))
        group = np.array([named.get(number + 1) for number in range(len(self._items))], dtype=object)
        state = int(np.random.SeedSequence(seed).generate_state(1)[0])
        found = propose_fairly(beliefs.having(group=group), n, self.facts["gap"], self.strategy, random_state=state)
        return found.proposal

    def _beliefs(self) -> tuple[Beliefs, list[int]]:
        """What is known; questions that were handed out count as if they were answered."""
        people = self.journal.read("SELECT id, name, price, available, load FROM annotators ORDER BY id")
        self._people.extend(
            [json.loads(name) for _, name, *_ in people[len(self._people) :]]
        )  # never fewer than before
        place = {number: m for m, (number, *_) in enumerate(people)}
        given = dict(self.journal.read("SELECT annotator, count(*) FROM votes GROUP BY annotator"))
        asked = self.journal.read("SELECT item, annotator FROM asked")
        for _, who in asked:
            given[who] = given.get(who, 0) + 1
        load = [np.inf if most is None else max(most - given.get(number, 0), 0) for number, _, _, _, most in people]
        closed = np.zeros(len(self._items), dtype=bool)
        shut = self.journal.read("SELECT id FROM items WHERE closed = 1")
        closed[[n - 1 for (n,) in shut]] = True
        beliefs = Beliefs.of(
            self._online,
            items=self._roster,
            annotators=self._people,
            price=[price for _, _, price, _, _ in people],
            available=[bool(there) for _, _, _, there, _ in people],
            load=load,
            closed=closed,
        )
        gold = beliefs.gold.copy()
        gold[[n - 1 for (n,) in self.journal.read("SELECT id FROM items WHERE truth IS NOT NULL")]] = True
        beliefs = beliefs.having(gold=gold)
        if asked:
            item = np.repeat(np.arange(len(self._items)), np.diff(beliefs.done.indptr))
            pending = np.array([(n - 1, place[who]) for n, who in asked], dtype=np.int64)
            both = np.concatenate([item, pending[:, 0]]), np.concatenate([beliefs.done.annotator, pending[:, 1]])
            beliefs = beliefs.having(done=Pairs.of(*both, len(self._items)))
        settled = self.rule.settled(beliefs)
        waiting = np.zeros(len(self._items), dtype=bool)
        waiting[[n - 1 for n, _ in asked]] = True  # one question at a time about an item
        return beliefs.having(closed=beliefs.closed | (settled & ~beliefs.gold) | waiting), [n for n, *_ in people]

    # ---------------------------------------------------------------- what is known

    def consensus(self) -> Consensus:
        """What the votes so far say."""
        self._follow()
        if not self.journal.read("SELECT count(*) FROM votes")[0][0]:
            raise NotFittedError(NO_VOTES)
        return self._online.consensus()

    def status(self) -> dict[str, Any]:
        """How far it is: counts, money, the accuracy as it is estimated without truth, and why to stop."""
        self._follow()
        self._refresh_items()
        items = len(self._items)
        (closed,) = self.journal.read("SELECT count(*) FROM items WHERE closed = 1")[0]
        people, votes = (self.journal.read(f"SELECT count(*) FROM {table}")[0][0] for table in ("annotators", "votes"))
        out: dict[str, Any] = {
            "items": items, "closed": closed, "annotators": people, "votes": votes, "spent": self._spent(),
            "budget": self.rule.budget, "asked": self.journal.read("SELECT count(*) FROM asked")[0][0],
            "method": self.model.key, "settled": 0, "accuracy": None, "accuracy_low": None, "accuracy_high": None,
            "accuracy_known": False,
        }  # fmt: skip
        found = None
        if self._online.ledger.n_votes and items:
            found = estimate_accuracy(self._online)
            beliefs, _ = self._beliefs()
            out |= {"accuracy": found.accuracy, "accuracy_low": found.low, "accuracy_high": found.high}
            out |= {"accuracy_known": found.known, "voted_on": found.items}
            out["settled"] = int((self.rule.settled(beliefs) & (beliefs.votes_per_item > 0)).sum())
        else:
            out["voted_on"] = 0
        out["stop"] = self._why_stop(found)
        return out

    def votes(self) -> Votes:
        """All votes of the book, as a table."""
        rows = self.journal.read(
            "SELECT i.name, a.name, v.label, v.time FROM votes v JOIN items i ON i.id = v.item "
            "JOIN annotators a ON a.id = v.annotator ORDER BY v.id"
        )
        if not rows:
            raise NotFittedError(NO_VOTES)
        columns = {
            "item": [json.loads(r[0]) for r in rows],
            "annotator": [json.loads(r[1]) for r in rows],
            "label": [self.classes[r[2]] for r in rows],
            "timestamp": [r[3] for r in rows],
        }
        return Votes.from_frame(columns, classes=self.classes)

    def _why_stop(self, found: AccuracyEstimate | None = None) -> str | None:
        cheapest = self.journal.read("SELECT min(price) FROM annotators WHERE available = 1")[0][0]
        if cheapest is None:
            return "nobody is available"
        return self.rule.why_stop(self._spent() + self._outstanding(), cheapest, self._online, found)

    def _spent(self) -> float:
        return float(self.journal.read("SELECT coalesce(sum(price), 0) FROM votes")[0][0])

    def _outstanding(self) -> float:
        return float(self.journal.read("SELECT coalesce(sum(price), 0) FROM asked")[0][0])

    # ---------------------------------------------------------------- the model follows the book

    def _follow(self) -> None:
        """Let the model take in what was written since it last looked."""
        rows = self.journal.votes_after(self._seen, BLOCK)
        if not rows:
            return
        self._refresh_items()
        people = {number: json.loads(name) for number, name in self.journal.read("SELECT id, name FROM annotators")}
        known = dict(self.journal.read("SELECT id, truth FROM items WHERE truth IS NOT NULL"))
        while rows:
            some = Votes.from_records(
                [(self._items[n - 1], people[m], self.classes[k]) for _, n, m, k in rows], classes=self.classes
            )
            truth = {self._items[n - 1]: self.classes[known[n]] for _, n, _, _ in rows if n in known}
            self._online.partial_fit(some, gold=truth or None)
            self._seen = rows[-1][0]
            if self._seen - self._pictured >= PICTURE:
                self._keep_picture()
            rows = self.journal.votes_after(self._seen, BLOCK)

    def _recall(self) -> tuple[Online, int]:
        """The model as the latest readable picture has it, and the number of its last vote."""
        pictures = sorted(
            (int(p.name.partition("-")[2]), p) for p in self.folder.glob("model-*") if p.name[6:].isdigit()
        )
        (last,) = self.journal.read("SELECT coalesce(max(id), 0) FROM votes")[0]
        for number, path in reversed(pictures):
            try:
                if number <= last:
                    return Online.load(path, self.model), number
            except CrowdwiseError:  # a damaged picture costs time, no votes
                continue
        return self.strategy.stream(self.model, self.classes), 0

    def _keep_picture(self) -> None:
        if self._seen > self._pictured:
            self._online.save(self.folder / f"model-{self._seen}")
            old = sorted(int(p.name[6:]) for p in self.folder.glob("model-*") if p.name[6:].isdigit())[:-2]
            for number in old:
                shutil.rmtree(self.folder / f"model-{number}", ignore_errors=True)
            self._pictured = self._seen

    # ---------------------------------------------------------------- names

    def _insert_items(self, names: list[Any]) -> None:
        self.journal.write("INSERT OR IGNORE INTO items (name) VALUES (?)", [(json.dumps(name),) for name in names])

    def _refresh_items(self) -> None:
        """The names of all items, of which item number n is the (n - 1)th: new ones are read, old ones never change."""
        rows = self.journal.read("SELECT name FROM items WHERE id > ? ORDER BY id", (len(self._items),))
        self._roster.extend([json.loads(name) for (name,) in rows])
