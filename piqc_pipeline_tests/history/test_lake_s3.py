"""The lake on a real S3 API of loopback (moto's server)."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import polars as pl
import pytest

from piqc_pipeline.errors import HistoryError, OutputUnwritable
from piqc_pipeline.history.lake import ParquetLake
from piqc_pipeline.history.store import open_store
from piqc_pipeline_tests.history.rows import DAY, NEXT_DAY, rows
from piqc_pipeline_tests.history.writers import BUCKETS, forked, write_days, write_part

LIMIT_SECONDS = 60.0
MOTO = Path(sys.executable).with_name("moto_server")

pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(
        not MOTO.exists() and not shutil.which("moto_server"), reason="no moto_server: install the dev group"
    ),
]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [str(MOTO), "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + LIMIT_SECONDS
        while True:
            try:
                httpx.put(f"{url}/history", timeout=5).raise_for_status()
                break
            except httpx.HTTPError:
                if time.monotonic() > deadline or server.poll() is not None:
                    pytest.fail("moto_server does not start")
                time.sleep(0.1)
        yield url
    finally:
        server.kill()
        server.wait(timeout=10)


@pytest.fixture(autouse=True)
def credentials(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)


def test_rows_come_back_from_object_storage_and_running_twice_changes_nothing() -> None:
    store = open_store("s3://history/one")
    assert store.read().is_empty()
    for _ in range(2):
        store.replace(DAY, NEXT_DAY, rows([0.1, 0.2]))
    assert store.read().equals(rows([0.1, 0.2]))
    assert store.days() == [DAY]
    assert store.query("SELECT max(utilization) AS top FROM gpu_utilization")["top"].to_list() == [0.2]


def test_observations_and_pruning_work_on_object_storage() -> None:
    store = open_store("s3://history/two")
    store.append_observations(rows([0.1, 0.2]))
    store.append_observations(rows([0.1, 0.2]))
    assert store.observations().height == 2
    store.replace(DAY, NEXT_DAY, rows([0.1]))
    store.replace(NEXT_DAY, NEXT_DAY + timedelta(days=1), rows([0.2], start=NEXT_DAY))
    assert store.prune(NEXT_DAY) == 3
    assert store.read()["utilization"].to_list() == [0.2]


def test_four_writers_at_once_give_whole_days() -> None:
    environ = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    writers = [forked.Process(target=write_days, args=("s3://history/four", number, 2, environ)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(LIMIT_SECONDS)
    assert [writer.exitcode for writer in writers] == [0] * 4
    stored = open_store("s3://history/four").read()
    assert stored.height == 5 * BUCKETS
    assert stored.n_unique(["workload", "ts"]) == stored.height
    assert sorted(set(stored["utilization"])) == [0.0, 0.1, 0.2, 0.3, 0.9]


def test_four_writers_of_parts_of_one_day_lose_nothing_and_compaction_merges_them() -> None:
    environ = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    writers = [forked.Process(target=write_part, args=("s3://history/parts", number, environ)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(LIMIT_SECONDS)
    assert [writer.exitcode for writer in writers] == [0] * 4
    store = open_store("s3://history/parts")
    # Two workloads, two halves of a day each.
    wanted = pl.concat(
        [
            rows([half / 10 + 0.5] * (BUCKETS // 2), workload=f"prod/inference/Deployment/w{number}", start=start)
            for number in range(2)
            for half, start in enumerate((DAY, DAY + timedelta(hours=12)))
        ]
    )
    assert store.read().equals(wanted)
    for _ in range(2):
        store.compact()
    assert store.read().equals(wanted)
    assert store.days() == [DAY]
    # Running a part again, and the whole day, changes nothing and doubles nothing.
    store.replace(DAY, NEXT_DAY, wanted)
    assert store.read().equals(wanted)
    count = "SELECT count(*) AS n, count(DISTINCT workload) AS w FROM gpu_utilization WHERE ts >= '2025-01-06 12:00'"
    assert store.query(count).row(0) == (BUCKETS, 2)


def test_the_answer_by_force_replaces_what_other_parts_hold() -> None:
    store = open_store("s3://history/force")
    other = "prod/inference/Deployment/embed"
    store.replace(DAY, NEXT_DAY, rows([0.1, 0.2], devices_seen=8))
    store.replace(DAY, NEXT_DAY, rows([0.5], workload=other))
    assert store.replace(DAY, NEXT_DAY, rows([0.3], devices_seen=1)).rows_kept == 3
    store.replace(DAY, NEXT_DAY, rows([0.3], devices_seen=1), force=True)
    assert store.read().equals(rows([0.3], devices_seen=1))


class Killed(BaseException):
    """The process ends here."""


def dies_before(put: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the writer put that many objects and die before the next."""
    whole, left = ParquetLake._put, iter(range(put))

    def dying(self: ParquetLake, path: str, frame: pl.DataFrame) -> None:
        if next(left, None) is None:
            raise Killed
        whole(self, path, frame)

    monkeypatch.setattr(ParquetLake, "_put", dying)


