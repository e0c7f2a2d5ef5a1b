"""``verbose=True``: a bar in terminals, lines elsewhere, and the callback still called."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import crowdwise as cw
from crowdwise.core import progress_bar

crowd = cw.simulate.machine(n_annotators=5, n_items=60, votes_per_item=3, random_state=0)
X, votes = crowd.features["x_train"], crowd.votes


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        (lambda **more: cw.aggregate(votes, "dawid-skene", **more), "dawid-skene: pass 1 of at most 500"),
        (lambda **more: cw.DawidSkene().fit(votes, **more), "dawid-skene: pass 1 of at most 500"),
        (lambda **more: cw.CrowdClassifier("ccem", epochs=3).fit(X, votes, **more), "ccem: epoch 3 of 3, loss "),
        (lambda **more: cw.Raykar().fit(X, votes, **more), "raykar: epoch 1 of "),
    ],
)
def test_lines_are_written_and_the_callback_is_called(fit, words, capsys):
    seen = []
    fit(verbose=True, callback=seen.append)
    shown = capsys.readouterr().err
    assert words in shown
    assert len(shown.splitlines()) <= 14
    assert len(seen) > 0
    fit()
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    with progress_bar.drawn_bar(screen, "ccem", "{task.fields[state]}", state="") as update:
        update(completed=2, total=4, state="epoch 2 of 4")
    assert "epoch 2 of 4" in screen.file.getvalue()
    with progress_bar.step_bar(screen, "ccem", lines=True) as report:
        report(progress_bar.Stage("reading", 0.5, 3.0))
    assert "about 3 s left" in screen.file.getvalue() and "ccem: " not in screen.file.getvalue()


def test_a_callback_can_still_stop_a_fit():
    learner = cw.CrowdClassifier("ccem", epochs=20).fit(X, votes, callback=lambda step: step.epoch == 2, verbose=True)
    assert len(learner.history_) == 2
