"""Leaderboards from scores and from pass or fail: a row for each model, prompt and judge.

**Scores** (1 to 10, any number). Judge m gives the answer of model i to prompt p

    y  =  c_m  +  a_m t_ip  +  noise_m,          t_ip = s_i + u_p + what is the answer's own

A severe judge has a lower level c_m, one who uses less of the scale a smaller a_m (1 for the mean judge), and noise has
a variance for each. These are the maximum of the likelihood with the quality t of a model's answers Normal (EM).
Scores s_i are the weighted least squares of the answers' corrected scores on models and prompts, so that hard prompts
do not matter; they are in points of the mean judge, around the mean of all scores.

**Pass or fail.** The share of prompts on which the answer passes, by the consensus of the judges (the default method
for votes), or, with gold labels of answers drawn at random, by :func:`crowdwise.estimate`.

Scores on one prompt are not independent: errors are those of a jackknife that leaves out one prompt at a time (parts of
them, where they are many), with Student's t, down to 5 prompts; with fewer they leave out answers, with a caveat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise import registry
from crowdwise.answers.comparisons_connectivity import components
from crowdwise.answers.comparisons_leaderboard import Ranking
from crowdwise.answers.comparisons_uncertainty import MIN_GROUPS, n_draws, student_draws
from crowdwise.core.intervals import LEVEL, Z, quantile
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data import columns, encoding, frames
from crowdwise.data.source import Source
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError, listing, warn

MODEL = ("model", "system", "generator", "candidate", "assistant", *columns.ALIASES["item"])
PROMPT = (*columns.ALIASES["question"], "test", "test case", "case", *columns.ALIASES["item"])
NO_SCORE = {"n/a", "na", "nan", "none", "null", "-", "--", "?", "error", "refused", "skipped", "missing"}
VERDICTS = dict.fromkeys(("pass", "passed", "true", "yes", "correct", "success", "c"), "pass") | dict.fromkeys(
    ("fail", "failed", "false", "no", "incorrect", "failure", "i"), "fail"
)
BLOCKS = 50
"""The most parts of prompts that are left out one at a time."""


def board_of(
    scores: Any, model: str | None, prompt: str | None, judge: str | None, score: str | None, gold: Any, seed: Any,
    estimate: Any,
) -> Ranking:  # fmt: skip
    """:func:`crowdwise.score_board`; ``estimate`` is :func:`crowdwise.estimate`."""
    source = _source(scores, {"left": model, "question": prompt, "annotator": judge, "value": score})
    m, models = encoding.sort_vocabulary(*source.coded("left"))
    if len(models) < 2:
        raise InputError(f"There is one model, {listing(models)}: a leaderboard is of two or more.")
    j, judges = encoding.sort_vocabulary(*source.coded_or("annotator"))
    p, prompts = source.coded("question") if "question" in source else (np.arange(len(m)), np.arange(len(m)))
    passed = _passed(source)
    if passed is not None:
        return _pass_board(m, models, p, prompts, j, judges, passed, gold, seed, estimate, "question" in source)
    if gold is not None:
        raise ParameterError("gold is for pass and fail; for scores take crowdwise.estimate(..., what='mean').")
    y = source.numbers("value", "a score, or pass and fail")
    if len(bad := np.flatnonzero(~np.isfinite(y))):
        raise source.odd("value", int(bad[0]), "a finite score")
    if (odd := y == -1.0).any() and (y[~odd] >= 0.0).all():
        warn(f"{int(odd.sum()):,} scores are -1, none else is below 0: if they mean 'no score', leave them out.")
    return _point_board(y, m, models, p, j, judges, seed, "question" in source)


def _source(scores: Any, column_names: dict[str, str | None]) -> Source:
    """The table, with its columns found."""
    if isinstance(scores, (str,)) or hasattr(scores, "__fspath__"):
        from crowdwise.data.files import TableFile

        scores, from_text = TableFile.of(scores).read()
    else:
        scores, from_text = frames.to_polars(scores), False
    names = {columns.normal(name): name for name in scores.columns}
    words = {"left": MODEL, "question": PROMPT, "annotator": columns.ALIASES["annotator"],
             "value": ("score", "verdict", "grade", *columns.ALIASES["value"], "passed", "pass")}  # fmt: skip
    parts = dict[str, str | None]()
    for part, name in column_names.items():
        if name is not None and name not in scores.columns:
            raise InputError(f"There is no column {name!r}: there are {listing(scores.columns, 12)}.")
        taken = {*column_names.values(), *parts.values()}
        parts[part] = name or next((names[w] for w in words[part] if w in names and names[w] not in taken), None)
    for part, word in (("left", "model"), ("value", "score")):
        if parts[part] is None:
            raise InputError(f"There is no column of the {word}: there are {listing(scores.columns, 12)}.")
    source = Source(scores, column_names, "scores", from_text=from_text, parts=parts)
    cells = source["value"].cast(str).str.strip_chars().str.to_lowercase().fill_null("")
    none = cells.is_in([*NO_SCORE, ""])
    if 0 < int(none.sum()) < 0.5 * len(none):
        blank = source["value"].filter(none).drop_nulls().unique().sort()
        warn(f"Left out {int(none.sum()):,} rows without a score{f': {listing(blank)}' if len(blank) else ''}.")
        source.keep((~none).arg_true().to_numpy())
    source.complete([part for part, name in parts.items() if name is not None], "error")
    return source


def has_scores(names: list[str]) -> bool:
    """Whether columns are those of scores: a model, a score, and a prompt or a judge."""
    present = {columns.normal(name) for name in names}
    return bool(present & set(MODEL[:5])) and bool(present & {"score", "verdict", "grade", "rating", "label", "passed"})


def _passed(source: Source) -> Ints | None:
    """Whether each verdict is a pass, where all are words for pass or fail."""
    verdicts = [_verdict(word) for word in source["value"].to_list()]
    return None if None in verdicts else np.array([verdict == "pass" for verdict in verdicts], np.int64)


def _verdict(word: Any) -> str | None:
    """``"pass"`` or ``"fail"``, ``None`` for other words."""
    return VERDICTS.get(str(word).strip().lower())


def _point_board(y: Floats, m: Ints, models: Any, p: Ints, j: Ints, judges: Any, seed: Any, by_prompt: bool) -> Ranking:
    N, M, S = len(models), len(judges), len(y)
    notes, caveat, scored = list[str](), "", np.bincount(j, minlength=M).astype(float)
    if by_prompt:  # a judge who scored an answer several times has the mean of it
        cell, at = np.unique((p.astype(np.int64) * N + m) * M + j, return_inverse=True)
        y, (p, m, j) = np.bincount(at, y) / np.bincount(at), (cell // M // N, cell // M % N, cell % M)
        if len(y) < S:
            notes.append(f"{S - len(y):,} scores are of an answer that the judge had scored before: their mean counts.")
    part = components(m, N + j, N + M)[:N]
    if part.any():
        raise InputError(
            f"No judge scored both {listing(models[part == 0], 3)} and {listing(models[part > 0], 3)}, nor are they "
            "joined through other models: a severe judge cannot be told from a worse model. Leave the column of judges "
            "out to compare plain means."
        )
    used = _renumbered(p)
    joined = not components(m, N + used, N + int(used.max()) + 1)[:N].any()
    if by_prompt and not joined:
        notes.append(
            "Not all models are joined by prompts that they share: scores are means of each model's own prompts, and "
            "harder prompts cannot be told from worse models."
        )
    fit = _fitted(y, m, p, j, N, M, joined)
    block, rng = used, np.random.default_rng(seed)
    G = int(block.max()) + 1
    if not by_prompt or G < MIN_GROUPS:
        why = f"there are {G} prompts, and {MIN_GROUPS} are needed" if by_prompt else "there is no column of prompts"
        caveat = f"Errors treat all answers as independent, which is too sure: {why}."
        notes.append(caveat)
        block = _renumbered(p.astype(np.int64) * N + m)
    else:
        notes.append(f"Errors allow for {G:,} prompts: scores on one are not independent.")
    B = int(block.max()) + 1
    if B > BLOCKS:
        block, B = (rng.permutation(B) % BLOCKS)[block], BLOCKS
    without = np.empty((B, N + M))
    for b in range(B):
        rows = block != b
        if len(np.unique(m[rows])) < N:
            raise InputError("A model has answers to one prompt alone: there is no error of its score. Leave it out.")
        fewer = _fitted(y[rows], m[rows], p[rows], j[rows], N, M, joined, fit)
        without[b] = np.concatenate([fewer.scores, fewer.scale])
    moved = (without - without.mean(axis=0)) * np.sqrt((B - 1.0) / B)
    V, error = moved[:, :N].T @ moved[:, :N], np.sqrt((moved**2).sum(axis=0))
    freedom = np.full(N + M, B - 1.0)
    turned = fit.scale + quantile(LEVEL, freedom[N:]) * error[N:] < 0.0
    flat = np.array([np.ptp(y[j == k]) == 0.0 for k in range(M)])
    for who, what in ((turned, "the other way round: what they find better counts as worse"),
                      (flat & (M > 1), "all alike, which says nothing")):  # fmt: skip
        notes += [f"{listing(judges[who])} {'score' if who.sum() > 1 else 'scores'} {what}."] if who.any() else []
    mean = float(np.mean([y[j == k].mean() for k in range(M)]))
    about = {"scores": scored, "mean": np.bincount(j, y, M) / np.bincount(j, minlength=M), "noise": np.sqrt(fit.noise)}
    scale_of = {"slope": fit.scale, "slope_error": error[N:], "slope_freedom": freedom[N:]} if M > 1 else {}
    return _ranking(models, judges, fit.scores + mean, error[:N], V, freedom[:N], "points", S, 0 if caveat else G,
                    notes, caveat, {"scores": np.bincount(m, minlength=N).astype(float)}, about, seed,
                    **scale_of)  # fmt: skip


@dataclass(frozen=True)
class _Points:
    """Scores of models, around 0; the scale, the level and the noise of judges; the variance of answers' quality."""

    scores: Floats
    scale: Floats
    level: Floats
    noise: Floats
    quality: float


