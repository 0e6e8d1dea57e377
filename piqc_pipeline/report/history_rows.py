"""Which rows of a scan are kept in the history, so that waste can be followed over time?

How rows reach a disk belongs to `piqc_pipeline.history`.
"""

import polars as pl

from piqc_pipeline.history.table import FACTS_SCHEMA, FINDINGS_SCHEMA, HistoryStore
from piqc_pipeline.report.scan_result import ScanResult
from piqc_pipeline.waste.figures import HOURS_PER_DAY


def facts_rows(result: ScanResult, bundle_json: str) -> pl.DataFrame:
    """One row: when the scan was, what is installed and wasted, and the facts bundle."""
    capacity, summary = result.waste.capacity, result.waste.summary
    devices = [pool.devices for pool in capacity or ()]
    known = capacity is not None and None not in devices
    hourly = summary.installed_usd_per_hour
    row = {
        "cluster": result.snapshot.cluster,
        "taken_at": result.snapshot.taken_at,
        "accelerators": sum(count or 0.0 for count in devices) if known else None,
        "installed_usd_per_day": None if hourly is None else hourly * HOURS_PER_DAY,
        "wasted_usd_per_day": summary.waste_usd_per_day,
        "facts_json": bundle_json,
    }
    return pl.DataFrame([row], schema=FACTS_SCHEMA)


def findings_rows(result: ScanResult) -> pl.DataFrame:
    """One row a finding."""
    rows = [
        {
            "cluster": result.snapshot.cluster,
            "taken_at": result.snapshot.taken_at,
            "kind": one.kind,
            "subject": one.subject,
            "gpus": one.accelerators,
            "usd_per_day": one.usd_per_day,
            "confidence": one.confidence,
            "detail": one.text,
        }
        for one in result.waste.findings
    ]
    return pl.DataFrame(rows, schema=FINDINGS_SCHEMA)


def append(store: HistoryStore, result: ScanResult, bundle_json: str) -> None:
    """Keep one scan; a scan that is already there is left alone."""
    store.append_facts(facts_rows(result, bundle_json))
    store.append_findings(findings_rows(result))
