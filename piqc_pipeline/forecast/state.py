"""How is a forecast's living state kept in the artifact? Plain JSON values, arrays as base64 of little-endian floats.

Numbers that a refresh starts from are kept in full (float64); misses and profiles, thousands of them, in float32.
"""

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from piqc_pipeline.errors import ArtifactAltered
from piqc_pipeline.forecast.calendar import Calendar, KnownEvent
from piqc_pipeline.forecast.combine import HALF_LIVES_DAYS, Losses
from piqc_pipeline.forecast.grid import Floats, Grid
from piqc_pipeline.forecast.intervals import PastMisses
from piqc_pipeline.forecast.live import Live, Misses
from piqc_pipeline.forecast.members import Night
from piqc_pipeline.forecast.members.prophet import ProphetSeason
from piqc_pipeline.forecast.members.seasons import ProfileSeason, RidgeSeason

VERSION = 1
KEPT_NIGHTS = 9
HISTORY_DAYS = 8
"""A week for `week_carried`, and the five hours whose paths have not finished."""


def encode(values: Floats, kind: str = "f8") -> str:
    """An array as text: `f4:` or `f8:` and base64 of its little-endian bytes."""
    return f"{kind}:{base64.b64encode(np.asarray(values, dtype='<' + kind).tobytes()).decode('ascii')}"


def decode(text: str) -> Floats:
    """The reverse of `encode`."""
    kind, _, body = text.partition(":")
    values: Floats = np.frombuffer(base64.b64decode(body), dtype="<" + kind).astype(np.float64)
    return values


def to_plain(live: Live) -> dict[str, Any]:
    """The state as JSON values."""
    grid = live.grid
    first = first_kept(live)
    start = grid.start_seconds + first * grid.step_seconds
    return {
        "version": VERSION,
        "start": start,
        "step": grid.step_seconds,
        "zone": grid.calendar.zone,
        "country": grid.calendar.country,
        "events": [
            [event.name, event.start.isoformat(), event.end.isoformat(), event.workload, event.factor]
            for event in grid.calendar.events
        ],
        "history": encode(grid.values[first:]),
        "unknown": np.flatnonzero(~grid.known[first:]).tolist(),
        "names": list(live.names),
        "nights": [_night(night, first) for night in live.nights[-2:]],
        "earlier": [_night(night, first, slim=True) for night in live.nights[-KEPT_NIGHTS:-2]],
        "losses": {
            "sums": encode(live.losses.sums.ravel()),
            "weights": encode(live.losses.weights.ravel()),
            "newest": (live.losses.newest - first).tolist(),
        },
        "misses": [
            {
                "steps": miss.steps,
                "residuals": encode(miss.past.in_order(), "f4"),
                "peaks": encode(np.array(miss.peaks)),
                "highs": encode(np.array(miss.highs)),
                "level": miss.level,
            }
            for miss in live.misses
        ],
        "floor": live.floor,
        "largest": live.largest,
        "point": encode(live.point.ravel()),
        "peak": encode(live.peak.ravel()),
    }


def first_kept(live: Live) -> int:
    """Bucket of the grid that the kept history begins with."""
    return max(0, live.end - HISTORY_DAYS * live.grid.day)


def kept_nights(plain: Mapping[str, Any] | None, grid: Grid) -> dict[int, Night]:
    """The fits of earlier runs, by cutoff in a longer or later history of the same step and clock; else none.

    They are what was forecast with on those nights; a nightly run then fits one night and not nine.
    """
    if not plain or plain.get("version") != VERSION or plain["step"] != grid.step_seconds:
        return {}
    if (plain["zone"], plain["country"]) != (grid.calendar.zone, grid.calendar.country):
        return {}
    shift = (float(plain["start"]) - grid.start_seconds) / grid.step_seconds
    if shift != int(shift):
        return {}
    nights = {}
    for one in (*plain["earlier"], *plain["nights"]):
        cutoff = int(one["cutoff"]) + int(shift)
        if cutoff > 0:
            nights[cutoff] = _night_of({**one, "cutoff": cutoff}, grid)
    return nights


