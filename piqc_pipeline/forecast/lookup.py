"""What does the artifact say about a workload at an instant? For `piqc predict`, without any training."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from piqc_pipeline.errors import UsageError
from piqc_pipeline.forecast.model import PredictorArtifact, WorkloadForecast


def find_workloads(artifact: PredictorArtifact, name: str | None) -> Sequence[WorkloadForecast]:
    """The entries meant: all, one id, or the end of ids (`inference/chat-8b`, `chat-8b`).

    Raises:
        UsageError: No workload has that name.
    """
    if name is None:
        return list(artifact.workloads.values())
    if name in artifact.workloads:
        return [artifact.workloads[name]]
    found = [entry for key, entry in artifact.workloads.items() if key.endswith("/" + name) or _short(key) == name]
    if not found:
        known = ", ".join(sorted(artifact.workloads)) or "none"
        why = artifact.failed.get(name)
        raise UsageError(f"no forecast of {name!r}{f': {why}' if why else ''}; there are forecasts of: {known}")
    return found


def _short(key: str) -> str:
    """`namespace/name` out of `cluster/namespace/Kind/name`."""
    parts = key.split("/")
    return f"{parts[-3]}/{parts[-1]}" if len(parts) >= 4 else key


def prediction(entry: WorkloadForecast, now: datetime, horizon_seconds: int) -> dict[str, Any]:
    """The interval that ends `horizon_seconds` from now, as JSON values.

    Args:
        entry: The workload's forecast.
        now: The instant taken as now.
        horizon_seconds: How far ahead.

    Returns:
        `predicted` is None where the table does not reach, or is no longer valid; `notes` says why.
    """
    table = entry.table
    until = now + timedelta(seconds=horizon_seconds)
    notes = list(entry.reasons)
    if entry.drift is not None and entry.drift.drifted:
        notes.append(f"drift: {entry.drift.detail}")
    position = table.index_at(until - timedelta(seconds=1))
    predicted = None
    if now > entry.valid_until:
        notes.append(f"stale: valid until {entry.valid_until:%Y-%m-%d %H:%M} UTC; run `piqc train`")
    elif position is None:
        notes.append(f"the forecast covers {table.start:%Y-%m-%d %H:%M} to {table.ts[-1]:%Y-%m-%d %H:%M} UTC only")
    else:
        first = table.index_at(max(now, table.start)) or 0
        predicted = {
            "ts": f"{table.ts[position]:%Y-%m-%dT%H:%M:%SZ}",
            "q50": table.q50[position],
            "q90": table.q90[position],
            "lower": table.lower[position],
            "peak_q90": max(table.peak_q90[first : position + 1]),
        }
    return {
        "workload": entry.workload,
        "issued_at": f"{entry.issued_at:%Y-%m-%dT%H:%M:%SZ}",
        "data_until": f"{entry.data_until:%Y-%m-%dT%H:%M:%SZ}",
        "until": f"{until:%Y-%m-%dT%H:%M:%SZ}",
        "unit": entry.unit,
        "accepted": entry.accepted,
        "confidence": entry.confidence,
        "predicted": predicted,
        "notes": notes,
    }
