"""Volcano's HyperNodes, or the configuration by which it makes them from labels itself."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.cluster.export.objects import Family, group_key
from agent.cluster.export.record import Exported, ExportOptions, Remark, hint
from agent.cluster.levels import HOSTNAME, Choice
from agent.cluster.places import Place, inner, place_names, places
from agent.errors import InputError

_MAX_TYPE = 20
"""Characters of a topology type's name; Volcano skips longer ones (v1.15.1
pkg/controllers/hypernode/discovery/label/label.go)."""

_MAX_NAME = 63
"""Characters of a HyperNode's name, so that it could also be a label's value."""

_DISCOVERY = "discovery"


def _exported(choice: Choice, options: ExportOptions) -> Exported:
    usage = hint(f"in a Job: networkTopology: mode: hard, highestTierName: {group_key(choice)}")
    if options.form == _DISCOVERY:
        return Exported(objects=(_config_map(choice, options),), remarks=(_replaces(), usage))
    return Exported(objects=_hypernodes(choice, options), remarks=(usage,))


def _hypernodes(choice: Choice, options: ExportOptions) -> tuple[Mapping[str, Any], ...]:
    """Return a HyperNode for each place, the narrowest, tier 1, first.

    Those of tier 1 find their nodes by label, so they follow nodes that come and go; the ones
    above name their members, as Volcano demands.
    """
    found = places(choice.nodes, choice.broad)
    names, inside = place_names(found, options.name, _MAX_NAME), inner(found)
    narrow_first = sorted(found, key=lambda place: -len(place.path))
    return tuple(
        {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": names[place.path]},
            "spec": {
                "tier": len(choice.broad) - len(place.path) + 1,
                "tierName": place.key,
                "members": [
                    *(_hypernode(names[one.path]) for one in inside.get(place.path, ())),
                    *(_nodes(place, choice.broad)),
                ],
            },
        }
        for place in narrow_first
    )


def _hypernode(name: str) -> Mapping[str, Any]:
    return {"type": "HyperNode", "selector": {"exactMatch": {"name": name}}}


def _nodes(place: Place, keys: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Yield what selects the nodes of *place*, if it is one of the narrowest."""
    if len(place.path) == len(keys):
        labels = dict(zip(keys, place.path, strict=True))
        yield {"type": "Node", "selector": {"labelMatch": {"matchLabels": labels}}}


def _config_map(choice: Choice, options: ExportOptions) -> Mapping[str, Any]:
    if len(options.name) > _MAX_TYPE:
        cure = f"Volcano's discovery takes {_MAX_TYPE} characters"
        raise InputError(f"name too long: {options.name!r}", cure)
    # The last entry is taken for the node itself and dropped.
    levels = [{"nodeLabel": key} for key in (*choice.broad, HOSTNAME)]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "volcano-controller-configmap",
            "namespace": options.namespace or "volcano-system",
        },
        "data": {"volcano-controller.conf": _configuration(options.name, levels)},
    }


def _configuration(name: str, levels: Sequence[Mapping[str, str]]) -> str:
    lines = [
        "networkTopologyDiscovery:",
        "  - source: label",
        "    enabled: true",
        "    config:",
        "      networkTopologyTypes:",
        f'        "{name}":',  # in quotes, for YAML takes the name on for a truth value
        *(f"          - nodeLabel: {level['nodeLabel']}" for level in levels),
    ]
    return "\n".join(lines) + "\n"


def _replaces() -> Remark:
    return hint("applying it replaces other discovery sources: merge it where there are some")


VOLCANO = Family(
    name="volcano",
    build=_exported,
    merges=lambda options: options.form == _DISCOVERY,
)
