"""How many requests per second does the typical day ask for at a given hour?

A quiet night at 10, a morning ramp to 100 at the start of work, an afternoon at 200, an evening at 20: the shape of
the specification's load test, in shares of its peak of 200. Plain arithmetic; Locust belongs to `locustfile.py`.
"""

from itertools import pairwise

PEAK_RPS = 200.0
"""Requests per second of the busiest hours in the original shape."""

DAY_HOURS = 24.0

CORNERS: tuple[tuple[float, float], ...] = (
    (0, 10),
    (7, 10),
    (8, 100),
    (12, 100),
    (14, 200),
    (17, 200),
    (19, 20),
    (23, 20),
    (24, 10),
)
"""(hour of the day, requests per second); straight lines between."""


def rps_at(hour: float, peak_rps: float = PEAK_RPS) -> float:
    """The typical day's rate at an hour, scaled so that its highest is `peak_rps`.

    Args:
        hour: 0 to 24; later hours wrap around into the next day.
        peak_rps: Requests per second at the day's height, above 0.
    """
    hour %= DAY_HOURS
    for (left, low), (right, high) in pairwise(CORNERS):
        if left <= hour <= right:
            return (low + (high - low) * (hour - left) / (right - left)) * peak_rps / PEAK_RPS
    raise AssertionError("the corners cover the whole day")
