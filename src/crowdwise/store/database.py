"""The store is opened, brought up to date, and written in transactions: SQLite (one writer) or PostgreSQL.

**Writes of a campaign are serial.** In PostgreSQL a transaction that writes to a campaign holds its advisory lock until
it is committed; in SQLite there is one writer. So votes become visible in the order of their numbers, on every worker
and every machine, and a follower skips none.

Folders are 0700 and files (the store, backups, exports, the key of sessions) 0600, whatever the umask says. What is
open to others is closed at the start, and the log says so; where that cannot be done, the server does not start. The
key lies beside the store, not in it: neither a copy of the store nor a backup is enough to sign a session.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import stat
import threading
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles

import crowdwise.migrations
from crowdwise.errors import OutputError, ReadError, listing
from crowdwise.store.store_tables import metadata

MIGRATION_LOCK = 0x63726F77
WAIT = 30.0  # seconds to wait for another process that writes (SQLite), or for a connection
LOCK_WAIT = 0.5
LIMITS = f"-c lock_timeout={LOCK_WAIT}s -c idle_in_transaction_session_timeout=5min"
"""Of PostgreSQL: what hangs elsewhere must not hang here."""
PLANS = "-c enable_seqscan=off -c jit=off"
"""Of PostgreSQL: it keeps the plan of a statement. One from when a table was small would read all of it ever after."""
NO_STORE = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError)
"""Errors of a database that is away, or has no connection left."""


def main_of(campaign: str) -> str:
    """The campaign whose items another is about: that of ``abc.quality``, a further question, is ``abc``."""
    return campaign.partition(".")[0]


def family(column: sa.Column[Any], campaign: str) -> Any:
    """Whether a column is a campaign or one of its further questions."""
    main = main_of(campaign)
    return (column == main) | column.startswith(f"{main}.")


def lock_of(campaign: str) -> int:
    """The number of the advisory lock of a campaign and its questions: 63 bits of a digest of its id."""
    return int.from_bytes(hashlib.sha256(main_of(campaign).encode()).digest()[:8], "big") >> 1


class Database:
    """An open store."""

    def __init__(self, url: str) -> None:
        self.url = sa.make_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        if self.is_sqlite:
            file = private_file(Path(self.url.database or ""))
            for name in (f"{file.name}-wal", f"{file.name}-shm"):  # new ones have the mode of the file
                if (beside := file.with_name(name)).exists():
                    close_to_others(beside)
            self.engine = sa.create_engine(
                self.url, connect_args={"timeout": WAIT, "check_same_thread": False}, pool_size=16, max_overflow=16
            )
            sa.event.listen(self.engine, "connect", _prepare_sqlite)
            sa.event.listen(self.engine, "begin", _begin_sqlite)
        else:
            self.engine = sa.create_engine(
                self.url, pool_size=8, max_overflow=8, pool_use_lifo=True, pool_timeout=WAIT,
                connect_args={"connect_timeout": 10, "options": f"{LIMITS} {PLANS}"},
            )  # fmt: skip
            sa.event.listen(self.engine, "checkout", self._check_open)
        self._one_writer = threading.Lock()

    def close(self) -> None:
        self.engine.dispose()

    def _check_open(self, db: Any, *_: Any) -> None:
        """Have SQLAlchemy open a new connection where the server has closed one of the pool. Asking the server each
        time would be one more round trip of every transaction."""
        try:
            db.pgconn.consume_input()  # its last words
            db.pgconn.consume_input()  # the end
        except self.engine.dialect.loaded_dbapi.Error as error:
            raise sa.exc.InvalidatePoolError from error

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """All that is read inside is of one moment."""
        options = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with self.engine.connect().execution_options(**options) as conn, conn.begin():
            yield conn

    @contextmanager
    def writing(self, *campaigns: str) -> Iterator[sa.Connection]:
        """All that is written inside is written, or nothing; other writers of these campaigns wait."""
        if self.is_sqlite:
            with self._one_writer, self.engine.connect().execution_options(write=True) as conn, conn.begin():
                yield conn
        else:
            with self.engine.begin() as conn:
                for number in sorted({lock_of(campaign) for campaign in campaigns}):
                    conn.execute(_LOCK, {"number": number})
                yield conn

    def locked(self, conn: sa.Connection, campaigns: Sequence[str], wait: float) -> set[str]:
        """Of some campaigns those that this transaction may write to from now on. Where all are being written to, it
        waits for the first of them so many seconds; after that the transaction is over (:class:`Held`)."""
        if self.is_sqlite:
            return set(campaigns)
        number, free = {one: lock_of(one) for one in campaigns}, set[str]()
        if len(campaigns) > 1 or (campaigns and not wait):
            taken = set(conn.execute(_TRY, {"numbers": list(number.values())}).scalars())
            free = {one for one in campaigns if number[one] in taken}
        if campaigns and wait and not free:
            try:
                conn.execute(_WAIT, {"wait": f"{wait}s", "number": number[campaigns[0]], "later": f"{LOCK_WAIT}s"})
            except sa.exc.OperationalError as error:
                if getattr(error.orig, "sqlstate", None) == LOCK_NOT_AVAILABLE:
                    raise Held from error
                raise
            free = {campaigns[0]}
        return free

    def count_rows(self) -> None:
        """Have PostgreSQL look at how large the tables are now: it does so once a minute at best, and until then reads
        all rows of a campaign where it should look one up."""
        if not self.is_sqlite:
            with self.engine.connect() as conn, conn.begin():
                conn.execute(sa.text("ANALYZE items, annotators, votes, answers, leases"))

    def revision(self, conn: sa.Connection) -> str:
        """The version of the tables."""
        return str(conn.execute(sa.text("SELECT version_num FROM alembic_version")).scalar())

    def migrate(self) -> None:
        """Make the tables, or bring them up to date; several processes may start at once."""
        folder = str(Path(crowdwise.migrations.__file__).parent)
        config = Config()
        config.set_main_option("script_location", folder)
        config.set_main_option("version_path_separator", "os")
        script = ScriptDirectory(folder, version_locations=[folder])
        with self.writing() as conn:
            if not self.is_sqlite:
                conn.execute(sa.text("SET LOCAL lock_timeout = 0"))
                conn.execute(_LOCK, {"number": MIGRATION_LOCK})

            def steps(revision: Any, _: Any) -> Any:
                if revision:
                    return script._upgrade_revs("head", revision)
                metadata.create_all(conn)
                return script._stamp_revs("head", revision)

            context = EnvironmentContext(config, script, fn=steps)
            with context:
                context.configure(connection=conn, transactional_ddl=False)
                try:
                    context.run_migrations()
                except Exception as error:
                    if "Can't locate revision" in str(error):
                        raise ReadError(
                            "The database was written by a newer version of crowdwise: install that one."
                        ) from error
                    raise
            missing = sorted(set(metadata.tables) - set(sa.inspect(conn).get_table_names()))
            if missing:
                raise ReadError(
                    f"The database says that it has the tables of revision {self.revision(conn)}, and there is no "
                    f"{listing(missing)}: restore a backup into an empty one."
                )


_LOCK = sa.text("SELECT pg_advisory_xact_lock(:number)")
_WAIT = sa.text(
    "SELECT set_config('lock_timeout', :wait, true), pg_advisory_xact_lock(:number), "
    "set_config('lock_timeout', :later, true)"
)
LOCK_NOT_AVAILABLE = "55P03"


class Held(Exception):
    """Another process writes to the campaign."""


class _Among(sa.sql.functions.GenericFunction[Any]):
    type, inherit_cache = sa.types.NullType(), True  # SQLite would compare a boolean with 1, and use no index


def among(column: sa.Column[Any], name: str) -> Any:
    """Whether a column is one of the values of a parameter; the text of the statement does not depend on how many."""
    return _Among(column, sa.bindparam(name, expanding=True))


@compiles(_Among, "sqlite")
def _in_list(element: Any, compiler: Any, **more: Any) -> str:
    column, values = element.clauses
    each = sa.func.json_each(sa.bindparam(values.key, type_=sa.JSON)).table_valued("value")
    return str(compiler.process(column.in_(sa.select(each.c.value)), **more))


@compiles(_Among, "postgresql")
def _in_array(element: Any, compiler: Any, **more: Any) -> str:
    column, values = element.clauses
    return str(compiler.process(column == sa.any_(_array(values.key, column)), **more))


class _ArrayText(sa.types.TypeDecorator[Any]):
    """A list as the text of an array: psycopg writes each value in Python."""

    impl, cache_ok = sa.Text, True

    def process_bind_param(self, value: Any, dialect: Any) -> str:
        return "{" + ",".join(map(_element, value)) + "}"


def _element(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "NULL" if value is None else str(value)


def _array(name: str, column: sa.Column[Any]) -> Any:
    return sa.cast(sa.bindparam(name, type_=_ArrayText()), postgresql.ARRAY(column.type))


_NUMBER = sa.func.unnest(_array("numbers", sa.Column("number", sa.BigInteger))).column_valued("number")
_TRY = sa.select(_NUMBER).where(sa.func.pg_try_advisory_xact_lock(_NUMBER))


def _prepare_sqlite(db: Any, _: Any) -> None:
    db.isolation_level = None  # transactions begin as _begin_sqlite says
    for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -32000"):
        db.execute(f"PRAGMA {setting}")


def _begin_sqlite(conn: sa.Connection) -> None:
    conn.exec_driver_sql("BEGIN IMMEDIATE" if conn.get_execution_options().get("write") else "BEGIN")


def of_campaign(table: sa.Table) -> Any:
    """Whether a row is of the campaign that is the parameter ``campaign``."""
    return table.c.campaign == sa.bindparam("campaign")


def named_by(names: sa.Table, of: sa.Table) -> Any:
    """Whether a row of items or annotators is the one that a row of another table is of."""
    return (names.c.campaign == of.c.campaign) & (names.c.number == of.c[names.name.removesuffix("s")])


def count(conn: sa.Connection, table: sa.Table, *where: Any) -> int:
    """How many rows of a table there are."""
    return int(conn.execute(sa.select(sa.func.count()).select_from(table).where(*where)).scalar_one())


def largest(conn: sa.Connection, column: sa.Column[Any], *where: Any) -> int:
    """The largest number in a column; 0 where there is none."""
    return int(conn.execute(sa.select(sa.func.max(column)).where(*where)).scalar() or 0)


def insert_new(conn: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows; those whose key is there already are left out."""
    if rows:
        dialect = sqlite if conn.dialect.name == "sqlite" else postgresql
        conn.execute(dialect.insert(table).on_conflict_do_nothing(), list(rows))


