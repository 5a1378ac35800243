"""Tables with keys: one row per key, what of a batch changes them, what they remember, what is there twice."""
