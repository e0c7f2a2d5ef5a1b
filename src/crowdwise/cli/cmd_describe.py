"""``crowdwise describe``: the shape of a file of answers."""

from __future__ import annotations

import json

from crowdwise.cli.options import DEFAULT_READING, JsonOption, PathArgument, Reading, load, reads
from crowdwise.cli.outputs import emit


@reads
def describe(path: PathArgument, reading: Reading = DEFAULT_READING, as_json: JsonOption = False) -> None:
    """Show the shape of a file of answers: how many, by whom, and how they spread."""
    from crowdwise.cli import show_aggregate
    from crowdwise.trust.annotators import coverage_table

    table = load(path, reading).table
    if as_json:
        facts = {"answer_type": table.answer_type, **table.describe()}
        if show_aggregate.is_of_rules(table):
            facts["coverage"] = coverage_table(table, kind="polars").fill_nan(None).to_dicts()
        emit(json.dumps(facts))
    else:
        show_aggregate.show_description(table)
