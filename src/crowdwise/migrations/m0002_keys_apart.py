"""The key of sessions leaves the store for a file, sessions that were ended are noted, and ids that clients chose are
kept apart from those of the server."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("UPDATE votes SET vote_id = ':' || vote_id WHERE vote_id NOT LIKE '[%' AND retracts IS NULL")
    op.drop_table("facts")
    op.create_table(
        "ended_sessions",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("expires", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
