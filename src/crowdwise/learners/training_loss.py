"""The loss of a batch: the head's, with what the settings add to it: known classes, mixtures, smooth labels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.learners.head import Head, MixesVotes
from crowdwise.learners.inputs import Index
from crowdwise.learners.training_data import TrainingData
from crowdwise.learners.training_passes import TrainingPasses
from crowdwise.learners.training_settings import TrainingSettings
from crowdwise.learners.vote_edges import Batch, Edges


class TrainingLoss(TrainingPasses):
    """A network and a head with votes and known classes, and the loss of a batch of them."""

    shares: np.random.Generator
    """Draws the shares of mixtures; every epoch has its own."""

    def __init__(
        self, network: nn.Module, head: Head, data: TrainingData, settings: TrainingSettings,
        device: str | torch.device,
    ) -> None:  # fmt: skip
        super().__init__(network, head, data.inputs, settings, device)
        self.edges = Edges.of(data.votes, self.device)
        self.n_votes = np.diff(data.votes.indptr)
        gold = data.gold
        self.gold = None if gold is None else torch.as_tensor(gold, dtype=torch.int64, device=self.device)

    def _loss(self, index: Index, at: Tensor) -> Tensor:
        """The head's loss on a batch, with what the settings add to it: known classes, mixtures, smooth labels."""
        settings = self.settings
        n_votes = int(self.n_votes[index].sum())
        x = self._augmented(index, at)
        if settings.mixup and isinstance(x, Tensor):
            if self.mixes_votes and n_votes:
                loss, logits = self._mixed_votes(index, at, x)
            else:
                loss, logits = self._mixed_items(at, x, n_votes)
        else:
            logits, hidden = self.forward(x)
            loss = self._votes_loss(self.edges.batch(at, logits, hidden, n_votes))
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
        one_each = isinstance(self.head, MixesVotes) and self.head.votes_per_item == 1 and self.gold is None
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
        share = torch.as_tensor(self.shares.beta(a, a, size=E), dtype=x.dtype)
        share, order = share.to(self.device), torch.randperm(E, device=self.device)
        whole = torch.lerp(x[row[order]], x[row], share.reshape(-1, *(1 for _ in x.shape[1:])))
        gold = self.gold is not None and self.settings.select != "gold"
        logits, hidden = self.forward(torch.cat([whole, x]) if gold else whole)
        one, own = logits[:E], None if hidden is None else hidden[:E]
        each = torch.arange(E, device=self.device)
        votes = [
            Batch(at[row[i]], one, own, each, annotator[i], label[i], weight[i].to(one.dtype)) for i in (each, order)
        ]
        loss = self.head.mixed_loss(votes[0], votes[1], share.to(one.dtype))
        if gold:
            rest = None if hidden is None else hidden[E:]
            loss = loss + self._gold_loss(self.edges.batch(at, logits[E:], rest, int(n_votes.sum())))
        return loss, one

    def _votes_loss(self, batch: Batch) -> Tensor:
        loss = self.head.loss(batch)
        return loss if self.gold is None else loss + self._gold_loss(batch)

    def _gold_loss(self, batch: Batch) -> Tensor:
        """The cross-entropy of items with known class, each counted as one vote."""
        if self.gold is None or self.settings.select == "gold":
            return batch.logits.new_zeros(())
        gold = self.gold[batch.index]
        known = gold >= 0
        said = self.head.predict_log_probs(batch).gather(1, gold.clamp_min(0)[:, None])[:, 0]
        return -(said * known).sum() / len(batch)
