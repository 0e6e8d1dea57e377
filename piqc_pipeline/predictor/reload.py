"""Is there a new artifact, and is it whole? Watches a folder; a broken artifact is refused and the old one kept.

What an artifact is belongs to `forecast.artifact`; swapping what requests see to `engine`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from piqc_pipeline.errors import ForecastError
from piqc_pipeline.forecast.model import PredictorArtifact

HASH_FILE = "predictor.json.sha256"
ARTIFACT_FILE = "predictor.json"

Loader = Callable[[Path], PredictorArtifact]

Fingerprint = tuple[object, ...]


@dataclass(frozen=True)
class Look:
    """What one look at the folder found.

    Attributes:
        artifact: A new artifact; None if nothing changed or it was refused.
        refused: Why the folder's content was refused; None if it is fine.
        changed: Whether the content differs from the last look.
    """

    artifact: PredictorArtifact | None = None
    refused: str | None = None
    changed: bool = False


class ArtifactWatch:
    """Loads the artifact of a folder when its files change, never twice the same ones."""

    def __init__(self, folder: Path, load: Loader) -> None:
        """Watch `folder`; `load` reads it and raises `ForecastError` on anything that is not whole."""
        self._folder = folder
        self._load = load
        self._seen: Fingerprint | None = None
        self._refused: str | None = None
        self._sha256: str | None = None

    def look(self) -> Look:
        """Load what is new. Blocking; call it outside the event loop."""
        fingerprint = self._fingerprint()
        if fingerprint == self._seen:
            return Look(refused=self._refused)
        try:
            artifact = self._load(self._folder)
        except (ForecastError, OSError) as error:
            # Kubernetes swaps a mounted folder between two reads: what fails now may be whole at the next look, and
            # then its files have another identity or time.
            self._seen, self._refused = fingerprint, str(error)
            return Look(refused=self._refused, changed=True)
        self._seen, self._refused = fingerprint, None
        if artifact.sha256 == self._sha256:
            return Look()
        self._sha256 = artifact.sha256
        return Look(artifact=artifact, changed=True)

    def _fingerprint(self) -> Fingerprint:
        """Identity, size and time of both files, and the hash that is promised; cheap enough for every look."""
        parts: list[object] = []
        for name in (ARTIFACT_FILE, HASH_FILE):
            path = self._folder / name
            try:
                status = path.stat()
                parts.append((status.st_ino, status.st_size, status.st_mtime_ns))
            except OSError as error:
                parts.append(type(error).__name__)
        try:
            parts.append((self._folder / HASH_FILE).read_bytes()[:256])
        except OSError:
            parts.append(b"")
        return tuple(parts)
