"""The first tables."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    from crowdwise.server.store_tables import metadata

    metadata.create_all(op.get_bind())
