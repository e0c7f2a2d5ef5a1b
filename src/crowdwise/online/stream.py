"""Learning from a stream: votes come in batches, in any order, and what is known of annotators follows.

The two steps are those of :mod:`crowdwise.core.em`, on the items a batch touches: ``expect`` gives their posteriors
and statistics under the parameters of their annotators, and the statistics of those annotators move.

=========================  ==========================================================================================
``step=0.6``, decayed      whenever an item gets a vote, all its votes are counted under its new posterior, and the
                           average table a[m] of each of its annotators moves towards what that says,
                           a <- (1 - g) a + g c, with g = t^-0.6 at the t-th time; what is used is the average of
                           a over times, weighted towards the late ones (Polyak and Ruppert)
``step=None``, exact       counts are those of the current posterior of every item: what an item gave before is taken
                           out when it is looked at again, and ``revisit`` old items are for each new one
                           (incremental EM: Neal and Hinton 1998); ``settle`` goes on to the optimum of a batch fit
=========================  ==========================================================================================

An annotator's clock is the annotator's own: who has not voted for a while is not forgotten. With g = 1/t the decayed
tables would be plain averages; larger steps forget what was said of items under poor parameters, or when they had few
votes.

**A young stream is made anew.** What a stream believes when items have a vote or two decides which way it goes: a class
that looks frequent then draws items to it, and annotators who disagree are taken to be poor. A batch fit begins with
vote shares of all votes and does not have this past. So, until ``YOUNG`` votes are there, the statistics begin again
from the vote shares whenever the votes have grown by the factor ``renew`` (or by that share of the M K^2 entries of all
tables, where these are more), and take ``PASSES`` passes. That is a bounded cost a vote, and a bounded pause.

Everybody is shrunk towards the crowd by ``shrink`` votes, which fall on the classes as the items do, and the crowd
starts with ``trust`` more right answers than wrong ones of each kind, so that labels mean what they say until the votes
tell otherwise. With ``shrink=0`` only strangers are, and exact statistics go to the optimum of a batch fit by revisits
alone.

``trust`` and ``LATE`` were chosen on simulated crowds; how votes are shrunk, and ``renew``, by how often the labels
after one pass are those of a batch fit, on real votes without their truth. Where the next votes are chosen by how sure
items are, less trust (9) serves better: an item with one vote should look in doubt.

Cost: a batch of b votes needs O(b + votes already on its items) time, however many votes came before, and O(S) memory;
with ``memory`` set, only the votes of so many items are kept, those voted on last.

O. Cappé and E. Moulines, On-line expectation-maximization for latent data models, JRSS B 71 (2009).
P. A. Traganitis and G. B. Giannakis, Online EM for crowdsourcing (2020), for the step t^-0.6 with annotators.
R. M. Neal and G. E. Hinton, A view of the EM algorithm that justifies incremental, sparse, and other variants (1998).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from crowdwise.core import em, starts
from crowdwise.core.consensus import Consensus, Outcome, build_consensus
from crowdwise.core.em import Family, Params, Part, Stats
from crowdwise.core.numerics import Floats, Ints, decide, normalise
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, NotFittedError, ParameterError
from crowdwise.online import stream_files
from crowdwise.online.vote_store import Ledger, OnDuplicate, grown

if TYPE_CHECKING:
    from crowdwise.core.model import EMModel

BLOCK = (20, 1000)
"""The fewest and the most items that are looked at under the same parameters; in between a tenth of those so far."""
RENEW = 1.2
"""By what factor the votes of a young stream grow before its statistics are made anew."""
YOUNG = 300_000
"""Up to so many votes the statistics are made anew as the stream grows."""
PASSES = 20
"""How often all votes are looked at when they are."""
LATE = 2.0
"""The average over an annotator's votes gives the t-th a weight of about t to this power."""

__all__ = ["Online"]


