"""How does a folder of manifests reach the disk whole or not at all?"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from piqc_pipeline.atomic import swap_folders
from piqc_pipeline.errors import OutputUnwritable, ScalingError
from piqc_pipeline.scaling.yaml_text import MARKER

_OURS = (MARKER.encode(), b'{\n  "schemaVersion": "piqc-')
"""How our files begin: YAML with its mark, JSON with its schema."""


def write_overlay(files: Mapping[str, str], folder: Path) -> None:
    """Replaces the folder by exactly these files, in one step: stale ones of ours are gone, a failure changes nothing.

    Args:
        files: Relative path to text.
        folder: Where the overlay lies; made if missing.

    Raises:
        ScalingError: The folder holds files that piqc did not write, or a path leaves the folder.
        OutputUnwritable: Full disk or read-only place; what stood there still does.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() would follow a link that the user put there
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ScalingError(f"cannot write manifest {name!r}: its path leaves the folder")
    try:
        foreign = _foreign(folder)
        if foreign:
            raise ScalingError(
                f"cannot write manifests to {folder}: it holds {foreign}, which piqc did not write; choose another "
                "folder"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            _fill(staging, files)
            swap_folders(staging, folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise OutputUnwritable(
            f"cannot write manifests to {folder}: {error.strerror or error}; what stood there is untouched"
        ) from error


def _foreign(folder: Path) -> str | None:
    """The first file that is not ours, or None."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return f"{folder.name} itself (a file or link)"
    if not folder.exists():
        return None
    for path in sorted(folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        if path.is_symlink():
            return str(path.relative_to(folder))
        with path.open("rb") as handle:
            if not handle.read(100).startswith(_OURS):
                return str(path.relative_to(folder))
    return None


def _fill(staging: Path, files: Mapping[str, str]) -> None:
    staging.chmod(0o755)
    for name in sorted(files):
        path = staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="\n") as handle:
            handle.write(files[name])
            handle.flush()
            os.fsync(handle.fileno())
