"""How is the whole graph run at once, in this process? For `piqc demo`, a notebook, or a script without a daemon."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import dagster as dg

from piqc_pipeline.definitions import build_defs
from piqc_pipeline.defs.partitions import RANGE_END_TAG, RANGE_START_TAG, days_of, key_of
from piqc_pipeline.defs.resources import Pipeline
from piqc_pipeline.errors import PiqcError
from piqc_pipeline.settings import Settings

QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
"""Dagster's own console log tells every event; the run's page has them."""


@dataclass(frozen=True)
class Outcome:
    """What a run of the whole graph left behind.

    Attributes:
        run_id: Its id in the Dagster instance.
        pipeline: The settings and places it used: `pipeline.report_dir`, `.artifact_dir`, `.manifests_dir`, ...
        first_day, last_day: Partition keys that were filled.
        figures: Numeric metadata of each asset, as its page shows them.
        failed_checks: Name and sentence of each check that did not pass; a blocking one raises instead.
    """

    run_id: str
    pipeline: Pipeline
    first_day: str
    last_day: str
    figures: dict[str, dict[str, float]]
    failed_checks: dict[str, str]


def materialize_all(
    settings: Settings, instance: dg.DagsterInstance | None = None, progress: Callable[[str], None] | None = None
) -> Outcome:
    """Materialize every asset, the history for all its days up to now, in one run in this process.

    Args:
        settings: What every step uses.
        instance: Where Dagster keeps the run; the one that `DAGSTER_HOME` names if None.
        progress: Told the name of each asset as it begins.

    Raises:
        PiqcError: A step failed; the message is the user's sentence.
    """
    pipeline = Pipeline(settings, progress)
    keys = [key for key in days_of(settings).get_partition_keys() if key <= key_of(pipeline.now)]
    job = build_defs(pipeline=pipeline).resolve_job_def("everything")
    tags = {RANGE_START_TAG: keys[0], RANGE_END_TAG: keys[-1]}
    try:
        with nullcontext(instance) if instance else dg.DagsterInstance.get() as home:
            result = job.execute_in_process(instance=home, tags=tags, run_config=QUIET)
    except dg.Failure as failure:
        if isinstance(failure.__cause__, PiqcError):
            raise failure.__cause__ from failure
        raise
    return Outcome(
        run_id=result.run_id,
        pipeline=pipeline,
        first_day=keys[0],
        last_day=keys[-1],
        figures={
            event.asset_key.path[-1]: {
                name: float(entry.value)
                for name, entry in event.materialization.metadata.items()
                if isinstance(entry, dg.FloatMetadataValue | dg.IntMetadataValue) and entry.value is not None
            }
            for event in result.get_asset_materialization_events()
            if event.asset_key
        },
        failed_checks={
            check.check_name: check.description or ""
            for check in result.get_asset_check_evaluations()
            if not check.passed
        },
    )
