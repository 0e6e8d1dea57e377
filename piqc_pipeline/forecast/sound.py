"""Can numbers be read from a stored forecast at all? What a schema cannot say: widths, lengths, signs.

The hash says that a file is what was written, the schema that every field is there; a program of another version, or a
hand, may still have written what nobody can compute with.
"""

import math
from collections.abc import Sequence

from piqc_pipeline.forecast.model import WorkloadForecast


def fault_of(entry: WorkloadForecast) -> str | None:
    """What makes a forecast unusable, as the end of a sentence; None where nothing does."""
    table = entry.table
    if entry.step_seconds <= 0 or table.step_seconds <= 0:
        return f"its buckets are {min(entry.step_seconds, table.step_seconds)} s wide"
    if entry.gpus_per_replica is not None and not 0 <= entry.gpus_per_replica < math.inf:
        return f"a replica takes {entry.gpus_per_replica:g} GPUs"
    columns: list[Sequence[float]] = [table.q50, table.q90, table.lower, table.peak_q50, table.peak_q90]
    if table.peak_q95:
        columns.append(table.peak_q95)
    if len({len(column) for column in columns}) > 1:
        return "its table has columns of different lengths"
    if entry.accepted and not table.q50:
        return "its table is empty"
    if not all(0 <= value < math.inf for column in columns for value in column):
        return "its table holds negative or infinite demand"
    return None
