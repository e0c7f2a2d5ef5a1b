"""Mistakes found in other libraries, each kept out by a test that is named after it.

Some have their test beside the method:

==========================================================  ==========================================================
mistake                                                     test
==========================================================  ==========================================================
MACE's strategies scrambled unless rows are sorted          test_mace: shuffled_rows_do_not_scramble_strategies
results that depend on the order of rows or on names        test_contract: order_of_rows_names_of_annotators...
ten restarts of MACE from one and the same start            test_mace: restarts_are_distinct
products of probabilities that underflow near 1,000 labels  test_contract: two_thousand_votes_per_item; test_mace
M-MSR with a dense matrix over pairs: 50 GB for 400 people  test_skills: a_thousand_annotators_fit_in_a_gigabyte
KOS messages that overflow after some hundred rounds        test_spectral: a_thousand_rounds_stay_finite
priors on annotators that are forgotten after a step        test_dawid_skene, test_weights, test_subtypes: ...in_force
==========================================================  ==========================================================

The others are here, over the whole registry.
"""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import crowdwise as cw
from crowdwise import registry

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")


@pytest.fixture(params=registry.METHODS)
def key(request):
    return request.param


def fit(key, votes, truth, share=0.2, **params):
    """A consensus; methods that need known truth get some."""
    gold = None
    if registry.find(key).load().needs_gold:
        gold = np.where(np.arange(len(truth)) < max(share * len(truth), 1), truth, -1).astype(np.int32)
    return cw.aggregate(votes, key, gold=gold, **params)


def quick(key, **params):
    """The parameters among these that the method has; ``ebcc`` from one start."""
    known = registry.find(key).load().parameters()
    return {
        name: value for name, value in {**params, **({"restarts": 0} if key == "ebcc" else {})}.items() if name in known
    }


def tied(N=40):
    """Two annotators who contradict each other on every item, evenly over two classes."""
    label = np.arange(N)[:, None] % 2 == np.array([0, 1])
    return cw.Votes.from_dense(label.astype(int)), (np.arange(N) % 2).astype(np.int32)


def test_a_table_in_which_every_item_is_tied_is_no_error(key):
    """A peer fails with "'a' cannot be empty", as it looks for one clear item."""
    votes, truth = tied()
    c = fit(key, votes, truth, share=0.1)
    assert np.isfinite(c.posterior).all()
    assert set(c.label_codes.tolist()) <= {0, 1}


def test_random_ties_are_seeded_and_fair():
    """Two peers break ties with an unseeded draw: 4 answers in 30 calls for the same votes."""
    votes, _ = tied(400)
    draws = [cw.aggregate(votes, "majority", ties="random", random_state=s).label_codes for s in (1, 1, 2)]
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])
    assert 0.4 < draws[0].mean() < 0.6
    by_prior = [cw.aggregate(votes, "majority").label_codes for _ in range(3)]
    assert all(np.array_equal(by_prior[0], again) for again in by_prior)


def test_seeded_ties_are_the_same_for_every_method_and_call(key):
    votes, truth = tied()
    options = {"ties": "random", "random_state": 5}
    first, second = (fit(key, votes, truth, share=0.1, **options).labels for _ in range(2))
    assert np.array_equal(first, second)


def test_the_global_random_state_is_left_alone(key):
    """Two peers seed numpy's global generator inside a method: everything else in the program then repeats itself."""
    sim = cw.simulate.one_coin(40, n_annotators=6, n_classes=3, votes_per_item=3, random_state=0)
    np.random.seed(123)
    before = np.random.get_state()[1].copy()
    fit(key, sim.votes, sim.truth, **quick(key))
    assert np.array_equal(before, np.random.get_state()[1])


ITERATIVE = [k for k in registry.METHODS if "max_iter" in registry.find(k).load().parameters()]


@pytest.mark.parametrize("key", [k for k in ITERATIVE if k not in ("zero-based-skill", "iwmv", "pm", "catd", "m3v")])
def test_a_loop_goes_on_after_its_second_iteration(key):
    """A peer compares an array with itself, finds no change, and stops after two iterations whatever it is told."""
    sim = cw.simulate.hammer_spammer(150, n_annotators=12, n_classes=3, accuracy=0.8, votes_per_item=4, random_state=3)
    short, whole = (fit(key, sim.votes, sim.truth, **quick(key, max_iter=n, tol=0.0)) for n in (2, 60))
    assert whole.iterations > short.iterations
    assert not np.array_equal(short.posterior, whole.posterior)
    if len(whole.trace):
        assert whole.trace[-1] > short.trace[-1]


SHORT = {"max_iter": 5, "restarts": 0, "n_communities": 1, "samples": 20}


@pytest.mark.parametrize("key", [k for k in registry.METHODS if k not in ("bp", "minimax")])
def test_nothing_is_as_large_as_items_times_annotators(key):
    """Five peers keep an items x annotators array; here it would take 100 MB, and a third of it is enough.

    ``bp`` and ``minimax`` are slow on so many items; what they keep is votes x K and items x K x K.
    """
    sim = cw.simulate.one_coin(6_000, n_annotators=2_000, n_classes=2, votes_per_item=2, random_state=0)
    tracemalloc.start()
    fit(key, sim.votes, sim.truth, **quick(key, **SHORT))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6_000 * 2_000 * 8 / 3


WORKERS = """
import numpy as np, crowdwise as cw
sim = cw.simulate.one_coin(1500, n_annotators=1000, n_classes=3, votes_per_item=20, random_state=0)
found = cw.aggregate(sim.votes, "m-msr", max_iter=50)
assert found.score(sim.truth) > 0.9
assert np.isfinite(found.annotator_columns["skill_low"]).all()
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of a process apart from its parent's")
def test_m_msr_with_a_thousand_annotators_keeps_the_whole_process_under_a_gigabyte():
    """A peer's matrix over annotators and pairs has a million rows then."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WORKERS], capture_output=True, text=True, check=True, timeout=600
    )
    assert int(done.stdout.split()[-1]) < 1_000_000  # kilobytes
