"""Does a reader ever see half a file?"""

import os
from pathlib import Path

import pytest

from piqc_pipeline.atomic import replacing


def test_the_new_file_takes_the_place_of_the_old_one_only_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "report.txt"
    for before, after in ((None, "one"), ("one", "two")):
        with replacing(path) as partial:
            partial.write_text(after)
            assert (path.read_text() if path.exists() else None) == before
        assert path.read_text() == after
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_breaks_off_leaves_the_old_file_and_nothing_else(tmp_path: Path, failure: BaseException) -> None:
    path = tmp_path / "report.txt"
    path.write_text("old")
    with pytest.raises(type(failure)), replacing(path) as partial:
        partial.write_text("ne")
        raise failure
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "stdout"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for place in (pipe, link):
        with replacing(place) as partial:
            partial.write_text("told")
        assert os.read(reader, 99) == b"told"
    os.close(reader)
    assert pipe.is_fifo() and link.is_symlink() and len(list(tmp_path.iterdir())) == 2


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with replacing(tmp_path / "link") as partial:
        partial.write_text("new")
        assert (tmp_path / "target").read_text() == "old"
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "new"


def test_a_link_to_itself_is_an_error_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError, match="Too many levels of symbolic links"), replacing(tmp_path / "loop") as partial:
        partial.write_text("new")


def test_a_file_in_the_place_of_a_folder_is_told_as_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(NotADirectoryError), replacing(tmp_path / "file" / "report.txt"):
        pass


def test_two_writers_at_once_leave_the_file_of_one_of_them(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    with replacing(path) as first:
        first.write_text("first")
        with replacing(path) as second:
            second.write_text("second")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]
