"""glad, mace, one-coin and m-msr beside crowd-kit's, in one process, on the same votes.

A fit of ours reports every pass over the votes; crowd-kit's classes are subclassed to note the clock and the
parameters at the end of every iteration. Both sets of parameters are then given to the same objective (that of our
method: log-likelihood, with the priors that both have), outside the clock. So three things can be compared: an
iteration, the time until both have reached the same objective, and a whole fit with each one's own defaults.

Time is processor time, and the process is given one thread, so that a busy machine favours nobody.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

import crowdwise as cw
from crowdwise.core import em
from crowdwise.core.em import Params, Part
from crowdwise.core.numerics import safe_log
from crowdwise.core.vote_parts import VoteParts
from crowdwise.methods import bayes_mace
from crowdwise.methods.ability_fit import AbilityState
from crowdwise.methods.bayes_ibcc import expected_log

LIMIT = 25.0
"""A fit of crowd-kit is stopped after so many seconds; what it has reached by then counts."""
REPEATS = 3


class Enough(Exception):
    """The time is up."""


@dataclass
class Log:
    """When each iteration ended, in seconds from the start of the fit, and the parameters or the objective then."""

    seconds: list[float] = field(default_factory=list)
    points: list[Any] = field(default_factory=list)
    fit_seconds: float = 0.0
    stopped: bool = False

    def begin(self) -> None:
        self.began = time.process_time()

    def note(self, point: Any) -> None:
        self.seconds.append(time.process_time() - self.began)
        self.points.append(point)
        if self.seconds[-1] > LIMIT:
            raise Enough

    @property
    def iteration(self) -> float:
        """Seconds per iteration: the whole way from the first to the last."""
        if len(self.seconds) < 2:
            return self.seconds[0]
        return (self.seconds[-1] - self.seconds[0]) / (len(self.seconds) - 1)


def timed(log: Log, work: Callable[[], Any]) -> Log:
    log.begin()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            work()
        except Enough:
            log.stopped = True
    log.fit_seconds = time.process_time() - log.began
    return log


def ours(votes: Any, key: str, **options: Any) -> Log:
    log = Log()
    return timed(log, lambda: cw.aggregate(votes, key, callback=lambda step: log.note(step.objective), **options))


def least(make: Callable[[], Log], repeats: int = REPEATS) -> Log:
    """The run with the quickest iterations of several."""
    return min((make() for _ in range(repeats)), key=lambda log: log.iteration)


# -------------------------------------------------------------------- crowd-kit, watched


def frame_of(votes: Any, names: str) -> pd.DataFrame:
    """The votes as crowd-kit takes them, with names that are text or integers.

    Rows are sorted by annotator and label: crowd-kit's MACE mixes annotators up where they first appear in another
    order than that of their names.
    """
    item, who = votes.item, votes.annotator
    if names == "text":
        item = np.array([f"image-{n:07d}.jpg" for n in range(len(votes))], dtype=object)[item]
        who = np.array([f"w{m:05d}" for m in range(votes.n_annotators)], dtype=object)[who]
    frame = pd.DataFrame({"task": item, "worker": who, "label": votes.label})
    return frame.sort_values(["worker", "label"], kind="stable").reset_index(drop=True)


def watched(log: Log) -> dict[str, type]:
    """crowd-kit's classes, noting time and parameters after every iteration."""
    from crowdkit import aggregation as kit

    class OneCoin(kit.OneCoinDawidSkene):  # type: ignore[misc]
        def _evidence_lower_bound(self, data: Any, probas: Any, priors: Any, errors: Any) -> Any:
            out = super()._evidence_lower_bound(data, probas, priors, errors)
            log.note((priors.copy(), errors.copy()))
            return out

    class GLAD(kit.GLAD):  # type: ignore[misc]
        def _m_step(self, data: Any) -> Any:
            out = super()._m_step(data)
            log.note((self.alphas_.copy(), self.betas_.copy()))
            return out

    class MACE(kit.MACE):  # type: ignore[misc]
        used: Any = None

        def _variational_m_step(self, knowing: Any, strategy: Any) -> None:
            super()._variational_m_step(knowing, strategy)
            self.used = knowing.to_numpy(copy=True), strategy.to_numpy(copy=True)

        def _e_step(self, *arguments: Any) -> Any:
            out = super()._e_step(*arguments)
            if self.used is not None:
                log.note(self.used)
            return out

    return {"one-coin": OneCoin, "glad": GLAD, "mace": MACE}


