"""Rights, which the API server honours a moment after they were applied."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

from tests.lab.api import Api, Object
from tests.lab.waiting import wait_for

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def wait_granted(api: Api, documents: Sequence[Object]) -> None:
    """Wait until all that the bindings in *documents* grant by roles in there is granted."""
    for binding in documents:
        if binding["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            where = binding["metadata"].get("namespace")
            for user, attributes in product(_accounts(binding), _granted(binding, documents)):
                asked = {"user": user, **_within(where, attributes)}
                wait_for(f"{user} may {attributes}", partial(_is_allowed, api, asked))


def _accounts(binding: Object) -> Iterator[str]:
    for one in binding["subjects"]:
        if one["kind"] == "ServiceAccount":
            yield f"system:serviceaccount:{one['namespace']}:{one['name']}"


def _granted(binding: Object, documents: Sequence[Object]) -> Iterator[dict[str, Any]]:
    """Yield what the role of *binding* allows, if it is there, as a review asks for it."""
    role, where = binding["roleRef"], binding["metadata"].get("namespace")
    for one in documents:
        is_near = role["kind"] == "ClusterRole" or one["metadata"].get("namespace") == where
        if (one["kind"], one["metadata"]["name"]) == (role["kind"], role["name"]) and is_near:
            for rule in one["rules"]:
                yield from _asked(rule)


def _asked(rule: Object) -> Iterator[dict[str, Any]]:
    for path, verb in product(rule.get("nonResourceURLs", ()), rule["verbs"]):
        yield {"nonResourceAttributes": {"path": path, "verb": verb}}
    for group, kind, verb, name in product(
        rule.get("apiGroups", ()),
        rule.get("resources", ()),
        rule["verbs"],
        rule.get("resourceNames", ("",)),
    ):
        resource, _, part = kind.partition("/")
        what = {"group": group, "resource": resource, "subresource": part, "name": name}
        yield {"resourceAttributes": {**what, "verb": verb}}


def _within(namespace: str | None, attributes: dict[str, Any]) -> dict[str, Any]:
    found = attributes.get("resourceAttributes")
    if found is None or namespace is None:
        return attributes
    return {"resourceAttributes": {**found, "namespace": namespace}}


def _is_allowed(api: Api, asked: dict[str, Any]) -> bool:
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    allowed: bool = api.create(_REVIEWS, {**kind, "spec": asked})["status"]["allowed"]
    return allowed
