"""``crowdwise compare``: methods side by side, without any truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from crowdwise import registry
from crowdwise.cli.options import AS_USUAL, JsonOption, PathArgument, Reading, load_votes, option, reads, words_in
from crowdwise.cli.outputs import check_apart, check_outputs, emit, write_table

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
OutOption = Annotated[Path | None, option("--out", "-o", help="Write the table here: .csv, .jsonl or .parquet.")]


@reads
def compare(
    path: PathArgument, methods: MethodsOption = None, truth: TruthOption = None,
    repeats: RepeatsOption = None, share: ShareOption = 0.2, replicates: ReplicatesOption = 99,
    max_votes: MostOption = None, reading: Reading = AS_USUAL, seed: SeedOption = 0,
    out: OutOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Compare methods without any truth: how well each predicts held-out votes.

    The score is the mean log probability of a held-out vote, so nearer to 0 is better; the interval of how far a method
    is behind the best is paired, over items. Truth, where given, adds a column. Of very many votes a sample is taken;
    the errors shown allow for it.

    Examples:

    `crowdwise compare labels.csv`

    `crowdwise compare labels.csv --methods auto,majority,dawid-skene,glad --truth truth.csv --json`
    """
    from crowdwise import api
    from crowdwise.cli import show, show_compare
    from crowdwise.trust.method_comparison import how_many

    check_outputs(out)
    check_apart([path, truth], [out])
    asked = words_in(methods) or registry.COMPARED
    keys = api.compared("all" if list(asked) == ["all"] else asked)
    votes = load_votes(path, reading).votes
    known = None if truth is None else votes.encode_truth(votes.read_truth(truth))
    more = {} if max_votes is None else {"max_votes": max_votes}
    with show.steps(len(keys) * (how_many(votes, repeats, **more) + 1)) as progress:
        found = api.compare(
            votes, keys, truth=known, repeats=repeats, share=share, replicates=replicates, random_state=seed,
            progress=progress, **more,
        )  # fmt: skip
    if out is not None:
        write_table(found.to_frame("methods", kind="polars"), out)
    if as_json:
        emit(json.dumps(found.to_dict()))
    else:
        show_compare.show_comparison(found)
