"""Read answers, fit a method to them, measure the result.

:func:`fit` does all of it; :func:`aggregate`, the commands, the server and Label Studio call it. So the same data gives
the same answer type, the same method and the same numbers in Python and on the command line. To know the answer type
first, make an :class:`~crowdwise.reading.Opened` and pass it on: the file is not opened again.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdwise import kernels, registry
from crowdwise.core.constraints import fixed_seed, is_number
from crowdwise.core.em import check_engine
from crowdwise.core.progress_bar import shown
from crowdwise.core.result import Result
from crowdwise.data.comparisons import Comparisons
from crowdwise.data.vote_files import is_large, several
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, Option, ParameterError, Remedy, either, listing, suggestion, warn
from crowdwise.item_inputs import check_inputs, column_of, inputs_of, is_auto, own_inputs
from crowdwise.reading import AUTO, Answers, Opened, was_read

if TYPE_CHECKING:
    from crowdwise.answers.comparisons_leaderboard import Ranking
    from crowdwise.core.loop import Callback
    from crowdwise.metrics import Estimate
    from crowdwise.trust.estimates import PopulationEstimates, What
    from crowdwise.trust.method_comparison import Comparison

ENGINES = ("auto", "memory", "stream", "cuda")


def aggregate(
    answers: Any, method: str | None = None, *, answer_type: str | None = None, gold: Any = None, graph: Any = None,
    inputs: Any = AUTO, max_seconds: float = registry.MAX_SECONDS, out: str | os.PathLike[str] | None = None,
    engine: str = "auto", max_memory: str | float | None = None, scratch: str | os.PathLike[str] | None = None,
    callback: Callback | None = None, verbose: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """The consensus of some answers: a :class:`~crowdwise.Consensus` of votes, and its like for other answer types.

    With ``out``, votes may be more than memory holds: they are read from files, part by part, and the consensus is
    written to a file or a folder. What was written is a :class:`~crowdwise.ConsensusInParts`.

    Parameters
    ----------
    answers
        A table of answers (:class:`~crowdwise.Votes`, :class:`~crowdwise.Ratings`, ...); a file or a dataset folder; or
        a dataframe that :meth:`~crowdwise.Votes.from_frame` (or its like of another answer type) takes; or a Spark
        table of votes, with the options of :func:`crowdwise.spark.aggregate`. With ``out``: a Parquet or CSV file of
        votes, a pattern (``"votes/*.parquet"``), a folder of such files, or a list of them.
    method
        A key of ``crowdwise methods``; by default that of the answer type.
    answer_type
        A key of ``crowdwise.ANSWER_TYPES``. By default that of the table or of the method; of a file or a dataframe it
        is guessed from its columns. ``"auto"`` takes labels that look like numbers on a scale for ratings; else they
        are an error.
    gold
        The truth of the items where it is known, for the method to use: a mapping from item to class, or N class codes
        with -1 for unknown. The truth that lies with the answers is not looked at.
    graph
        Which items are linked, for methods that look at it (``graph-crowd``, by default): pairs of items, a sparse
        matrix, or a :class:`~crowdwise.Graph`.
    inputs
        Of votes: what the items look like (an array, a data frame, a sparse matrix, texts, images, a file of features),
        put beside the items by name as :meth:`learners <crowdwise.CrowdClassifier.fit>` do. A learner predicts classes
        from them, which count where held-out votes show that they help; ``consensus.notes`` says so, or why not.
        ``"auto"``: those of a dataset folder, where it has any, for the default method. ``None``: votes alone. With
        the key of a learner as ``method``, its own consensus.
    max_seconds
        How long learning from inputs may take. Where two epochs show that it would take longer, or it does, the votes
        alone count.
    out
        A file (.parquet, .csv, .jsonl), or a folder for Parquet files of items and of annotators. It is replaced when
        all is done.
    engine
        ``"memory"``: all votes at once. ``"stream"``: part by part, from files to files. ``"cuda"``: as ``"memory"``,
        with the passes over the votes on an NVIDIA GPU (torch finds it). ``"auto"`` is ``"stream"`` where ``out`` is
        given, else ``"memory"``.
    max_memory
        Of the stream: how much memory to use, such as ``"4GB"``; by default about 1 GB.
    scratch
        Of the stream: the folder for its parts, about 40 bytes per vote; by default the system's for temporary files.
        What a killed process left there is removed.
    callback
        Called after every pass over the answers with a :class:`crowdwise.core.loop.Progress`; while inputs are learned
        from, after every epoch.
    verbose
        Show the progress: a bar in a terminal or a notebook, lines elsewhere.
    **options
        Parameters of the method; and, of a dataframe or a file, how it is read: ``label="sentiment"``,
        ``on_missing="drop"``, ``label_map="labels.csv"``, ``normalise_labels=True``, ``exclude`` (annotators to leave
        out: their names, or a file of them) and whatever else :meth:`~crowdwise.Votes.from_frame` and
        :func:`~crowdwise.read_votes` (and their like of other answer types) take. With ``out`` also those of
        :func:`crowdwise.out_of_core.aggregate_files`.

    >>> import crowdwise as cw
    >>> votes = cw.Votes.from_dense([[0, 0, 1], [1, 1, 1], [0, 1, 1], [0, 0, 0]])
    >>> cw.aggregate(votes, "dawid-skene").labels.tolist()
    [0, 1, 1, 0]
    """
    if is_spark_table(answers):
        from crowdwise.spark import aggregate as on_spark

        others = {
            "answer_type": answer_type if answer_type != registry.VOTES else None, "graph": graph, "out": out,
            "inputs": None if is_auto(inputs) else inputs, "engine": engine if engine != "auto" else None,
            "max_memory": max_memory, "scratch": scratch,
        }  # fmt: skip
        if useless := [name for name, value in others.items() if value is not None]:
            raise ParameterError(f"{', '.join(useless)}: not with a Spark table. Leave it out.")
        with shown(method or registry.DEFAULT, verbose, callback) as report:
            return on_spark(answers, method, gold=gold, callback=report, **options)
    if engine not in ENGINES:
        raise ParameterError(f"engine={engine!r}: expected {either(ENGINES)}.{suggestion(engine, ENGINES)}")
    if engine == "stream" or (engine == "auto" and (out is not None or several(answers))):
        for name, value in (("graph", graph), ("inputs", None if is_auto(inputs) else inputs)):
            if value is not None:
                raise ParameterError(f"{name}: not with out, which takes votes alone. Leave one of them out.")
        from crowdwise.out_of_core import to_files

        return to_files(
            answers, out, method, answer_type, gold=gold, max_memory=max_memory, scratch=scratch, callback=callback,
            verbose=verbose, **options,
        )  # fmt: skip
    streamed = {"out": out, "max_memory": max_memory, "scratch": scratch}
    if unused := [name for name, value in streamed.items() if value is not None]:
        raise ParameterError(f"{', '.join(unused)}: only engine 'stream' takes it, which is chosen where out is given.")
    if is_large(answers):
        from crowdwise.out_of_core import check_fits

        check_fits(answers)
    opened = Opened(answers, answer_type, method, options)
    params = opened.split_options()
    with on_gpu(engine == "cuda"):
        return fit(
            opened, params=params, gold=gold, graph=graph, inputs=inputs, max_seconds=max_seconds, callback=callback,
            verbose=verbose,
        ).result  # fmt: skip


def is_spark_table(answers: Any) -> bool:
    """Whether it is a DataFrame of Spark, or of Spark Connect; pyspark is not imported for it."""
    return any(f"{cls.__module__}.".startswith("pyspark.") for cls in type(answers).__mro__)


@contextmanager
def on_gpu(asked: bool = True) -> Iterator[None]:
    """Fits inside of the block make their passes over votes on a GPU, where ``asked``; its memory is freed on exit."""
    if not asked:
        yield
        return
    with kernels.using("cuda"):
        check_engine()
        from crowdwise.kernels import cuda

        try:
            yield
        finally:
            cuda.release()


def fit(
    source: Any, method: str | None = None, params: Mapping[str, Any] | None = None, *, answers: str | None = None,
    gold: Any = None, truth: Any = None, graph: Any = None, inputs: Any = None,
    max_seconds: float = registry.MAX_SECONDS, reading: Mapping[str, Any] | None = None,
    select: Callable[[Any], Any] | None = None, display: Callable[[str], AbstractContextManager[Any]] | None = None,
    callback: Any = None, announce: Callable[[str], None] | None = None, verbose: bool = False,
) -> Fitted:  # fmt: skip
    """Read answers, fit a method to them, and measure it where the truth is known.

    Parameters
    ----------
    source, method, answers, graph
        As in :func:`aggregate`, where ``answers`` is called ``answer_type``. An :class:`~crowdwise.reading.Opened` has
        method, answer type and reading of its own.
    params
        Parameters of the method.
    gold
        Truth that the method may use: as in :func:`aggregate`, or a file.
    truth
        Truth that only measures; by default what lies with the answers.
    inputs
        One per item, a file of features, texts (:func:`crowdwise.item_inputs.texts_of`), ``True`` for those of
        the dataset folder, or ``"auto"`` for these where there are any. What a method for votes does with them is said
        in :func:`aggregate`.
    max_seconds
        As in :func:`aggregate`.
    reading
        Options of the table's reader, such as ``{"item": "photo", "on_duplicate": "last"}``.
    select
        Called with the table of answers that was read; the method is fitted to the table that it returns.
    display
        Called with the key of the method before the fit; a context manager with a callback, instead of ``callback``.
    callback
        Called after every pass over the answers, or every epoch.
    announce
        Called with a sentence on how long learning from inputs will take.
    verbose
        Show the progress.
    """
    if not (is_number(max_seconds) and max_seconds > 0):
        raise ParameterError("expected a number of seconds above 0.", about=Option("max_seconds", max_seconds))
    opened = source if isinstance(source, Opened) else Opened(source, answers, method, reading)
    task = _prepared(opened, params, graph, inputs, select)
    with nullcontext(callback) if display is None else display(task.method) as callback:
        return task.fit(gold, truth, max_seconds, callback, announce, verbose)


@dataclass(frozen=True, eq=False)
class _Task:
    """Answers, and a model that is ready to be fitted to them."""

    answers: Answers
    method: str
    model: Any
    test: tuple[Any, Any] | None
    """Inputs without votes, with the codes of their classes."""
    graph: Any
    inputs: Any
    notes: list[str]
    """What to say of inputs that are not used."""

    def fit(
        self, gold: Any, truth: Any, max_seconds: float, callback: Any, progress: Callable[[str], None] | None,
        verbose: bool,
    ) -> Fitted:  # fmt: skip
        """Fit the model. ``gold`` may be used by it; ``truth`` measures, later."""
        table = self.answers.table
        gold, truth = map(table.truth_of, (gold, truth))
        if truth is None and self.answers.truth is not None:
            truth = table.read_truth(self.answers.truth)
        if gold is not None and "gold" not in inspect.signature(self.model.fit).parameters:
            raise ParameterError(
                f"{self.method} has no use for gold (known truth).",
                remedy=Remedy("Leave it out, or measure with it: {}.", Option("truth", command="FILE")),
            )
        answers = self.answers
        if isinstance(table, Votes):
            gold = None if gold is None else table.encode_truth(gold)
            table = table if truth is None else table.with_truth(truth)
            data = None if answers.dataset is None else replace(answers.dataset, votes=table)
            answers, truth = replace(answers, table=table, dataset=data), table.truth
        known = {name: value for name, value in (("gold", gold), ("graph", self.graph)) if value is not None}
        if verbose and progress is None:
            progress = partial(print, file=sys.stderr)
        notes = self.notes
        with shown(self.method, verbose, callback) as report:
            if self.inputs is None:
                self.model.fit(table, callback=report, **known)
            elif self.method in registry.for_votes():
                from crowdwise.learners.inputs_forecast import fitted_with, forecast

                prediction = forecast(
                    self.model, self.inputs, table, gold, max_seconds=max_seconds,
                    seed=fixed_seed(self.model.random_state), callback=report, progress=progress,
                )  # fmt: skip
                fitted_with(self.model, table, gold, prediction.p, report)
                notes = [*notes, *prediction.notes]
            else:
                self.model.fit(self.inputs, table, callback=report, **known)
        if notes:
            self.model.consensus_.notes[:0] = notes
        return Fitted(answers, self.method, self.model, self.test, gold, truth)


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit gave: the answers, the fitted model, inputs without votes (with the codes of their classes), and the
    truth that was used (``gold``) and that measures."""

    answers: Answers
    method: str
    model: Any
    test: tuple[Any, Any] | None
    gold: Any = None
    truth: Any = None

    @property
    def answer_type(self) -> str:
        return self.answers.answer_type

    @property
    def table(self) -> Any:
        """The answers; votes with the truth that measures."""
        return self.answers.table

    @property
    def result(self) -> Any:
        """The consensus, or its like for other answer types."""
        return self.model.consensus_

    @cached_property
    def measured(self) -> dict[str, Estimate]:
        """Figures against the truth by name, with confidence intervals, gold left out; none where nothing is known."""
        from crowdwise.metrics.measures import measure

        return measure(self.answer_type, self.table, self.result, self.truth)

    @cached_property
    def tested(self) -> tuple[float, int] | None:
        """The accuracy of a learner on inputs without votes, and their number; ``None`` without any."""
        if self.test is None:
            return None
        return float(self.model.score(self.test[0], self.table.classes[self.test[1]])), len(self.test[1])

    def named(self, names: Mapping[str, Mapping[str, str]]) -> Fitted:
        """The same with names for codes, for what people read: ``{"class": {"0": "cat"}, "item": {...}}``. Figures
        against the truth are those of the codes."""
        table = self.table
        if not isinstance(table, Votes):
            raise ParameterError(f"Names are for classes and items of votes, and these are {self.answer_type}.")
        new: dict[str, Any] = {}
        for part, known in names.items():
            field = {"class": "classes", "item": "items"}[part]
            codes = [str(code) for code in getattr(table, field).tolist()]
            if unknown := [code for code in known if code not in codes]:
                warn(f"No {part} is called {listing(unknown)}, which the table of names has.")
            new[field] = np.array([known.get(code, code) for code in codes], dtype=object)
            if len(set(new[field])) < len(codes):
                raise InputError(f"Two {field} have the same name: give each a name of its own.")
        gold = None if self.gold is None else table.encode_truth(self.gold)
        model, answers = copy(self.model), self.answers
        model.consensus_ = replace(self.result, **new)
        table = replace(table, **new)
        data = None if answers.dataset is None else replace(answers.dataset, votes=table)
        renamed = replace(self, answers=replace(answers, table=table, dataset=data), model=model, gold=gold)
        renamed.__dict__["measured"] = self.measured
        return renamed

    def report(self, **options: Any) -> dict[str, Any]:
        """The report on it, see :func:`crowdwise.build_report`."""
        from crowdwise.report.build import build_report

        gold = self.gold if isinstance(self.table, Votes) else None
        answers = self.answers.dataset or self.table
        return build_report(
            answers, self.result, truth=self.truth, gold=gold, reading_notes=self.answers.notes, **options
        )


