"""Votes as edge lists: what a batch of items gets, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crowdwise.data.votes import Votes
from crowdwise.learners.vote_edges import Edges, split
from learners.crowd import confusions, vote


@st.composite
def crowds(draw):
    """Votes with weights, some items and annotators without any, and items to be asked for."""
    n, m, k = draw(st.integers(1, 7)), draw(st.integers(1, 4)), draw(st.integers(2, 4))
    pairs = draw(
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, m - 1)), min_size=1, max_size=12, unique=True)
    )
    label = draw(st.lists(st.integers(0, k - 1), min_size=len(pairs), max_size=len(pairs)))
    weight = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=len(pairs), max_size=len(pairs)))
    votes = Votes.from_codes(
        [i for i, _ in pairs], [a for _, a in pairs], label, items=range(n), annotators=range(m), classes=range(k),
        weight=weight,
    )  # fmt: skip
    return votes, draw(st.lists(st.integers(0, n - 1), max_size=9))


def by_loops(votes, index):
    """(row, annotator, label, weight) of the votes on some items, one at a time."""
    out = []
    for row, n in enumerate(index):
        for s in range(votes.indptr[n], votes.indptr[n + 1]):
            out.append((row, int(votes.annotator[s]), int(votes.label[s]), float(votes.weights[s])))
    return out


class TestTaking:
    @given(crowds())
    def test_the_votes_on_some_items(self, crowd):
        votes, index = crowd
        got = Edges.of(votes).take(torch.tensor(index, dtype=torch.int64))
        assert list(zip(*(part.tolist() for part in got), strict=True)) == by_loops(votes, index)

    @given(crowds())
    def test_sums_and_means_over_the_votes_of_a_batch(self, crowd):
        votes, index = crowd
        rng = np.random.default_rng(0)
        batch = Edges.of(votes).batch(
            torch.tensor(index, dtype=torch.int64), torch.zeros((len(index), votes.n_classes), dtype=torch.float64)
        )
        edges = by_loops(votes, index)
        value = rng.normal(size=(len(edges), votes.n_classes))
        total = np.zeros((len(index), votes.n_classes))
        for (row, _, _, _), one in zip(edges, value, strict=True):
            total[row] += one
        np.testing.assert_allclose(batch.total(torch.from_numpy(value)).numpy(), total, atol=1e-12)
        weight = sum(w for _, _, _, w in edges)
        mean = sum(w * one[0] for (_, _, _, w), one in zip(edges, value, strict=True)) / weight if weight else 0.0
        assert float(batch.mean(torch.from_numpy(value[:, 0]))) == pytest.approx(mean, abs=1e-12)
        assert len(batch) == len(index)

    def test_weights_take_the_precision_of_the_logits(self):
        votes = Votes.from_dense(np.array([[0, 1], [1, 0]]))
        for dtype in (torch.float32, torch.float64):
            batch = Edges.of(votes).batch(torch.tensor([1]), torch.zeros((1, 2), dtype=dtype))
            assert batch.weight.dtype == dtype

    def test_a_batch_is_as_large_as_its_votes(self):
        """A hundred thousand annotators, and three edges."""
        M = 100_000
        votes = Votes.from_codes(
            [0, 0, 1], [5, M - 1, 7], [0, 1, 1], items=range(2), annotators=range(M), classes=range(2)
        )
        batch = Edges.of(votes).batch(torch.tensor([0, 1]), torch.zeros((2, 2)))
        sizes = [t.numel() for t in (batch.row, batch.annotator, batch.label, batch.weight)]
        assert sizes == [3, 3, 3, 3] and batch.annotator.tolist() == [5, M - 1, 7]

    def test_log_f_is_the_log_of_a_distribution(self):
        votes = Votes.from_dense(np.array([[0, 1], [1, 0]]))
        logits = torch.tensor([[1.0, -2.0], [800.0, 0.0]])
        log_f = Edges.of(votes).batch(torch.tensor([0, 1]), logits).log_f
        np.testing.assert_allclose(log_f.exp().sum(dim=1).numpy(), 1.0, atol=1e-6)
        assert log_f[1].tolist() == [0.0, -800.0]


class TestSplitting:
    @given(crowds(), st.floats(0.0, 1.0))
    def test_every_vote_is_on_one_side(self, crowd, share):
        votes, _ = crowd
        train, held = split(votes, share, np.random.default_rng(3))
        assert held.n_votes == round(share * votes.n_votes)
        both = sorted(by_loops(train, range(len(votes))) + by_loops(held, range(len(votes))))
        assert both == sorted(by_loops(votes, range(len(votes))))
        for part in (train, held):  # all items, annotators and classes keep their codes
            assert (len(part), part.n_annotators, part.n_classes) == (len(votes), votes.n_annotators, votes.n_classes)

    def test_a_seed_repeats(self):
        votes = vote(np.zeros(40, dtype=int), confusions(6, 3), 3)
        one, two, three = (split(votes, 0.3, np.random.default_rng(s))[1] for s in (1, 1, 2))
        assert by_loops(one, range(40)) == by_loops(two, range(40)) != by_loops(three, range(40))


@given(st.lists(st.integers(1, 7), min_size=1, max_size=12), st.integers(1, 4), st.integers(0, 2**16))
def test_drawn_votes_are_different_ones_of_each_item_and_stand_for_all(counts, per_item, seed):
    rng = np.random.default_rng(seed)
    item = np.repeat(np.arange(len(counts)), counts)
    who = np.concatenate([np.arange(count) for count in counts])
    votes = Votes.from_codes(
        item, who, rng.integers(0, 3, len(item)), items=range(len(counts)), annotators=range(7), classes=range(3)
    )
    index = rng.permutation(len(counts))
    kept = np.minimum(np.array(counts)[index], per_item)
    torch.manual_seed(seed)
    edges = Edges.of(votes)
    each = np.array(counts)[index]
    row, annotator, label, weight = (part.numpy() for part in edges.draw(torch.as_tensor(index), each, per_item))
    assert np.bincount(row, minlength=len(index)).tolist() == kept.tolist()
    said = {(n, m): votes.label[at] for at, (n, m) in enumerate(zip(item.tolist(), who.tolist(), strict=True))}
    drawn = list(zip(index[row].tolist(), annotator.tolist(), strict=True))
    assert len(set(drawn)) == len(drawn) and [said[pair] for pair in drawn] == label.tolist()
    np.testing.assert_allclose(np.bincount(row, weight), np.array(counts)[index], rtol=1e-6)


def test_every_vote_is_drawn_equally_often():
    votes = Votes.from_codes(
        np.zeros(5, int), np.arange(5), np.zeros(5, int), items=["a"], annotators=range(5), classes=range(2)
    )
    torch.manual_seed(0)
    edges = Edges.of(votes)
    found = np.bincount(
        np.concatenate([edges.draw(torch.zeros(1, dtype=torch.int64), np.array([5]), 2)[1] for _ in range(2000)])
    )
    assert abs(found - 800).max() < 4 * np.sqrt(2000 * 0.4 * 0.6)
