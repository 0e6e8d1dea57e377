"""How do a thousand forecasts fit into a small process? The artifact, read so that little of it stays in memory.

The file is mapped, hashed and cut into workloads without copying; each table becomes arrays of four or eight bytes a
number (a tuple of floats takes 32), scores and checks are left to the model card, and the state that a refresh needs
stays in the file until it is asked for. What an artifact is belongs to `forecast.artifact`, as do the errors.
"""

import hashlib
import mmap
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from pydantic import TypeAdapter, ValidationError

from piqc_pipeline.errors import ArtifactAltered, ArtifactMissing
from piqc_pipeline.forecast.artifact import HASH, PREDICTOR
from piqc_pipeline.forecast.model import SCHEMA_VERSION, ForecastTable, PredictorArtifact, WorkloadForecast
from piqc_pipeline.forecast.sound import fault_of

MAX_ARTIFACT_BYTES = 1 << 30
"""About 13,000 workloads of five-minute buckets; a larger file is not one of ours."""


class StoredState(Mapping[str, Any]):
    """A workload's refresh state, still as JSON in the mapped file."""

    def __init__(self, raw: msgspec.Raw, text: mmap.mmap) -> None:
        """Keep the place in the mapped `text`, not the content."""
        self._raw = raw
        self._text = text

    def parse(self) -> dict[str, Any]:
        """The state as plain values."""
        found: dict[str, Any] = msgspec.json.decode(self._raw)
        _forget_pages(self._text)
        return found

    def __getitem__(self, key: str) -> Any:
        """One value; parses everything."""
        return self.parse()[key]

    def __iter__(self) -> Iterator[str]:
        """Keys; parses everything."""
        return iter(self.parse())

    def __len__(self) -> int:
        """Number of keys; parses everything."""
        return len(self.parse())


class _Document(msgspec.Struct, rename="camel"):
    schema_version: str
    trained_at: datetime
    versions: dict[str, str]
    policy: dict[str, Any]
    failed: dict[str, str]
    workloads: dict[str, msgspec.Raw]


class _State(msgspec.Struct):
    state: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True)
class _Schema:
    schemaVersion: str = ""  # noqa: N815 - the wire's name


@lru_cache(maxsize=1)
def _entry() -> TypeAdapter[WorkloadForecast]:
    return TypeAdapter(WorkloadForecast)


def load(folder: Path) -> PredictorArtifact:
    """The artifact in a folder, if it is what its hash and its schema say; scores and checks are left out.

    Raises:
        ArtifactMissing: There is none.
        ArtifactAltered: Hash or schema do not fit, or it is cut off.
    """
    place = folder.resolve()
    try:
        with (place / PREDICTOR).open("rb") as file:
            size = file.seek(0, 2)
            if not 0 < size <= MAX_ARTIFACT_BYTES:
                raise ArtifactAltered(f"the predictor artifact in {folder} has {size} bytes; promote it again")
            text = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        wanted = (place / HASH).read_bytes()[:256].split()
    except (FileNotFoundError, NotADirectoryError) as error:
        name = Path(error.filename or PREDICTOR).name
        raise ArtifactMissing(f"no predictor artifact in {folder}: no {name} there; run `piqc train`") from error
    except OSError as error:
        raise ArtifactAltered(f"cannot read the predictor artifact in {folder}: {error}") from error
    digest = hashlib.sha256(text).hexdigest()
    if not wanted or wanted[0] != digest.encode():
        promised = (wanted or [b"nothing"])[0][:12].decode("ascii", "replace")
        raise ArtifactAltered(
            f"the predictor artifact in {folder} was altered or is half-written: its SHA-256 is {digest[:12]}..., "
            f"{HASH} says {promised}...; promote it again"
        )
    document = _parse(text, folder)
    workloads = {name: _workload(name, raw, text, folder) for name, raw in document.workloads.items()}
    _forget_pages(text)
    return PredictorArtifact(
        document.schema_version,
        document.trained_at,
        workloads,
        document.failed,
        document.versions,
        document.policy,
        digest,
    )


def _forget_pages(text: mmap.mmap) -> None:
    """Give the file's pages back; they return from the file when they are needed."""
    if hasattr(text, "madvise"):
        text.madvise(mmap.MADV_DONTNEED)


def _parse(text: mmap.mmap, folder: Path) -> _Document:
    try:
        version = msgspec.json.decode(text, type=_Schema).schemaVersion
        if version != SCHEMA_VERSION:
            newer = "a newer" if (len(version), version) > (len(SCHEMA_VERSION), SCHEMA_VERSION) else "an older"
            raise ArtifactAltered(
                f"the predictor artifact in {folder} has schema {version or 'none'}, this program reads "
                f"{SCHEMA_VERSION}: it was written by {newer} program; use the same version for both"
            )
        return msgspec.json.decode(text, type=_Document)
    except msgspec.DecodeError as error:
        raise ArtifactAltered(f"the predictor artifact in {folder} breaks its schema: {error}") from error


def _workload(name: str, raw: msgspec.Raw, text: mmap.mmap, folder: Path) -> WorkloadForecast:
    try:
        state = msgspec.json.decode(raw, type=_State).state
        entry = _entry().validate_json(bytes(raw))
    except (msgspec.DecodeError, ValidationError) as error:
        first = str(error).replace("\n", " ")[:200]
        raise ArtifactAltered(f"the predictor artifact in {folder} breaks its schema at {name}: {first}") from error
    if entry.workload != name:
        raise ArtifactAltered(f"the predictor artifact in {folder} calls {name} also {entry.workload}")
    if (fault := fault_of(entry)) is not None:
        raise ArtifactAltered(f"the predictor artifact in {folder} cannot be used at {name}: {fault}; promote it again")
    return replace(
        entry,
        table=compact(entry.table),
        scores={},
        checks=(),
        state=StoredState(state, text) if entry.state is not None else None,
    )


def compact(table: ForecastTable) -> ForecastTable:
    """The same table with small arrays in place of tuples or larger ones."""
    columns = {item.name: getattr(table, item.name) for item in fields(table)}
    columns = {name: column for name, column in columns.items() if isinstance(column, tuple | array) and column}
    # Peaks become whole replicas, where the seventh digit can be one more; the others are shown with four digits.
    arrays: dict[str, Any] = {
        name: array("d" if name.startswith("peak") else "f", column) for name, column in columns.items()
    }
    return replace(table, **arrays)
