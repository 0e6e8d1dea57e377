"""How does a snapshot pass from one process to another? As JSON, written and read without loss.

What a snapshot holds is said in `snapshot.py`; the facts bundle, which other programs read, is `bundle.py`.
"""

from pathlib import Path

import msgspec

from piqc_pipeline.atomic import replacing
from piqc_pipeline.errors import DumpUnreadable, OutputUnwritable
from piqc_pipeline.facts.snapshot import ClusterSnapshot

SCHEMA_VERSION = "piqc-snapshot.v1"


class _Envelope(msgspec.Struct, rename="camel"):
    schema_version: str
    snapshot: ClusterSnapshot


def snapshot_to_json(snapshot: ClusterSnapshot) -> bytes:
    """The snapshot as JSON; times are ISO 8601 in UTC."""
    return msgspec.json.encode(_Envelope(SCHEMA_VERSION, snapshot))


def snapshot_from_json(text: bytes) -> ClusterSnapshot:
    """The snapshot that `snapshot_to_json` wrote.

    Raises:
        DumpUnreadable: The text is something else, cut off, or of another schema version.
    """
    try:
        envelope = msgspec.json.decode(text, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DumpUnreadable(f"cannot read the snapshot: {error}; scan the cluster again") from error
    if envelope.schema_version != SCHEMA_VERSION:
        raise DumpUnreadable(
            f"cannot read the snapshot: its schema is {envelope.schema_version!r}, "
            f"this program reads {SCHEMA_VERSION!r}; scan the cluster again"
        )
    odd = next(
        (one.id for one in envelope.snapshot.workloads if len([*filter(None, one.id.rsplit("/", 3))]) != 4), None
    )
    if odd is not None:
        raise DumpUnreadable(
            f"cannot read the snapshot: {odd!r} is no id of a workload (cluster/namespace/Kind/name); "
            "scan the cluster again"
        )
    return envelope.snapshot


def write_snapshot(snapshot: ClusterSnapshot, path: Path) -> None:
    """Write the snapshot atomically; an older file stays whole until the new one is.

    Raises:
        OutputUnwritable: The folder is missing, read-only or full.
    """
    try:
        with replacing(path) as partial:
            partial.write_bytes(snapshot_to_json(snapshot))
    except OSError as error:
        raise OutputUnwritable(
            f"cannot write the snapshot to {path}: {error.strerror or error}; free space or choose another folder"
        ) from error


def read_snapshot(path: Path) -> ClusterSnapshot:
    """The snapshot in a file.

    Raises:
        DumpUnreadable: There is no such file, or it holds something else.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise DumpUnreadable(
            f"cannot read the snapshot {path}: {error.strerror or error}; scan the cluster first "
            "with `piqc scan --save`"
        ) from error
    return snapshot_from_json(text)
