"""The store is opened, brought up to date, and written in transactions: SQLite (one writer) or PostgreSQL.

**Writes of a campaign are serial.** In PostgreSQL a transaction that writes to a campaign holds its advisory lock until
it is committed; in SQLite there is one writer. So votes become visible in the order of their numbers, on every worker
and every machine, and whoever follows them skips none.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql, sqlite

import crowdwise.migrations
from crowdwise.errors import OutputError, ReadError
from crowdwise.server.store_tables import facts

MIGRATION_LOCK = 0x63726F77
WAIT = 30.0
"""Seconds to wait for another process that writes (SQLite), or for a connection."""
AT_ONCE = 400
"""Values in one IN (...)."""

__all__ = ["AT_ONCE", "Database", "insert_new", "load_fact", "lock_of"]


def lock_of(campaign: str) -> int:
    """The number of the advisory lock of a campaign: 63 bits of a digest of its id."""
    return int.from_bytes(hashlib.sha256(campaign.encode()).digest()[:8], "big") >> 1


class Database:
    """An open store."""

    def __init__(self, url: str) -> None:
        self.url = sa.make_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        if self.is_sqlite:
            Path(self.url.database or "").parent.mkdir(parents=True, exist_ok=True)
            self.engine = sa.create_engine(
                self.url, connect_args={"timeout": WAIT, "check_same_thread": False}, pool_size=16, max_overflow=16
            )
            sa.event.listen(self.engine, "connect", _prepare_sqlite)
            sa.event.listen(self.engine, "begin", _begin_sqlite)
        else:
            self.engine = sa.create_engine(
                self.url, pool_size=8, max_overflow=8, pool_pre_ping=True, pool_timeout=WAIT,
                connect_args={"connect_timeout": 10},
            )  # fmt: skip
        self._one_writer = threading.Lock()

    def close(self) -> None:
        self.engine.dispose()

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

    def revision(self, conn: sa.Connection) -> str:
        """The version of the tables."""
        return str(conn.execute(sa.text("SELECT version_num FROM alembic_version")).scalar())

    def migrate(self) -> None:
        """Bring the tables up to date; several processes may start at once."""
        folder = str(Path(crowdwise.migrations.__file__).parent)
        config = Config()
        config.set_main_option("script_location", folder)
        config.set_main_option("version_path_separator", "os")
        script = ScriptDirectory(folder, version_locations=[folder])
        with self.writing() as conn:
            if not self.is_sqlite:
                conn.execute(_LOCK, {"number": MIGRATION_LOCK})
            context = EnvironmentContext(config, script, fn=lambda rev, _: script._upgrade_revs("head", rev))
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


_LOCK = sa.text("SELECT pg_advisory_xact_lock(:number)")


def _prepare_sqlite(db: Any, _: Any) -> None:
    db.isolation_level = None  # transactions begin as _begin_sqlite says
    for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -32000"):
        db.execute(f"PRAGMA {setting}")


def _begin_sqlite(conn: sa.Connection) -> None:
    conn.exec_driver_sql("BEGIN IMMEDIATE" if conn.get_execution_options().get("write") else "BEGIN")


def insert_new(conn: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows; those whose key is there already are left out."""
    if rows:
        dialect = sqlite if conn.dialect.name == "sqlite" else postgresql
        conn.execute(dialect.insert(table).on_conflict_do_nothing(), list(rows))


def load_fact(database: Database, key: str, make: Any) -> Any:
    """A fact of the server, made by the first who asks."""
    query = sa.select(facts.c.value).where(facts.c.key == key)
    with database.reading() as conn:
        found = conn.execute(query).scalar()
    if found is None:
        with database.writing("facts") as conn:
            insert_new(conn, facts, [{"key": key, "value": json.dumps(make())}])
            found = conn.execute(query).scalar()
    if found is None:
        raise OutputError(f"The fact {key} could not be written to the store.")
    return json.loads(found)