def _fitted(
    y: Floats, m: Ints, p: Ints, j: Ints, N: int, M: int, joined: bool, start: _Points | None = None
) -> _Points:
    """EM for judges (the quality of each answer Normal), then weighted least squares for models and prompts, or for
    models alone where prompts do not join them."""
    p, (used, answer) = _renumbered(p), np.unique(p.astype(np.int64) * N + m, return_inverse=True)
    n = np.bincount(j, minlength=M)
    if start is None:
        mean = np.bincount(j, y, M) / np.maximum(n, 1)
        spread = float(np.var(y - mean[j])) / 2.0 + 1e-12
        start = _Points(np.zeros(N), np.ones(M), mean, np.full(M, spread), spread)
    a, c, noise, quality, level = start.scale, start.level, start.noise, start.quality, start.scores
    of = used % N
    each = np.bincount(of, minlength=N)
    for _ in range(500):
        w = a[j] / noise[j]
        v = 1.0 / (np.bincount(answer, w * a[j]) + 1.0 / quality)
        t = (np.bincount(answer, w * (y - c[j])) + level[of] / quality) * v
        level = np.bincount(of, t, N) / each
        t, level = t - level.mean(), level - level.mean()
        quality, before = float(((t - level[of]) ** 2 + v).mean()), a
        square, mean = np.bincount(j, t[answer] ** 2 + v[answer], M), np.bincount(j, t[answer], M) / np.maximum(n, 1)
        c = np.bincount(j, y, M) / np.maximum(n, 1) - a * mean
        if M > 1:
            # What is known beforehand: a scale around 1, with a spread of 1.
            a = (np.bincount(j, t[answer] * (y - c[j]), M) + noise) / (square + noise)
            unit = float(np.abs(a).mean()) or 1.0
            a, t, v, quality, level = a / unit, t * unit, v * unit**2, quality * unit**2, level * unit
        noise = np.bincount(j, (y - c[j] - a[j] * t[answer]) ** 2 + a[j] ** 2 * v[answer], M) / np.maximum(n, 1)
        noise = np.maximum(noise, 1e-9 * float(np.var(y)) + 1e-15)
        if np.abs(a - before).max() < 1e-4:
            break
    w = a[j] / noise[j]
    sure = np.bincount(answer, w * a[j])
    x, at = np.bincount(answer, w * (y - c[j])) / sure, _renumbered(used // N if joined else 0 * used)
    rest = quality / 2.0  # of prompts, and of answers: that about half is each decides the weights alone
    w = 1.0 / (rest + 1.0 / sure)
    P = int(at.max()) + 1
    both = np.bincount(at * N + of, w, P * N).reshape(P, N)
    each = both.sum(axis=1)
    A = np.diag(both.sum(axis=0)) - (both / each[:, None]).T @ both
    g = np.bincount(of, w * x, N) - both.T @ (np.bincount(at, w * x, P) / each)
    s = np.linalg.lstsq(A, g, rcond=None)[0]
    return _Points(s - s.mean(), a, c, noise, quality)


def _pass_board(
    m: Ints, models: Any, p: Ints, prompts: Any, j: Ints, judges: Any, passed: Ints, gold: Any, seed: Any,
    estimate: Any, by_prompt: bool,
) -> Ranking:  # fmt: skip
    N, Q = len(models), len(prompts)
    cell, at = np.unique(m.astype(np.int64) * Q + p, return_inverse=True)
    of, group = cell // Q, cell % Q
    votes = Votes.from_codes(at, j, passed, items=np.arange(len(cell)), annotators=judges, classes=["fail", "pass"],
                             on_duplicate="all")  # fmt: skip
    scored = np.bincount(j, minlength=len(judges)).astype(float)
    notes, caveat = [], ""
    about = {"scores": scored, "mean": np.bincount(j, passed, len(judges)) / np.maximum(scored, 1.0)}
    count = {"scores": np.bincount(m, minlength=N).astype(float)}
    if gold is not None:
        known = {tuple(map(str, answer)): _verdict(word) for answer, word in dict(gold).items()}
        if None in known.values():
            odd = [word for word in dict(gold).values() if _verdict(word) is None]
            raise InputError(f"gold says {listing(odd)}: expected pass or fail.")
        names = [(str(models[a]), str(prompts[b])) for a, b in zip(of.tolist(), group.tolist(), strict=True)]
        by_name = {n: known[name] for n, name in enumerate(names) if name in known}
        if not by_name:
            raise InputError("gold names no answer of these models: expected (model, prompt) -> pass or fail.")
        if len(none := np.setdiff1d(np.arange(N), of[list(by_name)])):
            raise InputError(f"gold names no answer of {listing(models[none])}: give some of every model, at random.")
        method = "majority" if len(judges) == 1 else None  # the verdicts of one judge as they are
        shares = estimate(votes, "share", gold=by_name, by=models[of], positive="pass", method=method)
        rows = {str(row.group): row.figure for row in shares.rows}
        figure = [rows[str(name)] for name in models.tolist()]
        rate, low, high = (np.array([getattr(f.estimate, end) for f in figure]) for end in ("value", "low", "high"))
        error = np.maximum(np.maximum(rate - low, high - rate) / Z, 1e-6)  # near 0 and 1 one end is further
        notes.append(f"By {len(by_name):,} gold labels: the intervals hold whatever the judges' bias.")
        return _ranking(models, judges, rate, error, np.diag(error**2), None, "pass rate", len(j), 0, notes, "", count,
                        about, seed)  # fmt: skip
    if len(judges) > 1:
        f = registry.create(registry.DEFAULT).fit(votes).consensus_.posterior[:, 1]
        notes.append(
            "A rate is that of the judges' consensus: where all judges err alike it errs, too. gold corrects it."
        )
        if abs(f.mean() - passed.mean()) > 0.05:
            notes.append(
                f"The judges pass {passed.mean():.0%} of what they see, the consensus {f.mean():.0%}: what lies "
                "between is what the method makes of their disagreement. gold decides it."
            )
    else:
        f = np.bincount(at, passed) / np.bincount(at)
    n = np.bincount(of, minlength=N)
    rate = np.bincount(of, f, N) / n
    G = len(np.unique(group))
    if not by_prompt or G < MIN_GROUPS:
        caveat = "Errors treat all answers as independent: there are fewer than 5 prompts, or no column of them."
        notes.append(caveat)
        group, G = np.arange(len(f)), len(f)
    moved = np.zeros((int(group.max()) + 1, N))
    np.add.at(moved, (group, of), (f - rate[of]) / n[of])
    V = moved.T @ moved * G / max(G - 1.0, 1.0)
    # What the consensus leaves open, and half an imagined pass and fail: a rate of 1 has an error, too.
    V[np.arange(N), np.arange(N)] += (np.bincount(of, f * (1.0 - f), N) + 0.25) / n**2
    return _ranking(models, judges, rate, np.sqrt(np.diagonal(V)), V, np.full(N, G - 1.0), "pass rate", len(j),
                    G if not caveat else 0, notes, caveat, count, about, seed)  # fmt: skip


def _ranking(
    models: Any, judges: Any, value: Floats, error: Floats, V: Floats, freedom: Floats | None, unit: str, S: int,
    G: int, notes: list[str], caveat: str, counts: dict[str, Floats], about: dict[str, Floats], seed: Any, **more: Any,
) -> Ranking:  # fmt: skip
    usual = 1e6 if freedom is None else float(np.clip(np.median(freedom), 3.0, 1e6))
    draws = student_draws(V, value, n_draws(len(value)), np.random.default_rng(seed), usual)
    return Ranking(
        method="score-board", params={}, items=models, annotators=judges, scores=value, errors=error, draws=draws,
        components=np.zeros(len(value), np.int32), counts=counts, annotator_counts=about, n_groups=G, freedom=freedom,
        caveat=caveat, notes=notes, n_answers=S, unit=unit, converged=True, **more,
    )  # fmt: skip


def _renumbered(code: Ints) -> Ints:
    return np.asarray(np.unique(code, return_inverse=True)[1])
