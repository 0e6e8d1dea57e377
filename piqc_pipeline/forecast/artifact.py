"""Where does a trained forecast lie, and is it what its hash says? Writing, promoting, loading and rolling back.

A folder holds `predictor.json` (the wire format), `predictor.json.sha256`, `model_card.md`, `forecast.csv` and
`prophet_model.pkl` (written because the specification asks for the file; nothing here loads it). Example of
`predictor.json`, shortened:

```json
{"schemaVersion": "piqc-predictor.v1", "trainedAt": "2025-01-20T00:00:00Z",
 "versions": {"piqc_pipeline": "0.1.0", "numpy": "2.2.0", "prophet": "1.5.0"},
 "policy": {"train_days": 28, "lead_seconds": 600}, "failed": {},
 "workloads": {"demo/inference/Deployment/chat-8b": {
   "accepted": true, "reasons": [], "confidence": "high", "stepSeconds": 600,
   "issuedAt": "2025-01-20T00:00:00Z", "dataUntil": "2025-01-20T00:00:00Z", "validUntil": "2025-01-21T12:00:00Z",
   "leadSeconds": 600, "gpusPerReplica": 1.0, "unit": "replicas", "coverageQ90": 0.91,
   "table": {"start": "2025-01-20T00:00:00Z", "stepSeconds": 600, "q50": [3.1], "q90": [3.6], "lower": [2.7],
             "peakQ50": [3.2], "peakQ90": [3.7]},
   "scores": {"ensemble": {"30m": {"maePp": 4.1, "rmsePp": 5.6, "maeDemand": 0.2, "rmseDemand": 0.3, "points": 423}}},
   "checks": [{"name": "mae_below_10_pp", "passed": true, "value": 4.1, "limit": 10.0, "unit": "pp",
               "detail": "4.1 of at most 10 points", "decides": true}],
   "data": {"start": "2025-01-06T00:00:00Z", "end": "2025-01-20T00:00:00Z", "rows": 2016, "gaps": 0,
            "censoredShare": 0.0, "notes": []},
   "state": {"...": "what `refresh` needs"}}}}
```
"""

import csv
import hashlib
import io
import os
import pickle
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from piqc_pipeline.atomic import replacing, swap_folders
from piqc_pipeline.errors import ArtifactAltered, ArtifactMissing, NoWorkloadAccepted, OutputUnwritable
from piqc_pipeline.forecast.card import model_card
from piqc_pipeline.forecast.model import (
    SCHEMA_VERSION,
    WIRE,
    CandidateModel,
    PredictorArtifact,
    WorkloadForecast,
)
from piqc_pipeline.forecast.sound import fault_of

PREDICTOR = "predictor.json"
HASH = "predictor.json.sha256"
CARD = "model_card.md"
TABLE = "forecast.csv"
PICKLE = "prophet_model.pkl"
"""A pickled dict: workload id → pickled `prophet.Prophet`. For users who want the model itself; never read by us."""

CURRENT = "current"
CANDIDATE = "candidate"
ARCHIVE = "archive"
DEFAULT_KEEP = 10


