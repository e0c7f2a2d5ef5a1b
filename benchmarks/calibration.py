"""Whether probabilities, expected accuracies and intervals of annotators are what they say, on real crowds.

    python benchmarks/calibration.py [--data DIR]     docs/benchmarks/calibration.md and its picture, in about a minute

The constants (:mod:`crowdwise.core.dependence`, :mod:`crowdwise.core.leave_one_out`) are a choice among the grids
below. Each crowd of people is measured with the choice that is best for the *other* crowds (leave one set out), and
with the one that the package has.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tables

import crowdwise as cw
from crowdwise.active.curve_drawing import Line, draw
from crowdwise.bench import runs
from crowdwise.core import dependence, leave_one_out
from crowdwise.core.dependence import Dependence, accuracy_interval, correct
from crowdwise.core.leave_one_out import accuracy_with_interval
from crowdwise.core.numerics import share_with_interval

ROOT = Path(__file__).resolve().parents[1]
PAGE, PICTURES = ROOT / "docs" / "benchmarks" / "calibration.md", ROOT / "docs" / "assets"
PEOPLE = (
    "barzan", "bluebird", "cifar10s", "d_product", "d_sentiment", "dog", "ducks", "face", "fact_eval", "hitspam_cf",
    "labelme", "music_genre", "rte", "ruters", "s_adult", "s_rel", "sentiment_polarity", "sp_amt", "temp",
    "trec2010_binary", "trec2011", "trec2011_vuurens", "weather_amt", "weather_cf", "web", "wsd", "zencrowd_in",
    "zencrowd_us",
)  # fmt: skip
OTHERS = ("imagenet15n", "rules_youtube", "rules_trec", "llmbar_judges", "quiz_english", "quiz_medicine")
"""Most items of the first have one vote; rules that abstain, LLM judges, and quizzes."""
METHODS = ("auto", "anchored", "dawid-skene", "one-coin", "ibcc", "zencrowd", "bwa", "majority")
FLOOR = 1e-6
MIN_KNOWN = 20
"""Annotators with fewer votes on items of known truth have no accuracy to compare with."""
NOMINAL, LEAST = 0.95, 0.8
"""The coverage, on average and on each of the other sets, from which on the error of the crowd is large enough."""
GOLD, DRAWS, MOST_VOTES = 50, 3, 30_000
"""Gold labels, how often they are drawn, and the votes from which on items without truth are left out with them."""
CHOSEN = (dependence.RHO, dependence.DOUBT)
RHOS = (0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
DOUBTS = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3)
SPREADS = (0.0, 0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8)


@dataclass(frozen=True)
class Case:
    """A consensus on items with known truth."""

    name: str
    votes: cw.Votes
    consensus: cw.Consensus
    known: Any

    @classmethod
    def of(cls, name: str, votes: cw.Votes, method: str = "auto") -> Case:
        return cls(name, votes, cw.aggregate(votes, method), np.flatnonzero(np.asarray(votes.truth) >= 0))

    @property
    def q(self) -> Any:
        return self.consensus.independent_posterior[self.known]

    @property
    def n(self) -> Any:
        return self.consensus.votes_per_item[self.known].astype(float)

    @property
    def truth(self) -> Any:
        return np.asarray(self.votes.truth)[self.known]

    @property
    def shares(self) -> Any:
        """Smoothed shares of votes."""
        w = self.n[:, None]
        return (w * self.votes.shares()[self.known] + 0.5) / (w + 0.5 * self.q.shape[1])

    @property
    def copied(self) -> bool:
        return self.consensus.dependence.copied

    def loss(self, q: Any) -> float:
        return float(-np.log(np.maximum(q[np.arange(len(q)), self.truth], FLOOR)).mean())

    def figures(self, q: Any) -> dict[str, float]:
        """Log loss, calibration error, accuracy (ties split) and expected accuracy."""
        top, tied = q.max(axis=1), q >= q.max(axis=1, keepdims=True) - 1e-9
        right = tied[np.arange(len(q)), self.truth] / tied.sum(axis=1)
        error = binned_error(top, right)
        return {"loss": self.loss(q), "error": error, "accuracy": right.mean(), "expected": top.mean()}

    def annotators(self) -> tuple[Any, ...]:
        """Of annotators with enough known votes: right, total, variance, agreement; and their real accuracy."""
        found, truth = self.consensus, np.asarray(self.votes.truth)[self.votes.item]
        M, known = self.votes.n_annotators, truth >= 0
        total = np.bincount(self.votes.annotator[known], minlength=M)
        hits = np.bincount(self.votes.annotator[known], weights=(self.votes.label == truth)[known], minlength=M)
        use = total >= MIN_KNOWN
        return *(x[use] for x in (found.right, found.total, found.unsure, found.agreement)), (hits / total.clip(1))[use]


def binned_error(top: Any, right: Any) -> float:
    """The expected calibration error in 15 bins."""
    where = np.clip(np.ceil(top * 15) - 1, 0, 14).astype(int)
    return float(np.abs(np.bincount(where, weights=right - top, minlength=15)).sum() / len(top))


def evenly(case: Case, rho: float, doubt: float) -> Any:
    """The doubt goes to the other classes alike, as in the package."""
    return correct(case.q, case.n, Dependence(rho, "crowds", doubt))


def by_shares(case: Case, rho: float, share: float) -> Any:
    return (1.0 - share) * correct(case.q, case.n, Dependence(rho, "given")) + share * case.shares


def by_prior(case: Case, rho: float, share: float) -> Any:
    pi = np.bincount(case.votes.label, minlength=case.q.shape[1]) / case.votes.n_votes
    return (1.0 - share) * correct(case.q, case.n, Dependence(rho, "given")) + share * pi


FORMS: dict[str, Callable[[Case, float, float], Any]] = {
    "evenly to the other classes": evenly,
    "by smoothed shares of the item's votes": by_shares,
    "by the shares of all votes": by_prior,
}


def left_out(cases: list[Case], form: Callable[[Case, float, float], Any]) -> list[tuple[float, float]]:
    """For each set, the choice with the least mean log loss on the others."""
    grid = list(product(RHOS, DOUBTS))
    loss = np.array([[case.loss(form(case, *choice)) for choice in grid] for case in cases])
    return [grid[int(np.delete(loss, i, axis=0).mean(axis=0).argmin())] for i in range(len(cases))]


def bounds(cases: list[Case]) -> str:
    """What choices by the truth of the very sets that they are measured on reach: nothing of this form does better."""
    from sklearn.isotonic import IsotonicRegression

    grid = list(product((0.0, 0.1, *RHOS, 0.7, 1.0, 2.0), DOUBTS))
    found = [[case.figures(evenly(case, *choice)) for choice in grid] for case in cases]
    error = np.array([[x["error"] for x in row] for row in found])
    off = np.array([[100 * abs(x["expected"] - x["accuracy"]) for x in row] for row in found])
    stated = [evenly(case, *CHOSEN) for case in cases]
    top = [q.max(axis=1) for q in stated]
    right = [(q.argmax(axis=1) == case.truth).astype(float) for q, case in zip(stated, cases, strict=True)]
    equal = np.concatenate([np.full(len(x), 1.0 / len(x)) for x in top])
    curve = IsotonicRegression(out_of_bounds="clip").fit(np.concatenate(top), np.concatenate(right), equal)
    bent = [binned_error(curve.predict(x), y) for x, y in zip(top, right, strict=True)]
    bent_off = [100 * abs(curve.predict(x).mean() - y.mean()) for x, y in zip(top, right, strict=True)]
    rng = np.random.default_rng(0)
    chance = [np.mean([binned_error(x, (rng.random(len(x)) < x).astype(float)) for _ in range(50)]) for x in top]
    accuracy = np.array([100 * y.mean() for y in right])
    constant = [abs(np.delete(accuracy, i).mean() - x) for i, x in enumerate(accuracy)]
    rows = [
        ("two constants, the best for all sets at once", error.mean(axis=0).min(), off.mean(axis=0).min()),
        ("any monotone curve of the package's probability, fitted to all sets", np.mean(bent), np.mean(bent_off)),
        ("two constants for each set, by its own truth", error.min(axis=1).mean(), off.min(axis=1).mean()),
    ]
    header = ["chosen with the truth in view", "calibration error", "expected accuracy is off by"]
    table = tables.markdown(header, [[name, f"{x:.3f}", f"{y:.1f}"] for name, x, y in rows])
    return f"""Could other constants do better? Choices by the very truth that they are measured on bound it:

