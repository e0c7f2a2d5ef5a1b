"""``crowdwise methods`` (those there are, and their parameters) and ``compare`` (side by side, without any truth)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli.options import (
    DEFAULT_READING,
    JsonOption,
    PathArgument,
    Reading,
    opened,
    option,
    reads,
    words_in,
)
from crowdwise.cli.outputs import check_apart, check_outputs, emit, say, write_table
from crowdwise.data.comparisons import Comparisons
from crowdwise.errors import ExtraError, ParameterError

LabelsOption = Annotated[bool, typer.Option("--labels", help="Only those that look at votes alone (aggregate).")]
LearnersOption = Annotated[
    bool, typer.Option("--learners", help="Only those that learn a classifier from inputs and votes (learn).")
]
AnswersOption = Annotated[
    str | None,
    option("--answers", metavar="TYPE", help="Only those for this answer type, or all for other types than votes."),
]


def methods(
    labels: LabelsOption = False, learners: LearnersOption = False, answers: AnswersOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """List the methods, or (with --json) all about their parameters."""
    from crowdwise.cli import show

    kind = None if answers in (None, "all") else registry.answer_type(str(answers))
    every = not (labels or learners or answers)
    others = [e for e in registry.ANSWER_METHODS.values() if kind in (None, e.answer_type)]
    shown = {
        "methods": list(registry.for_votes().values()) if labels or every or kind == registry.VOTES else [],
        "learners": list(registry.LEARNERS.values()) if learners or every else [],
        "answer_methods": others if answers or every else [],
    }
    if not as_json:
        show.show_methods(*shown.values())
        return
    facts: dict[str, Any] = {
        name: [described(e) for e in entries]
        for name, entries in shown.items()
        if entries or (name == "answer_methods" and answers)
    }
    if "methods" in facts:
        facts["default"] = registry.DEFAULT
    if "learners" in facts:
        facts["default_learner"] = registry.DEFAULT_LEARNER
    if answers or every:
        kinds = registry.ANSWER_TYPES.values()
        facts["answer_types"] = {t.name: {"default": t.default, "says": t.says} for t in kinds}
    if any(method["parameters"] is None and method["inputs"] for part in shown for method in facts.get(part, [])):
        say("Note: the parameters of learners are known where torch is: pip install 'crowdwise[deep]'.")
    emit(json.dumps(facts))


def described(entry: registry.Entry) -> dict[str, Any]:
    """A method as JSON; the parameters are null where what it needs is not installed."""
    from crowdwise.core.result import plain

    out: dict[str, Any] = {
        "key": entry.key, "answer_type": entry.answer_type, "family": entry.family, "inputs": entry.inputs,
        "class": entry.class_name, "summary": entry.summary, "reference": entry.reference, "parameters": None,
    }  # fmt: skip
    if isinstance(entry, registry.Plugin):
        out["docs"] = entry.docs
    try:
        model = entry.load()
    except (ExtraError, ParameterError):
        return out
    out["parameters"] = {name: plain(value) for name, value in model.parameters().items()}
    return out | ({"needs_gold": model.needs_gold} if hasattr(model, "needs_gold") else {})


MethodsOption = Annotated[
    str | None,
    option("--methods", "-m", help=f"Which methods, comma-separated, or all. [default: {','.join(registry.COMPARED)}]"),
]
TruthOption = Annotated[
    Path | None,
    option("--truth", help="True classes (item and label columns), for a column of accuracies and nothing else."),
]
RepeatsOption = Annotated[
    int | None,
    typer.Option("--repeats", min=1, help="How many times votes are held out. [default: 5; fewer from 1 M votes on]"),
]
MostOption = Annotated[
    int | None,
    typer.Option("--max-votes", min=1, help="With more votes, compare on a sample of the items. [default: 3 M]"),
]
ShareOption = Annotated[float, typer.Option("--share", help="The share of the (item, annotator) pairs held out.")]
ReplicatesOption = Annotated[
    int, typer.Option("--replicates", min=0, help="Sets of votes drawn for the checks; 0: no checks.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of splits, draws and methods.")]
OutOption = Annotated[Path | None, option("--out", "-o", help="Write the table here: .csv, .xlsx, .jsonl or .parquet.")]


@reads
def compare(
    path: PathArgument, methods: MethodsOption = None, truth: TruthOption = None,
    repeats: RepeatsOption = None, share: ShareOption = 0.2, replicates: ReplicatesOption = 99,
    max_votes: MostOption = None, reading: Reading = DEFAULT_READING, seed: SeedOption = 0,
    out: OutOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Compare methods without any truth: how well each predicts held-out votes.

    The score is the mean log probability of a held-out vote, so nearer to 0 is better; the interval of how far a method
    is behind the best is paired, over items. Truth, where given, adds a column. Of very many votes a sample is taken;
    the errors shown allow for it. Of comparisons, methods for these predict held-out outcomes.

    Examples:

    `crowdwise compare labels.csv`

    `crowdwise compare labels.csv --methods auto,majority,dawid-skene,glad --truth truth.csv --json`
    """
    from crowdwise import api
    from crowdwise.cli import show
    from crowdwise.trust.method_comparison import how_many

    check_outputs(out)
    check_apart([path, truth], [out])
    asked = words_in(methods) or registry.COMPARED
    source = opened(path, reading, also="comparisons")
    table = source.answers.table
    if isinstance(table, Comparisons):
        if truth is not None:
            raise ParameterError("--truth is the true class of items, and these are comparisons: leave it out.")
        names = words_in(methods) or list(registry.COMPARED_PAIRS)
        with show.steps(len(names) * ((repeats or 5) + 1)) as progress:
            pairs = api.compare(table, names, repeats=repeats, share=share, random_state=seed, progress=progress)
        if out is not None:
            write_table(pairs.to_frame("methods", kind="polars"), out)
        emit(json.dumps(pairs.to_dict())) if as_json else show.show_comparison(pairs, "comparisons")
        return
    keys = api.compared("all" if list(asked) == ["all"] else asked)
    votes = table
    known = None if truth is None else votes.encode_truth(votes.read_truth(truth))
    more = {} if max_votes is None else {"max_votes": max_votes}
    with show.steps(len(keys) * (how_many(votes, repeats, **more) + 1)) as progress:
        comparison = api.compare(
            votes, keys, truth=known, repeats=repeats, share=share, replicates=replicates, random_state=seed,
            progress=progress, **more,
        )  # fmt: skip
    if out is not None:
        write_table(comparison.to_frame("methods", kind="polars"), out)
    if as_json:
        emit(json.dumps(comparison.to_dict()))
    else:
        show.show_comparison(comparison)
