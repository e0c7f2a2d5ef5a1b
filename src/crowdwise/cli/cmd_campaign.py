"""The commands about campaigns: parse, call, print. :mod:`crowdwise.cli.main` puts them beside the others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from crowdwise import registry
from crowdwise.cli.campaign_files import FolderArgument, counted, opened, read_annotators, read_items, report, server
from crowdwise.cli.cmd_campaign_changes import CHANGES
from crowdwise.cli.options import FixedSeedOption, JsonOption, SetOption, StreamMethodOption, assignments, option
from crowdwise.cli.outputs import check_outputs, emit, emit_table, say, write_table
from crowdwise.cli.piped import piped
from crowdwise.errors import LabelError, ParameterError, ReadError, listing

DEFAULT = "one-coin"
STANDING = ("state", "stop", "advice")
"""What ``status`` and ``next`` say about how a campaign stands."""

campaign = typer.Typer(
    help="Ask the right annotator about the right item, until labels are good enough.", no_args_is_help=True
)

ServerOption = Annotated[
    str | None,
    option(
        "--server", envvar="CROWDWISE_SERVER",
        help="The address of a crowdwise server: campaigns there, not in folders. The token: CROWDWISE_TOKEN.",
    ),
]  # fmt: skip


@campaign.callback()
def group(address: ServerOption = None) -> None:
    """Ask the right annotator about the right item, until labels are good enough."""
    server.set(address)


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
    probability: ProbabilityOption = 0.9, max_votes: MaxVotesOption = None, gap: GapOption = None,
    unknown: UnknownOption = "error", patience: PatienceOption = 3600.0, seed: FixedSeedOption = 0,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Make a campaign: what is to be labelled, by whom, at what price, until when.

    Example: `crowdwise campaign init birds --classes wren,robin --items items.csv --annotators people.csv --budget 500`
    """
    from crowdwise.active.stopping import StopRule
    from crowdwise.active.strategies import find_strategy
    from crowdwise.store.campaign import Campaign

    names, gold, groups = ([], {}, {}) if items is None else read_items(items)
    people: Any = () if annotators is None else read_annotators(annotators, price)
    kinds = [c.strip() for c in classes.split(",")]
    odd = next((name for name, known in gold.items() if str(known) not in kinds), None)
    if odd is not None:  # before there is a folder
        raise LabelError(
            f"{items}: the truth of {odd!r} is {gold[odd]!r}, and the classes are {listing(kinds, 10)}. Mend the "
            "table, or name every class: --classes."
        )
    chosen = replace(find_strategy(strategy), gold_rate=gold_rate)
    rule = StopRule(budget=budget, target=target, probability=probability, max_votes=max_votes)
    if server.get() is not None:
        from crowdwise.cli.campaign_files import create_remote

        if gap is not None:
            raise ParameterError("gap: groups of items are not balanced by the server; use a campaign folder for that.")
        facts = create_remote(
            str(server.get()), str(folder), kinds, names, gold, groups, people, method=method, params=assignments(set_),
            strategy=strategy, gold_rate=gold_rate, price=price, unknown=unknown, patience=patience, seed=seed,
            **rule.get_params(),
        )  # fmt: skip
        line = f"a campaign with {facts['items']:,} items and {facts['annotators']:,} annotators, {facts['campaign']}"
        report(facts, as_json, f"{folder}: {line}")
        return
    with Campaign.create(
        folder, registry.create(method, **assignments(set_)), classes=kinds, items=names, annotators=people,
        price=price, rule=rule, gold=gold, groups=groups, gap=gap, strategy=chosen, unknown=unknown, patience=patience,
        random_state=seed,
    ) as made:  # fmt: skip
        status = made.status()
    report(
        status, as_json, f"{folder}: a campaign with {status['items']:,} items and {status['annotators']:,} annotators"
    )


VotesArgument = Annotated[
    Path,
    typer.Argument(help="A file of votes: item, annotator, label (and vote_id). - is standard input.", callback=piped),
]


@campaign.command("add")
def add(folder: FolderArgument, votes: VotesArgument, as_json: JsonOption = False) -> None:
    """Take in votes, all or none. A vote that is added twice counts once.

    Example: `crowdwise campaign add birds today.csv`
    """
    from crowdwise.data.files import read_table

    table, _ = read_table(votes)
    with opened(folder) as made:
        receipt = made.add(table)
    facts = {"added": receipt.added, "repeated": receipt.repeated}
    report(facts, as_json, f"{receipt.added:,} votes added, {receipt.repeated:,} were there already")


NOption = Annotated[int, typer.Option("-n", "--questions", min=1, help="How many questions.")]
OutOption = Annotated[Path | None, option("--out", "-o", help="Write them here: .csv, .jsonl or .parquet.")]
ForOption = Annotated[
    str | None, option("--annotator", "-a", help="What this annotator should do now: open questions, then new ones.")
]


@campaign.command("next")
def next_(
    folder: FolderArgument, n: NOption = 10, annotator: ForOption = None, out: OutOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Say who should be asked about what next, best first.

    Examples: `crowdwise campaign next birds -n 100 --out questions.csv`, `crowdwise campaign next birds -a ann -n 1`
    """
    import polars as pl

    check_outputs(out)
    with opened(folder) as made:
        asked = made.propose(n) if annotator is None else made.next_for(annotator, n)
        facts = made.status()
        why = made.why_none(annotator) if not asked else None
    columns = {name: [getattr(q, name) for q in asked] for name in ("item", "annotator", "price", "value")}
    if out is not None:
        write_table(pl.DataFrame(columns), out)
    if as_json:
        questions = [vars(q) for q in asked]
        emit(json.dumps({"questions": questions, "why_none": why} | {key: facts[key] for key in STANDING}))
    elif out is None:
        emit_table(pl.DataFrame(columns))
    if not as_json:
        say(f"{counted(len(asked), 'question')}." if asked else f"No questions: {why}.")


@campaign.command("status")
def status(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Say how far it is: votes, money, the estimated accuracy of the labels, and whether to stop."""
    from crowdwise.cli import show_campaign

    with opened(folder) as made:
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
    with opened(folder) as made:
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


def save_rest(folder: Path, out: Path) -> None:
    """What can be read of a damaged journal."""
    import polars as pl

    from crowdwise.store.journal import salvage

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


for _name, _function in CHANGES.items():
    campaign.command(_name)(_function)