def _prepared(
    opened: Opened, params: Mapping[str, Any] | None, graph: Any, inputs: Any, select: Callable[[Any], Any] | None
) -> _Task:
    """All that can be wrong with a method or a file is an error here, before the work begins."""
    method, answer_type = opened.method, opened.answer_type
    if graph is not None and method is None and answer_type == registry.VOTES:
        answer_type = registry.LINKED
    auto = is_auto(inputs)
    if auto and (method is not None or graph is not None or answer_type != registry.VOTES):
        inputs = None
    learner = inputs is not None and method is not None and method not in registry.for_votes()
    entry = None if method is None else registry.find(method, answer_type, inputs=learner)
    model = None if entry is None else entry.create(**(params or {}))
    answers = opened.answers
    if select is not None:
        answers = replace(answers, table=select(answers.table))
    if answer_type == registry.LINKED:  # votes, with what links their items
        answers = replace(answers, answer_type=answer_type)
    answer_type = answers.answer_type
    if entry is None:
        entry = registry.find(registry.default_method(answer_type), answer_type)
        model = entry.create(**(params or {}))
    if graph is not None and entry.answer_type != registry.LINKED:
        raise ParameterError(f"{entry.key} does not look at a graph: leave it out, or use graph-crowd.")
    if isinstance(graph, (str, os.PathLike)):
        from crowdwise.data.graph import read_graph

        graph = read_graph(graph)
    notes: list[str] = []
    if auto and inputs is not None:
        inputs, notes = own_inputs(answers)
    elif inputs is not None and not learner:
        check_inputs(entry, model)
    X, test = (None, None) if inputs is None else inputs_of(answers, inputs)
    return _Task(answers, entry.key, model, test if learner else None, graph, X, notes)


