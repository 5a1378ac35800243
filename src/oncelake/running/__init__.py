"""The commit protocol: a plan is executed, work by work, exactly once."""