def theirs(frame: pd.DataFrame, key: str, **options: Any) -> Log:
    log = Log()
    kind = watched(log)[key]
    return timed(log, lambda: kind(**options).fit(frame))


# -------------------------------------------------------------------- the same objective for both


def objective_of(key: str, votes: Any, point: Any) -> float:
    """Our objective at crowd-kit's parameters. Annotators and items are in the order of their names in both."""
    part, M, K = Part.of(votes), votes.n_annotators, votes.n_classes
    if key == "one-coin":
        prior, errors = point
        errors = errors.sort_index().sort_index(axis=1)  # (annotator, label) x truth, for the pairs there are
        who, label = (errors.index.get_level_values(i) for i in (0, 1))
        right = pd.Series(errors.to_numpy()[np.arange(len(errors)), label.to_numpy()]).groupby(who).first().to_numpy()
        table = np.where(np.eye(K, dtype=bool), right[:, None, None], ((1.0 - right) / (K - 1.0))[:, None, None])
        table = table.reshape(M * K, K)
        return em.expect(part, Params(safe_log(table), safe_log(prior.sort_index().to_numpy())[None]))[0].log_likelihood
    if key == "glad":
        a, b = (x.sort_index().to_numpy() for x in point)
        model = cw.GLAD()
        to, pi = model._problem(votes), np.full(K, 1.0 / K)
        state = AbilityState(a, b, np.empty((M, 0)), pi)
        return model._objective(to, state, model._pass(to, state)[2])
    knowing, strategy = point
    family = cw.MACE()._family_of(VoteParts.whole(votes))
    trust, habit = knowing[:, ::-1] + family.knowing_prior, strategy + family.strategy_prior
    logs = expected_log(trust, axis=1), expected_log(habit, axis=1)
    params = bayes_mace.Habits(
        bayes_mace.scores(*logs).reshape(-1, K), np.full((1, K), -np.log(K)), *logs, trust, habit
    )
    return family.objective(em.expect(part, params)[0].log_likelihood, params)


def reach(log: Log, objectives: list[float], goal: float) -> tuple[float, int]:
    """The seconds and iterations after which an objective is reached."""
    at = int(np.argmax(np.array(objectives) >= goal))
    return log.seconds[at], at + 1


# -------------------------------------------------------------------- the part


SAME: dict[str, dict[str, Any]] = {
    "one-coin": {"prior": 1e-9},  # crowd-kit smooths nothing
    "glad": {},
    "mace": {"restarts": 0},
}
"""What makes ours the model of crowd-kit, from one start."""
ONE_START: dict[str, dict[str, Any]] = {
    "one-coin": {"n_iter": 100, "tol": 1e-7},
    "glad": {"n_iter": 100, "tol": 1e-7},
    "mace": {"n_restarts": 1},
}
"""crowd-kit's settings for the same: its tolerance, which is on the change per vote, is ours."""


