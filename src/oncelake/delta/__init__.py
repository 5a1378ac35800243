"""Delta tables: the log without a JVM, the writes, prepared rows, compaction."""
