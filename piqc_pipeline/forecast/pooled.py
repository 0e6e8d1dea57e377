"""How good are the forecasts over all series? Ratios to the references, with bootstrap intervals.

A ratio is the geometric mean over series of (MAE + 0.05) / (reference MAE + 0.05), in points, clipped to [0.05, 20].
"""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from statistics import median
from typing import Any

import numpy as np

from piqc_pipeline.forecast.backtest import LAST, OURS, YESTERDAY, SeriesResult
from piqc_pipeline.forecast.grid import Floats

FLOOR_POINTS = 0.05
CLIP = (0.05, 20.0)
DRAWS = 1000
SEED = 20_250_106
INTERVAL = (0.05, 0.95)

Reference = Callable[[dict[str, Floats]], Floats]


def pooled(results: Sequence[SeriesResult]) -> dict[str, Any]:
    """The last line of a backtest: medians, ratios with 90 % intervals, counts of series.

    Series and, within each, days are drawn with replacement (1,000 draws, fixed seed): differences inside the interval
    are noise.
    """
    scored = [result for result in results if result.skipped is None]
    answer: dict[str, Any] = {"series": len(scored), "skipped": len(results) - len(scored)}
    if not scored:
        return answer
    horizons = list(scored[0].errors[OURS])
    answer["median_mae"] = {
        model: {label: _median(one.errors[model][label].mae for one in scored) for label in horizons}
        for model in scored[0].errors
    }
    answer["ratio"] = {label: _ratios(scored, label) for label in horizons}
    answer["coverage_q90"] = {
        label: {
            "median": _median(one.coverage_q90[label] for one in scored),
            "within_88_92": sum(0.88 <= round(one.coverage_q90[label], 4) <= 0.92 for one in scored),
            "lowest": _rounded(min(_finite(one.coverage_q90[label] for one in scored), default=np.nan)),
            "highest": _rounded(max(_finite(one.coverage_q90[label] for one in scored), default=np.nan)),
        }
        for label in scored[0].coverage_q90
    }
    answer["pinball_q90_ratio_to_last"] = {
        label: _rounded(
            geometric_mean(
                np.array([one.pinball_q90[OURS][label] for one in scored]),
                np.array([one.pinball_q90[LAST][label] for one in scored]),
                floor=FLOOR_POINTS / 10,
            )
        )
        for label in scored[0].pinball_q90[OURS]
    }
    return answer


def _ratios(scored: Sequence[SeriesResult], label: str) -> dict[str, Any]:
    draws = _draws(scored, label)
    references: dict[str, Reference] = {model: itemgetter(model) for model in scored[0].errors if model != OURS}
    references["better_of_last_and_yesterday"] = lambda mae: np.minimum(mae[LAST], mae[YESTERDAY])
    plain = {model: np.array([one.errors[model][label].mae for one in scored]) for model in scored[0].errors}
    result: dict[str, Any] = {}
    for name, reference in references.items():
        each = ratio(plain[OURS], reference(plain))
        resampled = ratio(draws[OURS], reference(draws))
        drawn = np.isfinite(resampled).any(axis=1)  # not where only days without demand were drawn
        means = np.exp(np.nanmean(np.log(resampled[drawn]), axis=1))
        low, high = np.quantile(means, INTERVAL) if len(means) else (np.nan, np.nan)
        result[name] = {
            "ratio": _rounded(_geometric(each)),
            "low": _rounded(low),
            "high": _rounded(high),
            "better": int((each < 0.995).sum()),
            "same": int(((each >= 0.995) & (each <= 1.005)).sum()),
            "worse": int((each > 1.005).sum()),
            "worse_by_5_pct": int((each > 1.05).sum()),
        }
    return result


def _draws(scored: Sequence[SeriesResult], label: str) -> dict[str, Floats]:
    """MAE of each model, shape (draws, series): series drawn with replacement, and days within each."""
    random = np.random.default_rng(SEED)
    days = len(scored[0].errors[OURS][label].count)
    series = random.integers(len(scored), size=(DRAWS, len(scored)))
    chosen = random.integers(days, size=(DRAWS, len(scored), days))
    result: dict[str, Floats] = {}
    for model in scored[0].errors:
        sums = np.array([one.errors[model][label].absolute for one in scored])
        counts = np.array([one.errors[model][label].count for one in scored], dtype=np.float64)
        total = np.take_along_axis(sums[series], chosen, axis=2).sum(axis=2)
        number = np.take_along_axis(counts[series], chosen, axis=2).sum(axis=2)
        result[model] = np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)
    return result


def ratio(ours: Floats, reference: Floats, floor: float = FLOOR_POINTS) -> Floats:
    """Ratio of errors, kept meaningful where both are nearly nothing."""
    bounded: Floats = np.clip((ours + floor) / (reference + floor), *CLIP)
    return bounded


def geometric_mean(ours: Floats, reference: Floats, floor: float = FLOOR_POINTS) -> float:
    """Geometric mean of the ratios."""
    return _geometric(ratio(ours, reference, floor))


def _geometric(ratios: Floats) -> float:
    logs = np.log(ratios[np.isfinite(ratios)])
    return float(np.exp(logs.mean())) if len(logs) else float("nan")


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if np.isfinite(value)]


def _median(values: Iterable[float]) -> float | None:
    """None where none is known."""
    known = _finite(values)
    return _rounded(median(known)) if known else None


def _rounded(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None
