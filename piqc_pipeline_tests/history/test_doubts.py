from datetime import timedelta

from piqc_pipeline.history.doubts import Doubt, sentences, together
from piqc_pipeline_tests.history.rows import DAY, NEXT_DAY


def lost(*pods: str) -> Doubt:
    return Doubt("{number} pods are lost: {names}", names=frozenset(pods))


def test_counts_add_up_and_names_are_told_once() -> None:
    buckets = Doubt("{count} buckets of {number} devices", 3, frozenset({"a"}))
    more = Doubt("{count} buckets of {number} devices", 4, frozenset({"a", "b"}))
    assert [str(doubt) for doubt in together([buckets, lost("x"), more])] == [
        "7 buckets of 2 devices",
        "1 pods are lost: x",
    ]


def test_the_first_names_are_shown_in_order() -> None:
    assert str(lost("e", "d", "c", "b", "a")) == "5 pods are lost: a, b, c and 2 more"


def test_what_others_named_is_never_taken_for_a_place_in_the_sentence() -> None:
    assert str(lost("{count}", "{names}")) == "2 pods are lost: {count}, {names}"
    assert str(Doubt("the server warns: {count} {names}")) == "the server warns: {count} {names}"
    assert str(Doubt("{count} rows are not in {count}.csv", 2)) == "2 rows are not in {count}.csv"


def test_a_sentence_tells_on_how_many_days_of_the_range_and_on_which() -> None:
    third = DAY + timedelta(days=2)
    days = {DAY: [lost("b"), Doubt("odd")], NEXT_DAY: [], third: [lost("a"), lost("a")]}
    assert sentences(days) == (
        "2 pods are lost: a, b (2 days, 2025-01-06 to 2025-01-08)",
        "odd (2025-01-06)",
    )


def test_of_a_single_day_only_the_sentence_is_told() -> None:
    assert sentences({DAY: [Doubt("odd"), Doubt("odd")]}) == ("odd",)
    assert sentences({}) == ()