def compare(
    votes: Any, methods: str | Iterable[str] = registry.COMPARED, *, truth: Any = None,
    repeats: int | None = None, share: float = 0.2, replicates: int = 99, max_votes: int | None = None,
    random_state: int | None = 0, progress: Callable[[str, str], None] | None = None, **options: Any,
) -> Comparison:  # fmt: skip
    """Methods side by side without any truth: how well each predicts held-out votes.

    Parameters
    ----------
    votes
        As in :func:`aggregate`: votes, or comparisons (then methods for these; truth, checks and samples are of votes).
    methods
        Keys of ``crowdwise methods``, or ``"all"`` for every method that needs no known truth. With their defaults.
    truth, repeats, share, replicates, max_votes, random_state, progress
        As in :func:`crowdwise.trust.method_comparison.compare`. The truth makes a column of accuracies, and nothing
        else.
    **options
        How a dataframe or a file is read, as in :func:`aggregate`.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(400, n_annotators=15, n_classes=3, votes_per_item=5, random_state=0)
    >>> cw.compare(crowd.votes, ["majority", "dawid-skene"], repeats=2, replicates=0).methods
    ('dawid-skene', 'majority')
    """
    from crowdwise.trust import method_comparison

    opened = Opened(votes, reading=options)
    if rest := opened.split_options():
        raise ParameterError(f"compare has no option {next(iter(rest))!r}.")
    table = opened.answers.table
    if isinstance(table, Comparisons):
        asked = registry.COMPARED_PAIRS if methods in (registry.COMPARED, "all") else methods
        keys = [asked] if isinstance(asked, str) else list(asked)
        pair_models = {key: registry.create(key, "comparisons", random_state=random_state) for key in keys}
        return method_comparison.compare_pairs(
            table, pair_models, repeats=repeats, share=share, random_state=random_state, progress=progress
        )
    if not isinstance(table, Votes):
        kind = type(table).__name__
        raise InputError(f"Expected Votes and found {kind}: methods for {table.answer_type} are not compared.")
    models = {key: registry.create(key, random_state=random_state) for key in compared(methods)}
    return method_comparison.compare(
        table, models, truth=truth, repeats=repeats, share=share, replicates=replicates, random_state=random_state,
        progress=progress, **({} if max_votes is None else {"max_votes": max_votes}),
    )  # fmt: skip


