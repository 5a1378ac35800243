"""Frozen records and arithmetic. Standard library only."""
