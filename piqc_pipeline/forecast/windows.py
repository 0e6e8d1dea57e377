"""How did the maximum over the lead window turn out at every origin of a replay, and what is left of it at its end?"""

import numpy as np

from piqc_pipeline.forecast.grid import Floats
from piqc_pipeline.forecast.intervals import HIGH, Calibrated, Calibration, PastMisses, window_maximum
from piqc_pipeline.forecast.live import Misses
from piqc_pipeline.forecast.rolling import Replay, targets


def lead_windows(
    played: Replay, ensemble: Floats, steps: int, before: Misses | None = None, largest_before: float = 0.0
) -> tuple[Calibration, Calibrated]:
    """Misses of the maximum over the lead window, and its q90 at every origin.

    Args:
        played: The replay.
        ensemble: Combined short paths from every origin.
        steps: Width of the window.
        before: At the replay's first origin, where it goes on after an earlier one.
        largest_before: Largest demand before the grid begins.
    """
    grid = played.grid
    peaks: Floats = window_maximum(ensemble, steps)
    past: Floats = np.empty(0)
    if before is not None:
        past = before.past.in_order()
        peaks = np.concatenate([np.full(len(past), np.nan), before.peaks[:-1], peaks])
    origins = np.arange(played.origins[-1] + 1 - len(peaks), played.origins[-1] + 1)
    actual = window_maximum(targets(grid, np.maximum(origins, 0), steps), steps)
    largest = np.maximum(np.maximum.accumulate(grid.values)[np.maximum(origins - 1, 0)], largest_before)
    calibration = Calibration(steps, grid.day, origins, peaks, actual, largest)
    calibration.residuals[: len(past)] = past
    if before is None:
        return calibration, calibration.run(HIGH, 0)
    return calibration, calibration.run(HIGH, len(past) + steps, before.level, before.highs)


def misses_at_end(calibration: Calibration, given: Calibrated) -> Misses:
    """Misses of the windows that ended, and the windows that are open at the last origin."""
    count = len(calibration.origins)
    pending = slice(max(0, count - calibration.steps), count)
    return Misses(
        calibration.steps,
        PastMisses.of(calibration.residuals[: pending.start], calibration.steps, calibration.day),
        tuple(calibration.peaks[pending].tolist()),
        tuple(given.quantile[pending].tolist()),
        float(given.level[-1]),
    )
