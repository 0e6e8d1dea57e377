"""What did the user configure, and where did each value come from? Each `PIQC_*` has a unit, range and default.

Nothing is read at import; a shell calls `load_settings()` once and passes values on.
"""

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, AwareDatetime, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from piqc_pipeline.errors import NotConfigured, UsageError

ENV_PREFIX = "PIQC_"
DEMO_NOW = datetime(2025, 1, 20, tzinfo=UTC)
"""The end of the shipped load; on the demo cluster "now" stands here, so that nothing is stale."""


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError("there is no such IANA zone; write it as Europe/Berlin") from error
    return name


def _part_of_a_day(seconds: int) -> int:
    if 86_400 % seconds:
        raise ValueError("buckets must fill a day without a rest: take 60, 300, 600, 900, 1800 or 3600")
    return seconds


def prometheus_address(url: str) -> str:
    """The base address of a Prometheus, as given. Messages and manifests repeat it, so it holds no password.

    Raises:
        ValueError: It is no http(s) address, or holds a user, a password, a query or a fragment.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError(
            "an address with a user or password in it would be shown in messages and manifests; "
            "leave them out and set PIQC_PROMETHEUS_USERNAME and PIQC_PROMETHEUS_PASSWORD"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an address starts with http:// or https:// and names a host")
    if parts.query or parts.fragment:
        raise ValueError("an address ends with a path: leave out what stands after ? or #")
    return url


_PrometheusAddress = Annotated[str, AfterValidator(prometheus_address)]


class Settings(BaseSettings):
    """Every setting of the pipeline. Read once from the environment, then passed on as values."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="ignore", env_ignore_empty=True)

    # Sources
    cluster: str | None = Field(
        None,
        description="Cluster that Dagster reads: demo, kubeconfig, incluster, or the path of a recorded dump; "
        "`piqc scan` has options.",
    )
    kubeconfig: Path | None = Field(None, description="Kubeconfig file; else KUBECONFIG, then ~/.kube/config.")
    context: str | None = Field(None, description="Context of the kubeconfig; else its current one.")
    cluster_name: str | None = Field(None, description="Name of the cluster in ids; else the context's cluster.")
    namespaces: str | None = Field(None, description="Comma-separated namespaces to scan; else all.")
    prometheus_url: _PrometheusAddress | None = Field(
        None, description="Base URL of the Prometheus that scrapes the GPUs."
    )
    prometheus_token_file: Path | None = Field(None, description="File with a bearer token for Prometheus.")
    prometheus_username: str | None = Field(None, description="User of Prometheus behind basic authentication.")
    prometheus_password: SecretStr | None = Field(None, description="Password of that user.")
    prometheus_ca_file: Path | None = Field(None, description="CA bundle that signed Prometheus' certificate.")
    prometheus_headers: dict[str, SecretStr] = Field(
        default_factory=dict, description="JSON object of extra headers, for instance X-Scope-OrgID."
    )
    prometheus_timeout_seconds: float = Field(30, ge=1, le=600, description="Time limit of one query, seconds.")
    history_file: Path | None = Field(None, description="Parquet or CSV file of load history, in place of Prometheus.")
    prices_file: Path | None = Field(None, description="TOML file with your own prices by product, label or pool.")
    capacity_rates: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default_factory=dict,
        description="JSON object: requests/s that keep one replica 100 % busy, by workload id or NAMESPACE/NAME; "
        '"*" for all others. Without it work is measured by tokens, then running requests, then accelerators.',
    )

    # Places
    data_dir: Path = Field(Path("piqc-data"), description="Folder for facts, history, artifacts and manifests.")
    history_store: str | None = Field(
        None,
        description="History store: a .duckdb file, a folder, or s3:// gs:// az:// URL; else DATA_DIR/history.duckdb.",
    )

    # Reading the cluster
    request_timeout_seconds: float = Field(30, ge=1, le=600, description="Time limit of one API request, seconds.")
    deadline_seconds: float = Field(300, ge=1, le=86_400, description="Time limit of a whole scan, seconds.")
    workers: int = Field(10, ge=1, le=256, description="Pods asked at the same time.")
    collect_runtime: bool = Field(True, description="Read the metrics of inference engines.")
    allow_exec: bool = Field(True, description="Run nvidia-smi and the like inside pods.")

    # History
    bucket_seconds: Annotated[int, AfterValidator(_part_of_a_day)] = Field(
        300, ge=60, le=3600, description="Width of one history row, seconds; a day holds a whole number of them."
    )
    history_start: Annotated[AwareDatetime, AfterValidator(_utc)] = Field(
        datetime(2025, 1, 1, tzinfo=UTC), description="First day that can be filled (UTC midnight)."
    )
    max_sample_age_seconds: float = Field(
        3 * 3600, ge=60, description="Age of the newest sample above which history counts as stale, seconds."
    )

    # Forecast
    train_days: int = Field(28, ge=2, le=365, description="Days of demand that models are trained on.")
    workload_timezone: Annotated[str, AfterValidator(_zone)] = Field(
        "UTC", description="IANA zone in which a workload's day begins."
    )

    # Scaling
    lead_time_seconds: float = Field(
        600, ge=10, le=7200, description="From decision to a ready replica: schedule, node, pull, load; seconds."
    )
    refresh_seconds: float = Field(30, ge=5, le=3600, description="How often the predictor reads live demand, seconds.")
    target_utilization_mid: float = Field(
        0.80, gt=0.1, le=1, description="Utilization that typical demand may reach, share."
    )
    target_utilization_cap: float = Field(
        0.90, gt=0.1, le=1, description="Utilization that unlikely demand may reach, share."
    )
    quantile: float = Field(0.95, gt=0.5, lt=1, description="Which demand counts as unlikely: quantile of the maximum.")
    min_replicas: int = Field(1, ge=0, le=10_000, description="Fewest replicas of a workload; 0 only where meant.")
    max_replicas: int | None = Field(None, ge=1, le=10_000, description="Most replicas; else from schedulable GPUs.")
    pair_ratio: str | None = Field(
        None,
        pattern=r"^([0-9]*\.)?[0-9]+(:([0-9]*\.)?[0-9]+)?$",
        description="Prefill replicas a decode replica where roles are split: one number or LEAST:MOST; else "
        "around what runs now.",
    )
    predictor_url: str = Field(
        "http://capacity-predictor.piqc.svc.cluster.local:8080", description="Where KEDA reaches the predictor."
    )
    keda_prometheus_url: _PrometheusAddress | None = Field(
        None, description="Where KEDA reaches Prometheus; else PROMETHEUS_URL."
    )
    scaling_mode: str = Field(
        "enforce", pattern="^(observe|shadow|scale-out-only|enforce)$", description="What the manifests may do."
    )

    # Clock
    now: Annotated[AwareDatetime, AfterValidator(_utc)] | None = Field(
        None, description="The instant taken as now (ISO 8601 with zone); else the clock, or the demo's end of data."
    )

    def clock(self) -> datetime:
        """The instant taken as now, aware UTC; on the demo cluster the end of its data."""
        return self.now or (DEMO_NOW if self.cluster == "demo" else datetime.now(UTC))

    def namespace_list(self) -> tuple[str, ...]:
        """Namespaces to scan; empty means all."""
        return tuple(part.strip() for part in (self.namespaces or "").split(",") if part.strip())

    def store_location(self) -> str:
        """Where the history lies: the setting, or `history.duckdb` in the data folder."""
        return self.history_store or str(self.data_dir / "history.duckdb")

    def require_cluster(self) -> str:
        """The cluster to read.

        Raises:
            NotConfigured: None was named.
        """
        if self.cluster:
            return self.cluster
        raise NotConfigured(
            "no cluster is configured: set PIQC_CLUSTER to kubeconfig (with KUBECONFIG or PIQC_KUBECONFIG), incluster, "
            "or the path of a recorded dump; `piqc demo` shows everything on a recorded cluster"
        )

    def require_history_source(self) -> str:
        """`prometheus`, `file` or `demo`: what the history is filled from.

        Raises:
            NotConfigured: None was named.
        """
        if self.history_file:
            return "file"
        if self.prometheus_url:
            return "prometheus"
        if self.cluster == "demo":
            return "demo"
        raise NotConfigured(
            "no history is configured: set PIQC_PROMETHEUS_URL to a Prometheus, or PIQC_HISTORY_FILE to a Parquet or "
            "CSV file of load; `piqc demo` shows everything on a recorded load"
        )


