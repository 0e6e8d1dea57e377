"""The table fits a terminal, cuts nothing off, and obeys nothing that the cluster wrote."""

from dataclasses import replace

import pytest

from piqc_pipeline.report.scan_result import ScanResult, scan_result
from piqc_pipeline.report.table import render
from piqc_pipeline.report.text import age, printable
from piqc_pipeline.waste import load_prices
from piqc_pipeline_tests.waste.clusters import cluster, node, pod, sample_cluster, workload

PRICES = load_prices()


def sample() -> ScanResult:
    return scan_result(sample_cluster(), PRICES)


def test_the_table_fits_80_columns_and_shows_every_dollar() -> None:
    text = render([sample()], coverage=True)
    assert max(len(line) for line in text.splitlines()) <= 80
    for part in ("1,566.72", "408.00", "53.40", "$3,907.15", "$1,426,109.75", "$3,243.43", "dark-0: 8 dark of 8"):
        assert part in text


def test_a_wide_terminal_keeps_each_workload_on_one_line() -> None:
    (line,) = [line for line in render([sample()], width=140).splitlines() if line.startswith("llama-70b")]
    assert line.split() == [
        "llama-70b", "vllm", "16x", "H100-SXM4-80GB", "⚠", "2", "6h", "4%", "0.4%", "$0.0421", "68.00", "1,566.72",
    ]  # fmt: skip


def test_names_break_where_their_parts_end() -> None:
    lines = [line.split() for line in render([sample()]).splitlines()]
    (first,) = [at for at, line in enumerate(lines) if line[:1] == ["llama-70b"]]
    assert lines[first][2:4] == ["16x", "H100-SXM4-"] and lines[first + 1] == ["80GB", "⚠"]


@pytest.mark.parametrize("width", [40, 50, 67])
def test_a_narrow_terminal_leaves_columns_out_and_says_which_but_never_dollars(width: int) -> None:
    text = render([sample()], width=width, coverage=True)
    assert max(len(line) for line in text.splitlines()) <= width and "…" not in text
    assert "1,566.72" in text and "68.00" in text
    assert "Left out on this narrow terminal: $/1K tokens" in " ".join(text.split())
    assert "Left out" not in render([sample()])


def test_large_dollars_push_other_columns_out() -> None:
    text = render([scan_result(sample_cluster(), PRICES.with_flat(50_000.0, None))])
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "800,000.00" in text and "18,432,000.00" in text


def test_columns_have_the_names_of_the_specification() -> None:
    text = " ".join(render([sample()], width=140).split())
    for name in (
        "Deployment",
        "Engine",
        "GPU",
        "Replicas",
        "Age",
        "Util",
        "MFU",
        "$/1K",
        "$/hr",
        "Idle",
        "Cost Summary",
    ):
        assert name in text


def test_a_pipe_gets_no_terminal_codes() -> None:
    assert "\x1b" not in render([sample()])
    assert "\x1b[" in render([sample()], color=True)


def test_a_terminal_without_unicode_gets_plain_marks() -> None:
    assert render([sample()], encoding="ascii", coverage=True).isascii()


def test_markup_and_escapes_in_names_are_shown_and_not_obeyed() -> None:
    name = "evil[/b][red]x\x1b[2J\u202e"
    snapshot = cluster([node(name)], [pod("a", name, 1)], [replace(workload(), name=name)])
    text = render([scan_result(snapshot, PRICES)], width=200)
    assert "evil[/b][red]x\\x1b[2J\\u202e" in text
    assert "\x1b" not in text


def test_no_workload_is_a_sentence_beside_the_dollars_of_dark_accelerators() -> None:
    text = render([scan_result(cluster([node("n")], []), PRICES)])
    assert "No workload" in text
    assert "$768.00" in text


def test_many_unknown_figures_are_shortened_with_their_number() -> None:
    workloads = [workload(f"w{place}") for place in range(20)]
    pods = [pod(f"p{place}", "n", 0.1, workload=f"c/inference/Deployment/w{place}") for place in range(20)]
    assert "more entries" in render([scan_result(cluster([node("n")], pods, workloads), PRICES)])


@pytest.mark.parametrize(
    ("hours", "shown"),
    [(None, "?"), (0.0, "0m"), (0.7, "42m"), (6.5, "6h"), (47.9, "47h"), (48.0, "2d"), (24 * 60.0, "60d")],
)
def test_ages_are_printed_as_kubectl_does(hours: float | None, shown: str) -> None:
    assert age(hours) == shown


def test_printable_text_keeps_letters_of_all_languages() -> None:
    assert printable("модель-模型-é") == "модель-模型-é"
    assert printable("a\tb\nc\x00") == "a\\tb\\nc\\x00"
    assert printable("\ud800") == "?"
