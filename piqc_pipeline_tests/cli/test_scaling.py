"""`piqc plan`, `replay`, `lint`, `diff` as a user types them."""

import json
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import click
import polars as pl
import pytest
import yaml
from click.testing import CliRunner, Result

from piqc_pipeline.cli.scaling import diff_command, lint_command, plan_command, replay_command
from piqc_pipeline.errors import ArtifactAltered, ArtifactMissing, TraceUnreadable, UsageError
from piqc_pipeline.facts.snapshot import Unknown
from piqc_pipeline.facts.snapshot_file import write_snapshot
from piqc_pipeline.forecast import artifact
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.train import train
from piqc_pipeline.scaling.overlay import render, write_overlay
from piqc_pipeline_tests.forecast.examples import daily_wave, series_of
from piqc_pipeline_tests.scaling import plans
from piqc_pipeline_tests.scaling.lint_objects import GOOD, LITERAL
from piqc_pipeline_tests.scaling.test_limits import node, pod, snapshot, workload


def run(command, *arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), standalone_mode=False)


def test_lint_ends_with_1_on_errors_only(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(LITERAL)
    (tmp_path / "good.yaml").write_text(GOOD)
    bad = run(lint_command, str(tmp_path / "bad.yaml"), "--format", "json")
    assert bad.return_value == 1
    assert "never asks for more than 2 replicas" in json.loads(bad.output)["findings"][0]["message"]
    assert run(lint_command, str(tmp_path / "good.yaml")).return_value == 0
    sarif = json.loads(run(lint_command, str(tmp_path), "--format", "sarif").output)
    assert sarif["version"] == "2.1.0"


def test_replay_of_a_tidy_trace_prints_json(tmp_path: Path) -> None:
    series = series_of(daily_wave(days=3))
    frame = pl.DataFrame({"value": series.demand}).with_columns(
        ts=pl.datetime_range(series.start, series.end, f"{series.step_seconds}s", closed="left", eager=True),
        series_id=pl.lit("web"),
    )
    frame.write_parquet(tmp_path / "t.parquet")
    done = run(replay_command, str(tmp_path / "t.parquet"), "--lead", "5m", "--peak", "8", "--no-faults", "--json")
    body = json.loads(done.stdout)
    assert (body["schemaVersion"], body["lead_seconds"], body["peak_replicas"]) == ("piqc-replay.v1", 300, 8)
    assert len(body["series"][0]["policies"]) == 12
    assert body["series"][0]["why"]


def test_replay_says_which_trace_it_cannot_read(tmp_path: Path) -> None:
    assert isinstance(run(replay_command, str(tmp_path / "none.parquet")).exception, TraceUnreadable)


@pytest.mark.parametrize("lead", ["soon", "-1m", "99d", ""])
def test_a_lead_time_that_is_none_is_a_usage_error(tmp_path: Path, lead: str) -> None:
    assert isinstance(run(replay_command, "x", "--lead", lead).exception, click.UsageError)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with one workload, its forecast accepted."""
    place = tmp_path_factory.mktemp("data")
    series = replace(series_of(daily_wave(days=6)), workload=plans.CHAT)
    candidate = train([series], series.end, TrainPolicy(with_prophet=False, replay_nights=3))
    entry = replace(candidate.workloads[plans.CHAT], accepted=True, reasons=())
    artifact.write_candidate(replace(candidate, workloads={plans.CHAT: entry}), place / "model" / "candidate")
    artifact.promote(place / "model" / "candidate", place / "model")
    seen = replace(snapshot((node("a", 8), node("b", 8)), (pod("own", "a", 2),)), workloads=(workload(),))
    write_snapshot(seen, place / "facts" / "snapshot.json")
    (place / "now").write_text(series.end.isoformat())
    return place


def test_plan_prints_counts_with_reasons_and_writes_manifests_on_request(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIQC_NOW", (folder / "now").read_text())
    out = tmp_path / "manifests"
    done = run(plan_command, "--data-dir", str(folder), "--format", "json", "--write", str(out), "--mode", "shadow")
    (plan,) = json.loads(done.stdout)["plans"]
    assert plan["accepted"] is True
    assert plan["steps"][0]["explain"].startswith(str(plan["steps"][0]["replicas"]))
    written = yaml.safe_load((out / "inference" / "chat-8b.scaledobject.yaml").read_text())
    assert written["metadata"]["annotations"] == {"autoscaling.keda.sh/paused": "true"}
    assert [trigger["name"] for trigger in written["spec"]["triggers"]] == ["forecast", "observed"]
    monkeypatch.setenv("COLUMNS", "160")
    table = run(plan_command, "--data-dir", str(folder))
    assert table.return_value == 0
    assert "inference/chat-8b" in table.stdout


def test_a_workload_that_was_not_read_ends_a_plan_with_3(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIQC_NOW", (folder / "now").read_text())
    unread = workload(id="demo/inference/ReplicaSet/x", kind="ReplicaSet", name="x", replicas_wanted=None)
    seen = snapshot((node("a", 8), node("b", 8)), (pod("own", "a", 2),))
    refused = Unknown("owners", "replicasets: 403", read_failed=True)
    seen = replace(seen, workloads=(workload(), unread), unknown=(refused,))
    write_snapshot(seen, tmp_path / "facts" / "snapshot.json")
    (tmp_path / "model").symlink_to(folder / "model")
    done = run(plan_command, "--data-dir", str(tmp_path))
    assert done.return_value == 3
    assert "not planned: cannot scale demo/inference/ReplicaSet/x" in done.stderr
    assert "inference/chat-8b" in done.stdout


@pytest.mark.parametrize("fault", ["missing", "altered"])
def test_without_a_whole_artifact_plan_writes_nothing(folder: Path, tmp_path: Path, fault: str) -> None:
    if fault == "altered":
        place = tmp_path / "model" / "current"
        place.mkdir(parents=True)
        for path in (folder / "model" / "current").iterdir():
            (place / path.name).write_bytes(path.read_bytes())
        (place / "predictor.json").write_text("{}")
    done = run(plan_command, "--data-dir", str(tmp_path), "--write", str(tmp_path / "manifests"))
    assert isinstance(done.exception, ArtifactMissing if fault == "missing" else ArtifactAltered)
    assert not (tmp_path / "manifests").exists()


def test_a_minimum_above_the_maximum_is_a_usage_error(folder: Path) -> None:
    done = run(plan_command, "--data-dir", str(folder), "--min-replicas", "5", "--max-replicas", "4")
    assert isinstance(done.exception, UsageError)


class _Api(BaseHTTPRequestHandler):
    """Serves the objects it was given, 404 for others, 403 for PrometheusRules."""

    objects: dict[str, dict[str, object]] = {}

    def do_GET(self) -> None:
        name = self.path.split("?")[0].rsplit("/", 1)[-1]
        if "prometheusrules" in self.path:
            status, body = 403, {"kind": "Status", "message": "forbidden", "code": 403}
        elif name in self.objects:
            status, body = 200, self.objects[name]
        else:
            status, body = 404, {"kind": "Status", "message": "not found", "code": 404}
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""


@pytest.mark.service
def test_diff_reads_the_live_objects_and_changes_nothing(tmp_path: Path) -> None:
    files = render([plans.plan(), plans.plan("demo/inference/StatefulSet/embed")], plans.POLICY)
    write_overlay(files, tmp_path / "m")
    live = yaml.safe_load(files["inference/chat-8b.scaledobject.yaml"])
    live["spec"]["maxReplicaCount"] = 4
    _Api.objects = {"chat-8b": live}
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Api)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "u", "user": {}}],
        }
        (tmp_path / "kc").write_text(yaml.safe_dump(config))
        done = run(diff_command, str(tmp_path / "m"), "--kubeconfig", str(tmp_path / "kc"), "--format", "json")
    finally:
        server.shutdown()
        server.server_close()
    found = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert found["inference/ScaledObject/chat-8b"]["changes"] == [
        {"path": "spec.maxReplicaCount", "live": 4, "written": 12}
    ]
    assert found["inference/ScaledObject/embed"]["state"] == "missing"
    assert found["piqc/PrometheusRule/piqc-workload-demand"]["state"] == "unread"
    assert done.return_value == 3