def load_settings(**overrides: Any) -> Settings:
    """The effective settings: overrides first, then `PIQC_*`, then defaults.

    Raises:
        UsageError: A value is out of its range or of the wrong kind; the message names the variable.
    """
    try:
        return Settings(**overrides)
    except ValidationError as error:
        problems = "; ".join(
            f"{ENV_PREFIX}{'.'.join(str(part) for part in entry['loc']).upper()}: {_sentence(entry['msg'])}"
            + (f" (got {entry['input']!r})" if not _hides(str(entry["loc"][0]), entry["input"]) else "")
            for entry in error.errors()
        )
        raise UsageError(f"cannot read the settings: {problems}; `piqc settings` lists each with its range") from error
    except SettingsError as error:
        field = re.search(r'field "(\w+)"', str(error))
        name = f"{ENV_PREFIX}{field[1].upper()}" if field else "a value"
        raise UsageError(f'cannot read the settings: {name} is no JSON; write it as {{"name": "value"}}') from error


def _sentence(message: str) -> str:
    text = message.removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def _hides(name: str, value: object) -> bool:
    return _is_secret(name) or ("url" in name and "@" in str(value))


def _is_secret(name: str) -> bool:
    return "password" in name.lower() or "headers" in name.lower()


def describe(settings: Settings, environ: Mapping[str, str] | None = None) -> list[dict[str, str]]:
    """One row a setting: `name`, `value` (secrets hidden), `origin`, `help`, `range`.

    Args:
        settings: The effective settings.
        environ: Where variables come from; the process' own if None.
    """
    environ = os.environ if environ is None else environ
    present = {name.upper() for name, value in environ.items() if value}
    rows = []
    for name, info in Settings.model_fields.items():
        variable = f"{ENV_PREFIX}{name.upper()}"
        value = getattr(settings, name)
        hidden = "set, hidden" if value else ""
        shown = hidden if _is_secret(name) else "" if value is None else str(value)
        origin = "environment" if variable in present else "option" if name in settings.model_fields_set else "default"
        rows.append(
            {
                "name": variable,
                "value": shown,
                "origin": origin,
                "help": info.description or "",
                "range": _range(info.metadata),
            }
        )
    return rows


def _range(limits: list[Any]) -> str:
    """Limits of a field as a reader writes them: `>= 1, <= 600`; the form of a text is in its description."""
    parts = []
    for limit in limits:
        for attribute, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")):
            bound = getattr(limit, attribute, None)
            if bound is not None:
                parts.append(f"{sign} {bound}")
        if choices := re.fullmatch(r"\^\(([\w|-]+)\)\$", getattr(limit, "pattern", None) or ""):
            parts.append(f"one of {choices[1].replace('|', ', ')}")
    return ", ".join(parts)