def _night(night: Night, first: int, slim: bool = False) -> dict[str, Any]:
    """A night's fits; a slim one leaves out the profile, which is made again in no time."""
    plain: dict[str, Any] = {
        "cutoff": night.cutoff - first,
        "coefficients": {name: encode(values.ravel()) for name, values in night.coefficients.items()},
    }
    for name, season in night.seasons.items():
        if isinstance(season, RidgeSeason):
            plain[name] = {
                "coefficients": encode(season.coefficients),
                "span_days": season.span_days,
                "weekly": season.weekly,
                "phase": season.phase,
            }
        elif isinstance(season, ProfileSeason) and not slim:
            plain[name] = {"profile": encode(season.profile, "f4")}
        elif isinstance(season, ProphetSeason):
            plain[name] = season.plain()
    return plain


def from_plain(plain: Mapping[str, Any]) -> Live:
    """The state out of the artifact.

    Raises:
        ArtifactAltered: It was written by another program, or parts are missing.
    """
    try:
        return _from_plain(plain)
    except (KeyError, ValueError, TypeError) as error:
        raise ArtifactAltered(f"the forecast's state cannot be read: {error}; run `piqc train`") from error


def _from_plain(plain: Mapping[str, Any]) -> Live:
    if plain["version"] != VERSION:
        raise ValueError(f"its version is {plain['version']}, this program reads {VERSION}")
    values = decode(plain["history"])
    known = np.ones(len(values), dtype=bool)
    known[plain["unknown"]] = False
    events = tuple(
        KnownEvent(name, datetime.fromisoformat(start), datetime.fromisoformat(end), workload, float(factor))
        for name, start, end, workload, factor in plain["events"]
    )
    calendar = Calendar(plain["zone"], plain["country"], events)
    grid = Grid(values, known, known, float(plain["start"]), int(plain["step"]), calendar)
    names = tuple(plain["names"])
    losses = plain["losses"]
    shape = (len(HALF_LIVES_DAYS), len(names), len(losses["newest"]))
    return Live(
        grid,
        tuple(_night_of(one, grid) for one in plain["nights"]),
        names,
        Losses(
            decode(losses["sums"]).reshape(shape),
            decode(losses["weights"]).reshape(shape),
            np.array(losses["newest"], dtype=np.int64),
        ),
        tuple(
            Misses(
                int(miss["steps"]),
                PastMisses.of(decode(miss["residuals"]), int(miss["steps"]), grid.day),
                tuple(decode(miss["peaks"]).tolist()),
                tuple(decode(miss["highs"]).tolist()),
                float(miss["level"]),
            )
            for miss in plain["misses"]
        ),
        float(plain["floor"]),
        float(plain["largest"]),
        decode(plain["point"]).reshape(2, -1),
        decode(plain["peak"]).reshape(2, -1),
    )


def _night_of(plain: Mapping[str, Any], grid: Grid) -> Night:
    cutoff = int(plain["cutoff"])
    night = Night(grid, cutoff)
    for name, values in plain["coefficients"].items():
        night.coefficients[name] = decode(values).reshape(-1, 7)
    if "ridge" in plain:
        ridge = plain["ridge"]
        night.seasons["ridge"] = RidgeSeason(
            grid,
            cutoff,
            decode(ridge["coefficients"]),
            float(ridge["span_days"]),
            bool(ridge["weekly"]),
            None if ridge["phase"] is None else float(ridge["phase"]),
        )
    if "profile" in plain:
        night.seasons["profile"] = ProfileSeason(grid, cutoff, decode(plain["profile"]["profile"]))
    if "prophet" in plain:
        night.seasons["prophet"] = ProphetSeason.from_plain(grid, plain["prophet"])
    return night
