"""Is a real artifact read whole, refused when it is not, and moved to live demand as the forecast package says?"""

import hashlib
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from piqc_pipeline.errors import ArtifactAltered, ArtifactMissing
from piqc_pipeline.forecast import artifact as forecast_artifact
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.refresh import refresh
from piqc_pipeline.forecast.series import DemandSeries
from piqc_pipeline.forecast.train import train
from piqc_pipeline.predictor.anchor import LiveAnchor
from piqc_pipeline.predictor.lean import load

NOW = datetime(2025, 1, 20, tzinfo=UTC)
STEP = 1800
CHAT = "demo/inference/Deployment/chat-8b"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of one small series, trained for real (without Prophet, which takes seconds)."""
    rows = 10 * 86_400 // STEP
    day = np.arange(rows) * STEP / 86_400
    demand = 3 + 2 * np.sin(2 * np.pi * day) + 0.1 * np.random.default_rng(0).standard_normal(rows)
    series = DemandSeries(CHAT, NOW - timedelta(seconds=STEP * rows), STEP, demand, np.full(rows, 7.0))
    candidate = train([series], NOW, TrainPolicy(with_prophet=False))
    assert candidate.workloads[CHAT].state is not None
    return forecast_artifact.write_candidate(candidate, tmp_path_factory.mktemp("model") / "current")


def copy(folder: Path, place: Path, change: Callable[[bytes], bytes], *, rehash: bool) -> Path:
    """The artifact with its text changed, and its hash made to fit or not."""
    place.mkdir()
    text = (folder / "predictor.json").read_bytes()
    changed = change(text)
    (place / "predictor.json").write_bytes(changed)
    digest = hashlib.sha256(changed if rehash else text).hexdigest()
    (place / "predictor.json.sha256").write_text(f"{digest}  predictor.json\n")
    return place


def test_lean_artifact_says_what_the_whole_one_says(folder: Path) -> None:
    lean, whole = load(folder), forecast_artifact.load(folder)
    assert lean.sha256 == whole.sha256 and lean.trained_at == whole.trained_at
    small, full = lean.workloads[CHAT], whole.workloads[CHAT]
    for column in ("q50", "q90", "lower", "peak_q50", "peak_q90"):
        exact = column.startswith("peak")
        assert tuple(getattr(small.table, column)) == pytest.approx(
            getattr(full.table, column), rel=0 if exact else 1e-6
        )
    assert (small.accepted, small.valid_until, small.lead_seconds) == (
        full.accepted,
        full.valid_until,
        full.lead_seconds,
    )
    assert small.state is not None and dict(small.state) == full.state


def edit(**fields: object) -> Callable[[bytes], bytes]:
    return lambda text: json.dumps(json.loads(text) | fields).encode()


def edit_workload(**fields: object) -> Callable[[bytes], bytes]:
    def change(text: bytes) -> bytes:
        document = json.loads(text)
        document["workloads"][CHAT] |= fields
        return json.dumps(document).encode()

    return change


@pytest.mark.parametrize(
    ("change", "rehash", "says"),
    [
        (lambda text: text.replace(b"true", b"false", 1), False, "altered"),
        (lambda text: text[: len(text) // 2], False, "half-written"),
        (lambda text: text[: len(text) // 2], True, "schema"),
        (lambda text: b"", True, "0 bytes"),
        (lambda text: b"<html>", True, "schema"),
        (lambda text: b"[1]", True, "schema"),
        (edit(schemaVersion="piqc-predictor.v2"), True, "a newer program"),
        (edit(schemaVersion="piqc-predictor.v0"), True, "an older program"),
        (edit(workloads={"x": {}}), True, "schema at x"),
        (edit_workload(accepted="perhaps"), True, "schema at " + CHAT),
        (edit_workload(validUntil="yesterday"), True, "schema at " + CHAT),
        (edit_workload(workload="other"), True, "also other"),
    ],
    ids=[
        "hash",
        "cut",
        "cut and rehashed",
        "empty",
        "html",
        "list",
        "newer",
        "older",
        "hollow",
        "type",
        "date",
        "name",
    ],
)
def test_artifact_that_is_not_whole_is_refused(
    folder: Path, tmp_path: Path, change: Callable[[bytes], bytes], rehash: bool, says: str
) -> None:
    with pytest.raises(ArtifactAltered, match=says):
        load(copy(folder, tmp_path / "m", change, rehash=rehash))


def edit_table(**columns: object) -> Callable[[bytes], bytes]:
    def change(text: bytes) -> bytes:
        document = json.loads(text)
        document["workloads"][CHAT]["table"] |= columns
        return json.dumps(document).encode()

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (edit_table(q50=[]), "different lengths"),
        (edit_table(peakQ90=[1.0]), "different lengths"),
        (edit_table(q50=[], q90=[], lower=[], peakQ50=[], peakQ90=[], peakQ95=[]), "table is empty"),
        (edit_table(q50=[-1.0], q90=[1.0], lower=[0.0], peakQ50=[1.0], peakQ90=[1.0], peakQ95=[]), "negative"),
        (edit_table(stepSeconds=0), "0 s wide"),
        (edit_workload(stepSeconds=0), "0 s wide"),
        (edit_workload(gpusPerReplica=-1), "takes -1 GPUs"),
    ],
    ids=["a column gone", "ragged", "empty", "negative", "width of the table", "width", "size"],
)
def test_artifact_that_nobody_can_compute_with_is_refused(
    folder: Path, tmp_path: Path, change: Callable[[bytes], bytes], says: str
) -> None:
    place = copy(folder, tmp_path / "m", change, rehash=True)
    for read in (load, forecast_artifact.load):
        with pytest.raises(ArtifactAltered, match=f"{CHAT}: .*{says}"):
            read(place)


@pytest.mark.parametrize("missing", ["predictor.json", "predictor.json.sha256"])
def test_missing_file_is_named(folder: Path, tmp_path: Path, missing: str) -> None:
    place = copy(folder, tmp_path / "m", lambda text: text, rehash=True)
    (place / missing).unlink()
    with pytest.raises(ArtifactMissing, match=missing):
        load(place)


def test_live_demand_moves_the_forecast_as_one_refresh_does(folder: Path) -> None:
    whole, lean = forecast_artifact.load(folder).workloads[CHAT], load(folder).workloads[CHAT]
    anchor = LiveAnchor()
    first = anchor.move(lean, NOW, [6.0], NOW + timedelta(seconds=STEP))
    second = anchor.move(lean, NOW + timedelta(seconds=STEP), [6.5, math.nan, 6.0], NOW + timedelta(seconds=4 * STEP))
    assert first is not None and second is not None
    once = refresh(whole, NOW, [6.0, 6.5, math.nan, 6.0], NOW + timedelta(seconds=4 * STEP))
    assert second.data_until == once.data_until == NOW + timedelta(seconds=4 * STEP)
    assert tuple(second.table.q50) == pytest.approx(once.table.q50, rel=1e-5)
    assert tuple(second.table.peak_q90) == pytest.approx(once.table.peak_q90, rel=1e-4)
    assert second.table.q50[0] > whole.table.q50[4]  # demand of 6 where the night expected less lifts what comes


def test_silence_of_more_than_a_day_leaves_the_forecast_to_go_stale(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lean = load(folder).workloads[CHAT]
    anchor = LiveAnchor()
    late = NOW + timedelta(hours=30)
    assert anchor.move(lean, late, [3.0], late) is None
    said = f"the forecast of {CHAT} stays as it was and goes stale: no demand was measured for 30 h"
    assert [record.getMessage().startswith(said) for record in caplog.records] == [True]
    assert anchor.move(lean, late, [3.0], late) is None  # said once, not again every refresh
    anchor.reset()
    assert anchor.move(lean, NOW, [3.0], NOW + timedelta(seconds=STEP)) is not None


def test_a_forecast_that_has_ended_is_left_as_it_is(folder: Path) -> None:
    lean = load(folder).workloads[CHAT]
    late = lean.valid_until + timedelta(seconds=1)
    assert LiveAnchor().move(lean, NOW, [3.0] * 80, late) is None


def test_buckets_beyond_all_that_was_fitted_end_one_forecast_and_not_the_refresh(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Nine days of buckets an hour after training: a Prometheus whose clock runs ahead. The fits end before.
    lean = load(folder).workloads[CHAT]
    anchor = LiveAnchor()
    ahead = [math.nan] * (9 * 86_400 // STEP) + [3.0]
    assert anchor.move(lean, NOW, ahead, NOW + timedelta(hours=1)) is None
    (record,) = caplog.records
    assert "came 216 h after the training" in record.getMessage() and record.exc_info is None
    assert anchor.move(lean, NOW, [3.0], NOW + timedelta(hours=1)) is None  # its state is not known any more
