"""What people see of learners: what was learned, what was predicted, as JSON and as pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from crowdwise.cli.show import console, measures, strong
from crowdwise.cli.show_aggregate import consensus_tables, figures, fitted_line
from crowdwise.data.votes import Votes

if TYPE_CHECKING:
    from crowdwise.api import Fitted


def learned(found: Fitted) -> dict[str, Any]:
    """The JSON object of ``crowdwise learn --json``."""
    result, history = found.result, found.model.history_
    held = [step.held_out for step in history if step.held_out is not None]
    out: dict[str, Any] = {
        "method": result.method, "items": len(result.items), "annotators": len(result.annotators),
        "classes": len(result.classes), "votes": result.n_answers, "seed": found.model.seed_,
        "seconds": round(result.seconds, 4),
        "history": {
            "epochs": len(history), "loss_first": history[0].loss, "loss_last": history[-1].loss,
            "held_out_last": held[-1] if held else None,
            "held_out_best": max(held) if held else None,
            "held_out_best_epoch": history[int(np.argmax(held))].epoch if held else None,
        },
    }  # fmt: skip
    return out | figures(found.measured) | _test(found.tested)


def _test(tested: tuple[float, int] | None) -> dict[str, Any]:
    return {} if tested is None else {"accuracy_test": tested[0], "items_test": tested[1]}


def predictions(names: Any, classes: Any, q: Any, probabilities: bool) -> dict[str, Any]:
    """The columns of a table of predictions."""
    columns = {"item": names, "label": classes[q.argmax(axis=1)], "probability": q.max(axis=1)}
    return columns | ({f"p({name})": q[:, k] for k, name in enumerate(classes)} if probabilities else {})


def predicted(learner: Any, votes: Votes | None, items: int, tested: tuple[float, int] | None) -> dict[str, Any]:
    """The JSON object of ``crowdwise predict --json``."""
    out: dict[str, Any] = {
        "method": learner.key, "items": items, "classes": len(learner.classes_),
        "votes": 0 if votes is None else votes.n_votes,
    }  # fmt: skip
    return out | _test(tested)


def show_learned(found: Fitted, out: Any) -> None:
    screen = console()
    result, history = found.result, learned(found)["history"]
    screen.print()
    screen.print(fitted_line(found))
    held = "" if history["held_out_last"] is None else f", held-out votes {history['held_out_last']:.4f}"
    screen.print(f"{history['epochs']} epochs, loss {history['loss_last']:.4f}{held}, {result.seconds:.2f} s")
    measures(screen, found.measured, of=" of the consensus")
    if found.tested is not None:
        screen.print(f"accuracy on {found.tested[1]:,} items nobody voted on:", strong(f"{found.tested[0]:.4f}"))
    screen.print()
    for table in consensus_tables(result):
        screen.print(table)
    saved = "nothing was saved: --out DIR saves the classifier" if out is None else f"written: {out}"
    screen.print(saved, soft_wrap=True)


def show_predicted(learner: Any, table: Any, tested: tuple[float, int] | None, out: Any) -> None:
    screen = console()
    sure = float(table["probability"].mean())
    screen.print(f"{learner.key}: {table.height:,} items labelled, with a probability of {sure:.3f} on average")
    if tested is not None:
        screen.print(f"accuracy on {tested[1]:,} items whose class is known:", strong(f"{tested[0]:.4f}"))
    if out is not None:
        screen.print(f"written: {out}", soft_wrap=True)
