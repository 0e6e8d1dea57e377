import numpy as np
import polars as pl
import pytest

from piqc_pipeline.history.capacity import fit_work, with_work

RANDOM = np.random.default_rng(11)
PROMPT = RANDOM.uniform(100, 3000, 200)
GENERATED = RANDOM.uniform(50, 900, 200)


def test_a_load_made_of_tokens_is_found_again() -> None:
    fit = fit_work(PROMPT / 5000 + GENERATED / 1000 + 0.05, PROMPT, GENERATED)
    assert fit is not None
    assert (fit.per_prompt_token, fit.per_generated_token, fit.at_rest) == pytest.approx((1 / 5000, 1 / 1000, 0.05))
    assert fit.r2 == pytest.approx(1)


def test_no_part_is_negative() -> None:
    fit = fit_work(GENERATED / 1000 - PROMPT / 50_000 + 0.2, PROMPT, GENERATED)
    assert fit is not None
    assert fit.per_prompt_token == 0
    assert fit.per_generated_token > 0


@pytest.mark.parametrize(
    "busy",
    [RANDOM.uniform(0, 1, 200), np.full(200, 0.97), (PROMPT / 5000)[:20]],
    ids=["tokens explain nothing", "duty cycle near 100 %", "too thin"],
)
def test_tokens_that_explain_too_little_are_not_used(busy: np.ndarray) -> None:
    assert fit_work(busy, PROMPT[: len(busy)], GENERATED[: len(busy)]) is None


def test_saturated_buckets_do_not_bend_the_fit_and_get_its_figure() -> None:
    busy = PROMPT / 3000
    rows = pl.DataFrame(
        {
            "workload": ["a"] * 200 + ["b"],
            "by_devices": [*np.minimum(busy, 0.5), 0.3],
            "mean": [*np.where(busy > 0.5, 1.0, busy), 0.3],
            "waiting": [0.0] * 201,
            "prompt": [*PROMPT, None],
            "generated": [None] * 201,
        },
        schema_overrides={"generated": pl.Float64},
    )
    work = with_work(rows)["work"].to_list()
    assert work[:200] == pytest.approx(busy.tolist())
    assert work[200] is None
