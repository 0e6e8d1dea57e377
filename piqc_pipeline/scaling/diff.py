"""What would `kubectl apply -k` change? Written manifests beside the live objects, field by field.

Only fields that we write are compared: what the server adds (defaults, status, managed fields) is no difference. How
objects are read belongs to `cluster.live_objects`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from piqc_pipeline.errors import ManifestInvalid, one_line

State = Literal["same", "changed", "missing", "unread"]
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True)
class Change:
    """One field that differs.

    Attributes:
        path: For instance `spec.maxReplicaCount`.
        live: What the server holds; None where it holds nothing.
        written: What the manifest says.
    """

    path: str
    live: Any
    written: Any


@dataclass(frozen=True)
class ObjectDiff:
    """One object of the overlay.

    Attributes:
        name: `namespace/Kind/name`.
        state: `same`, `changed`, `missing` (not in the cluster) or `unread`.
        changes: Fields that differ.
        why: Why it is unread.
    """

    name: str
    state: State
    changes: tuple[Change, ...] = ()
    why: str = ""


def written_documents(folder: Path) -> list[dict[str, Any]]:
    """The objects that the overlay's `kustomization.yaml` lists, in its order, and the ConfigMaps that it generates.

    Raises:
        ManifestInvalid: There is no overlay, or a file of it cannot be read.
    """
    top = folder / "kustomization.yaml"
    if not top.is_file():
        raise ManifestInvalid(f"there are no manifests in {folder}: `piqc plan --write {folder}` writes them")
    found, overlay = [], _load(top)
    for name in overlay.get("resources") or []:
        body = _load(folder / str(name))
        if not isinstance(body.get("metadata"), dict) or not body.get("kind"):
            raise ManifestInvalid(f"{folder / str(name)} is no Kubernetes object; write the manifests again")
        found.append(body)
    return [*found, *(_config_map(folder, entry) for entry in overlay.get("configMapGenerator") or [])]


def _config_map(folder: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What kustomize makes of a generator's entry whose name gets no hash."""
    try:
        files = {str(name): (folder / str(name)).read_text(encoding="utf-8") for name in entry["files"]}
        metadata = {"name": entry["name"], "namespace": entry["namespace"]}
    except (KeyError, OSError, UnicodeDecodeError) as error:
        raise ManifestInvalid(f"cannot read a ConfigMap of {folder}: {error}; write the manifests again") from error
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files}


def _load(path: Path) -> dict[str, Any]:
    try:
        body = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ManifestInvalid(f"cannot read {path}: {one_line(error)}") from error
    if not isinstance(body, dict):
        raise ManifestInvalid(f"{path} is no YAML map; write the manifests again")
    return body


def compare(
    name: str, written: Mapping[str, Any], live: Mapping[str, Any] | None, unread: str | None = None
) -> ObjectDiff:
    """One written object beside the live one."""
    if unread is not None:
        return ObjectDiff(name, "unread", why=unread)
    if live is None:
        return ObjectDiff(name, "missing")
    changes = tuple(_changes(written, live, ""))
    return ObjectDiff(name, "changed" if changes else "same", changes)


def _changes(written: Any, live: Any, path: str) -> Iterator[Change]:
    if isinstance(written, dict) and isinstance(live, dict):
        for key, value in written.items():
            yield from _changes(value, live.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(written, list) and isinstance(live, list) and len(written) == len(live):
        for index, (one, other) in enumerate(zip(written, live, strict=True)):
            yield from _changes(one, other, f"{path}[{index}]")
    elif not _equal(written, live):
        yield Change(path, live, written)


def _equal(written: Any, live: Any) -> bool:
    """Quantities come back in the server's form: "0" as 0, and the other way around."""
    if isinstance(written, bool) or isinstance(live, bool):
        return written is live
    if isinstance(written, str | int | float) and isinstance(live, str | int | float):
        return str(written) == str(live)
    return bool(written == live)


def as_text(differences: Sequence[ObjectDiff]) -> str:
    """Lines in the manner of a diff: `-` what the server holds, `+` what the manifest says."""
    lines = []
    for entry in differences:
        words = {
            "same": "as written",
            "missing": "not in the cluster: would be created",
            "unread": f"not read: {entry.why}",
            "changed": f"{len(entry.changes)} fields differ",
        }[entry.state]
        lines.append(f"{entry.name}: {words}")
        for change in entry.changes:
            lines.append(f"  {change.path}")
            lines.append(f"  - {_shown(change.live)}")
            lines.append(f"  + {_shown(change.written)}")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    text = "(nothing)" if value is None else value if isinstance(value, str) else repr(value)
    return "".join(char if char.isprintable() else "?" for char in text)[:300]