def score_board(
    scores: Any, *, model: str | None = None, prompt: str | None = None, judge: str | None = None,
    score: str | None = None, gold: Any = None, random_state: int | None = 0,
) -> Ranking:  # fmt: skip
    """A leaderboard from scores, or pass and fail, of judges for the answers of models to prompts.

    Parameters
    ----------
    scores
        A dataframe (or dict of columns) or a file: a row for each score.
    model, prompt, judge, score
        The columns, where they are not found by their names. Without judges all scores are by one, ``everyone``.
    gold
        Of pass and fail: (model, prompt) -> what people say, of answers that were drawn at random. Rates are then
        those of people (:func:`crowdwise.estimate`).
    random_state
        Seed of the draws behind the intervals of ranks.

    >>> import crowdwise as cw
    >>> rows = [(m, p, j, 5 + (m == "x") + (j == "b")) for m in "xyz" for p in range(8) for j in "ab"]
    >>> board = cw.score_board(dict(zip(("model", "prompt", "judge", "score"), zip(*rows))))
    >>> board.leaderboard["item"].to_list()[0], board.unit
    ('x', 'points')
    """
    from crowdwise.answers.scores_board import board_of

    return board_of(scores, model, prompt, judge, score, gold, random_state, estimate)


def estimate(
    answers: Any, what: What = "share", *, gold: Any = None, by: Any = None, positive: Any = None,
    probability: Any = None, covariates: Any = None, error_rates: Any = None, beyond: bool = False,
    level: float = 0.95, method: str | None = None, folds: int | None = None, random_state: int = 0, **options: Any,
) -> PopulationEstimates:  # fmt: skip
    """Figures of all items, with intervals that hold whatever the bias of annotators or judges.

    Some items, drawn at random, have gold labels. The method predicts all items without them; the error of its
    predictions on the gold items is taken off (prediction-powered inference). See ``docs/estimates.md``.

    Parameters
    ----------
    answers
        As in :func:`aggregate`: votes or ratings; or what it returned for them.
    what
        ``"share"`` of each class, ``"mean"`` of numbers, ``"difference"`` of either between groups, or coefficients of
        labels on ``covariates``: ``"ols"``, ``"logistic"``.
    gold
        The truth of the items that were drawn: a mapping from item to class or number, or a file. Without any, the
        model's figures have no interval.
    by
        Groups of items (systems, sources): a mapping from item to group, one per item, or a column of the file.
    positive
        The class whose share alone is asked for; for differences and regressions of two classes, the second.
    probability
        Where gold items were not drawn alike: with which probability each was (a mapping, or N numbers).
    covariates
        For regressions: name -> values of items; or names of columns of the file.
    error_rates
        Instead of gold: K x K counts (or rates) of labels for each true class, measured elsewhere.
    beyond
        Whether the figure is that of the population these items were drawn from, rather than of these items.
    level
        That of the intervals.
    method
        As in :func:`aggregate`.
    folds
        Fit with gold, too, in so many folds: each gold label corrects a fit that did not see it.
    random_state
        Of the folds.
    **options
        Parameters of the method and options of the reader, as in :func:`aggregate`.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(2000, n_annotators=30, votes_per_item=5, random_state=0)
    >>> consensus = cw.aggregate(crowd.votes)
    >>> gold = {item: crowd.votes.classes[crowd.truth[item]] for item in cw.draw_for_gold(consensus, 200).tolist()}
    >>> figures = cw.estimate(consensus, gold=gold, positive=1)
    >>> bool(figures[1].low < (crowd.truth == 1).mean() < figures[1].high), figures.narrower < 0.9
    (True, True)
    """
    from crowdwise.trust import estimates

    prediction = None
    if isinstance(answers, Result):
        if method is not None or folds is not None or options:
            raise ParameterError("method, folds and options: the answers were fitted already. Give them to that fit.")
        result = answers
    else:
        if isinstance(answers, Opened):
            opened, params = answers, options
        else:
            numbers = what == "mean" and method is None and not was_read(answers)
            opened = Opened(answers, registry.NUMBERS if numbers else None, method, options)
            params = opened.split_options()
        by, covariates = _columns_of(opened, by), _columns_of(opened, covariates)
        fitted = fit(opened, params=params)
        result, gold = fitted.result, fitted.table.truth_of(gold)
        if folds is not None:
            prediction = _cross_fitted(fitted, params, gold, folds, random_state)
    return estimates.estimate(
        result, what, gold=gold, by=by, positive=positive, probability=probability, covariates=covariates,
        error_rates=error_rates, beyond=beyond, level=level, prediction=prediction,
    )  # fmt: skip


