"""What does Prophet say? The one module that imports it, inside the function that fits.

With flat growth Prophet is a constant plus Fourier terms, so a fit is kept as its few coefficients and evaluated in
numpy; Prophet's own `predict` costs 30 ms. Fits have a time limit: Prophet retries a failed L-BFGS with Newton,
silently and 40 times slower, so its Stan call is replaced by one that does not, and that writes its input faster.
"""

import logging
import pickle
import tempfile
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from piqc_pipeline.errors import ForecastError
from piqc_pipeline.forecast.grid import DAY, Floats, Grid, Ints
from piqc_pipeline.forecast.members import Night
from piqc_pipeline.forecast.members.seasons import BLOCK_SECONDS, HISTORY_DAYS, block_means

WEEKLY_FROM_DAYS = 14
DAY_ORDER, WEEK_ORDER = 8, 3
FIT_LIMIT_SECONDS = 60.0
"""Wall time; a fit takes 0.1 s, Prophet's own settings on two weeks of 5-minute steps 1 s, on an idle core."""

MOST_ITERATIONS = 10_000
"""Prophet's own limit."""


class ProphetFailed(ForecastError):
    """A Prophet fit failed or took too long; the member drops out of this workload's ensemble."""


@dataclass(frozen=True)
class ProphetSettings:
    """How Prophet is asked.

    Attributes:
        growth: `flat` or `linear`.
        day_order: Fourier order of the day; Prophet's own default is 4.
        weekly_from_days: Least history for a weekly season.
        block_seconds: Fitted on means of this width; None for the series' own step.
        history_days: Fitted on the newest days, at most these.
        holidays_country: ISO code, or None.
    """

    growth: Literal["flat", "linear"] = "flat"
    day_order: int = DAY_ORDER
    weekly_from_days: float = WEEKLY_FROM_DAYS
    block_seconds: float | None = BLOCK_SECONDS
    history_days: int = HISTORY_DAYS
    holidays_country: str | None = None


OURS = ProphetSettings()
SPECIFICATION = ProphetSettings(growth="linear", day_order=4, weekly_from_days=0, block_seconds=None, history_days=14)
"""Exactly what the specification asks for: Prophet's defaults with the daily and the weekly season on, two weeks."""


