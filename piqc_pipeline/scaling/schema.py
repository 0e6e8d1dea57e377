"""Would the API server take this object as it is written? Closed-world schemas of the kinds that scale workloads.

A misspelt field is found, which the API server would prune without a word. A valid schema does not mean a working
trigger; that is `lint.py`.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import jsonschema

SCHEMA_FILES = {
    ("keda.sh/v1alpha1", "ScaledObject"): "scaledobject.json",
    ("keda.sh/v1alpha1", "TriggerAuthentication"): "triggerauthentication.json",
    ("keda.sh/v1alpha1", "ClusterTriggerAuthentication"): "clustertriggerauthentication.json",
    ("autoscaling/v2", "HorizontalPodAutoscaler"): "horizontalpodautoscaler-v2.json",
    ("autoscaling/v1", "HorizontalPodAutoscaler"): "horizontalpodautoscaler-v1.json",
    ("monitoring.coreos.com/v1", "PrometheusRule"): "prometheusrule.json",
}
"""File by `(apiVersion, kind)`; sources and licenses in `schemas/NOTICE`."""

MOST_PROBLEMS = 20
"""More problems of one object are not worth reading."""


def has_schema(api_version: str, kind: str) -> bool:
    """Whether objects of this kind can be checked."""
    return (api_version, kind) in SCHEMA_FILES


def problems(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the API server would refuse or prune, as `(path, sentence)`, in the document's order.

    Args:
        document: An object with `apiVersion` and `kind` that `has_schema` knows.
    """
    validator = _validator(SCHEMA_FILES[(document["apiVersion"], document["kind"])])
    found = []
    for error in validator.iter_errors(document):
        found.append((_path(error), _sentence(error)))
        if len(found) >= MOST_PROBLEMS:
            break
    return sorted(found)


@cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    text = resources.files("piqc_pipeline.scaling").joinpath("schemas", name).read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))


def _path(error: jsonschema.ValidationError) -> str:
    path = ""
    for part in error.absolute_path:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path or "(document)"


def _sentence(error: jsonschema.ValidationError) -> str:
    """The validator's message in a user's words, bounded in length."""
    instance: Any = error.instance
    value = _short(instance)
    wanted: Any = error.validator_value
    match error.validator:
        case "additionalProperties":
            schema: Any = error.schema
            known = set(schema.get("properties", {}))
            unknown = ", ".join(sorted(_short(key) for key in instance if key not in known)[:5])
            return f"unknown field {unknown}: the API server drops it or refuses the object"
        case "required":
            missing = [name for name in wanted if name not in instance]
            return f"missing field {', '.join(missing)}"
        case "type":
            kinds = " or ".join(wanted if isinstance(wanted, list) else [wanted])
            return f"must be {kinds}, not {_kind(instance)} {value}{_quote_hint(error)}"
        case "enum" | "const":
            choices = wanted if isinstance(wanted, list) else [wanted]
            return f"must be one of {', '.join(str(choice) for choice in choices)}, not {value}"
        case "minimum" | "maximum":
            limit = "least" if error.validator == "minimum" else "most"
            return f"must be at {limit} {wanted}, not {value}"
        case _:
            return _short(error.message, 160)


def _quote_hint(error: jsonschema.ValidationError) -> str:
    """Numbers and booleans in a map of strings: the commonest fault of trigger metadata."""
    if error.validator_value == "string" and isinstance(error.instance, bool | int | float):
        quoted = json.dumps(error.instance)
        return f'; quote it: "{quoted}"'
    return ""


def _kind(value: object) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "list", dict: "map"}
    return names.get(type(value), "null" if value is None else "value")


def _short(value: object, length: int = 60) -> str:
    text = value if isinstance(value, str) else repr(value)[: length * 4]
    text = "".join(char if char.isprintable() else "?" for char in text[: length * 4])
    return text if len(text) <= length else text[: length - 3] + "..."
