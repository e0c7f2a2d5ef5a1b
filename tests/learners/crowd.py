"""Small made-up data for the learners: blobs of features, and crowds with known confusion matrices."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from crowdwise.data.votes import Votes
from crowdwise.learners.head import FLOOR


def blobs(n=240, n_classes=3, n_features=6, spread=0.8, seed=0):
    """Features in as many clouds as classes, and the classes."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(0.0, 1.6, (n_classes, n_features))
    truth = rng.integers(n_classes, size=n)
    return (centres[truth] + rng.normal(0.0, spread, (n, n_features))).astype(np.float32), truth


def confusions(n_annotators, n_classes, low=0.55, high=0.9, seed=0):
    """M x K x K: the diagonal between low and high, the rest spread unevenly."""
    rng = np.random.default_rng(seed)
    theta = np.empty((n_annotators, n_classes, n_classes))
    for m in range(n_annotators):
        for k in range(n_classes):
            right = rng.uniform(low, high)
            theta[m, k] = np.insert(rng.dirichlet(np.ones(n_classes - 1)) * (1 - right), k, right)
    return theta


def vote(truth, theta, votes_per_item=3, seed=0, weight=None):
    """Votes of random annotators; items and annotators are named 0, 1, ..."""
    rng = np.random.default_rng(seed)
    M, K, _ = theta.shape
    item, who, label = [], [], []
    for n, k in enumerate(truth):
        for m in rng.choice(M, size=min(votes_per_item, M), replace=False):
            item.append(n)
            who.append(m)
            label.append(rng.choice(K, p=theta[m, k]))
    return Votes.from_codes(
        item, who, label, items=range(len(truth)), annotators=range(M), classes=range(K), weight=weight
    )


@cache
def small(n=240, n_classes=3, n_annotators=8, votes_per_item=3, seed=0, **more):
    """Features, votes and truth of a small crowd that is mostly right; the same objects for the same call."""
    X, truth = blobs(n, n_classes, seed=seed)
    return X, vote(truth, confusions(n_annotators, n_classes, seed=seed, **more), votes_per_item, seed=seed), truth


def information_gain(log_h, log_g, log_p, kind="kl"):
    """The gain between N rows of classifier and aggregator as its formulas have it, for autograd."""
    N = len(log_h)
    joint = torch.logsumexp(log_h + log_g - log_p, dim=1)
    ratio = (log_h - log_p).exp() @ log_g.exp().T
    if kind == "kl":
        same, other = 1.0 + joint.clamp_min(np.log(FLOOR)), ratio
    elif kind == "pearson":
        same, other = 2.0 * (joint.exp() - 1.0), ratio**2 - 1.0
    else:
        same, other = np.log(2.0) + joint - torch.log1p(joint.exp()), torch.log1p(ratio) - np.log(2.0)
    if N == 1:  # no other item to compare with
        return same.mean()
    return same.mean() - (other.sum() - other.diagonal().sum()) / (N * (N - 1))