{table}

One correction for all crowds cannot have an expected accuracy that is off by much less than {rows[0][2]:.1f} points:
crowds whose votes look alike are right more often, or less. The mean accuracy of the other crowds is off by
{np.mean(constant):.1f}. Probabilities that are right would have a calibration error of {np.mean(chance):.3f}, by the
size of the sets alone."""


def coverage(case: Case, sd: float | None, known: int = 0) -> tuple[float, float]:
    """How many intervals hold the real accuracy, and their mean width; ``None``: by the votes alone."""
    right, total, unsure, agreement, real = case.annotators()
    if sd is None:
        _, low, high = share_with_interval(right, total, unsure)
    else:
        original, leave_one_out.CROWD_SD = leave_one_out.CROWD_SD, max(sd, 1e-6)
        _, low, high = accuracy_with_interval(right, total, unsure, agreement, known, copied=case.copied)
        leave_one_out.CROWD_SD = original
    return float(((low <= real + 1e-9) & (real <= high + 1e-9)).mean()), float((high - low).mean())


def gold_coverage(case: Case) -> Any:
    """Of intervals in the package: the share that hold and their width, without gold labels and with them (means over
    the draws); ``None`` with too few known items."""
    if GOLD > 0.6 * len(case.known):
        return None
    votes = case.votes if case.votes.n_votes <= MOST_VOTES else case.votes[case.known]
    known, out = np.flatnonzero(np.asarray(votes.truth) >= 0), []
    alone = Case.of(case.name, votes)
    for seed in range(DRAWS):
        gold = np.full(len(votes), -1, dtype=np.int32)
        at = np.random.default_rng(seed).choice(known, GOLD, replace=False)
        gold[at] = np.asarray(votes.truth)[at]
        told = Case(case.name, votes, cw.aggregate(votes, gold=gold), known)
        out.append([coverage(x, leave_one_out.CROWD_SD, n) for x, n in ((alone, 0), (told, GOLD))])
    return np.mean(out, axis=0)


def spread_left_out(cases: list[Case]) -> list[float]:
    """For each set, the least error of the crowd under which the intervals of the other sets cover."""
    held = np.array([[coverage(case, sd)[0] for sd in SPREADS] for case in cases])
    rest = [np.delete(held, i, axis=0) for i in range(len(cases))]
    enough = [(x.mean(axis=0) >= NOMINAL) & (x.min(axis=0) >= LEAST) for x in rest]
    return [SPREADS[int(np.argmax(x))] if x.any() else SPREADS[-1] for x in enough]


def logit(p: float) -> float:
    return float(np.log(p / (1.0 - p)))


def diagram(cases: list[Case]) -> str:
    """Accuracy by stated probability, all sets alike, before and after."""
    lines = []
    edges = np.array([0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0 + 1e-9])
    for name, posterior in (("as if independent", lambda c: c.q), ("corrected", lambda c: evenly(c, *CHOSEN))):
        said, was, mass = (np.zeros(len(edges) - 1) for _ in range(3))
        for case in cases:
            q = posterior(case)
            top, right = q.max(axis=1), q.argmax(axis=1) == case.truth
            where = np.digitize(top, edges) - 1
            for total, x in ((mass, np.ones(len(q))), (said, top), (was, right)):
                total += np.bincount(where, weights=x, minlength=len(edges) - 1) / len(q)
        used = mass > 0
        lines.append(Line(name, (said[used] / mass[used]).tolist(), (was[used] / mass[used]).tolist()))
    lines.append(Line("calibrated", [0.4, 1.0], [0.4, 1.0]))
    return draw(
        lines, title="auto: accuracy of labels by their stated probability", x_label="stated probability",
        y_label="accuracy", x_percent=True,
        description="Reliability diagram over all sets: one curve as if votes were independent, one corrected.",
    )  # fmt: skip


def cost() -> str:
    """The table of benchmarks/default_cost.py."""
    found = json.loads((ROOT / "benchmarks" / "results" / "default_cost.json").read_text(encoding="utf-8"))
    rows = [
        [f"{r['votes']:,}", str(r["classes"]), f"{r['annotators']:,}"]
        + [f"{r[key][0]:.3g} s" for key in ("anchored", "auto")]
        + [str(r[key][1]) for key in ("anchored", "auto")]
        + [f"{r['auto'][0] / r['anchored'][0]:.2f}"]
        for r in found
        if r["classes"] == 4
    ]
    header = ["votes", "classes", "annotators", "`anchored`", "`auto`", "passes, `anchored`", "`auto`", "ratio"]
    return tables.markdown(header, rows)


def mean(of: list[dict[str, float]], what: str) -> float:
    return float(np.mean([x[what] for x in of]))


def unanimous(cases: list[Case]) -> list[float]:
    """Of each set with ten or more items on which three or more votes all agree, the share of right labels there."""
    out = []
    for case in cases:
        alike = (case.votes.shares()[case.known].max(axis=1) > 1.0 - 1e-9) & (case.n > 2)
        if alike.sum() >= 10:
            out.append(float((case.consensus.label_codes[case.known] == case.truth)[alike].mean()))
    return out


def page(sets: dict[str, dict[str, Case]], others: list[Case]) -> str:
    cases = [row["auto"] for row in sets.values()]
    choices, spreads = left_out(cases, evenly), spread_left_out(cases)
    raw, loso, fixed, shares = ([] for _ in range(4))  # type: tuple[list[dict[str, float]], ...]
    rows, people = [], []
    for case, choice, sd in zip(cases, choices, spreads, strict=True):
        a, b, c, s = (case.figures(q) for q in (case.q, evenly(case, *choice), evenly(case, *CHOSEN), case.shares))
        for kept, figures in ((raw, a), (loso, b), (fixed, c), (shares, s)):
            kept.append(figures)
        _, low, high = accuracy_interval(c["expected"], 0, 0.95, case.copied)
        losses = (f"{x['loss']:.3f}" for x in (a, s, b, c))
        interval = f"{100 * low:.0f}-{100 * high:.0f}"
        right = (f"{100 * x:.1f}" for x in (c["accuracy"], a["expected"], b["expected"]))
        rows.append([case.name, *losses, f"{a['error']:.3f}", f"{b['error']:.3f}", *right, interval])
        by_votes, own, package = coverage(case, None), coverage(case, sd), coverage(case, leave_one_out.CROWD_SD)
        people.append((case.name, len(case.annotators()[0]), *by_votes, *own, *package))
    columns = ["loss", "error", "accuracy", "expected"]
    rows.append(
        ["**mean**"] + [f"**{mean(x, 'loss'):.3f}**" for x in (raw, shares, loso, fixed)]
        + [f"**{mean(x, 'error'):.3f}**" for x in (raw, loso)]
        + [f"{100 * mean(x, what):.1f}" for x, what in ((fixed, columns[2]), (raw, columns[3]), (loso, columns[3]))]
        + [""]
    )  # fmt: skip
    header = [
        "data", "log loss, as if independent", "smoothed shares", "left out", "package",
        "calibration error, as if independent", "left out", "accuracy", "expected, as if independent", "left out",
        "interval",
    ]  # fmt: skip
    worst = max(zip(loso, shares, cases, strict=True), key=lambda x: x[0]["loss"] - x[1]["loss"])
    gaps = np.array([100 * (x["expected"] - x["accuracy"]) for x in loso])
    odds = np.array([logit(x["accuracy"]) - logit(x["expected"]) for x in loso])
    ends = [accuracy_interval(x["expected"], 0, 0.95, case.copied)[1:] for x, case in zip(fixed, cases, strict=True)]
    covered = sum(low <= x["accuracy"] <= high for x, (low, high) in zip(fixed, ends, strict=True))
    far = [f"{case.name} {gap:+.0f}" for case, gap in zip(cases, gaps, strict=True) if abs(gap) > 10.0]
    tried = []
    for name, form in FORMS.items():
        best = left_out(cases, form)
        found = [case.figures(form(case, *choice)) for case, choice in zip(cases, best, strict=True)]
        flips = np.mean([
            (form(case, *choice).argmax(axis=1) != case.q.argmax(axis=1)).mean()
            for case, choice in zip(cases, best, strict=True)
        ])  # fmt: skip
        usual = Counter(best).most_common(1)[0][0]
        tried.append([name, f"{usual[0]:g}, {usual[1]:g}", f"{mean(found, 'loss'):.3f}", f"{mean(found, 'error'):.3f}",
                      f"{100 * flips:.2f}"])  # fmt: skip
    elsewhere = []
    for case in others:
        own = case.consensus.corrected_posterior[case.known]
        a, s, c = (case.figures(q) for q in (case.q, case.shares, own))
        figures = [f"{x['loss']:.3f}" for x in (a, s, c)] + [f"{c['error']:.3f}"]
        right = [f"{100 * x:.1f}" for x in (c["accuracy"], c["expected"])]
        held = [coverage(case, sd)[0] for sd in (None, leave_one_out.CROWD_SD)]
        elsewhere.append([case.name, *figures, *right, *(f"{100 * x:.0f}" for x in held)])
    methods = []
    for key in METHODS:
        before = [row[key].figures(row[key].q) for row in sets.values()]
        after = [row[key].figures(row[key].consensus.corrected_posterior[row[key].known]) for row in sets.values()]
        of_labels = [row[key].consensus.expected_accuracy()[0] for row in sets.values()]
        off = [100 * (x - y["accuracy"]) for x, y in zip(of_labels, before, strict=True)]
        figures = [f"{mean(of, what):.3f}" for what in ("loss", "error") for of in (before, after)]
        expected = [f"{np.mean(off):+.1f}", f"{np.abs(off).mean():.1f}"]
        methods.append([f"`{key}`", *figures, f"{100 * mean(before, 'accuracy'):.1f}", *expected])
    alike = unanimous(cases)
    with_gold = [x for case in cases if (x := gold_coverage(case)) is not None]
    one, two = np.mean(with_gold, axis=0).tolist()
    gold_text = (
        f"{100 * two[0]:.0f} % hold at a width of {two[1]:.2f}, where {100 * one[0]:.0f} % do at {one[1]:.2f} without "
        f"gold; the least on a crowd is {100 * min(x[1][0] for x in with_gold):.0f} %"
    )
    held = np.array([[x[2], x[4], x[6]] for x in people])
    width = np.array([[x[3], x[5], x[7]] for x in people])
    low = [f"{x[0]} {100 * x[4]:.0f} %" for x in people if x[4] < 0.75]
    PICTURES.joinpath("calibration.svg").write_text(diagram(cases), encoding="utf-8")
    return f"""# Calibration and the default method