@dataclass(frozen=True)
class PredictorDocument:
    """`predictor.json` as it lies on disk."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE

    schema_version: str
    trained_at: datetime
    versions: Mapping[str, str]
    policy: Mapping[str, Any]
    failed: Mapping[str, str]
    workloads: Mapping[str, WorkloadForecast] = field(default_factory=dict)


@dataclass(frozen=True)
class ArtifactVersion:
    """One artifact kept in the archive.

    Attributes:
        version: Its folder's name: time of training and start of the hash.
        trained_at: UTC.
        accepted: Workloads with an accepted forecast.
        rejected: The others.
        drifted: Workloads whose demand had left the forecast before.
        is_current: Whether it is the one in use.
    """

    version: str
    trained_at: datetime
    accepted: int
    rejected: int
    drifted: int
    is_current: bool


@lru_cache(maxsize=1)
def _wire() -> TypeAdapter[PredictorDocument]:
    return TypeAdapter(PredictorDocument)


def write_candidate(candidate: CandidateModel, folder: Path) -> Path:
    """Writes a candidate's files; a folder already there is replaced as a whole.

    Args:
        candidate: What training made.
        folder: Usually `DATA_DIR/model/candidate`.

    Returns:
        The folder.

    Raises:
        OutputUnwritable: The folder cannot be written; what was there before stays.
    """
    document = PredictorDocument(
        SCHEMA_VERSION,
        candidate.trained_at,
        dict(candidate.versions),
        dict(candidate.policy),
        dict(candidate.failed),
        dict(candidate.workloads),
    )
    return _write_folder(document, folder, candidate.prophet_models)


def load(folder: Path) -> PredictorArtifact:
    """The artifact in a folder, if it is what its hash and its schema say.

    Raises:
        ArtifactMissing: There is none.
        ArtifactAltered: Hash or schema do not fit.
    """
    # A promotion may swap the link between two reads; the resolved folder never changes.
    place = folder.resolve()
    try:
        text = (place / PREDICTOR).read_bytes()
        wanted = (place / HASH).read_text(encoding="ascii").split()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ArtifactMissing(
            f"no predictor artifact in {folder}: no {Path(error.filename or PREDICTOR).name} there; run `piqc train`"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactAltered(f"cannot read the predictor artifact in {folder}: {error}") from error
    digest = hashlib.sha256(text).hexdigest()
    if not wanted or wanted[0] != digest:
        raise ArtifactAltered(
            f"the predictor artifact in {folder} was altered: its SHA-256 is {digest[:12]}..., {HASH} says "
            f"{(wanted or ['nothing'])[0][:12]}...; run `piqc train` or `piqc model rollback`"
        )
    document = _parse(text, folder)
    return PredictorArtifact(
        document.schema_version,
        document.trained_at,
        document.workloads,
        document.failed,
        document.versions,
        document.policy,
        digest,
    )


def _parse(text: bytes, folder: Path) -> PredictorDocument:
    try:
        document = _wire().validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ArtifactAltered(
            f"the predictor artifact in {folder} breaks its schema at {place}: {first['msg']}"
        ) from error
    if document.schema_version != SCHEMA_VERSION:
        raise ArtifactAltered(
            f"the predictor artifact in {folder} has schema {document.schema_version}; this program reads "
            f"{SCHEMA_VERSION}: train again"
        )
    for name, entry in document.workloads.items():
        if (fault := fault_of(entry)) is not None:
            raise ArtifactAltered(f"the predictor artifact in {folder} cannot be used at {name}: {fault}; train again")
    return document


def promote(candidate_folder: Path, model_folder: Path, keep: int = DEFAULT_KEEP) -> Path:
    """Makes a candidate the artifact in use, by one atomic rename of a link.

    A workload whose candidate was rejected, or that was not trained this time, keeps the accepted entry that is in use
    as long as it is valid.

    Args:
        candidate_folder: Written by `write_candidate`.
        model_folder: Holds `current` (a link) and `archive/`.
        keep: Artifacts kept, the one in use among them.

    Returns:
        `model_folder/current`.

    Raises:
        NoWorkloadAccepted: Nothing in the candidate may be used; what was promoted before stays.
        ArtifactMissing: There is no candidate.
        ArtifactAltered: The candidate is not what its hash says.
        OutputUnwritable: The folder cannot be written.
    """
    candidate = load(candidate_folder)
    if not any(forecast.accepted for forecast in candidate.workloads.values()):
        reasons = "; ".join(
            f"{name}: {'; '.join(entry.reasons)}" for name, entry in list(candidate.workloads.items())[:3]
        )
        raise NoWorkloadAccepted(
            f"no forecast of the {len(candidate.workloads) + len(candidate.failed)} workloads was accepted, what was "
            f"promoted before stays{': ' if reasons else ''}{reasons}"
        )
    current = model_folder / CURRENT
    try:
        before: Mapping[str, WorkloadForecast] = load(current).workloads
    except (ArtifactMissing, ArtifactAltered):
        before = {}
    document = PredictorDocument(
        SCHEMA_VERSION,
        candidate.trained_at,
        candidate.versions,
        candidate.policy,
        candidate.failed,
        merged(before, candidate),
    )
    archive = model_folder / ARCHIVE
    digest = hashlib.sha256(_wire().dump_json(document, by_alias=True)).hexdigest()
    place = archive / f"{candidate.trained_at:%Y%m%dT%H%M%SZ}-{digest[:8]}"
    _write_folder(document, place, None, candidate_folder / PICKLE)
    _point(current, place)
    _prune(archive, current, keep)
    return current


def merged(before: Mapping[str, WorkloadForecast], candidate: PredictorArtifact) -> dict[str, WorkloadForecast]:
    """Which entry each workload gets: the candidate's, unless it was rejected and a valid accepted one is in use."""
    result = dict(candidate.workloads)
    for name, entry in before.items():
        new = candidate.workloads.get(name)
        if entry.accepted and entry.valid_until > candidate.trained_at and not (new and new.accepted):
            result[name] = entry
    return dict(sorted(result.items()))


def trained_before(model_folder: Path) -> dict[str, WorkloadForecast]:
    """The forecasts in use, for the next run to go on from; none where there are none to trust.

    Where the last run's forecast was rejected or rolled back, the entry in use is older than what that run had
    replayed: it gets that run's state, so that no night is replayed twice.
    """
    try:
        in_use = load(model_folder / CURRENT)
    except (ArtifactMissing, ArtifactAltered):
        return {}
    result = dict(in_use.workloads)
    try:
        last = load(model_folder / CANDIDATE).workloads if _is_behind(in_use, model_folder) else {}
    except (ArtifactMissing, ArtifactAltered):
        return result
    for name, entry in result.items():
        newer = last.get(name)
        if newer is not None and newer.state is not None and newer.data_until > entry.data_until:
            result[name] = replace(entry, state=newer.state)
    return result


