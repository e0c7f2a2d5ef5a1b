"""What ``diagnose`` finds, end to end: every planted annotator, in data and in words, and no other as such."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.errors import InputError, ParameterError
from crowdwise.report import findings
from crowdwise.report.findings import STEPS, FindingKind, inspect, swaps
from crowdwise.report.section_summary import headline
from crowdwise.trust.flags import Finding, Flag, FlagKind
from crowdwise.trust.wording import FINDINGS, folded, joined, named, percent, sentence, to_dict
from report.crowd import planted


@cache
def diagnosed(seed):
    votes, groups = planted(seed)
    return cw.diagnose(votes), groups


@pytest.mark.parametrize("seed", [0, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_everybody_planted_is_named_and_nobody_else(seed):
    found, groups = diagnosed(seed)
    assert found.names("adversary") == ["adversary"]
    assert found.names("spammer") == ["random"]
    assert found.names("constant") == ["lazy"]
    assert found.names("drift") == ["drifter"]
    assert sorted(found.names("pair")) == [3, 8]
    assert sorted(map(sorted, (set(f.names) for f in found.findings if f.kind == "copiers"))) == sorted(
        map(sorted, groups)
    )
    said = " ".join(found.sentences())
    for words in (
        "adversary is ",
        "they may have misread the classes",
        "random is no better than guessing at their label rates: right on ",
        "lazy always says class 1, whatever the item",
        "make the same mistakes",
        "drifter got worse over time: accuracy fell by ",
        "Class 3 and class 8 are confused in ",
        " of the expected errors; first ",
    ):
        assert words in said
    assert re.search(r"of \d+ votes \(95% CI \d+-\d+%\)", said)
    assert found.by_verdict("drop") == ["random", "adversary", "lazy"]
    assert {"drifter", *set.union(*groups)} <= set(found.by_verdict("look"))
    assert 0.9 < found.expected < 1.0


def test_an_honest_crowd_is_left_in_peace():
    crowd = cw.simulate.one_coin(400, n_annotators=10, n_classes=3, a=30, b=2, random_state=0)
    found = cw.diagnose(crowd.votes)
    assert found.findings == ()
    assert set(found.verdicts.values()) == {"keep"}


def test_findings_come_in_the_order_of_their_kinds_with_something_to_do():
    found, _ = diagnosed(0)
    order = [list(FindingKind).index(f.kind) for f in found.findings]
    assert order == sorted(order)
    facts = [to_dict(f, found.kinds[f.kind]) for f in found.findings]
    assert all(f["advice"] for f in facts if f["kind"] not in ("improved", "leaning"))
    assert {f["title"] for f in facts} <= {words.title for words in FINDINGS.values()}


def test_findings_are_numbers_and_names_before_they_are_words():
    found, _ = diagnosed(0)
    (spammer,) = found.of_kind(FindingKind.SPAMMER)
    people = found.inspection.people
    m = people.names.tolist().index("random")
    assert spammer.annotators == ("random",) and spammer.flags == (Flag(FlagKind.RANDOM),)
    assert spammer.numbers["accuracy"] == people.columns["accuracy"][m]
    assert to_dict(spammer, FINDINGS["spammer"])["numbers"]["votes"] == people.columns["votes"][m]
    (pair,) = found.of_kind("pair")
    assert pair.classes == (3, 8) and pair.numbers["rate"] > 0.05


def test_names_and_row_order_do_not_matter():
    votes = planted(0, votes_per_item=5)[0][:400]
    shuffled = np.random.default_rng(1).permutation(votes.n_votes)
    frame = votes.to_frame("dict")
    again = cw.Votes.from_frame({k: v[shuffled] for k, v in frame.items() if k != "truth"}, classes=list(range(10)))
    one, two = cw.diagnose(votes), cw.diagnose(again)
    assert {(f.kind, frozenset(f.names)) for f in one.findings if f.kind != "items"} == {
        (f.kind, frozenset(f.names)) for f in two.findings if f.kind != "items"
    }
    assert one.verdicts == two.verdicts


def test_a_captured_crowd_convicts_nobody():
    crowd = cw.simulate.colluders(800, n_annotators=30, share=0.4, n_classes=3, random_state=0)
    found = cw.diagnose(crowd.votes, cw.aggregate(crowd.votes, "dawid-skene"))
    assert found.inspection.captured
    assert {f.kind for f in found.findings} == {"captured", "camps"}
    assert found.by_verdict("drop") == []
    assert np.isnan(found.expected)
    honest = set(crowd.votes.annotators[~crowd.parameters["colluders"]].tolist())
    assert honest & set(found.by_verdict("unclear")) == honest


def test_two_camps_are_named_and_gold_is_asked_for():
    crowd = cw.simulate.colluders(800, n_annotators=30, share=0.4, n_classes=3, random_state=0)
    found = cw.diagnose(crowd.votes)
    assert not found.inspection.captured
    (camps,) = found.of_kind("camps")
    ring = set(crowd.votes.annotators[crowd.parameters["colluders"]].tolist())
    assert set(camps.annotators) == ring
    assert set(found.by_verdict("look")) >= ring and found.by_verdict("drop") == []
    assert camps.numbers["others"] == 18 and camps.numbers["outside"] < 0.0 < 0.9 < camps.numbers["inside"]
    place = {name: n for n, name in enumerate(crowd.votes.items.tolist())}
    asked = [place[name] for name in camps.items]
    assert len(asked) == 50 and crowd.parameters["attacked"][asked].mean() > 0.9
    said = to_dict(camps, FINDINGS[camps.kind])
    assert said["sentence"].startswith("12 annotators with 40% of the votes agree with each other and contradict")
    assert "gold" in said["advice"] and "m-msr" in said["advice"]
    gold = {name: crowd.votes.classes[crowd.truth[place[name]]] for name in camps.items}
    decided = cw.diagnose(crowd.votes, gold=gold)
    assert set(decided.by_verdict("drop")) == ring


def test_known_truth_frees_a_captured_crowd():
    crowd = cw.simulate.colluders(800, n_annotators=30, share=0.4, n_classes=3, random_state=0)
    truth = {n: crowd.votes.classes[crowd.truth[n]] for n in range(400)}
    found = cw.diagnose(crowd.votes, gold=truth)
    honest = set(crowd.votes.annotators[~crowd.parameters["colluders"]].tolist())
    assert honest & set(found.by_verdict("drop")) == set()


def test_what_cannot_be_judged_is_said():
    votes = cw.Votes.from_records([("a", "ann", "x"), ("b", "bob", "y"), ("c", "cem", "x")])
    found = cw.diagnose(votes, cw.aggregate(votes, "majority"))
    assert "No item has two votes" in found.inspection.notes["shared mistakes"]
    assert set(found.verdicts) == {"ann", "bob", "cem"}


def test_progress_names_every_step():
    votes = cw.simulate.one_coin(60, n_annotators=5, random_state=0).votes
    steps = []
    cw.diagnose(votes, cw.aggregate(votes, "one-coin"), progress=steps.append)
    assert sorted(steps) == sorted(STEPS)


def test_the_level_is_checked_and_so_are_the_votes():
    votes = cw.simulate.one_coin(60, n_annotators=5, random_state=0).votes
    with pytest.raises(ParameterError, match="level=2"):
        cw.diagnose(votes, level=2)
    with pytest.raises(InputError, match="Expected a table and found list"):
        cw.diagnose([1, 2])
    numbers = cw.simulate.ratings(20, n_annotators=3, random_state=0).ratings
    with pytest.raises(ParameterError, match="gold: ratings are judged by the intervals of their result"):
        cw.diagnose(numbers, gold={0: 1.0})
    with pytest.raises(InputError, match="Expected the result of a fit to ratings and found Consensus"):
        cw.diagnose(numbers, cw.aggregate(votes, "majority"))
    with pytest.raises(InputError, match="found Ratings: methods for ratings are not compared"):
        cw.compare(numbers)
    other = cw.simulate.one_coin(50, n_annotators=5, random_state=0).votes
    with pytest.raises(InputError, match="give the votes that the consensus was made from"):
        cw.diagnose(votes, cw.aggregate(other, "majority"))


# -------------------------------------------------------------------- the pieces


def table(truth, said, K):
    counts = np.zeros((K, K))
    np.add.at(counts, (truth, said), 1)
    return counts


@pytest.mark.parametrize("K", [2, 3, 10])
def test_guessing_is_no_swap_and_a_shift_is_one(K):
    rng = np.random.default_rng(K)
    wrongly, rightly = 0, 0
    for _ in range(300):
        habit = rng.dirichlet(np.full(K, rng.choice([0.3, 1.0, 5.0])))
        truth = rng.integers(0, K, 60 * K)
        guess = rng.choice(K, len(truth), p=habit)
        wrongly += bool(swaps(table(truth, guess, K), 0.05))
        shifted = np.where(rng.random(len(truth)) < 0.8, (truth + 1) % K, rng.integers(0, K, len(truth)))
        found = swaps(table(truth, shifted, K), 0.05)
        rightly += len(found) > 0 and all(said == (k + 1) % K for k, said in found)
    assert wrongly == 0
    assert rightly == 300


def test_nearly_always_is_not_blindly():
    rng = np.random.default_rng(0)
    truth = (rng.random(600) < 0.25).astype(int)
    said = np.where(rng.random((600, 7)) < 0.9, truth[:, None], 1 - truth[:, None])
    said[:, 5] = 0  # whatever the item
    said[:, 6] = truth * (rng.random(600) < 0.25)  # names the rare class seldom, and is right when they do
    votes = cw.Votes.from_dense(said, annotators=["a", "b", "c", "d", "e", "lazy", "shy"])
    found = cw.diagnose(votes)
    assert found.names("constant") == ["lazy"]
    (words,) = (sentence(f) for f in found.findings if f.names == ("shy",))
    assert words.startswith("shy nearly always says class 0")
    assert found.verdicts["lazy"] == "drop" and found.verdicts["shy"] == "look"


def test_a_constant_labeller_swaps_nothing():
    truth = np.arange(300) % 3
    assert swaps(table(truth, np.ones(300, dtype=int), 3), 0.05) == []


def test_percentages_keep_nearly_nothing_apart_from_nothing():
    assert [percent(x) for x in (0.0, 0.001, 0.5, 0.9999, 1.0)] == ["0%", "<1%", "50%", ">99%", "100%"]
    assert percent(0.98765, 1) == "98.8%"


def test_lists_read_as_sentences():
    assert [joined(list("abcd")[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert joined([str(i) for i in range(10)], 3) == "0, 1, 2 and 7 more"


RANDOM = (Flag(FlagKind.RANDOM),)


def test_findings_that_say_the_same_are_one_line_with_a_count():
    def about(name, kind=FindingKind.SPAMMER, flags=RANDOM, votes=100.0, accuracy=0.5, bias=0.0):
        numbers = {"votes": votes, "accuracy": accuracy, "accuracy_low": 0.4, "accuracy_high": 0.6, "bias": bias}
        return Finding(kind, (name,), numbers=numbers | {"drift": -0.12}, flags=flags)

    assert folded([about(59), about("w8", votes=1200.0, accuracy=0.483)]) == [
        "No better than guessing at their label rates (2 annotators): annotator 59 (right on 50% of 100) and w8 "
        "(right on 48% of 1,200)."
    ]
    (alone,) = folded([about(59)])
    assert alone == sentence(about(59)) and alone.startswith("Annotator 59 is no better than guessing")
    confused = [(Flag(FlagKind.CONFUSION, (0, 1)),), (Flag(FlagKind.CONFUSION, (1, 0)),)]
    lines = folded([about(f"w{n}", FindingKind.CONFUSION, confused[n % 2]) for n in range(7)], names=3)
    assert lines[0].startswith("Confuses class 0 with class 1 (4 annotators): w0 (right on 50% of 100), w2")
    assert lines[0].endswith("and 1 more.") and lines[1].startswith("Confuses class 1 with class 0 (3 annotators)")
    (few,) = folded([about(n, FindingKind.FEW, (Flag(FlagKind.FEW_VOTES),), votes=3.0) for n in range(111)])
    assert few.startswith("Too few votes to be judged (111 annotators): annotator 0 (3), ") and "and 99 more" in few
    (bias,) = folded([about(n, FindingKind.BIAS, (Flag(FlagKind.BIAS, (1,)),), bias=0.07) for n in "ab"])
    assert bias == "Names class 1 too often (2 annotators): a (by 7% of their votes) and b (by 7% of their votes)."
    (drift,) = folded([about(n, FindingKind.DRIFT, (Flag(FlagKind.DRIFT, change=-0.1),)) for n in "ab"])
    assert drift == "Got worse over time (2 annotators): a (-12 points) and b (-12 points)."
    (wrong,) = folded([about(n, FindingKind.ADVERSARY, confused[0]) for n in "ab"])
    assert wrong.startswith("Wrong in a consistent way; confuses class 0 with class 1 (2 annotators): a (right on")
    many = [about(f"w{n}", FindingKind.CONFUSION, (Flag(FlagKind.CONFUSION, (n, 0)),)) for n in range(1, 12)]
    assert folded(many, lines=8)[-1] == "Also: w9, w10 and w11."
    group = Finding(FindingKind.COPIERS, ("a", "b"), numbers={"mistakes": 1.0, "agreement": 0.0})
    assert len(folded([group, group])) == 2


def test_names_that_are_numbers_say_what_they_are():
    assert [named("class", c) for c in (0, "3", -1, 2.5, "dog", "v2", "12:5")] == [
        "class 0", "class 3", "class -1", "class 2.5", "dog", "v2", "class 12:5",
    ]  # fmt: skip


def test_every_kind_has_a_title_and_advice():
    assert list(FINDINGS) == list(FindingKind)
    silent = {kind for kind, words in FINDINGS.items() if not words.advice}
    assert silent == {FindingKind.IMPROVED, FindingKind.LEANING}
    assert not any(FINDINGS[kind].verdict for kind in silent)
    assert all(re.match(r"^[A-Z]", words.title) for words in FINDINGS.values())


def test_who_is_found_to_confuse_classes_has_votes_enough():
    """Nobody is said to have too few votes to be judged, and judged in the next sentence."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 400)
    said = np.where(rng.random((400, 8)) < 0.9, truth[:, None], rng.integers(0, 3, (400, 8)))
    said[:, 7] = np.where(truth == 0, 1, said[:, 7])  # takes 0 for 1, and has a few votes only
    said[:, 6:] = np.where(np.arange(400)[:, None] < [4, 14], said[:, 6:], -1)
    votes = cw.Votes.from_dense(said, missing=-1, annotators=[*"abcdef", "new", "confused"])
    found = cw.diagnose(votes, cw.aggregate(votes, "dawid-skene"))
    people = found.inspection.people
    assert people is not None
    flags = dict(zip(people.names.tolist(), people.flags, strict=True))
    few = Flag(FlagKind.FEW_VOTES)
    assert few in flags["new"] and {few, Flag(FlagKind.CONFUSION, (0, 1))} <= set(flags["confused"])
    assert found.names("few") == ["new"] and "confused" in found.names("confusion")
    assert found.verdicts["new"] == "unclear" and found.verdicts["confused"] == "look"


