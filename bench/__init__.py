"""Figures anyone can measure again: `python -m bench`, or one of them: `python -m bench layer_tax`."""
