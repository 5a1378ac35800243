"""The proof: run a job in a sandbox, kill it everywhere, run it again, and compare its tables with a clean run's."""
