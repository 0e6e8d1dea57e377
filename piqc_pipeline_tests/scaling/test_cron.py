"""A floor that needs no model, read off a plan of a day."""

from datetime import timedelta

from piqc_pipeline.scaling.cron import cron_floor
from piqc_pipeline.scaling.options import CronFloor
from piqc_pipeline.scaling.plan import plan_workload
from piqc_pipeline_tests.scaling.plans import NOW, POLICY, forecast, limits

# Quiet but for 08:00 to 18:00, when five replicas' worth of work comes: ceil(5.0/0.8) = 7, so the floor is 4.
DAY = [5.0 if 48 <= step < 108 else 1.0 for step in range(144)]


def planned(day, horizon=24):
    return plan_workload(forecast(day, day), None, limits(min_replicas=1), POLICY, NOW, timedelta(hours=horizon))


def test_the_busy_part_of_the_day_gets_half_its_peak():
    assert cron_floor(planned(DAY), POLICY, "UTC") == CronFloor("UTC", "0 8 * * *", "0 18 * * *", 4)


def test_the_window_is_written_in_the_workloads_zone():
    assert cron_floor(planned(DAY), POLICY, "Europe/Berlin") == CronFloor("Europe/Berlin", "0 9 * * *", "0 19 * * *", 4)


def test_a_flat_day_or_a_short_plan_gets_no_window():
    assert cron_floor(planned([5.0] * 144), POLICY, "UTC") is None
    assert cron_floor(planned(DAY, horizon=6), POLICY, "UTC") is None