def _columns_of(opened: Opened, asked: Any) -> Any:
    """Values by item of a column that is named (of several: by name); anything else as it is."""
    if isinstance(asked, str):
        return column_of(opened, asked)
    if isinstance(asked, (list, tuple)) and asked and all(isinstance(name, str) for name in asked):
        return {name: column_of(opened, name, numbers=True) for name in asked}
    return asked


def _cross_fitted(fitted: Fitted, params: Mapping[str, Any], gold: Any, folds: int, random_state: int) -> Any:
    """N x K probabilities by fits with the gold labels of all folds but one: that of the item, or the mean of all."""
    votes = fitted.table
    if not isinstance(votes, Votes) or gold is None:
        raise ParameterError("folds: only votes can be fitted with gold labels, and some must be given.")
    codes = votes.encode_truth(gold)
    known = np.flatnonzero(codes >= 0)
    if not 2 <= folds <= len(known):
        raise ParameterError(f"folds={folds}: expected 2 to {len(known)}, the number of gold labels.")
    fold = np.random.default_rng(random_state).permutation(len(known)) % folds
    out = np.zeros((len(votes), votes.n_classes))
    own = np.empty((len(known), votes.n_classes))
    for k in range(folds):
        seen = codes.copy()
        seen[known[fold == k]] = -1
        q = fit(votes, fitted.method, params, gold=seen).result.corrected_posterior
        out += q / folds
        own[fold == k] = q[known[fold == k]]
    out[known] = own
    return out


def compared(methods: str | Iterable[str]) -> list[str]:
    """The keys asked for, each once; ``"all"`` are those that need no known truth."""
    if methods == "all":
        return [key for key, entry in registry.for_votes().items() if not entry.load().needs_gold]
    keys = [methods] if isinstance(methods, str) else list(methods)
    for key in keys:
        if registry.find(key).load().needs_gold:
            raise ParameterError(f"{key} needs gold (known truth), and comparisons are made without: leave it out.")
    return list(dict.fromkeys(keys))
