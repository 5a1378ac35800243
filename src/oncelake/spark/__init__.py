"""Spark sessions and columns."""
