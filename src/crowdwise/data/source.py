"""A frame on its way into a table: which column plays which part, which rows are left, and what is in their cells.

All tables read frames and files through this: columns are found once, incomplete rows are reported or left out in one
place, and messages name the rows of the user's own table.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import columns, encoding, frames, layouts
from crowdwise.data.alignment import with_index
from crowdwise.data.encoding import Codes, Counts, Vocabulary
from crowdwise.data.heavy import pl
from crowdwise.data.places import FileRows, Lines, Rows, row_label
from crowdwise.data.schema import BLANK, NULLS, Form, OnMissing
from crowdwise.data.soft_votes import class_columns
from crowdwise.data.spellings import folded, point_out_names
from crowdwise.errors import ColumnError, InputError, LabelError, Option, Remedy, either, listing, suggestion, warn

EVERYONE = "everyone"
"""Who answered, where a table does not name annotators."""
NAMED = {"annotator": "annotators"} | dict.fromkeys(("item", "item_a", "left", "chosen"), "items")
"""Parts whose names may be spelled in two ways -> what they name."""
CODED = ("item", "annotator", "label")
"""Parts of large tables whose names are looked at once each."""
ONE_ANNOTATOR, LEFT_OUT, UNUSED, EMPTY = "one annotator", "left out", "not read", "empty"
"""Roles of columns that play no part of their own."""
JSON = r"^\s*(\{\"|\[[{\"\]]).*[\]}]\s*$"
"""A cell that holds an object or a list."""
RULE = r"^\s*:?-{2,}:?\s*$"
"""A cell of the line below the names of columns, as in Markdown."""
MOST_ANSWERS = 30
"""The most different values of a column that is proposed as that of the answers."""
MERGED = 10
"""Where at least one of so many rows lacks a name, cells may be merged."""
VANISH = 0.1
"""A column tells questions apart where fewer than this share of repeated rows are left with it."""
NAMED_COLUMNS = Option("annotator_columns", python="[...]", command="A,B,C")
DROP = Remedy("Fill them in, or leave them out with {}.", Option("on_missing", "drop"))
FILL = Remedy(
    "If a name stands for the rows below it, as in merged cells, say {}; to leave the rows out, {}.",
    Option("on_missing", "fill"), Option("on_missing", "drop"),
)  # fmt: skip
ANONYMOUS = Remedy("If it is not known who answered, the plain majority can be taken: {}.", Option("anonymous", True))


@dataclass
class ColumnRoles:
    """What each column was taken for, and the questions that one of them names."""

    roles: dict[str, str] = field(default_factory=dict)
    questions: list[str] = field(default_factory=list)


_roles: ContextVar[ColumnRoles | None] = ContextVar("roles", default=None)


@contextmanager
def collected_roles() -> Iterator[ColumnRoles]:
    """The roles of columns in the table that is read inside of the block."""
    collected = ColumnRoles()
    token = _roles.set(collected)
    try:
        yield collected
    finally:
        _roles.reset(token)


class Source:
    """A frame and what is known of it.

    ``given`` maps a part to the column the user named for it, or ``None``: it is found by the aliases. ``what`` rows
    are called in messages. ``from_text``: the columns were read as text, so integers in them are looked for. ``parts``
    maps parts to columns, where the reader of a file has found them already; ``lines`` are those of the file.
    """

    def __init__(
        self, frame: Any, given: Mapping[str, str | None], what: str, *, from_text: bool = False,
        parts: Mapping[str, str | None] | None = None, lines: Lines | None = None,
    ) -> None:  # fmt: skip
        self.frame, self.given, self.what, self.from_text = with_index(frame, given), given, what, from_text
        self.table = frames.to_polars(self.frame)
        if self.table.width == 0 or self.table.height == 0:
            raise InputError(f"No {what}: the table has {self.table.height} rows and {self.table.width} columns.")
        self.parts = dict(columns.resolve(self.table.columns, given) if parts is None else parts)
        self._codes: dict[str, tuple[Codes, Any]] = {}
        """Columns that were coded already."""
        blank = _blank_in([self._values(name, part) for part, name in self.parts.items() if name and part != "word"])
        if blank:
            self._codes.clear()
            self.table = _without_blanks(self.table, list(dict.fromkeys(blank)))
        self.lines = lines
        self.rows: Counts | None = None
        """The row of the user's table behind each row that is left; ``None`` where they are the same."""
        self._drop_headers()
        self.skipped = ""
        """Which columns were taken for no answers, for a message."""
        self.unpivoted = False
        """Whether the table had a column for each annotator."""
        self.roles = {name: str(part) for part, name in self.parts.items() if name is not None}
        """What each column was taken for; those of no role are not read."""
        self.questions: list[str] = []

    def _drop_headers(self) -> None:
        """Leave out rows that repeat the names of the columns, as files that were joined have them, and the rule below
        them; that is said."""
        table = self.table
        if table.width < 2 or any(dtype != pl.String for dtype in table.dtypes):
            return
        names, parts = [name.strip() for name in table.columns], {name: part for part, name in self.parts.items()}

        def repeats(cells: Any) -> Any:
            return cells.str.strip_chars().is_in(names) | cells.str.contains(RULE)

        looked_at = [self._values(name, parts.get(name, "")) for name in table.columns]
        if not all(bool(repeats(cells).any()) for cells in sorted(looked_at, key=len)):
            return
        again = []
        for at in table.select(pl.all_horizontal(repeats(pl.all()))).to_series().fill_null(False).arg_true().to_list():
            row = [cell.strip() for cell in table.row(at)]
            if row != names and sorted(row) == sorted(names):
                where = row_label(at, self.places)
                raise ColumnError(
                    f"The columns have another order below {where}: {listing(row)}. Join files by the names of columns."
                )
            again += [at] if row == names or names[0] not in row else []
        if again:
            where = row_label(again, self.places, counted=", counted from 0")
            warn(f"Left out {len(again):,} rows that repeat the names of the columns: {where}.")
            self.keep(np.setdiff1d(np.arange(len(self)), again))

    def _values(self, name: str, part: str) -> pl.Series:
        """A column; of names and labels in a large table each once, which is quicker to look at."""
        column = self.table[name]
        if part not in CODED or column.dtype != pl.String or len(column) < encoding.NATIVE_ROWS:
            return column
        if name not in self._codes:
            self._codes[name] = encoding.encode_lazily(column)
        return self._codes[name][1].column  # type: ignore[no-any-return]

    @property
    def kind(self) -> str:
        """What a table made from this should come back as."""
        return frames.kind_of(self.frame)

    def __len__(self) -> int:
        return self.table.height

    def __contains__(self, part: str) -> bool:
        return self.parts.get(part) is not None

    def __getitem__(self, part: str) -> pl.Series:
        return self.table[str(self.parts[part])]

    def row(self, at: int) -> int:
        """The number of a row in the user's table."""
        return at if self.rows is None else int(self.rows[at])

    def release(self) -> None:
        """Let go of the table, once all of it is coded."""
        self.table = self.frame = self.table.clear()

    @property
    def places(self) -> Rows:
        """The rows of the user's table or file, for messages."""
        return self.rows if self.lines is None else FileRows(self.rows, self.lines)

    def tell_roles(self) -> None:
        """Say what each column was taken for, to :func:`collected_roles`."""
        collected = _roles.get()
        if collected is not None:
            collected.roles, collected.questions = dict(self.roles), self.questions

    def keep(self, rows: npt.NDArray[Any]) -> None:
        """Go on with some of the rows, by position."""
        self._codes.clear()
        self.table = self.table[rows]
        self.rows = rows.astype(np.int64) if self.rows is None else self.rows[rows]

    def require(self, parts: Sequence[str], also: str = "", wide: bool = False) -> None:
        """An error where a column is missing; ``wide``: the table might be in the wide form."""
        missing = [part for part in parts if part not in self]
        if self.from_text and len(missing) == len(parts) > 1:
            below = [c.name for c in self.table if c.dtype == pl.String and bool((c == c.name).any())]
            if len(below) > 1:
                raise ColumnError(
                    f"The first line holds answers and no names of columns: {listing(below)} stand below it, too. "
                    f"Write the names above it, such as {','.join(parts)}."
                )
        if missing:
            names = "; ".join(f"{part} (also {', '.join(columns.ALIASES[part][1:5])}, ...)" for part in missing)
            free = [name for name in self.table.columns if name not in self.parts.values()]
            free = free if missing != ["annotator"] else [n for n in free if not columns.names_no_annotator(n)]
            likely = self._likely(missing[0], free) if len(missing) == 1 else []
            free = likely or free
            one_each = len(free) == len(missing)
            named = [Option(*pair) for pair in zip(missing, free, strict=True)] if one_each else [Option(missing[0])]
            if len(likely) > 1:
                named = [Option(missing[0], *likely)]
                also += f". Columns {listing(likely, 12)} may each answer a question of their own"
            lists = [name for name in free if _holds_objects(self.table[name])]
            if lists:
                also += f". Column {lists[0]!r} holds JSON in its cells, which is read from JSON lines alone"
            wider = [Option("form", "wide")] if wide else []
            advice = f"Name the columns, e.g. {' '.join(['{}'] * len(named))}"
            advice += ", or pass {} if each annotator has a column" * wide + "."
            if self.from_text and len(missing) == len(parts) > 1:
                also += ". The first line must hold the names of the columns"
            anonymous = [ANONYMOUS] if missing == ["annotator"] and "label" in parts else []
            raise ColumnError(
                f"No column found for: {names}{also}. The table has {listing(self.table.columns, 12)}.",
                remedy=[Remedy(advice, *named, *wider, command="Rename them."), *anonymous],
            )

    def _likely(self, part: str, free: Sequence[str]) -> list[str]:
        """Columns that may be a part that is missing: items are named in several rows, once for each annotator; answers
        have few values, of which several are about one item and by one annotator."""
        table, who = self.table, self.parts.get("annotator")
        plain = [name for name in free if not table[name].dtype.is_nested()]
        if part == "annotator" or who is None:
            return []
        if part == "item":
            repeated = [name for name in plain if 1 < table[name].n_unique() <= len(self) // 2]
            return [name for name in repeated if not table.select(name, who).is_duplicated().any()][:1]

        def differs(name: str, within: str) -> bool:
            return table.select(name, within).n_unique() > table[within].n_unique()

        few = [name for name in plain if 2 <= table[name].n_unique() <= min(MOST_ANSWERS, len(self) // 2)]
        about = [name for one in ("item", "left", "right") if (name := self.parts.get(one)) is not None]
        return [name for name in few if all(differs(name, other) for other in (*about, who))]

    def number_votes(self) -> None:
        """A column of annotators, where it is not known who answered: the first vote on each item, the second..."""
        if "annotator" in self:
            raise ColumnError(
                f"anonymous: column {self.parts['annotator']!r} names the annotators. Leave out anonymous."
            )
        self.require(("item", "label"))
        counts = [] if "weight" in self else list(filter(columns.names_totals, self.table.columns))
        if counts:
            weigh = Remedy("If it counts votes, say {}.", Option("weight", counts[0]))
            warn(f"Column {counts[0]!r} is not read, and every row is one vote.", remedy=weigh)
        name = _free("annotator", self.table.columns)
        numbered = pl.int_range(1, pl.len() + 1).over(str(self.parts["item"])).cast(pl.String)
        self.table = self.table.with_columns(("vote " + numbered).alias(name))
        self.parts["annotator"] = name

    def complete(self, parts: Sequence[str], on_missing: OnMissing) -> None:
        """Rows that lack one of the parts: an error that names them, or left out."""
        for part in parts:
            lost = _empty(self[part])
            if not bool(lost.any()):
                continue
            fills = part in ("item", "annotator") and not lost[0] and not self.unpivoted
            if on_missing == "fill" and fills:
                self._codes.clear()
                self.table = self.table.with_columns(self[part].fill_null(strategy="forward"))
                warn(f"Filled {int(lost.sum()):,} empty cells of column {self.parts[part]!r} with the name above them.")
                continue
            if on_missing == "error":
                merged = fills and MERGED * int(lost.sum()) >= len(self)
                number = len({self.row(at) for at in lost.arg_true().to_list()})
                where = row_label(lost.arg_true().to_list(), self.places, counted=", counted from 0")
                raise LabelError(
                    f"{number:,} {'rows have' if number > 1 else 'row has'} no {part} "
                    f"(column {self.parts[part]!r}): {where}.{self._null_words(part)}",
                    remedy=FILL if merged else DROP,
                )
            missing, height = int(lost.sum()), len(self)
            self.keep((~lost).arg_true().to_numpy())
            warn(f"Left out {missing:,} of {height:,} rows: without {'an' if part[0] in 'aeiou' else 'a'} {part}.")
        if len(self) == 0:
            articles = [f"{'an' if part[0] in 'aeiou' else 'a'} {part}" for part in parts]
            raise InputError(f"No {self.what}: no row has {' and '.join([', '.join(articles[:-1]), articles[-1]])}.")

    def _null_words(self, part: str) -> str:
        """Which words of a file were read as empty cells of a column, for a message."""
        from crowdwise.data.files import TableFile

        file = getattr(self.lines, "file", None)
        if file is None:
            return ""
        again = TableFile(file.path, file.separator, (), file.encoding, file.sheet, file.skip_rows)
        again.__dict__["raw"] = file.raw
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            column = again.read()[0].get_column(str(self.parts[part]), default=None)
        words = [word for word in file.null_values if word]
        if column is None or column.dtype.is_nested():
            return ""
        nulls = column.filter(column.cast(str).is_in(words)).cast(str).to_list()
        if not nulls:
            return ""
        each = dict.fromkeys(nulls)
        what = "a class" if part == "label" else f"a name of an {part}"
        return (
            f" {len(nulls):,} of them {'hold' if len(nulls) > 1 else 'holds'} {listing(each)}, which "
            f"{'are' if len(each) > 1 else 'is'} read as an empty cell: if it is {what}, say null_values=() "
            "(--column null_values=)."
        )

    def unpivot_classes(self, answer: str, name: str) -> None:
        """The part ``probability``: a column of this name, or one for each class whose names begin so, which become
        rows with the class as the answer."""
        if name in self.table.columns:
            self.parts["probability"] = name
            return
        of = class_columns(self.table.columns, name)
        rest = [column for column in self.table.columns if column not in of and column != self.parts.get(answer)]
        if answer in rest:
            raise ColumnError(f"The table has a column {answer!r} beside {listing(of)}: name one of them.")
        rows = np.tile(np.arange(len(self)), len(of))
        self._codes.clear()
        self.table = self.table.unpivot(list(of), index=rest, variable_name=answer, value_name="probability")
        self.table = self.table.with_columns(pl.col(answer).replace(of))
        self.parts |= {answer: answer, "probability": "probability"}
        self.rows = rows if self.rows is None else self.rows[rows]

    def pick_question(self, asked: str | None) -> None:
        """Go on with the rows of one question, where a column says which a row answers. Where it is not named and an
        annotator has rows about an item that differ in it alone, that is an error."""
        name = columns.question_column(self.table.columns, self.parts)
        if name is None and asked is None:
            return
        if name is None:
            raise ColumnError(
                f"There is no column that says which question a row answers, such as 'question': the table has "
                f"{listing(self.table.columns, 12)}. Leave out question."
            )
        column = self.table[name].cast(pl.String).str.strip_chars()
        there = column.drop_nulls().unique().sort().to_list()
        self.questions = there
        if asked is not None:
            rows = (column == str(asked).strip()).arg_true()
            if not len(rows):
                raise InputError(
                    f"No row answers question {asked!r} (column {name!r}): the questions are {listing(there, 12)}."
                    f"{suggestion(str(asked), there)}"
                )
            self.roles[name] = "question"
            self.keep(rows.to_numpy())
            return
        about = [str(self.parts[part]) for part in ("item", "annotator") if part in self]
        if "item" not in self or len(there) < 2 or not bool(self.table.select(about).is_duplicated().any()):
            self.questions = []
            return
        left = int(self.table.select([*about, name]).is_duplicated().sum())
        if left >= VANISH * int(self.table.select(about).is_duplicated().sum()):
            self.questions = []
            return
        self.roles[name] = "question"
        raise ColumnError(
            f"Column {name!r} says which of {len(there):,} questions a row answers: {listing(there, 8)}. A consensus "
            "is of one question.",
            remedy=[
                Remedy("Say which: {}.", Option("question", *there[:1])),
                Remedy("", command="All of them, into a folder: --question all --out FOLDER."),
            ],
        )

    def lengthen(
        self, form: Form, answer: str, alike: bool = False, keep_empty: bool = False,
        named: Sequence[str] | str | None = None,
    ) -> bool:  # fmt: skip
        """One row per cell, where the table has a column for each annotator (or is said to); whether it has. ``alike``:
        in doubt, columns are annotators only if some label stands in two of them (not so ``color`` and ``size``).
        ``keep_empty``: empty cells are rows too, and an annotator may have a label that is theirs alone. ``named``: the
        columns of annotators."""
        if named is not None:
            self._only(named, answer)
            form = "wide"
        if form != "wide" and self.given.get(answer) is None:
            self._skip_ids(answer)
        if form == "auto" and alike and self._recast():
            return True
        names, parts = self.table.columns, self.parts
        wide, odd = form == "wide", []
        if form == "auto" and parts["annotator"] is None and parts[answer] is None and parts["item"] is not None:
            others = columns.left_over(names, parts)
            odd = self._no_annotators(others, alike, keep_empty)
            others = [name for name in others if name not in odd]
            wide = len(others) >= 2 and (not alike or _share_labels(self.table, others))
        if not wide:
            self.require(("item", "annotator", answer), self.skipped, wide=True)
            self._drop_total_row(str(parts["item"]), str(parts["annotator"]))
            return False
        if form == "wide":
            others = columns.left_over(names, {**parts, "annotator": None, answer: None})
            odd = [] if named is not None else self._no_annotators(others, alike, keep_empty)
        if parts["item"] is not None:
            self._drop_totals(parts["item"], [name for name in others if name not in odd], numbers=not alike)
        self._unpivot(answer, odd, keep_empty, named is not None)
        return True

    def _recast(self) -> bool:
        """Bring a table that is laid out in another way into the long form, or find its items; what was done is said.
        Whether it is long now."""
        parts = {part: self.parts.get(part) for part in ("item", "annotator", "label")}
        if None not in parts.values():
            return False
        long = layouts.recast(self.table, self.parts)
        if long is not None:
            self._codes.clear()
            self.table, self.parts, rows, self.roles, words = long
            self.rows = rows if self.rows is None else self.rows[rows]
            self.unpivoted = True
            warn(words, remedy=Remedy("If that is wrong, name the columns: {}.", Option("label")))
            return True
        first = None if any(parts.values()) else layouts.named_rows(self.table)
        others = [name for name in columns.left_over(self.table.columns, self.parts) if name != first]
        if first is not None:
            others = [name for name in others if name not in self._no_annotators(others, True, False)]
            if len(others) > 1 and _share_labels(self.table, others):
                self.parts["item"] = first
                warn(f"The items are those of the first column, {first!r}.")
        return False

    def _drop_total_row(self, item: str, who: str) -> None:
        """Leave out the last row of a long table that is called by a word for totals, where its item stands in no other
        row, and its annotator neither; with an annotator of other rows it is an item, and that is said."""
        last = len(self) - 1
        name = self.table[item][last] if last > 0 else None
        if not isinstance(name, str) or not columns.names_totals(name) or (self.table[item] == name).sum() > 1:
            return
        annotator = self.table[who][last]
        if annotator is None or (self.table[who] == annotator).sum() == 1:
            self.keep(np.arange(last))
            warn(f"Left out the last row, {name!r}: totals and no {self.what}.")
        else:
            warn(f"The last row, {name!r}, may hold totals: read as an item.")

    def _drop_totals(self, item: str, others: Sequence[str], *, numbers: bool) -> None:
        """Leave out the last rows of a wide table, where they hold totals; what was left out, or may be totals, is
        said."""
        count, sure = layouts.totals(self.table, item, others, numbers=numbers)
        if not count:
            return
        rows, names = "row" if count == 1 else f"{count} rows", listing(self.table[item].tail(count).to_list())
        if sure:
            self.keep(np.arange(len(self) - count))
            warn(f"Left out the last {rows}, {names}: totals and no {'ratings' if numbers else 'votes'}.")
        else:
            warn(f"The last {rows}, {names}, may hold totals: read as {'an item' if count == 1 else 'items'}.")

    def _no_annotators(self, others: Sequence[str], alike: bool, one_sided: bool) -> list[str]:
        """Those of some columns that hold a verdict, by their name, or no answers, where others are left."""
        verdicts = [name for name in others if columns.names_a_verdict(name)]
        odd = columns.no_annotators(self.table, others, numbers=not alike, one_sided=one_sided)
        odd = [name for name in others if name in {*odd, *verdicts}]
        return odd if len(odd) < len(others) else [name for name in odd if name not in verdicts]

    def _only(self, named: Sequence[str] | str, answer: str) -> None:
        """Keep these columns of annotators, and those that play a part."""
        wanted = [name.strip() for name in named.split(",")] if isinstance(named, str) else list(named)
        unknown = [name for name in wanted if name not in self.table.columns]
        if unknown or not wanted:
            near = suggestion(str(unknown[0]), self.table.columns) if unknown else ""
            raise ColumnError(
                f"There is no column {listing(unknown)} of an annotator: the table has "
                f"{listing(self.table.columns, 12)}.{near}"
            )
        for part, name in self.parts.items():
            if name in wanted:
                self.parts[part] = None
        kept = {name for part, name in self.parts.items() if part not in ("annotator", answer)}
        self.table = self.table.select([name for name in self.table.columns if name in kept or name in wanted])

    def _unpivot(self, answer: str, odd: Sequence[str], keep_empty: bool, named: bool) -> None:
        """Wide to long, without the columns that belong to no annotator; what is left out, or in doubt, is said, unless
        the columns of annotators were named."""
        height = len(self)
        self._codes.clear()
        table = self.table.drop(odd) if len(odd) < self.table.width else self.table
        taken = columns.left_over(table.columns, {**self.parts, "annotator": None, answer: None})
        doubts = {} if named else columns.doubted(table, taken)
        total = None if named else columns.shared_out(table, taken)
        if total is not None:
            raise ColumnError(
                f"Columns {listing(taken, 8)} add up to {total:g} in every row: they count votes for classes, or are "
                "shares of classes, and are no annotators. Write a row for each vote (item, annotator, label).",
                remedy=Remedy("If they are annotators, name them: {}.", NAMED_COLUMNS),
            )
        self.roles = {name: str(part) for part, name in self.parts.items() if name is not None and name not in taken}
        self.roles |= dict.fromkeys(taken, ONE_ANNOTATOR) | dict.fromkeys(odd, LEFT_OUT)
        blank = [name for name in taken if bool(_empty(table[name]).all())] if not (named or keep_empty) else []
        self.roles |= dict.fromkeys(blank, EMPTY)
        taken = [name for name in taken if name not in blank]
        self.table, self.parts, self.rows = _unpivoted(table, self.parts, answer, self.what, keep_empty)
        self.unpivoted = True
        self._say_columns(taken, odd, doubts)
        empty = height - len(np.unique(self.rows))
        if empty:
            warn(f"Left out {empty:,} of {height:,} rows: without any {self.what}.")

    def _say_columns(self, taken: Sequence[str], odd: Sequence[str], doubts: Mapping[str, str]) -> None:
        """Which columns of a wide table were left out or are in doubt, and which are annotators."""
        verdicts = [name for name in odd if columns.names_a_verdict(name)]
        others = [name for name in odd if name not in verdicts]
        who = f"The annotators are {listing(taken, 12)}."
        if others:
            one = len(others) == 1
            warn(
                f"Left out {'column' if one else 'columns'} {listing(others, 12)}: by {'its' if one else 'their'} name "
                f"or values {'it holds' if one else 'they hold'} texts, times, ids, totals or certainty, not the "
                f"{self.what} of an annotator. {who}",
                remedy=Remedy("If that is wrong, name all columns of annotators: {}.", NAMED_COLUMNS),
            )
        if verdicts:
            one, every = len(verdicts) == 1, [*taken, *verdicts]
            warn(
                f"Left out {'column' if one else 'columns'} {listing(verdicts, 12)}: by {'its' if one else 'their'} "
                f"name {'it holds' if one else 'they hold'} the answer that was agreed on, not the {self.what} of an "
                f"annotator. {who}",
                remedy=Remedy(
                    "To measure with it, say {}; to count it as an annotator, {}.", Option("truth", verdicts[0]),
                    Option("annotator_columns", python=str(every), command=quote(",".join(every))),
                ),
            )  # fmt: skip
        if doubts:
            kept = [name for name in taken if name not in doubts]
            warn(
                f"{len(doubts)} column{'s' * (len(doubts) > 1)} may be no annotator: {'; '.join(doubts.values())}. "
                f"{who}",
                remedy=Remedy(
                    "If so, say {}.", Option("annotator_columns", python=str(kept), command=quote(",".join(kept)))
                ),
            )

    def silence(self, part: str, abstain: Any) -> None:
        """Empty the cells that hold the label for no answer, in any case and as a number however it is written."""
        if str(abstain) in NULLS:  # empty already
            return
        text = self.flat(part, "a label").cast(pl.String).str.strip_chars().str.to_lowercase()
        silent = text == str(abstain).strip().lower()
        with suppress(TypeError, ValueError):
            silent |= (text.cast(pl.Float64, strict=False) == float(abstain)).fill_null(False)
        if not bool(silent.any()):
            warn(f"No {part} is {abstain!r}, which abstain names: the {part}s are {listing(self[part].unique())}.")
        name = str(self.parts[part])
        self._codes.pop(name, None)
        self.table = self.table.with_columns(pl.when(~silent.fill_null(False)).then(pl.col(name)).alias(name))

    def map_labels(self, parts: Sequence[str], stands: Mapping[str, str]) -> None:
        """Replace labels by what they stand for; labels of the map that there are not are named."""
        unused = set(stands)
        for part in (part for part in parts if part in self):
            column, name = self[part], str(self.parts[part])
            whole = column.cast(pl.Int64, strict=False) if column.dtype.is_numeric() else None
            plain = column if whole is None or whole.null_count() > column.null_count() else whole
            text = (
                plain.dt.strftime("%Y-%m-%d %H:%M:%S")
                if plain.dtype in (pl.Date, pl.Datetime)
                else plain.cast(pl.String)
            )
            unused -= set(text.str.strip_chars().unique().to_list())
            bare = text.str.strip_chars()
            new = pl.select(
                pl.when(bare.is_in(list(stands))).then(bare.replace(dict(stands))).otherwise(text)
            ).to_series()
            if plain is whole and new.cast(pl.Int64, strict=False).null_count() == new.null_count():
                new = new.cast(pl.Int64)
            self._codes.pop(name, None)
            self.table = self.table.with_columns(new.alias(name))
        if unused:
            warn(f"No {parts[0]} is {listing(sorted(unused))}, which the map of labels names.")

    def answered(self, part: str) -> Counts:
        """Go on with the rows that hold an answer; their positions."""
        rows = (~_empty(self[part])).arg_true().to_numpy().astype(np.int64)
        self.keep(rows)
        return rows

    def _skip_ids(self, answer: str) -> None:
        """Look on where the column of answers that was found numbers the rows: ``annotation_id`` holds no labels."""
        skipped: list[str] = []
        while answer in self and columns.is_row_id(self[answer]):
            skipped.append(str(self.parts[answer]))
            taken = {*skipped, *(name for part, name in self.parts.items() if part != answer)}
            self.parts[answer] = columns.find([c for c in self.table.columns if c not in taken], answer)
        if not skipped:
            return
        one = len(skipped) == 1
        why = f"{'column' if one else 'columns'} {listing(skipped)} {'numbers' if one else 'number'} the rows"
        self.skipped = f" ({why})"
        self.roles = {name: str(part) for part, name in self.parts.items() if name is not None}
        if answer in self:
            warn(f"The {answer} is read from column {self.parts[answer]!r}: {why}.")

    def odd(self, part: str, at: int, expected: str, error: type[InputError] = LabelError, **more: Any) -> InputError:
        """The error about one cell."""
        column, where = self[part], row_label(at, self.places, counted="")
        how = ", rows counted from 0" if row_label(at, self.places) != where else ""
        own = self.unpivoted and part not in ("item", "truth", "weight", "timestamp", "n_options")
        name = self["annotator"][at] if own else column.name
        return error(f"The {part} in {where} (column {name!r}{how}) is {column[at]!r}: expected {expected}.", **more)

    def coded(self, *parts: str) -> tuple[Codes, Vocabulary]:
        """Codes and names of a column; of several, one below the other, with the same names."""
        code, names = self.coded_lazily(*parts)
        return code, names.array if isinstance(names, encoding.TextNames) else names

    def coded_lazily(self, *parts: str) -> tuple[Codes, Any]:
        """The same; many names of text are :class:`~crowdwise.data.encoding.TextNames`."""
        column = self[parts[0]] if len(parts) == 1 else _stacked([self[part] for part in parts])
        code, names = self._codes.pop(column.name if len(parts) == 1 else "", None) or encoding.encode_lazily(column)
        code, names = encoding.integers_in_text(code, names) if self.from_text else (code, names)
        if parts[0] in NAMED:
            point_out_names(names, NAMED[parts[0]])
        return code, names

    def coded_or(self, part: str, name: str = EVERYONE) -> tuple[Codes, Vocabulary]:
        """The same, or one name for all rows where there is no such column."""
        if part in self:
            return self.coded(part)
        return np.zeros(len(self), dtype=np.int32), encoding.to_vocabulary([name])

    def flat(self, part: str, expected: str, error: type[InputError] = LabelError) -> pl.Series:
        """A column of text, numbers or booleans; anything else (lists, bytes, times) is an error."""
        column = self[part]
        simple = (pl.String, pl.Boolean, pl.Null, pl.Categorical, pl.Enum)
        if not (column.dtype.is_numeric() or column.dtype in simple):
            raise error(
                f"Column {column.name!r} ({part}) holds {column.dtype} values: expected {expected} in each row."
            )
        return column

    def numbers(
        self, part: str, expected: str = "a number", error: type[InputError] = LabelError, *, empty: bool = False,
        **more: Any,
    ) -> npt.NDArray[np.float64]:  # fmt: skip
        """A column of numbers (NaN where it is ``empty``, if it may be); text that is none is an error."""
        column = self.flat(part, expected, error)
        values = columns.as_numbers(column)
        bad = (values.is_null() & column.is_not_null() if empty else values.is_null()).arg_true()
        if len(bad):
            like = ", such as 1234.5" if "," in str(column[int(bad[0])]) else ""
            raise self.odd(part, int(bad[0]), expected + like, error, **more)
        if column.dtype == pl.String:
            self._say_form(column, values)
        return values.fill_null(float("nan")).to_numpy().astype(np.float64)

    def _say_form(self, column: pl.Series, values: pl.Series) -> None:
        """What was taken for a decimal comma, a sign beside numbers or a decimal point, where it may be another."""
        other = values.is_not_null() & column.cast(pl.Float64, strict=False).is_null()
        comma = other & column.str.contains(",", literal=True)
        for at in (comma if bool(comma.any()) else other).arg_true().head(1).to_list():
            what = "decimal comma" if comma[at] else "sign"
            warn(f"The numbers in column {column.name!r} have a {what}: {column[at]!r} is read as {values[at]:g}.")
        file = getattr(self.lines, "file", None)
        points = file is not None and file.kind == "csv" and file.found_separator == ";"
        there = column.is_not_null().arg_true()
        if points and len(there) and bool(column.str.contains(columns.THOUSANDS.format(".")).all()):
            first = int(there[0])
            warn(
                f"All numbers in column {column.name!r} have a point before three digits: {column[first]!r} is read as "
                f"{values[first]:g}. If the point stands for thousands, leave it out of the file."
            )

    def beside(self, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What lies beside the answers in all tables, as ``from_codes`` takes it, and what becomes of duplicates."""
        repeats = {name: value for name, value in (options or {}).items() if name == "on_duplicate"}
        weight = self.numbers("weight", "a positive number", InputError) if "weight" in self else None
        return {"weight": weight, "timestamp": self._timestamp(), "kind": self.kind, "rows": self.places} | repeats

    def _timestamp(self) -> npt.NDArray[Any] | None:
        """Times as datetimes (UTC where they name a zone) or plain numbers."""
        if "timestamp" not in self:
            return None
        values = columns.without_categories(self["timestamp"])
        dates = "datetimes, ISO dates such as 2026-01-31T12:00:00, or numbers"
        if values.dtype == pl.String:
            numbers = values.cast(pl.Float64, strict=False)
            if numbers.null_count() == values.null_count():
                return numbers.to_numpy()
            try:
                return values.str.to_datetime(time_unit="us", strict=True).cast(pl.Datetime("us")).to_numpy()
            except pl.exceptions.PolarsError:
                raise self.odd(
                    "timestamp", _first_unreadable(values), f"a date like the others: {dates}", InputError
                ) from None
        if values.dtype in (pl.Date, pl.Datetime):
            return values.cast(pl.Datetime("us")).to_numpy()
        if not (values.dtype.is_numeric() or values.dtype == pl.Null):
            raise InputError(f"The timestamps in column {values.name!r} are {values.dtype} values: expected {dates}.")
        return values.cast(pl.Float64).to_numpy()


def _holds_objects(column: pl.Series) -> bool:
    """Whether the cells of a column hold JSON: objects or lists."""
    first = column.drop_nulls().head(3)
    return column.dtype == pl.String and len(first) > 0 and bool(first.str.contains(JSON).all())


def _empty(column: pl.Series) -> pl.Series:
    return column.is_null() | column.is_nan() if column.dtype.is_float() else column.is_null()


def _blank_in(columns: Iterable[pl.Series]) -> list[str]:
    """The columns with cells that hold blanks alone."""
    return [c.name for c in columns if c.dtype == pl.String and bool(c.str.contains(BLANK).any())]


def _without_blanks(table: pl.DataFrame, blank: Sequence[str]) -> pl.DataFrame:
    """Cells of these columns that hold blanks alone are empty."""
    return table.with_columns(pl.when(~pl.col(name).str.contains(BLANK)).then(pl.col(name)) for name in blank)


def _share_labels(table: pl.DataFrame, names: Sequence[str]) -> bool:
    labels = [{folded(label) for label in table[name].drop_nulls().unique().to_list()} for name in names]
    return len(set().union(*labels)) < sum(map(len, labels))


def _wider(columns: Iterable[pl.Series]) -> pl.DataType | None:
    """The kind of values that holds those of all columns; ``None``, where they mix text and numbers."""
    kinds = {pl.String() if c.dtype in (pl.Categorical, pl.Enum) else c.dtype for c in columns} - {pl.Null()}
    if len(kinds) == 1:
        return kinds.pop()
    if not all(kind.is_numeric() for kind in kinds):
        return None
    return pl.Int128() if all(kind.is_integer() for kind in kinds) else pl.Float64()


def _stacked(names: Sequence[pl.Series]) -> pl.Series:
    """Columns of names one below the other."""
    kind = _wider(names)
    if kind is None:
        raise ColumnError(
            f"Items are {either([f'{c.dtype} values in column {c.name!r}' for c in names]).replace(' or ', ' and ')}. "
            "Convert one of them first."
        )
    return pl.concat([column.cast(kind).alias("item") for column in names])


def _unpivoted(
    table: pl.DataFrame, parts: Mapping[str, str | None], answer: str, what: str, keep_empty: bool
) -> tuple[pl.DataFrame, dict[str, str | None], Counts]:
    """Wide to long: one row per cell (that holds an answer, or any), and the row that each comes from."""
    if {"annotator", "label"} <= {columns.normal(name) for name in table.columns}:
        raise ColumnError(
            f"The table has the columns {listing(table.columns, 12)}: with an annotator and a label in each row it is "
            "in the long form.",
            remedy=Remedy("Leave out {}.", Option("form", "wide")),
        )
    cells = columns.left_over(table.columns, {**parts, "annotator": None, answer: None})
    if len(cells) == 0:
        raise ColumnError(
            "In the wide form every annotator has a column, and none is left: the table has "
            f"{listing(table.columns, 12)}."
        )
    if parts["item"] is None:
        parts = {**parts, "item": "item"}
        table = table.with_row_index("item")
    table = _without_blanks(table, _blank_in([table[name] for name in cells]))
    if len({table[c].dtype for c in cells} - {pl.Null()}) > 1:
        if (kind := _wider(table[c] for c in cells)) is None:
            raise ColumnError(
                f"The annotator columns {listing(cells)} hold different kinds of labels. Convert "
                "them to text, or name the item and truth columns."
            )
        table = table.with_columns(pl.col(cells).cast(kind))
    row = _free("row", table.columns)
    beside = ("item", "truth", "weight", "timestamp", "n_options")
    keep = [*(name for part in beside if (name := parts.get(part)) is not None), row]
    names = {part: _free(part, [*keep, *cells]) for part in ("annotator", answer)}
    long = table.with_row_index(row).unpivot(
        on=cells, index=keep, variable_name=names["annotator"], value_name=names[answer]
    )
    empty = _empty(long[names[answer]])
    long = long if keep_empty else long.filter(~empty)
    if bool(empty.all()):
        raise InputError(f"No {what}: every cell of the annotator columns is empty.")
    return long, {**parts, **names}, long[row].to_numpy().astype(np.int64)


def _free(name: str, taken: Sequence[str]) -> str:
    return name if name not in taken else _free(name + "_", taken)


def _first_unreadable(values: pl.Series) -> int:
    """The first text that cannot be read as a date in the way of the column (the first at all, where none can)."""
    try:
        bad = values.str.to_datetime(time_unit="us", strict=False).is_null() & values.is_not_null()
    except pl.exceptions.PolarsError:
        bad = values.is_not_null()
    return int(bad.arg_true()[0]) if bool(bad.any()) else 0
