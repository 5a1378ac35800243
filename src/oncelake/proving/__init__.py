"""The prover: run a job in a sandbox, kill it at every step, retry it, and compare its tables with those of a clean run."""
