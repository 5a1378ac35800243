"""Timing: the best of a few alternating rounds, and how busy the machine was with other things."""

import time


def best_of(rounds, fresh=None, **jobs):
    """The best time of each job, the jobs taking turns so that a slow moment of the machine hits all of them.

    With `fresh` every job is given what that makes, each time anew; making it is not timed.
    """
    times = {name: [] for name in jobs}
    for number in range(rounds):
        for name in list(jobs) if number % 2 == 0 else reversed(list(jobs)):
            given = () if fresh is None else (fresh(),)
            begun = time.perf_counter()
            jobs[name](*given)
            times[name].append(time.perf_counter() - begun)
    return {name: min(found) for name, found in times.items()}


def figure(what, value, unit, goal, **seconds):
    """One figure, with the times it was made from."""
    return {"what": what, "figure": value, "unit": unit, "goal": goal, **{k: round(v, 4) for k, v in seconds.items()}}