Written by `benchmarks/calibration.py`. Log loss with probabilities held above {FLOOR:g}, calibration error in 15 bins.
"Corrected" allows for votes on an item that err together ([`auto`](../methods.md#auto)).

## What was looked at, and when

The {len(cases)} crowds of people with truth are a **development collection**: the two constants of the correction, the
form of the doubt and the two standard deviations between crowds were chosen on them. So each crowd is measured with the
choice that is best for the *other* crowds ("left out"); "package" has the constants in the package, rho =
{CHOSEN[0]:g} and a doubt of {CHOSEN[1]:g}. Left out in turn, the crowds took {len(set(choices))} different choices,
most often {Counter(choices).most_common(1)[0][0][0]:g} and {Counter(choices).most_common(1)[0][0][1]:g}. The other sets
below helped to choose nothing here.

## Real crowds

`auto`, each crowd left out: mean log loss {mean(raw, "loss"):.3f} as if independent, {mean(shares, "loss"):.3f} of
smoothed shares of votes, **{mean(loso, "loss"):.3f}** corrected ({mean(fixed, "loss"):.3f} with the constants in the
package); calibration error {mean(raw, "error"):.3f} and **{mean(loso, "error"):.3f}**. Against smoothed shares the
most is lost on {worst[2].name}, {worst[0]["loss"] - worst[1]["loss"]:+.3f}.

Where three votes or more all agree, the labels of {len(alike)} crowds with ten or more such items are right in
{100 * np.mean(alike):.1f} % of the cases on average (median {100 * np.median(alike):.1f} %). No label of `auto` is
stated with more than {100 * (1 - CHOSEN[1]):.0f} %.

![Reliability diagram of auto over all sets](../assets/calibration.svg)

{tables.markdown(header, rows)}

## Other forms

Where the doubt goes, each crowd left out; the choice that most crowds took, and the share of labels that change:

{tables.markdown(["the doubt goes", "rho, share", "log loss", "calibration error", "% of labels that change"], tried)}

Seven figures of a crowd that need no truth (agreement, unanimity, classes, votes per item, that
estimate...) predict the right correction of a left-out crowd no better than constants. Nor does a doubt that goes
with a power of the number of annotators (or their effective number), of items, of votes, of votes on an item or by an
annotator, or of classes: chosen by log loss on the other sets, calibration errors are between .087 and .096 and
expected accuracies off by 7.1 to 7.9 points. Chosen by calibration error itself, the number of annotators has .080,
the others .091 to .108; without `trec2011`, which has ten annotators, it has .093 and constants .091. Expected accuracy
shrunk towards the mean of the other crowds is further off, too, however little it is shrunk.

{bounds(cases)}

## Expected accuracy

`consensus.expected_accuracy()` is the mean probability of the labels. Each crowd left out it is off by
{gaps.mean():+.1f} points on average, in absolute value by {np.abs(gaps).mean():.1f} (median
{np.median(np.abs(gaps)):.1f}). Over ten points off: {", ".join(far)}. The votes do not show it: kappa, unanimity, the
share of the majority, classes and votes per item beside the probabilities change the mean by less than a point, left
out. So the interval says how far crowds differ: the log-odds of the real accuracy lie around those of the expected one
with a standard deviation of {odds.std(ddof=1):.2f}, {dependence.CROWD_SD:g} in the package, and {covered} of
{len(cases)} intervals hold the real accuracy. Where all votes agree on all items (`hitspam_cf`, which is the one such
crowd here) nothing shows the error, and it is {dependence.COPIED_SD:g}. [Gold labels](gold.md) measure it, and narrow
the interval.

## Accuracy of annotators

95 % intervals of annotators with {MIN_KNOWN} votes or more on items of known truth: how many hold the real share of
right votes, and their width. By the votes alone {100 * held[:, 0].mean():.0f} % do (width {width[:, 0].mean():.2f});
with the error that annotators have in common with their crowd, each crowd left out, **{100 * held[:, 1].mean():.0f} %**
({width[:, 1].mean():.2f}), with the {leave_one_out.CROWD_SD:g} in the package {100 * held[:, 2].mean():.0f} %
({width[:, 2].mean():.2f}). Left out in turn, the choice is the least error under which {100 * NOMINAL:.0f} % of the
intervals of the other crowds hold on average, and {100 * LEAST:.0f} % on each. Under 75 %, left out:
{", ".join(low) or "none"}; the least is {min(people, key=lambda x: x[4])[0]}, {100 * held[:, 1].min():.0f} %.

With {GOLD} gold labels, {DRAWS} draws on the {len(with_gold)} crowds that have enough items with truth, {gold_text}.

## Other sets

Single votes, rules that abstain, LLM judges and quizzes, with the constants in the package; the last two columns are
the coverage of annotators' intervals by the votes alone and in the package, in %.

{
        tables.markdown(
            [
                "data",
                "log loss, as if independent",
                "smoothed shares",
                "package",
                "calibration error",
                "accuracy",
                "expected",
                "votes alone",
                "package",
            ],
            elsewhere,
        )
    }

## Other methods

With the constants in the package: before and after, and by how many points the expected accuracy is off on average and
in absolute value. The posterior of `majority` and `bwa` is vote shares: half a vote is added for every class, and the
accuracy of their labels is expected by matrices read off the votes.

{
        tables.markdown(
            [
                "method",
                "log loss",
                "corrected",
                "calibration error",
                "corrected",
                "accuracy",
                "expected is off by",
                "absolute",
            ],
            methods,
        )
    }

## Cost

Processor time of a fit on one thread, the least of several that took turns (`benchmarks/default_cost.py`): simulated
confusion matrices, five votes an item; two and eight classes are in `benchmarks/results/default_cost.json`.

{cost()}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=None)
    data = parser.parse_args().data or runs.data_folder()
    warnings.simplefilter("ignore")

    def read(name: str) -> cw.Votes:
        print(name, flush=True)
        return cw.read_dataset(data / name, on_duplicate="all").votes

    sets = {name: {key: Case.of(name, votes, key) for key in METHODS} for name in PEOPLE for votes in [read(name)]}
    PAGE.write_text(page(sets, [Case.of(name, read(name)) for name in OTHERS]), encoding="utf-8")


if __name__ == "__main__":
    main()
