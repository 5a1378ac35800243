"""What a user writes: pipelines, their graph, the project's files and settings."""
