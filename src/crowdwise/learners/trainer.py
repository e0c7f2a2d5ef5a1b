"""The one training loop: batches, steps, held-out votes, selection, checkpoints.

Everything random comes from the plan's seed and the epoch's number, so a run is repeatable bit for bit on a CPU, and a
run that was interrupted goes on as if it had not been. Nothing here looks at true labels unless they are handed in.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator
from copy import copy
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from crowdwise.data.votes import Votes
from crowdwise.errors import DivergedError, InputError, ParameterError, ReadError
from crowdwise.learners.devices import find_device, seeded
from crowdwise.learners.head import Head
from crowdwise.learners.inputs import ArrayInputs, Inputs
from crowdwise.learners.networks import Probe, hidden_layer
from crowdwise.learners.sparse_inputs import SparseRows, first_layer, prepare
from crowdwise.learners.training import SCHEDULES, Callback, Epoch, Plan
from crowdwise.learners.vote_edges import Batch, Edges

RESIDENT = 2**30
"""The most bytes of inputs that are kept whole, as float32, in the memory of the CPU."""

GLANCE = 16
"""Inputs that a checkpoint remembers, to be gone on with on the same ones only."""


class Trainer:
    """A network and a head, what they learn from, and the loop.

    Parameters
    ----------
    network, head
        Trained in place. Make them under :func:`seeded` after ``torch.manual_seed`` for repeatable first weights.
    inputs, votes
        Row n of the inputs is item n of the votes. Items without votes take no part in training.
    held
        Votes on the same items, to be judged by.
    truth
        N class codes, -1 where unknown. Items with known truth are trained on as if one more annotator, who is always
        right, had voted; with ``select="gold"`` they are kept out of training and choose the epoch instead.
    """

    def __init__(
        self, network: nn.Module, head: Head, inputs: Inputs, votes: Votes, plan: Plan, *, held: Votes | None = None,
        truth: npt.NDArray[np.int32] | None = None, device: str | torch.device = "auto",
    ) -> None:  # fmt: skip
        self.device = find_device(device) if isinstance(device, str) else device
        self.network, self.head = network.to(self.device), head.to(self.device)
        self.inputs, self.votes, self.plan = inputs, votes, plan
        self.edges = Edges.of(votes, self.device)
        self.held = None if held is None else Edges.of(held, self.device)
        self.truth = None if truth is None else torch.as_tensor(truth, dtype=torch.int64, device=self.device)
        self.autocast = self.device.type == "cuda" and (
            plan.precision == "bfloat16" or (plan.precision == "auto" and torch.cuda.is_bf16_supported())
        )
        # Of a network that is one layer, a head that asks for that layer's input is to get it dense.
        first = first_layer(network)
        self.takes_sparse = first is not None and not (head.needs_hidden and hidden_layer(network) is first)
        if self.takes_sparse and isinstance(inputs, ArrayInputs) and inputs.sparse:
            prepare(network)
        self.resident = self._load()
        used = np.diff(votes.indptr) > 0
        if truth is not None:
            used = used & (truth < 0) if plan.select == "gold" else used | (truth >= 0)
        self.index = np.flatnonzero(used)
        if not len(self.index):
            raise InputError("No item has votes to learn from.")
        self.head.gold = None if truth is None or plan.select == "gold" else truth
        self.head.start(votes)
        self.head.to(self.device)
        self.optimiser = self._optimiser()
        self.first = {name: value.clone() for name, value in self.network.state_dict().items()}
        settings = {name: v for name, v in vars(head).items() if isinstance(v, (bool, int, float, str))}
        self.made_of = json.dumps([type(head).__name__, settings], sort_keys=True)

    # ---------------------------------------------------------------- looking

    def log_probs(self, inputs: Inputs | None = None, index: npt.NDArray[np.int64] | None = None) -> Tensor:
        """Log class probabilities of inputs (by default those trained on), with the network at rest."""
        return torch.cat([self.head.predict_log_probs(batch) for batch in self.batches(None, inputs, index)])

    def batches(
        self, edges: Edges | None, inputs: Inputs | None = None, index: npt.NDArray[np.int64] | None = None
    ) -> Iterator[Batch]:
        """The inputs in turn, with the network at rest, and their votes where there are any."""
        given = inputs is not None
        inputs = self.inputs if inputs is None else inputs
        index = np.arange(len(inputs)) if index is None else index
        size = max(self.plan.batch_size, 512)
        self.network.eval()
        self.head.eval()
        with torch.no_grad():
            for lo in range(0, len(index), size):
                some = index[lo : lo + size]
                x = self._read(inputs, some) if given else self._rows(some)
                yield self._batch(edges, some, x)

    def _batch(self, edges: Edges | None, index: npt.NDArray[np.int64], x: Tensor | SparseRows) -> Batch:
        at = torch.as_tensor(index, device=self.device)
        probe = Probe(self.network) if self.head.needs_hidden else None
        try:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
                logits = self.network(x)
        finally:
            if probe is not None:
                probe.remove()
        logits = logits.float()
        hidden = None if probe is None or probe.hidden is None else probe.hidden.float()
        if logits.shape != (len(index), self.head.n_classes):
            raise ParameterError(
                f"The network gave {tuple(logits.shape)} for {len(index)} inputs: "
                f"expected one row per input and one column for each of the {self.head.n_classes} classes."
            )
        if edges is None:
            none = at.new_zeros(0)
            return Batch(at, logits, hidden, none, none, none, logits.new_zeros(0))
        return edges.batch(at, logits, hidden)

    # ---------------------------------------------------------------- training

    def run(self, callback: Callback | None = None, checkpoint: str | os.PathLike[str] | None = None) -> list[Epoch]:
        """Train to the end of the plan (or until patience or the callback ends it) and return the history."""
        plan, history, best = self.plan, list[Epoch](), -math.inf
        kept: dict[str, Tensor] | None = None
        file = None if checkpoint is None else Path(checkpoint)
        if file is not None and file.exists():
            history, kept, best = self._resume(file)
        steps = len(self._cuts())
        with seeded(self.device):
            for epoch in range(len(history), plan.epochs):
                if self._out_of_patience(history):
                    break
                began = time.perf_counter()
                torch.manual_seed(int(np.random.SeedSequence([plan.seed, epoch + 1]).generate_state(1)[0]))
                self.head.begin(epoch, self.log_probs)
                if self.head.renew(epoch):
                    self.network.load_state_dict(self.first)
                    self.optimiser = self._optimiser()
                loss = self._epoch(epoch, steps)
                held_out, accuracy = self._measure()
                rate = plan.lr * SCHEDULES[plan.schedule]((epoch + 1) / plan.epochs)
                history.append(
                    Epoch(epoch + 1, plan.epochs, loss, held_out, accuracy, rate, time.perf_counter() - began)
                )
                score = {"votes": held_out, "gold": accuracy}.get(plan.select)
                if score is not None and score > best:
                    best, kept = score, {name: value.clone() for name, value in self._state().items()}
                if file is not None:
                    self._save(file, history, kept, best)
                if callback is not None and callback(history[-1]) is True:
                    break
            if kept is not None and plan.select != "last":
                self._restore(kept)
            self.head.settle(self.log_probs(), self.edges)
        return history

    def again(self, epochs: int) -> Trainer:
        """Another training of the same network and head, with a fresh optimiser, of which the last epoch is kept."""
        other = copy(self)
        other.plan = replace(self.plan, epochs=epochs, select="last", patience=None)
        if self.plan.select == "gold":  # what chooses the epoch is never trained on
            other.truth = None
        other.optimiser = other._optimiser()
        return other

    def _epoch(self, epoch: int, steps: int) -> float:
        plan = self.plan
        order = np.random.default_rng([plan.seed, epoch]).permutation(self.index)
        total, seen = 0.0, 0
        rates = [group["rate"] for group in self.optimiser.param_groups]
        for step, (lo, hi) in enumerate(self._cuts()):
            self.head.progress = (epoch + step / steps) / plan.epochs
            factor = SCHEDULES[plan.schedule](self.head.progress)
            for group, rate in zip(self.optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            index = np.sort(order[lo:hi])
            self.network.train(not self.head.resting)
            self.head.train()
            if hi - lo == 1:  # a batch of one has no deviation to normalise by
                for module in self.network.modules():
                    if isinstance(module, nn.modules.batchnorm._BatchNorm):
                        module.eval()
            batch = self._batch(self.edges, index, self._rows(index))
            loss = self.head.loss(batch) + self._known(batch)
            if not loss.requires_grad:
                continue
            if not bool(torch.isfinite(loss)):
                raise DivergedError(
                    f"The loss of {type(self.head).__name__} became {float(loss.detach())} in epoch {epoch + 1}: "
                    f"lower lr={plan.lr:g} or crowd_lr={plan.crowd_lr:g}, or set clip=1.0."
                )
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            if plan.clip is not None:
                nn.utils.clip_grad_norm_([*self.network.parameters(), *self.head.parameters()], plan.clip)
            self.optimiser.step()
            self.head.after_step()
            total, seen = total + float(loss.detach()) * (hi - lo), seen + hi - lo
        return total / max(seen, 1)

    def _known(self, batch: Batch) -> Tensor:
        """The cross-entropy of items with known truth, each counted as one vote."""
        if self.truth is None or self.plan.select == "gold":
            return batch.logits.new_zeros(())
        truth = self.truth[batch.index]
        known = truth >= 0
        if not bool(known.any()):
            return batch.logits.new_zeros(())
        return -self.head.predict_log_probs(batch)[known, truth[known]].sum() / len(batch)

    def _measure(self) -> tuple[float | None, float | None]:
        held_out = accuracy = None
        if self.held is not None:
            self.head.settle(self.log_probs(), self.edges)
            counts = (self.held.indptr[1:] - self.held.indptr[:-1]).cpu().numpy()
            total = torch.zeros((), dtype=torch.float64)
            for batch in self.batches(self.held, index=np.flatnonzero(counts > 0)):
                total += float((batch.weight * self.head.vote_log_probs(batch)).sum())
            held_out = float(total) / float(self.held.weight.sum())
        if self.truth is not None and self.plan.select == "gold":
            known = torch.nonzero(self.truth >= 0)[:, 0]
            found = self.log_probs(index=known.cpu().numpy()).argmax(dim=1)
            accuracy = float((found == self.truth[known]).double().mean())
        return held_out, accuracy

    def _out_of_patience(self, history: list[Epoch]) -> bool:
        scores = [h.held_out if self.plan.select != "gold" else h.accuracy for h in history]
        if self.plan.patience is None or len(scores) <= self.plan.patience:
            return False
        found = [score if score is not None else -math.inf for score in scores]
        return max(found[-self.plan.patience :]) <= max(found[: -self.plan.patience])

    # ---------------------------------------------------------------- pieces

    def _cuts(self) -> list[tuple[int, int]]:
        """Where each batch begins and ends; a last batch of one joins the one before."""
        n, size = len(self.index), self.plan.batch_size
        edges = [*range(0, n, size), n]
        if len(edges) > 2 and edges[-1] - edges[-2] == 1 and size > 1:
            del edges[-2]
        return list(pairwise(edges))

    def _optimiser(self) -> torch.optim.Optimizer:
        plan, slow = self.plan, {id(p) for p in self.head.slow_parameters()}
        groups = [
            {"params": [*self.network.parameters(), *self.head.slow_parameters()], "lr": plan.lr,
             "weight_decay": plan.weight_decay},
            {"params": [p for p in self.head.parameters() if id(p) not in slow], "lr": plan.crowd_lr,
             "weight_decay": 0.0},
        ]  # fmt: skip
        groups = [group for group in groups if group["params"]]
        made: torch.optim.Optimizer
        if plan.optimiser == "sgd":
            made = torch.optim.SGD(groups, lr=plan.lr, momentum=0.9, nesterov=True)
        else:
            kind = torch.optim.AdamW if plan.optimiser == "adamw" else torch.optim.Adam
            made = kind(groups, lr=plan.lr, fused=self.device.type in ("cpu", "cuda"))
        for group in made.param_groups:
            group["rate"] = group["lr"]
        return made

    def _load(self) -> Tensor | None:
        """The inputs on the device, where they fit there whole with room to spare."""
        inputs = self.inputs
        if not isinstance(inputs, ArrayInputs) or inputs.sparse or isinstance(inputs.array, np.memmap):
            return None
        room = torch.cuda.mem_get_info(self.device)[0] // 2 if self.device.type == "cuda" else RESIDENT
        if len(inputs) * math.prod(inputs.shape) * 4 > room:
            return None
        return inputs.rows(np.arange(len(inputs))).to(self.device)

    def _rows(self, index: npt.NDArray[np.int64]) -> Tensor | SparseRows:
        if self.resident is not None:
            return self.resident[torch.as_tensor(index, device=self.device)]
        return self._read(self.inputs, index)

    def _read(self, inputs: Inputs, index: npt.NDArray[np.int64]) -> Tensor | SparseRows:
        if self.takes_sparse and isinstance(inputs, ArrayInputs) and inputs.sparse:
            return inputs.sparse_rows(index).to(self.device, non_blocking=True)
        return inputs.rows(index).to(self.device, non_blocking=True)

    # ---------------------------------------------------------------- checkpoints

    def _state(self) -> dict[str, Tensor]:
        """The network's and the head's tensors, by name."""
        return {
            f"{part}.{name}": value.detach()
            for part, module in (("network", self.network), ("head", self.head))
            for name, value in module.state_dict().items()
        }

    def _restore(self, state: dict[str, Tensor]) -> None:
        for part, module in (("network.", self.network), ("head.", self.head)):
            mine = {name.removeprefix(part): value for name, value in state.items() if name.startswith(part)}
            module.load_state_dict(mine)

    def _mark(self) -> str:
        """What a checkpoint must have been made of to be gone on with."""
        digest = hashlib.sha256(json.dumps(asdict(self.plan), sort_keys=True).encode())
        digest.update(self.made_of.encode())
        for array in (self.votes.indptr, self.votes.annotator, self.votes.label, self.votes.weights):
            digest.update(np.ascontiguousarray(array).tobytes())
        held = () if self.held is None else (self.held.indptr, self.held.annotator, self.held.label, self.held.weight)
        for tensor in (*held, *(() if self.truth is None else (self.truth,))):
            digest.update(tensor.cpu().numpy().tobytes())
        some = np.unique(np.linspace(0, len(self.inputs) - 1, GLANCE).astype(np.int64))
        digest.update(self.inputs.rows(some).numpy().tobytes())
        digest.update(json.dumps({name: list(value.shape) for name, value in self._state().items()}).encode())
        return digest.hexdigest()

    def _save(self, file: Path, history: list[Epoch], kept: dict[str, Tensor] | None, best: float) -> None:
        from safetensors.torch import save_file

        optimiser = self.optimiser.state_dict()["state"]
        tensors = dict(self._state())
        tensors |= {f"kept.{name}": value for name, value in (kept or {}).items()}
        tensors |= {
            f"optimiser.{number}.{name}": torch.as_tensor(value)
            for number, slots in optimiser.items()
            for name, value in slots.items()
            if value is not None
        }
        note = {
            "history": json.dumps([asdict(epoch) for epoch in history]),
            "best": json.dumps(best if math.isfinite(best) else None),
            "mark": self._mark(),
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f"{file.name}.new")
        save_file(
            {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}, new, metadata=note
        )
        os.replace(new, file)

    def _resume(self, file: Path) -> tuple[list[Epoch], dict[str, Tensor] | None, float]:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(file, framework="pt", device=str(self.device)) as stored:
                note = stored.metadata() or {}
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (not a dict)
        except (OSError, SafetensorError) as error:
            raise ReadError(f"The checkpoint {file} could not be read: {error}. Remove it to begin anew.") from error
        if note.get("mark") != self._mark():
            raise InputError(
                f"The checkpoint {file} was made with other inputs, votes or settings, so it cannot be gone on with. "
                "Remove it to begin anew, or name another file."
            )
        kept = {name.removeprefix("kept."): value for name, value in tensors.items() if name.startswith("kept.")}
        self._restore(tensors)
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimiser."):
                _, number, slot = name.split(".", 2)
                state.setdefault(int(number), {})[slot] = value
        self.optimiser.load_state_dict({"state": state, "param_groups": self.optimiser.state_dict()["param_groups"]})
        for parameter, slots in self.optimiser.state.items():  # laid out in memory as their parameter is
            for slot, value in slots.items():
                if value.shape == parameter.shape:
                    slots[slot] = torch.empty_like(parameter, requires_grad=False).copy_(value)
        best = json.loads(note["best"])
        history = [Epoch(**epoch) for epoch in json.loads(note["history"])]
        return history, kept or None, -math.inf if best is None else best


class Stages:
    """Several trainings one after another, told as one: epochs are numbered through, a callback may end all."""

    def __init__(self, epochs: int, callback: Callback | None) -> None:
        self.epochs, self.callback = epochs, callback
        self.history: list[Epoch] = []
        self.ended = False

    def run(self, trainer: Trainer, checkpoint: str | os.PathLike[str] | None = None) -> None:
        """One more training."""
        before = len(self.history)

        def numbered(epoch: Epoch) -> Epoch:
            return replace(epoch, epoch=before + epoch.epoch, epochs=self.epochs)

        def tell(epoch: Epoch) -> bool:
            self.ended = self.callback is not None and self.callback(numbered(epoch)) is True
            return self.ended

        self.history += [numbered(epoch) for epoch in trainer.run(tell, checkpoint)]