def _is_behind(in_use: PredictorArtifact, model_folder: Path) -> bool:
    """Whether an entry is older than the last run; a thousand of them are not read for nothing."""
    if any(entry.issued_at < in_use.trained_at for entry in in_use.workloads.values()):
        return True
    newest = max((place.name for place in (model_folder / ARCHIVE).glob("*Z-*")), default="")
    return (model_folder / CURRENT).resolve().name != newest


def versions_in(model_folder: Path) -> list[ArtifactVersion]:
    """The artifacts kept, newest first; an unreadable one is left out."""
    current = (model_folder / CURRENT).resolve()
    found = []
    for place in sorted((model_folder / ARCHIVE).glob("*Z-*"), reverse=True):
        try:
            artifact = load(place)
        except (ArtifactMissing, ArtifactAltered):
            continue
        accepted = sum(entry.accepted for entry in artifact.workloads.values())
        rejected = len(artifact.workloads) - accepted + len(artifact.failed)
        drifted = sum(bool(entry.drift and entry.drift.drifted) for entry in artifact.workloads.values())
        is_current = place.resolve() == current
        found.append(ArtifactVersion(place.name, artifact.trained_at, accepted, rejected, drifted, is_current))
    return found


def rollback(model_folder: Path, version: str | None = None) -> str:
    """Puts an older artifact back into use.

    Args:
        model_folder: Holds `current` and `archive/`.
        version: Which; the newest before the one in use if None.

    Returns:
        The version now in use.

    Raises:
        ArtifactMissing: There is no such version.
    """
    kept = versions_in(model_folder)
    names = [entry.version for entry in kept]
    if version is None:
        position = next((i for i, entry in enumerate(kept) if entry.is_current), -1)
        if position + 1 >= len(kept):
            raise ArtifactMissing(f"no artifact older than the one in use is kept in {model_folder / ARCHIVE}")
        version = names[position + 1]
    elif version not in names:
        raise ArtifactMissing(
            f"no artifact {version} in {model_folder / ARCHIVE}; there are: {', '.join(names) or 'none'}"
        )
    _point(model_folder / CURRENT, model_folder / ARCHIVE / version)
    return version


def _write_folder(
    document: PredictorDocument,
    folder: Path,
    prophet_models: Mapping[str, bytes] | None,
    pickle_from: Path | None = None,
) -> Path:
    text = _wire().dump_json(document, by_alias=True)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise OutputUnwritable(f"cannot write the artifact below {folder.parent}: {error.strerror or error}") from error
    try:
        new.chmod(0o755)
        (new / PREDICTOR).write_bytes(text)
        (new / HASH).write_text(f"{hashlib.sha256(text).hexdigest()}  {PREDICTOR}\n", encoding="ascii")
        (new / CARD).write_text(
            model_card(document.trained_at, document.workloads, document.failed, document.versions), encoding="utf-8"
        )
        (new / TABLE).write_text(forecast_csv(document.workloads), encoding="utf-8")
        if pickle_from is not None:
            if pickle_from.exists():
                shutil.copyfile(pickle_from, new / PICKLE)
        else:
            (new / PICKLE).write_bytes(pickle.dumps(dict(prophet_models or {}), protocol=4))
        swap_folders(new, folder)
    except OSError as error:
        raise OutputUnwritable(f"cannot write the artifact {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder


def write_atomic(path: Path, body: bytes) -> Path:
    """Writes a file as a whole: a reader sees the old one or the new one.

    Raises:
        OutputUnwritable: It cannot be written; what was there before stays.
    """
    try:
        with replacing(path) as partial:
            partial.write_bytes(body)
    except OSError as error:
        raise OutputUnwritable(
            f"cannot write {path}: {error.strerror or error}; free space or choose another folder"
        ) from error
    return path


def _point(link: Path, place: Path) -> None:
    target = os.path.relpath(place, link.parent)
    new = link.with_name(f".{link.name}-{os.getpid()}")
    try:
        new.unlink(missing_ok=True)
        new.symlink_to(target, target_is_directory=True)
        if link.is_dir() and not link.is_symlink():
            shutil.rmtree(link)
        new.replace(link)
    except OSError as error:
        raise OutputUnwritable(f"cannot promote the artifact to {link}: {error.strerror or error}") from error


def _prune(archive: Path, current: Path, keep: int) -> None:
    in_use = current.resolve()
    others = [place for place in sorted(archive.glob("*Z-*"), reverse=True) if place.resolve() != in_use]
    for place in others[max(0, keep - 1) :]:
        shutil.rmtree(place, ignore_errors=True)


def forecast_csv(workloads: Mapping[str, WorkloadForecast]) -> str:
    """The forecast table as CSV, one row a workload and bucket; demand in the workload's unit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["workload", "ts", "lower", "q50", "q90", "peak_q50", "peak_q90"])
    for name, entry in workloads.items():
        table = entry.table
        stamps = (f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in table.ts)
        columns = (stamps, table.lower, table.q50, table.q90, table.peak_q50, table.peak_q90)
        writer.writerows((name, *row) for row in zip(*columns, strict=True))
    return text.getvalue()
