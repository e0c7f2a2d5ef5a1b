"""Campaigns as they are kept: in a folder (SQLite, nothing else is needed), or behind the server (SQLAlchemy, also
PostgreSQL).

Both: ``canonical`` (names as they are written), ``intake`` (validates incoming votes), ``vote_stream`` (the model that
follows the votes, and its snapshots), ``settings`` (what may be changed). A folder: ``campaign``, over ``journal``
(tables and transactions), ``roster`` (items and annotators) and ``asking`` (questions that are out). Behind the server:
``database``, ``store_tables`` and ``group_commit`` (tables and transactions), ``..._rows`` (what is read and written),
``live_votes`` (a campaign in memory), ``backups``, and ``campaign_folders`` (from and to a folder).
"""

from __future__ import annotations

from crowdwise.core.lazy import lazily

_WHERE = {"asking": ("Question",), "campaign": ("Campaign",), "intake": ("Receipt",)}
__all__, __getattr__, __dir__ = lazily(__name__, _WHERE)
