"""A network and a head at work (:class:`Inference`), and the one training loop: steps, selection, checkpoints.

Everything random comes from the seed and the number of the epoch. A run is therefore repeatable bit for bit on a CPU,
and a run that was interrupted continues as if it had not been. Gold is used where it is given, truth never.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes
from crowdwise.errors import DivergedError, InputError, ParameterError
from crowdwise.learners import networks
from crowdwise.learners.checkpoints import Checkpoint, below
from crowdwise.learners.devices import Processes, as_array, entries, find_device, seeded, tuned
from crowdwise.learners.head import Head, MixesVotes
from crowdwise.learners.inputs import ArrayInputs, Images, Index, Inputs, SparseRows, augmented, first_layer, prepare
from crowdwise.learners.networks import Probe, hidden_layer
from crowdwise.learners.training_settings import SCHEDULES, Callback, Epoch, TrainingSettings
from crowdwise.learners.vote_edges import Batch, Edges, VoteRows

RESIDENT = 2**30
"""The most bytes of inputs that stay whole, as float32, in the memory of the CPU."""
LABELS = 2**18
"""How many possible labels of annotators are evaluated at once."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What a network learns from. Row n of the inputs is item n of the votes.

    Items without votes take no part in training. Items with known class (``gold``: N codes, -1 where unknown) are
    trained on as if one more annotator, who is always right, had voted; with ``select="gold"`` they are left out of
    training and choose the epoch instead. ``held_out`` are votes on the same items that measure every epoch.
    """

    inputs: Inputs
    votes: Votes
    held_out: Votes | None = None
    gold: Ints | None = None
    weight: Floats | None = None
    """N: how often an epoch passes over each item, beside the others; once over all without weights."""


@dataclass
class Run:
    """How far a training run has come."""

    history: list[Epoch] = field(default_factory=list)
    best_score: float = -math.inf
    best_state: dict[str, Tensor] | None = None


class Inference:
    """A network and a head on a device, and how inputs and votes pass through them.

    ``settings`` gives the batch size and the precision. Training (:class:`Trainer`) makes its batches here, too.
    """

    def __init__(
        self, network: nn.Module, head: Head, settings: TrainingSettings, device: str | torch.device = "auto"
    ) -> None:  # fmt: skip
        self.device = find_device(device)
        self.network, self.head = network.to(self.device), head.to(self.device)
        if self.device.type == "cuda":
            self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.settings = settings
        self.autocast = self.device.type == "cuda" and (
            settings.precision == "bfloat16" or (settings.precision == "auto" and torch.cuda.is_bf16_supported())
        )
        # Of a network that is one layer, a head that needs that layer's input gets it dense.
        first = first_layer(network)
        self.takes_sparse = first is not None and not (head.needs_hidden and hidden_layer(network) is first)

    def read(self, inputs: Inputs, index: Index) -> Tensor | SparseRows:
        """Some inputs on the device, as the network takes them."""
        if self.takes_sparse and isinstance(inputs, ArrayInputs) and inputs.sparse:
            return inputs.sparse_rows(index).to(self.device, non_blocking=True)
        return inputs.rows(index).to(self.device, non_blocking=True)

    def batch(self, edges: Edges | None, index: Index | Tensor, x: Tensor | SparseRows) -> Batch:
        """The one place where a batch is made: what the network says of some inputs, and the votes on them."""
        at = torch.as_tensor(index, device=self.device)
        logits, hidden = self.forward(x)
        if edges is None:
            none = at.new_zeros(0)
            return Batch(at, logits, hidden, none, none, none, logits.new_zeros(0))
        return edges.batch(at, logits, hidden)

    def forward(self, x: Tensor | SparseRows) -> tuple[Tensor, Tensor | None]:
        """Logits and, for heads that need them, the hidden vectors."""
        with (
            Probe(self.network) if self.head.needs_hidden else nullcontext() as probe,
            torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast),
        ):
            logits = self.network(x)
        if logits.shape != (len(x), self.head.n_classes):
            raise ParameterError(
                f"The network gave {tuple(logits.shape)} for {len(x)} inputs: "
                f"expected one row per input and one column for each of the {self.head.n_classes} classes."
            )
        return logits.float(), None if probe is None else probe.hidden.float()

    def batches(self, edges: Edges | None, inputs: Inputs, index: Index | None = None) -> Iterator[Batch]:
        """Inputs in their order (all, or some), with the network in evaluation mode, and the votes on them."""
        index = np.arange(len(inputs)) if index is None else index
        size = max(self.settings.batch_size, 512 if self.device.type == "cpu" else 2048)
        self.network.eval()
        self.head.eval()
        with torch.no_grad():
            for lo in range(0, len(index), size):
                part = index[lo : lo + size]
                yield self.batch(edges, part, self.read(inputs, part))

    def log_probs(self, inputs: Inputs, index: Index | None = None) -> Tensor:
        """N x K log class probabilities from inputs alone."""
        return torch.cat([self.head.predict_log_probs(batch) for batch in self.batches(None, inputs, index)])

    def posterior(self, edges: Edges, inputs: Inputs) -> Tensor:
        """N x K log class probabilities from inputs and votes."""
        return torch.cat([self.head.posterior_log_probs(batch) for batch in self.batches(edges, inputs)])

    def vote_log_likelihood(self, edges: Edges, inputs: Inputs, index: Index | None = None) -> float:
        """The log-likelihood of votes, each times its weight."""
        batches = self.batches(edges, inputs, index)
        return sum(float((batch.weight * self.head.vote_log_probs(batch)).sum()) for batch in batches)

    def vote_probabilities(self, inputs: Inputs, codes: Ints) -> Floats:
        """N x A x K: the probability of each label, by annotators of these codes."""
        out, K = [], self.head.n_classes
        grid = np.meshgrid(codes, np.arange(K), indexing="ij")
        who, label = (torch.as_tensor(part, device=self.device).reshape(-1) for part in grid)
        for batch in self.batches(None, inputs):
            size, parts = max(LABELS // len(who), 1), []
            for lo in range(0, len(batch), size):
                row = torch.arange(lo, min(lo + size, len(batch)), device=self.device)
                n = len(row)
                votes = replace(
                    batch, row=row.repeat_interleave(len(who)), annotator=who.repeat(n), label=label.repeat(n),
                    weight=batch.logits.new_ones(n * len(who)),
                )  # fmt: skip
                with torch.no_grad():
                    parts.append(self.head.vote_log_probs(votes).double().exp().reshape(n, len(codes), K))
            out.append(torch.cat(parts))
        q = torch.cat(out)
        return as_array(q / q.sum(dim=2, keepdim=True))

    def state(self) -> dict[str, Tensor]:
        """The tensors of the network and of the head, by name."""
        return {
            f"{part}.{name}": value.detach()
            for part, module in (("network", self.network), ("head", self.head))
            for name, value in module.state_dict().items()
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state` gave. A head's tensors may have other sizes, which depend on the votes."""
        for part, module in (("network.", self.network), ("head.", self.head)):
            own = below(part, state)
            for name, value in own.items():
                place, _, leaf = name.rpartition(".")
                owner = module.get_submodule(place)
                if module is self.head and getattr(owner, leaf).shape != value.shape:
                    value = value.to(self.device)
                    setattr(owner, leaf, nn.Parameter(value) if leaf in owner._parameters else value)
            module.load_state_dict(own)


