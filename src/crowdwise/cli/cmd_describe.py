"""``crowdwise describe``: the shape of a file of answers."""

from __future__ import annotations

import json

from crowdwise.cli.options import AS_USUAL, JsonOption, PathArgument, Reading, load, reads
from crowdwise.cli.outputs import emit


@reads
def describe(path: PathArgument, reading: Reading = AS_USUAL, as_json: JsonOption = False) -> None:
    """Show the shape of a file of answers: how many, by whom, on what, and how they spread."""
    from crowdwise.cli import show_aggregate

    table = load(path, reading).table
    if as_json:
        emit(json.dumps({"answer_type": table.answer_type, **table.describe()}))
    else:
        show_aggregate.show_description(table)
