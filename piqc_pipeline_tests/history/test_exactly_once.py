import random
from pathlib import Path

import pytest

from piqc_pipeline.history.store import open_store
from piqc_pipeline_tests.history.writers import BUCKETS, forked, write_days, write_for_ever, write_halves

ROUNDS = 20
LIMIT_SECONDS = 60.0


@pytest.mark.cli
@pytest.mark.parametrize("name", ["history.duckdb", "lake"])
def test_a_killed_writer_leaves_a_whole_day_and_loses_nothing_it_told(tmp_path: Path, name: str) -> None:
    location = str(tmp_path / name)
    random.seed(3)
    last = 0
    for _ in range(ROUNDS):
        told, telling = forked.Pipe(duplex=False)
        writer = forked.Process(target=write_for_ever, args=(location, last + 1, telling))
        writer.start()
        telling.close()
        assert told.poll(LIMIT_SECONDS)
        writer.join(random.uniform(0.0, 0.15))
        writer.kill()
        writer.join(LIMIT_SECONDS)
        while told.poll():
            try:
                last = told.recv()
            except EOFError:
                break
        stored = open_store(location).read()
        values = set(stored["utilization"])
        assert stored.height == BUCKETS
        assert len(values) == 1
        # The value after the last one told may be stored already: it was killed before it could tell.
        last = round(values.pop() * 10_000) if values <= {last / 10_000, (last + 1) / 10_000} else -1
        assert last > 0


@pytest.mark.cli
@pytest.mark.parametrize("name", ["history.duckdb", "lake"])
def test_writers_at_once_give_the_rows_of_one(tmp_path: Path, name: str) -> None:
    location = str(tmp_path / name)
    writers = [forked.Process(target=write_days, args=(location, number, 2, {})) for number in range(2)]
    writers += [forked.Process(target=write_halves, args=(location, number)) for number in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(LIMIT_SECONDS)
    assert [writer.exitcode for writer in writers] == [0] * 4
    stored = open_store(location).read()
    # Two days of one writer each, and a common day with three workloads.
    assert stored.height == 5 * BUCKETS
    assert stored.n_unique(["workload", "ts"]) == stored.height