class Online:
    """A model that follows a stream of votes.

    Parameters
    ----------
    model
        A model of the Dawid-Skene family or ``ibcc``, whose prior is a number or an array (one that is learned from
        all votes at once cannot follow a stream).
    step
        The power of the steps, above 0.5 and at most 1; ``None`` for exact statistics.
    revisit
        With exact statistics: how many old items to look at again for each item of a batch.
    renew
        By what factor the votes of a young stream grow before its statistics are made anew; ``None``: never.
    shrink
        How many votes an annotator is shrunk towards the crowd by.
    trust
        How many more right than wrong answers of each kind the crowd starts with, for each class.
    memory
        The most items whose votes are kept; ``None`` for all.
    classes
        All classes, in order, where they are known beforehand. New ones may come all the same.
    on_duplicate
        A second vote of an annotator on an item: ``"error"``, the ``"first"`` stays, the ``"last"`` replaces it, or
        ``"all"`` count.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(600, n_annotators=20, n_classes=3, votes_per_item=5, random_state=0)
    >>> online = cw.Online(cw.DawidSkene())
    >>> for batch in (crowd.votes[:200], crowd.votes[200:400], crowd.votes[400:]):
    ...     online = online.partial_fit(batch)
    >>> round(online.consensus().score(crowd.truth), 1)
    0.9
    """

    def __init__(
        self,
        model: EMModel,
        *,
        step: float | None = 0.6,
        revisit: float = 1.0,
        renew: float | None = RENEW,
        shrink: float = 4.0,
        trust: float = 50.0,
        memory: int | None = None,
        classes: Any = None,
        on_duplicate: OnDuplicate = "error",
    ) -> None:
        model.check_parameters()
        model.check_stream()
        if step is not None and not (isinstance(step, (int, float)) and 0.5 < step <= 1.0):
            raise ParameterError(f"step={step!r}: expected a number above 0.5 and at most 1, or None (exact).")
        for name, value in (("revisit", revisit), ("shrink", shrink), ("trust", trust)):
            if not (isinstance(value, (int, float)) and 0.0 <= value < np.inf):
                raise ParameterError(f"{name}={value!r}: expected a number of at least 0.")
        if renew is not None and not (isinstance(renew, (int, float)) and 1.0 < renew < np.inf):
            raise ParameterError(f"renew={renew!r}: expected a factor above 1, or None (never).")
        if memory is not None and (not isinstance(memory, (int, np.integer)) or memory < 1):
            raise ParameterError(f"memory={memory!r}: expected a number of items of at least 1, or None for all.")
        if on_duplicate not in ("error", "first", "last", "all"):
            raise ParameterError(f"on_duplicate={on_duplicate!r}: expected 'error', 'first', 'last' or 'all'.")
        self.model, self.step, self.revisit, self.renew, self.shrink = model, step, revisit, renew, shrink
        self.trust, self.memory, self.on_duplicate = trust, memory, on_duplicate
        self.ledger = Ledger([] if classes is None else list(classes))
        K = len(self.ledger.classes)
        self.clock = np.zeros(0)
        """M: how often (by weight) the votes of each annotator were counted so far."""
        self.given = np.zeros(0)
        """M: the number (weight) of votes each annotator gave so far."""
        self.moving = np.zeros((0, K, K))
        """M x L x K: decayed tables a[m] of a vote."""
        self.counts = np.zeros((0, K, K))
        """M x L x K: averaged tables of a vote; with exact statistics, counts."""
        self.posterior = np.zeros((0, K))
        """N x K, as it was when an item was last looked at."""
        self.mass = np.zeros(K)
        self.pooled = np.zeros((K, K))
        """L x K: the counts of everybody."""
        self.n_items = 0
        """Items that were voted on, forgotten ones included."""
        self.touches = 0
        """How often an item was looked at because of new votes."""
        self.looked_at = 0
        """Where the next old item to look at again stands."""
        self.renewed_at = 0
        """How many votes there were when the statistics were last made anew."""
        self.settled = False
        """Whether the statistics are those of :meth:`settle`, without any shrinking."""
        self.params_: Params
        """What the last :meth:`consensus` was made with."""
        self.stats_: Stats

    # ---------------------------------------------------------------- learning

    def partial_fit(self, votes: Votes, gold: Any = None) -> Self:
        """Learn from more votes: of items, annotators and classes seen before or not.

        ``truth``: the class of some of their items, where it is known, for the model to use.
        """
        if not isinstance(votes, Votes):
            raise InputError(
                f"Expected Votes and found {type(votes).__name__}: make them with Votes.from_records, say."
            )
        known = None if gold is None else votes.encode_truth(gold)
        self.ledger.check(votes, self.on_duplicate)
        before = len(self.ledger.items)
        if self.step is None:
            self._take_out(np.sort(self.ledger.items.find(votes.items)[1]))
        touched, rows = self.ledger.add(votes, self.on_duplicate)
        self._make_room()
        np.add.at(self.given, self.ledger.rows["annotator"][rows], self.ledger.rows["weight"][rows])
        self.settled = False
        if known is not None:
            self.ledger.know(votes, known)
        done = 0
        while done < len(touched):  # a large batch is a stream of its own: what is learned from its first items helps
            items = touched[done : done + int(np.clip(self.touches // 10, *BLOCK))]
            if self.step is None:
                self._replace(items)
                self._look_again(int(np.ceil(self.revisit * len(items))))
            else:
                self._move(items, self.step)
            done += len(items)
            self.touches += len(items)
        self.n_items += len(self.ledger.items) - before
        if self._due():
            self._begin_again()
        if self.memory is not None and len(self.ledger.items) > 2 * self.memory:
            # The statistics of forgotten items stay as they are: nobody will look at these items again.
            self.posterior, self.looked_at = self.posterior[self.ledger.keep(self.memory)], 0
        return self

    def settle(self, *, tol: float = 1e-9, max_iter: int = 500) -> Self:
        """With exact statistics: passes over all items, until one gains less than ``tol`` a vote."""
        if self.step is not None:
            raise ParameterError("settle needs exact statistics: Online(model, step=None).")
        if self.n_items > len(self.ledger.items):
            raise ParameterError("Items were forgotten (memory), and cannot be looked at again: settle needs all.")
        items, last = np.arange(len(self.ledger.items)), -np.inf
        part, who, family = self._local(items)
        self.settled = True
        for _ in range(max_iter):
            params = self._params(who, family)
            stats, q = em.expect(part, params, posterior=True)
            self.counts[who], self.mass, self.pooled = stats.table(), stats.mass, stats.table().sum(axis=0)
            self.posterior[items] = q
            objective = family.objective(stats.log_likelihood, params)
            if objective - last < tol * self.ledger.n_votes:
                break
            last = objective
        return self

    def _due(self) -> bool:
        """Whether a young stream has grown enough to be made anew, against the cost of a pass: votes or tables."""
        votes, pass_costs = self.ledger.n_votes, max(self.renewed_at, self.counts[: len(self.ledger.annotators)].size)
        if self.renew is None or votes > YOUNG or self.n_items > len(self.ledger.items):
            return False
        return votes - self.renewed_at >= (self.renew - 1.0) * pass_costs

    def _begin_again(self) -> None:
        """The statistics that some passes over all votes give, begun with the vote shares as a batch fit is."""
        items, K = np.arange(len(self.ledger.items)), len(self.ledger.classes)
        part, who, family = self._local(items, everybody=True)
        annotator, label = (code.astype(np.int32) for code in np.divmod(part.cell, K))
        i, m, k = (np.arange(n).astype(object) for n in (len(items), len(who), K))  # names do not matter here
        votes = Votes(part.indptr, annotator, label, i, m, k, weight=part.weight if len(part.weight) else None)
        q = starts.gold_weighted(votes, part.truth)
        stats = em.statistics(part, q)
        for _ in range(PASSES):
            self._hold(stats)
            stats, q = em.expect(part, self._params(who, family), posterior=True)
        self._hold(stats)
        self.posterior[items], self.renewed_at = q, self.ledger.n_votes

    def _hold(self, stats: Stats) -> None:
        """Statistics of all votes in the place of those there are."""
        table = stats.table()
        M, self.mass, self.pooled = len(table), stats.mass, table.sum(axis=0)
        if self.step is None:
            self.counts[:M] = table
        else:
            self.clock[:M] = table.sum(axis=(1, 2))
            self.counts[:M] = self.moving[:M] = table / np.maximum(self.clock[:M], 1e-300)[:, None, None]

    def _move(self, touched: Ints, step: float) -> None:
        """Decayed statistics: the tables of the annotators of some items move towards what these say of them."""
        part, who, family = self._local(touched)
        _, q = em.expect(part, self._params(who, family), posterior=True)
        self.mass += (q - self.posterior[touched]).sum(axis=0)
        self.posterior[touched] = q
        c = em.statistics(part, q).table()
        t, b = self.clock[who], c.sum(axis=(1, 2))
        g, share = 1.0 - kept(t, b, step), c / np.maximum(b, 1e-300)[:, None, None]
        self.moving[who] += g[:, None, None] * (share - self.moving[who])
        late = np.minimum(1.0, (1.0 + LATE) * b / (t + b + LATE))
        self.counts[who] += late[:, None, None] * (self.moving[who] - self.counts[who])
        self.clock[who] = t + b
        self.pooled += c.sum(axis=0)

    def _look_again(self, n: int) -> None:
        """Exact statistics: the next n items, round and round."""
        N = len(self.ledger.items)
        items = (self.looked_at + np.arange(min(n, N))) % N
        self.looked_at = int((self.looked_at + len(items)) % N)
        self._replace(items)

    def _take_out(self, items: Ints) -> None:
        """Exact statistics: without what some items gave."""
        if len(items):
            part, who, _ = self._local(items)
            self._give(part, who, -self.posterior[items])
            self.posterior[items] = 0.0

    def _replace(self, items: Ints) -> None:
        """Exact statistics: what some items gave gives way to what they give under the parameters of the moment."""
        part, who, family = self._local(items)
        _, q = em.expect(part, self._params(who, family), posterior=True)
        self._give(part, who, q - self.posterior[items])
        self.posterior[items] = q

    def _give(self, part: Part, who: Ints, q: Floats) -> None:
        """Add what a change of posteriors changes; rounding must not leave less than nothing."""
        stats = em.statistics(part, q)
        table = stats.table()
        self.counts[who] = np.maximum(self.counts[who] + table, 0.0)
        self.pooled = np.maximum(self.pooled + table.sum(axis=0), 0.0)
        self.mass = np.maximum(self.mass + stats.mass, 0.0)

    # ---------------------------------------------------------------- parameters

    def _local(self, items: Ints, *, everybody: bool = False) -> tuple[Part, Ints, Family]:
        """The votes of some items with their annotators renumbered, those annotators, and the model's step for them."""
        ledger, K = self.ledger, len(self.ledger.classes)
        indptr, rows = ledger.gather(items)
        if everybody:
            who, local = np.arange(len(ledger.annotators)), ledger.rows["annotator"][rows]
        else:
            who, local = np.unique(ledger.rows["annotator"][rows], return_inverse=True)
        weight = ledger.rows["weight"][rows]
        part = Part(
            indptr,
            local.astype(np.int64) * K + ledger.rows["label"][rows],
            weight if (weight != 1.0).any() else np.empty(0),
            ledger.per_item["truth"][items],
            len(who),
            K,
        )
        none = np.empty(0, dtype=np.int32)
        shell = Votes(
            np.zeros(1, np.int64), none, none, np.empty(0, object), ledger.annotators.array(who), ledger.classes.array()
        )
        return part, who, self.model._family(part, Stats(np.zeros((len(who) * K, K)), np.zeros(K)), shell, None)

    def _params(self, who: Ints, family: Family) -> Params:
        """The parameters of some annotators: the model's own step, from their statistics."""
        K = len(self.ledger.classes)
        table = self.counts[who] if self.step is None else self.counts[who] * self.given[who][:, None, None]
        if self.settled:
            return family.maximise(Stats(table.reshape(-1, K), self.mass))
        votes = np.tile(self.shrink * normalise(self.mass + 1.0, axis=0), (len(who), 1))
        votes = np.where(table.sum(axis=(1, 2))[:, None] > 1e-6, votes, np.maximum(votes, 1.0))
        table = table + votes[:, None] * self.crowd()
        empty = self.mass.sum() == 0.0
        return family.maximise(Stats(table.reshape(-1, K), self.mass + (1.0 if self.shrink or empty else 0.0)))

    def _make_room(self) -> None:
        """Room for new items, annotators and classes."""
        M, N, K = len(self.ledger.annotators), len(self.ledger.items), len(self.ledger.classes)
        more = K - len(self.mass)
        if more:
            self.mass = np.pad(self.mass, (0, more))
            self.pooled = np.pad(self.pooled, ((0, more), (0, more)))
            self.moving, self.counts = (np.pad(a, ((0, 0), (0, more), (0, more))) for a in (self.moving, self.counts))
            self.posterior = np.pad(self.posterior, ((0, 0), (0, more)))
        self.clock, self.counts, self.given = grown(self.clock, M), grown(self.counts, M), grown(self.given, M)
        self.moving = grown(self.moving, 0 if self.step is None else M)
        self.posterior = grown(self.posterior, N)

    # ---------------------------------------------------------------- what is known

    def consensus(self) -> Consensus:
        """What the votes that are kept say, given all that was learned.

        A batch fit can go on from there: ``DawidSkene(start=online.consensus()).fit(votes)``.
        """
        if self.ledger.n_votes == 0:
            raise NotFittedError("No votes have come in yet: call partial_fit(votes) first.")
        began = time.perf_counter()
        votes = self.ledger.votes()
        part, who, family = self._local(np.arange(len(self.ledger.items)), everybody=True)
        params = self._params(who, family)
        stats, q = em.expect(part, params, posterior=True)
        # The table names the classes in the usual order, which may not be that in which they came.
        place = {name: k for k, name in enumerate(self.ledger.classes.names)}
        order = np.array([place[name] for name in votes.classes.tolist()])
        K = len(order)
        cells = (np.arange(len(who))[:, None] * K + order).ravel()
        self.params_ = Params(params.log_score[np.ix_(cells, order)], params.log_prior[:, order])
        self.stats_ = Stats(stats.counts[np.ix_(cells, order)], stats.mass[order], stats.log_likelihood)
        q, pi = q[:, order], normalise(np.exp(self.params_.log_prior[0]), axis=0)
        theta = self.model._confusion(params, K)[:, order][:, :, order]
        return build_consensus(
            self.model.key,
            self.model.get_params() | {"online": self.options()},
            votes,
            Outcome(posterior=q, prior=pi, confusion=theta, log_likelihood=stats.log_likelihood),
            labels=decide(q, pi, self.model.ties, np.random.default_rng(self.model.random_state)),
            seed=self.model.random_state,
            seconds=time.perf_counter() - began,
        )

    def opinions(self) -> tuple[Floats, Floats]:
        """N x K and K: the posterior of every item that is kept under all that was learned, and the prior.

        In the stream's own codes. This is what :meth:`consensus` holds, without names and tables; ``posterior`` is
        cheaper and older: that of each item when it was last looked at.
        """
        if self.ledger.n_votes == 0:
            raise NotFittedError("No votes have come in yet: call partial_fit(votes) first.")
        part, who, family = self._local(np.arange(len(self.ledger.items)), everybody=True)
        params = self._params(who, family)
        _, q = em.expect(part, params, posterior=True)
        return q, normalise(np.exp(params.log_prior[0]), axis=0)

    def dirichlet(self) -> Floats:
        """M x K x K: parameters of the Dirichlet of each row theta[m, k] (axis 1 the truth), in the stream's own codes.

        Strangers have those of the crowd, worth ``shrink`` votes in every row (one at least).
        """
        M = len(self.ledger.annotators)
        table = self.counts[:M] if self.step is None else self.counts[:M] * self.given[:M, None, None]
        return np.asarray((table + max(self.shrink, 1.0) * self.crowd()).transpose(0, 2, 1))

    def crowd(self) -> Floats:
        """L x K: P(label | truth) of the crowd as a whole."""
        counts = self.pooled + self.trust * np.eye(len(self.pooled)) + 1.0
        return np.asarray(counts / counts.sum(axis=0))

    # ---------------------------------------------------------------- keeping it

    def options(self) -> dict[str, Any]:
        """The settings it was made with, but for the model and the classes."""
        names = ("step", "revisit", "renew", "shrink", "trust", "memory", "on_duplicate")
        return {name: getattr(self, name) for name in names}

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write all that is known to a folder, all or nothing; :meth:`load` goes on from there as if nothing was."""
        return stream_files.write(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], model: EMModel) -> Self:
        """Read what :meth:`save` wrote; ``model`` must be the model that it was made with."""
        return stream_files.read(cls, Path(folder), model)


def kept(t: Floats, b: Floats, step: float) -> Floats:
    """What is left of an average after b more votes, the steps being t^-step: prod of 1 - (t + i)^-step for i = 1..b.

    The product is exp of a sum of log(1 - i^-step), which differences of a running sum give.
    """
    last = int(np.ceil((t + b).max())) if len(t) else 0
    i = np.arange(2, last + 1, dtype=np.float64)
    total = np.concatenate([[0.0, 0.0], np.cumsum(np.log1p(-(i**-step)))])
    first, end = np.round(t).astype(np.int64), np.maximum(np.round(t + b).astype(np.int64), 1)
    left = np.exp(total[np.minimum(end, len(total) - 1)] - total[np.minimum(first, len(total) - 1)])
    return np.where(first == 0, 0.0, left)
