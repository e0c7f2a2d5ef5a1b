"""The commands about campaigns: parse, call, print. :mod:`crowdwise.cli.main` puts them beside the others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from crowdwise import registry
from crowdwise.cli.options import FixedSeedOption, JsonOption, SetOption, StreamMethodOption, assignments, option
from crowdwise.cli.outputs import check_outputs, emit, emit_table, say, write_table
from crowdwise.errors import ColumnError, InputError, LabelError, ReadError, listing
from crowdwise.saved import open_campaign

DEFAULT = "one-coin"

campaign = typer.Typer(
    help="Ask the right annotator about the right item, until labels are good enough.", no_args_is_help=True
)

FolderArgument = Annotated[Path, typer.Argument(help="The folder of the campaign.", show_default=False)]
ClassesOption = Annotated[str, option("--classes", help="All classes, comma-separated.")]
ItemsOption = Annotated[
    Path | None, option("--items", help="A table with an item column (and truth, group, where known).")
]
AnnotatorsOption = Annotated[Path | None, option("--annotators", help="A table with an annotator column (and price).")]
StrategyOption = Annotated[str, typer.Option("--strategy", help="How the next questions are chosen.")]
GoldRateOption = Annotated[float, typer.Option("--gold-rate", help="The share of questions whose answer is known.")]
PriceOption = Annotated[float, typer.Option("--price", help="What a vote costs, where no price is given.")]
BudgetOption = Annotated[float | None, option("--budget", help="Stop when so much is spent.")]
TargetOption = Annotated[float | None, option("--target", help="Stop when the labels are so accurate.")]
ProbabilityOption = Annotated[
    float, typer.Option("--probability", help="An item is finished when its class is so probable.")
]
MaxVotesOption = Annotated[int | None, option("--max-votes", help="The most votes on an item.")]
GapOption = Annotated[float | None, option("--gap", help="The largest gap in errors expected between groups of items.")]
UnknownOption = Annotated[
    Literal["error", "add"],
    typer.Option("--unknown", help="Votes on items or by annotators not declared: error, or add."),
]
PatienceOption = Annotated[
    float, typer.Option("--patience", help="Seconds after which an unanswered question is asked again.")
]


@campaign.command("init")
def init(
    folder: FolderArgument, classes: ClassesOption, items: ItemsOption = None, annotators: AnnotatorsOption = None,
    method: StreamMethodOption = DEFAULT, set_: SetOption = None, strategy: StrategyOption = "value",
    gold_rate: GoldRateOption = 0.0, price: PriceOption = 1.0, budget: BudgetOption = None, target: TargetOption = None,
    probability: ProbabilityOption = 0.95, max_votes: MaxVotesOption = None, gap: GapOption = None,
    unknown: UnknownOption = "error", patience: PatienceOption = 3600.0, seed: FixedSeedOption = 0,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Make a campaign: what is to be labelled, by whom, at what price, until when.

    Example: `crowdwise campaign init birds --classes wren,robin --items items.csv --annotators people.csv --budget 500`
    """
    from crowdwise.active.campaign import Campaign
    from crowdwise.active.stopping import StopRule
    from crowdwise.active.strategies import find_strategy

    names, gold, groups = ([], {}, {}) if items is None else read_items(items)
    people: Any = () if annotators is None else read_annotators(annotators, price)
    kinds = [c.strip() for c in classes.split(",")]
    odd = next((name for name, known in gold.items() if known not in kinds), None)
    if odd is not None:  # before there is a folder
        raise LabelError(
            f"{items}: the truth of {odd!r} is {gold[odd]!r}, and the classes are {listing(kinds, 10)}. Mend the "
            "table, or name every class: --classes."
        )
    chosen = replace(find_strategy(strategy), gold_rate=gold_rate)
    rule = StopRule(budget=budget, target=target, probability=probability, max_votes=max_votes)
    params = assignments(set_)
    with Campaign.create(
        folder, registry.create(method, **params), classes=kinds, items=names, annotators=people, price=price,
        rule=rule, gold=gold, groups=groups, gap=gap, strategy=chosen, unknown=unknown, patience=patience,
        random_state=seed,
    ) as made:  # fmt: skip
        with made.journal.writing():
            made.journal.note(params=params)
        status = made.status()
    report(
        status, as_json, f"{folder}: a campaign with {status['items']:,} items and {status['annotators']:,} annotators"
    )


