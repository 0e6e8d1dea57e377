"""What does one page show a team of its accelerators: waste, what cannot be seen, load, forecast, plan?

One HTML file that loads nothing from anywhere; text from the cluster is escaped. No figure is made here.
"""

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from piqc_pipeline.report.text import usd

if TYPE_CHECKING:
    from piqc_pipeline.forecast.model import PredictorArtifact
    from piqc_pipeline.report.scan_result import ScanResult
    from piqc_pipeline.scaling.plan import ReplicaPlan

TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>GPU capacity of {{ cluster }}</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; }
td, th { padding: .25rem .7rem; border-bottom: 1px solid #ccc; text-align: left; vertical-align: top; }
img { max-width: 100%; } .big { font-size: 1.6rem; } .note { color: #666; }
</style></head><body>
<h1>GPU capacity of {{ cluster }}</h1>
<p class="note">As seen {{ taken_at }}, written {{ now }}.</p>
{% for section in sections %}<h2>{{ section.title }}</h2>
{% if section.says %}<p{% if section.large %} class="big"{% endif %}>{{ section.says }}</p>{% endif %}
{% for title, png in section.plots %}<p><img alt="{{ title }}" src="data:image/png;base64,{{ png }}"></p>{% endfor %}
{% if section.rows %}<table><tr>{% for cell in section.header %}<th>{{ cell }}</th>{% endfor %}</tr>
{% for row in section.rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>{% endif %}
{% endfor %}</body></html>
"""


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
    from jinja2 import Environment

    template = Environment(autoescape=True, trim_blocks=True).from_string(TEMPLATE)
    shown = [(title, base64.b64encode(png).decode()) for title, png in plots.items()]
    return template.render(
        cluster=result.snapshot.cluster,
        taken_at=f"{result.snapshot.taken_at:%Y-%m-%d %H:%M} UTC",
        now=f"{now:%Y-%m-%d %H:%M} UTC",
        sections=[
            _waste(result),
            _unseen(result),
            {"title": "How busy were we?", "plots": shown},
            _forecast(artifact),
            _plan(plans),
        ],
    )


def _waste(result: "ScanResult") -> dict[str, object]:
    findings = result.waste.findings
    return {
        "title": "What is wasted?",
        "says": f"{usd(result.waste.summary.waste_usd_per_day)} a day",
        "large": True,
        "header": ["finding", "a day", "confidence"],
        "rows": [[one.text, usd(one.usd_per_day), one.confidence] for one in findings],
    }


def _unseen(result: "ScanResult") -> dict[str, object]:
    checks = [(layer.name, check) for layer in result.coverage.layers for check in layer.checks]
    return {
        "title": "What can we not see?",
        "header": ["layer", "part", "state", "detail"],
        "rows": [
            [layer, check.name, check.state or "unknown", check.detail]
            for layer, check in checks
            if check.state != "detected"
        ],
    }


def _forecast(artifact: "PredictorArtifact | None") -> dict[str, object]:
    from piqc_pipeline.forecast.model import ENSEMBLE, LAST_DAY_30M, LAST_VALUE

    title = "How busy will we be?"
    if artifact is None:
        return {"title": title, "says": "No forecast was promoted; every workload stays reactive."}
    rows = []
    for forecast in artifact.workloads.values():
        scores = [forecast.scores.get(model, {}).get(LAST_DAY_30M) for model in (ENSEMBLE, LAST_VALUE)]
        errors = [_points(score.mae_pp if score else None) for score in scores]
        rows.append([forecast.workload, "yes" if forecast.accepted else "no", *errors, "; ".join(forecast.reasons)])
    return {
        "title": title,
        "header": ["workload", "accepted", "error 30 min ahead", "of the last value", "why not"],
        "rows": rows,
    }


def _points(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f} points"


def _plan(plans: "Sequence[ReplicaPlan]") -> dict[str, object]:
    return {
        "title": "How many replicas?",
        "header": ["workload", "now", "highest planned", "most allowed", "why"],
        "rows": [
            [
                plan.workload,
                plan.now.replicas if plan.now else "stays reactive",
                max((step.replicas for step in plan.steps), default="stays reactive"),
                plan.limits.max_replicas,
                plan.now.explain if plan.now else "; ".join(plan.reasons),
            ]
            for plan in plans
        ],
    }
