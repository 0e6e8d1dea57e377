"""`piqc scan` from a recorded cluster: every option does what it says, and stdout holds the result alone."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from piqc_pipeline.cli.main import COMMANDS, cli
from piqc_pipeline.cli.scan import completion_command
from piqc_pipeline.errors import OutputUnwritable, PiqcError, PricesUnreadable, UsageError
from piqc_pipeline.facts.bundle import bundle_from_json
from piqc_pipeline.facts.snapshot_file import read_snapshot
from piqc_pipeline_tests.cli.dump import write_dump

Run = Callable[..., Result]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_dump(tmp_path)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PIQC_") or name == "KUBECONFIG"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIQC_NOW", "2025-01-20T00:00:00Z")

    def call(*arguments: str | Path) -> Result:
        return CliRunner().invoke(cli, [str(part) for part in arguments], standalone_mode=False)

    return call


def code(result: Result) -> int:
    if isinstance(result.exception, PiqcError):
        return result.exception.exit_code
    assert result.exception is None, result.exception
    return int(result.return_value or 0)


def test_json_on_stdout_is_one_report_and_nothing_else(run: Run, dump: Path) -> None:
    result = run("scan", "--from-dump", dump, "--format", "json", "-o", "-")
    report = json.loads(result.stdout)
    assert code(result) == 0
    assert report["summary"]["installedUsdPerHour"] == 24
    assert report["summary"]["unallocatedUsdPerDay"] == 384
    assert [row["id"] for row in report["workloads"]] == ["cluster/inference/Deployment/llm"]
    assert report["workloads"][0]["ageHours"] == 240


def test_formats_may_be_named_as_in_kubectl(run: Run, dump: Path, tmp_path: Path) -> None:
    whole = json.loads(run("scan", "--from-dump", dump, "--format", "json").stdout)
    assert json.loads(run("scan", "--from-dump", dump, "-o", "json").stdout) == whole
    assert yaml.safe_load(run("scan", "--from-dump", dump, "-o", "yaml").stdout) == whole
    assert "Cost Summary" in run("scan", "--from-dump", dump, "-o", "table").stdout
    assert [path.name for path in tmp_path.iterdir()] == [dump.name]


def test_in_a_pipe_rows_and_sentences_are_one_line_each(run: Run, dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = run("scan", "--from-dump", dump).stdout.splitlines()
    assert "Left out" not in lines[-1] and all(line == line.rstrip() for line in lines)
    assert len([line for line in lines if line.startswith("GPU Util: ")][0]) > 80
    monkeypatch.setenv("COLUMNS", "64")
    assert max(map(len, run("scan", "--from-dump", dump).stdout.splitlines())) <= 64


def test_yaml_says_the_same_as_json(run: Run, dump: Path) -> None:
    text = run("scan", "--from-dump", dump, "--format", "yaml").stdout
    assert yaml.safe_load(text) == json.loads(run("scan", "--from-dump", dump, "--format", "json").stdout)


def test_a_saved_scan_is_what_planning_reads(run: Run, dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIQC_DATA_DIR", "kept")
    assert code(run("scan", "--from-dump", dump, "--save")) == 0
    assert [one.id for one in read_snapshot(Path("kept/facts/snapshot.json")).workloads] == [
        "cluster/inference/Deployment/llm"
    ]


def test_pods_in_place_of_workloads_are_not_saved(run: Run, dump: Path) -> None:
    result = run("scan", "--from-dump", dump, "--save", "--no-aggregate")
    assert isinstance(result.exception, UsageError)


def test_the_default_is_a_table(run: Run, dump: Path) -> None:
    result = run("scan", "--from-dump", dump, "--coverage")
    assert "Cost Summary" in result.stdout
    assert "DCGM exporter" in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("arguments", [(), ("--format", "json"), ("--format", "yaml", "-o", "out", "--output-piqc")])
def test_no_secret_is_in_any_output(run: Run, dump: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = run("scan", "--from-dump", dump, *arguments)
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file() and path != dump]
    assert "CANARY" not in "".join([result.stdout, result.stderr, *written])


def test_a_folder_gets_one_modelspec_a_workload_and_stdout_stays_empty(run: Run, dump: Path, tmp_path: Path) -> None:
    result = run("scan", "--from-dump", dump, "--format", "json", "-o", "specs")
    assert result.stdout == ""
    assert [path.name for path in (tmp_path / "specs").iterdir()] == ["inference_llm.json"]
    assert json.loads((tmp_path / "specs" / "inference_llm.json").read_text())["kind"] == "ModelSpec"


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_combined_is_one_file(run: Run, dump: Path, tmp_path: Path, form: str) -> None:
    run("scan", "--from-dump", dump, "--format", form, "-o", "specs", "--combined")
    (path,) = (tmp_path / "specs").iterdir()
    assert path.name == f"modelspecs.{form}"
    text = path.read_text()
    documents = json.loads(text) if form == "json" else list(yaml.safe_load_all(text))
    assert [document["metadata"]["name"] for document in documents] == ["llm"]


def test_a_folder_below_a_file_is_refused_also_where_no_workload_is_written(run: Run, dump: Path) -> None:
    for more in ((), ("-l", "app=nobody")):
        result = run("scan", "--from-dump", dump, "--format", "json", "-o", dump / "x", *more)
        assert isinstance(result.exception, OutputUnwritable)


def test_a_password_in_the_address_of_prometheus_is_refused_and_not_repeated(run: Run) -> None:
    result = run("scan", "--mode", "dry-run", "--prometheus-url", "http://reader:hunter2@p:9090")
    assert isinstance(result.exception, UsageError)
    assert "hunter2" not in f"{result.exception}{result.output}"


def test_the_facts_bundle_is_written_and_valid(run: Run, dump: Path, tmp_path: Path) -> None:
    run("scan", "--from-dump", dump, "--output-piqc", "--format", "json", "-o", "out")
    bundle = bundle_from_json((tmp_path / "out" / "piqc-facts.json").read_text())
    assert bundle.cluster_facts["cluster.unallocatedUsdPerDay"].value == 384
    assert bundle.object_of("cluster/inference/Deployment/llm") is not None


def test_a_selector_keeps_workloads_and_not_capacity(run: Run, dump: Path) -> None:
    report = json.loads(run("scan", "--from-dump", dump, "--format", "json", "--selector", "app=none").stdout)
    assert report["workloads"] == []
    assert report["summary"]["unallocatedUsdPerDay"] == 384


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        pytest.param(("-n", "infernce"), "holds no namespace infernce; did you mean inference?", id="typo"),
        pytest.param(("-n", "a,b"), "holds no namespace a and no b; there are inference", id="several"),
    ],
)
def test_namespaces_that_are_not_in_the_dump_are_an_error(
    run: Run, dump: Path, asked: tuple[str, ...], words: str
) -> None:
    result = run("scan", "--from-dump", dump, "--format", "json", *asked)
    assert (code(result), result.stdout) == (2, "")
    assert words in str(result.exception)


def test_a_missing_namespace_beside_one_that_is_there_is_told(run: Run, dump: Path) -> None:
    result = run("scan", "--from-dump", dump, "--format", "json", "-n", "x", "-n", "inference")
    report = json.loads(result.stdout)
    assert (code(result), len(report["workloads"])) == (3, 1)
    assert report["summary"]["unallocatedUsdPerDay"] == 384
    assert [row["what"] for row in report["unknown"] if "namespace" in row["what"]] == ["workloads of namespace x"]


def test_one_row_a_pod_where_rows_are_not_aggregated(run: Run, dump: Path) -> None:
    report = json.loads(run("scan", "--from-dump", dump, "--format", "json", "--no-aggregate").stdout)
    assert [row["id"] for row in report["workloads"]] == ["cluster/inference/Pod/llm-abc-1"]


def test_own_prices_count(run: Run, dump: Path, tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('[product]\n"NVIDIA-H100-80GB-HBM3" = 1.0\n')

    def installed(*arguments: str) -> float:
        report = json.loads(run("scan", "--from-dump", dump, "--format", "json", *arguments).stdout)
        return float(report["summary"]["installedUsdPerHour"])

    assert installed("--prices", "prices.toml") == 6.0
    assert installed("--gpu-cost", "2") == 12.0
    assert installed("--gpu-cost", "2", "--node-cost", "0.5") == 2 * 2 + 4 * 0.5


def test_waste_above_the_limit_is_exit_4_after_the_report(run: Run, dump: Path) -> None:
    result = run("scan", "--from-dump", dump, "--format", "json", "--fail-on-waste", "100")
    assert code(result) == 4
    assert json.loads(result.stdout)["summary"]["wasteUsdPerDay"] == 384
    assert code(run("scan", "--from-dump", dump, "--fail-on-waste", "1000")) == 0


def test_a_dry_run_touches_nothing(run: Run) -> None:
    result = run("scan", "--mode", "dry-run", "--no-exec", "-n", "inference")
    assert code(result) == 0
    assert "no cluster was touched" in result.stdout
    assert "nvidia-smi" not in result.stdout


def test_an_unconfigured_scan_names_the_kubeconfig_and_the_demo(run: Run) -> None:
    result = run("scan")
    assert code(result) in (1, 2)
    assert "kubeconfig" in str(result.exception)
    assert "piqc demo" in str(result.exception)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--gpu-cost", "-5"), id="negative-price"),
        pytest.param(("--node-cost", "nan"), id="price-that-is-no-number"),
        pytest.param(("--gpu-cost", "1e300"), id="price-beyond-any"),
        pytest.param(("--combined",), id="combined-without-a-folder"),
        pytest.param(("-o", "wide"), id="no-format"),
        pytest.param(("-o", "yaml", "--format", "json"), id="two-formats"),
        pytest.param(("--contribute-url", "https://example.invalid"), id="address-without-a-record"),
        pytest.param(("--push-token-file", "t"), id="token-without-an-address"),
        pytest.param(("--push-url", "https://example.invalid", "--api-key", "s3cret"), id="key-for-all-to-see"),
        pytest.param(("--context", "c"), id="context-and-dump"),
        pytest.param(("--all-contexts",), id="all-contexts-and-dump"),
        pytest.param(("--push-url", "https://example.invalid", "--push-token-file", "none"), id="missing-token-file"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_before_anything_is_read(
    run: Run, dump: Path, arguments: tuple[str, ...]
) -> None:
    result = run("scan", "--from-dump", dump, *arguments)
    assert isinstance(result.exception, UsageError)
    assert result.stdout == ""


@pytest.mark.parametrize("option", ["--cluster-name", "--cluster-id"])
def test_the_cluster_of_ids_is_the_one_that_is_named(run: Run, dump: Path, option: str) -> None:
    result = run("scan", "--from-dump", dump, option, "prod-1", "--format", "json")
    assert json.loads(result.stdout)["cluster"] == "prod-1"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--workers", "0"),
        ("--timeout", "0"),
        ("--deadline", "-1"),
        ("--deadline", "nan"),
        ("--fail-on-waste", "nan"),
        ("--format", "xml"),
    ],
)
def test_values_out_of_range_are_usage_errors(run: Run, dump: Path, arguments: tuple[str, str]) -> None:
    assert isinstance(run("scan", "--from-dump", dump, *arguments).exception, click.UsageError)


def test_a_price_file_that_cannot_be_read_is_named(run: Run, dump: Path) -> None:
    assert isinstance(run("scan", "--from-dump", dump, "--prices", "none.toml").exception, PricesUnreadable)


def test_a_failed_push_is_exit_1_after_the_report(run: Run, dump: Path) -> None:
    result = run(
        "scan", "--from-dump", dump, "--format", "json", "--push-url", "http://127.0.0.1:9/x", "--timeout", "1"
    )
    assert code(result) == 1
    assert "127.0.0.1:9" in str(result.exception)
    assert json.loads(result.stdout)["schemaVersion"] == "piqc-report.v1"


def test_a_benchmark_record_is_a_file_and_is_shown(run: Run, dump: Path, tmp_path: Path) -> None:
    result = run("scan", "--from-dump", dump, "--format", "json", "--contribute-benchmarks")
    record = json.loads((tmp_path / "output" / "piqc-benchmarks.json").read_text())
    assert record["workloads"][0]["engine"] == "vllm"
    assert '"piqc-benchmarks.v1"' in result.stderr
    assert "llm-abc" not in result.stderr


def test_a_scan_is_kept_in_the_store_once(run: Run, dump: Path, tmp_path: Path) -> None:
    from piqc_pipeline.history.store import open_store

    for _ in range(2):
        assert code(run("scan", "--from-dump", dump, "--store", tmp_path / "history.duckdb")) == 0
    store = open_store(tmp_path / "history.duckdb")
    assert store.facts()["wasted_usd_per_day"].to_list() == [384.0]
    assert set(store.findings()["kind"].to_list()) >= {"dark"}


def test_a_store_that_cannot_be_written_is_a_warning(run: Run, dump: Path, tmp_path: Path) -> None:
    (tmp_path / "history.duckdb").write_text("this is no database")
    result = run("scan", "--from-dump", dump, "--store", tmp_path / "history.duckdb")
    assert code(result) == 0
    assert "warning" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_completion_script(shell: str) -> None:
    result = CliRunner().invoke(completion_command, [shell])
    assert "_PIQC_COMPLETE" in result.output


@pytest.mark.cli
def test_the_real_program_completes_scans_and_prints_its_version(dump: Path) -> None:
    program = Path(sys.executable).parent / "kubectl-piqc"
    done = subprocess.run(
        [program, "scan", "--from-dump", dump, "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    assert json.loads(done.stdout)["cluster"] == "cluster"
    shown = subprocess.run([program, "version"], capture_output=True, text=True, check=True, timeout=180)
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", shown.stdout)
    assert "completion" in COMMANDS
