"""ResourceClaims of a pod and of its containers as the API server checks them.

Facts from Kubernetes 1.36: ``validatePodResourceClaim`` and ``validateResourceClaimNames`` in
pkg/apis/core/validation/validation.go.
"""

from collections.abc import Collection

from nodetopo.formats.fields import Object, items, object_at, path_of, text_at
from nodetopo.probes.pods.names import check_label, check_subdomain, refused, required

_OF_A_CLAIM = ("resourceClaimName", "resourceClaimTemplateName")
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")


def check_claims(spec: Object, at: str, *, is_whole: bool = True) -> None:
    """Raise for claims of a pod's *spec* at the path *at* that the API server refuses.

    Args:
        is_whole: whether no operator completes the spec, e.g. with claims.
    """
    names = _pod_claims(spec, at)
    for field in _CONTAINERS:
        for path, item in items(spec, field, at):
            resources = object_at(item, "resources", path)
            _check_used(resources, f"{path}.resources", names if is_whole else None)


def _pod_claims(spec: Object, at: str) -> set[str]:
    """Return the names of the claims of a pod after checking them."""
    names: set[str] = set()
    for path, claim in items(spec, "resourceClaims", at):
        name = text_at(claim, "name", path) or ""
        if not name:
            raise required(f"{path}.name", "name the claim")
        if name in names:
            raise refused(f"{path}.name", name, "Duplicate value", "name each claim once")
        check_label(name, f"{path}.name")
        names.add(name)
        stated = [field for field in _OF_A_CLAIM if claim.get(field) is not None]
        if len(stated) != 1:
            message = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            if stated:
                message = f"at most one of `{'` or `'.join(_OF_A_CLAIM)}` may be specified"
            raise refused(path, name, message, f"write {' or '.join(_OF_A_CLAIM)}")
        check_subdomain(text_at(claim, stated[0], path) or "", path_of(path, stated[0]))
    return names


def _check_used(resources: Object, at: str, known: Collection[str] | None) -> None:
    """Raise for a claim that a container uses twice, or that is none of *known*, if given."""
    whole: set[str] = set()
    parts: set[tuple[str, str]] = set()
    for path, claim in items(resources, "claims", at):
        name, request = text_at(claim, "name", path) or "", text_at(claim, "request", path) or ""
        if not name:
            raise required(path, "name one of spec.resourceClaims")
        if request:
            check_label(request, f"{path}.request")
        is_twice = (name, request) in parts if request else any(name == it for it, _ in parts)
        if name in whole or is_twice:
            shown = f"{name}/{request}" if request else name
            raise refused(path, shown, "Duplicate value", "name each request of a claim once")
        if request:
            parts.add((name, request))
        else:
            whole.add(name)
        if known is not None and name not in known:
            listed = f": {', '.join(sorted(known))}" if known else " which is empty"
            message = f"Not found: must be one of the names in pod.spec.resourceClaims{listed}"
            raise refused(path, name, message, "add the claim to spec.resourceClaims of the pod")