VotesArgument = Annotated[Path, typer.Argument(help="A file of votes: item, annotator, label (and vote_id).")]


@campaign.command("add")
def add(folder: FolderArgument, votes: VotesArgument, as_json: JsonOption = False) -> None:
    """Take in votes, all or none. A vote that is added twice counts once.

    Example: `crowdwise campaign add birds today.csv`
    """
    rows, ids = read_rows(votes)
    with open_campaign(folder) as made:
        rows = [(item, who, like(label, made.classes)) for item, who, label in rows]
        receipt = made.add(rows, ids)
    facts = {"added": receipt.added, "repeated": receipt.repeated}
    report(facts, as_json, f"{receipt.added:,} votes added, {receipt.repeated:,} were there already")


NOption = Annotated[int, typer.Option("-n", "--questions", min=1, help="How many questions.")]
OutOption = Annotated[Path | None, option("--out", "-o", help="Write them here: .csv, .jsonl or .parquet.")]


@campaign.command("next")
def next_(folder: FolderArgument, n: NOption = 10, out: OutOption = None, as_json: JsonOption = False) -> None:
    """Say who should be asked about what next, best first.

    Example: `crowdwise campaign next birds -n 100 --out questions.csv`
    """
    import polars as pl

    check_outputs(out)
    with open_campaign(folder) as made:
        asked = made.propose(n)
        why = made.status()["stop"] if not asked else None
    columns = {name: [getattr(q, name) for q in asked] for name in ("item", "annotator", "price", "value")}
    if out is not None:
        write_table(pl.DataFrame(columns), out)
    if as_json:
        emit(json.dumps({"questions": [vars(q) for q in asked], "stop": why}))
    elif out is None:
        emit_table(pl.DataFrame(columns))
    if not as_json:
        say(
            f"{len(asked):,} questions."
            if asked
            else f"No questions: {why or 'no item needs a vote somebody can give'}."
        )


