"""What the commands share on the way in: options, how a file is to be read, and the fit."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from crowdwise import registry
from crowdwise.cli.outputs import piped, say
from crowdwise.data.boundary import as_path
from crowdwise.data.heavy import pl
from crowdwise.data.schema import Form, OnDuplicate, OnMissing
from crowdwise.errors import (
    CrowdwiseError,
    InputError,
    Option,
    ParameterError,
    ReadError,
    Setting,
    UserFacingError,
    listing,
)

if TYPE_CHECKING:
    from crowdwise.api import Fitted
    from crowdwise.data.dataset import Dataset
    from crowdwise.reading import Answers, Opened

FEATURES = (
    "The inputs: .npz (x_train, named by id_train; or a single array), .npy, a table with an item column and "
    "numbers, or a folder of images named like the items."
)


GROUPS = {
    "Reading the file": (
        "--item", "--annotator", "--label", "--column", "--classes", "--form", "--on-duplicate", "--on-missing",
        "--abstain", "--normalise-labels", "--map", "--annotator-columns", "--anonymous", "--sheet", "--skip-rows",
        "--exclude", "--only-verdict", "--pseudonymise", "--question", "--outcomes",
    ),
    "Features, texts, images, links": ("--features", "--text", "--embed", "--no-inputs", "--max-seconds", "--graph"),
    "Settings": ("--set", "--seed", "--save", "--names"),
    "Large files": ("--engine", "--memory", "--scratch"),
}  # fmt: skip
"""Groups of the options that few need, as the help shows them below the others."""
GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}


def option(*names: str, help: str, show_default: bool = False, **more: Any) -> Any:
    """An option in its group; its default is not shown where there is none, or the help says it."""
    group = GROUP_OF.get(names[0])
    return typer.Option(*names, help=help, show_default=show_default, rich_help_panel=group, **more)


def checked_path(text: str) -> Path:
    """The path that was typed; an empty one would be this folder."""
    try:
        return as_path(text)
    except CrowdwiseError as error:
        raise typer.BadParameter(error.message) from None


PathArgument = Annotated[
    Path,
    typer.Argument(
        help=(
            "A file of answers (.csv, .tsv, .xlsx, .json, .jsonl, .parquet, .arrow; text also .gz; one of them in a "
            ".zip) or a dataset folder with labels.csv; - is standard input."
        ),
        show_default=False,
        metavar="path",
        parser=checked_path,
        callback=piped,
    ),
]
AnswersOption = Annotated[
    str | None,
    option(
        "--answers",
        metavar="TYPE",
        help=(
            f"The type of answers: {', '.join(registry.ANSWER_TYPES)}; auto takes numbers on a scale for ratings, "
            "where the command would ask. [default: by the method, or the columns]"
        ),
    ),
]
ItemOption = Annotated[str | None, option("--item", help="The item column, if it is not called item, task, unit, ...")]
AnnotatorOption = Annotated[
    str | None, option("--annotator", help="The annotator column, if it is not called annotator, worker, rater, ...")
]
LabelOption = Annotated[
    str | None, option("--label", help="The answer's column, if it is not called label, answer, response, ...")
]
ColumnOption = Annotated[
    list[str] | None,
    option(
        "--column",
        help="Any other column, or setting of the reader, as name=value, such as item_a=left; repeat for more.",
    ),
]
ClassesOption = Annotated[
    str | None, option("--classes", help="All classes, comma-separated, where some were never used.")
]
FormOption = Annotated[
    Form, option("--form", show_default=True, help="long: a row per vote. wide: a column per annotator.")
]
DuplicateOption = Annotated[
    OnDuplicate,
    option(
        "--on-duplicate",
        show_default=True,
        help="When an annotator labelled an item twice: stop, keep one row, or count all.",
    ),
]
MissingOption = Annotated[
    OnMissing,
    option(
        "--on-missing",
        show_default=True,
        help="Rows without a label: stop, leave them out, or fill "
        "empty names of items and annotators from the row above first, as merged cells mean them.",
    ),
]
AbstainOption = Annotated[
    str | None,
    option("--abstain", metavar="LABEL", help="The label that stands for no answer, such as -1; '' is an empty cell."),
]
NormaliseOption = Annotated[
    bool,
    option("--normalise-labels", help="Merge labels that differ only in case, blanks or form (yes, Yes; 1, 1.0)."),
]
MapOption = Annotated[
    Path | None,
    option("--map", help="What labels stand for: a table with the columns from and to, as `check --write-map` writes."),
]
ColumnsOption = Annotated[
    str | None,
    option(
        "--annotator-columns", metavar="A,B,...", help="The columns of annotators, where each has one (--form wide)."
    ),
]
AnonymousOption = Annotated[
    bool, option("--anonymous", help="There is no column of annotators: the plain majority of the rows on each item.")
]
SheetOption = Annotated[
    str | None, option("--sheet", help="The sheet of a spreadsheet. [default: the first with columns of answers]")
]
SkipOption = Annotated[
    int | None, option("--skip-rows", help="How many lines stand above the names of columns. [default: found]")
]
ExcludeOption = Annotated[
    Path | None,
    option(
        "--exclude",
        help="Annotators to leave out: a file with one name per line, or with a column of annotators; of one with "
        "verdicts, those to drop.",
    ),
]
VerdictOption = Annotated[
    str | None,
    option(
        "--only-verdict",
        help="With --exclude and a table of annotators that has verdicts: leave out all but those with this one, keep. "
        "[default: leave out those to drop]",
    ),
]
PseudonymiseOption = Annotated[
    Path | None,
    option(
        "--pseudonymise",
        metavar="KEY.csv",
        help="Call annotators `annotator 1`, `annotator 2`... in all that is shown and written; this file, for you "
        "alone, says who is who.",
    ),
]
QuestionOption = Annotated[
    str | None,
    option(
        "--question",
        help="Which question of an export, or of a column that names questions (aggregate: all of them into the folder "
        "--out); of comparisons, their column of it.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    option("--set", help="A parameter, as name=value; repeat for more. See `crowdwise methods --json`."),
]
NoInputsOption = Annotated[
    bool, option("--no-inputs", help="Votes alone, though the folder has features, images or texts of its items.")
]
MaxSecondsOption = Annotated[
    float,
    option(
        "--max-seconds", show_default=True, help="How long learning from inputs may take; votes alone count after that."
    ),
]
SeedOption = Annotated[int | None, option("--seed", help="Seed of everything random.")]
FixedSeedOption = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
MethodOption = Annotated[
    str | None,
    option(
        "--method", "-m",
        help=f"The method; `crowdwise methods` lists them. [default: {registry.DEFAULT}, for votes]",
    ),
]  # fmt: skip
StreamMethodOption = Annotated[
    str, typer.Option("--method", "-m", help="dawid-skene, one-coin, confusion-vector or ibcc.")
]
TruthOption = Annotated[
    Path | None,
    option("--truth", help="The truth to measure against (item and label columns). The method does not see it."),
]
GoldOption = Annotated[
    Path | None, option("--gold", help="Known truth that the method may use. It is left out of the accuracy.")
]
FeaturesOption = Annotated[
    Path | None, option("--features", help=f"{FEATURES} Not needed for a folder with a features.npz of its own.")
]
TextOption = Annotated[
    str | None,
    option(
        "--text",
        metavar="COLUMN",
        help="Learn from texts: their column in the file of votes, in --features, or in the table of "
        "items of a folder.",
    ),
]
EMBED_WITHOUT_TEXT = "--embed: name the column of texts too, --text COLUMN."
EmbedOption = Annotated[
    str | None,
    option(
        "--embed",
        metavar="MODEL",
        help="With --text: the vectors of a model of sentence-transformers (its name, folder or package) instead of "
        "TF-IDF.",
    ),
]
DeviceOption = Annotated[
    str | None, option("--device", help="Where the network is trained: auto, cpu, gpu, cuda, cuda:1, mps.")
]
EpochLinesOption = Annotated[bool, typer.Option("--verbose", "-v", help="A line for every epoch.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also show tables of labels and annotators, and how all was computed.")
]
EpochsOption = Annotated[int | None, option("--epochs", help="How often training passes over the items.")]
LabelsOption = Annotated[
    Path | None, option("--out", "-o", help="Write the labels here: .csv, .xlsx, .jsonl or .parquet.")
]
ProbabilitiesOption = Annotated[
    bool, typer.Option("--probabilities", help="Add the probability of every class to the labels.")
]
AnnotatorsOption = Annotated[Path | None, option("--annotators", help="Write the table of annotators here.")]
NamesOption = Annotated[
    Path | None,
    option(
        "--names",
        help="What codes mean, in report and terminal: a table with the columns class (or item) and name. Files of "
        "labels keep the codes.",
    ),
]
SaveOption = Annotated[Path | None, option("--save", help="Save the whole result in this folder.")]
LevelOption = Annotated[float, typer.Option("--level", help="The false positive rate of each detector.")]


OutcomesOption = Annotated[
    str | None, option("--outcomes", help="Of comparisons: what the words for outcomes mean, such as 1=left,2=right.")
]


@dataclass(frozen=True)
class Reading:
    """How a file of answers is to be read: options of every command that reads one."""

    answers: AnswersOption = None
    item: ItemOption = None
    annotator: AnnotatorOption = None
    label: LabelOption = None
    column: ColumnOption = None
    classes: ClassesOption = None
    form: FormOption = "auto"
    on_duplicate: DuplicateOption = "error"
    on_missing: MissingOption = "error"
    abstain: AbstainOption = None
    normalise_labels: NormaliseOption = False
    label_map: MapOption = None
    annotator_columns: ColumnsOption = None
    anonymous: AnonymousOption = False
    sheet: SheetOption = None
    skip_rows: SkipOption = None
    exclude: ExcludeOption = None
    only_verdict: VerdictOption = None
    pseudonymise: PseudonymiseOption = None
    question: QuestionOption = None
    outcomes: OutcomesOption = None

    def options(self) -> dict[str, Any]:
        """What was given, as options of a table's reader."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        given.pop("answers", None)
        if "classes" in given:
            given["classes"] = [name.strip() for name in given["classes"].split(",")]
        return given | pairs(given.pop("column", None), "--column", "item_a=left")


