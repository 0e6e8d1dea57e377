"""How does a file or a folder change as a whole? A reader sees the old content or the new one, never half of either.

What is written, and the sentence that tells the user why it could not be, belong to the caller.
"""

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
"""Linux renameat2(2): both names are exchanged in one step."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to: it takes the place of `path` if the block ends well, else it is removed.

    The folder is made where it is missing. Several processes may do this to one file: the last one wins. A link stays
    and what it points to is replaced; a device or a pipe (`/dev/stdout`) is written to as it is.

    Raises:
        OSError: The folder cannot be made or written to; what was there before stays.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    with suppress(FileNotFoundError):
        path.stat()  # of a link to itself an OSError, where `resolve` raises another or goes on
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def swap_folders(new: Path, folder: Path) -> None:
    """Puts the folder `new` in the place of `folder`; the old content ends in `new`, or is removed.

    In one step where the platform has it; elsewhere `folder` is missing for a moment.

    Raises:
        OSError: It cannot be done; what stood in `folder` stands there still.
    """
    if not folder.exists():
        new.rename(folder)
        return
    if _exchange(new, folder):
        return
    aside = folder.with_name(f"{new.name}.old")
    folder.rename(aside)
    try:
        new.rename(folder)
    except OSError:
        aside.rename(folder)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, two: Path) -> bool:
    """Exchanges two folders in one system call where the platform has it."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    return bool(call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(two), _RENAME_EXCHANGE) == 0)
