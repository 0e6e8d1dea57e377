import numpy as np
import pytest

from piqc_pipeline.forecast.combine import Buckets
from piqc_pipeline.forecast.ensemble import SeasonFits, members_of
from piqc_pipeline.forecast.grid import prepare
from piqc_pipeline.forecast.members import Night
from piqc_pipeline.forecast.members.prophet import ProphetSeason
from piqc_pipeline.forecast.quick import paths, written_out
from piqc_pipeline_tests.forecast.examples import daily_wave, series_of


def made_up_prophet(night):
    week, day = np.array([0.2, -0.1]), np.array([0.5, 0.3, -0.2, 0.1])
    return ProphetSeason(night.grid, 3.0, 0.0, 0.0, week, day, {})


@pytest.mark.parametrize("step", [300, 600, 1800, 3600])
@pytest.mark.parametrize("days", [4, 10], ids=["no week yet", "a week and more"])
def test_a_few_origins_have_the_members_own_paths(step, days):
    size = days * 86_400 // step
    grid = prepare(series_of(daily_wave(days=days, step_seconds=step, noise=0.3), step_seconds=step))
    night = Night(grid, size - 86_400 // step)
    fits = SeasonFits(prophet=made_up_prophet)
    members = members_of(fits)
    fitted = [member.fit(night) for member in members]
    random = np.random.default_rng(0)
    for name in ("ridge_ar", "profile_ar"):
        night.coefficients[name] = random.uniform(-1, 1, (Buckets.of(step).count, 7))
    fitted = [member.fit(night) for member in members]
    quick = written_out(night, 60 * 3600)
    origins = np.array([night.cutoff, night.cutoff + 3, size])
    for horizon in (1, Buckets.of(step).horizon, 30 * 3600 // step):
        found = paths(grid, quick, origins, horizon, len(members))
        for row, (member, predictor) in enumerate(zip(members, fitted, strict=True)):
            expected = predictor.predict(origins, horizon)
            assert found[row] == pytest.approx(expected, rel=1e-9, abs=1e-9), member.name


def test_absent_members_say_nothing():
    grid = prepare(series_of(daily_wave(days=4)))
    quick = written_out(Night(grid, len(grid.values)), 3600)
    found = paths(grid, quick, np.array([len(grid.values)]), 5, 8)
    assert found.shape == (8, 1, 5) and np.isfinite(found[:5]).all() and np.isnan(found[5:]).all()
