"""What does a closed loop need on a cluster besides what is shipped? Plain objects; nothing is applied from here."""

from typing import Any

RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "fsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def prometheus(namespace: str, image: str, interval: str) -> list[dict[str, Any]]:
    """A Prometheus that takes the rules and monitors of its own namespace, with what it needs to find pods."""
    group, role = "rbac.authorization.k8s.io", f"{namespace}-prometheus"
    rules = [
        {"apiGroups": [""], "resources": ["services", "endpoints", "pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
    ]
    spec = {
        "image": image,
        "replicas": 1,
        "serviceAccountName": "prometheus",
        "scrapeInterval": interval,
        "evaluationInterval": interval,
        "serviceMonitorSelector": {},
        "podMonitorSelector": {},
        "ruleSelector": {},
        "securityContext": RESTRICTED,
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus"}},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": namespace}],
        },
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "Prometheus",
            "metadata": {"name": "k8s"},
            "spec": spec,
        },
    ]


def container(image: str, command: list[str], **more: Any) -> dict[str, Any]:
    """A container under the restricted level."""
    return {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        **more,
    }


def deployment(name: str, replicas: int, main: dict[str, Any], port: int, **pod: Any) -> list[dict[str, Any]]:
    """A Deployment that is ready when its health check is, and its Service on the same port."""
    check = {"httpGet": {"path": main.pop("health"), "port": port}, "periodSeconds": 1, "failureThreshold": 1}
    main |= {"readinessProbe": check, "lifecycle": {"preStop": {"sleep": {"seconds": 3}}}}
    main["ports"] = [{"name": "http", "containerPort": port}]
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"securityContext": RESTRICTED, "containers": [main], **pod},
    }
    selector = {"matchLabels": {"app": name}}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [{"port": port, "targetPort": port}]},
        },
    ]
