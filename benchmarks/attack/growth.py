"""Days of traffic in minutes: what a server that is never restarted keeps, in memory and on the disk.

    python benchmarks/attack/growth.py [--days 3] [--requests 20000] [--votes 5] [--only server,folder]

The clock of the store is moved on with every request, so that what is kept for a time goes when that is over. A day has
``--requests`` requests of ``--votes`` votes; each is an event, and with it goes a delivery to a webhook whose receiver
is away, a question that nobody answers, and now and then a session that ends. ``folder`` is a campaign in a folder.
Sizes at the end of each day go to standard output as JSON; the exit status is 1 where something grows that should not.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from targets import conclude, options

import crowdwise as cw
from crowdwise.server.access_tokens import Session
from crowdwise.server.configuration import load_configuration
from crowdwise.server.service import Service
from crowdwise.store import steady_clock, webhook_rows
from crowdwise.store.campaign_rows import create_campaign, find_campaign
from crowdwise.store.lease_rows import LeaseAsked
from crowdwise.store.store_tables import metadata
from crowdwise.store.vote_rows import VoteGiven, add_together

DAY, PEOPLE = 86_400.0, 50
MOST_WAL = 64.0
"""Megabytes of a write-ahead log."""


def megabytes(*paths: Path) -> float:
    files = [one for path in paths for one in ([path] if path.is_file() else path.rglob("*")) if one.is_file()]
    return round(sum(one.stat().st_size for one in files) / 2**20, 1)


def memory() -> float:
    gc.collect()
    return round(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def traffic(days: int, requests: int, votes: int, seed: int) -> Any:
    """(item, annotator, label) of the votes of each request, day after day; all pairs differ."""
    dice, n = np.random.default_rng(seed), 0
    for _ in range(days * requests):
        yield [(f"i{(n + v) // 5}", f"p{(n + v) % PEOPLE}", "ab"[int(dice.integers(2))]) for v in range(votes)]
        n += votes


class Running:
    """A server without HTTP, whose clock is moved on."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.began, self.passed = folder, steady_clock.now(), 0.0
        steady_clock.now = lambda: self.began + self.passed
        self.service = Service(load_configuration({"data": str(folder), "private_webhooks": True}, environment={}))
        self.service.webhooks._stop.set()  # its rounds are made here, by the clock of the store
        given = {"name": "day", "classes": ["a", "b"], "unknown": "add", "patience": 600.0}
        self.campaign = self.service.write(lambda conn: create_campaign(conn, given)).id
        add = webhook_rows.add_webhook
        self.hook = self.service.write(lambda conn: add(conn, self.campaign, "http://127.0.0.1:9/", []))["id"]

    def request(self, number: int, votes: list[tuple[str, str, str]], seconds: float) -> None:
        service, self.passed = self.service, self.passed + seconds
        asyncio.run(service.together_now(self.campaign, add_together, [VoteGiven(*vote) for vote in votes]))
        service.write(lambda conn: webhook_rows.take_events(conn, self.hook), self.campaign)
        if number % 10 == 0:
            asyncio.run(service.lease_now(self.campaign, LeaseAsked(1 + number // 10 % PEOPLE, [1 + number % 500], 1)))
        if number % 100 == 0:
            session = Session(f"s{number}-{self.passed}", "none", steady_clock.now() + 3600.0, "")
            asyncio.run(service.end_session(session))
            service.view(self.campaign)
        if number % 500 == 0:
            service.webhooks._stop.clear()
            service.webhooks.clean()
            service.webhooks._stop.set()

    def sizes(self) -> dict[str, Any]:
        def count(conn: Any) -> dict[str, int]:
            return {name: conn.execute(sa.text(f"SELECT count(*) FROM {name}")).scalar() for name in metadata.tables}

        row = self.service.read(lambda conn: find_campaign(conn, self.campaign))
        there = {name: n for name, n in self.service.read(count).items() if n}
        wal = self.folder / "server.db-wal"
        return {
            "votes": row.n_answers, "memory": memory(), "store": megabytes(self.folder / "server.db"),
            "wal": megabytes(wal) if wal.exists() else 0.0, "snapshots": megabytes(self.folder / "snapshots"),
            "rows": there,
        }  # fmt: skip

    def close(self) -> None:
        self.service.close()


class InFolder:
    """A campaign in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "day"
        self.campaign = cw.Campaign.create(self.folder, cw.OneCoin(), classes=["a", "b"], unknown="add")

    def request(self, number: int, votes: list[tuple[str, str, str]], seconds: float) -> None:
        self.campaign.add(votes)
        if number % 1_000 == 0:
            self.campaign.status()

    def sizes(self) -> dict[str, Any]:
        log = self.folder / "campaign.db-wal"
        return {
            "votes": self.campaign.status()["votes"], "memory": memory(),
            "store": megabytes(self.folder / "campaign.db"), "wal": megabytes(log) if log.exists() else 0.0,
            "snapshots": len(list(self.folder.glob("model-*"))),
        }  # fmt: skip

    def close(self) -> None:
        self.campaign.close()


def too_much(days: list[dict[str, Any]], requests: int) -> list[str]:
    """What grew beyond its limit."""
    last = days[-1]
    rows, found = last.get("rows", {}), []
    limits = {"events": requests / 24.0 * 1.5 + 1_500, "leases": PEOPLE + 600, "ended_sessions": requests / 50 + 10}
    limits |= {"deliveries": 1_500}
    found += [name for name, most in limits.items() if rows.get(name, 0) > most]
    found += ["wal"] if last["wal"] > MOST_WAL else []
    if len(days) > 2:  # the first has what is loaded once
        most = 30.0 + 0.002 * (last["votes"] - days[1]["votes"])
        found += ["memory"] if last["memory"] - days[1]["memory"] > most else []
    return found


def main() -> int:
    kinds = {"server": Running, "folder": InFolder}
    parser = options(__doc__, kinds)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--votes", type=int, default=5)
    given = parser.parse_args()
    out: dict[str, Any] = {}
    for name in given.only.split(","):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            run, days = kinds[name](Path(folder)), list[dict[str, Any]]()
            try:
                for i, votes in enumerate(traffic(given.days, given.requests, given.votes, given.seed)):
                    run.request(i, votes, DAY / given.requests)
                    if (i + 1) % given.requests == 0:
                        days.append(run.sizes())
                        print(f"{name}: day {len(days)}, {days[-1]}", file=sys.stderr, flush=True)
            finally:
                run.close()
            out[name] = {"days": days, "too_much": too_much(days, given.requests)}
    return conclude(given.seed, out, sum(len(one["too_much"]) for one in out.values()))


if __name__ == "__main__":
    sys.exit(main())
