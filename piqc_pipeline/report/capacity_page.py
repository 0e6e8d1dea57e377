"""Which figures stand on the capacity report: waste, what cannot be seen, load, forecast, plan?

How the page looks is `html.py`; no figure is made here.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from piqc_pipeline.report.html import Picture, ReportInputs, Section, Table, Tile, render_report
from piqc_pipeline.report.plots import Outlook, dollars_plot, outlook_plot
from piqc_pipeline.report.text import age, count, percent, usd
from piqc_pipeline.waste.figures import HOURS_PER_DAY

if TYPE_CHECKING:
    from piqc_pipeline.forecast.model import PredictorArtifact
    from piqc_pipeline.report.scan_result import ScanResult
    from piqc_pipeline.scaling.plan import ReplicaPlan

MOST_ROWS = 200
"""Rows of one table; what is left out is said."""
_WORKLOAD_HEADER = (
    "workload", "engine", "accelerators", "fit", "replicas", "age", "used", "MFU", "$/1K tokens", "$/hr", "idle $/day",
)  # fmt: skip
MOST_OUTLOOKS = 12
"""Workloads whose forecast is drawn."""


def render(
    result: "ScanResult",
    artifact: "PredictorArtifact | None",
    plans: "Sequence[ReplicaPlan]",
    plots: Mapping[str, bytes],
    now: datetime,
) -> str:
    """The page.

    Args:
        result: What the newest snapshot costs, wastes and hides.
        artifact: The forecast in use, or None where nothing was promoted.
        plans: Replicas of the next hours, one a workload.
        plots: Title to PNG, shown with the load.
        now: The instant taken as now, aware UTC.
    """
    return render_report(
        ReportInputs(
            cluster=result.snapshot.cluster,
            taken_at=_moment(result.snapshot.taken_at),
            written_at=_moment(now),
            tiles=_tiles(result),
            sections=[
                _waste(result),
                _unseen(result),
                Section("How busy were we?", pictures=[Picture(title, png) for title, png in plots.items()]),
                _forecast(artifact, plans),
                _plan(plans),
            ],
        )
    )


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _tiles(result: "ScanResult") -> list[Tile]:
    summary = result.waste.summary
    return [
        Tile("Wasted", f"{usd(summary.waste_usd_per_day)}", "a day, no dollar counted twice"),
        Tile("Installed", f"{usd(summary.installed_usd_per_hour)}", "an hour, all accelerators"),
        Tile("Held by workloads", f"{usd(summary.spend_usd_per_hour)}", "an hour"),
        Tile("Idle", f"{usd(summary.idle_usd_per_day)}", "a day, unused share of what pods hold"),
        Tile("Dark", f"{usd(summary.unallocated_usd_per_day)}", "a day, held by nobody"),
        Tile("Avg MFU", percent(summary.avg_mfu_pct, 1), "weighted by peak FLOPS"),
    ]


def _waste(result: "ScanResult") -> Section:
    parts = dollar_parts(result)
    return Section(
        "What is wasted?",
        says="List prices unless prices of your own are set; a figure that is not known is a question mark.",
        pictures=[Picture("what becomes of the dollars", dollars_plot(parts))] if parts else [],
        tables=[
            _table(
                "Workloads",
                _WORKLOAD_HEADER,
                _workloads(result),
                range(4, 11),
                note="Fit is by memory: weights by quantization, cache for one context, parallelism.",
            ),
            _table(
                "Findings",
                ["finding", "$/day", "in the sum", "confidence"],
                [
                    [one.text, usd(one.usd_per_day), "yes" if one.counted else "", one.confidence]
                    for one in result.waste.findings
                ],
                [1],
            ),
        ],
    )


def dollar_parts(result: "ScanResult") -> list[tuple[str, float]]:
    """What becomes of the dollars of a day, in parts that share none; empty where what is installed is unknown."""
    summary = result.waste.summary
    if summary.installed_usd_per_hour is None or summary.unallocated_usd_per_day is None:
        return []
    whole = summary.installed_usd_per_hour * HOURS_PER_DAY
    misplaced = sum(one.misplaced_usd_per_day or 0.0 for one in result.waste.workloads)
    unmeasured = sum(
        (one.usd_per_hour or 0.0) * HOURS_PER_DAY for one in result.waste.workloads if one.idle_usd_per_day is None
    )
    known = [
        ("idle", summary.idle_usd_per_day or 0.0),
        ("dark", summary.unallocated_usd_per_day),
        ("fragmented", summary.fragmentation_usd_per_day or 0.0),
        ("misplaced", misplaced),
        ("unavailable", summary.unavailable_usd_per_day or 0.0),
        ("not measured", unmeasured),
    ]
    rest = max(0.0, whole - sum(value for _, value in known))
    return [(name, value) for name, value in [("busy", rest), *known] if value > 0]


def _workloads(result: "ScanResult") -> Iterable[list[str]]:
    engines = {workload.id: workload.engine.name for workload in result.snapshot.workloads}
    for one in sorted(result.waste.workloads, key=lambda row: (-(row.usd_per_hour or 0.0), row.id)):
        tokens = one.usd_per_1k_tokens
        yield [
            f"{one.namespace}/{one.kind}/{one.name}",
            engines[one.id],
            f"{count(one.accelerator_count)} x {one.accelerator or '?'}" if one.accelerator_count else "none",
            one.fit.verdict if one.fit else "?",
            str(one.replicas),
            age(one.age_hours),
            percent(one.utilization_pct),
            percent(one.mfu_pct, 1),
            "?" if tokens is None else f"${tokens:.4f}",
            usd(one.usd_per_hour),
            usd(one.idle_usd_per_day),
        ]


def _unseen(result: "ScanResult") -> Section:
    checks = [
        [layer.name, check.name, check.state or "unknown", check.detail]
        for layer in result.coverage.layers
        for check in layer.checks
    ]
    unknown = [[entry.what, entry.why] for entry in result.waste.unknown]
    tables = [_table("Coverage", ["layer", "part", "state", "detail"], checks)]
    if unknown:
        tables.append(_table("Unknown figures", ["what", "why"], unknown))
    if result.waste.pending:
        waiting = [
            [f"{pod.namespace}/{pod.name}", count(pod.accelerators), pod.resource, pod.reason, age(pod.waiting_hours)]
            for pod in result.waste.pending
        ]
        header = ["pod", "accelerators", "resource", "why", "since"]
        tables.append(_table("Pods that ask for accelerators and do not run", header, waiting, [1, 4]))
    return Section("What can we not see?", tables=tables)


def _forecast(artifact: "PredictorArtifact | None", plans: "Sequence[ReplicaPlan]") -> Section:
    from piqc_pipeline.forecast.model import ENSEMBLE, LAST_DAY_30M, LAST_VALUE

    title = "How busy will we be?"
    if artifact is None:
        return Section(title, says="No forecast was promoted; every workload stays reactive.")
    rows: list[list[str]] = []
    pictures: list[Picture] = []
    planned = {plan.workload: plan for plan in plans}
    until = max((step.ts for plan in plans for step in plan.steps), default=None)
    for forecast in sorted(artifact.workloads.values(), key=lambda one: one.workload):
        scores = [forecast.scores.get(model, {}).get(LAST_DAY_30M) for model in (ENSEMBLE, LAST_VALUE)]
        errors = [_points(score.mae_pp if score else None) for score in scores]
        rows.append([forecast.workload, "yes" if forecast.accepted else "no", *errors, "; ".join(forecast.reasons)])
        if len(pictures) < MOST_OUTLOOKS:
            plan = planned.get(forecast.workload)
            steps = {step.ts: step.replicas for step in plan.steps} if plan else {}
            ts = [moment for moment in forecast.table.ts if until is None or moment <= until]
            outlook = Outlook(
                forecast.workload,
                ts,
                forecast.table.q50[: len(ts)],
                forecast.table.q90[: len(ts)],
                [steps.get(moment) for moment in ts],
                plan.limits.max_replicas if plan else None,
            )
            pictures.append(Picture(f"forecast and plan of {forecast.workload}", outlook_plot(outlook)))
    header = ["workload", "accepted", "error 30 min ahead", "of the last value", "why"]
    note = "Error: mean over the last day kept from training, in percentage points of utilization."
    return Section(title, pictures=pictures, tables=[_table("", header, rows, [2, 3], note=note)])


def _points(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f} points"


def _plan(plans: "Sequence[ReplicaPlan]") -> Section:
    rows = [
        [
            plan.workload,
            str(plan.now.replicas) if plan.now else "stays reactive",
            str(max((step.replicas for step in plan.steps), default="stays reactive")),
            str(plan.limits.max_replicas),
            plan.now.explain if plan.now else "; ".join(plan.reasons),
        ]
        for plan in plans
    ]
    short = [
        [plan.workload, _moment(gap.start), _moment(gap.end), count(gap.gpus_short), usd(gap.usd), gap.explain]
        for plan in plans
        for gap in plan.shortfalls
    ]
    tables = [_table("", ["workload", "now", "highest planned", "most allowed", "why"], rows, [1, 2, 3])]
    if short:
        header = ["workload", "from", "until", "accelerators missing", "price", "why"]
        tables.append(_table("Hours in which demand may exceed what is there", header, short, [3, 4]))
    return Section("How many replicas?", tables=tables)


def _table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = (), note: str = ""
) -> Table:
    everything = list(rows)
    left_out = len(everything) - MOST_ROWS
    if left_out > 0:
        note = f"{note} {left_out} more rows are in report.json.".strip()
    return Table(header, everything[:MOST_ROWS], title, note, frozenset(numbers))
