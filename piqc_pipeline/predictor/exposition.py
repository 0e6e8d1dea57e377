"""What does Prometheus read of the service? `/metrics` in its text format: predictions, decisions, ages, errors.

A stale workload has no sample at all, so that nobody alerts on, or scales by, an old number.
"""

from datetime import datetime, timedelta

from piqc_pipeline.predictor.board import Board, split_id
from piqc_pipeline.predictor.engine import Engine

HELP = {
    "predicted_gpu_util": ("gauge", "Mean GPU utilization expected in 30 minutes, percent of the replicas ready now."),
    "predicted_gpu_demand_replicas": ("gauge", "Demand expected in 30 minutes, replicas at 100 percent."),
    "piqc_desired_replicas": ("gauge", "Replicas wanted now for the lead time ahead."),
    "piqc_predictor_stale": ("gauge", "1 if no number is given for the workload, 0 if one is."),
    "piqc_predictor_data_age_seconds": ("gauge", "Age of the newest demand behind the workload's answers."),
    "piqc_predictor_artifact_loaded": ("gauge", "1 if an artifact is in use."),
    "piqc_predictor_artifact_info": ("gauge", "The artifact in use."),
    "piqc_predictor_artifact_age_seconds": ("gauge", "Time since the artifact was trained."),
    "piqc_predictor_artifact_loads_total": ("counter", "Artifacts taken into use."),
    "piqc_predictor_artifact_refused_total": ("counter", "Artifacts refused because they were not whole."),
    "piqc_predictor_prometheus_up": ("gauge", "1 if the last read of live demand succeeded."),
    "piqc_predictor_prometheus_errors_total": ("counter", "Reads of live demand that failed."),
    "piqc_predictor_refresh_seconds": ("gauge", "How long the last refresh took."),
    "piqc_predictor_refresh_failures_total": ("counter", "Refreshes that failed inside the service."),
    "piqc_predictor_requests_total": ("counter", "Requests answered, by status."),
}

HORIZON = timedelta(minutes=30)


def render(engine: Engine, requests: dict[int, int], now: datetime) -> str:
    """The whole page.

    Args:
        engine: Its board and counters.
        requests: Requests answered so far by status.
        now: Aware UTC.
    """
    rows: dict[str, list[str]] = {name: [] for name in HELP}
    counters, board = engine.counters, engine.board
    rows["piqc_predictor_artifact_loaded"].append(f" {int(board is not None)}")
    rows["piqc_predictor_artifact_loads_total"].append(f" {counters.reloads}")
    rows["piqc_predictor_artifact_refused_total"].append(f" {counters.refused}")
    rows["piqc_predictor_prometheus_errors_total"].append(f" {counters.prometheus_errors}")
    rows["piqc_predictor_refresh_failures_total"].append(f" {counters.tick_failures}")
    rows["piqc_predictor_refresh_seconds"].append(f" {counters.tick_seconds:.6f}")
    if engine.follows_live:
        rows["piqc_predictor_prometheus_up"].append(f" {int(engine.prometheus_error is None)}")
    for status, count in sorted(requests.items()):
        rows["piqc_predictor_requests_total"].append(f'{{status="{status}"}} {count}')
    if board is not None:
        age = (now - board.artifact.trained_at).total_seconds()
        rows["piqc_predictor_artifact_age_seconds"].append(f" {age:.0f}")
        rows["piqc_predictor_artifact_info"].append(f'{{sha256="{board.artifact.sha256}"}} 1')
        _workloads(rows, board, now)
    parts = []
    for name, lines in rows.items():
        if lines:
            kind, text = HELP[name]
            parts.append(f"# HELP {name} {text}\n# TYPE {name} {kind}\n")
            parts.extend(f"{name}{line}\n" for line in lines)
    return "".join(parts)


def _workloads(rows: dict[str, list[str]], board: Board, now: datetime) -> None:
    for entry in board.entries.values():
        cluster, namespace, kind, name = (_escape(part) for part in split_id(entry.workload))
        labels = f'{{cluster="{cluster}",namespace="{namespace}",kind="{kind}",workload="{name}"}}'
        refused = entry.refusal(now) is not None
        rows["piqc_predictor_stale"].append(f"{labels} {int(refused)}")
        if entry.data_until is not None:
            age = (now - entry.data_until).total_seconds()
            rows["piqc_predictor_data_age_seconds"].append(f"{labels} {age:.0f}")
        if refused or entry.plan is None or entry.plan.now is None:
            continue
        rows["piqc_desired_replicas"].append(f"{labels} {entry.plan.now.replicas}")
        forecast = entry.forecast
        if forecast is None or not forecast.accepted:
            continue
        index = forecast.table.index_at(now + HORIZON)
        if index is None:
            continue
        demand = max(0.0, forecast.table.q50[index])
        rows["predicted_gpu_demand_replicas"].append(f"{labels} {demand:.4f}")
        ready = entry.observed.replicas_ready if entry.observed else None
        basis = ready or max(1, entry.plan.now.replicas)
        rows["predicted_gpu_util"].append(f"{labels} {min(100.0, 100 * demand / basis):.3f}")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
