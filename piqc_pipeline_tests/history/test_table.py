from datetime import timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from piqc_pipeline.history.samples import HISTORY_COLUMNS, conform
from piqc_pipeline.history.table import check_window, merged
from piqc_pipeline_tests.history.rows import DAY, NEXT_DAY, rows

FULL = {"samples_seen": 10, "samples_expected": 10, "devices_seen": 4, "devices_expected": 4}
HALF = {"samples_seen": 5, "samples_expected": 10, "devices_seen": 4, "devices_expected": 4}
TWO_OF_FOUR = {"samples_seen": 5, "samples_expected": 5, "devices_seen": 2, "devices_expected": 4}


@pytest.mark.parametrize(
    ("stored", "incoming", "winner"),
    [
        (rows([0.1], **FULL), rows([0.2], **FULL), 0.2),
        (rows([0.1], **FULL), rows([0.2], **HALF), 0.1),
        (rows([0.1], **HALF), rows([0.2], **FULL), 0.2),
        (rows([0.1], **FULL), rows([0.2], **TWO_OF_FOUR), 0.1),
        (rows([0.1]), rows([None]), 0.1),
        (rows([None]), rows([0.2]), 0.2),
        (rows([0.1]), rows([0.2]), 0.2),
    ],
    ids=["equal", "fewer samples", "more samples", "fewer devices", "unknown now", "unknown before", "no coverage"],
)
def test_the_fuller_row_stays_and_the_newer_wins_a_tie(
    stored: pl.DataFrame, incoming: pl.DataFrame, winner: float
) -> None:
    frame, outcome = merged(stored, incoming)
    assert frame["utilization"].to_list() == [winner]
    assert outcome.rows_written + outcome.rows_kept == 1
    assert bool(outcome.doubts("the answer")) == (outcome.rows_kept == 1)
    # The same beside a bucket that only one side has, where no quick way exists.
    later = rows([0.9], start=DAY + timedelta(hours=1))
    mixed, _ = merged(pl.concat([stored, later]), incoming)
    assert mixed["utilization"].to_list() == [winner, 0.9]


def test_force_takes_the_answer() -> None:
    frame, outcome = merged(rows([0.1, 0.2], **FULL), rows([0.3], **HALF), force=True)
    assert frame["utilization"].to_list() == [0.3]
    assert (outcome.rows_written, outcome.rows_kept) == (1, 0)


def test_two_bucket_widths_never_share_a_day() -> None:
    wide = rows([0.1, 0.2], step_seconds=600)
    narrow = rows([0.3, 0.4, 0.5, 0.6])
    assert merged(wide, narrow)[0]["step_seconds"].to_list() == [300] * 4
    less, outcome = merged(wide, narrow.head(1))
    assert less["step_seconds"].to_list() == [600] * 2
    assert [str(doubt) for doubt in outcome.doubts("the answer")] == [
        "1 workload-days stay as stored: the answer has another bucket width there and is emptier"
    ]


def test_rounding_to_what_signals_carry_and_nan_is_unknown() -> None:
    frame = conform(
        rows([0.5]).with_columns(utilization=pl.lit(0.123456), busy_gpus=pl.lit(float("nan")), offered_rate=-0.0)
    )
    assert frame["utilization"].to_list() == [0.1235]
    assert frame["busy_gpus"].to_list() == [None]
    assert str(frame["offered_rate"][0]) == "0.0"


@given(st.permutations(range(6)))
@settings(max_examples=25, deadline=None)
def test_rows_in_any_order_are_the_same_window(order: list[int]) -> None:
    both = pl.concat([rows([0.1, 0.2, 0.3]), rows([0.4, 0.5, 0.6], workload="prod/inference/Deployment/embed")])
    assert check_window(DAY, NEXT_DAY, both[order]).equals(both)


coverage = st.integers(0, 4)
answer = st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 100), coverage, coverage), max_size=6)


def frame_of(given_answer: dict[int, tuple[int, int, int]]) -> pl.DataFrame:
    parts = [
        rows(
            [value / 100],
            start=DAY + timedelta(minutes=5 * bucket),
            samples_seen=seen,
            samples_expected=4,
            devices_seen=devices,
            devices_expected=4,
        )
        for bucket, (value, seen, devices) in sorted(given_answer.items())
    ]
    return pl.concat(parts) if parts else rows([])


@given(st.lists(answer, min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_answers_in_a_row_keep_the_fullest_of_each_bucket_and_running_again_changes_nothing(
    answers: list[dict[int, tuple[int, int, int]]],
) -> None:
    table = rows([])
    naive: dict[int, tuple[int, int, int]] = {}
    for given_answer in answers:
        for _ in range(2):
            table, _outcome = merged(table, frame_of(given_answer))
        for bucket, new in given_answer.items():
            old = naive.get(bucket)
            if old is None or new[1] * new[2] >= old[1] * old[2]:
                naive[bucket] = new
    assert table.select(HISTORY_COLUMNS).equals(frame_of(naive))
