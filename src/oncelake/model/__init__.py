"""Frozen records and time arithmetic. Standard library only."""
