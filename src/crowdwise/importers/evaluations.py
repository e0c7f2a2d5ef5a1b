"""Verdicts on language models: logs of evaluations, and of Chatbot Arena and MT-bench."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from crowdwise.data.source import EVERYONE
from crowdwise.importers.collect import Collector, as_object, objects_in
from crowdwise.importers.export_files import ExportFiles, Peek

BASELINE = "baseline"
"""The other model of an Arena-Hard log that does not name it."""
WORDS = {"C": "pass", "I": "fail", "P": "partial", "N": "no answer", True: "pass", False: "fail"}
GAMES = {"A>>B": "left", "A>B": "left", "A=B": "tie", "B=A": "tie", "B>A": "right", "B>>A": "right"}
HARNESS = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps"}


def recognises_evaluations(peek: Peek) -> bool:
    """Keys that only such logs have."""
    return _kind(peek.first) != "" or _kind(peek.whole("eval", "results", "testCases", "columns")) != ""


def read_evaluations(files: ExportFiles, into: Collector) -> None:
    """Logs of evaluations of language models: verdicts of judges and scorers, as JSON or JSON lines.

    =======================  ==================================================================================
    AlpacaEval               ``generator_1`` (left), ``generator_2`` (right), ``annotator``, ``preference`` 1 to 2
    Arena-Hard               ``model`` and ``baseline`` in two ``games``, ``judge``, ``score`` A>>B ... B>>A
    Inspect                  ``samples`` with ``scores`` by scorer; ``eval.model``
    promptfoo                ``results.results`` with ``gradingResult`` by assertion; ``provider``
    DeepEval                 ``testCases`` with ``metricsData`` by metric and ``evaluationModel``
    lm-evaluation-harness    lines with ``doc_id`` and a number for each metric
    MLflow                   traces with ``info.assessments`` (``feedback`` by ``source``), ``eval_results_table.json``
    Langfuse                 scores with ``traceId``, ``name``, ``value``, ``source`` and ``authorUserId``
    item                     the model and the sample (``gpt-4 | 12``); of the first two the models
    annotator                the judge, scorer, assertion, metric or author
    left out                 verdicts that were not given or could not be read
    =======================  ==================================================================================

    C and I of Inspect, success and pass are the classes ``pass`` and ``fail``; other values are classes or ratings.
    """
    for record in files.objects(files.names[0]):
        kind = _kind(record)
        if kind:
            READERS[kind](record, into)
        else:
            into.leave_out("records of another kind")


def _kind(first: dict[str, Any]) -> str:
    keys = set(first)
    if {"generator_1", "generator_2", "preference"} <= keys:
        return "alpaca-eval"
    if {"games", "model", "judge"} <= keys and isinstance(first["games"], list):
        return "arena-hard"
    if isinstance(first.get("eval"), dict) and isinstance(first.get("samples"), list):
        return "inspect"
    results = first.get("results")
    if isinstance(results, dict) and isinstance(results.get("results"), list):
        return "promptfoo"
    if isinstance(first.get("testCases"), list):
        return "deepeval"
    if HARNESS <= keys:
        return "harness"
    if isinstance(as_object(first.get("info", first)).get("assessments"), list):
        return "mlflow"
    if isinstance(first.get("data"), list) and any(_metric(name) for name in _list(first.get("columns"))):
        return "mlflow-table"
    return "langfuse" if {"traceId", "name", "value", "source"} <= keys else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _alpaca(row: dict[str, Any], into: Collector) -> None:
    value = row["preference"]
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 1.0 <= value <= 2.0:
        into.leave_out("without a preference")
        return
    side = "tie" if value == 1.5 else "left" if value < 1.5 else "right"
    on = row.get("instruction") or row.get("dataset")
    into.pair("preference", on, row.get("annotator") or "judge", row["generator_1"], row["generator_2"], side,
              probability=None if value in (1, 1.5, 2) else 2.0 - value)  # fmt: skip


def _hard(row: dict[str, Any], into: Collector) -> None:
    other = row.get("baseline") or BASELINE
    if other == BASELINE:
        into.note("The log does not name the model that all were compared with: it is called baseline.")
    for game, verdict in enumerate(row["games"][:2]):
        side = GAMES.get(str(as_object(verdict).get("score")).strip("[] "))
        if side is None:
            into.leave_out("games without a verdict")
            continue
        left, right = (other, row["model"]) if game == 0 else (row["model"], other)  # the second game is swapped
        on = row.get("uid", row.get("question_id"))
        into.pair("score", on, row["judge"], left, right, side, time=row.get("tstamp"))


def _inspect(log: dict[str, Any], into: Collector) -> None:
    model = log["eval"].get("model", "model")
    for sample in objects_in(log["samples"]):
        item = f"{model} | {sample.get('id')}"
        if isinstance(sample.get("epoch"), int) and sample["epoch"] > 1:
            item += f", epoch {sample['epoch']}"
        into.about_item(item, model=model, sample=str(sample.get("id")))
        for scorer, score in as_object(sample.get("scores")).items():
            _verdict(item, scorer, as_object(score).get("value"), into)


def _promptfoo(log: dict[str, Any], into: Collector) -> None:
    for row in objects_in(log["results"]["results"]):
        provider = row.get("provider")
        model = (provider.get("label") or provider.get("id")) if isinstance(provider, dict) else provider
        item = f"{model} | {row.get('testIdx', row.get('id'))}"
        into.about_item(item, model=str(model))
        parts = objects_in(as_object(row.get("gradingResult")).get("componentResults"))
        for who, passed in _assertions(parts) if parts else [("all assertions", row.get("success"))]:
            _verdict(item, who, passed, into)


def _assertions(parts: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    seen: dict[str, int] = {}
    for part in parts:
        assertion = as_object(part.get("assertion"))
        who = str(assertion.get("metric") or assertion.get("type") or "assertion")
        seen[who] = seen.get(who, 0) + 1
        yield who if seen[who] == 1 else f"{who} {seen[who]}", part.get("pass")


def _deepeval(log: dict[str, Any], into: Collector) -> None:
    for n, case in enumerate(objects_in(log["testCases"])):
        item = case.get("name") or f"case {n}"
        into.about_item(item, input=case.get("input"))
        for metric in objects_in(case.get("metricsData")):
            by = metric.get("evaluationModel")
            _verdict(item, f"{metric.get('name')}, {by}" if by else metric.get("name"), metric.get("success"), into)


def _harness(row: dict[str, Any], into: Collector) -> None:
    for name, value in row.items():
        if name not in HARNESS and isinstance(value, (int, float)) and not isinstance(value, bool):
            passed = bool(value) if value in (0, 1) else value
            _verdict(row["doc_id"], name, passed, into)


def _langfuse(row: dict[str, Any], into: Collector) -> None:
    value = row.get("stringValue") if row.get("dataType") == "CATEGORICAL" else row["value"]
    value = bool(value) if row.get("dataType") == "BOOLEAN" else value
    who = row.get("authorUserId") or f"{row['source']}".lower()
    _verdict(row["traceId"], who, value, into, str(row["name"]), row.get("timestamp"))


def _metric(name: Any) -> str | None:
    """``correctness/v1/score``, ``correctness/value`` -> correctness."""
    match = re.fullmatch(r"(.+?)(/v\d+)?/(score|value)", name) if isinstance(name, str) else None
    return match.group(1) if match else None


def _mlflow(row: dict[str, Any], into: Collector) -> None:
    """A trace: what judges, people and code said about it."""
    info = as_object(row.get("info", row))
    item = info.get("trace_id") or info.get("request_id") or row.get("trace_id")
    for assessment in objects_in(info.get("assessments")):
        feedback, source = assessment.get("feedback"), as_object(assessment.get("source"))
        if not isinstance(feedback, dict):
            into.leave_out("expectations, which are not verdicts")
            continue
        who = source.get("source_id") or str(source.get("source_type", "judge")).lower()
        value = feedback.get("value")
        value = {"yes": "pass", "no": "fail"}.get(value, value) if isinstance(value, str) else value
        name = assessment.get("assessment_name") or assessment.get("name") or "verdict"
        _verdict(item, who, value, into, str(name), assessment.get("create_time"))


def _mlflow_table(log: dict[str, Any], into: Collector) -> None:
    """A table of results: a column for each metric."""
    names = [str(name) for name in log["columns"]]
    for n, cells in enumerate(log["data"]):
        row = dict(zip(names, _list(cells), strict=False))
        item = row.get("trace_id") or row.get("request_id") or f"row {n}"
        into.about_item(item, input=str(row.get("inputs", row.get("request", ""))))
        for name, value in row.items():
            if metric := _metric(name):
                _verdict(item, metric, value, into, metric)


def _verdict(item: Any, who: Any, value: Any, into: Collector, question: str = "verdict", time: Any = None) -> None:
    """A class or a number, as the value is."""
    if value is None:
        into.leave_out("without a verdict")
    elif isinstance(value, (bool, str)):
        into.choices(question, item, who, [WORDS.get(value, value)], time=time)
    elif isinstance(value, (int, float)):
        into.number(question, item, who, value, time=time)
    else:
        into.leave_out("verdicts of several parts")


READERS = {
    "alpaca-eval": _alpaca, "arena-hard": _hard, "inspect": _inspect, "promptfoo": _promptfoo, "deepeval": _deepeval,
    "harness": _harness, "langfuse": _langfuse,
    "mlflow": _mlflow, "mlflow-table": _mlflow_table,
}  # fmt: skip


SIDES = {"model_a": "left", "model_b": "right"}


def read_arena(files: ExportFiles, into: Collector) -> None:
    """Chatbot Arena and MT-bench: battles of two models, as JSON or JSON lines.

    =============  ==============================================================================================
    items          ``model_a`` (left) and ``model_b`` (right)
    compared on    ``question_id`` (and ``turn``), else ``id``
    annotator      ``judge``, else ``evaluation_session_id`` (which is not a lasting user)
    outcome        ``winner``: model_a, model_b, tie, tie (bothbad), both_bad
    time           ``tstamp``, ``timestamp``
    left out       battles that were not anonymous
    =============  ==============================================================================================
    """
    for row in files.objects(files.names[0]):
        winner = str(row.get("winner"))
        if row.get("anony") is False:
            into.leave_out("not anonymous")
            continue
        side = SIDES.get(winner, "tie" if winner.startswith("tie") or winner == "both_bad" else "")
        if not side:
            into.leave_out("without a winner")
            continue
        question, turn = row.get("question_id", row.get("id")), row.get("turn")
        on = f"{question}, turn {turn}" if isinstance(turn, int) and turn > 1 else question
        into.pair(
            "winner", on, row.get("judge") or row.get("evaluation_session_id") or EVERYONE, row.get("model_a"),
            row.get("model_b"), side, time=row.get("tstamp", row.get("timestamp")),
        )  # fmt: skip
