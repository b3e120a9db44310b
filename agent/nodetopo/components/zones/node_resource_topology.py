"""The NodeResourceTopology object (topology.node.k8s.io/v1alpha2) as plain data, and whose it is.

Its schema is k8stopologyawareschedwg/noderesourcetopology-api v0.1.3, manifests/crd.yaml: lists of
zones and attributes that the API server replaces as a whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import pack, unpack_from
from types import MappingProxyType
from typing import Any

from nodetopo.components.zones.zones import Zone, zone_name
from nodetopo.formats.harmless import harmless
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.node import PodHolding

# XXH64, the 64-bit hash in the fingerprints of sets of pods; not for secrets.
#
# Written from its specification (xxHash, doc/xxhash_spec.md v0.2.0).

_MASK = (1 << 64) - 1


_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
"""The specification's five primes."""


_STRIPE = 32
"""Bytes that the four lanes take at once."""


def xxh64(data: bytes, seed: int = 0) -> int:
    """Return the hash of *data*, from 0 to 2⁶⁴ − 1."""
    end = len(data) - len(data) % _STRIPE
    value = seed + _P5
    if end:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        for offset in range(0, end, _STRIPE):
            words = unpack_from("<4Q", data, offset)
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
        value = sum(map(_rotated, lanes, (1, 7, 12, 18))) & _MASK
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * _P1 + _P4) & _MASK
    value = (value + len(data)) & _MASK

    # What is left after the last whole stripe: eight bytes at once, four, and one.
    while end + 8 <= len(data):
        (word,) = unpack_from("<Q", data, end)
        value = (_rotated(value ^ _round(0, word), 27) * _P1 + _P4) & _MASK
        end += 8
    if end + 4 <= len(data):
        (word,) = unpack_from("<I", data, end)
        value = (_rotated(value ^ (word * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        end += 4
    for byte in data[end:]:
        value = _rotated(value ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK

    # Avalanche.
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


# The fingerprint of a set of pods, by which a scheduler knows whether an object is up to date.
#
# It computes the fingerprint of the pods that it knows to run on the node; where that differs from
# the object's, it keeps its own, pessimistic accounts (kubernetes-sigs/scheduler-plugins v0.32.7,
# pkg/noderesourcetopology/cache/overreserve.go, Resync).

ATTRIBUTE = "nodeTopologyPodsFingerprint"


METHOD_ATTRIBUTE = "nodeTopologyPodsFingerprintMethod"


METHOD = "all"
"""Every active pod counts, also one without exclusive resources
(k8stopologyawareschedwg/podfingerprint, podfingerprint.go, MethodAll)."""


_VERSION = "pfp0v001"


def fingerprint(pods: Iterable[PodHolding]) -> str:
    """Return the fingerprint of *pods*, independent of their order: 24 characters.

    Only a pod's namespace and name count: the name is hashed with the hash of the namespace as its
    seed, and the numbers, ascending and little-endian, are hashed together
    (k8stopologyawareschedwg/podfingerprint, podfingerprint.go, version v001).
    """
    hashes = sorted(xxh64(pod.name.encode(), xxh64(pod.namespace.encode())) for pod in pods)
    return f"{_VERSION}{xxh64(pack(f'<{len(hashes)}Q', *hashes)):016x}"


# Attributes of a NodeResourceTopology: the whole node, besides its zones.

POLICY = "topologyManagerPolicy"


SCOPE = "topologyManagerScope"


MAX_NUMA_NODES = "topologyManagerMaxNUMANodes"
"""As kubernetes-sigs/scheduler-plugins v0.32.7 reads them (pkg/noderesourcetopology/nodeconfig/
topologymanager.go); KAI Scheduler v0.17.0 reads the first two (pkg/scheduler/api/node_info/
numa_topology.go). Values are the kubelet's own."""


CPU_MANAGER = "cpuManagerPolicy"


MEMORY_MANAGER = "memoryManagerPolicy"
"""Our attributes: they show whether the kubelet aligns CPUs and memory at all."""


PUBLISHER = "publisher"
"""Ours: the owner of the object, where the API server does not say."""


_OPTION = "max-allowable-numa-nodes"
"""Of the Topology Manager (kubernetes 1.36 pkg/kubelet/cm/topologymanager/policy_options.go)."""


MARK: Mapping[str, str] = MappingProxyType({PUBLISHER: "nodetopo"})


def attributes(kubelet: KubeletSettings | None, pods: Iterable[PodHolding]) -> Mapping[str, str]:
    """Return the attributes by name, in the written order.

    Unknown settings of *kubelet* are left out: schedulers then assume the policy ``none`` and
    filter nothing.
    """
    settings: Mapping[str, str | None] = {}
    if kubelet is not None:
        options = kubelet.topology_manager_options or {}
        settings = {
            POLICY: kubelet.topology_manager_policy,
            SCOPE: kubelet.topology_manager_scope,
            MAX_NUMA_NODES: options.get(_OPTION),
            CPU_MANAGER: kubelet.cpu_manager_policy,
            MEMORY_MANAGER: kubelet.memory_manager_policy,
        }
    return {
        **{name: harmless(value, _LONGEST) for name, value in settings.items() if value},
        ATTRIBUTE: fingerprint(pods),
        METHOD_ATTRIBUTE: METHOD,
        **MARK,
    }


_LONGEST = 256
"""Characters of an attribute's value; valid kubelet settings are shorter."""


API_VERSION = "topology.node.k8s.io/v1alpha2"


KIND = "NodeResourceTopology"


PLURAL = "noderesourcetopologies"


CONTENT = ("zones", "attributes", "topologyPolicies")
"""The fields that one producer fills, in addition to the metadata."""


ZONE_TYPE = "Node"
"""Of a NUMA node, the only kind that schedulers read (kubernetes-sigs/scheduler-plugins v0.32.7,
pkg/noderesourcetopology/pluginhelpers.go; KAI Scheduler v0.17.0, numa_topology.go)."""


def content(zones: Sequence[Zone], attributes: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the fields of the object that say something, in the order of *zones*.

    Quantities are text, as the API server would write them back.
    """
    return {
        "attributes": [{"name": name, "value": value} for name, value in attributes.items()],
        "zones": [
            {
                "name": zone_name(zone.id),
                "type": ZONE_TYPE,
                **(
                    {"costs": [{"name": zone_name(i), "value": c} for i, c in zone.costs.items()]}
                    if zone.costs
                    else {}
                ),
                "resources": [
                    {
                        "name": resource.name,
                        "capacity": str(resource.capacity),
                        "allocatable": str(resource.allocatable),
                        "available": str(resource.available),
                    }
                    for resource in zone.resources
                ],
            }
            for zone in zones
        ],
    }


def has_content(found: Mapping[str, Any]) -> bool:
    """Return whether the object *found* has content of any producer."""
    return any(found.get(field) for field in CONTENT)


def is_marked(found: Mapping[str, Any]) -> bool:
    """Return whether the attributes of the object *found* mark it as ours."""
    listed = found.get("attributes")
    values = {
        entry.get("name"): entry.get("value")
        for entry in (listed if isinstance(listed, list) else ())
        if isinstance(entry, Mapping)
    }
    return MARK.items() <= values.items()
