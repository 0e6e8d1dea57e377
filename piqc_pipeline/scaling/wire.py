"""How is a plan handed on as JSON? `piqc-plan.v1`, stable names, no NaN."""

from dataclasses import asdict
from typing import Any

from piqc_pipeline.scaling.fleet import FleetPlan
from piqc_pipeline.scaling.plan import ReplicaPlan


def fleet_json(fleet: FleetPlan) -> dict[str, Any]:
    """All plans of a cluster."""
    return {
        "schemaVersion": "piqc-plan.v1",
        "plans": [plan_json(plan) for plan in fleet.plans],
        "left_out": dict(fleet.left_out),
    }


def plan_json(plan: ReplicaPlan) -> dict[str, Any]:
    """One plan; demand in replicas at 100 %, times ISO 8601 UTC."""
    limits = plan.limits
    return {
        "workload": plan.workload,
        "issued_at": plan.issued_at.isoformat(),
        "lead_seconds": plan.lead_seconds,
        "accepted": plan.accepted,
        "reasons": list(plan.reasons),
        "min_replicas": limits.min_replicas,
        "min_reason": limits.min_reason,
        "max_replicas": limits.max_replicas,
        "max_reason": limits.max_reason,
        "gpus_per_replica": limits.gpus_per_replica,
        "product": limits.product,
        "usd_per_gpu_hour": plan.usd_per_gpu_hour,
        "pair": None if limits.pair is None else asdict(limits.pair),
        "warnings": list(limits.warnings),
        "fallback_replicas": plan.fallback_replicas,
        "fallback_reason": plan.fallback_reason,
        "binding_share": plan.binding_share,
        "steps": [
            {
                "ts": step.ts.isoformat(),
                "replicas": step.replicas,
                "binding": step.binding,
                "explain": step.explain,
                "unclamped": step.unclamped,
                "demand_q50": step.demand_q50,
                "demand_unlikely": step.demand_q90,
            }
            for step in plan.steps
        ],
        "shortfalls": [
            {
                "start": short.start.isoformat(),
                "end": short.end.isoformat(),
                "replicas_wanted": short.replicas_wanted,
                "replicas_allowed": short.replicas_allowed,
                "gpus_short": short.gpus_short,
                "usd_per_hour": short.usd_per_hour,
                "usd": short.usd,
                "explain": short.explain,
            }
            for short in plan.shortfalls
        ],
    }
