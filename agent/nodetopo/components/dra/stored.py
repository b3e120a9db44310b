"""The fields of a ResourceSlice that the API server keeps: it drops those of disabled features.

A server drops the fields of a feature gate that is off without an error (kubernetes
``pkg/registry/resource/resourceslice/strategy.go``, dropDisabledFields), and a newer one adds
unknown fields.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from nodetopo.model.dra import NUMA_NODE

Json: TypeAlias = Mapping[str, Any]

LISTS = "lists"
"""The feature of attributes with several values; the other features are named after their field."""

_SPEC = ("driver", "nodeName", "pool", "sharedCounters", "devices")
_DEVICE = ("name", "attributes", "capacity", "consumesCounters", "taints")


def features(spec: Json) -> frozenset[str]:
    """Return the droppable fields that *spec*, a slice's specification, has."""
    found = {"sharedCounters"} if spec.get("sharedCounters") else set()
    for device in spec.get("devices") or ():
        found.update(name for name in ("consumesCounters", "taints") if device.get(name))
        attributes = (device.get("attributes") or {}).values()
        if any(isinstance(values, list) for it in attributes for values in it.values()):
            found.add(LISTS)
    return frozenset(found)


def has_scalars(spec: Json) -> bool:
    """Return whether *spec*, a slice's specification, has single values instead of lists."""
    devices = spec.get("devices") or ()
    return any("int" in (it.get("attributes") or {}).get(NUMA_NODE, {}) for it in devices)


def known_fields(spec: Json) -> Json:
    """Return *spec* without the fields that our driver never writes."""
    found = {name: spec[name] for name in _SPEC if name in spec}
    if "devices" in found:
        found["devices"] = [
            {name: device[name] for name in _DEVICE if name in device}
            for device in found["devices"]
        ]
    return found
