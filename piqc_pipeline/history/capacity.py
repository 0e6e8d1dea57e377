"""How much work keeps a replica busy? Fitted from token rates, where they explain the load.

`busy replicas = a x prompt tokens/s + b x generated tokens/s + c`, all three at least 0, by least squares over the
buckets of a day that are not saturated. Where the fit is poor the tokens are not used at all.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from piqc_pipeline.history.demand import SATURATED_UTILIZATION

MIN_BUCKETS = 36
"""Unsaturated buckets that a fit needs: three hours of five minutes."""
MIN_R2 = 0.6
"""Share of the variance that tokens must explain, else another signal is better."""


@dataclass(frozen=True)
class WorkFit:
    """Busy replicas per prompt token/s, per generated token/s, and at rest; with the share of variance explained."""

    per_prompt_token: float
    per_generated_token: float
    at_rest: float
    r2: float


def fit_work(busy: NDArray[np.float64], prompt: NDArray[np.float64], generated: NDArray[np.float64]) -> WorkFit | None:
    """The fit of a workload's unsaturated buckets; None where it is too thin or explains too little.

    Args:
        busy: Replicas that were busy, shape (n,).
        prompt: Prompt tokens/s, shape (n,).
        generated: Generated tokens/s, shape (n,).
    """
    if len(busy) < MIN_BUCKETS or float(np.var(busy)) < 1e-9:
        return None
    columns = np.column_stack([prompt, generated, np.ones_like(busy)])
    best: tuple[float, NDArray[np.float64]] | None = None
    # Three unknowns: every choice of those that are not 0 is solved, and the best without a negative one is taken. All
    # three together fit best, so that the others are tried only where one of them is negative.
    for count in (3, 2, 1):
        if best is not None and count == 2:
            break
        for chosen in combinations(range(3), count):
            part = columns[:, chosen]
            solution, *_ = np.linalg.lstsq(part, busy, rcond=None)
            if (solution < 0).any():
                continue
            error = float(((busy - part @ solution) ** 2).sum())
            whole = np.zeros(3)
            whole[list(chosen)] = solution
            if best is None or error < best[0] * (1 - 1e-9):
                best = (error, whole)
    if best is None:
        return None
    r2 = 1 - best[0] / float(((busy - busy.mean()) ** 2).sum())
    a, b, c = best[1]
    return WorkFit(float(a), float(b), float(c), r2) if r2 >= MIN_R2 and a + b > 0 else None


def with_work(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `work`: busy replicas by the tokens of a bucket; null for workloads whose tokens explain too little.

    Args:
        rows: Columns workload, by_devices, mean (utilization), waiting, prompt, generated.
    """
    told = pl.col("prompt").is_not_null() | pl.col("generated").is_not_null()
    calm = (pl.col("mean").fill_null(1) < SATURATED_UTILIZATION) & (pl.col("waiting").fill_null(0) == 0)
    known = rows.filter(told, calm, pl.col("by_devices").is_not_null())
    known = known.select("workload", "by_devices", pl.col("prompt", "generated").fill_null(0))
    fits = []
    for own in known.partition_by("workload") if known.height else ():
        fit = fit_work(*(own[name].to_numpy() for name in ("by_devices", "prompt", "generated")))
        if fit is not None:
            fits.append((own["workload"][0], fit.per_prompt_token, fit.per_generated_token, fit.at_rest))
    if not fits:
        return rows.with_columns(pl.lit(None, pl.Float64).alias("work"))
    numbers = dict.fromkeys("abc", pl.Float64())
    schema: dict[str, pl.DataType] = {"workload": rows.schema["workload"], **numbers}
    table = pl.DataFrame(fits, schema=schema, orient="row")
    by_tokens = (
        pl.col("a") * pl.col("prompt").fill_null(0) + pl.col("b") * pl.col("generated").fill_null(0) + pl.col("c")
    )
    joined = rows.join(table, on="workload", how="left", maintain_order="left")
    return joined.with_columns(pl.when(told).then(by_tokens).alias("work")).drop("a", "b", "c")