NARROW = rows([0.5] * 4, devices_seen=2)
"""20 minutes of five-minute buckets."""


@pytest.mark.parametrize("compacted", [False, True], ids=["parts", "compacted"])
@pytest.mark.parametrize(
    ("before", "new", "force"),
    [
        pytest.param(rows([0.1] * 4, devices_seen=2), NARROW, False, id="of equal rows the new ones"),
        pytest.param(rows([0.1] * 4, devices_seen=8), NARROW, True, id="emptier rows by force"),
        pytest.param(rows([0.1] * 8, devices_seen=8), NARROW, True, id="fewer rows by force"),
        pytest.param(rows([0.1, 0.2], step_seconds=600, devices_seen=1), NARROW, False, id="buckets of another width"),
        pytest.param(rows([0.1] * 4, devices_seen=1), NARROW, False, id="fuller rows"),
    ],
)
def test_of_a_writer_that_dies_before_it_emptied_the_old_objects_readers_see_the_new_rows_once(
    before: pl.DataFrame,
    new: pl.DataFrame,
    force: bool,
    compacted: bool,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    location = f"s3://history/dying/{request.node.callspec.id.replace(' ', '-')}"
    evening = rows([0.7] * 2, workload="prod/inference/Deployment/embed", start=DAY + timedelta(hours=20))
    store = open_store(location)
    # Three objects, two of which are overlapped: the window of the answer begins elsewhere.
    early = DAY + timedelta(minutes=10)
    store.replace(DAY, early, before.filter(pl.col("ts") < early))
    store.replace(early, DAY + timedelta(hours=2), before.filter(pl.col("ts") >= early))
    store.replace(DAY + timedelta(hours=12), NEXT_DAY, evening)
    if compacted:
        store.compact()
    start = DAY - timedelta(days=1)
    wanted = pl.concat([new, evening]) if not force else new
    for puts in (1, 2):
        with monkeypatch.context() as patched:
            dies_before(puts, patched)
            with pytest.raises(Killed):
                open_store(location).replace(start, NEXT_DAY, new, force=force)
                raise Killed  # nothing was left to empty
        assert open_store(location).read().equals(wanted)
        assert open_store(location).query("SELECT count(*) AS n FROM gpu_utilization")["n"].item() == wanted.height
    # The next run finishes what was begun, and then there is nothing to do.
    for _ in range(2):
        open_store(location).replace(start, NEXT_DAY, new, force=force)
        assert open_store(location).read().equals(wanted)
    open_store(location).compact()
    assert open_store(location).read().equals(wanted)


def test_rows_that_come_after_others_were_taken_out_are_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    location = "s3://history/taken-out"
    open_store(location).replace(DAY, NEXT_DAY, rows([0.1, 0.2]))
    for new, force in ((rows([]), True), (rows([0.3]), False)):
        with monkeypatch.context() as patched:
            dies_before(1, patched)
            with pytest.raises(Killed):
                open_store(location).replace(DAY, NEXT_DAY, new, force=force)
        assert open_store(location).read().equals(new)


def test_a_bucket_that_does_not_exist_is_one_sentence() -> None:
    with pytest.raises(HistoryError, match="there is no such bucket; create it"):
        open_store("s3://nobody/x").replace(DAY, NEXT_DAY, rows([0.1]))


def test_storage_that_does_not_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises((HistoryError, OutputUnwritable), match="cannot (read|write)"):
        open_store("s3://unreachable/x").replace(DAY, NEXT_DAY, rows([0.1]))
