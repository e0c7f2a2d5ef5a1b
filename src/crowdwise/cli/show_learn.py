"""What people see of learners: what was learned, what was predicted, as JSON and as pages."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.cli.show import annotator_table, class_table, console
from crowdwise.core.consensus import Consensus
from crowdwise.data.votes import Votes
from crowdwise.metrics import Estimate


def learned(learner: Any, measured: Estimate | None, tested: tuple[float, int] | None) -> dict[str, Any]:
    """The JSON object of ``crowdwise learn --json``."""
    found: Consensus = learner.consensus_
    history = learner.history_
    held = [step.held_out for step in history if step.held_out is not None]
    out: dict[str, Any] = {
        "method": found.method,
        "items": len(found.item_names),
        "annotators": len(found.annotator_names),
        "classes": len(found.classes),
        "votes": found.n_answers,
        "seed": learner.seed_,
        "seconds": round(found.seconds, 4),
        "history": {
            "epochs": len(history),
            "loss_first": history[0].loss,
            "loss_last": history[-1].loss,
            "held_out_last": held[-1] if held else None,
            "held_out_best": max(held) if held else None,
            "held_out_best_epoch": history[int(np.argmax(held))].epoch if held else None,
        },
    }
    if measured is not None:
        out |= {"accuracy": measured.value, "accuracy_low": measured.low, "accuracy_high": measured.high}
    if tested is not None:
        out |= {"accuracy_test": tested[0], "items_test": tested[1]}
    return out


def predictions(names: Any, classes: Any, q: Any, probabilities: bool) -> dict[str, Any]:
    """The columns of a table of predictions."""
    columns = {"item": names, "label": classes[q.argmax(axis=1)], "probability": q.max(axis=1)}
    return columns | ({f"p({name})": q[:, k] for k, name in enumerate(classes)} if probabilities else {})


def predicted(learner: Any, votes: Votes | None, items: int, tested: tuple[float, int] | None) -> dict[str, Any]:
    """The JSON object of ``crowdwise predict --json``."""
    out: dict[str, Any] = {
        "method": learner.key,
        "items": items,
        "classes": len(learner.classes_),
        "votes": 0 if votes is None else votes.n_votes,
    }
    return out if tested is None else out | {"accuracy_test": tested[0], "items_test": tested[1]}


def show_learned(learner: Any, measured: Estimate | None, tested: tuple[float, int] | None, out: Any) -> None:
    screen = console()
    found: Consensus = learner.consensus_
    facts_ = learned(learner, measured, tested)["history"]
    screen.print()
    screen.print(
        f"[bold]{found.method}[/bold]: {len(found.item_names):,} items, {len(found.annotator_names):,} annotators, "
        f"{len(found.classes)} classes, {found.n_answers:,} votes"
    )
    held = "" if facts_["held_out_last"] is None else f", held-out votes {facts_['held_out_last']:.4f}"
    screen.print(f"{facts_['epochs']} epochs, loss {facts_['loss_last']:.4f}{held}, {found.seconds:.2f} s")
    if measured is not None:
        screen.print(
            f"accuracy of the consensus on {measured.n:,} items with truth: [bold]{measured.value:.4f}[/bold] "
            f"(95% from {measured.low:.4f} to {measured.high:.4f})"
        )
    if tested is not None:
        screen.print(f"accuracy on {tested[1]:,} items nobody voted on: [bold]{tested[0]:.4f}[/bold]")
    screen.print()
    screen.print(class_table(found))
    screen.print(annotator_table(found))
    screen.print(
        "nothing was kept: --out DIR keeps the classifier" if out is None else f"written: {out}",
        markup=False,
        soft_wrap=True,
    )


def show_predicted(learner: Any, table: Any, tested: tuple[float, int] | None, out: Any) -> None:
    screen = console()
    sure = float(table["probability"].mean())
    screen.print(f"{learner.key}: {table.height:,} items labelled, with a probability of {sure:.3f} on average")
    if tested is not None:
        screen.print(f"accuracy on {tested[1]:,} items whose class is known: [bold]{tested[0]:.4f}[/bold]")
    if out is not None:
        screen.print(f"written: {out}", markup=False, soft_wrap=True)
