"""Dagster's UI in a real browser: the graph, a materialization by its button, the errors and the plot on the page."""

import sys
from pathlib import Path

import dagster as dg
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from piqc_pipeline.defs import collect, history
from piqc_pipeline.defs.partitions import range_tags
from piqc_pipeline.defs.resources import Pipeline
from piqc_pipeline.settings import DEMO_NOW, Settings
from piqc_pipeline_tests.defs.dagster_home import answers, environment, free_port, started, wait_until

CHROMIUM = Path("/usr/bin/chromium")
QUIET_BROWSER = [
    "--no-sandbox",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
]
GROUPS = ("collect", "history", "forecast", "scaling", "report")
PATIENCE_SECONDS = 300
"""Starting Dagster takes 10 s on a quiet machine and minutes on a busy one."""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Debian's chromium: apt-get install chromium"),
]


def fill_history(home: Path, data_dir: Path) -> None:
    """What a training needs, in this process, so that the UI's own run is the training."""
    first = DEMO_NOW.replace(day=6)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        dg.materialize(
            [collect.cluster_snapshot, collect.facts_bundle, history.gpu_utilization],
            instance=instance,
            resources={"pipeline": Pipeline(Settings(cluster="demo", data_dir=data_dir))},
            tags=range_tags(first, DEMO_NOW.replace(day=19)),
        )


def test_the_ui_shows_the_graph_and_trains_on_a_click(tmp_path: Path) -> None:
    home, data_dir = tmp_path / "home", tmp_path / "data"
    env = environment(home, data_dir)
    fill_history(home, data_dir)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    dev = [sys.executable, "-m", "dagster", "dev", "-h", "127.0.0.1", "-p", str(port)]
    with started(dev, env, tmp_path / "dev.log"), sync_playwright() as playwright:
        wait_until(lambda: answers(f"{url}/server_info"), "Dagster's webserver", PATIENCE_SECONDS)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET_BROWSER)
        page = browser.new_page(viewport={"width": 1700, "height": 1100})
        page.set_default_timeout(PATIENCE_SECONDS * 1000)
        expect.set_options(timeout=PATIENCE_SECONDS * 1000)
        see_the_graph(page, url, tmp_path / "graph.png")
        train_on_a_click(page, url, home)
        see_errors_and_plot(page, url, tmp_path / "demand_model.png")
        browser.close()


def see_the_graph(page: Page, url: str, screenshot: Path) -> None:
    page.goto(f"{url}/asset-groups")
    for group in GROUPS:
        expect(page.get_by_text(group, exact=True).first).to_be_visible()
    page.screenshot(path=screenshot)


def train_on_a_click(page: Page, url: str, home: Path) -> None:
    page.goto(f"{url}/assets/demand_model")
    page.get_by_role("button", name="Materialize").first.click()
    trained = dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE])
    with dg.DagsterInstance.from_config(str(home)) as instance:
        wait_until(lambda: len(instance.get_runs(trained)) == 2, "the run that the click started", PATIENCE_SECONDS)
        runs = instance.get_runs(trained)
        assert {run.status for run in runs} == {dg.DagsterRunStatus.SUCCESS}
        event = instance.get_latest_materialization_event(dg.AssetKey("demand_model"))
        assert event is not None


def see_errors_and_plot(page: Page, url: str, screenshot: Path) -> None:
    page.goto(f"{url}/assets/demand_model?view=events")
    expect(page.get_by_text("mae_pp_ensemble", exact=True).first).to_be_visible()
    shown = page.get_by_role("row").filter(has=page.get_by_text("forecast", exact=True))
    shown.get_by_text("[Show Markdown]").first.click()
    expect(page.get_by_alt_text("demand and its forecast")).to_be_visible()
    page.screenshot(path=screenshot, full_page=True)