DEFAULT_READING = Reading()


def reads(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of :class:`Reading` in the place of its parameter ``reading``."""
    own, spread = get_type_hints(command, include_extras=True), get_type_hints(Reading, include_extras=True)
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name == "reading":
            parameters += [
                parameter.replace(name=f.name, annotation=spread[f.name], default=f.default) for f in fields(Reading)
            ]
        else:
            parameters.append(parameter.replace(annotation=own[name]))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        reading = Reading(**{f.name: given.pop(f.name) for f in fields(Reading)})
        command(**given, reading=reading)

    vars(run)["__signature__"] = inspect.Signature(parameters)  # what typer looks at
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def pairs(given: list[str] | None, option: str, example: str) -> dict[str, str]:
    """``["item_a=left", ...]`` as a dict."""
    out = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ParameterError(f"{option} {text}: expected name=value, such as {option} {example}.")
        out[name.strip()] = value.strip()
    return out


def assignments(given: list[str] | None, seed: int | None = None, **more: Any) -> dict[str, Any]:
    """``["tol=1e-6", "prior=crowd"]`` as a dict; values are read as JSON where they are JSON, else as text.

    A seed, and whatever else has an option of its own, is added where it was given.
    """
    out: dict[str, Any] = {}
    for name, value in pairs(given, "--set", "tol=1e-6").items():
        try:
            out[name] = json.loads(value)
        except ValueError:
            out[name] = {"None": None, "True": True, "False": False}.get(value, value)
    return out | {name: value for name, value in (more | {"random_state": seed}).items() if value is not None}


FLAGS = {
    "label_map": "--map",
    "random_state": "--seed",
    "inputs": "--features",
    "answer_type": "--answers",
    "what": "--of",
}
"""Options that the command line calls otherwise than Python."""


def flag(option: Option, options: Collection[str]) -> str | None:
    """How a command spells an option that an error names; ``None`` where the command has no such option.

    >>> flag(Option("on_duplicate", "first", "last"), ["--on-duplicate"])
    '--on-duplicate first or last'
    >>> flag(Setting("coins", "one"), ["--set"])
    '--set coins=one'
    """
    name = FLAGS.get(option.name, f"--{option.name.replace('_', '-')}")
    if name in options:
        return name if any(v is True for v in option.values) else f"{name} {option.choice()}".rstrip()
    collects = "--set" if isinstance(option, Setting) else "--column"
    return f"{collects} {option.name}={option.choice()}" if collects in options else None


def words_in(text: str | None) -> list[str] | None:
    """Words that were given with commas between them; ``None`` where there are none."""
    return [word.strip() for word in text.split(",")] if text and text.strip() else None


def opened(
    path: Path, reading: Reading = DEFAULT_READING, method: str | None = None, *, votes_alone: bool = False,
    also: str = "",
) -> Opened:  # fmt: skip
    """A file or a dataset folder, with a note on what it was taken for. ``votes_alone``: anything else is an error,
    ``also``: but for answers of this type."""
    votes_alone = votes_alone or bool(also)
    from crowdwise.reading import Opened

    source = Opened(path, reading.answers, None if votes_alone else method, reading.options())
    if source.export is not None:
        tool = registry.IMPORTERS[source.export.tool].title
        say(f"Note: {path.name} is an export of {tool}. {' '.join(source.export.lines())}")
    if votes_alone and source.answer_type not in (registry.VOTES, also):
        raise other_answers(path, source.answer_type, "" if source.guess is None else f", since {source.guess.reason}")
    if source.guess is not None and source.guess.kind != registry.VOTES:  # say what a file was taken for
        say(f"Note: read as {source.guess.kind}, since {source.guess.reason}. If that is wrong, say --answers votes.")
    source.method = method or source.method
    return source


def fitted(source: Opened, params: dict[str, Any], **more: Any) -> Fitted:
    """What :func:`crowdwise.api.fit` gives, with a progress bar."""
    from crowdwise import api
    from crowdwise.cli import show
    from crowdwise.data.source import collected_roles
    from crowdwise.file_check import ordered

    with collected_roles() as columns:
        found = api.fit(source, params=params, display=show.progress, announce=say, **more)
    note_columns(columns.roles)
    votes = source.asked is None and found.answer_type == registry.VOTES
    hint = ordered(found.table) if votes else None  # classes are numbers in a row, and nothing was said of their order
    if hint is not None:
        note(hint, "--answers")
    return found


def with_names(fit: Fitted, names: Path | None) -> Fitted:
    """The fit with the names of classes and items that a table has."""
    if names is None:
        return fit
    from crowdwise.data.columns import find
    from crowdwise.data.files import TableFile

    table = TableFile.of(names).read()[0].cast(pl.String)
    name = next((column for column in table.columns if column.strip().lower() == "name"), None)
    rest = [column for column in table.columns if column != name]
    codes = {"class": find(rest, "label"), "item": find(rest, "item")}
    if name is None or not any(codes.values()):
        raise InputError(
            f"{names}: a table of names has the columns class (or item) and name; this has {listing(table.columns)}."
        )
    pairs = {part: table.select(code, name).drop_nulls().rows() for part, code in codes.items() if code is not None}
    return fit.named({part: {code.strip(): name_of.strip() for code, name_of in rows} for part, rows in pairs.items()})


def note(hint: UserFacingError, *options: str) -> None:
    """Say a hint, with its remedy as the options of the command."""
    say(f"Note: {hint.message} {hint.remedies[0].for_cli(lambda option: flag(option, options))}")


def note_columns(roles: Mapping[str, str]) -> None:
    """Say which columns were taken for annotators, where each has one and no warning has named them."""
    from crowdwise.data.source import LEFT_OUT, ONE_ANNOTATOR

    taken = [name for name, role in roles.items() if role == ONE_ANNOTATOR]
    if taken and LEFT_OUT not in roles.values():
        say(f"Note: each annotator has a column: {listing(taken, 12)}.")


def drawn_gold(table: Any, gold: Path) -> dict[Any, Any]:
    """Item -> truth, from a sheet of items that were drawn; a row that is gone or has no label is an error. Names that
    were made text for spreadsheets are those of the items again."""
    from crowdwise.data.files import TableFile
    from crowdwise.data.sheets import DRAWN, safe_cell

    known, sheet = table.read_truth(gold), TableFile.of(gold).read()[0]
    rows, drawn = sheet.height, []
    if DRAWN in sheet.columns:
        drawn = sheet[DRAWN].cast(pl.Float64, strict=False).fill_null(0.0).unique().sort().to_list()
    why = None
    if len(known) < rows:
        why = f"{rows - len(known):,} of the {rows:,} rows of {gold} have no label, or repeat an item."
    elif drawn and drawn != [rows]:
        why = f"{gold} has {rows:,} rows, of a draw of {' and of '.join(f'{n:g}' for n in drawn)} items."
    if why is not None:
        raise ReadError(
            f"{why} Labels that are left out, such as those of hard items, make the others no random draw: fill in all "
            "rows of a draw, each once."
        )
    items = set(table.items.tolist())
    spelled = {safe_cell(name): name for name in items if safe_cell(name) not in items}
    return {spelled.get(name, name): label for name, label in known.items()}


def chosen_inputs(
    source: Opened, features: Path | None, text: str | None, no_inputs: bool, embed: str | None = None
) -> Any:  # fmt: skip
    """The inputs that options name; without any, those that a dataset folder may have."""
    from crowdwise.item_inputs import texts_of
    from crowdwise.reading import AUTO

    if embed is not None and text is None:
        raise ParameterError(EMBED_WITHOUT_TEXT)
    if no_inputs and (features is not None or text is not None):
        raise ParameterError("--no-inputs: not with --features or --text. Leave one of them out.")
    if text is not None:
        return texts_of(source, text, features, embed)
    return features or (None if no_inputs else AUTO)


def load(path: Path, reading: Reading = DEFAULT_READING) -> Answers:
    """The answers of a file or a dataset folder, with a note on what they were taken for."""
    return opened(path, reading).answers


def load_votes(path: Path, reading: Reading = DEFAULT_READING) -> Dataset:
    """Votes, and what lies beside them, for a command that knows votes alone."""
    answers = opened(path, reading, votes_alone=True).answers
    if answers.dataset is None:
        raise other_answers(path, answers.answer_type)
    return answers.dataset


def other_answers(path: Path, kind: str, why: str = "") -> InputError:
    """The error about answers that a command does not know."""
    return InputError(
        f"{path} holds {kind}{why}, and this command is for votes alone. For {kind} there are crowdwise "
        "aggregate, report, describe and agreement; if these are votes, say --answers votes."
    )
