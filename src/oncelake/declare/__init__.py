"""Declarations: pipelines, their dependency graph, the project's files and settings."""
