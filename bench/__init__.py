"""Reproducible benchmarks: run all with `python -m bench`, or one with `python -m bench layer_tax`."""
