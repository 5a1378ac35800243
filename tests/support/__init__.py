"""What tests of several tiers share: projects, rows, processes."""
