"""Consensus labels in the forms that annotation tools import."""
