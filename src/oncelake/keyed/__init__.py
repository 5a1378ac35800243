"""Keyed tables: deduplicate a batch to one row per key, upsert it, keep tombstones, build SCD2 history, repair duplicates."""
