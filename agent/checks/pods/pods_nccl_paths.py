"""NCCL variables that keep a pod from the fast paths of the node it is on.

What a value does is taken from NVIDIA/nccl v2.30.7-1: ``src/graph/paths.cc``,
``src/transport/nvls.cc`` and ``docs/userguide/source/env.rst``.
"""

from collections.abc import Callable, Iterator

from agent.checks.gpu_pods import container_name
from agent.checks.inputs import Inputs, because, unknown_of
from agent.checks.nvlink_inputs import knows_links, switched
from agent.checks.peer_access import confidential
from agent.checks.pods import nccl_network as network
from agent.checks.pods import pods_nccl_levels as levels
from agent.checks.pods.inputs import whole_gpus, with_gpus
from agent.checks.pods.pods_environment import missing_environment
from agent.checks.pods.pods_nccl_place import Place
from agent.checks.pods.pods_spread import has_nvlink, is_spread, spans_nodes
from agent.checks.rule import Finding
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot
from agent.nccl.paths import NcclPath

FIRST_WITH_MULTICAST = (9, 0)
"""Compute capability of Hopper, the first whose NVSwitches reduce."""

FIRST_CUDA = (12, 1)
"""CUDA release since which the driver lets programs use that."""

LEAST_GPUS = 3
"""GPUs from which every NCCL of today reduces in the switches."""

_NVLS = "NCCL_NVLS_ENABLE"
_Answers = Iterator[tuple[str, str]]


def findings(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Return what each variable of a container with GPUs does against this node."""
    return tuple(
        Finding(subject=container_name(place.pod, place.container), observed=seen, expected=right)
        for place in _places(snapshot)
        for look in _LOOKS
        for seen, right in look(place)
    )


def _places(snapshot: Snapshot) -> Iterator[Place]:
    return (Place(snapshot, pod, container) for pod, container in with_gpus(snapshot))


def _nvlink(place: Place) -> _Answers:
    if not place.has_peers or not has_nvlink(place.snapshot):
        return
    if place.number("NCCL_P2P_DISABLE") == 1:
        yield f"{place.shown('NCCL_P2P_DISABLE')} keeps NCCL from NVLink", "unset"
    if levels.level(place, levels.P2P) is NcclPath.LOC:
        yield f"{place.shown(levels.P2P)} keeps NCCL from NVLink", "unset"


def _shared_memory(place: Place) -> _Answers:
    is_alone = knows_links(place.snapshot) and not has_nvlink(place.snapshot)
    if place.has_peers and is_alone and place.number("NCCL_SHM_DISABLE") == 1:
        yield (
            f"{place.shown('NCCL_SHM_DISABLE')} leaves GPUs without a direct path only the network",
            "unset",
        )


def _switches(place: Place) -> _Answers:
    if _turns_switches_off(place) and all(map(_has_multicast, switched(place.snapshot))):
        yield f"{place.shown(_NVLS)} keeps NCCL from reducing in the NVSwitches", "unset"


def _turns_switches_off(place: Place) -> bool:
    """Return whether *place* forgoes NVSwitches that reduce, if its GPUs can."""
    snapshot = place.snapshot
    is_old = snapshot.cuda_version is not None and snapshot.cuda_version < FIRST_CUDA
    is_meant = place.is_off(_NVLS) and whole_gpus(place.container) >= LEAST_GPUS
    return is_meant and not is_old and not confidential(snapshot) and bool(switched(snapshot))


def _fabric(place: Place) -> _Answers:
    if not is_spread(place.pod) or not spans_nodes(place.snapshot):
        return
    for name in ("NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE"):
        if place.is_off(name):
            yield f"{place.shown(name)} keeps NCCL from NVLink between nodes", "unset"


_LOOKS: tuple[Callable[[Place], _Answers], ...] = (
    _nvlink,
    levels.ignored,
    _shared_memory,
    _switches,
    network.transport,
    network.gpudirect,
    network.hcas,
    network.gids,
    network.interfaces,
    _fabric,
)

_WATCHED = (
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_NET_GDR_C2C",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_SHM_DISABLE",
    "NCCL_NET",
    "NCCL_NVLS_ENABLE",
    "NCCL_IB_DISABLE",
    "NCCL_DMABUF_ENABLE",
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_HCA",
    "NCCL_SOCKET_IFNAME",
    "NCCL_MNNVL_ENABLE",
    "NCCL_CUMEM_ENABLE",
)


def missing(snapshot: Snapshot) -> Inputs:
    """Need the variables, their values, and of the node what they are about."""
    hidden = (name for place in _places(snapshot) for name in _hidden(place))
    unread = (name for place in _places(snapshot) for name in _unread(place))
    return (*missing_environment(snapshot), *hidden, *dict.fromkeys(unread))


def _hidden(place: Place) -> Iterator[str]:
    for name, value in (place.container.environment or {}).items():
        if value is None and name in _WATCHED:
            yield f"value of {name} in {container_name(place.pod, place.container)}"


def _unread(place: Place) -> Iterator[str]:
    snapshot = place.snapshot
    names = (place.container.environment or {}).keys()
    if not knows_links(snapshot) and names & {
        "NCCL_P2P_DISABLE",
        "NCCL_P2P_LEVEL",
        "NCCL_SHM_DISABLE",
        _NVLS,
    }:
        yield f"NVLinks{because(snapshot, 'nvml')}"
    if _turns_switches_off(place):
        silent = (gpu.name for gpu in switched(snapshot) if gpu.compute_capability is None)
        yield from unknown_of("compute capability", silent)
    yield from network.missing(place)


def _has_multicast(gpu: Gpu) -> bool:
    return gpu.compute_capability is not None and gpu.compute_capability >= FIRST_WITH_MULTICAST
