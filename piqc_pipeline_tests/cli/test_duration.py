"""Is a duration read as it is meant, and refused where it means nothing?"""

import click
import pytest

from piqc_pipeline.cli.duration import Duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("5h", 18_000),
        ("2d", 172_800),
        ("600", 600),
        ("1.5h", 5400),
        (" 10M ", 600),
        (45, 45),
    ],
)
def test_a_duration_is_read_in_seconds(text: object, seconds: int) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "m", "ten", "10 y", "1h30m", "nan", "inf", "-5m", "31d", "1e400"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no duration|out of range"):
        Duration().convert(text, None, None)


def test_a_path_of_no_length_is_refused_where_one_is_needed() -> None:
    assert Duration().convert("0s", None, None) == 0
    with pytest.raises(click.BadParameter, match="1s to 30d"):
        Duration(least_seconds=1).convert("0s", None, None)
