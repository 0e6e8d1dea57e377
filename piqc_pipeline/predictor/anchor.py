"""What does a forecast say once newer demand was seen? Keeps one living state a workload between two artifacts.

The arithmetic is `forecast.refresh`; this module only remembers.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from piqc_pipeline.errors import ForecastError
from piqc_pipeline.forecast.model import WorkloadForecast
from piqc_pipeline.forecast.refresh import Live, live_of, observe, refreshed
from piqc_pipeline.predictor.lean import StoredState, compact

log = logging.getLogger(__name__)


class LiveAnchor:
    """Moves forecasts to live demand, bucket by bucket."""

    def __init__(self) -> None:
        """No state yet."""
        self._live: dict[str, Live] = {}
        self._lost: set[str] = set()

    def reset(self) -> None:
        """Forget everything: a new artifact has come."""
        self._live, self._lost = {}, set()

    def move(
        self, forecast: WorkloadForecast, start: datetime, values: Sequence[float], now: datetime
    ) -> WorkloadForecast | None:
        """The forecast as of now, after some more buckets of demand.

        Args:
            forecast: The artifact's entry.
            start: Start of the first bucket of `values`; where the last call ended.
            values: Mean demand a bucket, oldest first; NaN where it was not measured.
            now: When it is issued.

        Returns:
            None where it cannot be moved (no state, or a silence of more than a day): it then goes stale.
        """
        workload = forecast.workload
        if workload in self._lost:
            return None
        try:
            live = self._live.get(workload)
            if live is None:
                state = forecast.state
                live = live_of(replace(forecast, state=state.parse()) if isinstance(state, StoredState) else forecast)
            live = observe(live, start, values)
            moved = refreshed(forecast, live, now)
        except ForecastError as error:
            self._lost.add(workload)
            log.warning("%s", error)
            return None
        self._live[workload] = live
        return replace(moved, table=compact(moved.table))
