"""Which method to use without known labels: all of them predict the same held-out votes (docs/compare.md).

A share of the (item, annotator) pairs is held out, several times over; every method is fitted to the rest, and asked
what the held-out votes were: score = mean of log sum_k q[n, k] theta[m, k, l]. The posterior is measured, in the same
way for all, before any correction for votes that err together (held-out votes err with the others, too): confusion
matrices are read out of it by counting the votes that were left in, shrunk towards the crowd's
(:func:`crowdwise.core.predictive.read_out`), whether or not a method has matrices of its own.

Intervals are paired, over items: the differences of an item's votes are summed and averaged over the splits, and items
are the units (repeated splits are not independent, and are not counted as if they were).

**Many votes** need fewer splits: as many as ``MOST_HELD`` votes allow, five at most and one at least. From
``max_votes`` on, items are drawn at random, with all of their votes. Annotators have fewer votes in such a sample, and
models with many parameters lose more by that: the scores are those of data of this size.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core import predictive
from crowdwise.core.constraints import Count, CountFromZero, Fraction, RandomState, checked, seed_of
from crowdwise.core.intervals import Z
from crowdwise.core.model import Model
from crowdwise.core.numerics import Floats, Ints, sample_items
from crowdwise.data.comparisons import Comparisons
from crowdwise.data.figures import Figure, draw_rows
from crowdwise.data.votes import Votes
from crowdwise.errors import ConnectionWarning, ConvergenceWarning, CrowdwiseError, InputError, ParameterError
from crowdwise.trust.posterior_checks import PosteriorCheck, predictive_checks
from crowdwise.trust.result_tables import Tables

BINS = 10
MOST_VOTES = 3_000_000
"""Votes that are compared on by default; of more, a sample of the items."""
MOST_REPEATS, MOST_HELD = 5, 5_000_000
"""Splits by default, and the votes that all of them together may be made of."""
Progress = Callable[[str, str], None]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Tables):
    """Methods side by side, without any truth; the best first.

    Attributes
    ----------
    methods, score, seconds
        Names, mean log probability of a held-out vote, and how long a fit to all votes took.
    behind, low, high
        How far each is behind the best, per vote, with the 95% CI of the paired difference (0 for the best).
    error
        Half the width of the 95% CI of each score, over items.
    agreement
        J x J: the share of items labelled alike.
    reliability
        J x 10 x 3: for held-out votes whose likeliest label had a probability in each tenth: how many, their mean
        probability, the share that was that label.
    calibration
        The calibration error of each, from that table.
    checks
        For each method, the posterior predictive checks of :mod:`crowdwise.trust.posterior_checks`.
    accuracy
        The share of items with known truth that are labelled right, ties split; ``None`` without truth.
    problems
        Methods that could not be fitted, and why.
    n_votes, n_held_out, repeats, share, seed
        The votes, how many of them were held out on average, in how many splits, and what they were drawn from.
    n_items, of_items
        The items that were compared on, drawn at random where they are not all of those at hand.
    """

    TABLES = ("methods", "agreement", "reliability", "checks")
    methods: tuple[str, ...]
    score: Floats
    behind: Floats
    low: Floats
    high: Floats
    seconds: Floats
    agreement: Floats
    reliability: Floats
    calibration: Floats
    checks: tuple[tuple[PosteriorCheck, ...], ...]
    accuracy: Floats | None
    problems: dict[str, str]
    n_votes: int
    n_held_out: float
    repeats: int
    share: float
    seed: int | None
    error: Floats
    n_items: int
    of_items: int
    kind: str = "polars"

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {x:.4f}" for name, x in zip(self.methods[:3], self.score, strict=False))
        more = f" and {len(self.methods) - 3} more" if len(self.methods) > 3 else ""
        return f"Comparison({scores}{more}; {self.repeats} splits, {self.n_held_out:,.0f} votes held out in each)"

    @property
    def close(self) -> tuple[str, ...]:
        """The best method and those whose interval of the difference to it holds 0."""
        return tuple(name for name, low in zip(self.methods, self.low, strict=True) if low <= 0.0)

    def _columns(self, table: str) -> dict[str, Any]:
        names = np.array(self.methods)
        if table == "agreement":
            return {"method": names} | dict(zip(self.methods, self.agreement.T, strict=True))
        if table == "reliability":
            edge = np.tile(np.arange(BINS) / BINS, len(names))
            columns = {"method": np.repeat(names, BINS), "low": edge, "high": edge + 1.0 / BINS}
            figures = ("votes", "probability", "right")
            return columns | {name: self.reliability[:, :, c].ravel() for c, name in enumerate(figures)}
        if table == "checks":
            flat = [(name, check) for name, some in zip(self.methods, self.checks, strict=True) for check in some]
            columns = {"method": np.array([name for name, _ in flat]), "check": np.array([c.name for _, c in flat])}
            figures = ("observed", "expected", "p_value")
            return columns | {name: np.array([getattr(check, name) for _, check in flat]) for name in figures}
        columns = {"method": names, "score": self.score, "behind": self.behind, "behind_low": self.low}
        columns |= {"behind_high": self.high, "calibration_error": self.calibration, "seconds": self.seconds}
        columns |= {"score_error": self.error}
        return columns if self.accuracy is None else columns | {"accuracy": self.accuracy}

    def plot(self) -> Figure:
        """A figure of how far each method is behind the best, per held-out vote, with 95 % intervals."""
        title = "Behind the best, log-likelihood per held-out vote"
        return draw_rows(title, self.methods, self.behind, self.low, self.high)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        facts: dict[str, Any] = {"votes": self.n_votes, "held_out": self.n_held_out, "repeats": self.repeats}
        facts |= {"share": self.share, "seed": self.seed, "best": self.methods[0], "close": list(self.close)}
        facts |= {"items": self.n_items, "of_items": self.of_items}
        return facts | {table: _rows(self._columns(table)) for table in self.TABLES} | {"problems": self.problems}


@checked
def compare(
    votes: Votes, models: Mapping[str, Model], *, truth: Any = None, repeats: Count | None = None,
    share: Fraction = 0.2, replicates: CountFromZero = 99, max_votes: Count = MOST_VOTES,
    random_state: RandomState = 0, progress: Progress | None = None,
) -> Comparison:  # fmt: skip
    """Compare models by how well they predict held-out votes.

    Parameters
    ----------
    votes
        The votes. Their own ``truth`` is not looked at.
    models
        Name -> model. They are not fitted themselves: copies are.
    truth
        Classes of items where they are known, for a column of accuracies and nothing else.
    repeats, share
        How many times which share of the (item, annotator) pairs is held out. Every item keeps a vote. By default
        five times, and fewer from a million votes on (see the module).
    replicates
        How many sets of votes are drawn for the posterior predictive checks; 0 leaves the checks out.
    max_votes
        With more votes than this, items with about so many are drawn at random and compared on.
    random_state
        Seed of splits and draws.
    progress
        Called with what is being done ("fit", "split 1", ...) and a model's name, before each fit.
    """
    if not isinstance(votes, Votes):
        raise InputError(f"Expected Votes and found {type(votes).__name__}. Make them with Votes.from_frame.")
    if not models:
        raise ParameterError("models is empty: name at least one method to compare.")
    codes = None if truth is None else votes.encode_truth(truth)
    if codes is not None and not (codes >= 0).any():
        raise InputError("The truth names none of the items: there is nothing to score.")
    rng = np.random.default_rng(random_state)
    of_items, repeats = len(votes), how_many(votes, repeats, max_votes)
    rows = sample_items(np.diff(votes.indptr), max_votes, rng)
    if len(rows) < of_items:
        votes, codes = votes[rows], None if codes is None else codes[rows]
        if codes is not None and not (codes >= 0).any():
            raise InputError("The truth names none of the items that were drawn: raise max_votes.")
    masks = [predictive.split_pairs(votes, share, rng) for _ in range(repeats)]
    if not any(mask.any() for mask in masks):
        raise InputError(
            "No vote can be held out: no item has votes of two annotators. "
            "Methods can only be compared where annotators label the same items."
        )
    seeds = rng.integers(2**32, size=len(models))
    compared: list[_Row] = []
    problems: dict[str, str] = {}
    for (name, model), seed in zip(models.items(), seeds.tolist(), strict=True):
        try:
            compared.append(_row(name, model, votes, masks, replicates, seed, progress or (lambda *_: None)))
        except CrowdwiseError as problem:
            problems[name] = str(problem)
    labels = np.array([row.result.label_codes for row in compared])
    accuracy = None if codes is None else np.array([row.result.score(codes) for row in compared])
    return _compared(
        compared, labels, accuracy, problems=problems, n_votes=votes.n_votes, repeats=repeats, share=share,
        n_held_out=float(np.mean([mask.sum() for mask in masks])), seed=seed_of(random_state), n_items=len(votes),
        of_items=of_items, kind=votes.kind,
    )  # fmt: skip


def _compared(rows: list[_Row], answers: npt.NDArray[Any], accuracy: Floats | None, **facts: Any) -> Comparison:
    """The comparison, the best first; ``answers``: of each row, by which they agree."""
    if not rows:
        failed = "; ".join(f"{name}: {why}" for name, why in facts["problems"].items())
        raise InputError(f"None of the methods could be fitted: {failed}")
    order = sorted(range(len(rows)), key=lambda at: -rows[at].score)
    rows, answers = [rows[at] for at in order], answers[order]
    pairs = [predictive.paired(rows[0].gain - row.gain, row.weight) for row in rows]
    behind, error = (np.array(x) for x in zip(*pairs, strict=True))
    error[0] = 0.0
    return Comparison(
        methods=tuple(row.name for row in rows), score=np.array([row.score for row in rows]),
        behind=behind, low=behind - Z * error, high=behind + Z * error,
        seconds=np.array([row.result.seconds for row in rows]),
        agreement=np.stack([(answers == mine).mean(axis=1) for mine in answers]),
        reliability=np.stack([row.reliability for row in rows]),
        calibration=np.array([calibration_error(row.reliability) for row in rows]),
        checks=tuple(row.checks for row in rows), accuracy=None if accuracy is None else accuracy[order],
        error=np.array([Z * predictive.paired(row.gain, row.weight)[1] for row in rows]), **facts,
    )  # fmt: skip


def compare_pairs(
    table: Comparisons, models: Mapping[str, Any], *, repeats: Count | None = None, share: Fraction = 0.2,
    random_state: RandomState = 0, progress: Progress | None = None,
) -> Comparison:  # fmt: skip
    """Compare models of comparisons by how well they predict held-out ones: the log probability of left, right or tie.

    ``agreement`` is the share of pairs of items that two methods order alike. Intervals are over questions, where there
    are any, else over pairs of items.
    """
    rng, S = np.random.default_rng(random_state), table.n_answers
    repeats, say = repeats or MOST_REPEATS, progress or (lambda *_: None)
    if S < 10:
        raise InputError(f"There are {S} comparisons, and 10 are needed to hold some out.")
    masks = [rng.random(S) < share for _ in range(repeats)]
    pair = np.minimum(table.left, table.right).astype(np.int64) * table.n_items + np.maximum(table.left, table.right)
    unit = np.unique(pair if table.question is None else table.question, return_inverse=True)[1]
    U = int(unit.max()) + 1
    found, problems = list[_Row](), dict[str, str]()
    for name, model in models.items():
        try:
            say("fit", name)
            whole = _copy_fitted(model, table)
            gain, weight, sums = np.zeros(U), np.zeros(U), np.zeros((BINS, 3))
            for number, mask in enumerate(masks, start=1):
                say(f"split {number}", name)
                hidden = table.select(mask)
                p = _copy_fitted(model, table.select(~mask)).predict(hidden)
                hit = np.maximum(p[np.arange(len(p)), hidden.outcome], 1e-12)
                gain += np.bincount(unit[mask], hidden.weights * np.log(hit), U)
                weight += np.bincount(unit[mask], hidden.weights, U)
                sums += reliability_sums(p, hidden.outcome, hidden.weights)
            found.append(_Row(name, whole, gain / repeats, weight / repeats, shares_of(sums)))
        except CrowdwiseError as problem:
            problems[name] = str(problem)
    i, j = np.triu_indices(table.n_items, 1) if table.n_items <= 2000 else rng.integers(0, table.n_items, (2, 100_000))
    order = np.array([np.sign(row.result.scores[i] - row.result.scores[j]) for row in found])
    return _compared(
        found, order, None, problems=problems, n_votes=S, n_held_out=float(np.mean([mask.sum() for mask in masks])),
        repeats=repeats, share=share, seed=seed_of(random_state), n_items=table.n_items, of_items=table.n_items,
        kind=table.kind,
    )  # fmt: skip


def how_many(votes: Votes, repeats: int | None, max_votes: int = MOST_VOTES) -> int:
    """How many splits there are: those asked for, or as many as it takes."""
    if repeats is not None:
        return int(repeats)
    return min(max(MOST_HELD // max(min(votes.n_votes, max_votes), 1), 1), MOST_REPEATS)


@dataclass(frozen=True)
class _Row:
    """What was found out about one method."""

    name: str
    result: Any
    gain: Floats
    weight: Floats
    reliability: Floats
    checks: tuple[PosteriorCheck, ...] = field(default=())

    @property
    def score(self) -> float:
        return float(self.gain.sum() / self.weight.sum())


def _row(
    name: str, model: Model, votes: Votes, masks: list[Ints], replicates: int, seed: int, progress: Progress
) -> _Row:
    progress("fit", name)
    consensus = _copy_fitted(model, votes)
    gain, weight, table = np.zeros(len(votes)), np.zeros(len(votes)), np.zeros((BINS, 3))
    for number, mask in enumerate(masks, start=1):
        progress(f"split {number}", name)
        seen, hidden = votes.select(~mask), votes.select(mask)
        q = _copy_fitted(model, seen).independent_posterior
        p = predictive.predict_held_out(predictive.read_out(seen, q), q, hidden)
        gain += np.bincount(
            hidden.item, weights=hidden.weights * predictive.log_scores(p, hidden), minlength=len(votes)
        )
        weight += np.bincount(hidden.item, weights=hidden.weights, minlength=len(votes))
        table += reliability_sums(p, hidden.label, hidden.weights)
    checks: tuple[PosteriorCheck, ...] = ()
    if replicates:
        own = consensus.confusion
        theta = predictive.read_out(votes, consensus.independent_posterior) if own is None else own.transpose(0, 2, 1)
        rng = np.random.default_rng(seed)
        checks = predictive_checks(votes, consensus.independent_posterior, theta, replicates=replicates, rng=rng)
    return _Row(name, consensus, gain / len(masks), weight / len(masks), shares_of(table), checks)


def _copy_fitted(model: Any, votes: Any) -> Any:
    """The result of an unfitted copy; fits that did not converge are compared as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", ConnectionWarning)
        return type(model)(**model.get_params()).fit(votes).consensus_


