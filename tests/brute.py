"""The model by enumeration: every way the truths could be, one by one. Slow, plain and independent of the package."""

from __future__ import annotations

import itertools
import math

import numpy as np


def enumerate_truths(rows, theta, pi, N, gold=None, item_prior=None):
    """Posterior (N x K) and log-likelihood by summing over all K^N truths.

    ``rows`` are (item, annotator, label, weight); ``theta[m][k][l]``; ``gold[n]`` is a class or -1; the
    likelihood is that of the votes together with the known truths.
    """
    K = len(pi)
    total, weight = 0.0, np.zeros((N, K))
    choices = [range(K) if gold is None or gold[n] < 0 else [int(gold[n])] for n in range(N)]
    for truths in itertools.product(*choices):
        p = 1.0
        for n, k in enumerate(truths):
            p *= pi[k] * (1.0 if item_prior is None else item_prior[n][k])
        for n, m, label, w in rows:
            p *= theta[m][truths[n]][label] ** w
        total += p
        for n, k in enumerate(truths):
            weight[n, k] += p
    return weight / total, math.log(total)


def objective(votes, theta, pi, pseudo, gold=None, item_prior=None, hard=False, anchor=0.0, shares=None):
    """What a fit maximises, from its definition: loops over items and votes, nothing shared with the package.

    ``theta[m, k, l]``, ``pseudo[m, k, l]``.
    """
    value, held = 0.0, 0.0
    for n in range(len(votes)):
        logit = [math.log(pi[k]) + (0.0 if item_prior is None else math.log(item_prior[n][k])) for k in range(len(pi))]
        for s in range(votes.indptr[n], votes.indptr[n + 1]):
            w = 1.0 if votes.weight is None else float(votes.weight[s])
            for k in range(len(pi)):
                logit[k] += w * math.log(theta[votes.annotator[s], k, votes.label[s]])
        if shares is not None:
            held += sum(shares[n][k] * (logit[k]) for k in range(len(pi)) if shares[n][k] > 0)
        if gold is not None and gold[n] >= 0:
            value += logit[gold[n]]
        elif hard:
            value += max(logit)
        else:
            top = max(logit)
            value += top + math.log(sum(math.exp(x - top) for x in logit))
    return (1.0 - anchor) * value + anchor * held + float((pseudo * np.log(theta)).sum())


def rows_of(votes):
    """(item, annotator, label, weight) of every vote, by code."""
    return [
        (int(n), int(m), int(k), float(w))
        for n, m, k, w in zip(votes.item, votes.annotator, votes.label, votes.weights, strict=True)
    ]