def compare(votes: Any, key: str) -> dict[str, Any]:
    plain = {"accelerate": False} if key == "one-coin" else {}
    step = least(lambda: ours(votes, key, max_iter=20, tol=0.0, **SAME[key], **plain))
    mine = least(lambda: ours(votes, key, **SAME[key]))
    default = min((ours(votes, key) for _ in range(REPEATS)), key=lambda log: log.fit_seconds)
    out: dict[str, Any] = {
        "iteration_seconds": step.iteration,
        "iterations": len(mine.seconds),
        "objective": mine.points[-1],
        "default_seconds": default.fit_seconds,
        "default_iterations": len(default.seconds),
    }
    for names in ("text",) if key == "glad" else ("text", "integers"):  # glad's takes minutes with either
        frame = frame_of(votes, names)
        peer = theirs(frame, key, **ONE_START[key])
        objectives = [objective_of(key, votes, point) for point in peer.points]
        goal = min(max(mine.points), max(objectives)) - 1e-6 * votes.n_votes
        our_seconds, our_iterations = reach(mine, mine.points, goal)
        peer_seconds, peer_iterations = reach(peer, objectives, goal)
        whole = peer if key == "glad" else theirs(frame, key)
        out[names] = {
            "iteration_seconds": peer.iteration,
            "iterations": len(peer.seconds),
            "objective": max(objectives),
            "stopped": peer.stopped,
            "goal": goal,
            "crowdwise_to_goal": {"seconds": our_seconds, "iterations": our_iterations},
            "crowd_kit_to_goal": {"seconds": peer_seconds, "iterations": peer_iterations},
            "default_seconds": whole.fit_seconds,
            "default_iterations": len(whole.seconds),
            "default_stopped": whole.stopped,
            "iteration_ratio": peer.iteration / step.iteration,
            "goal_ratio": peer_seconds / our_seconds,
            "default_ratio": whole.fit_seconds / default.fit_seconds,
        }
    return out


def compare_trimmed(votes: Any) -> dict[str, Any]:
    """m-msr has no objective: an iteration, and the whole way to skills that no longer move (1e-10 for both)."""
    from crowdkit.aggregation import MMSR

    def seconds(work: Callable[[], Any]) -> float:
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            work()
        return time.process_time() - began

    def fit(rounds: int) -> float:
        return min(seconds(lambda: cw.aggregate(votes, "m-msr", max_iter=rounds, tol=0.0)) for _ in range(5))

    step = (fit(45) - fit(5)) / 40
    found = cw.aggregate(votes, "m-msr")
    default = min(seconds(lambda: cw.aggregate(votes, "m-msr")) for _ in range(5))
    out: dict[str, Any] = {
        "iteration_seconds": step,
        "default_seconds": default,
        "default_iterations": found.iterations,
    }
    for names in ("text", "integers"):
        frame = frame_of(votes, names)
        few, many, model = MMSR(n_iter=5, tol=0.0), MMSR(n_iter=405, tol=0.0), MMSR()
        short, long, whole = (seconds(lambda m=m: m.fit(frame)) for m in (few, many, model))  # noqa: B023
        rounds = len(model.loss_history_)
        iteration = (long - short) / (len(many.loss_history_) - len(few.loss_history_))
        out[names] = {
            "iteration_seconds": iteration,
            "default_seconds": whole,
            "default_iterations": rounds,
            "iteration_ratio": iteration / step,
            "default_ratio": whole / default,
        }
    return out


def peers(scale: float) -> dict[str, Any]:
    """Every method both have, beside the one whose speed is measured at 5 M votes."""

    def crowd(M: int) -> Any:
        return cw.simulate.dirichlet(
            int(10_000 * scale),
            n_annotators=max(int(M * scale), 20),
            n_classes=5,
            diagonal=3,
            votes_per_item=5,
            random_state=0,
        ).votes

    many, few = crowd(500), crowd(120)
    shapes = {
        name: {"votes": v.n_votes, "items": len(v), "annotators": v.n_annotators, "classes": v.n_classes}
        for name, v in (("many", many), ("few", few))
    }
    from crowdwise.kernels import native  # noqa: F401 - compiled code is loaded before the clock starts

    return {
        "shapes": shapes,
        "limit_seconds": LIMIT,
        **{key: compare(many, key) for key in ("glad", "mace", "one-coin")},
        "m-msr": compare_trimmed(few),
    }
