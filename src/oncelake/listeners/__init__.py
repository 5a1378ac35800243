"""Who listens to a run: the ledger."""
