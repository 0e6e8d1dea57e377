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
