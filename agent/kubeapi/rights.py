"""What an account of Kubernetes may do: the question to the API server, and its answer."""

from collections.abc import Mapping
from typing import Any

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
"""Where an account asks about itself; all accounts may (ClusterRole ``system:basic-user``)."""

ASKED = ("get nodes/proxy", "create nodes/proxy", "get nodes/configz", "get nodes/metrics")
"""What an audit wants to know: the first two let an account run commands in any pod of a node
(https://kubernetes.io/docs/concepts/security/rbac-good-practices/#access-to-proxy-subresource-of-nodes),
the others are all that reading the kubelet's settings and counts takes."""


def review(right: str) -> Mapping[str, Any]:
    """Return the question whether our account has *right*, ``verb resource[/subresource]``."""
    verb, _, resource = right.partition(" ")
    name, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "resource": name, "subresource": subresource}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


def is_allowed(answer: Mapping[str, Any]) -> bool:
    """Return what the API server says to a question; one without a verdict is a no."""
    status = answer.get("status")
    return isinstance(status, Mapping) and status.get("allowed") is True
