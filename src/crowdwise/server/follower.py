"""Keeps the models of campaigns up with the store, in the background; a request that needs the newest waits for it."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from crowdwise import registry
from crowdwise.server.live_refit import LiveRefit
from crowdwise.store import steady_clock
from crowdwise.store.campaign_rows import CampaignRow, NotThere, find_campaign, read_marks
from crowdwise.store.database import Database, main_of
from crowdwise.store.live_votes import LiveVotes

PAUSE = 0.5  # seconds between looks at what other workers wrote
REST, SHARE = 1.0, 10.0  # seconds between refreshes in the background; at least so many times as long as one took
UNUSED = 1800.0  # seconds after which an unused model is dropped
NOTED = 5.0  # the fewest seconds between points of the curve of a campaign
PATIENCE = 20.0  # the longest that a request waits for the newest model before it gets an older one
MANY, SOON = 5_000, 0.15  # votes from which on an annotator waits only so many seconds for a newer model

log = logging.getLogger("crowdwise.server")


class LiveCampaign:
    """The model of one campaign and its latest view."""

    def __init__(self, database: Database, row: CampaignRow, snapshots: Path) -> None:
        self.database, self.id = database, row.id
        self.model: LiveVotes | LiveRefit
        self.model = LiveVotes(snapshots / row.id) if row.answer_type == registry.VOTES else LiveRefit()
        self.view: Any = None
        self.looked = 0.0  # when the reading of the latest view began: it may lack what was written after that
        self.lock, self.asked, self.lock_renewal = threading.Lock(), threading.Lock(), threading.Lock()
        self.renewal: threading.Thread | None = None
        """What refreshes a large model while annotators get questions of the older one."""
        self.used = time.monotonic()
        self.next_time, self.cost = 0.0, 0.0
        """When the next refresh in the background may be, and how long the last took."""
        self.next_look = 0.0
        """When it is looked at in any case: requests may refresh it so often that the background has nothing to do."""
        self.complaint = ""  # the error of the last refresh in the background
        self.counted = (0, 0)  # how many votes and items there were when the store last looked at its tables' size
        self.noted = (0, 0.0)  # the last vote of the latest point of its curve, and when the next may be noted

    def refresh(self) -> Any:
        """The view of now; one thread at a time makes it."""
        with self.lock:
            began, looked = time.monotonic(), steady_clock.now()
            with self.database.reading() as conn:
                row = find_campaign(conn, self.id)
                view = self.model.follow(conn, row)
            self.view = view
            self.looked = looked  # after the view: who reads it before the view gets one that is no older
            self.cost = time.monotonic() - began
            self.next_time = time.monotonic() + max(REST, SHARE * self.cost)
            return view

    def save(self) -> None:
        """Save a snapshot of the model, where enough was learned since the last."""
        if not isinstance(self.model, LiveVotes) or not self.model.snapshot_is_due:
            return
        with self.lock, self.database.reading() as conn:
            due = self.model.snapshot_is_due  # nothing is learned meanwhile
            save = self.model.snapshot(conn, find_campaign(conn, self.id)) if due else None
        if save is not None:
            save()

    def latest(self, row: CampaignRow, *, exact: bool = True) -> Any:
        """A view; with ``exact`` one that has seen all that the row of the campaign has."""
        self.used = time.monotonic()
        view = self.view
        if view is not None and (not exact or (view.seq >= row.last_vote and view.row.version >= row.version)):
            return view
        return self._newest(row)

    def _newest(self, row: CampaignRow) -> Any:
        until = time.monotonic() + PATIENCE
        while True:
            with self.asked:  # those who wait together get the same
                view = self.view
                known = view is not None and view.seq >= row.last_vote and view.row.version >= row.version
                if known or (view is not None and time.monotonic() > until):
                    return view
                self.refresh()

    def with_leases(self, row: CampaignRow, written: float) -> Any:
        """A view that also has seen the questions that are out now; an older one where a model takes long: an
        annotator does not wait until it has learned again from all votes."""
        began, self.used = steady_clock.now(), time.monotonic()
        looked, view = self.looked, self.view
        if view is not None and view.seq >= row.last_vote and view.row.version >= row.version:
            if looked > written and began - looked < PAUSE:
                return view
            if self.cost > PAUSE and time.monotonic() < self.next_time:
                return view
        if view is None or row.last_vote < MANY:
            self._renew(began)
        else:
            with self.lock_renewal:  # those who wait together wait for the same
                if self.renewal is None or not self.renewal.is_alive():
                    self.renewal = threading.Thread(target=self._renew, args=(began,), daemon=True)
                    self.renewal.start()
            self.renewal.join(SOON)
        return self.view

    def _renew(self, began: float) -> None:
        with self.asked:
            if self.looked <= began:
                self.refresh()


class Follower:
    """The models of a process."""

    def __init__(self, database: Database, snapshots: Path, note: Callable[[Any], None]) -> None:
        self.database, self.snapshots, self.note = database, snapshots, note
        self._live: dict[str, LiveCampaign] = {}
        self._lock = threading.Lock()
        self._written: dict[str, float] = {}  # when something was last written to a campaign by this process
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._loop, name="follower", daemon=True)
        self._thread.start()

    def get(self, row: CampaignRow) -> LiveCampaign:
        """The model of a campaign, from now on followed."""
        with self._lock:
            if row.id not in self._live:
                self._live[row.id] = LiveCampaign(self.database, row, self.snapshots)
            return self._live[row.id]

    def seen(self, campaign: str) -> Any:
        """The latest view of a campaign that there is, or nothing."""
        live = self._live.get(campaign)
        return None if live is None else live.view

    def forget(self, campaign: str) -> None:
        """Drop a campaign that was deleted, and its questions, with their snapshots."""
        for one in [campaign, *(id_ for id_ in list(self._live) if id_.startswith(f"{campaign}."))]:
            self.drop(one)
            shutil.rmtree(self.snapshots / one, ignore_errors=True)

    def drop(self, campaign: str) -> None:
        with self._lock:
            self._live.pop(campaign, None)
            self._written.pop(campaign, None)

    def poke(self, campaigns: set[str]) -> None:
        """Something was written to some campaigns."""
        self._written |= dict.fromkeys(campaigns, steady_clock.now())
        mains = set(map(main_of, campaigns))
        for id_, live in list(self._live.items()):
            if main_of(id_) in mains:
                live.used = time.monotonic()
        self._wake.set()

    def written(self, campaign: str) -> float:
        return self._written.get(campaign, 0.0)

    def close(self) -> None:
        self._stop.set()
        self._wake.set()
        self._thread.join(timeout=PATIENCE)

    def __len__(self) -> int:
        return len(self._live)

    def _loop(self) -> None:
        there = self._marks()
        for folder in self.snapshots.glob("*") if there else ():
            if folder.name not in there:  # the campaign is gone
                self.forget(folder.name)
        while not self._stop.is_set():
            self._wake.wait(PAUSE)
            self._wake.clear()
            with self._lock:
                new = set(self._written) - set(self._live)
                live = list(self._live.values())
            live += [one for campaign in new if (one := self._start(campaign)) is not None]
            due = [one for one in live if time.monotonic() >= min(one.next_time, one.next_look)]
            marks = self._marks() if due else {}
            for one in due:
                if self._stop.is_set():
                    return
                self._look(one, marks)
            self._stop.wait(0.02)

    def _marks(self) -> dict[str, tuple[int, int]]:
        """Campaign -> its last vote and its version, as the store has them; nothing where it is away."""
        try:
            with self.database.reading() as conn:
                return read_marks(conn)
        except sa.exc.SQLAlchemyError:
            return {}

    def _start(self, campaign: str) -> LiveCampaign | None:
        """Follow a campaign that was written to."""
        try:
            with self.database.reading() as conn:
                row = find_campaign(conn, campaign)
                for further in row.questions.values():
                    self.get(find_campaign(conn, further))
                return self.get(row)
        except Exception:  # it was deleted, or is none, or the store is away
            self._written.pop(campaign, None)
            return None

    def _look(self, one: LiveCampaign, marks: dict[str, tuple[int, int]]) -> None:
        """Refresh a model where the store has more than it has seen; note a point of its curve, and a snapshot."""
        now = time.monotonic()
        one.next_look = now + REST
        if now - one.used > UNUSED:
            self.drop(one.id)
            return
        if one.id not in marks:
            return
        last_vote, version = marks[one.id]
        try:
            view = one.view
            behind = view is None or view.seq < last_vote or view.row.version < version or one.model.stale
            if behind and now >= one.next_time:
                view = one.refresh()
            one.save()
            rows = last_vote, len(one.model.names.items)
            if any(n > 200 + 2 * before for n, before in zip(rows, one.counted, strict=True)):
                one.counted = rows
                self.database.count_rows()
            if view is not None and view.seq > one.noted[0] and time.monotonic() > one.noted[1]:
                began = time.monotonic()
                self.note(view)
                one.noted = (view.seq, time.monotonic() + max(NOTED, 20.0 * (time.monotonic() - began)))
        except NotThere:  # it was deleted
            self.forget(one.id)
        except Exception as error:
            if str(error) != one.complaint:  # once, not at every attempt
                log.exception("A model could not be refreshed.", extra={"campaign": one.id})
            one.complaint = str(error)
            one.next_time = time.monotonic() + 5.0
