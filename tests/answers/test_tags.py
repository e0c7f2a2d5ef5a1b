"""Tags of sequences: hmm-crowd against enumeration and known parameters, decoding, and the contract of results."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.answers import tags_hmm
from crowdwise.answers.tags_result import without_silence
from crowdwise.core.em import Part
from crowdwise.errors import ConvergenceWarning, InputError, LabelError, NotFittedError, ParameterError

KEYS = ["hmm-crowd", "token-dawid-skene"]


@pytest.fixture(scope="module")
def tiny():
    return cw.simulate.tag_chain(6, n_annotators=4, n_classes=3, length=(1, 5), random_state=0).tags


@pytest.fixture(scope="module")
def bio():
    return cw.simulate.bio_tags(60, n_annotators=12, random_state=1)


@pytest.fixture(scope="module")
def fitted(bio):
    return {key: cw.ANSWER_METHODS[key].load()().fit(bio.tags) for key in KEYS}


def enumerated(tags, theta, transition, before=None, words=None):
    """Posterior and log-likelihood by summing over all taggings; ``theta[m, h, k, l]`` where ``before`` is given.
    ``words[t, k]``: a factor for each token and tag."""
    K, votes = tags.votes.n_classes, tags.votes
    q, total = np.zeros((tags.n_tokens, K)), 0.0
    for lo, hi in itertools.pairwise(tags.starts.tolist()):
        z, part = 0.0, np.zeros((hi - lo, K))
        for y in itertools.product(range(K), repeat=hi - lo):
            p = transition[0, y[0]]
            for j, k in itertools.pairwise(y):
                p *= transition[j + 1, k]
            for t, k in enumerate(y):
                p *= 1.0 if words is None else words[lo + t, k]
                for s in range(votes.indptr[lo + t], votes.indptr[lo + t + 1]):
                    m, label = votes.annotator[s], votes.label[s]
                    p *= theta[m, k, label] if before is None else theta[m, before[s], k, label]
            z += p
            for t, k in enumerate(y):
                part[t, k] += p
        q[lo:hi] = part / z
        total += math.log(z)
    return q, total


@pytest.mark.parametrize("remember", [False, True])
def test_posterior_likelihood_and_objective_equal_enumeration(tiny, remember):
    model = cw.HMMCrowd(memory=remember, tol=1e-9).fit(tiny)
    found, K = model.consensus_, tiny.votes.n_classes
    table = np.exp(model.params_.log_score.reshape(-1, K, K)).transpose(0, 2, 1)
    before = tags_hmm.said_before(tiny) if remember else None
    theta = table.reshape(tiny.votes.n_annotators, K + 1, K, K) if remember else table
    q, total = enumerated(tiny, theta, found.transition, before)
    np.testing.assert_allclose(found.posterior, q, atol=1e-9)
    assert found.log_likelihood == pytest.approx(total, abs=1e-8)
    if remember:
        pseudo = tags_hmm.pseudo_counts("crowd", None, tiny, tags_hmm.with_memory(Part.of(tiny.votes), tiny), None)
    else:
        from crowdwise.core.priors import pseudo_counts

        pseudo = pseudo_counts("crowd", None, tiny.votes)
    penalty = (pseudo.transpose(0, 2, 1) * np.log(table)).sum() + np.log(found.transition).sum() / K
    assert found.objective == pytest.approx(total + penalty, abs=1e-7)


@pytest.mark.parametrize("settings", [{}, {"memory": False, "prior": 0.01}, {"memory": True, "accelerate": False}])
def test_the_objective_never_falls(bio, settings):
    found = cw.aggregate(bio.tags, "hmm-crowd", **settings)
    assert found.converged and len(found.trace) > 3
    assert (np.diff(found.trace) >= -1e-9 * abs(found.trace[-1])).all()


@pytest.mark.parametrize("remember", [False, True])
def test_a_field_over_words_equals_enumeration_and_never_falls(tiny, remember):
    words = np.array([f"Word{k % 3}" for k in tiny.votes.truth + np.arange(tiny.n_tokens) % 2], dtype=object)
    tags = replace(tiny, words=words)
    model = cw.HMMCrowd(memory=remember, words=True, prior=1.0, tol=1e-7).fit(tags)
    found, K, D = model.consensus_, tiny.votes.n_classes, len(model.features_)
    field = np.exp(model.field_.weights[D:])
    u = np.exp(tags_hmm.word_features(tags)[:, model.features_] @ model.field_.weights[:D])
    table = np.exp(model.params_.log_score.reshape(-1, K, K)).transpose(0, 2, 1)
    theta = table.reshape(tiny.votes.n_annotators, K + 1, K, K) if remember else table
    q, total = enumerated(tags, theta, field, tags_hmm.said_before(tiny) if remember else None, u)
    silent = tags.votes.select(np.zeros(tags.votes.n_answers, dtype=bool))
    alone = enumerated(replace(tags, votes=silent), theta, field, None, u)[1]
    np.testing.assert_allclose(found.posterior, q, atol=1e-9)
    assert found.log_likelihood == pytest.approx(total - alone, abs=1e-8)
    assert (np.diff(found.trace) >= -1e-8 * abs(found.trace[-1])).all()
    np.testing.assert_allclose(model.predict_proba(tags), found.posterior, atol=1e-9)


def test_words_find_what_annotators_missed():
    """Words that only names have: two annotators for each sequence, who miss many."""
    crowd = cw.simulate.bio_tags(150, n_annotators=8, types=("PER",), annotators_per_sequence=2, random_state=2)
    rng = np.random.default_rng(0)
    own = np.where(rng.random(len(crowd.truth)) < 0.6, crowd.truth, 3)
    words = np.array([f"w{k}.{n}" for k, n in zip(own, rng.integers(0, 12, len(own)), strict=True)], dtype=object)
    tags = replace(crowd.tags, words=words)
    with_words = cw.HMMCrowd(memory=False, words=True, tol=1e-4).fit(tags)
    plain = cw.HMMCrowd(memory=False).fit(tags)
    f1 = [float(cw.metrics.span_scores(model.consensus_, tags)["f1"]) for model in (with_words, plain)]
    assert f1[0] > f1[1] + 0.05
    assert with_words.predict_proba(tags[[3]]).shape == (np.diff(tags.starts)[3], 3)


def test_words_that_are_not_there_or_beside_a_fixed_chain(bio):
    with pytest.raises(InputError, match="these tags have none"):
        cw.aggregate(bio.tags, "hmm-crowd", words=True)
    named = replace(bio.tags, words=np.full(bio.tags.n_tokens, "x", dtype=object))
    with pytest.raises(ParameterError, match="learns the chain from words"):
        cw.aggregate(named, "hmm-crowd", words=True, transition=np.where(bio.tags.allowed(), 1.0, 0.0))


def test_said_before():
    rows = [("s", 0, "a", "x"), ("s", 1, "a", "y"), ("s", 1, "b", "x"), ("s", 2, "b", "y"), ("t", 0, "a", "x")]
    tags = cw.Tags.from_records(rows)
    assert tags_hmm.said_before(tags).tolist() == [2, 0, 2, 0, 2]  # x is 0, y is 1, nothing is 2


def test_without_a_chain_and_memory_it_is_dawid_skene(bio):
    """A chain whose rows are all the class prior has no memory."""
    plain = cw.Tags.from_votes(bio.tags.votes, bio.tags.starts, scheme="plain")
    ds = cw.aggregate(plain.votes, "dawid-skene", tol=1e-10)
    K = len(ds.prior)
    chain = {"transition": np.tile(ds.prior, (K + 1, 1)), "start": ds.posterior}
    same = cw.aggregate(plain, "hmm-crowd", memory=False, prior=0.01, tol=1e-10, **chain)
    np.testing.assert_allclose(same.posterior, ds.posterior, atol=1e-3)
    assert same.log_likelihood == pytest.approx(ds.log_likelihood, abs=1e-2)


def test_known_parameters_are_found():
    crowd = cw.simulate.tag_chain(500, n_annotators=8, annotators_per_sequence=4, random_state=3)
    found = cw.aggregate(crowd.tags, "hmm-crowd")
    assert np.abs(found.transition - crowd.parameters["transition"]).max() < 0.08
    assert np.abs(found.confusion - crowd.parameters["confusion"]).mean() < 0.04
    assert found.score(crowd.truth) > cw.aggregate(crowd.tags, "token-dawid-skene").score(crowd.truth)


def test_the_votes_say_whether_annotators_remember(fitted):
    assert fitted["hmm-crowd"].memory_ is True
    assert cw.HMMCrowd().fit(cw.simulate.tag_chain(150, random_state=0).tags).memory_ is False


def test_spans_are_found_far_better_than_by_majority():
    """Two annotators per sequence; a mean over seeds."""
    gain, over_tokens = [], []
    for seed in range(3):
        crowd = cw.simulate.bio_tags(120, annotators_per_sequence=2, random_state=seed)
        found = (
            cw.aggregate(crowd.tags, "hmm-crowd"),
            cw.aggregate(crowd.tags.votes, "majority"),
            cw.aggregate(crowd.tags),
        )
        f1 = [float(cw.metrics.span_scores(c, crowd.tags, resamples=1)["f1"]) for c in found]
        gain.append(f1[0] - f1[1])
        over_tokens.append(f1[0] - f1[2])
    assert np.mean(gain) > 0.05
    assert np.mean(over_tokens) > 0.0


# -------------------------------------------------------------------- what both do alike


@pytest.mark.parametrize("key", KEYS)
class TestEveryMethod:
    def test_the_result(self, key, bio, fitted, tmp_path):
        found = fitted[key].consensus_
        assert isinstance(found, cw.TagConsensus) and found.method == key
        np.testing.assert_allclose(found.posterior.sum(axis=1), 1.0, atol=1e-9)
        np.testing.assert_allclose(found.confusion.sum(axis=2), 1.0, atol=1e-9)
        items = found.to_frame("items", kind="dict")
        assert items["sequence"].tolist() == bio.tags.sequences[bio.tags.sequence].tolist()
        annotators = found.annotator_table
        assert (annotators["accuracy_low"] <= annotators["accuracy"]).all()
        spans = found.to_frame("spans", kind="dict")
        assert len(spans["start"]) > 0 and (spans["end"] > spans["start"]).all()
        assert ((spans["probability"] > 0) & (spans["probability"] <= 1)).all()
        assert [len(v) for v in found.tags().values()] == np.diff(bio.tags.starts).tolist()
        found.save(tmp_path / "kept")
        again = cw.TagConsensus.load(tmp_path / "kept")
        np.testing.assert_array_equal(again.posterior, found.posterior)
        assert again.labels.tolist() == found.labels.tolist() and again.scheme == "bio"
        assert again.spans.equals(found.spans)

    def test_taggings_are_valid(self, key, bio, fitted):
        labels = fitted[key].consensus_.label_codes
        may = bio.tags.allowed()
        first = bio.tags.starts[:-1]
        assert may[0][labels[first]].all()
        follows = np.setdiff1d(np.arange(1, len(labels)), first)
        assert may[1:][labels[follows - 1], labels[follows]].all()

    def test_row_order_and_names_do_not_matter(self, key, bio, fitted):
        frame = bio.tags.to_frame()
        mixed = frame.sample(fraction=1.0, shuffle=True, seed=0).with_columns(
            annotator=(100 - frame.sample(fraction=1.0, shuffle=True, seed=0)["annotator"])
        )
        one = fitted[key].consensus_
        two = cw.aggregate(cw.Tags.from_frame(mixed), key)
        place = [two.items.tolist().index(name) for name in one.items.tolist()]
        np.testing.assert_allclose(one.posterior, two.posterior[place], atol=1e-6)
        assert (one.labels == two.labels[place]).mean() > 0.999

    def test_known_truth_is_kept_and_helps(self, key, bio, fitted):
        gold = np.where(bio.tags.sequence < 30, bio.truth, -1)
        found = cw.aggregate(bio.tags, key, gold=gold)
        known = gold >= 0
        assert (found.label_codes[known] == gold[known]).all()
        np.testing.assert_allclose(found.posterior[known, gold[known]], 1.0)
        without = fitted[key].consensus_
        rest = ~known
        assert (found.label_codes == bio.truth)[rest].mean() >= (without.label_codes == bio.truth)[rest].mean() - 0.01

    def test_impossible_truth_is_refused(self, key, bio):
        gold = np.full(bio.tags.n_tokens, -1)
        gold[0] = bio.tags.classes.tolist().index("I-PER")
        with pytest.raises(LabelError, match="truth gives token '0:0'"):
            cw.aggregate(bio.tags, key, gold=gold)

    def test_new_tags_are_judged_by_what_was_learned(self, key, bio, fitted):
        model = fitted[key]
        np.testing.assert_allclose(model.predict_proba(bio.tags), model.consensus_.posterior, atol=1e-9)
        assert model.predict(bio.tags).tolist() == model.consensus_.labels.tolist()
        unseen = cw.Tags.from_records([("n", 0, 99, "B-PER"), ("n", 1, 99, "I-PER"), ("n", 0, 3, "B-PER")])
        assert model.predict(unseen).tolist()[0] == "B-PER"

    def test_parameters_and_callbacks(self, key, bio):
        seen = []
        few = {"max_iter": 2, "tol": 0.0}
        model = cw.registry.create(key, "tags", **few if key == "hmm-crowd" else {"base_params": few})
        with pytest.raises(NotFittedError):
            model.predict(bio.tags)
        with pytest.warns(ConvergenceWarning, match="raise max_iter"):
            model.fit(bio.tags, callback=seen.append)
        assert [p.iteration for p in seen][:2] == [1, 2]
        assert set(model.get_params()) == set(model.parameters())

    @pytest.mark.parametrize(
        "bad", [{"decode": "best"}, {"max_iter": 0}, {"tol": -1.0}, {"prior": "none"}, {"start": "x"}]
    )
    def test_bad_parameters_are_named(self, key, bio, bad):
        given = bad if key == "hmm-crowd" or "decode" in bad else {"base_params": bad}
        with pytest.raises(ParameterError, match=f"{next(iter(bad))}="):
            cw.aggregate(bio.tags, key, **given)

    def test_one_class_one_annotator_other_tables(self, key, bio):
        with pytest.raises(LabelError, match="All tags are 'O'"):
            cw.aggregate(cw.Tags.from_records([("s", 0, "a", "O"), ("s", 0, "b", "O")]), key)
        with pytest.raises(InputError, match="single annotator"):
            cw.aggregate(cw.Tags.from_records([("s", 0, "a", "x"), ("s", 1, "a", "y")]), key)
        with pytest.raises(InputError, match="expects Tags"):
            cw.ANSWER_METHODS[key].load()().fit(bio.tags.votes)


@pytest.mark.parametrize("given", ["often", np.ones((2, 2)), -np.ones((8, 7)), np.ones((8, 7))])
def test_a_chain_that_is_none(bio, given):
    with pytest.raises(ParameterError, match="transition"):
        cw.aggregate(bio.tags, "hmm-crowd", transition=given)


def test_other_parameters_of_hmm_crowd(bio, fitted):
    for bad in ({"memory": "maybe"}, {"memory": 1}, {"transition_prior": -1.0}):
        with pytest.raises(ParameterError, match=f"{next(iter(bad))}="):
            cw.aggregate(bio.tags, "hmm-crowd", **bad)
    fixed = cw.aggregate(bio.tags, "hmm-crowd", transition=np.where(bio.tags.allowed(), 1.0, 0.0))
    np.testing.assert_allclose(fixed.transition, bio.tags.allowed() / bio.tags.allowed().sum(axis=1, keepdims=True))
    tokens = cw.aggregate(bio.tags, "hmm-crowd", decode="tokens")
    assert (tokens.label_codes == tokens.posterior.argmax(axis=1)).mean() > 0.98
    history = fitted["hmm-crowd"].consensus_
    for remember in (True, False):
        assert cw.aggregate(bio.tags, "hmm-crowd", memory=remember, history=history).converged


def test_free_decoding_is_the_most_probable_tag(bio):
    free = cw.aggregate(bio.tags, "token-dawid-skene", decode="tokens")
    assert (free.label_codes == free.posterior.argmax(axis=1)).all()


def test_tokens_without_votes_get_tags_from_their_neighbours():
    rows = [(s, t, a, "xy"[s % 2]) for s in range(40) for t in (0, 1, 3, 4) for a in ("ann", "bob", "cem")]
    tags = cw.Tags.from_records([*rows, *((s, 2, None, None) for s in range(40))])
    found = cw.aggregate(tags, "hmm-crowd")
    assert found.labels[found.position == 2].tolist() == ["x", "y"] * 20


@pytest.mark.slow
def test_many_tokens():
    crowd = cw.simulate.bio_tags(15_000, n_annotators=200, annotators_per_sequence=3, random_state=0)
    found = cw.aggregate(crowd.tags, "hmm-crowd", memory=False)
    assert found.converged and found.seconds < 150


def test_what_a_rule_does_not_tag_is_no_vote_against_others():
    """Rules that know one type, and a third of its spans: O of the others is silence. People's O stays a vote."""
    rng, rows, truth = np.random.default_rng(1), [], {}
    rules = [(f"{kind}{k}", kind) for kind in ("PER", "LOC", "ORG") for k in range(4)]
    for s in range(60):
        kinds = [None if rng.random() < 0.8 else ("PER", "LOC", "ORG")[rng.integers(3)] for _ in range(12)]
        truth[f"s{s}"] = ["O" if kind is None else f"B-{kind}" for kind in kinds]
        for name, own in rules:
            for t, kind in enumerate(kinds):
                speaks = rng.random() < (0.35 if kind == own else 0.004)
                rows.append((f"s{s}", t, name, f"B-{own}" if speaks else "O"))
    tags = cw.Tags.from_records(rows).with_truth(truth)
    found = cw.aggregate(tags)
    assert float(cw.metrics.span_scores(found, tags)["f1"]) > 0.8
    assert "do not count where others tag a token" in found.notes[-1]
    assert not (cw.aggregate(tags.votes, "majority").labels != "O").any()
    seen = {(s, t) for s, t, _, tag in rows if tag != "O"}
    assert all(tag == "O" for (s, t), tag in zip(named(tags), found.labels, strict=True) if (s, t) not in seen)
    people = cw.simulate.bio_tags(60, n_annotators=12, random_state=1).tags
    assert without_silence(people) is people


def named(tags):
    """Sequence and position of each token."""
    sequence = np.repeat(tags.sequences, np.diff(tags.starts)).tolist()
    return zip(sequence, tags.position.tolist(), strict=True)
