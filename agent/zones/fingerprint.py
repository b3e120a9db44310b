"""The name of a set of pods, by which a scheduler tells whether an object is as new as its news.

The scheduler computes it from the pods that it knows to run on the node; where that differs from
what the object says, it goes on with its own, careful books (kubernetes-sigs/scheduler-plugins
v0.32.7, pkg/noderesourcetopology/cache/overreserve.go, Resync).
"""

from collections.abc import Iterable
from struct import pack

from agent.model.pod_resources import PodHolding
from agent.zones.xxh64 import xxh64

ATTRIBUTE = "nodeTopologyPodsFingerprint"
METHOD_ATTRIBUTE = "nodeTopologyPodsFingerprintMethod"
METHOD = "all"
"""That every active pod counts, also one with nothing of its own
(k8stopologyawareschedwg/podfingerprint, podfingerprint.go, MethodAll)."""

_VERSION = "pfp0v001"


def fingerprint(pods: Iterable[PodHolding]) -> str:
    """Return the fingerprint of *pods*, whatever their order: 24 characters.

    A pod is its namespace and name, nothing else: the name is hashed with the hash of the
    namespace as its seed, and the numbers, ascending and little-endian, are hashed together
    (k8stopologyawareschedwg/podfingerprint, podfingerprint.go, version v001).
    """
    hashes = sorted(xxh64(pod.name.encode(), xxh64(pod.namespace.encode())) for pod in pods)
    return f"{_VERSION}{xxh64(pack(f'<{len(hashes)}Q', *hashes)):016x}"
