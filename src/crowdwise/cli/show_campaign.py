"""A campaign as people see it in a terminal."""

from __future__ import annotations

from typing import Any

from crowdwise.cli.show import console, strong
from crowdwise.trust.wording import counted

WIDTH = 30


def show_status(name: str, facts: dict[str, Any]) -> None:
    """How far a campaign is, with bars for the items and the money."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column()
    items = facts["items"]
    table.add_row("items voted on", f"{facts['voted_on']:,} of {items:,}", bar(facts["voted_on"], items))
    done = facts["finished"] + facts["closed"]
    table.add_row("finished", f"{done:,}", bar(done, items))
    table.add_row(
        "votes", f"{facts['votes']:,}", f"by {counted(facts['annotators'], 'annotator')}, {facts['asked']:,} awaited"
    )
    budget = facts["budget"]
    table.add_row(
        "spent", f"{facts['spent']:,.2f}" + ("" if budget is None else f" of {budget:,.2f}"),
        "" if budget is None else bar(facts["spent"], budget),
    )  # fmt: skip
    if facts["accuracy"] is not None:
        low, high = facts["accuracy_low"], facts["accuracy_high"]
        found = "not known", "too few items have two votes"
        if facts["accuracy_known"]:
            found = (
                f"{100 * facts['accuracy']:.1f} %",
                f"{100 * low:.1f} to {100 * high:.1f} %, estimated without truth",
            )
        table.add_row("accuracy", *found)
    if facts["target"] is not None:
        reachable = facts["reachable"]
        table.add_row(
            "target", f"{100 * facts['target']:.1f} %",
            "" if reachable is None else f"about {100 * reachable:.1f} % is expected with all votes of those available",
        )  # fmt: skip
    screen = console(stderr=False)
    screen.print(strong(name, f", {facts['method']}"))
    screen.print(table)
    lead = {"running": "Go on", "waiting": "Wait"}.get(facts["state"], "Stop")
    why = "" if facts["state"] == "running" else f" ({facts['state'].replace('-', ' ')}): {facts['stop']}"
    advice = "" if facts["advice"] is None else f" {facts['advice']}"
    screen.print(f"{lead}{why if lead == 'Stop' else why.replace(' (waiting)', '')}.{advice}", markup=False)


def bar(part: float, whole: float) -> Any:
    """A part of a whole, drawn in the room there is."""
    from crowdwise.cli.show import Drawing

    share = min(max(part / whole if whole else 0.0, 0.0), 1.0)
    return Drawing(lambda room: "█" * round(room * share) + "░" * (room - round(room * share)), WIDTH)
