"""The first tables. A new store is made as ``store_tables`` declares it; revisions change those that are there."""

from __future__ import annotations

revision = "0001"
down_revision = None
