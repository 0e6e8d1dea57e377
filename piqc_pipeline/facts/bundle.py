"""What is a facts bundle on the wire? `piqc-scan.v0.1`, typed and validated.

How facts are derived from a snapshot belongs to `build.py`. A fact that is unknown is not in the bundle; why it is not
stands in the object's `missing`, and a required one has a row in `factErrors` too.
"""

from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from piqc_pipeline.atomic import replacing
from piqc_pipeline.errors import DumpUnreadable, OutputUnwritable

SCHEMA_VERSION: Literal["piqc-scan.v0.1"] = "piqc-scan.v0.1"

FactValue = bool | int | float | str


class _Wire(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, frozen=True, allow_inf_nan=False
    )


class FactSource(_Wire):
    """Where a fact comes from: `type` (`k8s_api pod_exec metrics derived catalog config`), how, and from what."""

    type: str
    method: str
    ref: str | None = None


class Fact(_Wire):
    """One thing that is known, with where it is from and how sure it is."""

    value: FactValue
    source: FactSource
    data_confidence: Literal["high", "medium", "low"]
    observed_at: AwareDatetime
    units: str | None = None


class MissingFacts(_Wire):
    """Facts that are not known of an object, and why."""

    why: str
    keys: tuple[str, ...]


class FactObject(_Wire):
    """A workload, a node or a pending pod, and what is known of it."""

    workload_id: str
    kind: str
    name: str
    namespace: str | None = None
    images: tuple[str, ...] = ()
    facts: dict[str, Fact] = Field(default_factory=dict)
    missing: tuple[MissingFacts, ...] = ()
    pod_spec_snapshot: dict[str, object] | None = None


class FactError(_Wire):
    """A required fact that is missing, and why."""

    workload_id: str
    fact_key: str
    error: str


class FindingEntry(_Wire):
    """One finding, with its dollars; null where nobody can know them."""

    kind: str
    subject: str
    usd_per_day: float | None
    counted: bool
    accelerators: float | None
    confidence: Literal["high", "medium", "low"]
    text: str


class UnknownEntry(_Wire):
    """A figure nobody can state, and why."""

    what: str
    why: str
    read_failed: bool


class Tool(_Wire):
    """The program that wrote the bundle."""

    name: str
    version: str


class ClusterRef(_Wire):
    """The cluster that was scanned."""

    context: str | None
    name: str


class Scope(_Wire):
    """The namespaces asked for; None means all."""

    namespaces: tuple[str, ...] | None


class FactsBundle(_Wire):
    """Everything one scan knows, for other programs."""

    schema_version: Literal["piqc-scan.v0.1"] = SCHEMA_VERSION
    generated_at: AwareDatetime
    tool: Tool
    cluster: ClusterRef
    scope: Scope
    objects: tuple[FactObject, ...] = ()
    cluster_facts: dict[str, Fact] = Field(default_factory=dict)
    findings: tuple[FindingEntry, ...] = ()
    fact_errors: tuple[FactError, ...] = ()
    unknown: tuple[UnknownEntry, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The bundle as JSON, keys in camel case, ASCII only, so that no terminal interprets it."""
        return self.model_dump_json(by_alias=True, indent=2, ensure_ascii=True) + "\n"

    def object_of(self, workload_id: str) -> FactObject | None:
        """The object with this id."""
        return next((entry for entry in self.objects if entry.workload_id == workload_id), None)


def bundle_from_json(text: str | bytes) -> FactsBundle:
    """The bundle in a JSON text.

    Raises:
        DumpUnreadable: It is something else, cut off, or of another schema version.
    """
    try:
        return FactsBundle.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "document"
        raise DumpUnreadable(f"cannot read the facts bundle: {place}: {first['msg'].lower()}; scan again") from error


def write_bundle(bundle: FactsBundle, path: Path) -> None:
    """Write the bundle atomically; an older file stays whole until the new one is.

    Raises:
        OutputUnwritable: The folder is missing, read-only or full.
    """
    write_text(bundle.to_json(), path, "the facts bundle")


def write_text(text: str, path: Path, what: str) -> None:
    """Write a text file atomically.

    Raises:
        OutputUnwritable: The folder is read-only, no folder, or full.
    """
    try:
        with replacing(path) as partial:
            partial.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputUnwritable(
            f"cannot write {what} to {path}: {error.strerror or error}; free space or choose another folder"
        ) from error


def whole(value: float) -> float:
    """An integer where the figure is one and every reader of JSON can hold it (RFC 8259: up to 2^53)."""
    return int(value) if abs(value) < 2**53 and value == int(value) else value


def fact(
    value: FactValue,
    *,
    at: datetime,
    type: str,
    method: str,
    ref: str | None = None,
    confidence: Literal["high", "medium", "low"],
    units: str | None = None,
) -> Fact:
    """A fact in one call."""
    source = FactSource(type=type, method=method, ref=ref)
    return Fact(value=value, source=source, data_confidence=confidence, observed_at=at, units=units)
