"""Which replica limits count at the moment? Reads `limits.json` again when it changes; a broken one changes nothing."""

import logging
from collections.abc import Mapping
from pathlib import Path

from piqc_pipeline.errors import UsageError
from piqc_pipeline.scaling.limits import ReplicaLimits
from piqc_pipeline.scaling.limits_file import read_limits

log = logging.getLogger(__name__)


class LimitsWatch:
    """The limits of a file that comes with the manifests; Kubernetes swaps it whole when the ConfigMap changes."""

    def __init__(self, path: Path | None, *, required: bool = False) -> None:
        """Read `path`; where it is not `required` it may appear later.

        Raises:
            UsageError: It is required and cannot be read.
        """
        self.limits: Mapping[str, ReplicaLimits] = {}
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        if path is not None and required:
            self.limits = read_limits(path)
            self._seen = self._fingerprint(path)

    def look(self) -> None:
        """Take a changed file. Blocking; call it outside the event loop."""
        if self._path is None:
            return
        fingerprint = self._fingerprint(self._path)
        if fingerprint is None or fingerprint == self._seen:
            return
        self._seen = fingerprint
        try:
            self.limits = read_limits(self._path)
        except UsageError as error:
            log.error("%s; the limits of before stay", error)
        else:
            log.info("replica limits of %d workloads read from %s", len(self.limits), self._path)

    def _fingerprint(self, path: Path) -> tuple[int, int, int] | None:
        try:
            status = path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns
