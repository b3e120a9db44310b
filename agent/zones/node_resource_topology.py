"""The NodeResourceTopology object (topology.node.k8s.io/v1alpha2) as plain data, and whose it is.

Its schema is k8stopologyawareschedwg/noderesourcetopology-api v0.1.3, manifests/crd.yaml: lists of
zones and attributes that the API server keeps whole, whatever part of them a writer meant.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent.zones.attributes import MARK
from agent.zones.zones import Zone, ZoneResource, zone_name

API_VERSION = "topology.node.k8s.io/v1alpha2"
KIND = "NodeResourceTopology"
PLURAL = "noderesourcetopologies"

CONTENT = ("zones", "attributes", "topologyPolicies")
"""The fields that one producer fills, beside the metadata."""

ZONE_TYPE = "Node"
"""Of a NUMA node, the only kind that schedulers read (kubernetes-sigs/scheduler-plugins v0.32.7,
pkg/noderesourcetopology/pluginhelpers.go; KAI Scheduler v0.17.0, numa_topology.go)."""


def content(zones: Sequence[Zone], attributes: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the fields of the object that say something, in the order of *zones*.

    Quantities are text, as the API server would write them back.
    """
    return {
        "attributes": [{"name": name, "value": value} for name, value in attributes.items()],
        "zones": [_zone(zone) for zone in zones],
    }


def has_content(found: Mapping[str, Any]) -> bool:
    """Tell whether somebody has filled the object *found*."""
    return any(found.get(field) for field in CONTENT)


def is_marked(found: Mapping[str, Any]) -> bool:
    """Tell whether the attributes of the object *found* say that it is ours."""
    listed = found.get("attributes")
    told = {one.get("name"): one.get("value") for one in _items(listed) if isinstance(one, Mapping)}
    return MARK.items() <= told.items()


def _items(listed: Any) -> Iterable[Any]:
    return listed if isinstance(listed, list) else ()


def _zone(zone: Zone) -> Mapping[str, Any]:
    costs = [{"name": zone_name(other), "value": cost} for other, cost in zone.costs.items()]
    return {
        "name": zone_name(zone.id),
        "type": ZONE_TYPE,
        **({"costs": costs} if costs else {}),
        "resources": [_resource(one) for one in zone.resources],
    }


def _resource(amounts: ZoneResource) -> Mapping[str, str]:
    return {
        "name": amounts.name,
        "capacity": str(amounts.capacity),
        "allocatable": str(amounts.allocatable),
        "available": str(amounts.available),
    }
