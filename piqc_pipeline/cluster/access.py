"""Which permissions does a scan need, and which of them are granted? One SelfSubjectAccessReview each."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from piqc_pipeline.cluster.options import ScanOptions

if TYPE_CHECKING:
    from piqc_pipeline.cluster.kubernetes import ApiServer

INSTEAD_OF_PODS_PROXY = "services/proxy"


@dataclass(frozen=True)
class PermissionCheck:
    """One permission, whether it is granted, and what is missing without it.

    Attributes:
        verb: `list`, `get` or `create`.
        resource: `pods`, `pods/exec`, `deployments.apps`, as RBAC names it.
        namespace: None for the whole cluster.
        need: `required`: no useful report without it; `optional`: some figures stay unknown.
        allowed: None when the API server could not tell.
        purpose: What the permission is for, in one clause.
        reason: The API server's words, where it gave some.
    """

    verb: str
    resource: str
    namespace: str | None
    need: Literal["required", "optional"]
    allowed: bool | None
    purpose: str
    reason: str | None = None


def needed(options: ScanOptions) -> tuple[PermissionCheck, ...]:
    """Every permission that a scan with these options uses; nothing is asked."""
    from piqc_pipeline.cluster.listings import ALL_LISTINGS, NODES, PODS, USAGE

    rows = [
        _row("list", listing.resource, "required" if listing in (NODES, PODS) else "optional", listing.effect)
        for listing in ALL_LISTINGS
        if listing is not USAGE or options.collect_runtime
    ]
    rows.append(
        _row("list", "namespaces", "optional", "reading pods namespace by namespace where that is all that is granted")
    )
    if options.collect_runtime:
        rows.append(_row("get", "pods/proxy", "optional", "metrics of engines and exporters"))
        rows.append(_row("get", INSTEAD_OF_PODS_PROXY, "optional", "metrics of exporters, where pods/proxy is missing"))
    if options.allow_exec:
        rows.append(_row("create", "pods/exec", "optional", "nvidia-smi where no exporter tells the utilization"))
    namespaces = options.namespaces
    if namespaces:
        spread = [row for row in rows if row.resource.startswith("pods/")]
        rows = [row for row in rows if row not in spread]
        rows += [replace(row, namespace=name) for row in spread for name in namespaces]
    return tuple(rows)


def _row(verb: str, resource: str, need: Literal["required", "optional"], purpose: str) -> PermissionCheck:
    return PermissionCheck(verb, resource, None, need, None, purpose)


def check(options: ScanOptions) -> tuple[PermissionCheck, ...]:
    """Ask the API server about each; see `piqc_pipeline.cluster.check_access`."""
    from piqc_pipeline.cluster import namespaces
    from piqc_pipeline.cluster.kubernetes import connect, server_version
    from piqc_pipeline.cluster.reader import served_groups

    server = connect(options)
    server_version(server)
    names = namespaces.read_names(server) if options.namespaces else namespaces.Names(None)
    for name in options.namespaces if names.known else ():
        namespaces.check([name], names, frozenset(), f"the cluster {server.cluster_name} has")
    served = served_groups(server)
    rows = [_review(server, row) for row in needed(options) if _is_served(row, served)]
    pods_answer = all(row.allowed for row in rows if row.resource == "pods/proxy")
    return tuple(row for row in rows if row.resource != INSTEAD_OF_PODS_PROXY or row.allowed or not pods_answer)


def _is_served(row: PermissionCheck, served: frozenset[str] | None) -> bool:
    """Whether the cluster has the kind at all; nobody needs a permission for one that it has not."""
    group = row.resource.partition(".")[2]
    return not group or served is None or group in served


def _review(server: "ApiServer", row: PermissionCheck) -> PermissionCheck:
    """One review; where the server has no such interface, the read itself is tried."""
    import msgspec

    from piqc_pipeline.cluster.kubernetes import ReadFailed
    from piqc_pipeline.cluster.redact import printable

    name, _, group = row.resource.partition(".")
    plural, _, sub = name.partition("/")
    attributes: dict[str, Any] = {"verb": row.verb, "group": group, "resource": plural, "subresource": sub}
    if row.namespace:
        attributes["namespace"] = row.namespace
    body = msgspec.json.encode(
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
    )
    try:
        answer = server.ask("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", method="POST", body=body)
        status = msgspec.json.decode(answer.body, type=dict[str, Any]).get("status")
    except (ReadFailed, msgspec.DecodeError) as failure:
        return replace(row, reason=printable(str(failure), 120))
    if answer.status == 401:
        from piqc_pipeline.errors import CredentialsRefused

        raise CredentialsRefused(
            f"the API server at {server.host} refused the credentials (401): log in again, "
            "or choose another context with --context"
        )
    if answer.status >= 300 or not isinstance(status, dict):
        return _try(server, row, plural, group, sub)
    reason = status.get("reason")
    return replace(row, allowed=bool(status.get("allowed")), reason=printable(str(reason), 120) if reason else None)


def _try(server: "ApiServer", row: PermissionCheck, plural: str, group: str, sub: str) -> PermissionCheck:
    from piqc_pipeline.cluster.kubernetes import ReadFailed
    from piqc_pipeline.cluster.listings import ALL_LISTINGS

    listing = next((item for item in ALL_LISTINGS if (item.plural, item.group) == (plural, group)), None)
    if sub or (listing is None and plural != "namespaces"):
        return replace(row, reason="the server has no access reviews, and it cannot be tried without asking a pod")
    path = listing.path(listing.versions[0]) if listing else "/api/v1/namespaces"
    try:
        server.read(path, {"limit": "1"})
    except ReadFailed as failure:
        if failure.status == 404:
            return replace(row, allowed=True, reason="the cluster has no such kind")
        return replace(row, allowed=False if failure.status == 403 else None, reason=failure.why)
    return replace(row, allowed=True)
