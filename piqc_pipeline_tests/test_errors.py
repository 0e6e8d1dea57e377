"""The exception tree: every error has an exit code and a line in the drawing."""

import inspect

from piqc_pipeline import errors


def test_every_error_stands_in_the_drawing() -> None:
    drawn = errors.__doc__ or ""
    defined = [name for name, value in vars(errors).items() if inspect.isclass(value)]
    assert [name for name in defined if name not in drawn] == []


def test_usage_errors_exit_with_2_and_others_with_1() -> None:
    assert errors.NotConfigured("x").exit_code == 2
    assert {errors.StoreLocked("x").exit_code, errors.ClusterUnreachable("x").exit_code} == {1}


def test_a_librarys_words_fit_into_a_sentence_however_they_are_written() -> None:
    words = ValueError("\n  no such\tcolumn\n\nhint: a query plan\n")
    assert errors.one_line(words) == "no such column hint: a query plan"
    assert errors.first_line(words) == "no such\tcolumn"
    assert (errors.one_line(ValueError()), errors.first_line(ValueError())) == ("", "")
    assert (len(errors.one_line(ValueError("x" * 999))), len(errors.first_line(ValueError("x" * 999)))) == (300, 300)