def _unnested(columns: Sequence[sa.Column[Any]]) -> Any:
    """Rows whose columns are arrays, each a parameter."""
    arrays = [_array(f"each_{one.name}", one) for one in columns]
    return sa.func.unnest(*arrays).table_valued(*(sa.column(one.name, one.type) for one in columns)).render_derived()


def texts_given(dialect: str, *names: str) -> Any:
    """Rows of texts that are a parameter, to join tables to: see :func:`as_parameter`."""
    if dialect == "postgresql":
        return _unnested([sa.Column(name, sa.Text) for name in names])
    each = sa.func.json_each(sa.bindparam("each")).table_valued("value")
    return sa.select(*(sa.func.json_extract(each.c.value, f"$.{name}").label(name) for name in names)).subquery()


def as_parameter(dialect: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows as a parameter: PostgreSQL gets an array for each column, SQLite all of them as JSON."""
    if dialect == "postgresql":
        return {f"each_{name}": [row[name] for row in rows] for name in rows[0]}
    return {"each": json.dumps(rows)}


@cache
def _of_arrays(statement: Literal["insert", "delete"], table: sa.Table, names: tuple[str, ...]) -> Any:
    """What inserts or deletes rows that come as one array for each column."""
    rows = _unnested([table.c[name] for name in names])
    if statement == "insert":
        return table.insert().from_select(list(names), sa.select(*rows.c), include_defaults=False)
    return table.delete().where(*(table.c[name] == rows.c[name] for name in names))


@cache
def _of_each(statement: Literal["insert", "delete"], table: sa.Table, names: tuple[str, ...]) -> Any:
    values: dict[str, Any] = {name: sa.bindparam(f"each_{name}") for name in names}
    if statement == "insert":
        return table.insert().values(values)
    return table.delete().where(*(table.c[name] == value for name, value in values.items()))


@cache
def _in_one(steps: tuple[Any, ...], also: tuple[Any, ...]) -> Any:
    first, *others = [*(_of_arrays(*step) for step in steps), *also]
    return first.add_cte(*(other.cte(f"step{i}") for i, other in enumerate(others)))


def write_rows(
    conn: sa.Connection, rows: Sequence[dict[str, Any]],
    *steps: tuple[Literal["insert", "delete"], sa.Table, tuple[str, ...]],
    also: Mapping[Any, dict[str, Any]] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Insert some columns of rows into tables, or delete the rows of tables that have their values; ``also``: further
    statements and their parameters. PostgreSQL gets all of it in one statement, whose text does not depend on how many
    rows there are."""
    if not rows:
        return
    if conn.dialect.name == "postgresql":
        columns = dict.fromkeys(name for step in steps for name in step[2])
        values = {f"each_{name}": [row[name] for row in rows] for name in columns}
        conn.execute(_in_one(steps, tuple(also)), dict(ChainMap(values, *also.values())))
        return
    for step in steps:
        conn.execute(_of_each(*step), [{f"each_{name}": row[name] for name in step[2]} for row in rows])
    for statement, values in also.items():
        conn.execute(statement, values)


def insert_rows(conn: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows that have the same columns; other columns have their defaults."""
    if rows:
        more = {c.name: c.default.arg for c in table.c if c.default is not None and c.name not in rows[0]}  # type: ignore[attr-defined]
        rows = [{**more, **row} for row in rows]
        write_rows(conn, rows, ("insert", table, tuple(rows[0])))


log = logging.getLogger("crowdwise.server")


def close_to_others(path: Path) -> bool:
    """Take a file or folder from other users of the machine; whether it was open to them."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name != "posix" or not mode & 0o077:
        return False
    try:
        path.chmod(mode & ~0o077)
    except OSError as error:
        raise OutputError(
            f"{path} is open to other users of this machine (mode {mode:o}) and could not be closed "
            f"({error.strerror}): make it belong to the user of the server, or give another."
        ) from error
    log.warning("%s was open to other users of this machine (mode %o): it is closed now.", path, mode)
    return True


def private_folder(path: Path) -> Path:
    """A folder for this user alone, made where there is none."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    close_to_others(path)
    return path


def private_file(path: Path) -> Path:
    """A file for this user alone, empty where there was none."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    close_to_others(path)
    return path


def load_key(path: Path) -> str:
    """The key in a file, made by the first process that asks. One that others could read is replaced: sessions end."""
    if path.exists() and close_to_others(path):
        path.unlink(missing_ok=True)
        log.warning("%s: a new key is made, since others could read it. All sessions have ended.", path)
    if not path.exists():
        new = path.with_name(f".{path.name}-{secrets.token_hex(6)}")
        with open(private_file(new), "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(48))
            file.flush()
            os.fsync(file.fileno())
        try:
            with suppress(FileExistsError):
                os.link(new, path)  # whole, and only where no other process was first
        finally:
            new.unlink()
    key = path.read_text(encoding="ascii").strip()
    if len(key) < 32:
        raise OutputError(f"{path} holds no key of a server: remove it, and a new one is made.")
    return key
