"""The predictor takes changed limits while it runs, and keeps the old ones where the new are broken."""

import logging
from pathlib import Path

import pytest

from piqc_pipeline.errors import UsageError
from piqc_pipeline.predictor.limits_watch import LimitsWatch


def put(path: Path, most: int | str) -> None:
    new = path.with_suffix(".new")
    new.write_text(f'{{"inference/chat-8b": {{"min_replicas": 1, "max_replicas": {most}}}}}')
    new.replace(path)


def test_a_file_may_appear_later_and_change(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    watch = LimitsWatch(path)
    watch.look()
    assert watch.limits == {}
    for most in (6, 9):
        put(path, most)
        watch.look()
        assert watch.limits["inference/chat-8b"].max_replicas == most


def test_a_broken_or_vanished_file_keeps_the_limits_of_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "limits.json"
    put(path, 6)
    watch = LimitsWatch(path, required=True)
    put(path, '"six"')
    with caplog.at_level(logging.ERROR):
        watch.look()
        watch.look()
    assert len(caplog.records) == 1 and "the limits of before stay" in caplog.text
    path.unlink()
    watch.look()
    assert watch.limits["inference/chat-8b"].max_replicas == 6


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read replica limits"):
        LimitsWatch(tmp_path / "none.json", required=True)