def reliability_sums(p: Floats, label: npt.NDArray[Any], weight: Floats) -> Floats:
    """BINS x 3 sums over votes by the probability of the likeliest label: weight, probability, whether it was that."""
    top = p.max(axis=1)
    where = np.minimum((top * BINS).astype(np.int64), BINS - 1)
    right = (p.argmax(axis=1) == label).astype(np.float64)
    return np.stack(
        [np.bincount(where, weights=weight * x, minlength=BINS) for x in (np.ones_like(top), top, right)], axis=1
    )


def shares_of(sums: Floats) -> Floats:
    """Votes, mean probability and share right of each bin; NaN in empty ones."""
    out = np.full_like(sums, np.nan)
    out[:, 0] = sums[:, 0]
    full = sums[:, 0] > 0
    out[full, 1:] = sums[full, 1:] / sums[full, :1]
    return out


def calibration_error(table: Floats) -> float:
    """sum over bins of (votes / all) |mean probability - share right|."""
    full = table[:, 0] > 0
    return float((table[full, 0] * np.abs(table[full, 1] - table[full, 2])).sum() / table[full, 0].sum())


def _rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Columns as a list of rows; what is not a number is null."""
    names = list(columns)
    lists = [np.asarray(columns[name]).tolist() for name in names]
    return [
        {n: None if isinstance(x, float) and not np.isfinite(x) else x for n, x in zip(names, row, strict=True)}
        for row in zip(*lists, strict=True)
    ]
