"""What does a forecast say once newer demand was seen? Keeps one living state a workload between two artifacts.

The arithmetic is `forecast.refresh`; this module only remembers. Between two buckets a state is kept as it lies in the
artifact, packed to about 33 KiB for two weeks of five-minute buckets: unpacked it takes five times as much, and
unpacking costs a few milliseconds every five minutes.
"""

import logging
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import msgspec

from piqc_pipeline.errors import ForecastError
from piqc_pipeline.forecast.model import WorkloadForecast
from piqc_pipeline.forecast.refresh import Live, live_of, observe, refreshed
from piqc_pipeline.forecast.state import from_plain, to_plain
from piqc_pipeline.predictor.lean import StoredState, compact

log = logging.getLogger(__name__)


class LiveAnchor:
    """Moves forecasts to live demand, bucket by bucket."""

    def __init__(self) -> None:
        """No state yet."""
        self._kept: dict[str, bytes] = {}
        self._lost: set[str] = set()

    def reset(self) -> None:
        """Forget everything: a new artifact has come."""
        self._kept, self._lost = {}, set()

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
            None where it cannot be moved (it has ended, no state, a silence of more than a day, numbers that do not
            fit): it then goes stale.
        """
        workload = forecast.workload
        if workload in self._lost or now > forecast.valid_until:
            return None
        try:
            live = observe(self._unpack(forecast), start, values)
            moved = refreshed(forecast, live, now)
        except ForecastError as error:
            self._lost.add(workload)
            log.warning("the forecast of %s stays as it was and goes stale: %s", workload, error)
            return None
        except Exception:  # noqa: BLE001 - one workload's numbers must not end the refresh of all the others
            self._lost.add(workload)
            log.exception("the forecast of %s cannot be moved; it goes stale until the next artifact", workload)
            return None
        self._kept[workload] = zlib.compress(msgspec.json.encode(to_plain(live)), 1)
        return replace(moved, table=compact(moved.table))

    def _unpack(self, forecast: WorkloadForecast) -> Live:
        kept = self._kept.get(forecast.workload)
        if kept is not None:
            return from_plain(msgspec.json.decode(zlib.decompress(kept)))
        state = forecast.state
        return live_of(replace(forecast, state=state.parse()) if isinstance(state, StoredState) else forecast)