class Trainer(Inference):
    """A network and a head in training. Both are trained in place.

    Make them under :func:`~crowdwise.learners.devices.seeded`, after ``torch.manual_seed``, for repeatable first
    weights.
    """

    shares: np.random.Generator
    """Draws the shares of mixtures; every epoch has its own."""

    def __init__(
        self, network: nn.Module, head: Head, data: TrainingData, settings: TrainingSettings, *, seed: int = 0,
        device: str | torch.device = "auto",
    ) -> None:  # fmt: skip
        super().__init__(network, head, settings, device)
        self.data, self.inputs, self.seed = data, data.inputs, seed
        if self.takes_sparse and isinstance(self.inputs, ArrayInputs) and self.inputs.sparse:
            prepare(network)
        self.resident = resident(self.inputs, self.device)
        self.faster: networks.Forward | None = None
        self.compiled = False
        self.group = Processes()
        self.edges = Edges.of(data.votes, self.device)
        self.n_votes = np.diff(data.votes.indptr)
        gold = data.gold
        self.gold = None if gold is None else torch.as_tensor(gold, dtype=torch.int64, device=self.device)
        self.held_out = None if data.held_out is None else Edges.of(data.held_out, self.device)
        self.trains_on_gold = gold is not None and settings.select != "gold"
        used = self.n_votes > 0
        if gold is not None:
            used = used | (gold >= 0) if self.trains_on_gold else used & (gold < 0)
        self.index = np.flatnonzero(used)
        if not len(self.index):
            raise InputError("No item has votes to learn from.")
        if data.weight is not None and not data.weight[self.index].any():
            raise InputError("All items with votes have the weight 0: there is nothing to learn from.")
        if settings.backbone_lr == 0.0:
            for parameter in networks.backbone(network):
                parameter.requires_grad_(False)
        self.head.gold = gold if self.trains_on_gold else None
        self.head.start(data.votes)
        self.head.to(self.device)
        self.optimiser = make_optimiser(network, head, settings, self.device)
        self.first_weights = {name: value.clone() for name, value in self.network.state_dict().items()}
        self.average = WeightAverage(network, settings.ema) if settings.ema else None

    def run(self, callback: Callback | None = None, checkpoint: str | os.PathLike[str] | None = None) -> list[Epoch]:
        """Train for all epochs (or until patience or the callback ends it) and return the history."""
        self.group = Processes.joined(self.device)
        try:
            with self.group.layers(self.network):
                return self._run(callback, checkpoint)
        finally:
            self.group = Processes()

    def _run(self, callback: Callback | None, checkpoint: str | os.PathLike[str] | None) -> list[Epoch]:
        saved = None if checkpoint is None else Checkpoint(Path(checkpoint), self)
        run = Run() if saved is None or not saved.file.exists() else Run(*saved.resume())
        with seeded(self.device), tuned(self.device, same_sizes=not self.sizes_vary):
            for epoch in range(len(run.history), self.settings.epochs):
                if self._out_of_patience(run.history):
                    break
                began = time.perf_counter()
                self._begin_epoch(epoch)
                self._end_epoch(run, self._train_epoch(epoch), began)
                stop = self.group.any(self._report(run.history[-1], callback))
                due = stop or self._due(epoch + 1, self.settings.checkpoint_every)
                if saved is not None and due and self.group.rank == 0:
                    saved.write(run.history, run.best_score, run.best_state)
                if stop:
                    break
            if self.average is not None:
                self.average.load()
            if run.best_state is not None:
                self.load_state(run.best_state)
            self.head.finish(self.log_probs(self.inputs), self.edges)
        return run.history

    def _report(self, epoch: Epoch, callback: Callback | None) -> bool:
        """Whether the callback ends the training. What it predicts is this process's own work."""
        group, self.group = self.group, Processes()
        with self._averaged():
            stop = callback is not None and callback(epoch) is True
        self.group = group
        return stop

    def again(self, epochs: int) -> Trainer:
        """Another training of the same network and head, with a new optimiser; its last epoch is selected."""
        other = copy(self)
        changed = {"epochs": epochs, "select": "last", "patience": None}
        other.settings = TrainingSettings(**self.settings.get_params() | changed)
        other.optimiser = make_optimiser(self.network, self.head, other.settings, self.device)
        return other

    def _begin_epoch(self, epoch: int) -> None:
        seed = int(np.random.SeedSequence([self.seed, epoch + 1]).generate_state(1)[0])
        if self.device.type == "cpu":  # torch.manual_seed also notes where it was called, for a GPU to come
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        self.shares = np.random.default_rng([self.seed, epoch, 1])
        self.head.begin_epoch(epoch, self._predict)
        if self.head.restarts_network(epoch):
            self.network.load_state_dict(self.first_weights)
            self.optimiser = make_optimiser(self.network, self.head, self.settings, self.device)
            if self.average is not None:
                self.average = WeightAverage(self.network, self.settings.ema)

    def _predict(self) -> Tensor:
        with self._averaged():
            return self.log_probs(self.inputs)

    def _averaged(self) -> AbstractContextManager[None]:
        """The network with its average weights, where there are any."""
        return nullcontext() if self.average is None else self.average.in_place()

    def _train_epoch(self, epoch: int) -> float:
        """One step for every batch of the items in a new order; the mean loss."""
        settings, cuts = self.settings, self._cuts()
        order = self._order(np.random.default_rng([self.seed, epoch]))
        for lo, hi in cuts:
            order[lo:hi].sort()
        places = torch.as_tensor(order, device=self.device)
        self._hasten(order)
        self._set_modes(cuts[0][1])
        votes = self.edges.cut(places, self.n_votes[order], cuts)
        total, seen = torch.zeros((), device=self.device), 0
        for step, (lo, hi) in enumerate(cuts):
            self.head.progress = (epoch + step / len(cuts)) / settings.epochs
            for group in self.optimiser.param_groups:
                group["lr"] = group["rate"] * SCHEDULES[settings.schedule](self.head.progress)
            loss = self._step(epoch, order[lo:hi], places[lo:hi], votes[step])
            if loss is not None:
                total, seen = total + loss * (hi - lo), seen + hi - lo
        mean = float(total) / max(seen, 1)
        self._check_finite(mean, epoch)
        return mean

    def _order(self, rng: np.random.Generator) -> Index:
        """The items of an epoch in a random order. With weights they are drawn systematically, so that each occurs as
        often as its weight says, rounded up or down: the mean loss is then the weighted one, for every head."""
        if self.data.weight is None:
            return rng.permutation(self.index)
        n, share = len(self.index), np.cumsum(self.data.weight[self.index])
        at = np.searchsorted(share / share[-1] * n, np.arange(n) + rng.random(), side="right")
        return rng.permutation(self.index[at.clip(max=n - 1)])

    def _step(self, epoch: int, index: Index, at: Tensor, votes: VoteRows) -> Tensor | None:
        """The one place where a step is taken, on the batch of some items; None where nothing is trained."""
        loss = self._loss(index, at, votes)
        if not loss.requires_grad:
            return None
        if self.device.type == "cpu":  # elsewhere the host would wait for every step: see the end of the epoch
            self._check_finite(float(loss.detach()), epoch)
        for group in self.optimiser.param_groups:  # as zero_grad, in a tenth of its time
            for parameter in group["params"]:
                parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        if self.group.size > 1:
            self.group.add_gradients([*self.network.parameters()], [*self.head.parameters()])
        if self.settings.clip is not None:
            nn.utils.clip_grad_norm_([*self.network.parameters(), *self.head.parameters()], self.settings.clip)
        self.optimiser.step()
        self.head.after_step()
        if self.average is not None:
            self.average.update()
        return loss.detach()

    def _check_finite(self, loss: float, epoch: int) -> None:
        if not math.isfinite(loss):
            raise DivergedError(
                f"The loss of {type(self.head).__name__} became {loss} in epoch {epoch + 1}: "
                f"lower lr={self.settings.lr:g} or crowd_lr={self.settings.crowd_lr:g}, or set clip=1.0."
            )

    def _end_epoch(self, run: Run, loss: float, began: float) -> None:
        """The one place where an epoch ends: measure it, note it, and keep its state where it is the best so far."""
        settings, done = self.settings, len(run.history) + 1
        with self._averaged():
            held_out, accuracy = self._measure() if self._due(done, settings.measure_every) else (None, None)
        rate = settings.lr * SCHEDULES[settings.schedule](done / settings.epochs)
        seconds = time.perf_counter() - began
        run.history.append(Epoch(done, settings.epochs, loss, held_out, accuracy, rate, seconds))
        score = {"votes": held_out, "gold": accuracy}.get(settings.select)
        if score is not None and score > run.best_score:
            with self._averaged():
                run.best_score, run.best_state = score, {name: value.clone() for name, value in self.state().items()}

    def _measure(self) -> tuple[float | None, float | None]:
        """The mean log-likelihood of held-out votes, and the accuracy on gold that selects the epoch."""
        held_out = accuracy = None
        if self.held_out is not None:
            self.head.finish(self.log_probs(self.inputs), self.edges)
            counts = (self.held_out.indptr[1:] - self.held_out.indptr[:-1]).cpu().numpy()
            total = self.vote_log_likelihood(self.held_out, self.inputs, np.flatnonzero(counts > 0))
            held_out = total / float(self.held_out.weight.sum())
        if self.gold is not None and self.settings.select == "gold":
            known = torch.nonzero(self.gold >= 0)[:, 0]
            predicted = self.log_probs(self.inputs, known.cpu().numpy()).argmax(dim=1)
            accuracy = float((predicted == self.gold[known]).double().mean())
        return held_out, accuracy

    def _due(self, done: int, every: int) -> bool:
        """Whether something that happens every so many epochs, and after the last, happens now."""
        return done % every == 0 or done == self.settings.epochs

    def _out_of_patience(self, history: list[Epoch]) -> bool:
        """Whether so many epochs lie between the best measurement and the last one."""
        patience, gold = self.settings.patience, self.settings.select == "gold"
        scores = {epoch.epoch: epoch.accuracy if gold else epoch.held_out for epoch in history}
        measured = {epoch: score for epoch, score in scores.items() if score is not None}
        if patience is None or not measured:
            return False
        return max(measured) - max(measured, key=lambda epoch: measured[epoch]) >= patience

    def _cuts(self) -> list[tuple[int, int]]:
        """Where each batch begins and ends; a last batch of one joins the one before."""
        n, size = len(self.index), self.settings.batch_size
        edges = [*range(0, n, size), n]
        if len(edges) > 2 and edges[-1] - edges[-2] == 1 and size > 1:
            del edges[-2]
        return list(pairwise(edges))

    def _loss(self, index: Index, at: Tensor, votes: VoteRows) -> Tensor:
        """The head's loss on a batch, with what the settings add to it: known classes, mixtures, smooth labels."""
        settings = self.settings
        x, n_votes = self._augmented(index, at), len(votes[0])
        if settings.mixup and isinstance(x, Tensor):
            mixes_votes = self.mixes_votes and n_votes
            loss, logits = self._mixed_votes(index, at, x) if mixes_votes else self._mixed_items(at, x, n_votes)
        else:
            logits, hidden = self.forward(x)
            loss = self._votes_loss(Batch(at, logits, hidden, *votes))
        if settings.label_smoothing:
            even = -torch.log_softmax(logits, dim=1).mean()
            loss = (1.0 - settings.label_smoothing) * loss + settings.label_smoothing * even
        return loss

    @property
    def mixes_votes(self) -> bool:
        """Whether a batch has a row for every vote."""
        return bool(self.settings.mixup) and isinstance(self.head, MixesVotes)

    @property
    def sizes_vary(self) -> bool:
        """Whether the size of a batch is not that of the settings."""
        one_each = isinstance(self.head, MixesVotes) and self.head.votes_per_item == 1 and not self.trains_on_gold
        return self.mixes_votes and not one_each

    def _mixed_items(self, at: Tensor, x: Tensor, n_votes: int) -> tuple[Tensor, Tensor]:
        """Loss and logits of mixtures of two items, with one share for the batch."""
        share = float(self.shares.beta(self.settings.mixup, self.settings.mixup))
        order = torch.randperm(len(at), device=self.device)
        logits, hidden = self.forward(torch.lerp(x[order], x, share))
        one, other = (self._votes_loss(self.edges.batch(i, logits, hidden, n_votes)) for i in (at, at[order]))
        return share * one + (1.0 - share) * other, logits

    def _mixed_votes(self, index: Index, at: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and logits of mixtures of two votes, with a share for each; items of known class are not mixed."""
        assert isinstance(self.head, MixesVotes)
        n_votes, a = self.n_votes[index], self.settings.mixup
        row, annotator, label, weight = self.edges.draw(at, n_votes, self.head.votes_per_item)
        E = len(row)
        share = torch.as_tensor(self.shares.beta(a, a, size=E), dtype=x.dtype).to(self.device)
        each, order = torch.arange(E, device=self.device), torch.randperm(E, device=self.device)
        whole = torch.lerp(x[row[order]], x[row], share.reshape(-1, *(1 for _ in x.shape[1:])))
        logits, hidden = self.forward(torch.cat([whole, x]) if self.trains_on_gold else whole)
        one, own = logits[:E], None if hidden is None else hidden[:E]
        votes, other = (
            Batch(at[row[i]], one, own, each, annotator[i], label[i], weight[i].to(one.dtype)) for i in (each, order)
        )
        loss = self.head.mixed_loss(votes, other, share.to(one.dtype))
        if self.trains_on_gold:
            rest = None if hidden is None else hidden[E:]
            loss = loss + self._gold_loss(self.edges.batch(at, logits[E:], rest, int(n_votes.sum())))
        return loss, one

    def _votes_loss(self, batch: Batch) -> Tensor:
        loss = self.head.loss(batch)
        return loss + self._gold_loss(batch) if self.trains_on_gold else loss

    def _gold_loss(self, batch: Batch) -> Tensor:
        """The cross-entropy of items with known class, each counted as one vote."""
        assert self.gold is not None
        gold = self.gold[batch.index]
        known = gold >= 0
        log_p = entries(self.head.predict_log_probs(batch), gold.clamp_min(0))
        return -(log_p * known).sum() / len(batch)

    def _hasten(self, order: Index) -> None:
        """Compile or record the network's passes over a batch, where that is asked for; tried once."""
        settings, hidden, varies = self.settings, self.head.needs_hidden, self.sizes_vary
        graphs = settings.cuda_graphs and self.device.type == "cuda"
        if self.compiled or self.head.network_frozen or not (settings.compile or graphs):
            return
        self.compiled = True
        first = order[: settings.batch_size]
        self._set_modes(len(first))
        with seeded(self.device):
            sample = self._augmented(first, torch.as_tensor(first, device=self.device))
            sparse = not isinstance(sample, Tensor)
            why = networks.why_not_compiled(
                settings, len(order), sparse=sparse, processes=self.group.size, only_compiled=hidden or varies
            )
            if why or not isinstance(sample, Tensor):
                warnings.warn(f"The network is called as it is, neither compiled nor recorded: {why}.", stacklevel=2)
                return
            if not settings.compile:
                self.faster = networks.record(self.network, sample, self.autocast)
                return
            if graphs and varies:
                warnings.warn("The network is compiled and not recorded: batches have different sizes.", stacklevel=2)
            self.faster = networks.compiled(
                self.network, sample, self.autocast, hidden=hidden, any_size=varies, graphs=graphs and not varies
            )

    def forward(self, x: Tensor | SparseRows) -> tuple[Tensor, Tensor | None]:
        fits = self.sizes_vary or len(x) == self.settings.batch_size
        if self.faster is not None and self.network.training and fits:
            assert isinstance(x, Tensor)
            logits, hidden = self.faster(x)
            return logits.float(), None if hidden is None else hidden.float()
        n, part = len(x), self.group.part(len(x)) if self.network.training else None
        self.group.rows = None if part is None else (*part, n)
        if part is None:
            return super().forward(x)
        logits, hidden = super().forward(x[slice(*part)])
        return self.group.gathered(logits, n), None if hidden is None else self.group.gathered(hidden, n)

    def log_probs(self, inputs: Inputs, index: Index | None = None) -> Tensor:
        index = np.arange(len(inputs)) if index is None else index
        part = self.group.part(len(index))
        if part is None:
            return super().log_probs(inputs, index)
        return self.group.gathered(super().log_probs(inputs, index[slice(*part)]), len(index))

    def vote_log_likelihood(self, edges: Edges, inputs: Inputs, index: Index | None = None) -> float:
        index = np.arange(len(inputs)) if index is None else index
        part = self.group.part(len(index))
        if part is None:
            return super().vote_log_likelihood(edges, inputs, index)
        own = super().vote_log_likelihood(edges, inputs, index[slice(*part)])
        return float(self.group.summed(torch.tensor(own, dtype=torch.float64, device=self.device)))

    def _augmented(self, index: Index, at: Tensor) -> Tensor | SparseRows:
        """Inputs to train on."""
        if isinstance(self.resident, Images):
            return self.resident.read(at, self.settings.augment)
        x = self.read(self.inputs, index) if self.resident is None else self.resident.index_select(0, at)
        return augmented(x, self.settings.augment) if isinstance(x, Tensor) else x

    def _set_modes(self, size: int) -> None:
        self.network.train(not self.head.network_frozen)
        if self.settings.backbone_lr == 0.0:  # no dropout and no new statistics either
            self.network.eval()
            networks.hidden_layer(self.network).train()
        self.head.train()
        if size == 1:  # a batch of one has no deviation to normalise by
            for module in self.network.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()

    def read(self, inputs: Inputs, index: Index) -> Tensor | SparseRows:
        if inputs is not self.inputs or self.resident is None:
            return super().read(inputs, index)
        at = torch.as_tensor(index, device=self.device)
        return self.resident.read(at) if isinstance(self.resident, Images) else self.resident.index_select(0, at)


def resident(inputs: Inputs, device: torch.device) -> Tensor | Images | None:
    """The inputs on the device, where they fit there whole with room to spare; images of bytes as bytes."""
    if not isinstance(inputs, ArrayInputs) or inputs.sparse or isinstance(inputs.array, np.memmap):
        return None
    room = torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else RESIDENT
    images = inputs.byte and len(inputs.shape) == 3
    if len(inputs) * math.prod(inputs.shape) * (1 if images else 4) > room:
        return None
    if images:
        return Images(inputs.array, inputs.last, device)
    return inputs.rows(np.arange(len(inputs))).to(device)


def make_optimiser(
    network: nn.Module, head: Head, settings: TrainingSettings, device: torch.device
) -> torch.optim.Optimizer:  # fmt: skip
    """An optimiser with groups for the network, for what a head learns as slowly, and for the rest about annotators."""
    slow, decay = head.slow_parameters(), head.slow_weight_decay
    fast = [p for p in head.parameters() if all(p is not other for other in slow)]
    below = [] if settings.backbone_lr is None else networks.backbone(network)
    own = [p for p in network.parameters() if all(p is not other for other in below)]
    rate = settings.backbone_lr or 0.0
    groups = [
        {"params": own, "lr": settings.lr, "weight_decay": settings.weight_decay},
        {"params": below if rate else [], "lr": rate, "weight_decay": settings.weight_decay},
        {"params": slow, "lr": settings.lr, "weight_decay": settings.weight_decay if decay is None else decay},
        {"params": fast, "lr": settings.crowd_lr, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    optimiser: torch.optim.Optimizer
    if settings.optimiser == "sgd":
        optimiser = torch.optim.SGD(groups, lr=settings.lr, momentum=0.9, nesterov=True, fused=device.type == "cuda")
    else:
        kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
        optimiser = kind(groups, lr=settings.lr, fused=device.type in ("cpu", "cuda"))
    for group in optimiser.param_groups:
        group["rate"] = group["lr"]
    return optimiser


class WeightAverage:
    """average = decay * average + (1 - decay) * weights, after every step.

    In the first steps the decay is smaller, (1 + step) / (10 + step), or the average would stay near the first weights.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.own = {name: value for name, value in network.state_dict().items() if value.is_floating_point()}
        self.average = {name: value.detach().clone() for name, value in self.own.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after a step."""
        decay = min(self.decay, (1.0 + self.steps) / (10.0 + self.steps))
        self.steps += 1
        torch._foreach_lerp_(list(self.average.values()), list(self.own.values()), 1.0 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Predict with the average, then train on with the weights."""
        kept = {name: value.clone() for name, value in self.own.items()}
        self.load()
        try:
            yield
        finally:
            self.load(kept)

    @torch.no_grad()
    def load(self, values: dict[str, Tensor] | None = None) -> None:
        """Give the network the average for its weights, or other values."""
        for name, value in (values or self.average).items():
            self.own[name].copy_(value)

    def state(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        return {"steps": torch.tensor(self.steps)} | self.average

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.steps = int(state["steps"])
        for name, value in self.average.items():
            value.copy_(state[name])


class Stages:
    """Several trainings one after another, reported as one: epochs are numbered through, a callback may end all."""

    def __init__(self, epochs: int, callback: Callback | None) -> None:
        self.epochs, self.callback, self.ended = epochs, callback, False
        self.history: list[Epoch] = []

    def run(self, trainer: Trainer, checkpoint: str | os.PathLike[str] | None = None) -> None:
        """One more training."""
        before = len(self.history)

        def numbered(epoch: Epoch) -> Epoch:
            return replace(epoch, epoch=before + epoch.epoch, epochs=self.epochs)

        def report(epoch: Epoch) -> bool:
            self.ended = self.callback is not None and self.callback(numbered(epoch)) is True
            return self.ended

        self.history += [numbered(epoch) for epoch in trainer.run(report, checkpoint)]
