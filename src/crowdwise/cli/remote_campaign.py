"""Campaigns on a server as the commands use them: the same calls as those of a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from crowdwise.client import Client, RemoteCampaign
from crowdwise.errors import ParameterError

__all__ = ["create_remote", "open_remote"]


class _Table:
    """A result with the one method of results that commands call."""

    def __init__(self, campaign: RemoteCampaign) -> None:
        self.campaign = campaign

    def to_frame(self, table: str = "items", *, kind: str = "polars", probabilities: bool = False) -> Any:
        """A table of it; on a server all are of polars."""
        if table != "polars":
            return self.campaign.consensus_frame(table, probabilities=probabilities)
        import polars as pl

        rows = list(self.campaign.votes())
        names = ("item", "annotator", "label")
        return pl.DataFrame(
            {**{name: [row[name] for row in rows] for name in names}, "timestamp": [row["time"] for row in rows]}
        )


class _Question:
    """A question as the command lists it: a server does not show its value."""

    def __init__(self, item: Any, annotator: Any, price: float | None) -> None:
        self.item, self.annotator, self.price, self.value = item, annotator, price, None


class Remote:
    """A campaign on a server behind the names that commands call."""

    def __init__(self, campaign: RemoteCampaign) -> None:
        self.campaign = campaign

    def __getattr__(self, name: str) -> Any:
        return getattr(self.campaign, name)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.campaign.client.close()

    @property
    def settings(self) -> SimpleNamespace:
        return SimpleNamespace(**self.campaign.settings)

    def propose(self, n: int) -> Any:
        raise ParameterError("A server hands questions to one annotator at a time: say whom, --annotator NAME.")

    def next_for(self, annotator: str, n: int) -> list[_Question]:
        rows = self.campaign.client.call("GET", f"/campaigns/{self.campaign.id}/annotators")
        price = {str(row["annotator"]): row["price"] for row in rows}
        return [_Question(q.item, annotator, price.get(annotator)) for q in self.campaign.next_for(annotator, n)]

    def consensus(self) -> _Table:
        return _Table(self.campaign)

    def votes(self) -> _Table:
        return _Table(self.campaign)


def open_remote(address: str, name: str) -> Remote:
    """The campaign of a name or id on a server; the token is that of the environment."""
    return Remote(Client(address).campaign(name))


def create_remote(
    address: str, name: str, classes: list[Any], items: Iterable[Any], gold: Mapping[Any, Any],
    groups: Mapping[Any, Any], annotators: Mapping[Any, float] | Iterable[Any], **settings: Any,
) -> dict[str, Any]:  # fmt: skip
    """Make a campaign on a server; its status."""
    with Client(address) as client:
        made = client.create_campaign(name, classes=classes, **settings)
        made.add_items(items, gold, groups)
        made.add_annotators(annotators)
        return made.status()
