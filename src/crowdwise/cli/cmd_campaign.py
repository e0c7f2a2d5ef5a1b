"""The commands about campaigns: parse, call, print."""

from __future__ import annotations

import json
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import typer

from crowdwise import registry
from crowdwise.cli.options import FixedSeedOption, JsonOption, SetOption, StreamMethodOption, assignments, option
from crowdwise.cli.outputs import check_outputs, emit, emit_table, piped, say, write_table
from crowdwise.client import Client, RemoteCampaign
from crowdwise.data.heavy import pl
from crowdwise.errors import ColumnError, InputError, LabelError, ParameterError, ReadError, listing
from crowdwise.trust.wording import counted

server: ContextVar[str | None] = ContextVar("server", default=None)
"""The address of the server whose campaigns are meant (``campaign --server``), or nothing for folders."""
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


FolderArgument = Annotated[
    Path, typer.Argument(help="The folder of the campaign; with --server its name or id.", show_default=False)
]


def opened(folder: Path) -> Any:
    """The campaign in a folder, or of that name on a server."""
    address = server.get()
    if address is not None:
        remote = Client(address).campaign(str(folder))
        return Remote(remote.client, remote.id, remote.name)
    from crowdwise.store.campaign import Campaign

    return Campaign.open(folder)


def read_names(path: Path, part: str, *others: str) -> tuple[Any, list[Any], str | None]:
    """A table of items or annotators, their names, and the column that is called like one of ``others``."""
    from crowdwise.data.columns import find, normal
    from crowdwise.data.files import read_table
    from crowdwise.data.places import place_in

    table, _ = read_table(path)
    column = find(table.columns, part)
    if column is None:
        raise ColumnError(f"{path} has no {part} column: it has {', '.join(table.columns)}.")
    names = table[column].to_list()
    if None in names:
        raise InputError(f"{path}: {place_in(path, table, names.index(None))} names no {part}.")
    return table, names, next((c for c in table.columns if normal(c) in others), None)


def read_items(path: Path) -> tuple[list[Any], dict[Any, Any], dict[Any, Any]]:
    """The items of a table, and their truth and group where there are columns of these."""
    from crowdwise.data.columns import find

    table, names, group = read_names(path, "item", "group")
    known, groups = (
        {} if column is None else {n: x for n, x in zip(names, table[column].to_list(), strict=True) if x is not None}
        for column in (find(table.columns, "truth"), group)
    )
    return names, known, groups


def read_annotators(path: Path, price: float) -> dict[Any, float]:
    """Annotators and what a vote of theirs costs."""
    from crowdwise.data.places import place_in

    table, names, costs = read_names(path, "annotator", "price", "cost")
    out: dict[Any, float] = {}
    for row, name in enumerate(names):
        own = None if costs is None else table[costs][row]
        try:
            out[name] = price if own is None else float(own)
        except ValueError:
            where = place_in(path, table, row)
            raise InputError(f"{path}: {where} has the price {own!r}: expected a number.") from None
    return out


def report(facts: dict[str, Any], as_json: bool, line: str) -> None:
    if as_json:
        emit(json.dumps(facts))
    else:
        say(f"{line}.")


class Remote(RemoteCampaign):
    """A campaign on a server, with what commands call of one in a folder: tables of polars, questions with prices."""

    @property
    def settings(self) -> Any:
        return SimpleNamespace(**super().settings)

    def propose(self, n: int) -> Any:
        raise ParameterError(
            "A server hands questions to one annotator at a time: name the annotator, --annotator NAME."
        )

    def next_for(self, annotator: Any = None, n: int = 1) -> list[Any]:
        price = {str(row["annotator"]): row["price"] for row in self._call("GET", "/annotators")}
        known = {"annotator": annotator, "price": price.get(annotator), "value": None}  # which a server does not show
        return [SimpleNamespace(item=question.item, **known) for question in super().next_for(annotator, n)]

    def consensus(self) -> Any:
        return SimpleNamespace(to_frame=lambda table, kind, **more: self.consensus_frame(table, **more))

    def votes(self) -> Any:
        names = {"item": "item", "annotator": "annotator", "label": "label", "timestamp": "time"}
        rows = list(super().votes())
        table = pl.DataFrame({name: [row[part] for row in rows] for name, part in names.items()})
        return SimpleNamespace(to_frame=lambda kind: table)


