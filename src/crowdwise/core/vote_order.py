"""Votes in a canonical order, which does not depend on names or on the order of rows, annotators and classes.

An iterative solver that stops early, a sampler, or a split into folds gives answers that depend a little on which item
comes first. Here items, annotators and classes are sorted by their place in the graph of votes: all have one colour at
the start (but for items with gold labels), and in every round combine it with the colours of their neighbours (colour
refinement, with sums of 64-bit hashes, which have no order). Those with equal colours at the end are exchangeable, or
nearly, and are sorted by name.

On the way, votes of the same annotator for the same label of the same item become one with their weights added, and
classes without votes are left out: they get no probability.

=====================  =======  ==============================================================
code                   shape    meaning
=====================  =======  ==============================================================
``item``               S        item of each vote, rising
``annotator, label``   S        annotator and label of each vote
``weight``             S        the weight of each vote
``gold``               N        class where it is known, -1 elsewhere
``*_order``            N, M, k  the code in the votes behind each code here
=====================  =======  ==============================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes

Hashes = npt.NDArray[np.uint64]
ROUNDS = 4
MANY = 1_000_000
"""Votes from which on a round is saved: there are neighbours enough to tell annotators apart."""


def mix(x: Hashes) -> Hashes:
    """A well-spread hash of each number (the finaliser of splitmix64); products wrap round on purpose."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def fold(group: Ints, values: Hashes, size: int) -> Hashes:
    """The sum of the hashes in each group, modulo 2^64."""
    out = np.zeros(size, np.uint64)
    np.add.at(out, group, values)
    return out


def colours(
    item: Ints, annotator: Ints, label: Ints, weight: Floats, gold: Ints, size: tuple[int, int, int],
    rounds: int = ROUNDS,
) -> tuple[Hashes, Hashes, Hashes]:  # fmt: skip
    """A colour per item, annotator and class."""
    N, M, K = size
    of_item, of_annotator, of_class = (np.full(n, c, np.uint64) for n, c in ((N, 1), (M, 2), (K, 3)))
    w = mix(np.rint(weight * 2**20).astype(np.int64).astype(np.uint64))  # coarse, so that sums may differ in a last bit
    known = gold >= 0
    for _ in range(rounds):
        i, a, c = mix(of_item)[item] + w, mix(of_annotator)[annotator] + w, mix(of_class)[label] * np.uint64(3)
        label_of = np.where(known, mix(of_class)[np.maximum(gold, 0)], np.uint64(0))
        of_item, of_annotator, of_class = (
            mix(of_item + label_of + fold(item, mix(a + c), N)),
            mix(of_annotator + fold(annotator, mix(i + c), M)),
            mix(of_class + fold(label, mix(i ^ a), K) + fold(gold[known], mix(of_item[known]), K)),
        )
    return of_item, of_annotator, of_class


def merged(votes: Votes) -> tuple[Ints, Ints, Ints, Floats]:
    """Item, annotator, label and weight; equal votes of an annotator on an item are one, with their weights added."""
    M, K = votes.n_annotators, votes.n_classes
    keys = (votes.item.astype(np.int64) * M + votes.annotator) * K + votes.label
    key, place = np.unique(keys, return_inverse=True)
    weight = np.bincount(place, weights=votes.weights, minlength=len(key)).astype(np.float64)
    return key // (M * K), key // K % M, key % K, weight


def ranks(votes: Votes, gold: Ints | None = None) -> tuple[Ints, Ints]:
    """The place of each item and of each class in the canonical order. Items with equal votes stand side by side."""
    size = (len(votes), votes.n_annotators, votes.n_classes)
    known = np.full(len(votes), -1, np.int64) if gold is None else np.asarray(gold, np.int64)
    rounds = ROUNDS if votes.n_votes < MANY else ROUNDS - 1
    of_item, _, of_class = colours(*merged(votes), known, size, rounds)
    items, classes = _order(of_item, votes.items), _order(of_class, votes.classes)
    return inverse(items, size[0]), inverse(classes, size[2])


def _order(colour: Hashes, names: npt.NDArray[Any]) -> Ints:
    """By colour; exchangeable ones by name, and not by what came first."""
    if len(np.unique(colour)) == len(colour):
        return np.argsort(colour)
    return np.lexsort((inverse(np.argsort(names, kind="stable"), len(names)), colour))


@dataclass(frozen=True)
class Canonical:
    """The votes, re-coded."""

    item: Ints
    annotator: Ints
    label: Ints
    weight: Floats
    gold: Ints
    item_order: Ints
    annotator_order: Ints
    class_order: Ints
    n_classes: int
    """How many classes the votes have, chosen or not."""

    @classmethod
    def of(cls, votes: Votes, gold: Ints | None = None, *, every_class: bool = False) -> Canonical:
        """Re-code votes; ``every_class`` keeps the classes without votes."""
        N, M, K = len(votes), votes.n_annotators, votes.n_classes
        known = np.full(N, -1, np.int64) if gold is None else np.asarray(gold, np.int64)
        item, annotator, label, weight = merged(votes)
        used = np.bincount(label, minlength=K) + np.bincount(known[known >= 0], minlength=K) > 0
        if every_class or used.sum() < 2:
            used[:] = True
        hashes = colours(item, annotator, label, weight, known, (N, M, K))
        names = (votes.items, votes.annotators, votes.classes)
        items, annotators, classes = map(_order, hashes, names)
        classes = classes[used[classes]]
        new_item, new_annotator, new_class = inverse(items, N), inverse(annotators, M), inverse(classes, K)
        item, annotator, label = new_item[item], new_annotator[annotator], new_class[label]
        rows = np.argsort((item * M + annotator) * K + label)
        gold = np.where(known >= 0, new_class[known], -1)[items]
        return cls(item[rows], annotator[rows], label[rows], weight[rows], gold, items, annotators, classes, K)

    @property
    def shape(self) -> tuple[int, int, int]:
        """N, M, and the classes that take part."""
        return len(self.item_order), len(self.annotator_order), len(self.class_order)

    def restore_items(self, q: Floats) -> Floats:
        """N x K probabilities back in the order of the votes, 0 for classes that were left out."""
        out = np.zeros((len(q), self.n_classes))
        out[np.ix_(self.item_order, self.class_order)] = q
        return out

    def restore_classes(self, pi: Floats) -> Floats:
        """One number per class, 0 for those that were left out."""
        out = np.zeros(self.n_classes)
        out[self.class_order] = pi
        return out

    def restore_annotators(self, table: Floats, absent: float) -> Floats:
        """M x K x K over annotators, truths and labels; ``absent`` in the rows of truths that were left out."""
        M, K = len(table), self.n_classes
        out = np.zeros((M, K, K))
        out[:, np.setdiff1d(np.arange(K), self.class_order)] = absent
        out[np.ix_(self.annotator_order, self.class_order, self.class_order)] = table
        return out

    @staticmethod
    def back(order: Ints, values: Floats) -> Floats:
        """Values per item or annotator, back in the order of the votes."""
        out = np.empty_like(values)
        out[order] = values
        return out


def inverse(order: Ints, size: int) -> Ints:
    """Where each old code went; -1 where it went nowhere."""
    out = np.full(size, -1, np.int64)
    out[order] = np.arange(len(order))
    return out
