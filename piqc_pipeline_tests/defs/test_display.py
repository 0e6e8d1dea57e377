"""What a result looks like on an asset's page."""

import io

import dagster as dg
import numpy as np
import pytest

from piqc_pipeline.defs import display


def noisy_png(pixels: int, colors: int) -> bytes:
    """Random pixels in RGBA, as matplotlib writes them; they hardly compress."""
    from PIL import Image

    stream = io.BytesIO()
    palette = np.random.default_rng(2).integers(0, 256, (colors, 4), dtype=np.uint8)
    noise = np.random.default_rng(1).integers(0, colors, (pixels, pixels))
    Image.fromarray(palette[noise]).save(stream, format="png")
    return stream.getvalue()


def test_an_unknown_figure_is_left_out_because_a_zero_would_be_a_claim() -> None:
    assert set(display.numbers({"known": 0.0, "unknown": None})) == {"known"}


def test_text_of_the_cluster_is_never_markup() -> None:
    shown = display.table(["name"], [["<img src=x> | [a](b) `c`\nd"]]).value
    assert shown == "| name |\n| --- |\n| \\<img src=x\\> \\| \\[a\\](b) \\`c\\` d |"


def test_a_long_table_says_how_much_is_missing() -> None:
    shown = str(display.table(["n"], [[number] for number in range(53)]).value)
    assert shown.endswith("\n\n3 more are in the file.")


def test_a_failed_check_that_does_not_block_is_a_warning() -> None:
    result = display.verdict("gaps", False, measured=0.3, limit=0.02, unit="share", says="30 % is missing")
    assert result.severity == dg.AssetCheckSeverity.WARN
    assert {name: entry.value for name, entry in result.metadata.items()} == {
        "measured": 0.3,
        "limit": 0.02,
        "unit": "share",
    }


def test_a_plot_is_made_smaller_before_it_is_left_out() -> None:
    large = noisy_png(500, colors=4)
    assert len(large) > display.MAX_PLOT_BYTES
    assert str(display.picture("load", large).value).startswith("![load](data:image/png;base64,")


def test_a_plot_that_stays_too_large_is_a_sentence() -> None:
    shown = str(display.picture("noise", noisy_png(600, colors=256)).value)
    assert shown.startswith("noise: ")
    assert shown.endswith("too large to show here; see the file")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3243.4273981, 3243.43),
        (5.283746519, 5.284),
        (0.0123456, 0.01235),
        (0.0, 0.0),
        (-120.005001, -120.01),
        (8.0, 8.0),
    ],
)
def test_figures_carry_no_more_digits_than_they_mean(value: float, shown: float) -> None:
    assert display.numbers({"x": value})["x"].value == shown
    result = display.verdict("gaps", False, measured=value, limit=0.02, unit="share", says="")
    assert result.metadata["measured"].value == shown
