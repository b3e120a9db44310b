"""The nodes that reach the devices of a ResourceSlice without a node name.

A slice, or with ``perDeviceNodeSelection`` each of its devices, has one of ``nodeName``,
``nodeSelector`` and ``allNodes`` (k8s.io/api v0.36 ``resource/v1`` types.go). Selectors follow node
affinity (k8s.io/component-helpers v0.36 ``scheduling/corev1/nodeaffinity``): terms are
alternatives, the requirements of a term hold together, and a term without requirements selects
nothing.
"""

from collections.abc import Mapping
from typing import Any

from nodetopo.formats.fields import Object, dig, mappings, text
from nodetopo.model.digits import is_digits
from nodetopo.tools.cluster.node import ClusterNode


def reaches(node: ClusterNode, part: Object) -> bool:
    """Return whether *node* reaches the devices of *part*: the spec of a slice, or a device."""
    named = text(part, "nodeName")
    if named is not None:
        return named == node.name
    if dig(part, "allNodes") is True:
        return True
    return any(_holds(node, term) for term in mappings(part, "nodeSelector", "nodeSelectorTerms"))


def seen_from(node: ClusterNode, each: Object) -> Object | None:
    """Return the slice *each* with the devices that *node* reaches; ``None`` if it reaches none."""
    spec = dig(each, "spec")
    if not isinstance(spec, Mapping):
        return None
    if dig(spec, "perDeviceNodeSelection") is not True:
        return each if reaches(node, spec) else None
    devices = [device for device in mappings(spec, "devices") if reaches(node, device)]
    return {**each, "spec": {**spec, "devices": devices}} if devices else None


def _holds(node: ClusterNode, term: Object) -> bool:
    requirements = [
        (node.labels.get(str(requirement.get("key"))), requirement)
        for requirement in mappings(term, "matchExpressions")
    ]
    requirements += [
        (node.name if requirement.get("key") == "metadata.name" else None, requirement)
        for requirement in mappings(term, "matchFields")
    ]
    return bool(requirements) and all(_meets(value, it) for value, it in requirements)


def _meets(value: str | None, requirement: Object) -> bool:
    """Return whether a label with *value*, ``None`` if missing, meets *requirement*."""
    listed: Any = dig(requirement, "values")
    values = [str(item) for item in listed] if isinstance(listed, list) else []
    match text(requirement, "operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            if value is None or not is_digits(value) or not values or not is_digits(values[0]):
                return False
            return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
    return False
