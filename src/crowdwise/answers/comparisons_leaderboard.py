"""The result of comparisons and rankings: scores with standard errors, ranks with intervals, and the annotators.

The scales on which scores can be read.

===============  ======================================================================================
``score``        s, on the scale of log odds: P(i beats j) = sigmoid(s_i - s_j); the mean item has 0
``elo``          1000 + 400 / ln(10) s: 400 points are odds of ten to one; the mean item has 1000
``probability``  sigmoid(s): the probability of being found better than the mean item, ties left aside
===============  ======================================================================================

All are monotone in s, so that intervals are those of s, carried over end by end.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from textwrap import wrap
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.core.constraints import Count, Fraction, checked
from crowdwise.core.intervals import beta_interval, normal_columns, quantile, rate_interval, with_interval
from crowdwise.core.numerics import Floats, softmax
from crowdwise.core.result import Result, kendall_tau, some_known
from crowdwise.data import encoding
from crowdwise.data.figures import STYLE, Figure, draw_rows
from crowdwise.data.frames import make_frame
from crowdwise.data.truth import encode_numbers
from crowdwise.errors import InputError, ParameterError, listing, suggestion

SAME = 1e-9
"""Scores closer than this share a rank."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Ranking(Result):
    """Scores of items, the higher the better, centred at zero; on the scale of log odds.

    ===================  ==========  ==================================================================
    field                shape       meaning
    ===================  ==========  ==================================================================
    ``scores``           N           log odds scale: P(i beats j) = sigmoid(score_i - score_j)
    ``errors``           N           their standard errors: clustered by question where there are questions
                                     (``n_groups`` of them), else those of independent comparisons
    ``freedom``          N           their degrees of freedom where there are questions (Student's t)
    ``draws``            R x N       scores drawn from the distribution that these belong to
    ``components``       N           which items are joined by comparisons: only those can be compared
    ``counts``           of N        ``comparisons``, ``wins``, ``losses``, ``ties`` of every item
    ``tie``              number      log of Davidson's nu; ``None`` without ties
    ``tie_habit``        M           ``judge-bt``: what an annotator adds to it
    ``annotator_counts`` of M        ``comparisons``, ``ties``, ``decided``, ``agreed``, ``first``
    ``reliability``      M           ``crowd-bt``: the probability of an answer that is not reversed
    ``slope``            M           ``judge-bt``: how much of the differences of scores an annotator sees
    ``position``         M           ``judge-bt``, ``position-bt``: log odds in favour of the item shown first
    ``effects``          E           ``judge-bt`` with ``control``: log odds for one unit more of ``effect_names``
    ``group_scores``     G x N       ``mixture-bt``: scores of every group, the largest group first
    ``membership``       M x G       ``mixture-bt``: probability of every annotator to be of a group
    ===================  ==========  ==================================================================

    >>> import crowdwise as cw
    >>> rows = [("a", "b", "ann", "left")] * 3 + [("b", "c", "ann", "left")] * 3 + [("c", "a", "ann", "left")]
    >>> ranking = cw.aggregate(cw.Comparisons.from_records(rows), "bradley-terry")
    >>> ranking.to_frame("leaderboard", kind="dict")["item"].tolist()
    ['a', 'b', 'c']
    >>> round(ranking.probability("a", "b"), 2)
    0.67
    """

    TABLES: ClassVar[tuple[str, ...]] = ("items", "annotators", "leaderboard", "effects")
    IN_NOTEBOOKS: ClassVar[tuple[str, ...]] = ("leaderboard", "annotators")
    SHAPES: ClassVar[dict[str, str]] = Result.SHAPES | {
        "scores": "N", "errors": "N", "draws": "RN", "components": "N<N", "counts": "N", "annotator_counts": "M",
        "independent_errors": "N", "freedom": "N", "tie_habit": "M", "reliability": "M", "reliability_error": "M",
        "slope": "M", "slope_error": "M", "slope_freedom": "M",
        "position": "M", "position_error": "M", "position_freedom": "M",
        "effects": "E", "effect_errors": "E", "effect_freedom": "E",
        "group_scores": "GN", "group_errors": "GN", "group_weights": "G", "membership": "MG",
    }  # fmt: skip

    answer_type: str = "comparisons"
    items: npt.NDArray[Any]
    scores: Floats
    errors: Floats
    draws: npt.NDArray[np.float32]
    components: npt.NDArray[np.int32]
    counts: Mapping[str, Floats]
    annotator_counts: Mapping[str, Floats]
    unit: str = "log odds"
    """What scores are in: log odds, or points or pass rates (:func:`crowdwise.score_board`)."""
    tie: float | None = None
    tie_error: float | None = None
    tie_habit: Floats | None = None
    placed: bool = False
    n_groups: int = 0
    independent_errors: Floats | None = None
    freedom: Floats | None = None
    caveat: str = ""
    """What is wrong with the intervals, where something is: shown wherever they are."""
    reliability: Floats | None = None
    reliability_error: Floats | None = None
    slope: Floats | None = None
    slope_error: Floats | None = None
    slope_freedom: Floats | None = None
    position: Floats | None = None
    position_error: Floats | None = None
    position_freedom: Floats | None = None
    effect_names: list[str] = field(default_factory=list)
    effects: Floats | None = None
    effect_errors: Floats | None = None
    effect_freedom: Floats | None = None
    group_scores: Floats | None = None
    group_errors: Floats | None = None
    group_weights: Floats | None = None
    membership: Floats | None = None

    def __repr__(self) -> str:
        return f"Ranking({self.method}: {len(self.items):,} items, {self.n_answers:,} answers)"

    @property
    def leaderboard(self) -> Any:
        """The table of items, the best first."""
        return self.to_frame("leaderboard")

    @property
    def ranks(self) -> npt.NDArray[np.int64]:
        """The rank of every item, 1 the best; equal scores share a rank."""
        return 1 + len(self.scores) - np.searchsorted(np.sort(self.scores), self.scores + SAME, side="right")

    @checked
    def on_scale(
        self, scale: Scale = "elo", *, level: Fraction = 0.95, table: str = "leaderboard",
        anchor: Mapping[Any, float] | None = None, kind: str | None = None,
    ) -> Any:  # fmt: skip
        """The leaderboard on another scale: rank, item, the value with its interval, and the interval of the rank.

        Parameters
        ----------
        scale
            ``"score"`` (log odds), ``"elo"`` (the mean item has 1000, 400 points are odds of ten to one) or
            ``"probability"`` (of being found better than the mean item).
        table
            ``"leaderboard"``, the best first, or ``"items"``.
        anchor
            An item and its value, such as ``{"gpt-4": 1000}``: all values (and ends) are moved by the same amount.
        """
        if scale != "score":
            self._need_odds(f"scale={scale!r}")
        rows = self.to_frame(table, kind="dict", level=level)
        values = {f"{scale}{end}": to_scale(rows[name], scale)
                  for end, name in (("", "score"), ("_low", "low"), ("_high", "high"))}  # fmt: skip
        for name, value in (anchor or {}).items():
            if scale == "probability" or len(anchor or {}) > 1:
                raise ParameterError("An anchor is one item and its value, on the scale of scores or of Elo points.")
            by = float(value) - float(to_scale(self.scores[[self._at(name)]], scale)[0])
            values = {key: column + by for key, column in values.items()}
        kept = {name: rows[name] for name in ("rank", "item", "rank_low", "rank_high", "caveat") if name in rows}
        return make_frame(kept | values, kind or self.kind)

    def win_probabilities(self, kind: str | None = None) -> Any:
        """P(the item of the row is found better than that of the column), a tie left aside, by the scores; the best
        first. What was observed: ``comparisons.win_rates()``."""
        self._need_odds("win_probabilities")
        order = np.argsort(-self.scores, kind="stable")
        z, names = self.scores[order], self.items[order]
        p = to_scale(z[:, None] - z[None, :], "probability")
        return make_frame({"item": names} | {str(name): p[:, n] for n, name in enumerate(names)}, kind or self.kind)

    @checked
    def plot(
        self, path: str | os.PathLike[str] | None = None, *, scale: Scale = "score", level: Fraction = 0.95,
        limit: Count = 50, title: str | None = None,
    ) -> Figure:  # fmt: skip
        """The leaderboard as a figure, which notebooks show; with a path it is written there, as .svg or .png.

        Parameters
        ----------
        path
            Where to write it.
        scale, level
            As in :meth:`on_scale`.
        limit
            The best items are drawn, up to so many.
        title
            By default the method and the number of answers.

        >>> import crowdwise as cw
        >>> ranking = cw.aggregate(cw.simulate.comparisons(4, random_state=0).comparisons)
        >>> ranking.plot(scale="elo").svg[:4]
        '<svg'
        """
        rows = self.on_scale(scale, level=level, kind="dict")
        shown = {name: column[:limit] for name, column in rows.items()}
        title = f"{len(self.scores):,} items, {self.n_answers:,} answers, {self.method}" if title is None else title
        ranks = zip(shown["rank"], shown["rank_low"], shown["rank_high"], strict=True)
        figure = draw_rows(
            title, shown["item"].tolist(), *(shown[f"{scale}{end}"] for end in ("", "_low", "_high")), most=limit,
            labels=[f"{rank}" if low == high else f"{rank} ({low}–{high})" for rank, low, high in ranks],
            below=[f"dots: estimates; lines: {100 * level:g}% confidence intervals; right: ranks",
                   *shown.get("caveat", [])[:1],
                   *([f"{more:,} more items are not shown"] if (more := len(self.scores) - limit) > 0 else [])],
            unit=MEANINGS[scale] if self.unit == "log odds" else self.unit, percent=scale == "probability",
        )  # fmt: skip
        if path is not None:
            figure.save(path)
        return figure

    def rank_interval(self, level: float = 0.95) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The lowest and the highest rank of every item, at a level, by the ranks in the draws."""
        self._check_table("items", level)
        R, N = self.draws.shape
        place = np.empty((R, N), dtype=np.int32)
        every = np.broadcast_to(np.arange(1, N + 1, dtype=np.int32), (R, N))
        np.put_along_axis(place, np.argsort(-self.draws, axis=1), every, axis=1)
        place.sort(axis=0)
        tail = (1.0 - level) / 2.0
        low, high = place[int(np.floor(tail * (R - 1)))], place[int(np.ceil((1.0 - tail) * (R - 1)))]
        return np.minimum(low, self.ranks), np.maximum(high, self.ranks)

    def probability(self, i: Any, j: Any) -> float:
        """P(item i is found better than item j by a reliable annotator), given that it is not a tie."""
        self._need_odds("probability")
        return float(to_scale(self.scores[self._at(i)] - self.scores[self._at(j)], "probability"))

    def outcomes(self, i: Any, j: Any) -> dict[str, float]:
        """P(i better), P(j better), P(tie) for a reliable annotator, as ``left``, ``right`` and ``tie``."""
        self._need_odds("outcomes")
        p = self._outcomes(self.scores[[self._at(i)]] - self.scores[self._at(j)])[0]
        return dict(zip(("left", "right", "tie"), p.tolist(), strict=True))

    def _outcomes(self, z: Floats, habit: Any = 0.0) -> Floats:
        tie = np.full(len(z), -np.inf if self.tie is None else self.tie) + habit
        logit = np.stack([z / 2.0, -z / 2.0, tie], axis=1)
        return softmax(logit)

    def predict(self, comparisons: Any) -> Floats:
        """S x 3: P(left better), P(right better), P(tie) for every comparison of a table, by its annotator: their
        reliability, slope and position count, and one who was not seen is as the mean of the others."""
        self._need_odds("predict")
        place = encoding.locate(comparisons.items, self.items)
        if (place < 0).any():
            raise InputError(f"The ranking has no score for {listing(comparisons.items[place < 0])}.")
        who = encoding.locate(comparisons.annotators, self.annotators)[comparisons.annotator]

        def own(values: Floats | None, without: float) -> Any:
            if values is None:
                return without
            return np.append(values, np.nanmean(values) if np.isfinite(values).any() else without)[who]

        z = self.scores[place[comparisons.left]] - self.scores[place[comparisons.right]]
        z = own(self.slope, 1.0) * z + (np.nan_to_num(own(self.position, 0.0)) if comparisons.placed else 0.0)
        p = self._outcomes(z, own(self.tie_habit, 0.0))
        if self.reliability is not None:
            eta = own(self.reliability, 1.0)[:, None]
            p = np.hstack([eta * p[:, :2] + (1.0 - eta) * p[:, 1::-1], p[:, 2:]])
        return p

    def better(self, i: Any, j: Any) -> float:
        """P(item i has the higher score): the share of the draws in which it has."""
        return float((self.draws[:, self._at(i)] > self.draws[:, self._at(j)]).mean())

    @checked
    def versus(self, i: Any, j: Any, *, level: Fraction = 0.95) -> dict[str, float]:
        """Two items: the ``difference`` of their scores with its interval (``low``, ``high``), the ``probability`` that
        i is found better, how ``sure`` it is that i has the higher score, and how many ``more`` verdicts on these two
        would tell them apart at this level (0: they differ; infinite: no difference). Of points
        and pass rates there is no probability, and ``more`` are prompts."""
        a, b = self._at(i), self._at(j)
        gap = float(self.scores[a] - self.scores[b])
        draws = self.draws[:, a].astype(np.float64) - self.draws[:, b]
        tail = (1.0 - level) / 2.0
        low, high = (gap + float(np.quantile(draws - draws.mean(), q)) for q in (tail, 1.0 - tail))
        error, of_odds = max(float(draws.std()), 1e-12), self.unit == "log odds"
        more = np.inf if low <= 0.0 <= high else 0.0
        if more and gap and of_odds:
            alone = self.errors if self.independent_errors is None else self.independent_errors
            apart = float((self.errors / alone)[[a, b]].mean())
            lacking, p = (quantile(level) / gap) ** 2 - 1.0 / error**2, self.probability(i, j)
            more = max(float(np.ceil(max(lacking, 0.0) * apart**2 / (p * (1.0 - p)))), 1.0)
        elif more and gap:
            share = (quantile(level) * error / gap) ** 2 - 1.0
            more = max(float(np.ceil(share * (self.n_groups or self.n_answers))), 1.0)
        odds = {"probability": self.probability(i, j)} if of_odds else {}
        return {"difference": gap, "low": low, "high": high, **odds, "sure": self.better(i, j), "more": more}

    @checked
    def next_pairs(self, n: Count = 10, kind: str | None = None) -> Any:
        """The pairs to ask about next: those whose verdict tells most about an order that is open. ``gain`` is the
        expected gain in information on their difference (nats) times how open their order is, 0 to 1."""
        self._need_odds("next_pairs")
        if len(self.items) > 300:
            raise InputError(f"There are {len(self.items):,} items, and pairs are proposed for up to 300.")
        i, j = np.triu_indices(len(self.items), 1)
        gap = self.draws[:, i].astype(np.float64) - self.draws[:, j]
        p = 1.0 / (1.0 + np.exp(-np.abs(self.scores[i] - self.scores[j])))
        sure = (gap > 0.0).mean(axis=0)
        gain = 0.5 * np.log1p(gap.var(axis=0) * p * (1.0 - p)) * 2.0 * np.minimum(sure, 1.0 - sure)
        top = np.argsort(-gain, kind="stable")[:n]
        columns = {"left": self.items[i[top]], "right": self.items[j[top]], "sure": np.maximum(sure, 1.0 - sure)[top]}
        return make_frame(columns | {"gain": gain[top]}, kind or self.kind)

    def score(self, truth: Any) -> float:
        """Kendall's rank correlation (tau-b) with known true scores. ``truth`` is a mapping from item to score, or N
        scores with NaN for unknown."""
        true = encode_numbers(truth, self.items)
        known = some_known(~np.isnan(true))
        return kendall_tau(self.scores[known], true[known])

    def _need_odds(self, what: str) -> None:
        if self.unit != "log odds":
            raise InputError(f"{what} is of comparisons, and these scores are in {self.unit}.")

    def _at(self, name: Any) -> int:
        at = int(encoding.locate(encoding.to_vocabulary([name]), self.items)[0])
        if at < 0:
            near = suggestion(str(name), [str(v) for v in self.items])
            raise InputError(f"There is no item {name!r}: the ranking has {listing(self.items)}.{near}")
        return at

    def _columns(self, table: str, level: float) -> dict[str, Any]:
        if table == "annotators":
            return self._annotators(level)
        if table == "effects":  # no row without covariates
            value, error = (np.empty(0) if of is None else of for of in (self.effects, self.effect_errors))
            names = {"effect": np.array(self.effect_names, dtype=object)}
            return names | normal_columns("log_odds", value, error, level, self.effect_freedom) | {"error": error}
        reach = quantile(level, self.freedom) * self.errors
        ends = (0.0, 1.0) if self.unit == "pass rate" else (-np.inf, np.inf)
        rank_low, rank_high = self.rank_interval(level)
        columns: dict[str, Any] = {
            "item": self.items, "rank": self.ranks, "score": self.scores, "error": self.errors,
            "low": np.clip(self.scores - reach, *ends), "high": np.clip(self.scores + reach, *ends),
            "rank_low": rank_low, "rank_high": rank_high, **self.counts,
        }  # fmt: skip
        if self.group_scores is not None and self.group_errors is not None:
            for k, (s, e) in enumerate(zip(self.group_scores, self.group_errors, strict=True)):
                columns |= {f"score_{k + 1}": s, f"error_{k + 1}": e}
        if self.components.max(initial=0) > 0:
            columns["component"] = self.components
        if self.caveat:
            columns["caveat"] = np.full(len(self.items), self.caveat, dtype=object)
        if table == "leaderboard":
            order = np.argsort(-self.scores, kind="stable")
            columns = {name: columns[name][order] for name in ("rank", "item", *columns)}
        return columns

    def _annotators(self, level: float) -> dict[str, Any]:
        n = self.annotator_counts
        columns: dict[str, Any] = {"annotator": self.annotators, **({} if "decided" in n else n)}
        if "decided" in n:
            columns |= {"comparisons": n["comparisons"]} | _rate("agreement", n["agreed"], n["decided"], level)
        if "ties" in n:
            columns |= _rate("tie_rate", n["ties"], n["comparisons"], level)
        if self.placed:
            columns |= _rate("first_rate", n["first"], n["decided"], level)
            columns |= {"leans": n["leans"] > 0.0} if "leans" in n else {}
        if self.reliability is not None and self.reliability_error is not None:
            low, high = _share(self.reliability, self.reliability_error, level)
            columns |= with_interval("reliability", self.reliability, low, high)
        for name in ("slope", "position"):
            value, error = getattr(self, name), getattr(self, f"{name}_error")
            if value is not None and error is not None:
                columns |= normal_columns(name, value, error, level, getattr(self, f"{name}_freedom"))
        if "ring" in n:
            columns["ring"] = n["ring"].astype(np.int64)
        if self.membership is not None:
            columns["group"] = self.membership.argmax(axis=1) + 1
            columns |= {f"p(group {g + 1})": self.membership[:, g] for g in range(self.membership.shape[1])}
        return columns


def _share(eta: Floats, error: Floats, level: float) -> tuple[Floats, Floats]:
    """The interval of a reliability whose logit has a standard error: that of the Beta distribution with this mean and
    with the number of answers that corresponds to the error. Near 0 and 1 it is skewed as it should be, unlike a
    Normal interval."""
    n = 1.0 / (error**2 * eta * (1.0 - eta))
    return beta_interval(eta * n, (1.0 - eta) * n, level)


def _rate(name: str, right: Floats, total: Floats, level: float) -> dict[str, Floats]:
    """A share with its interval (Beta, under Jeffreys' prior); empty where there is nothing to share."""
    none = total <= 0
    low, high = rate_interval(right, total, level)
    value = np.where(none, np.nan, right / np.where(none, 1.0, total))
    ends = {f"{name}_low": np.minimum(low, np.nan_to_num(value, nan=1.0)),
            f"{name}_high": np.maximum(high, np.nan_to_num(value, nan=0.0))}  # fmt: skip
    return {name: value} | {key: np.where(none, np.nan, end) for key, end in ends.items()}


Scale = Literal["score", "elo", "probability"]
ELO_MEAN, ELO_UNIT = 1000.0, 400.0 / float(np.log(10.0))
MEANINGS = {
    "score": "score, in log odds", "elo": "Elo points", "probability": "probability of beating the mean item",
}  # fmt: skip
"""What an axis says."""


def to_scale(scores: Floats, scale: Scale) -> Floats:
    """Scores on another scale."""
    if scale == "elo":
        return ELO_MEAN + ELO_UNIT * scores
    if scale == "probability":
        return 1.0 / (1.0 + np.exp(-np.clip(scores, -500, 500)))
    return scores


HEADING = 16
"""Letters in a line of a heading."""


def draw_heat_map(rows: Sequence[Mapping[str, Any]], what: str, unit: str = "log odds") -> str:
    """An SVG of scores by item and category (rows with ``item``, ``category``, ``score``, ``rank``, ``rank_low``,
    ``rank_high``): blue above 0 (the mean, of points and rates), orange below it."""
    zero = 0.0 if unit == "log odds" else float(np.mean([row["score"] for row in rows]))
    names = list(dict.fromkeys(row["category"] for row in rows))
    best = sorted({row["item"] for row in rows}, key=lambda x: -max(r["score"] for r in rows if r["item"] == x))
    left, wide, high = 24 + 7.4 * max(len(_short(str(x))) for x in best), 118, 34  # a letter is about 7.4 wide
    width, height = max(left + wide * len(names) + 16, 320), 92 + high * len(best)
    most = max(abs(row["score"] - zero) for row in rows) or 1.0
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-family="sans-serif">',
           STYLE, f'<rect class="ground" fill="#fff" width="{width:g}" height="{height:g}" rx="6"/>',
           _text(f"Scores by {what}, in {unit}", 16, 26, size=15, weight=600),
           _text("below: the rank and its 95% interval", 16, 47, size=12)]  # fmt: skip
    for k, name in enumerate(names):
        first, *more = wrap(str(name), HEADING) or [""]
        lines = [_short(first, HEADING), _short(" ".join(more), HEADING)] if more else [first]
        out += [_text(text, left + wide * (k + 0.5), 78 - 14 * n, anchor="middle", size=12)
                for n, text in enumerate(reversed(lines))]  # fmt: skip
    out += [_text(_short(str(x)), left - 12, 105 + high * n, anchor="end") for n, x in enumerate(best)]
    for row in rows:
        x, y = left + wide * names.index(row["category"]), 84 + high * best.index(row["item"])
        share = min(abs(row["score"] - zero) / most, 1.0)
        out += [
            f'<rect x="{x + 2:g}" y="{y:g}" width="{wide - 4}" height="{high - 4}" rx="3" '
            f'fill="{"#0072B2" if row["score"] > zero else "#D55E00"}" fill-opacity="{0.08 + 0.5 * share:.2f}"/>',
            _text(f"{row['score']:{'+' if zero == 0.0 else ''}.2f}", x + wide / 2, y + 14, anchor="middle", size=12),
            _text(f"{row['rank']} ({row['rank_low']}–{row['rank_high']})", x + wide / 2, y + 26, anchor="middle",
                  size=10),
        ]  # fmt: skip
    return "\n".join([*out, "</svg>"]) + "\n"


def _short(name: str, most: int = 30) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _text(text: str, x: float, y: float, *, anchor: str = "start", size: int = 13, weight: int = 400) -> str:
    bold = f' font-weight="{weight}"' if weight != 400 else ""
    return (
        f'<text class="ink" fill="#222" x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}"{bold}>'
        f"{escape(text)}</text>"
    )
