"""What ``auto`` takes a crowd for, by the votes alone, and how it fits rules, panels and options of their own."""

from __future__ import annotations

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.core import em
from crowdwise.core.crowd_kind import crowd_kind, own_options, rates
from crowdwise.core.vote_parts import VotePart, VoteParts


def rules(seed: int = 0, n_items: int = 600, n_rules: int = 12) -> tuple[cw.Votes, np.ndarray]:
    """Rules that say one class or nothing: wide ones with low precision, narrow ones with high precision."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(3, n_items, p=[0.5, 0.3, 0.2])
    own = np.arange(n_rules) % 3
    recall, false = rng.uniform(0.15, 0.4, n_rules), rng.uniform(0.01, 0.05, n_rules)
    recall[0], false[0] = 0.8, 0.6
    speaks = rng.random((n_items, n_rules)) < np.where(truth[:, None] == own, recall, false)
    return cw.Votes.from_dense(np.where(speaks, own, -1), missing=-1), truth


def panel(seed: int = 0, n_items: int = 80, n_judges: int = 9) -> tuple[cw.Votes, np.ndarray]:
    """Judges who answer everything: a few know, the others lean to one answer."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, n_items)
    known = rng.random((n_items, n_judges)) < np.linspace(0.05, 0.9, n_judges)
    lean = rng.random((n_items, n_judges)) < 0.75
    return cw.Votes.from_dense(np.where(known, truth[:, None], lean.astype(int))), truth


def kind(votes: cw.Votes) -> str:
    return crowd_kind(votes)


def test_kinds_are_seen_from_the_votes():
    people = cw.simulate.dirichlet(200, n_annotators=30, n_classes=3, votes_per_item=5, random_state=0).votes
    assert (kind(people), kind(rules()[0]), kind(panel()[0])) == ("people", "rules", "panel")
    assert kind(panel(n_judges=4)[0]) == "people"  # too few to tell a panel from a small crowd
    assert kind(panel(n_items=9)[0]) == "people"


@pytest.mark.parametrize("make", [rules, panel])
def test_kinds_do_not_depend_on_empty_names_weights_or_order(make):
    votes, _ = make()
    wide = cw.Votes.from_codes(
        votes.item, votes.annotator, votes.label, items=range(len(votes) + 3),
        annotators=range(votes.n_annotators + 50), classes=range(votes.n_classes),
    )  # fmt: skip
    assert kind(wide) == kind(votes)
    parts = VoteParts.of([votes[np.arange(0, 30)], votes[np.arange(30, len(votes))]])
    assert parts.kind == kind(votes)


def test_votes_of_rules_weigh_by_agreement():
    """The weights against counting, and labels that beat the majority where a wide rule is in every conflict."""
    gains = []
    for seed in range(5):
        votes, truth = rules(seed)
        spoken = np.flatnonzero(np.diff(votes.indptr))
        votes, truth = votes[spoken], truth[spoken]
        auto = cw.Auto().fit(votes)
        gains.append(auto.consensus_.score(truth) - cw.aggregate(votes, "majority").score(truth))
        agrees = [[] for _ in range(votes.n_annotators)]
        for low, high in zip(votes.indptr[:-1], votes.indptr[1:], strict=True):
            for s in range(low, high):
                others = np.delete(votes.label[low:high], s - low)
                if len(others):
                    agrees[votes.annotator[s]].append(((others == votes.label[s]).sum() + 0.5) / (len(others) + 1.5))
        share, many = np.mean(np.concatenate(agrees)), 10.0 * votes.n_votes / votes.n_annotators
        score = auto.params_.log_score.reshape(votes.n_annotators, 3, 3)
        for m, own in enumerate(agrees):
            weight = np.log(3.0) * (np.sum(own) + many * share) / (len(own) + many) / share
            assert np.allclose(score[m], weight * np.eye(3))
    assert min(gains) > -0.04 and np.mean(gains) > 0.01
    assert "as rules do" in auto.consensus_.notes[0]


def test_rules_do_not_collapse_to_one_class():
    votes, truth = rules(1)
    labels = cw.aggregate(votes).label_codes
    spoken = np.diff(votes.indptr) > 0
    assert set(labels[spoken].tolist()) == {0, 1, 2}
    assert cw.aggregate(votes).score(truth) > cw.aggregate(votes, "dawid-skene").score(truth) + 0.1


def test_what_only_matrices_can_use_is_used():
    """A prior, a class prior or earlier performance that was given is never ignored: the crowd counts as people."""
    votes, _ = panel()
    given_alone = (
        {"prior": np.ones((9, 2, 2))}, {"class_prior": [0.5, 0.5]}, {"history": cw.aggregate(votes)}, {"anchor": 0.5},
        {"start": "spectral-ds"}, {"restarts": 1},
    )  # fmt: skip
    for given in given_alone:
        assert "as panels do" not in cw.Auto(**given).fit(votes).consensus_.notes[0]


