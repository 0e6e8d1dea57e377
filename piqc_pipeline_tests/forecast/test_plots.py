"""The forecast beside what came before, as a picture."""

from datetime import timedelta

import pytest

from piqc_pipeline.forecast import plots
from piqc_pipeline.forecast.model import WorkloadForecast
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.series import DemandSeries
from piqc_pipeline.forecast.train import train_one
from piqc_pipeline_tests.forecast.examples import daily_wave, series_of

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def web() -> tuple[DemandSeries, WorkloadForecast]:
    series = series_of(daily_wave(days=4))
    return series, train_one(series, series.end + timedelta(0), TrainPolicy(with_prophet=False), None).forecast


def test_a_forecast_is_drawn_beside_its_demand(web: tuple[DemandSeries, WorkloadForecast]) -> None:
    series, forecast = web
    picture = plots.forecast_plot([series], {forecast.workload: forecast})
    assert picture.startswith(PNG)
    assert len(picture) < 100 * 1024


def test_a_forecast_without_demand_and_no_forecast_at_all_are_drawn_too(
    web: tuple[DemandSeries, WorkloadForecast],
) -> None:
    assert plots.forecast_plot([], {web[1].workload: web[1]}).startswith(PNG)
    assert plots.forecast_plot([], {}).startswith(PNG)
