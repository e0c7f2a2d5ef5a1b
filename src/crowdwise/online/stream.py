"""Learning from a stream: votes come in batches, in any order, and the parameters of annotators follow.

The two steps are those of :mod:`crowdwise.core.em`, on the items that a batch touches: ``expect`` gives their
posteriors and statistics under the parameters of their annotators, and the statistics of those annotators move, decayed
or exactly (``docs/active-online.md``). All annotators are shrunk towards the crowd by ``shrinkage`` votes, which are
distributed over the classes as the items are, and the crowd starts with ``prior_strength`` more right answers than
wrong ones of each class, so that labels mean what they say until the votes show otherwise. With ``shrinkage=0`` only
unseen annotators are shrunk, and exact statistics reach the optimum of a batch fit by revisits alone.

An early stream is refit: until ``EARLY`` votes are there, the statistics start again from the vote shares whenever the
votes have grown by ``refit_factor`` (or by that share of the M K^2 entries of all tables, where these are more), and
take ``PASSES`` passes. That is a bounded cost a vote, and a bounded pause.

``prior_strength`` and ``LATE`` were chosen on simulated crowds; shrinkage and ``refit_factor`` by how often the labels
after one pass are those of a batch fit, on real votes without their truth.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt

from crowdwise.core import em, starts
from crowdwise.core.consensus import Consensus, Outcome, consensus_fields
from crowdwise.core.constraints import Bounds, Count, NonNegative, Parameterised, checked, declared
from crowdwise.core.dependence import USUAL, Dependence, correct
from crowdwise.core.em import Family, Params, Part, Stats
from crowdwise.core.model import EMModel, Model
from crowdwise.core.numerics import Floats, Ints, clamp, decide, normalise
from crowdwise.core.result import plain
from crowdwise.core.vote_parts import VoteParts, resolve, usual
from crowdwise.data.encoding import to_vocabulary
from crowdwise.data.folders import SavedFiles, check_shapes, read_saved, replacing, write_arrays, write_json
from crowdwise.data.frames import is_missing
from crowdwise.data.truth import unknown_class
from crowdwise.data.votes import Votes
from crowdwise.errors import DuplicateError, InputError, NotFittedError, ParameterError, ReadError
from crowdwise.online import vote_store
from crowdwise.online.vote_store import ITEMS, ROWS, AnnotatorTables, CodedBatch, Index, Names, VoteStore

BLOCK = (20, 1000)
"""The fewest and the most items that are visited under the same parameters; in between a tenth of those so far."""
EARLY = 300_000
"""Up to so many votes a stream is refit as it grows."""
PASSES = 20
"""The passes over all votes of a refit."""
REFIT_FACTOR = 1.2
FORMAT = 4
FACTS, ARRAYS = "online.json", "arrays.npz"
COUNTERS = ("n_items", "visits", "next_visit", "refit_at", "converged")
NAMES = ("item_names", "annotator_names", "class_names")
TABLES = ("clock", "given", "counts", "moving")
GROWTH = 1.1
"""Gold labels are looked at again when the votes have grown by this factor."""

Step = Annotated[float, Bounds(above=0.5, maximum=1)] | None


@declared
class Online(Parameterised):
    """A model that follows a stream of votes.

    Parameters
    ----------
    model
        A model of the Dawid-Skene family or ``ibcc``, whose prior is a number or an array (one that is learned from
        all votes at once cannot follow a stream).
    step
        The power of the steps, above 0.5 and at most 1; ``None`` for exact statistics.
    revisit
        With exact statistics: how many old items to visit again for each item of a batch.
    refit_factor
        By what factor the votes of an early stream grow before it is refit; ``None``: never.
    shrinkage
        How many votes an annotator is shrunk towards the crowd by.
    prior_strength
        How many more right than wrong answers of each class the crowd starts with.
    memory
        The most items whose votes are retained; ``None`` for all.
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

    model: EMModel = field(kw_only=False)
    step: Step = 0.6
    revisit: NonNegative = 1.0
    refit_factor: Annotated[float, Bounds(above=1)] | None = REFIT_FACTOR
    shrinkage: NonNegative = 4.0
    prior_strength: NonNegative = 50.0
    memory: Count | None = None
    classes: Any = None
    on_duplicate: vote_store.OnDuplicate = "error"

    def __post_init__(self) -> None:
        self.check_parameters()
        if not isinstance(self.model, Model):
            raise ParameterError(f"model={self.model!r}: expected a model, such as crowdwise.OneCoin().")
        self.model.check_parameters()
        self.model.check_stream()
        self.item_names, self.annotator_names = Names(), Names()
        self.class_names = Names([] if self.classes is None else self.classes)
        self.store = VoteStore()
        K = len(self.class_names)
        self.tables = AnnotatorTables(K, self.step)
        self.posterior = np.zeros((0, K))
        """N x K, as it was when an item was last visited."""
        self._shown: tuple[int, int, Dependence] | None = None
        """After how many votes and gold labels the dependence was computed, and what it was."""
        self.n_items = 0
        """Items that were voted on, forgotten ones included."""
        self.visits = 0
        """How often an item was visited because of new votes."""
        self.next_visit = 0
        """The place of the next old item to visit again."""
        self.refit_at = 0
        """How many votes there were at the last refit."""
        self.waiting: dict[Any, Any] = {}
        """Item -> class: gold of items without votes."""
        self.notes: dict[str, Any] = {}
        """Notes of the caller, kept with the saved stream."""
        self.converged = False
        """Whether the statistics are those of :meth:`converge`, without any shrinkage."""
        self.params_: Params
        """What the last :meth:`consensus` was made with."""
        self.stats_: Stats

    def declare(self, items: Iterable[Any] = (), annotators: Iterable[Any] = ()) -> Self:
        """Name items and annotators before they have votes; codes are given in this order."""
        for names, more in ((self.item_names, items), (self.annotator_names, annotators)):
            names.extend(names.encode(dict.fromkeys(more))[1])
        return self

    def partial_fit(self, votes: Votes, gold: Any = None) -> Self:
        """Learn from more votes: of items, annotators and classes seen before or not.

        ``gold``: the class of some items, for the model to use: of these votes, of earlier ones, or of later ones.
        """
        if not isinstance(votes, Votes):
            raise InputError(f"Expected Votes and found {type(votes).__name__}: make them with Votes.from_frame.")
        stores = {"items": self.item_names, "annotators": self.annotator_names, "classes": self.class_names}
        encoded = {what: names.encode(getattr(votes, what)) for what, names in stores.items()}
        for what, (_, new) in encoded.items():
            stores[what].check_kind(new, what)
        (items, _), (annotators, _), (classes, new_classes) = encoded.values()
        batch = CodedBatch(items, annotators, votes.item, votes.annotator, classes[votes.label], votes.weight)
        all_classes = [*self.class_names.names, *new_classes]
        known = {} if gold is None else self._known(gold, votes.items[:1].tolist(), all_classes, votes)
        self._refuse_repeats(batch)
        for what, (_, new) in encoded.items():
            stores[what].extend(new)
        self.waiting |= known
        self._learn(batch)
        return self._keep({name: known[name] for name in known if name in self.waiting})

    def learn(self, batch: CodedBatch) -> Self:
        """Learn from votes in the codes of ``item_names``, ``annotator_names`` and ``class_names``."""
        names = self.item_names, self.annotator_names, self.class_names
        limits = zip((batch.items, batch.annotators, batch.label), names, strict=True)
        if any(len(codes) and not 0 <= codes.min() <= codes.max() < len(known) for codes, known in limits):
            raise InputError("A vote has a code that no item, annotator or class has.")
        self._refuse_repeats(batch)
        return self._learn(batch)

    def _refuse_repeats(self, batch: CodedBatch) -> None:
        """Raise an error about second votes where they are errors, before anything is changed."""
        if self.on_duplicate != "error":
            return
        repeat, _ = self.store.repeats(batch)
        if repeat.any():
            row, number = int(repeat.argmax()), int(repeat.sum())
            item, who = batch.items[batch.item[row]], batch.annotators[batch.annotator[row]]
            raise DuplicateError(
                f"{self.annotator_names.names[who]!r} has voted on {self.item_names.names[item]!r} before ({number} "
                "such votes). Say what should count: on_duplicate='first', 'last' or 'all'."
            )

    def _learn(self, batch: CodedBatch) -> Self:
        store, before = self.store, len(self.store.items)
        self._make_room()
        if self.step is None:
            place = store.items.find(batch.items)
            self._take_out(np.sort(place[place >= 0]))
        touched, who, growth = store.add(batch, self.on_duplicate)
        self._make_room()
        np.add.at(self.tables.given, who, growth)
        self.converged = False
        if batch.gold is not None:
            store.set_truth(batch.items, batch.gold)
        self._set_waiting(batch.items)
        while len(touched):  # a large batch is a stream of its own: what its first items teach helps the others
            items, touched = np.split(touched, [int(np.clip(self.visits // 10, *BLOCK))])
            self._visit(items)
            if self.step is None:
                self._revisit(int(np.ceil(self.revisit * len(items))))
            self.visits += len(items)
        self.n_items += len(store.items) - before
        if self._refit_is_due():
            self._refit()
        if self.memory is not None and len(store.items) > 2 * self.memory:
            # The statistics of forgotten items stay as they are: these items are not visited again.
            self.posterior, self.next_visit = self.posterior[store.retain(self.memory)], 0
            self.item_names = Names(self.item_names.array()[store.items.codes])
            store.items = Index(np.arange(len(store.items)))
        return self

    def _make_room(self) -> None:
        """Room for new items, annotators and classes."""
        self.tables.make_room(len(self.store.annotators), len(self.class_names))
        more = len(self.class_names) - self.posterior.shape[1]
        if more:
            self.posterior = np.pad(self.posterior, ((0, 0), (0, more)))
        self.posterior = vote_store.grown(self.posterior, len(self.store.items))

    @checked
    def converge(self, *, tol: NonNegative = 1e-9, max_iter: Count = 500) -> Self:
        """With exact statistics: passes over all items, until one gains less than ``tol`` a vote."""
        if self.step is not None:
            raise ParameterError("converge needs exact statistics: Online(model, step=None).")
        if self.n_items > len(self.store.items):
            raise ParameterError("Items were forgotten (memory), and cannot be visited again: converge needs all.")
        items, last = np.arange(len(self.store.items)), -np.inf
        part, who, family = self._local(items, everybody=True)
        self.converged = True
        for _ in range(max_iter):
            params = self._params(who, family)
            stats, self.posterior[items] = em.expect(part, params, posterior=True)
            self.tables.replace(stats)
            objective = family.objective(stats.log_likelihood, params)
            if objective - last < tol * self.store.n_votes:
                break
            last = objective
        return self

    def _refit_is_due(self) -> bool:
        """Whether an early stream has grown enough, compared with the cost of a pass: votes or tables."""
        votes, K = self.store.n_votes, len(self.class_names)
        if self.refit_factor is None or votes > EARLY or self.n_items > len(self.store.items):
            return False
        cost = max(self.refit_at, len(self.store.annotators) * K * K)
        return votes - self.refit_at >= (self.refit_factor - 1.0) * cost

    def _refit(self) -> None:
        """The statistics of some passes over all votes, which start from the vote shares as a batch fit does."""
        items, K = np.arange(len(self.store.items)), len(self.class_names)
        part, who, family = self._local(items, everybody=True)
        annotator, label = (code.astype(np.int32) for code in np.divmod(part.cell, K))
        i, m, k = (np.arange(n).astype(object) for n in (len(items), len(who), K))  # names do not matter here
        votes = Votes(part.indptr, annotator, label, i, m, k, weight=part.weight if len(part.weight) else None)
        q = starts.gold_weighted(votes, part.truth)
        stats = em.statistics(part, q)
        for _ in range(PASSES):
            self.tables.replace(stats)
            stats, q = em.expect(part, self._params(who, family), posterior=True)
        self.tables.replace(stats)
        self.posterior[items], self.refit_at = q, self.store.n_votes

    def _visit(self, items: Ints) -> None:
        """New posteriors of some items; their statistics replace the earlier ones exactly, or move them."""
        part, who, family = self._local(items)
        _, q = em.expect(part, self._params(who, family), posterior=True)
        gain = q - self.posterior[items]
        self.posterior[items] = q
        if self.step is None:
            self.tables.add(who, em.statistics(part, gain))
        else:
            self.tables.mass += gain.sum(axis=0)
            self.tables.move(who, em.statistics(part, q), self.step)

    def _revisit(self, n: int) -> None:
        """Exact statistics: visit the next n items, round and round."""
        N = len(self.store.items)
        items = (self.next_visit + np.arange(min(n, N))) % N
        self.next_visit = int((self.next_visit + len(items)) % N)
        self._visit(items)

    def _take_out(self, items: Ints) -> None:
        """Exact statistics: without the counts of some items."""
        if len(items):
            part, who, _ = self._local(items)
            self.tables.add(who, em.statistics(part, -self.posterior[items]))
            self.posterior[items] = 0.0

    def _local(self, items: Ints, *, everybody: bool = False) -> tuple[Part, Ints, Family]:
        """The votes on some items with their annotators renumbered, those annotators, and the model's step for them."""
        store, K = self.store, len(self.class_names)
        indptr, local, label, weight = store.votes(items)
        if everybody:
            who = np.arange(len(store.annotators))
        else:
            who, local = np.unique(local, return_inverse=True)
        part = Part(indptr, local.astype(np.int64) * K + label, weight, store.truth[items], len(who), K)
        named = Votes.none(self.annotator_names.array()[store.annotators.codes[who]], self.class_names.array())
        return part, who, self.model._family_of(VoteParts.whole(named))

    def _params(self, who: Ints, family: Family) -> Params:
        """The parameters of some annotators: the model's own step, from their statistics."""
        table, mass, K = self.tables.votes(who), self.tables.mass, len(self.class_names)
        if self.converged:
            return family.maximise(Stats(table.reshape(-1, K), mass))
        votes = np.tile(self.shrinkage * normalise(mass + 1.0, axis=0), (len(who), 1))
        votes = np.where(table.sum(axis=(1, 2))[:, None] > 1e-6, votes, np.maximum(votes, 1.0))
        table = table + votes[:, None] * self.crowd()
        mass = mass + (1.0 if self.shrinkage or mass.sum() == 0.0 else 0.0)
        return family.maximise(Stats(table.reshape(-1, K), mass))

    def votes(self) -> Votes:
        """The votes that are retained, as a table. Classes stand as they were declared, or else in the usual order."""
        indptr, annotator, label, weight = self.store.votes()
        items, truth = self.item_names.array()[self.store.items.codes], self.store.truth
        classes: dict[str, Any] = {"label_names" if self.classes is None else "classes": self.class_names.names}
        known = {items[n]: self.class_names.names[truth[n]] for n in np.flatnonzero(truth >= 0).tolist()}
        return Votes.from_codes(
            np.repeat(np.arange(len(items)), np.diff(indptr)), annotator, label, items=items.tolist(),
            annotators=self.annotator_names.array()[self.store.annotators.codes].tolist(),
            weight=weight if len(weight) else None, truth=known or None, on_duplicate="all", **classes,
        )  # fmt: skip

    def consensus(self) -> Consensus:
        """The consensus of the votes that are retained, given all that was learned.

        A batch fit can go on from there: ``DawidSkene(start=online.consensus()).fit(votes)``.
        """
        began = time.perf_counter()
        before, stats, q = self._expect()
        votes = self.votes()
        # The table names the classes in the usual order, which may not be that in which they came.
        order, _ = self.class_names.encode(votes.classes)
        K = len(order)
        cells = (np.arange(len(self.store.annotators))[:, None] * K + order).ravel()
        self.params_ = Params(before.log_score[np.ix_(cells, order)], before.log_prior[:, order])
        self.stats_ = Stats(stats.counts[np.ix_(cells, order)], stats.mass[order], stats.log_likelihood)
        q, pi = q[:, order], normalise(np.exp(self.params_.log_prior[0]), axis=0)
        theta = self.model._confusion(before, K)[:, order][:, :, order]
        outcome = Outcome(posterior=q, prior=pi, confusion=theta, log_likelihood=stats.log_likelihood)
        labels = decide(q, pi, self.model.ties, np.random.default_rng(self.model.random_state))
        params = self.model.get_params() | {"online": self.options()}
        depends = resolve(self.model.dependence, VoteParts.whole(votes), lambda _: q)
        fields = consensus_fields(votes, outcome, labels, votes.truth, dependence=depends)
        if depends.source == "none":
            fields["measured"] = self.shown_dependence()
        return Consensus.of(self.model, votes, params=params, seconds=time.perf_counter() - began, **fields)

    def e_step(self) -> tuple[Floats, Floats]:
        """N x K and K: the posterior of every item in the store under the current parameters, and the prior.

        That is what :meth:`consensus` holds, without names and tables. ``posterior`` is cheaper and older: that of each
        item when it was last visited.
        """
        params, _, q = self._expect()
        return q, normalise(np.exp(params.log_prior[0]), axis=0)

    def _expect(self) -> tuple[Params, Stats, Floats]:
        if self.store.n_votes == 0:
            raise NotFittedError("No votes have come in yet: call partial_fit(votes) first.")
        part, who, family = self._local(np.arange(len(self.store.items)), everybody=True)
        params = self._params(who, family)
        return params, *em.expect(part, params, posterior=True)

    def dirichlet(self) -> Floats:
        """M x K x K: parameters of the Dirichlet of each row theta[m, k] (axis 1 the truth), in the store's places.

        Unseen annotators have those of the crowd, worth ``shrinkage`` votes in every row (one at least).
        """
        table = self.tables.votes(slice(len(self.store.annotators)))
        return np.asarray((table + max(self.shrinkage, 1.0) * self.crowd()).transpose(0, 2, 1))

    def crowd(self) -> Floats:
        """L x K: P(label | truth) of the crowd as a whole."""
        return self.tables.crowd(self.prior_strength)

    def add_gold(self, gold: Any) -> Self:
        """Give the classes of some items, item -> class: items that were voted on are visited again, others wait."""
        return self._keep(self._known(gold, self.item_names.names[:1], self.class_names.names))

    def _known(self, gold: Any, items: Any, classes: list[Any], votes: Votes | None = None) -> dict[Any, Any]:
        """Item -> class, with names as they are here; an array has a class code for each item of some votes."""
        if votes is not None and isinstance(gold, (np.ndarray, list, tuple)):
            codes = votes.encode_truth(gold)
            at = np.flatnonzero(codes >= 0)
            return dict(zip(votes.items[at].tolist(), votes.classes[codes[at]].tolist(), strict=True))
        if not hasattr(gold, "keys"):
            raise InputError(f"gold must be a mapping from item to class, and is {type(gold).__name__}.")
        filled = {name: value for name, value in dict(gold).items() if not is_missing(value)}
        names, values = (to_vocabulary(list(part)).tolist() for part in (filled, filled.values()))
        known = {_like(name, items): _like(value, classes) for name, value in zip(names, values, strict=True)}
        odd = [value for value in known.values() if value not in classes]
        if odd:
            raise unknown_class(dict.fromkeys(odd), np.array(classes, dtype=object))
        return known

    def _keep(self, known: dict[Any, Any]) -> Self:
        """Take known classes; those of items in the store count at once."""
        self.waiting |= known
        codes, _ = self.item_names.encode(known)
        there = codes[codes < len(self.item_names)]
        items = self._set_waiting(there[self.store.items.find(there) >= 0])
        if len(items):
            self.converged = False
            self._visit(items)
        return self

    def _set_waiting(self, codes: Ints) -> Ints:
        """Set the known classes of some items (codes) in the store; their places."""
        if not self.waiting:
            return codes[:0]
        items = np.array([n for n in codes.tolist() if self.item_names.names[n] in self.waiting], dtype=np.int64)
        classes = [self.waiting.pop(self.item_names.names[n]) for n in items.tolist()]
        self.store.set_truth(items, self.class_names.encode(classes)[0])
        return np.sort(self.store.items.find(items))

    def shown_dependence(self) -> Dependence:
        """How strongly the votes on an item depend on each other, for whatever is stated or decided about the stream.

        As in real crowds, and by gold labels where there are any: these are looked at again when a tenth more votes
        have come. A number that was given to the model is used as it is.
        """
        if not isinstance(self.model.dependence, str):
            return Dependence(float(self.model.dependence), "given")
        S, known = self.store.n_votes, int((self.store.truth >= 0).sum())
        if not known:
            return USUAL
        if self._shown is None or self._shown[1] != known or not self._shown[0] <= S <= GROWTH * self._shown[0]:
            votes, (q, _) = self.votes(), self.e_step()
            order, _ = self.class_names.encode(votes.classes)  # the table has the classes in the usual order
            depends = usual(VoteParts.whole(votes, votes.truth), lambda _: q[:, order])
            bias = np.array(depends.bias)[order.argsort()].tolist() if depends.bias else ()
            self._shown = S, known, replace(depends, bias=tuple(bias))
        return self._shown[2]

    def corrected(self, q: Floats) -> Floats:
        """A posterior of the items in the store, corrected by :meth:`shown_dependence`; gold labels are certain."""
        indptr, _, _, weight = self.store.votes()
        item = np.repeat(np.arange(len(q)), np.diff(indptr))
        n = np.bincount(item, weights=weight if len(weight) else None, minlength=len(q)).astype(np.float64)
        return clamp(correct(q, n, self.shown_dependence()), self.store.truth)

    def options(self) -> dict[str, Any]:
        """The parameters without the model and the classes."""
        return {name: value for name, value in self.get_params().items() if name not in ("model", "classes")}

    def save(self, folder: str | os.PathLike[str], *, names: bool = True, notes: dict[str, Any] | None = None) -> Path:
        """Write all that is known to a folder, all or nothing; :meth:`load` continues from there.

        ``names=False``: without names of items and annotators, for those who keep the names themselves. ``notes`` are
        kept with it.
        """
        facts = {
            "format": FORMAT,
            "method": self.model.key,
            "params": _params(self.model),
            "options": self.options(),
            "classes": None if self.classes is None else plain(list(self.classes)),
            **{name: getattr(self, name) for name in COUNTERS},
            **{name: plain(getattr(self, name).names) for name in NAMES if names},
            "waiting": plain(list(self.waiting.items())),
            "notes": notes or {},
        }
        with replacing(folder, "stream") as temporary:
            write_json(temporary / FACTS, facts)
            write_arrays(temporary / ARRAYS, self._arrays(), compressed=False)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], model: EMModel) -> Self:
        """Read what :meth:`save` wrote; ``model`` must be the model that it was made with."""
        return cls.of_files(read_saved(folder, "stream"), model)

    @classmethod
    def of_files(cls, saved: SavedFiles, model: EMModel) -> Self:
        """As :meth:`load`, from the files that were read."""
        facts = read_facts(saved)
        with saved.reading():
            params = _params(model)
            if (facts["method"], facts["params"]) != (model.key, params):
                raise ParameterError(
                    f"{saved.folder} holds a stream of {facts['method']} with {facts['params']}: "
                    f"give that model, not {model.key} with {params}."
                )
            online = cls(model, classes=facts["classes"], **facts["options"])
            arrays = saved.arrays(ARRAYS)
            for name in NAMES:
                if name in facts:
                    setattr(online, name, Names(facts[name]))
            _check(arrays, facts)
            online._take(arrays, facts)
            online.notes = facts["notes"]
            online.waiting = {name: known for name, known in facts["waiting"]}
        return online

    def copy(self) -> Self:
        """A stream in the same state, which goes its own way; the names are shared."""
        twin = type(self)(self.model, classes=self.classes, **self.options())
        twin._take(
            {name: array.copy() for name, array in self._arrays().items()},
            {name: getattr(self, name) for name in COUNTERS},
        )
        for name in NAMES:
            setattr(twin, name, getattr(self, name))
        twin.waiting = dict(self.waiting)
        return twin

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All numbers that were learned, by name."""
        store, tables = self.store, self.tables
        M, N, S = len(store.annotators), len(store.items), store.n_votes
        arrays = {name: getattr(tables, name)[:M] for name in TABLES} | {"mass": tables.mass, "pooled": tables.pooled}
        arrays |= {"posterior": self.posterior[:N], "items": store.items.codes, "annotators": store.annotators.codes}
        arrays |= {name: store.rows[name][:S] for name in ROWS}
        return arrays | {name: store.per_item[name][:N] for name in ITEMS}

    def _take(self, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Any]) -> None:
        """The state that :meth:`_arrays` and the counters describe."""
        store = self.store
        store.items, store.annotators = Index(arrays["items"]), Index(arrays["annotators"])
        store.rows, store.per_item = ({name: arrays[name] for name in names} for names in (ROWS, ITEMS))
        store.n_votes, self.posterior = len(arrays["label"]), arrays["posterior"]
        for name in (*TABLES, "mass", "pooled"):
            setattr(self.tables, name, arrays[name])
        for name in COUNTERS:
            setattr(self, name, facts[name])


def _like(name: Any, others: Any) -> Any:
    """A name as the others are: numbers where these are numbers, text where these are text."""
    first = next(iter(others), name)
    if isinstance(first, str) and isinstance(name, int):
        return str(name)
    if isinstance(first, int) and isinstance(name, str) and name.lstrip("-").isdecimal() and str(int(name)) == name:
        return int(name)
    return name


LARGEST, MOST_VOTES = 2**62, 1e9
SHAPES = {
    "items": "N<I", "annotators": "M<J", "last": "N<S", "truth": "N<K", "posterior": "NK", "annotator": "S<M",
    "label": "S<K", "weight": "S", "before": "S<S", "clock": "M", "given": "M", "counts": "MKK", "mass": "K",
    "pooled": "KK", "moving": "HKK",
}  # fmt: skip
"""The shapes of what is saved: N items of I, M annotators of J, S votes, K classes."""


def _check(arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Any]) -> None:
    """A ValueError where the arrays of a stream do not fit together: a code that is too large would reach compiled
    loops, and a vote that is said to follow itself has no end."""
    if 0 < sum(name in facts for name in NAMES) < len(NAMES):
        raise ValueError(f"it lacks some of {', '.join(NAMES)}")
    for name in filter(facts.__contains__, NAMES):
        if to_vocabulary(facts[name]).tolist() != facts[name] or len(set(facts[name])) < len(facts[name]):
            raise ValueError(f"{name} are not names as they are written")
    sizes = {letter: len(facts[name]) if name in facts else LARGEST for letter, name in zip("IJK", NAMES, strict=True)}
    sizes |= {"K": len(arrays["mass"])} if "class_names" not in facts else {}
    sizes["S"] = len(arrays["label"])
    check_shapes(arrays, SHAPES, sizes)
    if sizes["H"] not in (0, sizes["M"]):
        raise ValueError("moving has not a table for each annotator")
    codes = [arrays[name] for name in ("items", "annotators", "annotator", "label")]
    if any(array.min(initial=0) < 0 for array in codes) or any(len(np.unique(a)) < len(a) for a in codes[:2]):
        raise ValueError("items, annotators and labels are codes from 0 on")
    if (arrays["before"] >= np.arange(sizes["S"])).any():
        raise ValueError("a vote follows a later one")
    for name, dtype in {**ROWS, **ITEMS, **dict.fromkeys((*TABLES, "posterior", "mass", "pooled"), np.float64)}.items():
        if arrays[name].dtype != dtype:
            raise ValueError(f"{name} is of the kind {arrays[name].dtype}")
    if not ((arrays["clock"] >= 0.0) & (arrays["clock"] < MOST_VOTES)).all():
        raise ValueError("clock is not a number of votes")
    if any(not isinstance(facts[name], int) or not 0 <= facts[name] < LARGEST for name in COUNTERS):
        raise ValueError(f"{', '.join(COUNTERS)} are numbers from 0 on")


def _params(model: EMModel) -> Any:
    """The parameters of a model as they come back from a file."""
    return json.loads(json.dumps({name: plain(value) for name, value in model.get_params().items()}))


def read_facts(saved: SavedFiles) -> dict[str, Any]:
    """The settings of a saved stream."""
    facts = saved.json(FACTS)
    if facts.get("format") != FORMAT:
        raise ReadError(f"{saved.folder} was written by another version of crowdwise, which this one does not read.")
    return facts
