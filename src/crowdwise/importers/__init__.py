"""Exports of annotation tools: each tool has ``recognises_TOOL`` (by content, not by name) and ``read_TOOL``.

To add a tool: write the two where similar tools are and add its line to ``crowdwise.registry``.
"""
