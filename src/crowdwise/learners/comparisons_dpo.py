"""Losses for direct preference optimisation with flip rates of annotators.

With log probabilities of the chosen and the rejected answer under the policy and under the reference model,

    h = beta [ (policy chosen - policy rejected) - (reference chosen - reference rejected) ],    l(h) = -log sigmoid(h)

============  ==========================================================  =====================
form          loss of one pair, with eps the annotator's flip rate        reference
============  ==========================================================  =====================
``plain``     l(h)                                                        Rafailov et al. 2023
``smoothed``  (1 - eps) l(h) + eps l(-h)                                  Mitchell 2023
``robust``    [ (1 - eps) l(h) - eps l(-h) ] / (1 - 2 eps)                Chowdhury et al. 2024
============  ==========================================================  =====================

Where an answer is flipped with probability eps, the expected robust loss is l of the true preference:
(1 - eps) robust(h) + eps robust(-h) = l(h), so gradients are unbiased for every eps (over 1/2 as well: an annotator who
mostly flips carries as much information as one who does not). Near 1/2 an answer carries no information, and its loss
would be unbounded: such rows are an error.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from crowdwise.core.constraints import Positive, checked
from crowdwise.errors import InputError, ParameterError

BLIND = 0.02
"""Flip rates closer to 1/2 than this have no robust loss."""


@checked
def dpo_loss(
    policy_chosen: Tensor, policy_rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, *,
    beta: Positive = 0.1, form: Literal["plain", "smoothed", "robust"] = "plain", flip_rate: Any = None,
    annotator: Tensor | None = None, weight: Tensor | None = None,
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Tensor:  # fmt: skip
    """The loss of pairs of answers.

    Parameters
    ----------
    policy_chosen, policy_rejected, reference_chosen, reference_rejected
        B log probabilities of the answers, summed over their tokens.
    beta
        How strongly the policy is tied to the reference model.
    form
        ``"plain"``, ``"smoothed"`` or ``"robust"``.
    flip_rate
        How often answers are flipped, from 0 to 1: one number, one for each of the B pairs, or (with
        ``annotator``) one for each annotator, such as ``1 - ranking.reliability``. For ``"smoothed"`` and ``"robust"``.
    annotator
        B codes of annotators, into ``flip_rate``.
    weight
        B weights of the pairs.
    reduction
        ``"mean"`` (by weight), ``"sum"``, or ``"none"`` for the B losses.

    >>> import torch
    >>> chosen, rejected, none = torch.tensor([-1.0, -2.0]), torch.tensor([-3.0, -1.0]), torch.zeros(2)
    >>> rates = torch.tensor([0.0, 0.3])
    >>> who = torch.tensor([0, 1])
    >>> loss = dpo_loss(chosen, rejected, none, none, beta=1.0, form="robust", flip_rate=rates, annotator=who)
    >>> round(float(loss), 3)
    1.095
    """
    parts = (policy_chosen, policy_rejected, reference_chosen, reference_rejected)
    if len({p.shape for p in parts}) != 1 or policy_chosen.ndim != 1:
        raise InputError(f"Expected four rows of B log probabilities and found {[tuple(p.shape) for p in parts]}.")
    if not all(bool(torch.isfinite(p).all()) for p in parts):
        raise InputError("Some log probabilities are infinite or NaN: leave those pairs out.")
    if (flip_rate is None) != (form == "plain"):
        raise ParameterError(f"form={form!r} {'takes no' if form == 'plain' else 'needs a'} flip_rate.")
    h = beta * ((policy_chosen - policy_rejected) - (reference_chosen - reference_rejected))
    straight, flipped = -logsigmoid(h), -logsigmoid(-h)
    if form == "plain":
        loss = straight
    else:
        eps = _flip_rates(flip_rate, annotator, h)
        if form == "smoothed":
            loss = (1.0 - eps) * straight + eps * flipped
        else:
            blind = (1.0 - 2.0 * eps).abs() < 2.0 * BLIND
            if bool(blind.any()):
                raise InputError(
                    f"{int(blind.sum())} pairs have a flip rate within {BLIND:g} of 1/2, such as "
                    f"{float(eps.expand_as(h)[blind.expand_as(h)][0]):.3f}: their answers "
                    "carry no information. Leave them out."
                )
            loss = ((1.0 - eps) * straight - eps * flipped) / (1.0 - 2.0 * eps)
    if weight is not None:
        if weight.shape != h.shape or bool((weight < 0).any()):
            raise InputError(f"Expected {len(h)} weights of at least 0 and found {tuple(weight.shape)}.")
        loss = loss * weight
    if reduction == "none":
        return loss
    total = loss.sum()
    if reduction == "sum":
        return total
    return total / (len(h) if weight is None else weight.sum().clamp_min(1e-12))


def _flip_rates(given: Any, annotator: Tensor | None, h: Tensor) -> Tensor:
    """One flip rate for each pair, or a single one."""
    eps = torch.as_tensor(given, dtype=h.dtype, device=h.device)
    if not bool(((eps >= 0.0) & (eps <= 1.0)).all()):
        raise ParameterError("flip_rate: expected numbers from 0 to 1, the share of flipped answers.")
    if annotator is None:
        if eps.ndim > 0 and eps.shape != h.shape:
            raise InputError(
                f"flip_rate has the shape {tuple(eps.shape)} and there are {len(h)} pairs: give one, one for each "
                "pair, or with annotator=codes one for each annotator."
            )
        return eps
    if eps.ndim != 1 or annotator.shape != h.shape:
        raise InputError("With annotator, expected one flip rate for each annotator and one annotator for each pair.")
    if len(annotator) and (int(annotator.min()) < 0 or int(annotator.max()) >= len(eps)):
        raise InputError(f"annotator runs to {int(annotator.max())} and flip_rate names {len(eps)} annotators.")
    return eps[annotator]
