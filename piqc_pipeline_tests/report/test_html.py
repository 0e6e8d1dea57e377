"""The page shows text letter by letter, loads nothing, and holds what it was given."""

import io
from datetime import timedelta
from html.parser import HTMLParser

import numpy as np
from matplotlib.image import imread

from piqc_pipeline.report.capacity_page import dollar_parts, render
from piqc_pipeline.report.html import Picture, ReportInputs, Section, Table, Tile, render_report
from piqc_pipeline.report.plots import Outlook, data_uri, dollars_plot, outlook_plot
from piqc_pipeline.report.scan_result import scan_result
from piqc_pipeline.waste import load_prices
from piqc_pipeline_tests.waste.clusters import NOW, cluster, node, pod, sample_cluster, workload

PNG = b"\x89PNG\r\n\x1a\n"
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e{{ 7 * 7 }}"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links.extend(value or "" for name, value in attrs if name in ("src", "href"))


def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    return tags


def test_text_of_the_cluster_is_never_markup() -> None:
    page = render_report(
        ReportInputs(
            HOSTILE,
            "then",
            "now",
            [Tile(HOSTILE, HOSTILE)],
            [Section(HOSTILE, HOSTILE, [Picture(HOSTILE, PNG)], [Table([HOSTILE], [[HOSTILE]], HOSTILE, HOSTILE)])],
        )
    )
    assert "script" not in parsed(page).tags
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;" in page
    assert "{{ 7 * 7 }}" in page


def test_the_page_loads_nothing() -> None:
    page = render(scan_result(sample_cluster(), load_prices()), None, (), {"load": PNG}, NOW)
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in parsed(page).links)
    assert "default-src 'none'" in page


def test_the_sample_cluster_stands_on_the_page_with_its_dollars() -> None:
    page = render(scan_result(sample_cluster(), load_prices()), None, (), {}, NOW)
    for text in ("$3,243.43", "$143.85", "$2,033.95", "inference/Deployment/llama-70b", "oversized", "Unschedulable"):
        assert text in page
    assert "every workload stays reactive" in page


def test_the_parts_of_a_day_share_no_dollar_and_sum_to_what_is_installed() -> None:
    parts = dict(dollar_parts(scan_result(sample_cluster(), load_prices())))
    assert round(sum(parts.values()), 2) == round(143.85 * 24, 2)
    assert parts["dark"] == 1152.0
    assert parts["not measured"] == 168.0


def test_unknown_capacity_draws_no_bar() -> None:
    blind = cluster(None, [pod("a", "n", 1)], [workload()])
    assert dollar_parts(scan_result(blind, load_prices())) == []
    assert "What is wasted?" in render(scan_result(blind, load_prices()), None, (), {}, NOW)


def test_an_empty_cluster_has_a_page() -> None:
    assert "GPU capacity of c" in render(
        scan_result(cluster([node("n", pools=())], []), load_prices()), None, (), {}, NOW
    )


def test_the_most_replicas_allowed_are_drawn_where_the_legend_names_them() -> None:
    moments = [NOW, NOW + timedelta(minutes=30)]
    pixels = imread(io.BytesIO(outlook_plot(Outlook("w", moments, [0.5, 0.5], [1.0, 1.0], [1, 1], 2))))
    red = (pixels[..., 0] > 0.7) & (pixels[..., 1] < 0.3)
    assert red.any(axis=0).sum() > pixels.shape[1] / 4  # a line across, not its sample in the legend
    assert np.flatnonzero(red.any(axis=1)).max() > pixels.shape[0] / 5


def test_a_single_planned_moment_is_a_point() -> None:
    moments = [NOW, NOW + timedelta(minutes=30)]

    def dark_in_the_middle(replicas: list[int | None]) -> bool:
        pixels = imread(io.BytesIO(outlook_plot(Outlook("w", moments, [0.0, 0.0], [0.0, 0.0], replicas))))
        return bool((pixels[50:-80, 60:, :3] < 0.3).all(axis=2).any())

    assert dark_in_the_middle([1, None]) and dark_in_the_middle([1, 1]) and not dark_in_the_middle([None, None])


def test_pictures_are_small_png_and_a_dollar_in_a_name_is_no_formula() -> None:
    outlook = Outlook("a$b_{c}$", [NOW], [1.0], [2.0], [3], 4)
    for png in (dollars_plot([("busy", 1.0), ("idle", 2.0)]), outlook_plot(outlook), dollars_plot([])):
        assert png.startswith(PNG)
        assert len(png) < 100_000
        assert data_uri(png).startswith("data:image/png;base64,")
