"""The items and annotators of a campaign: their names, in the codes of its journal, prices, groups, known classes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, NotFittedError, listing
from crowdwise.online.vote_store import Names
from crowdwise.store.canonical import as_kind, checked_price, name_text, one_kind
from crowdwise.store.journal import Journal, link

AT_ONCE = 500  # how many names SQLite is asked about at once
NO_VOTES = "No votes have come in yet: hand some over with campaign.add(votes), or crowdwise campaign add."


class Roster:
    """The items and annotators in a journal: row n of a table has the code n - 1, which never changes. Methods that
    change something belong inside :meth:`Journal.writing`."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.items, self.annotators = journal, Names(), Names()
        self._texts: dict[str, list[str]] = {"items": [], "annotators": []}

    def refresh(self) -> None:
        """Read the names that were added since. Not inside a transaction that adds names and may fail."""
        for table, names in (("items", self.items), ("annotators", self.annotators)):
            rows = self.journal.read(f"SELECT id, name FROM {table} WHERE id > ? ORDER BY id", (len(names),))
            with self.journal.decoding():
                new = [json.loads(name) for _, name in rows]
                if [number for number, _ in rows] != list(range(len(names) + 1, len(names) + len(rows) + 1)):
                    raise ValueError(f"the {table} are not numbered one after the other")
                if any(name_text(name, table) != text for name, (_, text) in zip(new, rows, strict=True)):
                    raise ValueError(f"a name of {table} is not as it was written")
                names.extend(new)
                self._texts[table].extend(text for _, text in rows)

    def votes_after(self, last: int, chain: str, most: int = -1) -> tuple[Ints, Floats, str]:
        """Rows (number, item, annotator, class) of the next votes in codes, in the order in which they were written,
        their times, and the digest after them; a vote that is not as it was written is an error."""
        columns = "id, vote_id, item, annotator, label, price, time, chain"
        votes = self.journal.read(f"SELECT {columns} FROM votes WHERE id > ? ORDER BY id LIMIT ?", (last, most))
        items, people = self._texts["items"], self._texts["annotators"]
        with self.journal.decoding():
            for number, *vote, digest in votes:
                chain = link(chain, tuple(vote), items[vote[1] - 1], people[vote[2] - 1])
                if chain != digest:
                    raise ValueError(f"vote {number} is not as it was written")
            rows = np.array([(number, item - 1, who - 1, k) for number, _, item, who, k, *_ in votes], dtype=np.int64)
            return rows.reshape(-1, 4), np.array([row[6] for row in votes], dtype=np.float64), chain

    def votes_table(self, classes: list[Any]) -> Votes:
        """All votes, as a table."""
        self.refresh()
        rows, when, _ = self.votes_after(0, "")
        if not len(rows):
            raise NotFittedError(NO_VOTES)
        _, item, annotator, label = rows.T
        items, annotators = self.items.array()[item], self.annotators.array()[annotator]
        columns = {"item": items.tolist(), "annotator": annotators.tolist(), "timestamp": when}
        columns["label"] = [classes[k] for k in label.tolist()]
        return Votes.from_frame(columns, classes=classes)

    def written(self, table: str, names: Iterable[Any]) -> list[str]:
        """The JSON text of each name, in the kind of those that are there."""
        return self.of_kind(table, [name_text(name, table.removesuffix("s")) for name in names])

    def of_kind(self, table: str, texts: Iterable[str]) -> list[str]:
        """JSON texts of names, in the kind of those that are there."""
        first = self._first(table)
        return [as_kind(text, first) for text in texts]

    def _first(self, table: str) -> str | None:
        rows = self.journal.read(f"SELECT name FROM {table} LIMIT 1")
        return rows[0][0] if rows else None

    def _known(self, table: str, texts: list[str]) -> dict[str, int]:
        """JSON text of a name -> its code, for those that are there."""
        codes = dict[str, int]()
        for lo in range(0, len(texts), AT_ONCE):
            part = texts[lo : lo + AT_ONCE]
            marks = ",".join("?" * len(part))
            codes |= dict(self.journal.read(f"SELECT name, id - 1 FROM {table} WHERE name IN ({marks})", part))
        return codes

    def find(self, table: str, names: Iterable[Any]) -> list[int]:
        """The codes of names that must be there."""
        texts = self.written(table, names)
        codes = self.codes(table, texts, remedy="")
        return [codes[text] for text in texts]

    def codes(
        self, table: str, texts: Iterable[str], price: float | None = None, remedy: str = "Declare them first."
    ) -> dict[str, int]:
        """JSON text of a name -> its code. Unknown names are an error, or with a price are added."""
        distinct = list(dict.fromkeys(texts))
        known = self._known(table, distinct)
        missing = [text for text in distinct if text not in known]
        if missing and price is None:
            names = listing([json.loads(text) for text in missing])
            raise InputError(f"Unknown {table}: {names}. Nothing was added. {remedy}".rstrip())
        if not missing:
            return known
        column, value = ("price", price) if table == "annotators" else ("closed", 0)
        rows = [(text, value) for text in missing]
        self._one_kind(table, missing)
        self.journal.write(f"INSERT INTO {table} (name, {column}) VALUES (?, ?)", rows)
        return known | self.codes(table, missing)

    def add_items(self, items: Iterable[Any], gold: Mapping[Any, int], groups: Mapping[Any, Any]) -> int:
        """Add items that are new, then the known classes (codes) and groups of items; how many are new."""
        before, texts = self.journal.count("items"), self.written("items", items)
        self._one_kind("items", texts)
        self.journal.write("INSERT OR IGNORE INTO items (name) VALUES (?)", [(text,) for text in texts])
        named = {item: name_text(group, "group", booleans=True) for item, group in groups.items()}
        for column, facts in (("gold", gold), ("grp", named)):
            self.update("items", column, facts)
        return self.journal.count("items") - before

    def set_prices(self, prices: Mapping[Any, float]) -> None:
        """Add annotators with their prices, or change prices."""
        checked = [checked_price(name, price) for name, price in prices.items()]
        texts = self.written("annotators", [name for name, _ in prices.items()])
        self._one_kind("annotators", texts)
        query = "INSERT INTO annotators (name, price) VALUES (?, ?) ON CONFLICT (name)"
        self.journal.write(f"{query} DO UPDATE SET price = excluded.price", list(zip(texts, checked, strict=True)))

    def _one_kind(self, table: str, texts: list[str]) -> None:
        """Raise an error where new names are not of the kind of those there are."""
        one_kind(filter(None, [self._first(table), *texts]), table)

    def update(self, table: str, column: str, facts: Mapping[Any, Any]) -> None:
        """Set a column of the named rows."""
        texts = self.written(table, facts)
        codes = self.codes(table, texts)
        rows = [(value, codes[text] + 1) for text, value in zip(texts, facts.values(), strict=True)]
        self.journal.write(f"UPDATE {table} SET {column} = ? WHERE id = ?", rows)

    def items_with(self, column: str) -> dict[int, Any]:
        """Code of an item -> ``gold``, ``grp`` or ``closed``, where it has one."""
        empty = 0 if column == "closed" else None
        return dict(self.journal.read(f"SELECT id - 1, {column} FROM items WHERE {column} IS NOT ?", (empty,)))
