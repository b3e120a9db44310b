"""Volcano's HyperNodes, or its configuration for making them from labels."""

from collections.abc import Mapping
from typing import Any

from nodetopo.errors import InputError
from nodetopo.tools.cluster.export.objects import Family, group_key
from nodetopo.tools.cluster.export.record import Exported, ExportOptions, hint
from nodetopo.tools.cluster.levels import HOSTNAME, Choice
from nodetopo.tools.cluster.places import inner, place_names, places

_MAX_TYPE = 20
"""Characters of a topology type's name; Volcano skips longer ones (v1.15.1
pkg/controllers/hypernode/discovery/label/label.go)."""

_MAX_NAME = 63
"""Characters of a HyperNode's name, so that it could also be a label's value."""

_DISCOVERY = "discovery"


def _build(choice: Choice, options: ExportOptions) -> Exported:
    usage = hint(f"in a Job: networkTopology: mode: hard, highestTierName: {group_key(choice)}")
    if options.form != _DISCOVERY:
        return Exported(objects=_hypernodes(choice, options), remarks=(usage,))
    if len(options.name) > _MAX_TYPE:
        cure = f"Volcano's discovery takes {_MAX_TYPE} characters"
        raise InputError(f"name too long: {options.name!r}", cure)
    lines = [
        "networkTopologyDiscovery:",
        "  - source: label",
        "    enabled: true",
        "    config:",
        "      networkTopologyTypes:",
        f'        "{options.name}":',  # in quotes, for YAML takes the name on for a truth value
        # The last entry is taken for the node itself and dropped.
        *(f"          - nodeLabel: {key}" for key in (*choice.broad, HOSTNAME)),
    ]
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "volcano-controller-configmap",
            "namespace": options.namespace or "volcano-system",
        },
        "data": {"volcano-controller.conf": "\n".join(lines) + "\n"},
    }
    replaces = hint("applying it replaces other discovery sources: merge it where there are some")
    return Exported(objects=(config_map,), remarks=(replaces, usage))


def _hypernodes(choice: Choice, options: ExportOptions) -> tuple[Mapping[str, Any], ...]:
    """Return a HyperNode for each place, the narrowest, tier 1, first.

    Those of tier 1 select their nodes by label, so they follow nodes that come and go; the ones
    above name their members, as Volcano demands.
    """
    known = places(choice.nodes, choice.broad)
    names, inside = place_names(known, options.name, _MAX_NAME), inner(known)
    objects = []
    for place in sorted(known, key=lambda place: -len(place.path)):
        members: list[Mapping[str, Any]] = [
            {"type": "HyperNode", "selector": {"exactMatch": {"name": names[child.path]}}}
            for child in inside.get(place.path, ())
        ]
        if len(place.path) == len(choice.broad):
            labels = dict(zip(choice.broad, place.path, strict=True))
            members.append({"type": "Node", "selector": {"labelMatch": {"matchLabels": labels}}})
        objects.append(
            {
                "apiVersion": "topology.volcano.sh/v1alpha1",
                "kind": "HyperNode",
                "metadata": {"name": names[place.path]},
                "spec": {
                    "tier": len(choice.broad) - len(place.path) + 1,
                    "tierName": place.key,
                    "members": members,
                },
            }
        )
    return tuple(objects)


VOLCANO = Family(
    name="volcano",
    build=_build,
    merges=lambda options: options.form == _DISCOVERY,
)