ITEMS_HELP = "Items, by name."
ItemsFile = Annotated[Path, typer.Argument(help="A table with an item column (and truth, group, where known).")]
PeopleFile = Annotated[Path, typer.Argument(help="A table with an annotator column (and price).")]
NamesArgument = Annotated[list[str] | None, typer.Argument(help=ITEMS_HELP, show_default=False)]
FromOption = Annotated[Path | None, option("--from", help="A table with an item column, instead of names.")]
ReopenOption = Annotated[bool, typer.Option("--reopen", help="Open them again.")]
AnnotatorArgument = Annotated[str, typer.Argument(help="The annotator.", show_default=False)]
LIMIT = "A number, or none."
MAX_ERROR = "Stop when random gold labels prove that at most so many labels are wrong: campaign prove."
CONFIDENCE = "The confidence of that proof."


def limit(name: str, text: str | None) -> dict[str, Any]:
    """A setting that may be taken away: a number, or ``none``."""
    if text is None:
        return {}
    if text.strip().lower() == "none":
        return {name: None}
    try:
        value = float(text)
    except ValueError:
        raise ParameterError(f"--{name.replace('_', '-')} {text}: expected a number, or none.") from None
    return {name: int(value) if value.is_integer() and name.endswith("votes") else value}


DEFAULT = "one-coin"
STANDING = ("state", "stop", "advice")
"""What ``status`` and ``next`` say about the status of a campaign."""

ClassesOption = Annotated[str, option("--classes", help="All classes, comma-separated.")]
ItemsOption = Annotated[
    Path | None, option("--items", help="A table with an item column (and truth, group, where known).")
]
AnnotatorsOption = Annotated[Path | None, option("--annotators", help="A table with an annotator column (and price).")]
StrategyOption = Annotated[str, typer.Option("--strategy", help="How the next questions are chosen.")]
GoldRateOption = Annotated[float, typer.Option("--gold-rate", help="The share of questions whose answer is known.")]
PriceOption = Annotated[float, typer.Option("--price", help="What a vote costs, where no price is given.")]
BudgetOption = Annotated[float | None, option("--budget", help="Stop when so much is spent.")]
MaxErrorOption = Annotated[float | None, option("--max-error", help=MAX_ERROR)]
ConfidenceOption = Annotated[float, typer.Option("--confidence", help=CONFIDENCE)]
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
    max_error: MaxErrorOption = None, confidence: ConfidenceOption = 0.95,
    unknown: UnknownOption = "error", patience: PatienceOption = 3600.0, seed: FixedSeedOption = 0,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Make a campaign: items, annotators, prices and when to stop.

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
            f"{items}: the truth of {odd!r} is {gold[odd]!r}, and the classes are {listing(kinds, 10)}. Correct the "
            "table, or name every class: --classes."
        )
    chosen = replace(find_strategy(strategy), gold_rate=gold_rate)
    rule = StopRule(
        budget=budget, target=target, probability=probability, max_votes=max_votes, max_error=max_error,
        confidence=confidence,
    )  # fmt: skip
    if server.get() is not None:
        if gap is not None:
            raise ParameterError("gap: groups of items are not balanced by the server; use a campaign folder for that.")
        with Client(str(server.get())) as client:
            remote = client.create_campaign(
                str(folder), classes=kinds, method=method, params=assignments(set_), strategy=strategy,
                gold_rate=gold_rate, price=price, unknown=unknown, patience=patience, seed=seed, **rule.get_params(),
            )  # fmt: skip
            remote.add_items(names, gold, groups)
            remote.add_annotators(people)
            facts = remote.status()
        line = f"a campaign with {facts['items']:,} items and {facts['annotators']:,} annotators, {facts['campaign']}"
        report(facts, as_json, f"{folder}: {line}")
        return
    with Campaign.create(
        folder, registry.create(method, **assignments(set_)), classes=kinds, items=names, annotators=people,
        price=price, rule=rule, gold=gold, groups=groups, gap=gap, strategy=chosen, unknown=unknown, patience=patience,
        random_state=seed,
    ) as live:  # fmt: skip
        status = live.status()
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
    with opened(folder) as live:
        receipt = live.add(table)
    facts = {"added": receipt.added, "repeated": receipt.repeated}
    report(facts, as_json, f"{receipt.added:,} votes added, {receipt.repeated:,} were there already")


NOption = Annotated[int, typer.Option("-n", "--questions", min=1, help="How many questions.")]
OutOption = Annotated[Path | None, option("--out", "-o", help="Write them here: .csv, .xlsx, .jsonl or .parquet.")]
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
    check_outputs(out)
    with opened(folder) as live:
        asked = live.propose(n) if annotator is None else live.next_for(annotator, n)
        facts = live.status()
        why = live.why_none(annotator) if not asked else None
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
    from crowdwise.cli import show

    with opened(folder) as live:
        facts = live.status()
    if as_json:
        emit(json.dumps(facts))
    else:
        show.show_status(folder.name, facts)


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
    with opened(folder) as live:
        consensus = live.consensus()
        if out is not None:
            write_table(consensus.to_frame("items", kind="polars", probabilities=True), out)
        if annotators is not None:
            write_table(consensus.to_frame("annotators", kind="polars"), annotators)
        if votes is not None:
            write_table(live.votes().to_frame("polars"), votes)
    written = [str(p) for p in (out, annotators, votes) if p is not None]
    if written:
        say(f"Written: {', '.join(written)}.")
    else:
        emit_table(consensus.to_frame("items", kind="polars", probabilities=True))