def test_abstains_says_so_where_it_cannot_be_seen():
    """Models that may decline use several labels: silence counts where it is declared."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 300)
    sure = rng.random((300, 6)) < np.where(truth[:, None] == 1, 0.6, 0.2)
    said = np.where(rng.random((300, 6)) < 0.8, truth[:, None], 1 - truth[:, None])
    votes = cw.Votes.from_dense(np.where(sure, said, -1), missing=-1)
    assert kind(votes) == "people"
    declared = cw.Auto(abstains=True).fit(votes).consensus_
    assert "as rules do" in declared.notes[0] and "as rules do" not in cw.aggregate(votes).notes[0]
    # What was declared holds for the correction and for the judgement of annotators, too.
    assert declared.dependence.kind == "rules" and declared.dependence.rho == 0.0
    counts = em.statistics(em.Part.of(votes), declared.independent_posterior)
    assert np.allclose(declared.leave_one_out.log_theta, rates(counts).log_score)


def test_panels_know_or_guess():
    found = [(cw.aggregate(v), cw.aggregate(v, "majority"), t) for v, t in (panel(seed) for seed in range(6))]
    assert np.mean([auto.score(t) - majority.score(t) for auto, majority, t in found]) > 0.05
    assert all("as panels do" in auto.notes[0] for auto, _, _ in found)


@pytest.mark.parametrize("make", [rules, panel])
def test_gold_labels_of_rules_and_panels_are_judged_by_the_votes_alone(make):
    votes, truth = make()
    gold = np.where(np.arange(len(votes)) % 4 == 0, truth, -1)
    with_gold = cw.Auto().fit(votes, gold)
    assert (with_gold.consensus_.label_codes == truth)[gold >= 0].all()
    assert with_gold.consensus_.score(np.where(gold < 0, truth, -1)) > cw.aggregate(votes).score(truth) - 0.03


@pytest.mark.parametrize("make", [rules, panel])
def test_parts_give_the_same_as_memory(make):
    votes, truth = make()
    gold = np.where(np.arange(len(votes)) % 5 == 0, truth, -1).astype(np.int32)
    for known in (None, gold):
        whole = cw.Auto().fit(votes, known).consensus_
        cut = len(votes) // 3
        parts = [
            VotePart(votes[np.arange(lo, hi)], None if known is None else known[lo:hi])
            for lo, hi in ((0, cut), (cut, len(votes)))
        ]
        fitted = cw.Auto().fit_in_parts(VoteParts.of(parts))
        q = np.concatenate([fitted.decision(part)[1] for part in parts])
        assert np.allclose(q, whole.posterior, atol=1e-4)


def test_options_of_their_own_are_seen_or_declared():
    rng = np.random.default_rng(0)
    truth = [f"answer {n}" for n in range(40)]
    rows = [
        (n, m, truth[n] if rng.random() < (0.3 if m < 4 else 0.8) else f"wrong {n} {rng.integers(3)}")
        for n in range(40) for m in range(8)
    ]  # fmt: skip
    item, who, label = (list(column) for column in zip(*rows, strict=True))
    votes = cw.Votes.from_frame({"item": item, "annotator": who, "label": label})
    assert own_options(votes) == 4
    found = cw.aggregate(votes)
    assert "options of their own" in found.notes[0]
    answers = dict(enumerate(truth))
    assert found.score(answers) > cw.aggregate(votes, "majority").score(answers)
    letters = cw.simulate.hammer_spammer(60, n_annotators=12, n_classes=4, votes_per_item=5, random_state=0)
    assert not own_options(letters.votes)
    declared = cw.aggregate(letters.votes, exchangeable=np.True_)  # a truth value of numpy is one, not a number
    assert "options of their own" in declared.notes[0] and declared.score(letters.truth) > 0.7


def test_the_number_of_options_makes_probabilities_right():
    """With all 1,200 labels for classes of every item, independent votes would be stated to be right too often."""
    rng, stated, right, off = np.random.default_rng(1), [], [], []
    for _ in range(3):
        skill = rng.beta(6, 4, 30)
        truth, rows = rng.integers(4, size=300), []
        for n in range(300):
            for m in rng.choice(30, 5, replace=False):
                label = truth[n] if rng.random() < skill[m] else (truth[n] + rng.integers(1, 4)) % 4
                rows.append((n, int(m), f"{n} {label}"))
        consensus = cw.aggregate(cw.Votes.from_records(rows), exchangeable=4)
        stated.append(consensus.independent_posterior.max(axis=1).mean())
        voted = {(n, label) for n, _, label in rows}
        known = {n: f"{n} {truth[n]}" for n in range(300) if (n, f"{n} {truth[n]}") in voted}
        right.append(consensus.score(known))
        off.append(np.abs(consensus.right / consensus.total - skill[consensus.annotators]).mean())
    assert abs(np.mean(stated) - np.mean(right)) < 0.04 and np.mean(off) < 0.1


@pytest.mark.parametrize(
    "given",
    [{"abstains": True, "exchangeable": True}, {"abstains": True, "anchor": 0.5}, {"exchangeable": True, "prior": 1.0}],
)
def test_what_does_not_go_together_is_refused(given):
    with pytest.raises(cw.errors.ParameterError, match="do not go together"):
        cw.Auto(**given).fit(panel()[0])


def quiz(seed: int = 0) -> tuple[list[dict], dict]:
    """Every other question has two options, the others eight."""
    rng = np.random.default_rng(seed)
    size, skill = np.where(np.arange(80) % 2, 2, 8), rng.uniform(0.3, 0.8, 12)
    truth, rows = {}, []
    for n, K in enumerate(size.tolist()):
        truth[n] = "ABCDEFGH"[rng.integers(K)]
        for m in rng.permutation(12)[:4].tolist():
            wrong = [x for x in "ABCDEFGH"[:K] if x != truth[n]]
            said = truth[n] if rng.random() < skill[m] else wrong[rng.integers(K - 1)]
            rows.append({"item": n, "annotator": m, "label": said, "n_options": K})
    return rows, truth


def test_a_column_says_how_many_options_an_item_has():
    """Two of four votes for one of eight options are worth more than two of four for one of two."""
    loss = []
    for seed in range(6):
        rows, truth = quiz(seed)
        votes = cw.Votes.from_records(rows)
        found = [cw.aggregate(votes), cw.aggregate(votes.with_options(None), exchangeable=8)]
        assert "options of their own, 8 at most" in found[0].notes[0]
        loss.append([float(cw.metrics.log_loss(x, truth, floor=1e-6)) for x in found])
    assert np.mean(loss, axis=0)[0] < np.mean(loss, axis=0)[1] - 0.03
    same = votes.with_options(dict.fromkeys(votes.items.tolist(), 8))
    assert np.array_equal(cw.aggregate(same).posterior, found[1].posterior)
    some = np.arange(10)
    model = cw.Auto().fit(votes)
    assert np.allclose(model.predict_proba(votes[some]), model.consensus_.posterior[some], atol=1e-6)


def test_the_column_of_options_is_read_and_kept(tmp_path):
    rows, _ = quiz()
    lists = [row | {"n_options": "|".join("ABCDEFGH"[: row["n_options"]])} for row in rows]
    votes, listed = (cw.Votes.from_records(some) for some in (rows, lists))
    assert votes.n_options.tolist() == listed.n_options.tolist() == [8, 2] * 40
    assert votes[[3, 0]].n_options.tolist() == [2, 8] and votes.only([0, 1]).n_options.tolist() == [8, 2] * 40
    assert cw.Votes.from_frame(votes.to_frame()).n_options.tolist() == [8, 2] * 40
    both = cw.Votes.concat([votes[np.arange(40)], votes[np.arange(40, 80)]])
    assert dict(zip(both.items.tolist(), both.n_options.tolist(), strict=True)) == {
        n: 2 if n % 2 else 8 for n in range(80)
    }
    wide = tmp_path / "wide.csv"
    wide.write_text("item,number of options,ann,bob\nq1,4,A,B\nq2,2,A,A\n", encoding="utf-8")
    assert cw.read_votes(wide, form="wide").n_options.tolist() == [4, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[0].update(n_options=3), "one whole number for all rows"),
        (lambda rows: [row.update(n_options=1) for row in rows if row["item"] == 0], "has 1 options"),
        (lambda rows: [row.update(label="C") for row in rows[4:5]], "2 options and"),
        (lambda rows: rows[0].update(n_options=None), "n_options"),
    ],
)
def test_odd_numbers_of_options_are_named(change, message):
    rows = quiz()[0]
    rows[4:8] = [row | {"label": "A"} for row in rows[4:6]] + [row | {"label": "B"} for row in rows[6:8]]
    change(rows)
    with pytest.raises(cw.errors.InputError, match=message):
        cw.Votes.from_records(rows)


def test_fewer_options_than_labels_are_an_error():
    """With four options and five labels on an item a vote would speak against its own label."""
    votes = cw.Votes.from_records(quiz()[0]).with_options(None)
    with pytest.raises(cw.errors.InputError, match="2 options and"):
        cw.aggregate(votes, exchangeable=2)


def test_exchangeable_options_need_all_votes():
    with pytest.raises(cw.errors.ParameterError, match="all votes at once"):
        cw.Auto(exchangeable=True).fit_in_parts(VoteParts.of([panel()[0]]))


def test_exchangeable_options_have_no_prior_of_items():
    crowd = cw.simulate.hammer_spammer(30, n_annotators=6, n_classes=3, votes_per_item=3, random_state=0)
    with pytest.raises(cw.errors.ParameterError, match="exchangeable"):
        cw.Auto(exchangeable=True).fit(crowd.votes, item_prior=np.full((30, 3), 1 / 3))
