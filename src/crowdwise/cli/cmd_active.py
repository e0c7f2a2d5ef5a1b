"""``crowdwise active``: replays of strategies, plans of a budget."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli import options as opt
from crowdwise.cli.cmd_campaign import read_annotators
from crowdwise.cli.options import option
from crowdwise.cli.outputs import emit, say
from crowdwise.data.heavy import pl
from crowdwise.errors import ExtraError, InputError, ParameterError

if TYPE_CHECKING:
    from crowdwise.active.budget_plan import LearningInputs, Measure, Plan
    from crowdwise.active.replays import Curve
    from crowdwise.data.dataset import Dataset
    from crowdwise.data.votes import Votes

active = typer.Typer(help="What a strategy would have given, and how to spend a budget.", no_args_is_help=True)

OutOption = Annotated[
    Path, typer.Option("--out", "-o", help="The folder to write: table.csv, curves.svg, .html, .png, facts.json.")
]
JobsOption = Annotated[int | None, option("--jobs", min=1, help="Processes at a time. [default: as many as cores]")]
StrategiesOption = Annotated[str, typer.Option("--strategies", help="Strategies, comma-separated.")]
SeedsOption = Annotated[int, typer.Option("--seeds", min=1, help="How often each is played.")]
TruthOption = Annotated[
    Path | None, option("--truth", help="True classes to measure against (item and label columns).")
]
PricesOption = Annotated[Path | None, option("--prices", help="A table with an annotator column and a price.")]
BatchOption = Annotated[float, typer.Option("--batch", help="The share of all votes that is asked for at once.")]
ShareOption = Annotated[float, typer.Option("--share", help="The share of all votes to spend.")]


@active.command("replay")
@opt.reads
def replay(
    path: opt.PathArgument, out: OutOption,
    strategies: StrategiesOption = "random,entropy-random,tutorial,information,value", seeds: SeedsOption = 20,
    method: opt.StreamMethodOption = "dawid-skene", set_: opt.SetOption = None, truth: TruthOption = None,
    prices: PricesOption = None, batch: BatchOption = 0.02, share: ShareOption = 1.0, jobs: JobsOption = None,
    reading: opt.Reading = opt.DEFAULT_READING, as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Replay votes with several strategies: the accuracy of each after so many votes.

    Only pairs that were voted on can be asked. The truth only measures.

    Example: `crowdwise active replay crowd --strategies random,value --seeds 20 --out curves`
    """
    from crowdwise.active.replays import replay_strategies, summary
    from crowdwise.active.strategies import find_strategy
    from crowdwise.cli import show
    from crowdwise.data.folders import check_target, replacing
    from crowdwise.data.votes import read_truth

    names = list(dict.fromkeys(name.strip() for name in strategies.split(",")))
    for name in names:
        find_strategy(name)
    model = partial(registry.create, method, **opt.assignments(set_))
    check_target(out, "replay")
    votes = opt.load_votes(path, reading).votes
    votes = votes if truth is None else votes.with_truth(read_truth(truth))
    if votes.truth is None:
        raise InputError(f"{path} has no truth to measure with: give it, --truth FILE.")
    price = prices_of(votes, prices)
    whole = float(model().fit(votes).consensus_.score(votes.truth))
    with show.steps(len(names) * seeds) as progress:
        curves = replay_strategies(
            votes, votes.truth, model, names, n_seeds=seeds, n_jobs=jobs, progress=partial(progress, path.name),
            price=price, batch=batch, share=share,
        )  # fmt: skip
    facts = {
        "data": path.name, "method": method, "votes": votes.n_votes, "seeds": seeds, "batch": batch, "share": share,
        "batch_accuracy": whole,
        "strategies": {name: summary(some, whole, votes.n_votes) for name, some in curves.items()},
    }  # fmt: skip
    with replacing(out, "replay") as folder:
        write_replay(folder, path.name, curves, whole, facts, prices is not None)
    if as_json:
        emit(json.dumps(facts))
    else:
        show.show_replay(facts)
        say(f"Written to {out}.")


BudgetOption = Annotated[int, option("--budget", help="How many votes can be paid for.")]
VotesPerItemOption = Annotated[str, typer.Option("--votes-per-item", help="What to try, comma-separated.")]
PlanSeedsOption = Annotated[int, typer.Option("--seeds", min=1, help="Crowds for each.")]
MethodOption = Annotated[
    str, typer.Option("--method", "-m", help="What turns votes into labels; it must have confusion matrices.")
]
TargetOption = Annotated[
    float | None, option("--target", min=0.0, max=1.0, help="What it takes to have so many labels right.")
]
ErrorOption = Annotated[float, typer.Option("--max-error", help="What gold shall prove: at most so many are wrong.")]
ConfidenceOption = Annotated[float, typer.Option("--confidence", help="The confidence of that proof.")]
LearnerOption = Annotated[
    str | None, option("--learner", help="Also learn a classifier: one of `crowdwise methods --learners`.")
]


