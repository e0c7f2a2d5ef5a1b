"""A sample campaign, to try the pages with: short texts whose mood is to be named."""

from __future__ import annotations

import sqlalchemy as sa

from crowdwise.server.annotator_rows import add_annotators
from crowdwise.server.campaign_rows import CampaignRow, create_campaign, find_campaign
from crowdwise.server.item_rows import ItemGiven, add_items

TEXTS = (
    ("The soup was cold and the waiter did not care.", "negative"),
    ("Best bread in town, we come every Sunday.", "positive"),
    ("They open at nine and close at six.", "neutral"),
    ("I waited an hour for a table I had booked.", None),
    ("The garden is lovely in the evening.", None),
    ("The menu has twelve dishes.", None),
    ("My coffee tasted burnt, the second one too.", None),
    ("Friendly people, fair prices, clean rooms.", None),
    ("It is next to the station.", None),
    ("Not bad at all, though the music was loud.", None),
    ("I would not go there again if it were free.", None),
    ("The portions are small, but everything is fresh.", None),
    ("We were the only guests, and still forgotten.", None),
    ("You pay at the counter.", None),
    ("The cake alone is worth the walk.", None),
    ("Nice view. That is all I can say for it.", None),
    ("There are forty seats inside and ten outside.", "neutral"),
    ("A warm welcome and the best soup of the winter.", "positive"),
    ("The bill was wrong twice, and never in our favour.", "negative"),
    ("It was fine, I suppose.", None),
)

__all__ = ["make_sample"]


def make_sample(conn: sa.Connection, annotator: str) -> CampaignRow:
    """The sample campaign, with an annotator who can label it at once."""
    row = create_campaign(
        conn,
        {
            "name": "Sample: moods of reviews", "classes": ["negative", "neutral", "positive"], "budget": 100.0,
            "max_votes": 5, "gold_rate": 0.15, "feedback": True,
            "instructions": "How does the writer feel about the place? Choose **neutral** where no feeling is shown.",
        },
    )  # fmt: skip
    add_items(conn, row, [ItemGiven(f"review{i + 1}", {"text": text}, gold) for i, (text, gold) in enumerate(TEXTS)])
    add_annotators(conn, row, {annotator: None})
    return find_campaign(conn, row.id)
