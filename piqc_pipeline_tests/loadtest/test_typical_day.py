"""Is the typical day the one of the specification?"""

import pytest

from loadtest.typical_day import rps_at


@pytest.mark.parametrize(
    ("hour", "rps"),
    [(0, 10), (6.9, 10), (7.5, 55), (10, 100), (13, 150), (15, 200), (18, 110), (21, 20), (24, 10), (39, 200)],
    ids=[
        "midnight",
        "before work",
        "half up the ramp",
        "morning",
        "noon",
        "peak",
        "way down",
        "evening",
        "wraps",
        "next",
    ],
)
def test_rate_at_an_hour(hour: float, rps: float) -> None:
    assert rps_at(hour) == pytest.approx(rps)


def test_height_scales_the_whole_day() -> None:
    assert rps_at(15, peak_rps=40) == 40
    assert rps_at(3, peak_rps=40) == 2