def save_rest(folder: Path, out: Path) -> None:
    """What can be read of a damaged journal."""
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


@campaign.command("set")
def set_(
    folder: FolderArgument,
    budget: Annotated[str | None, option("--budget", help=f"Stop when so much is spent. {LIMIT}")] = None,
    target: Annotated[str | None, option("--target", help=f"Stop when the labels are so accurate. {LIMIT}")] = None,
    probability: Annotated[
        str | None, option("--probability", help=f"An item is finished when its class is so probable. {LIMIT}")
    ] = None,
    max_votes: Annotated[str | None, option("--max-votes", help=f"The most votes on an item. {LIMIT}")] = None,
    min_votes: Annotated[int | None, option("--min-votes", help="The least votes on an item.")] = None,
    price: Annotated[float | None, option("--price", help="What a vote costs, where no price is given.")] = None,
    patience: Annotated[
        float | None, option("--patience", help="Seconds after which an unanswered question is asked again.")
    ] = None,
    gap: Annotated[str | None, option("--gap", help=f"The largest gap in errors between groups. {LIMIT}")] = None,
    max_error: Annotated[str | None, option("--max-error", help=f"{MAX_ERROR} {LIMIT}")] = None,
    confidence: Annotated[float | None, option("--confidence", help=CONFIDENCE)] = None,
    as_json: JsonOption = False,
) -> None:
    """Change settings of a running campaign. The change is written into its journal.

    Example: `crowdwise campaign set birds --budget 800 --target 0.97`
    """
    texts = {"budget": budget, "target": target, "probability": probability, "gap": gap, "max_votes": max_votes}
    changes: dict[str, Any] = {}
    for name, text in {**texts, "max_error": max_error}.items():
        changes |= limit(name, text)
    plain = {"min_votes": min_votes, "price": price, "patience": patience, "confidence": confidence}
    changes |= {name: value for name, value in plain.items() if value is not None}
    if not changes:
        raise ParameterError("Nothing to set: give --budget, --target, --probability or another option.")
    with opened(folder) as live:
        changed = live.change(**changes)
        facts = live.status()
    parts = [f"{name.replace('_', ' ')} {word(old)} -> {word(new)}" for name, (old, new) in changed.items()]
    line = "; ".join(parts) if parts else "Nothing was different"
    out = {"changed": {name: list(pair) for name, pair in changed.items()}, "state": facts["state"]}
    report(out, as_json, f"{line}. The campaign is {facts['state']}")


def word(value: Any) -> str:
    return "none" if value is None else f"{value:g}"


@campaign.command("add-items")
def add_items(folder: FolderArgument, items: ItemsFile, as_json: JsonOption = False) -> None:
    """Add items, or the truth and group of items that are there.

    Example: `crowdwise campaign add-items birds more.csv`
    """
    names, gold, groups = read_items(items)
    with opened(folder) as live:
        new = live.add_items(names, gold, groups)
    report(
        {"new": new, "known": len(names) - new},
        as_json,
        f"{counted(new, 'item')} added, {len(names) - new:,} were there",
    )


