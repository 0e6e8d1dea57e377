"""What does the cluster hold under these names? Whole objects, read one by one for a comparison.

Only reads: a missing object is a result, a refused read is one too.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from piqc_pipeline.cluster.kubernetes import ApiServer, ReadFailed, connect
from piqc_pipeline.cluster.options import ScanOptions

PLURALS = {
    "ConfigMap": "configmaps",
    "ScaledObject": "scaledobjects",
    "TriggerAuthentication": "triggerauthentications",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "PrometheusRule": "prometheusrules",
}


@dataclass(frozen=True)
class ObjectName:
    """Names one object.

    Attributes:
        api_version: For instance `keda.sh/v1alpha1`.
        kind: A key of `PLURALS`.
        namespace: Its namespace.
        name: Its name.
    """

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """`namespace/Kind/name`."""
        return f"{self.namespace}/{self.kind}/{self.name}"


@dataclass(frozen=True)
class LiveObject:
    """What was read: the object, or None where there is none, or why it could not be read."""

    name: ObjectName
    body: dict[str, Any] | None
    unread: str | None = None


def read_objects(options: ScanOptions, names: Iterable[ObjectName]) -> list[LiveObject]:
    """Reads each object of the cluster that the options name.

    Raises:
        ClusterUnreachable: Nobody answers.
        CredentialsRefused: The API server answered 401.
        NotConfigured: No cluster was named.
    """
    server = connect(options)
    return [read_object(server, name) for name in names]


def read_object(server: ApiServer, name: ObjectName) -> LiveObject:
    """Reads one object."""
    prefix = f"/apis/{name.api_version}" if "/" in name.api_version else f"/api/{name.api_version}"
    path = f"{prefix}/namespaces/{quote(name.namespace, safe='')}/{PLURALS[name.kind]}/{quote(name.name, safe='')}"
    try:
        body = json.loads(server.read(path))
    except ReadFailed as error:
        return LiveObject(name, None) if error.status == 404 else LiveObject(name, None, str(error))
    except ValueError:
        return LiveObject(name, None, "the API server answered something that is no JSON")
    if not isinstance(body, dict):
        return LiveObject(name, None, "the API server answered something that is no object")
    return LiveObject(name, body)