@campaign.command("status")
def status(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Say how far it is: votes, money, the estimated accuracy of the labels, and whether to stop."""
    from crowdwise.cli import show_campaign

    with open_campaign(folder) as made:
        facts = made.status()
    if as_json:
        emit(json.dumps(facts))
    else:
        show_campaign.show_status(folder.name, facts)


ExportOutOption = Annotated[Path | None, option("--out", "-o", help="The labels so far, with probabilities.")]
ExportAnnotatorsOption = Annotated[Path | None, option("--annotators", help="The table of annotators.")]
VotesOption = Annotated[Path | None, option("--votes", help="All votes.")]
SalvageOption = Annotated[
    Path | None, option("--salvage", help="Of a damaged campaign: the votes that can still be read, .csv.")
]


@campaign.command("export")
def export(
    folder: FolderArgument, out: ExportOutOption = None, annotators: ExportAnnotatorsOption = None,
    votes: VotesOption = None, salvage: SalvageOption = None,
) -> None:  # fmt: skip
    """Write labels, annotators or votes to files. Without any of these, the labels go to standard output as CSV."""
    check_outputs(out, annotators, votes)
    if salvage is not None:
        check_outputs(salvage, endings=(".csv",))
        save_rest(folder, salvage)
        return
    with open_campaign(folder) as made:
        consensus = made.consensus()
        if out is not None:
            write_table(consensus.to_frame("items", kind="polars", probabilities=True), out)
        if annotators is not None:
            write_table(consensus.to_frame("annotators", kind="polars"), annotators)
        if votes is not None:
            write_table(made.votes().to_frame("polars"), votes)
    written = [str(p) for p in (out, annotators, votes) if p is not None]
    if written:
        say(f"Written: {', '.join(written)}.")
    else:
        emit_table(consensus.to_frame("items", kind="polars", probabilities=True))


def read_items(path: Path) -> tuple[list[Any], dict[Any, Any], dict[Any, Any]]:
    """The items of a table, and their truth and group where there are columns of these."""
    from crowdwise.data.columns import find, normal
    from crowdwise.data.files import read_table

    table, _ = read_table(path)
    item, truth = find(table.columns, "item"), find(table.columns, "truth")
    if item is None:
        raise ColumnError(f"{path} has no item column: it has {', '.join(table.columns)}.")
    names = table[item].to_list()
    if any(name is None for name in names):
        raise InputError(f"{path}: row {names.index(None)} (counted from 0) names no item.")
    group = next((c for c in table.columns if normal(c) == "group"), None)
    known, groups = (
        {} if column is None else {n: x for n, x in zip(names, table[column].to_list(), strict=True) if x is not None}
        for column in (truth, group)
    )
    return names, known, groups


def read_annotators(path: Path, price: float) -> dict[Any, float]:
    """Annotators and what a vote of theirs costs."""
    from crowdwise.data.columns import find, normal
    from crowdwise.data.files import read_table

    table, _ = read_table(path)
    who = find(table.columns, "annotator")
    if who is None:
        raise ColumnError(f"{path} has no annotator column: it has {', '.join(table.columns)}.")
    costs = next((c for c in table.columns if normal(c) in ("price", "cost")), None)
    out: dict[Any, float] = {}
    for row, name in enumerate(table[who].to_list()):
        if name is None:
            raise InputError(f"{path}: row {row} (counted from 0) names no annotator.")
        given = None if costs is None else table[costs][row]
        try:
            out[name] = price if given is None else float(given)
        except ValueError:
            raise InputError(
                f"{path}: row {row} (counted from 0) has the price {given!r}: expected a number."
            ) from None
    return out


def read_rows(path: Path) -> tuple[list[tuple[Any, Any, Any]], list[Any] | None]:
    """Votes as they stand in a file, and their ids where it has a column of them."""
    from crowdwise.data.columns import left_over, normal
    from crowdwise.data.files import read_table
    from crowdwise.data.source import Source

    table, _ = read_table(path)
    needed = ("item", "annotator", "label")
    source = Source(table, dict.fromkeys(needed), "votes")
    source.require(needed)
    columns = [source[part].to_list() for part in needed]
    vote = next((c for c in left_over(table.columns, source.parts) if normal(c) in ("vote", "answer")), None)
    return list(zip(*columns, strict=True)), None if vote is None else table[vote].to_list()


def like(label: Any, classes: list[Any]) -> Any:
    """A label as the classes have it: files hold text where classes may be numbers."""
    return next((c for c in classes if c == label or str(c) == str(label)), label)


def save_rest(folder: Path, out: Path) -> None:
    """What can be read of a damaged journal."""
    import polars as pl

    from crowdwise.active.salvage import salvage

    journal = folder / "campaign.db"
    if not journal.is_file():
        raise ReadError(f"There is no campaign in {folder}.")
    rows, lost = salvage(journal)
    columns = {
        "vote_id": [r[0] for r in rows],
        **{name: [str(json.loads(r[i])) for r in rows] for i, name in ((1, "item"), (2, "annotator"), (3, "label"))},
    }
    write_table(pl.DataFrame(columns), out)
    say(f"{len(rows):,} votes written to {out}; {lost:,} rows could not be read.")


def report(facts: dict[str, Any], as_json: bool, line: str) -> None:
    if as_json:
        emit(json.dumps(facts))
    else:
        say(f"{line}.")
