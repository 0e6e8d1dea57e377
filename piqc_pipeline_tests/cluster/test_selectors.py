import pytest

from piqc_pipeline.cluster.selectors import parse_selector
from piqc_pipeline.errors import UsageError


@pytest.mark.parametrize(
    ("text", "labels", "selected"),
    [
        ("app=a", {"app": "a"}, True),
        ("app==a,tier=x", {"app": "a"}, False),
        ("app!=a", {}, True),
        ("tier in (x, y),app", {"tier": "y", "app": ""}, True),
        ("tier notin (x)", {"tier": "x"}, False),
        ("!gone", {"gone": "1"}, False),
        ("a.io/b-c=d.e", {"a.io/b-c": "d.e"}, True),
    ],
)
def test_selectors_are_read_as_kubectl_reads_them(text: str, labels: dict[str, str], selected: bool) -> None:
    selector = parse_selector(text)
    assert selector is not None and selector.matches(labels) is selected


@pytest.mark.parametrize("text", ["a=b=c", "in (x)", "a in x", ",", "a,,b", "-x"])
def test_what_is_no_selector_is_told_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"app=a,tier in \(b,c\)"):
        parse_selector(text)


def test_no_selector_selects_everything() -> None:
    assert parse_selector(None) is None and parse_selector(" ") is None