@dataclass(frozen=True)
class ProphetSeason:
    """A fitted Prophet, as numbers.

    Attributes:
        grid: Its series.
        level: Trend at the cutoff, demand units.
        slope_per_second: Trend after the cutoff; 0 for flat growth.
        anchor_seconds: Where `level` holds, local seconds since 1970.
        week, day: Fourier coefficients (sin, cos, sin, ...), demand units.
        holiday_effects: Local day number since 1970 → effect, demand units.
    """

    grid: Grid
    level: float
    slope_per_second: float
    anchor_seconds: float
    week: Floats
    day: Floats
    holiday_effects: dict[int, float]

    def plain(self) -> dict[str, Any]:
        """As JSON values, for the artifact's state."""
        return {
            "level": self.level,
            "slope": self.slope_per_second,
            "anchor": self.anchor_seconds,
            "week": self.week.tolist(),
            "day": self.day.tolist(),
            "holidays": {str(day): effect for day, effect in self.holiday_effects.items()},
        }

    @staticmethod
    def from_plain(grid: Grid, plain: dict[str, Any]) -> "ProphetSeason":
        """The reverse of `plain`."""
        return ProphetSeason(
            grid,
            float(plain["level"]),
            float(plain["slope"]),
            float(plain["anchor"]),
            np.array(plain["week"], dtype=np.float64),
            np.array(plain["day"], dtype=np.float64),
            {int(day): float(effect) for day, effect in plain["holidays"].items()},
        )

    def values(self, index: Ints) -> Floats:
        """Expected demand in the buckets."""
        local = self.grid.calendar.local(self.grid.seconds(index))
        result: Floats = np.full(len(local), self.level) + self.slope_per_second * (local - self.anchor_seconds)
        for period, coefficients in ((7 * DAY, self.week), (DAY, self.day)):
            if len(coefficients):
                result += fourier(local, period, len(coefficients) // 2) @ coefficients
        if self.holiday_effects:
            days = np.floor_divide(local, DAY).astype(np.int64)
            result += np.array([self.holiday_effects.get(int(day), 0.0) for day in days])
        return result


def fourier(local_seconds: Floats, period_seconds: float, order: int) -> Floats:
    """Prophet's Fourier terms: sin, cos of each harmonic, of time since 1970-01-01 on the naive clock."""
    angle = 2 * np.pi * (local_seconds % period_seconds) / period_seconds
    return np.stack([wave(k * angle) for k in range(1, order + 1) for wave in (np.sin, np.cos)], axis=1)


def fit_prophet(night: Night, settings: ProphetSettings = OURS) -> ProphetSeason | None:
    """Prophet fitted on what was known at the cutoff; None under two days of history.

    Raises:
        ProphetFailed: It did not converge, or not within the time limit.
    """
    model_and_season = fit_model(night, settings)
    return None if model_and_season is None else model_and_season[1]


def fit_model(night: Night, settings: ProphetSettings = OURS) -> tuple[Any, ProphetSeason] | None:
    """The fitted `prophet.Prophet` itself beside its numbers. See `fit_prophet`."""
    grid, cutoff = night.grid, night.cutoff
    width = grid.steps(settings.block_seconds) if settings.block_seconds else 1
    rows = min(cutoff, settings.history_days * grid.day) // width
    span_days = rows * width / grid.day
    if span_days < 2:
        return None
    means, weight = block_means(grid, cutoff, rows, width)
    kept = weight > 0
    if kept.sum() < 2 * 24 or float(np.ptp(means[kept])) == 0.0:
        return None
    ends = grid.start_seconds + cutoff * grid.step_seconds
    seconds = ends + (np.arange(rows) - rows + 0.5) * width * grid.step_seconds
    local = grid.calendar.local(seconds)
    model = _fit(local[kept], means[kept], settings, span_days)
    return model, _season_of(model, grid, float(grid.calendar.local(np.array([ends]))[0]))


def _fit(local: Floats, values: Floats, settings: ProphetSettings, span_days: float) -> Any:
    logging.getLogger("prophet.plot").setLevel(logging.CRITICAL)  # says that plotly is missing
    import pandas as pd
    from prophet import Prophet

    model = Prophet(
        growth=settings.growth,
        daily_seasonality=settings.day_order,
        weekly_seasonality=WEEK_ORDER if span_days >= settings.weekly_from_days else False,
        yearly_seasonality=False,
        uncertainty_samples=0,
    )
    for name in ("cmdstanpy", "prophet"):
        logging.getLogger(name).disabled = True  # a line for every fit otherwise
    if settings.holidays_country:
        model.add_country_holidays(settings.holidays_country)
    backend: Any = _BoundedBackend(model.stan_backend)
    model.stan_backend = backend
    stamps = np.round(local * 1e3).astype("datetime64[ms]")
    frame = pd.DataFrame({"ds": stamps, "y": values})
    if settings.holidays_country:
        return model.fit(frame)
    with _shared_features(model, (stamps.tobytes(), settings.day_order, bool(model.weekly_seasonality))):
        return model.fit(frame)


_FEATURES: OrderedDict[Hashable, Any] = OrderedDict()
KEPT_FEATURES = 4
"""Fourier terms kept, 240 KB each: those of the night, and those of workloads with gaps."""


@contextmanager
def _shared_features(model: Any, key: Hashable) -> Iterator[None]:
    """Lets models of one clock share their Fourier terms: a third of what Prophet does in Python."""
    original = model.make_all_seasonality_features

    def shared(frame: Any) -> Any:
        if key not in _FEATURES:
            _FEATURES[key] = original(frame)
            if len(_FEATURES) > KEPT_FEATURES:
                _FEATURES.popitem(last=False)
        return _FEATURES[key]

    model.make_all_seasonality_features = shared
    try:
        yield
    finally:
        del model.make_all_seasonality_features  # the class's own again: the model is pickled, and may predict


class _BoundedBackend:
    """Stands in for Prophet's Stan backend: L-BFGS only, with a time limit, no retry with Newton."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.stan_fit = None

    def get_type(self) -> str:
        """What Prophet calls its only backend."""
        return "CMDSTANPY"

    def fit(self, stan_init: dict[str, Any], stan_data: dict[str, Any], **_: Any) -> dict[str, Any]:
        """One optimization; parameters by name, in Prophet's shape.

        Raises:
            ProphetFailed: It did not converge, or not within the time limit.
        """
        import orjson

        init_lists, data_lists = self.backend.prepare_data(stan_init, stan_data)
        with tempfile.TemporaryDirectory(prefix="piqc-prophet-") as folder:
            data, inits = Path(folder, "data.json"), Path(folder, "init.json")
            data.write_bytes(orjson.dumps(data_lists, option=orjson.OPT_SERIALIZE_NUMPY))
            inits.write_bytes(orjson.dumps(init_lists, option=orjson.OPT_SERIALIZE_NUMPY))
            try:
                result = self.backend.model.optimize(
                    data=str(data),
                    inits=str(inits),
                    algorithm="LBFGS",
                    iter=MOST_ITERATIONS,
                    timeout=FIT_LIMIT_SECONDS,
                    output_dir=folder,
                    show_console=False,
                )
                found = result.optimized_params_np
                names = result.column_names
            except (RuntimeError, TimeoutError, ValueError, OSError) as error:
                raise ProphetFailed(
                    f"Prophet found no fit within {FIT_LIMIT_SECONDS:.0f} s: {_first(error)}"
                ) from error
        return _by_name(names, found)


def _first(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _by_name(columns: tuple[str, ...], found: Floats) -> dict[str, Any]:
    """Stan's flat columns `beta[1]`, `beta[2]` become one array of shape (1, n) a parameter, as Prophet keeps them."""
    groups: OrderedDict[str, list[int]] = OrderedDict()
    for position, column in enumerate(columns):
        groups.setdefault(column.split("[")[0], []).append(position)
    params = {name: np.asarray(found)[positions].reshape(1, -1) for name, positions in groups.items()}
    if not all(np.isfinite(value).all() for value in params.values()):
        raise ProphetFailed("Prophet's fit is not finite")
    return params


def _season_of(model: Any, grid: Grid, local_cutoff: float) -> ProphetSeason:
    """Coefficients out of a fitted model, in demand units."""
    scale = float(model.y_scale)
    beta = np.asarray(model.params["beta"])[0] * scale
    components = model.train_component_cols
    chosen = {
        name: beta[np.asarray(components[name]) == 1] if name in components else np.empty(0)
        for name in ("weekly", "daily")
    }
    level, slope = float(model.params["m"][0, 0]), 0.0
    start, span = model.start.timestamp(), model.t_scale.total_seconds()
    if model.growth == "linear":
        # Piecewise linear: k + sum of deltas is the slope after the last changepoint (Taylor and Letham 2018, eq. 1).
        deltas = np.asarray(model.params["delta"])[0]
        rate = float(model.params["k"][0, 0]) + float(deltas.sum())
        offset = level - float((np.asarray(model.changepoints_t) * deltas).sum())
        slope = rate * scale / span
        level = (offset + rate * (local_cutoff - start) / span) * scale
    else:
        level *= scale
    effects = _holiday_effects(model, beta)
    return ProphetSeason(grid, level, slope, local_cutoff, chosen["weekly"], chosen["daily"], effects)


def _holiday_effects(model: Any, beta: Floats) -> dict[int, float]:
    """Effect of each public holiday, from the year of the first training day to the year after the last."""
    if not model.country_holidays:
        return {}
    from prophet.make_holidays import make_holidays_df

    last = model.start + model.t_scale
    days = make_holidays_df(year_list=list(range(model.start.year, last.year + 2)), country=model.country_holidays)
    components = model.train_component_cols
    effects: dict[int, float] = {}
    for moment, name in zip(days["ds"], days["holiday"], strict=True):
        if name in components:
            day = int(moment.timestamp() // DAY)
            effects[day] = effects.get(day, 0.0) + float(beta[np.asarray(components[name]) == 1].sum())
    return effects


def pickled(model: Any) -> bytes:
    """The model for `prophet_model.pkl`, without the training frame beyond its last rows (kilobytes, not megabytes)."""
    model.stan_backend = None
    model.stan_fit = None
    if model.history is not None:
        model.history = model.history.tail(2).copy()
    model.history_dates = model.history_dates.tail(2).copy() if model.history_dates is not None else None
    return pickle.dumps(model, protocol=pickle.HIGHEST_PROTOCOL)
