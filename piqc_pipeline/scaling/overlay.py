"""Which manifests follow from the plans of a cluster, and how do they reach the disk whole or not at all?

What stands in them belongs to `keda.py` and `adapter.py`.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from piqc_pipeline.atomic import swap_folders
from piqc_pipeline.errors import ManifestInvalid, OutputUnwritable, ScalingError
from piqc_pipeline.scaling.adapter import literal, recording_rules, render_hpa
from piqc_pipeline.scaling.keda import object_name, scaled_object, trigger_authentication
from piqc_pipeline.scaling.limits_file import FILE as LIMITS_FILE
from piqc_pipeline.scaling.limits_file import limits_text
from piqc_pipeline.scaling.options import CronFloor, ManifestOptions
from piqc_pipeline.scaling.plan import ReplicaPlan
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline.scaling.yaml_text import MARKER, document

LIMITS_CONFIG_MAP = "capacity-predictor-limits"
_OURS = (MARKER.encode(), b'{\n  "schemaVersion": "piqc-')
"""How our files begin: YAML with its mark, JSON with its schema."""


def render(
    plans: Sequence[ReplicaPlan],
    policy: ScalingPolicy,
    options: ManifestOptions | None = None,
    cron: Mapping[str, CronFloor] | None = None,
) -> dict[str, str]:
    """A kustomize overlay for these plans: relative path to text, byte-stable for the same input.

    Args:
        plans: One a workload, in any order.
        policy: Behavior, fallback and mode.
        options: Addresses, secrets and versions.
        cron: Optional model-free floor by workload id.

    Returns:
        `kustomization.yaml` with everything KEDA needs and the predictor's limits; `hpa/` holds the same plan for the
        Prometheus adapter, which is not part of the overlay (a workload has one controller).

    Raises:
        ManifestInvalid: Two plans are for one workload.
    """
    options = options or ManifestOptions()
    ordered = sorted(plans, key=lambda plan: plan.workload)
    names = _names(ordered)
    refused = {plan.workload: why for plan in ordered if (why := refusal(plan, names[plan.workload]))}
    written = [plan for plan in ordered if plan.workload not in refused]
    files: dict[str, str] = {}
    for plan in written:
        name = names[plan.workload]
        body, header, comments = scaled_object(plan, policy, options, name, (cron or {}).get(plan.workload))
        files[f"{plan.limits.namespace}/{name}.scaledobject.yaml"] = document(body, header, comments)
    if options.token_secret:
        for namespace in sorted({plan.limits.namespace for plan in written if plan.accepted}):
            files[f"{namespace}/predictor.triggerauthentication.yaml"] = trigger_authentication(namespace, options)
    if options.recording_rules and written:
        files["recording-rules.yaml"] = recording_rules(written, options)
    resources = sorted(files)
    files["kustomization.yaml"] = _kustomization(resources, refused, plans, options)
    files[LIMITS_FILE] = limits_text(written)
    files |= render_hpa(written, policy, options, names)
    if options.literal:
        files |= {f"literal/{path}": text for path, text in literal(written, policy, options, names).items()}
    return files


def refusal(plan: ReplicaPlan, name: str) -> str | None:
    """Why no manifest is written for a plan, or None: KEDA's webhook rejects a second controller of a workload."""
    controller = plan.limits.controller
    if controller is None:
        return None
    if controller.kind == "ScaledObject" and controller.name == name:
        return None
    if controller.kind == "HorizontalPodAutoscaler" and controller.name in (f"keda-hpa-{name}", name):
        return None
    return (
        f"{plan.workload} is scaled by {controller.kind} {controller.namespace}/{controller.name} already; two "
        "controllers of one workload are rejected: remove that one first"
    )


def _names(plans: Sequence[ReplicaPlan]) -> dict[str, str]:
    """Object name by workload id; two kinds of one name in a namespace get the kind added."""
    taken: dict[tuple[str, str], str] = {}
    names: dict[str, str] = {}
    for plan in plans:
        if plan.workload in names:
            raise ManifestInvalid(f"two plans are for {plan.workload}; plan each workload once")
        limits = plan.limits
        name = object_name(limits.name)
        if (limits.namespace, name) in taken:
            name = object_name(f"{limits.name}-{limits.kind.lower()}")
        taken[(limits.namespace, name)] = plan.workload
        names[plan.workload] = name
    return names


def _kustomization(
    resources: Sequence[str], refused: Mapping[str, str], plans: Sequence[ReplicaPlan], options: ManifestOptions
) -> str:
    header = [
        "Look at it: kubectl kustomize . and kubectl diff -k . ; piqc diff does the same without write access.",
        "Apply it yourself: kubectl apply -k . Nothing of piqc applies anything.",
    ]
    header += [f"Left out: {why}" for _, why in sorted(refused.items())]
    reactive = sorted(plan.workload for plan in plans if not plan.accepted and plan.workload not in refused)
    header += [f"Stays reactive: {workload}" for workload in reactive]
    body = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(resources),
        # The predictor reads it: what it asks for never leaves the limits of the ScaledObjects beside it.
        "configMapGenerator": [
            {
                "name": LIMITS_CONFIG_MAP,
                "namespace": options.predictor_namespace,
                "files": [LIMITS_FILE],
                "options": {"disableNameSuffixHash": True},
            }
        ],
    }
    return document(body, header)


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
