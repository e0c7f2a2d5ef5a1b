"""Exports of annotation tools: one file per tool, each with ``recognises`` (by content, not by name) and ``read``.

To add a tool: write its file here and add its line to ``crowdwise.registry``.
"""
