"""Streams: micro-batches of Structured Streaming, each committed once."""
