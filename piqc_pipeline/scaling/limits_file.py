"""How do the manifests and the predictor come to the same limits? One file, `limits.json`, written with the manifests.

Example, shortened:

```json
{"schemaVersion": "piqc-limits.v1", "workloads": {"demo/inference/Deployment/chat-8b": {
  "min_replicas": 1, "max_replicas": 12, "min_reason": "min_replicas is set to 1",
  "max_reason": "the cluster has schedulable accelerators for 12 replicas"}}}
```

A file by hand may leave out the envelope and the reasons:
`{"NAMESPACE/NAME": {"min_replicas": 2, "max_replicas": 12}}`.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from piqc_pipeline.errors import UsageError
from piqc_pipeline.scaling.limits import PairBound, ReplicaLimits
from piqc_pipeline.scaling.plan import ReplicaPlan

FILE = "limits.json"
SCHEMA_VERSION = "piqc-limits.v1"


def limits_text(plans: Iterable[ReplicaPlan]) -> str:
    """The file of these plans, byte-stable for the same ones."""
    rows = {plan.workload: _row(plan.limits) for plan in sorted(plans, key=lambda plan: plan.workload)}
    return json.dumps({"schemaVersion": SCHEMA_VERSION, "workloads": rows}, indent=2) + "\n"


def _row(limits: ReplicaLimits) -> dict[str, Any]:
    row: dict[str, Any] = {
        "min_replicas": limits.min_replicas,
        "max_replicas": limits.max_replicas,
        "min_reason": limits.min_reason,
        "max_reason": limits.max_reason,
    }
    if limits.pair is not None:
        row["pair"] = {"mate": limits.pair.mate, "per_mate": limits.pair.per_mate, "why": limits.pair.why}
    return row


def read_limits(path: Path) -> dict[str, ReplicaLimits]:
    """Limits by workload, as the file names it: an id or `namespace/name`.

    Raises:
        UsageError: The file cannot be read, or a limit makes no sense; the message names the workload.
    """
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot read replica limits from {path}: {error}; write JSON") from error
    if isinstance(body, dict) and "schemaVersion" in body:
        if body["schemaVersion"] != SCHEMA_VERSION:
            raise UsageError(
                f"replica limits in {path} are {body['schemaVersion']!r}, this program reads {SCHEMA_VERSION}"
            )
        body = body.get("workloads")
    if not isinstance(body, dict):
        raise UsageError(f"replica limits in {path} must be an object of workloads")
    return {name: _limits(name, row, path) for name, row in body.items()}


def _limits(name: str, row: Any, path: Path) -> ReplicaLimits:
    low, high = (row.get("min_replicas"), row.get("max_replicas")) if isinstance(row, dict) else (None, None)
    if type(low) is not int or type(high) is not int or not 0 <= low <= high or high < 1:
        raise UsageError(f"limits of {name} in {path} must be integers with 0 <= min_replicas <= max_replicas")
    return ReplicaLimits(
        name,
        low,
        high,
        min_reason=str(row.get("min_reason") or f"set in {path.name}"),
        max_reason=str(row.get("max_reason") or f"set in {path.name}"),
        pair=_pair(name, row.get("pair"), path),
    )


def _pair(name: str, row: Any, path: Path) -> PairBound | None:
    if row is None:
        return None
    share: Any = row.get("per_mate") if isinstance(row, dict) else None
    mate: Any = row.get("mate") if isinstance(row, dict) else None
    if type(share) not in (int, float) or not 0 < share <= 1000 or not isinstance(mate, str):
        raise UsageError(f"the pair of {name} in {path} must name its mate and a per_mate above 0")
    return PairBound(mate, float(share), str(row.get("why") or f"set in {path.name}"))
