"""How does a file change as a whole? A reader sees the old content or the new one, never half of either.

What is written, and the sentence that tells the user why it could not be, belong to the caller. Folders that change as
a whole are in `scaling/overlay.py` and `forecast/artifact.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to: it takes the place of `path` if the block ends well, else it is removed.

    The folder is made where it is missing. Several processes may do this to one file: the last one wins.

    Raises:
        OSError: The folder cannot be made or written to; what was there before stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
