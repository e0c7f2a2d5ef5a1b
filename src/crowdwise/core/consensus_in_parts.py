"""The result of votes in parts: what was learned about the crowd, and a table of items that is made when asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from crowdwise.core.consensus import VoteResult, item_columns
from crowdwise.core.constraints import fixed_seed
from crowdwise.core.crowd_kind import rates
from crowdwise.core.dependence import Dependence, copied_note, corrected
from crowdwise.core.em import Params
from crowdwise.core.leave_one_out import judged, judgement_sums, matrices_fit, moved_classes, refined, scored
from crowdwise.core.numerics import Floats, Ints, clamp, decide
from crowdwise.core.result import some_known
from crowdwise.core.shrinkage import learned_prior
from crowdwise.core.vote_parts import Posterior, VotePart, VoteParts, resolve, usual
from crowdwise.core.vote_sums import agreement_counts, per_annotator
from crowdwise.data.folders import replacing, write_arrays
from crowdwise.data.frames import make_frame
from crowdwise.data.heavy import pl
from crowdwise.data.truth import encode_classes
from crowdwise.data.vote_files import ITEMS, PART, scan_items, write_about
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError

KIND = "consensus in parts"
FORMAT = 2
ARRAYS = "arrays.npz"


@dataclass(frozen=True, eq=False, kw_only=True)
class Decision:
    """How a fit labels the items of a part; it can be shipped to other machines."""

    independent: Posterior
    """The posterior of a part as if votes on an item were independent given its class."""
    prior: Floats
    dependence: Dependence
    ties: str
    seed: int

    def __call__(self, part: VotePart) -> tuple[npt.NDArray[np.int32], Floats]:
        """The class codes of the items of a part, and their corrected posterior."""
        first = q = self.independent(part)
        if self.dependence.source != "none":
            q = corrected(q, part.votes, self.dependence, gold=part.gold)
        rng = np.random.default_rng(self.seed)
        return decide(q if self.dependence.bias else first, self.prior, self.ties, rng), q


Each = Callable[[VotePart, npt.NDArray[np.int32], Floats], None]
"""Called with a part, the class codes of its items, and their posterior."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ConsensusInParts(VoteResult):
    """The consensus of votes in parts: of files, or of a cluster. Its items stay where they are.

    The fields that it shares with a consensus in memory are those of :class:`~crowdwise.Consensus`.

    Attributes
    ----------
    out
        The file or folder that the consensus was written to, if it was: item, label, probability, entropy (bits),
        votes; and, where it was asked for, the probability of every class.
    item_table
        One row per item, read or computed when it is used: a lazy polars frame, or a table of Spark.
    items_per_class
        K: how many items have each label.
    measured
        Figures against the truth by name, with confidence intervals; none where no truth was given.
    """

    NAMES: ClassVar[tuple[str, ...]] = ("annotators", "classes")
    TABLES: ClassVar[tuple[str, ...]] = ("items", "annotators")
    SHAPES: ClassVar[dict[str, str]] = VoteResult.SHAPES | {
        "prior": "K", "confusion": "MKK", "judged": "2M", "total": "M", "agreement": "M", "votes_per_annotator": "M",
        "items_per_class": "K",
    }  # fmt: skip

    items_per_class: Ints
    known: int = 0
    out: Path | None = None
    measured: dict[str, Any] = field(default_factory=dict)
    parts: VoteParts | None = None
    """The votes, where they are still at hand; not saved."""
    decision: Decision | None = None
    model: Any = None

    @classmethod
    def of_parts(cls, model: Any, parts: VoteParts, fields: dict[str, Any], each: Each | None = None) -> Self:
        """The result of a model that was fitted, by a pass over the parts."""
        independent, by_votes = fields.pop("independent"), fields.pop("gold_by_votes", None)
        dependence = resolve(
            model.dependence, parts, independent, shares=model.vote_shares, gold_by_votes=by_votes,
            kind=fields.pop("kind", None),
        )  # fmt: skip
        why = [] if dependence.source == "none" else [dependence.reason]
        decision = Decision(
            independent=independent, prior=fields["prior"], dependence=dependence, ties=model.ties,
            seed=fixed_seed(model.random_state),
        )  # fmt: skip
        M, K = parts.names.n_annotators, parts.names.n_classes
        sums = parts.total(partial(_sums, decision, each), np.zeros(7 * M + K + 2))
        votes, agrees, total, *own = sums[: 7 * M].reshape(7, M)
        right, others = sums[-2:]
        calibrated = dependence.source in ("crowds", "gold")
        return cls(**cls.made_by(model, fields | {
            "annotators": parts.names.annotators, "classes": parts.names.classes, "n_answers": int(votes.sum()),
            "votes_per_annotator": votes.astype(np.int64), "total": total, "dependence": dependence,
            "agreement": np.divide(agrees, votes, out=np.full(M, np.nan), where=votes > 0),
            "judged": np.stack(judged(np.stack(own))) if model.judges_annotators and calibrated else None,
            "expected_right": right / others if others and calibrated else None,
            "items_per_class": sums[7 * M : -2].astype(np.int64), "known": int(parts.sizes[2]),
            "notes": fields.get("notes", []) + why + copied_note(parts.agreeing),
            "parts": parts, "decision": decision, "model": model,
        }))  # fmt: skip

    @property
    def n_items(self) -> int:
        """The number of items."""
        return int(self.items_per_class.sum())

    @property
    def n_gold(self) -> int:
        """The number of gold labels."""
        return self.known

    def _judge(self) -> tuple[Floats, Floats]:
        if self.parts is None or self.decision is None:
            raise InputError(
                "The accuracy of annotators was not estimated while the votes were there: annotator_accuracy=True."
            )
        parts, decision, names = self.parts, self.decision, self.parts.names
        if not matrices_fit(names):
            raise InputError(
                f"Confusion matrices of {names.n_annotators:,} annotators over {names.n_classes:,} classes are too "
                "many to estimate accuracies from votes in parts."
            )
        shown = decision.dependence
        if shown.source in ("none", "shares"):
            shown = usual(parts, decision.independent)

        def first(part: VotePart) -> Floats:
            return clamp(decision.independent(part), part.gold)

        def moved(params: Params) -> Floats:
            zero = np.zeros((names.n_classes, names.n_classes))
            return np.asarray(parts.total(lambda part: moved_classes(first(part), part.posterior(params)), zero))

        stats = parts.statistics(first)
        if shown.kind == "rules":
            params = rates(stats)
        else:
            stats = refined(stats, parts.expect, moved)
            params = scored(stats, np.asarray(learned_prior(stats.table())))

        def sums(part: VotePart) -> Floats:
            return judgement_sums(part, corrected(part.posterior(params), part.votes, shown, gold=part.gold))

        return judged(parts.total(sums, np.zeros((4, names.n_annotators))))

    def predictor(self) -> Callable[[Votes], Floats]:
        """The posterior of new votes in the codes of the fit (unseen annotators have codes after the last one), as if
        votes on an item were independent; a pass over the parts where it needs the expected counts."""
        if self.parts is not None and hasattr(self.model, "params_"):
            self.model.stats_ = self.parts.expect(self.model.params_)
        return cast("Callable[[Votes], Floats]", self.model._predict)

    @property
    def item_table(self) -> pl.LazyFrame:
        """One row per item: item, label, probability, entropy (bits), votes."""
        if self.out is None:
            assert self.parts is not None and self.decision is not None
            make = partial(labelled, self.decision)
            frames: list[pl.LazyFrame] = [make_frame(table, "polars").lazy() for table in self.parts.map(make)]
            return pl.concat(frames)
        if self.out.is_dir():
            return pl.scan_parquet(self.out / ITEMS / "*.parquet")
        if self.out.suffix.lower() == ".csv":
            return scan_items(self.out)
        return (pl.scan_ndjson if self.out.suffix.lower() == ".jsonl" else pl.scan_parquet)(self.out)

    def _read(self, *names: str) -> dict[str, npt.NDArray[Any]]:
        """Columns of the table of items (all of them where none is named), in memory."""
        table = self.item_table.select(names or "*").collect()
        return {name: table[name].to_numpy() for name in table.columns}

    @property
    def items(self) -> npt.NDArray[Any]:
        """The names of the items, read when they are asked for."""
        return self._read("item")["item"]

    @property
    def labels(self) -> npt.NDArray[Any]:
        """The class of each item, read when it is asked for."""
        return self._read("label")["label"]

    def score(self, truth: Any) -> float:
        """The share of right labels on items with known truth: a mapping from item to class, or N class codes with -1
        for unknown. Gold labels count, too."""
        table = self._read("item", "label")
        codes = encode_classes(truth, table["item"], self.classes)
        known = some_known(codes >= 0)
        return float((self.classes[codes[known]] == table["label"][known]).mean())

    def _columns(self, table: str, level: float) -> dict[str, Any]:
        return self._read() if table == "items" else self._annotator_table(level)

    def _accuracy_columns(self, level: float) -> dict[str, Any]:
        return {} if self.judged is None else super()._accuracy_columns(level)

    def about(self) -> dict[str, Any]:
        """What is not in the tables, as JSON."""
        return {
            "method": self.method, "classes": self.classes.tolist(), "prior": self.prior.tolist(),
            "n_items": self.n_items, "n_votes": self.n_votes, "dependence": self.dependence.plain(),
            "trace": self.trace.tolist(), "iterations": self.iterations, "converged": self.converged,
            "notes": self.notes, "format": FORMAT, "items_per_class": self.items_per_class.tolist(),
            "known": self.known, "expected_right": self.expected_right,
            "measured": {name: _finite(asdict(figure)) for name, figure in self.measured.items()},
        }  # fmt: skip

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write it to a folder that :func:`crowdwise.load` opens, all or nothing."""
        with replacing(folder, KIND) as temporary:
            (temporary / ITEMS).mkdir()
            self.item_table.sink_parquet(temporary / ITEMS / PART)
            self.write_beside(temporary)
        return Path(folder)

    def write_beside(self, folder: Path) -> None:
        """Write what lies beside the items of a saved folder."""
        write_about(folder, self.to_frame("annotators", kind="polars"), self.about())
        arrays = {"confusion": self.confusion, "judged": self.judged, "total": self.total}
        write_arrays(folder / ARRAYS, {name: array for name, array in arrays.items() if array is not None})


def _sums(decision: Decision, each: Each | None, part: VotePart) -> Floats:
    """Of each annotator the votes, those that say what the label says, their weight, and :func:`judgement_sums`; the
    items of each class; the expected number of right labels of items without a gold label, and of these items."""
    codes, q = decision(part)
    if each is not None:
        each(part, codes, q)
    by_annotator = [*agreement_counts(part.votes, codes), per_annotator(part.votes), *judgement_sums(part, q)]
    free = np.arange(len(codes)) if part.gold is None else np.flatnonzero(part.gold < 0)
    mean = [float(q[free, codes[free]].sum()), float(len(free))]
    return np.concatenate([*by_annotator, np.bincount(codes, minlength=q.shape[1]), mean])


def labelled(decision: Decision, part: VotePart) -> dict[str, Any]:
    """The table of the items of a part."""
    votes, (codes, q) = part.votes, decision(part)
    return item_columns(votes.items, votes.classes, codes, q, np.diff(votes.indptr))


def _finite(figure: dict[str, Any]) -> dict[str, Any]:
    """As JSON can hold it: ``None`` for what is not finite."""
    return {name: None if isinstance(x, float) and not np.isfinite(x) else x for name, x in figure.items()}