@campaign.command("close-items")
def close_items(
    folder: FolderArgument, items: NamesArgument = None, table: FromOption = None, reopen: ReopenOption = False,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Ask nothing more about items, and refuse votes on them.

    Example: `crowdwise campaign close-items birds photo7 photo9`
    """
    names = [*(items or []), *([] if table is None else read_items(table)[0])]
    if not names:
        raise InputError("Name the items, or give a table of them: --from FILE.")
    with opened(folder) as live:
        live.close_items(names, not reopen)
    done = "reopened" if reopen else "closed"
    report({done: len(names)}, as_json, f"{counted(len(names), 'item')} {done}")


@campaign.command("add-annotators")
def add_annotators(folder: FolderArgument, annotators: PeopleFile, as_json: JsonOption = False) -> None:
    """Add annotators, or change the prices of those who are there.

    Example: `crowdwise campaign add-annotators birds people.csv`
    """
    with opened(folder) as live:
        people = read_annotators(annotators, live.settings.price)
        new = live.add_annotators(people)
    known = len(people) - new
    report({"new": new, "known": known}, as_json, f"{counted(new, 'annotator')} added, {known:,} were there")


@campaign.command("set-annotator")
def set_annotator(
    folder: FolderArgument,
    annotator: AnnotatorArgument,
    available: Annotated[
        bool | None, option("--available/--away", help="Whether questions may be asked of the annotator.")
    ] = None,
    max_votes: Annotated[int | None, option("--max-votes", help="The most votes of the annotator, in all.")] = None,
    price: Annotated[float | None, option("--price", help="What a vote costs from now on.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether an annotator is available, how many votes the annotator may give, and what they cost.

    Example: `crowdwise campaign set-annotator birds ann --away`
    """
    changes: dict[str, Any] = {"available": available, "max_votes": max_votes, "price": price}
    changes = {name: value for name, value in changes.items() if value is not None}
    if not changes:
        raise ParameterError("Nothing to set: give --available, --away, --max-votes or --price.")
    with opened(folder) as live:
        live.set_annotator(annotator, **changes)
    words_for = {"available": "available" if available else "away", "max_votes": f"{max_votes} votes at most"}
    words = [words_for.get(name, f"price {value:g}") for name, value in changes.items()]
    report({"annotator": annotator, **changes}, as_json, f"{annotator}: {', '.join(words)}")


WhoOption = Annotated[str | None, option("--annotator", "-a", help="The annotator whose questions these are.")]


@campaign.command("release")
def release(
    folder: FolderArgument, items: NamesArgument = None, annotator: WhoOption = None, as_json: JsonOption = False
) -> None:
    """Take back questions that are out: of an annotator, about items, or both. Others can be asked at once.

    Example: `crowdwise campaign release birds --annotator ann`
    """
    with opened(folder) as live:
        n = live.release(annotator, items or None)
    report({"released": n}, as_json, f"{counted(n, 'question')} released")


@campaign.command("skip")
def skip(
    folder: FolderArgument,
    annotator: AnnotatorArgument,
    items: Annotated[list[str], typer.Argument(help=ITEMS_HELP, show_default=False)],
    undo: Annotated[bool, typer.Option("--undo", help="Ask the annotator about them again.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask an annotator nothing more about items: the annotator cannot or will not answer.

    Example: `crowdwise campaign skip birds ann photo7`
    """
    with opened(folder) as live:
        live.skip(annotator, items, not undo)
    done = "asked again" if undo else "skipped"
    report(
        {"annotator": annotator, "items": items, "skipped": not undo}, as_json, f"{counted(len(items), 'item')} {done}"
    )


@campaign.command("prove")
def prove(
    folder: FolderArgument,
    ask: Annotated[
        int | None, option("--ask", min=1, help="Draw so many items, and write the sheet to fill in.")
    ] = None,
    gold: Annotated[Path | None, option("--gold", help="The sheet with labels of all items that were drawn.")] = None,
    out: Annotated[Path | None, option("--out", "-o", help="Write the sheet here: .csv, .jsonl or .parquet.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Prove by gold labels of random items, which the model never sees, that at most so many labels are wrong.

    With --max-error the campaign stops when that is proven. Labels are compared with the gold labels again and again
    while votes come in; the proof allows for that.

    Examples: `crowdwise campaign prove birds --ask 100 -o sheet.csv`, `crowdwise campaign prove birds --gold sheet.csv`
    """
    from crowdwise.data.votes import read_truth

    if (ask is None) == (gold is None):
        raise ParameterError("Give --ask 100 to draw items at random, or --gold FILE with their labels.")
    check_outputs(out)
    with opened(folder) as live:
        if ask is not None:
            sheet = pl.DataFrame({"item": (items := live.draw_for_gold(ask)), "label": [""] * len(items)})
            if out is not None:
                write_table(sheet, out)
            elif as_json:
                emit(json.dumps({"items": items}))
            else:
                emit_table(sheet)
            say(
                f"{len(items):,} items, drawn at random. Fill in the labels, all of them, and give the sheet as --gold."
            )
            return
        assert gold is not None
        proof = live.prove(read_truth(gold))
    line = "The gold labels are kept. Say how many labels may be wrong: campaign set --max-error 0.05"
    if proof is not None:
        line = proof["proven"] or (proof["missing"] and f"Not yet compared: {proof['missing']}") or "Not proven yet"
    report(proof or {}, as_json, line[:1].upper() + line[1:])


@campaign.command("history")
def history(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """List what was changed since the campaign was made."""
    with opened(folder) as live:
        changes = live.history()
    if as_json:
        emit(json.dumps(changes))
        return
    for change in changes:
        when = datetime.fromtimestamp(change["time"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        emit(f"{when}  {change['what']}: {json.dumps(change['detail'], ensure_ascii=False)}")
    if not changes:
        say("Nothing was changed.")
