"""The one training loop: steps, held-out votes, selection, checkpoints.

Everything random comes from the seed and the number of the epoch. A run is therefore repeatable bit for bit on a CPU,
and a run that was interrupted continues as if it had not been. Gold is used where it is given, truth never.
"""

from __future__ import annotations

import math
import os
import time
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.errors import DivergedError, InputError
from crowdwise.learners.averaging import WeightAverage
from crowdwise.learners.checkpoints import Checkpoint
from crowdwise.learners.devices import seeded, tuned
from crowdwise.learners.distributed import Processes
from crowdwise.learners.head import Head
from crowdwise.learners.inputs import Index
from crowdwise.learners.optimisers import make_optimiser
from crowdwise.learners.training_data import TrainingData
from crowdwise.learners.training_loss import TrainingLoss
from crowdwise.learners.training_settings import SCHEDULES, Callback, Epoch, TrainingSettings
from crowdwise.learners.vote_edges import Edges


@dataclass
class Run:
    """How far a training run has come."""

    history: list[Epoch] = field(default_factory=list)
    best_score: float = -math.inf
    best_state: dict[str, Tensor] | None = None


class Trainer(TrainingLoss):
    """A network and a head in training. Both are trained in place.

    Make them under :func:`~crowdwise.learners.devices.seeded`, after ``torch.manual_seed``, for repeatable first
    weights.
    """

    def __init__(
        self, network: nn.Module, head: Head, data: TrainingData, settings: TrainingSettings, *, seed: int = 0,
        device: str | torch.device = "auto",
    ) -> None:  # fmt: skip
        super().__init__(network, head, data, settings, device)
        self.data, self.seed = data, seed
        self.held_out = None if data.held_out is None else Edges.of(data.held_out, self.device)
        gold = data.gold
        used = self.n_votes > 0
        if gold is not None:
            used = used & (gold < 0) if settings.select == "gold" else used | (gold >= 0)
        self.index = np.flatnonzero(used)
        if not len(self.index):
            raise InputError("No item has votes to learn from.")
        self.head.gold = None if gold is None or settings.select == "gold" else gold
        self.head.start(data.votes)
        self.head.to(self.device)
        self.optimiser = self._make_optimiser()
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
                loss = self._train_epoch(epoch)
                self._end_epoch(run, loss, began)
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
        if self.settings.select == "gold":  # what selects the epoch is never trained on
            other.gold = None
        other.optimiser = other._make_optimiser()
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
            self.optimiser = self._make_optimiser()
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
        order = np.random.default_rng([self.seed, epoch]).permutation(self.index)
        for lo, hi in cuts:
            order[lo:hi].sort()
        places = torch.as_tensor(order, device=self.device)
        self._hasten(order)
        self._set_modes(cuts[0][1])
        total, seen = torch.zeros((), device=self.device), 0
        rates = [group["rate"] for group in self.optimiser.param_groups]
        for step, (lo, hi) in enumerate(cuts):
            self.head.progress = (epoch + step / len(cuts)) / settings.epochs
            factor = SCHEDULES[settings.schedule](self.head.progress)
            for group, rate in zip(self.optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            loss = self._step(epoch, order[lo:hi], places[lo:hi])
            if loss is not None:
                total, seen = total + loss * (hi - lo), seen + hi - lo
        mean = float(total) / max(seen, 1)
        self._check_finite(mean, epoch)
        return mean

    def _step(self, epoch: int, index: Index, at: Tensor) -> Tensor | None:
        """The one place where a step is taken, on the batch of some items; None where nothing is trained."""
        settings = self.settings
        loss = self._loss(index, at)
        if not loss.requires_grad:
            return None
        if self.device.type == "cpu":  # elsewhere the host would wait for every step: see the end of the epoch
            self._check_finite(float(loss.detach()), epoch)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.group.size > 1:
            self.group.add_gradients([*self.network.parameters()], [*self.head.parameters()])
        if settings.clip is not None:
            nn.utils.clip_grad_norm_([*self.network.parameters(), *self.head.parameters()], settings.clip)
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
            found = self.log_probs(self.inputs, known.cpu().numpy()).argmax(dim=1)
            accuracy = float((found == self.gold[known]).double().mean())
        return held_out, accuracy

    def _due(self, done: int, every: int) -> bool:
        """Whether something that happens every so many epochs, and after the last, happens now."""
        return done % every == 0 or done == self.settings.epochs

    def _out_of_patience(self, history: list[Epoch]) -> bool:
        patience = self.settings.patience
        if patience is None or len(history) <= patience:
            return False
        scores = [epoch.accuracy if self.settings.select == "gold" else epoch.held_out for epoch in history]
        found = [-math.inf if score is None else score for score in scores]
        return max(found[-patience:]) <= max(found[:-patience])

    def _cuts(self) -> list[tuple[int, int]]:
        """Where each batch begins and ends; a last batch of one joins the one before."""
        n, size = len(self.index), self.settings.batch_size
        edges = [*range(0, n, size), n]
        if len(edges) > 2 and edges[-1] - edges[-2] == 1 and size > 1:
            del edges[-2]
        return list(pairwise(edges))

    def _make_optimiser(self) -> torch.optim.Optimizer:
        return make_optimiser(self.network, self.head, self.settings, self.device)
