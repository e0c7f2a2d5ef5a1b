"""Exports of annotation tools: each tool has ``read_TOOL``, and is recognised by its content, not by its name.

To add a tool: write ``read_TOOL`` where similar tools are, and add its line to ``crowdwise.registry`` with the columns
that only its exports have; where no columns do, write ``recognises_TOOL``.
"""
