"""What the routes and pages call: one object for a process, over the store, the models and the keys.

Methods named ``..._now`` are for the event loop (``await``); the others block, and belong into a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import sqlalchemy as sa

from crowdwise import registry
from crowdwise.server.access_tokens import Session, Signer, Token, find_token, make_token
from crowdwise.server.configuration import Configuration
from crowdwise.server.follower import Follower
from crowdwise.server.media import Media
from crowdwise.server.question_queue import InFlight, QuestionQueues, Shown, hand_out
from crowdwise.server.webhook_sender import WebhookSender
from crowdwise.store import steady_clock
from crowdwise.store.campaign_rows import (
    CampaignRow,
    add_event,
    add_point,
    find_campaign,
    point_of,
    set_proof,
    skills_noted,
)
from crowdwise.store.database import Database, insert_new, load_key, private_folder
from crowdwise.store.group_commit import GroupCommit, Work
from crowdwise.store.lease_rows import LeaseAsked
from crowdwise.store.roster_rows import annotator_of
from crowdwise.store.store_tables import audit, ended_sessions, tokens

T = TypeVar("T")
Run = Callable[[sa.Connection], T]  # what reads or writes, with a connection
DAY = 86_400.0
HEAVY = 4  # threads for results and reports; those of one campaign are computed one after the other
READY_SECONDS = 5.0  # a store that takes longer to write nothing is not ready
TOKEN_SECONDS = 1.0  # how long another worker may take a revoked token for valid


class Service:
    """The server of a process, without HTTP."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        folder = private_folder(Path(configuration.data))
        self.database = Database(configuration.url)
        self.database.migrate()
        self.signer = Signer(load_key(Path(configuration.key_file or folder / "session.key")))
        self.follower = Follower(self.database, folder / "snapshots", self._note)
        self.commit = GroupCommit(self.database, self.follower.poke)
        self.webhooks = WebhookSender(self.read, self.write, configuration.private_webhooks)
        self.media = Media(configuration, self.signer)
        self.queues = QuestionQueues(
            self.view, self.follower.seen, self.lease_now, self.signer.ticket, self.media.signed
        )
        self.started, self.closing = steady_clock.now(), False
        self._tokens: dict[str | Session, tuple[float, Token | None]] = {}
        self._looking: InFlight[Token | None] = InFlight()
        self._computing: InFlight[Any] = InFlight()
        self._heavy = ThreadPoolExecutor(HEAVY, thread_name_prefix="heavy")
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.streams: Counter[str] = Counter()  # open event streams of each token
        self.uploading = asyncio.Lock()  # held while an upload is read: one at a time takes its memory
        self._numbers: dict[tuple[str, Any], int] = {}

    def close(self) -> None:
        """Write what waits, then close the store."""
        self.closing = True
        self.webhooks.close()
        self._heavy.shutdown(cancel_futures=True)
        self.follower.close()  # it writes, too
        self.commit.close()
        self.database.close()

    def _note(self, view: Any) -> None:
        """Add a point to the curve of a campaign, and an event where its status changed; before that, look at the
        gold labels of a proof, where that is due."""
        view = self.look(view)
        point = point_of(view, self.read(lambda conn: skills_noted(conn, view.row.id)))
        standing = {"state": view.standing.state, "stop": view.standing.why, "advice": view.standing.advice}
        self.write(lambda conn: add_point(conn, point, standing), view.row.id)

    def look(self, view: Any) -> Any:
        """The view, or the one after a look at gold labels where that was due; of two workers one notes its look."""
        row = view.row
        if row.answer_type != registry.VOTES or not view.situation.look_due(row.rule):
            return view
        now = view.situation
        proof = now.proof.looked(row.rule, view.online, now.state.gold, now.at)

        def keep(conn: sa.Connection) -> None:
            kept = find_campaign(conn, row.id)
            if kept.settings.get("proof") == row.settings["proof"]:
                set_proof(conn, kept, proof)
                add_event(conn, row.id, "proof", asdict(proof.looks[-1]))

        self.write(keep, row.id)
        return self.view(row.id)

    def read(self, run: Run[T], campaign: str | None = None) -> T:
        """Read something of one moment; of a campaign, an error where there is none."""
        with self.database.reading() as conn:
            if campaign is not None:
                find_campaign(conn, campaign)
            return run(conn)

    async def read_now(self, run: Run[T], campaign: str | None = None) -> T:
        return await asyncio.to_thread(self.read, run, campaign)

    async def shared_now(self, what: Hashable, run: Run[T]) -> T:
        """Read something once for all who ask for the same (``what``) meanwhile."""
        shared: T = await self._computing.wait(what, partial(self.read_now, run))
        return shared

    def write(self, run: Run[T], campaign: str | None = None) -> T:
        """Write something; it is on the disk when this returns. Not on the event loop."""
        done: T = self.commit.submit(Work(campaign, run)).result()
        return done

    async def write_now(self, run: Run[T], campaign: str | None = None) -> T:
        done: T = await asyncio.wrap_future(self.commit.submit(Work(campaign, run)))
        return done

    async def ready_now(self) -> None:
        """Return when something could be written; an error where it could not, or not soon."""
        write = partial(self.write_now, lambda conn: None)
        await asyncio.wait_for(self._computing.wait("ready", write), READY_SECONDS)

    async def together_now(self, campaign: str, together: Any, argument: Any) -> Any:
        """Write something together with all that waits and is written the same way (:class:`Work`): votes of a request,
        all or none; leases. It is on the disk when this returns."""
        return await asyncio.wrap_future(self.commit.submit(Work(campaign, together=together, argument=argument)))

    async def lease_now(self, campaign: str, asked: LeaseAsked) -> list[Shown]:
        """Lease questions."""
        return list(await self.together_now(campaign, hand_out, asked))

    async def number_now(self, campaign: str, name: Any) -> int:
        """The number of an annotator, which never changes; unknown ones are added where the campaign says so."""
        key = (campaign, name)
        if key not in self._numbers:

            def find(conn: sa.Connection) -> int:
                return annotator_of(conn, find_campaign(conn, campaign), name)

            if len(self._numbers) > 100_000:
                self._numbers.clear()
            self._numbers[key] = await self.write_now(find, campaign)
        return self._numbers[key]

    def campaign(self, id_: str) -> CampaignRow:
        return self.read(lambda conn: find_campaign(conn, id_))

    def view(self, campaign: str, *, exact: bool = True, leases: bool = False) -> Any:
        """The campaign as it is now (not ``exact``: was a moment ago); with ``leases`` all questions that are out."""
        row = self.campaign(campaign)
        live = self.follower.get(row)
        return live.with_leases(row, self.follower.written(campaign)) if leases else live.latest(row, exact=exact)

    async def heavy_now(self, run: Callable[[], T]) -> T:
        """What takes long, in threads that annotators do not need."""
        return await asyncio.get_running_loop().run_in_executor(self._heavy, run)

    async def compute_now(self, campaign: str, what: Hashable, make: Callable[[Any], T], *, leases: bool = False) -> T:
        """What ``make`` gives of the campaign as it is now: once for all who ask for the same (``what``) of the same
        votes meanwhile, and one for a campaign at a time."""
        row = await self.read_now(lambda conn: find_campaign(conn, campaign))
        lane = self._lanes.setdefault(campaign, asyncio.Lock())

        async def run() -> T:
            async with lane:
                return await self.heavy_now(lambda: make(self.view(campaign, leases=leases)))

        done: T = await self._computing.wait((campaign, what, row.last_vote, row.version, leases), run)
        return done

    async def token_now(self, by: str | Session) -> Token | None:
        """The valid token with a secret, or of a session; looked up again after a moment, once for all who ask."""
        when, token = self._tokens.get(by, (-1e9, None))
        if time.monotonic() - when > TOKEN_SECONDS:
            token = await self._looking.wait(by, partial(self._find_token, by))
        return token if token is not None and token.valid else None

    def has_seen(self, by: str | Session | None) -> bool:
        """Whether a secret or session was valid when it was last looked up."""
        return by is not None and self._tokens.get(by, (0.0, None))[1] is not None

    async def _find_token(self, by: str | Session) -> Token | None:
        now, kept = time.monotonic(), self._tokens
        token = await self.read_now(partial(find_token, by=by))
        if len(kept) > 10_000:
            kept.clear()
        kept[by] = (now, token)  # no longer the ones in use, where a token was revoked meanwhile
        return token

    async def end_session(self, session: Session) -> None:
        """A session ends before its time; those that are over are forgotten."""

        def end(conn: sa.Connection) -> None:
            conn.execute(ended_sessions.delete().where(ended_sessions.c.expires < steady_clock.now() - DAY))
            insert_new(conn, ended_sessions, [{"id": session.id, "expires": session.expires}])

        await self.write_now(end)
        self.forget_tokens()

    def forget_tokens(self) -> None:
        """Look all tokens up again: one was revoked."""
        self._tokens = {}
        self._looking.clear()

    def first_token(self) -> str | None:
        """The secret of a new admin token where there is none yet: it is shown once."""

        def make(conn: sa.Connection) -> str | None:
            if conn.execute(sa.select(tokens.c.id).where(tokens.c.role == "admin").limit(1)).first() is not None:
                return None
            return make_token(conn, "admin", "first")[0]

        return self.write(make, "tokens")


def add_audit(
    conn: sa.Connection, action: str, detail: str, *, campaign: str | None, token: str | None, actor: str, address: str
) -> None:
    """Note who did what."""
    row = {
        "time": steady_clock.now(), "campaign": campaign, "token": token, "actor": actor, "action": action,
        "detail": detail, "address": address,
    }  # fmt: skip
    conn.execute(audit.insert(), row)
