"""Timing: the best of a few rounds in which the jobs alternate."""

import time


def best_of(rounds, fresh=None, **jobs):
    """Return the best time of each job. The jobs alternate, so that a slow phase of the machine affects all of them.

    With `fresh`, each run of a job receives a new result of `fresh()`, which is not timed.
    """
    times = {name: [] for name in jobs}
    for number in range(rounds):
        for name in list(jobs) if number % 2 == 0 else reversed(list(jobs)):
            arguments = () if fresh is None else (fresh(),)
            started = time.perf_counter()
            jobs[name](*arguments)
            times[name].append(time.perf_counter() - started)
    return {name: min(found) for name, found in times.items()}


def figure(what, value, unit, goal, **seconds):
    """Return one figure with the times it was computed from."""
    return {"what": what, "figure": value, "unit": unit, "goal": goal, **{k: round(v, 4) for k, v in seconds.items()}}
