"""Settings: each value has an origin, a range and a clear sentence when it is wrong."""

from datetime import UTC, datetime

import pytest

from piqc_pipeline.errors import NotConfigured, UsageError
from piqc_pipeline.settings import Settings, describe, load_settings


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"PIQC_{name.upper()}", raising=False)


def test_every_setting_has_help() -> None:
    assert [name for name, info in Settings.model_fields.items() if not info.description] == []


def test_environment_beats_default_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIQC_WORKERS", "3")
    rows = {row["name"]: row for row in describe(load_settings())}
    assert (rows["PIQC_WORKERS"]["value"], rows["PIQC_WORKERS"]["origin"]) == ("3", "environment")
    assert rows["PIQC_QUANTILE"]["origin"] == "default"


def test_a_range_reads_like_a_range() -> None:
    rows = {row["name"]: row for row in describe(load_settings())}
    assert rows["PIQC_WORKERS"]["range"] == ">= 1, <= 256"
    assert rows["PIQC_SCALING_MODE"]["range"] == "one of observe, shadow, scale-out-only, enforce"
    assert rows["PIQC_PAIR_RATIO"]["range"] == "" and "LEAST:MOST" in rows["PIQC_PAIR_RATIO"]["help"]


def test_option_beats_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIQC_WORKERS", "3")
    assert load_settings(workers=5).workers == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("WORKERS", "0", id="below its range"),
        pytest.param("QUANTILE", "1.5", id="above its range"),
        pytest.param("NOW", "yesterday", id="not an instant"),
        pytest.param("NOW", "2025-01-20T00:00:00", id="an instant without a zone"),
        pytest.param("SCALING_MODE", "yolo", id="an unknown mode"),
        pytest.param("WORKLOAD_TIMEZONE", "Mars/Base", id="an unknown zone"),
        pytest.param("PROMETHEUS_URL", "prometheus:9090", id="an address without its scheme"),
        pytest.param("BUCKET_SECONDS", "420", id="a width that leaves a rest of the day"),
        pytest.param("PAIR_RATIO", ".5.5", id="not a ratio"),
        pytest.param("PAIR_RATIO", "1:2:3", id="a ratio of three"),
    ],
)
def test_bad_value_names_its_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"PIQC_{name}", value)
    with pytest.raises(UsageError, match=f"PIQC_{name}: .*got '{value}'"):
        load_settings()


def test_secrets_are_shown_neither_in_rows_nor_in_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIQC_PROMETHEUS_PASSWORD", "hunter2")
    monkeypatch.setenv("PIQC_PROMETHEUS_HEADERS", '{"X-Scope-OrgID": "tenant-7"}')
    shown = str(describe(load_settings()))
    assert "hunter2" not in shown
    assert "tenant-7" not in shown
    assert shown.count("set, hidden") == 2


@pytest.mark.parametrize("name", ["PROMETHEUS_URL", "KEDA_PROMETHEUS_URL"])
def test_an_address_with_a_password_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"PIQC_{name}", "https://reader:hunter2@prometheus:9090")
    with pytest.raises(UsageError, match=f"PIQC_{name}: .*set PIQC_PROMETHEUS_USERNAME") as error:
        load_settings()
    assert "hunter2" not in str(error.value)


def test_headers_that_are_no_json_name_their_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIQC_PROMETHEUS_HEADERS", "{hunter2")
    with pytest.raises(UsageError, match="PIQC_PROMETHEUS_HEADERS is no JSON") as error:
        load_settings()
    assert "hunter2" not in str(error.value)


def test_nothing_configured_names_the_settings_and_the_demo() -> None:
    with pytest.raises(NotConfigured, match=r"PIQC_CLUSTER.*KUBECONFIG.*piqc demo"):
        load_settings().require_cluster()
    with pytest.raises(NotConfigured, match=r"PIQC_PROMETHEUS_URL.*PIQC_HISTORY_FILE.*piqc demo"):
        load_settings().require_history_source()


def test_demo_is_taken_only_when_named() -> None:
    assert load_settings(cluster="demo").require_history_source() == "demo"
    assert load_settings(cluster="demo", prometheus_url="http://p:9090").require_history_source() == "prometheus"


def test_the_clock_can_be_injected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIQC_NOW", "2025-01-20T01:00:00+01:00")
    assert load_settings().clock() == datetime(2025, 1, 20, tzinfo=UTC)
