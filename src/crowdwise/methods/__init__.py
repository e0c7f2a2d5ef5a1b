"""Methods that infer labels from votes alone: one file per method or family, named after the registry's families."""

from __future__ import annotations

from functools import partial

from crowdwise.core import starts
from crowdwise.core.constraints import RandomState
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes

MOMENT_STARTS = ("spectral-ds", "multispa", "cnmf", "symnmf", "tensor")
"""Methods of moments, which other methods can start from: ``start="cnmf"``."""


def moment_confusion(key: str, votes: Votes, gold: Ints | None, random_state: RandomState) -> Floats:
    """theta[m, k, l] that a method of moments, with its defaults, solves for before any EM."""
    from crowdwise.methods.moments_pairs import CNMF, MultiSPA, SymNMF
    from crowdwise.methods.moments_spectral_ds import SpectralDS
    from crowdwise.methods.moments_tensor import TensorDS

    models = {model.key: model for model in (SpectralDS, MultiSPA, CNMF, SymNMF, TensorDS)}
    return models[key](random_state=random_state).initial_confusion(votes, gold)


starts.NAMED.update({key: partial(moment_confusion, key) for key in MOMENT_STARTS})
