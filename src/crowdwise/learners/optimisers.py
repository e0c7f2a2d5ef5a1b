"""The optimiser of a training run."""

from __future__ import annotations

import torch
from torch import nn

from crowdwise.learners.head import Head
from crowdwise.learners.training_settings import TrainingSettings


def make_optimiser(
    network: nn.Module, head: Head, settings: TrainingSettings, device: torch.device
) -> torch.optim.Optimizer:  # fmt: skip
    """An optimiser with groups for the network, for what a head learns as slowly, and for the rest about annotators."""
    slow, decay = head.slow_parameters(), head.slow_weight_decay
    fast = [p for p in head.parameters() if all(p is not other for other in slow)]
    groups = [
        {"params": [*network.parameters()], "lr": settings.lr, "weight_decay": settings.weight_decay},
        {"params": slow, "lr": settings.lr, "weight_decay": settings.weight_decay if decay is None else decay},
        {"params": fast, "lr": settings.crowd_lr, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    made: torch.optim.Optimizer
    if settings.optimiser == "sgd":
        made = torch.optim.SGD(groups, lr=settings.lr, momentum=0.9, nesterov=True, fused=device.type == "cuda")
    else:
        kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
        made = kind(groups, lr=settings.lr, fused=device.type in ("cpu", "cuda"))
    for group in made.param_groups:
        group["rate"] = group["lr"]
    return made
