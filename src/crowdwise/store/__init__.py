"""Campaigns as they are kept: a folder with the journal of votes, and what it shares with the server's database.

================  ==================================================================================================
``campaign``      a folder in which questions go out and votes come in
``journal``       its tables and transactions; ``roster``: items and annotators; ``asking``: questions that are out
``canonical``     names as they are written; ``intake``: validates incoming votes
``vote_stream``   the model follows the votes; snapshots of it
``settings``      what a campaign was made with, and what of it may be changed
================  ==================================================================================================
"""

from __future__ import annotations

from crowdwise.core.lazy import lazily

_WHERE = {"asking": ("Question",), "campaign": ("Campaign",), "intake": ("Receipt",)}
__all__, __getattr__, __dir__ = lazily(__name__, _WHERE)