@active.command("plan")
@opt.reads
def plan(
    path: opt.PathArgument, budget: BudgetOption, out: OutOption, votes_per_item: VotesPerItemOption = "1,2,3,5,9",
    seeds: PlanSeedsOption = 10, method: MethodOption = registry.DEFAULT, set_: opt.SetOption = None,
    learner: LearnerOption = None, features: opt.FeaturesOption = None, epochs: opt.EpochsOption = None,
    target: TargetOption = None, max_error: ErrorOption = 0.05, confidence: ConfidenceOption = 0.95,
    jobs: JobsOption = None, reading: opt.Reading = opt.DEFAULT_READING, as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Say how to spend a budget on a crowd like this one: how many items, how many votes on each.

    Accuracies begin from what the report says of the labels as they are. With fewer votes some are drawn and fitted
    again; more votes add less and less, since annotators err together. With a learner, a crowd like this one votes on
    the inputs at hand, and the classifier is tested on x_test and y_test, or else on a fifth of the inputs. --target
    says how many votes or gold labels would make so many labels right, --max-error how many random gold labels would
    prove that at most so many are wrong (`crowdwise certify`).

    Example: `crowdwise active plan crowd --budget 1000 --votes-per-item 1,3,5 --out plan`
    """
    from crowdwise.active.budget_plan import Plan, check_choices, make_plan
    from crowdwise.active.votes_ahead import gold_for, present, promise_accuracy, votes_for
    from crowdwise.cli import show
    from crowdwise.data.folders import check_target, replacing
    from crowdwise.simulate import FittedCrowd
    from crowdwise.trust.certificate import gold_to_prove

    check_target(out, "plan")
    try:
        choices = [int(text) for text in votes_per_item.split(",")]
    except ValueError:
        raise ParameterError(f"--votes-per-item {votes_per_item}: expected whole numbers, such as 1,3,5.") from None
    if learner is None and (features is not None or epochs is not None):
        raise ParameterError("--features and --epochs are for a learner: name one, --learner KEY.")
    params = opt.assignments(set_)
    data = opt.load_votes(path, reading)
    fit = registry.create(method, **params).fit(data.votes).consensus_
    model = partial(registry.create, method, **params)
    check_choices(choices, data.votes.n_annotators, budget)
    promised = promise_accuracy(fit, model, sorted(set(choices)), n_seeds=min(seeds, 3))
    bought = Plan.of(budget, promised)
    if learner is not None:
        crowd = FittedCrowd.of(data.votes, fit.confusion, fit.prior)
        inputs = known_inputs(data, features, path, fit.posterior.argmax(axis=1))
        with show.steps(len(choices) * seeds) as progress:
            learned = make_plan(
                crowd, budget, model, votes_per_item=choices, n_seeds=seeds,
                learner=partial(new_learner, learner, epochs), inputs=inputs, n_jobs=jobs,
                progress=partial(progress, path.name),
            )  # fmt: skip
        bought = bought.with_tests(learned)
    measures: list[Measure] = ["accuracy", "right"] if learner is None else ["accuracy", "right", "test"]
    facts: dict[str, Any] = {
        "data": path.name, "method": method, "learner": learner, "budget": budget, "seeds": seeds,
        "votes_per_item": bought.choices, "items": [bought.items(c) for c in bought.choices],
        "best": {m: bought.best(m) for m in measures},
        **{m: [dict(zip(("mean", "low", "high"), row, strict=True)) for row in bought.summary(m)] for m in measures},
        "present": vars(present(fit)),
        "proof": {
            "max_error": max_error, "confidence": confidence,
            "gold": {s: gold_to_prove(fit, s, max_error, confidence) for s in (0.5, 0.9)},
        },
    }  # fmt: skip
    if target is not None:
        needed, most = votes_for(fit, target)
        facts["target"] = {"accuracy": target, "votes_per_item": needed, "at_most": most, "gold": gold_for(fit, target)}
    with replacing(out, "plan") as folder:
        write_plan(folder, path.name, bought, measures, facts)
    if as_json:
        emit(json.dumps(facts))
    else:
        show.show_plan(facts)
        say(f"Written to {out}.")


def prices_of(votes: Votes, path: Path | None) -> Any:
    """The price of a vote of each annotator: 1 where no table is given."""
    if path is None:
        return 1.0
    price_of = {str(name): price for name, price in read_annotators(path, 1.0).items()}
    missing = [name for name in votes.annotators.tolist() if str(name) not in price_of]
    if missing:
        raise InputError(f"{path} has no price for {missing[0]!r} ({len(missing)} annotators have none).")
    return [price_of[str(name)] for name in votes.annotators.tolist()]


def known_inputs(data: Dataset, features: Path | None, path: Path, labels: Any) -> LearningInputs:
    """Inputs with classes (the truth where it is known, else what the fit says); a fifth to test on, if need be."""
    import numpy as np

    from crowdwise.active.budget_plan import LearningInputs
    from crowdwise.item_inputs import inputs_of
    from crowdwise.reading import Answers

    X, test = inputs_of(Answers(registry.VOTES, data.votes, data), features or True)
    X, truth = np.asarray(X.x), data.votes.truth
    codes = labels if truth is None else np.where(truth >= 0, truth, labels)
    if test is not None:
        return LearningInputs(X, codes, np.asarray(test[0]), np.asarray(test[1]))
    return LearningInputs.split(X, codes)


def new_learner(key: str, epochs: int | None, seed: int) -> Any:
    return registry.find(key, inputs=True).create(random_state=seed, **({} if epochs is None else {"epochs": epochs}))


def write_replay(
    folder: Path, name: str, curves: dict[str, list[Curve]], whole: float, facts: dict[str, Any], priced: bool
) -> None:
    import numpy as np

    from crowdwise.active.curve_drawing import Line, draw, page
    from crowdwise.active.replays import bands

    columns = ("votes", "cost", "accuracy", "expected")
    parts = [
        pl.DataFrame({"strategy": key, "seed": seed} | {c: np.asarray(getattr(curve, c)) for c in columns})
        for key, some in curves.items()
        for seed, curve in enumerate(some)
    ]
    pl.concat(parts).write_csv(folder / "table.csv")
    lines = [Line(key, **band) for key, band in bands(curves, "cost" if priced else "votes").items()]
    title = f"{name}: accuracy by {'money' if priced else 'votes'} spent"
    svg = draw(
        lines, title=title, x_label="money" if priced else "votes", y_label="accuracy", at=whole,
        at_label="all votes, batch fit",
    )  # fmt: skip
    rows = [
        (key, f"{100 * row['share']:.0f} %", row["never"], f"{100 * row['accuracy']:.1f} %")
        for key, row in facts["strategies"].items()
    ]
    text = (
        f"{facts['method']}, {facts['seeds']} seeds. Lines are means; four of five seeds lie in the band. The table "
        "says at which share of votes the accuracy of a batch fit of all votes, less half a point, is first reached."
    )
    html = page([svg], title=title, text=text, table=[("strategy", "share", "never", "at the end"), *rows])
    write_figures(folder, [svg], html, facts)


def write_plan(folder: Path, name: str, plan: Plan, measures: list[Measure], facts: dict[str, Any]) -> None:
    from crowdwise.active.curve_drawing import Line, draw, page

    rows = [
        vars(row) if "test" in measures else {k: v for k, v in vars(row).items() if k != "test"} for row in plan.rows
    ]
    pl.DataFrame(rows).write_csv(folder / "table.csv")
    words = {"accuracy": "labels that are right", "right": "right labels", "test": "test accuracy of the learner"}

    def figure(some: list[Measure], title: str, y_label: str, percent: bool) -> str:
        lines = []
        for m in some:
            mean, low, high = (list(column) for column in zip(*plan.summary(m), strict=True))
            lines.append(Line(words[m], [float(c) for c in plan.choices], mean, low, high))
        return draw(lines, title=title, x_label="votes per item", y_label=y_label, y_percent=percent)

    title = f"{name}: {plan.budget:,} votes, on many items or often on few"
    shares: list[Measure] = [m for m in measures if m != "right"]
    figures = [figure(shares, title, "share", True), figure(["right"], f"{name}: right labels", "labels", False)]
    table = [
        (c, plan.items(c), *(f"{s[0]:,.0f}" if m == "right" else f"{100 * s[0]:.1f} %" for m, s in row))
        for c, row in zip(
            plan.choices, zip(*([(m, s) for s in plan.summary(m)] for m in measures), strict=True), strict=True
        )
    ]
    text = (
        f"{facts['method']}. Accuracies begin from what the votes at hand say of their labels; the band is a 95 % "
        "interval, as wide as crowds differ. Learners: four of five simulated crowds lie in the band."
    )
    html = page(figures, title=title, text=text, table=[("votes per item", "items", *map(words.get, measures)), *table])
    write_figures(folder, figures, html, facts)


def write_figures(folder: Path, figures: list[str], html: str, facts: dict[str, Any]) -> None:
    """curves.svg (and curves-2.svg ...), the same as .png, curves.html, facts.json."""
    from crowdwise.data.figures import to_png

    for i, svg in enumerate(figures):
        stem = "curves" if i == 0 else f"curves-{i + 1}"
        (folder / f"{stem}.svg").write_text(svg, encoding="utf-8")
        try:
            (folder / f"{stem}.png").write_bytes(to_png(svg))
        except ExtraError as error:
            if i == 0:
                say(f"Note: no PNG was written. {error}")
    (folder / "curves.html").write_text(html, encoding="utf-8")
    (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