def test_a_pair_of_classes_barely_beyond_chance_is_left_in_peace():
    """With very many votes a test finds any difference: one that is a hundredth of chance asks nobody to act."""
    from dataclasses import replace

    found, _ = diagnosed(0)
    seen = found.inspection
    assert seen.items is not None
    (pair,) = (p for p in seen.items.ambiguous() if p.low >= findings.MATTERS)
    for ratio, told in ((1.01, []), (1.2, [3, 8])):
        items = replace(seen.items, pairs=(replace(pair, expected=pair.share / ratio, items=12345),))
        again = findings.concluded(replace(seen, items=items))
        assert sorted(again.names("pair")) == told
    assert "1.2 times what unrelated mistakes would give; 12,345 items" in " ".join(again.sentences())


def test_the_headline_is_a_sentence():
    votes = cw.simulate.one_coin(60, n_annotators=4, n_classes=5, a=3, b=2, votes_per_item=3, random_state=0).votes
    found = cw.diagnose(votes)
    assert set(found.verdicts.values()) == {"keep"} or not found.by_verdict("look") + found.by_verdict("drop")
    assert re.fullmatch(r"Nothing speaks against any annotator; review \d+ items\.", headline(found))


def test_groups_of_a_large_crowd_are_looked_for_among_the_busiest(monkeypatch):
    from crowdwise.report import findings

    crowd = cw.simulate.groups(400, n_annotators=12, n_groups=3, random_state=0)
    consensus = cw.aggregate(crowd.votes, "majority")
    whole = inspect(crowd.votes, consensus)
    assert len(whole.dependent.names) == 12 and "groups" not in whole.notes
    monkeypatch.setattr(findings, "MOST_PAIRED", 27 * 18)
    some = inspect(crowd.votes, consensus)
    assert len(some.dependent.names) == 6
    assert some.notes["groups"] == "Looked for among the 6 annotators with the most votes, of 12."


def test_a_diagnosis_is_a_line_in_a_notebook():
    found, _ = diagnosed(0)
    said = repr(found)
    assert len(said) < 200 and said.startswith(f"Diagnosis({len(found.verdicts)} annotators: ")
    for verdict, words in (("drop", "to drop"), ("look", "to look at")):
        assert f"{len(found.by_verdict(verdict))} {words}" in said
    assert f"{len(found.findings)} findings" in said and f"{found.expected_words} of the labels" in said
