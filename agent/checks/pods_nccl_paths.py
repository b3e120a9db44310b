"""NCCL variables that keep a pod from the fast paths of the node it is on.

What a value does is taken from NVIDIA/nccl v2.30.7-1: ``src/graph/paths.cc`` (``ncclGetLevel``),
``src/transport/net_ib`` and ``docs/userguide/source/env.rst``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agent.checks.inputs import Inputs, because
from agent.checks.nvlink_inputs import knows_links
from agent.checks.pods_adapters import adapters
from agent.checks.pods_environment import missing_environment
from agent.checks.pods_parts import is_rdma, others, whole_gpus, with_gpus
from agent.checks.pods_spread import has_nvlink, is_spread, spans_nodes
from agent.checks.qos_pods import container_name
from agent.checks.rule import Finding
from agent.model.pod import Container, Pod
from agent.model.snapshot import Snapshot

LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
"""Path types, as NCCL spells them, nearest first; a digit stands for one too."""

NEVER = ("LOC", "0")
"""Levels that no path between two devices has."""

UNREACHABLE = ("docker", "virbr")
"""How interfaces begin that lead nowhere but to the own node, beside ``lo`` itself."""

PEERMEM = "nvidia_peermem"
"""The module that lets HCAs reach GPU memory where dma-buf is not used."""

LONGEST = 4096
"""Characters of a value that are looked at."""

SHOWN = 60
"""Characters of a value that a finding repeats."""

_Answers = Iterator[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Place:
    """A container with GPUs, where it is."""

    snapshot: Snapshot
    pod: Pod
    container: Container

    def value(self, name: str) -> str:
        found = (self.container.environment or {}).get(name)
        return "" if found is None else found[:LONGEST].strip()

    def is_on(self, name: str) -> bool:
        return self.value(name) in ("1", "0x1", "01")

    @property
    def has_peers(self) -> bool:
        return whole_gpus(self.container) > 1

    @property
    def has_rdma(self) -> bool:
        """Whether it asks for HCAs that NCCL itself speaks to; EFA needs a plugin of its own."""
        names = others(self.container)
        return any(is_rdma(name) and "efa" not in name for name in names)


def findings(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Return what each variable of a container with GPUs does against this node."""
    return tuple(
        Finding(subject=container_name(pod, container), observed=observed, expected=expected)
        for pod, container in with_gpus(snapshot)
        for look in _LOOKS
        for observed, expected in look(_Place(snapshot, pod, container))
    )


def _nvlink(place: _Place) -> _Answers:
    if not place.has_peers or not has_nvlink(place.snapshot):
        return
    if place.is_on("NCCL_P2P_DISABLE"):
        yield "NCCL_P2P_DISABLE=1 keeps NCCL from NVLink", "unset"
    if (level := place.value("NCCL_P2P_LEVEL")) in NEVER:
        yield f"NCCL_P2P_LEVEL={level} keeps NCCL from NVLink", "unset"


def _levels(place: _Place) -> _Answers:
    for name in ("NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"):
        value = place.value(name)
        if value and value not in LEVELS and not value[0].isdecimal():
            yield f"{name}={value[:SHOWN]}, which NCCL ignores", f"one of {', '.join(LEVELS)}"


def _shared_memory(place: _Place) -> _Answers:
    is_alone = knows_links(place.snapshot) and not has_nvlink(place.snapshot)
    if place.has_peers and is_alone and place.is_on("NCCL_SHM_DISABLE"):
        yield (
            "NCCL_SHM_DISABLE=1 leaves GPUs without a direct path only the network",
            "unset",
        )


def _network(place: _Place) -> _Answers:
    network = place.value("NCCL_NET").casefold()
    if not place.has_rdma or place.value("NCCL_NET_PLUGIN"):
        return
    if network == "socket":
        yield "NCCL_NET=Socket beside RDMA devices", "unset, or IB"
    elif not network and place.is_on("NCCL_IB_DISABLE"):
        yield "NCCL_IB_DISABLE=1 beside RDMA devices", "unset"


def _gpudirect(place: _Place) -> _Answers:
    if not place.has_rdma:
        return
    if (level := place.value("NCCL_NET_GDR_LEVEL")) in NEVER:
        yield f"NCCL_NET_GDR_LEVEL={level} turns GPUDirect RDMA off", "unset"
    modules = _modules(place.snapshot)
    if place.value("NCCL_DMABUF_ENABLE") == "0" and modules is not None and PEERMEM not in modules:
        yield f"NCCL_DMABUF_ENABLE=0, and the module {PEERMEM} is not loaded", "unset"


def _adapters(place: _Place) -> _Answers:
    if place.has_rdma or place.pod.uses_host_network:
        yield from adapters(place.snapshot, place.value("NCCL_IB_HCA"))


def _interfaces(place: _Place) -> _Answers:
    value = place.value("NCCL_SOCKET_IFNAME")
    names = [name for name in value.removeprefix("=").split(",") if name]
    if names and is_spread(place.pod) and all(map(_leads_nowhere, names)):
        yield f"NCCL_SOCKET_IFNAME={value[:SHOWN]} in a job of several pods", "unset, or eth0"


def _leads_nowhere(name: str) -> bool:
    return name == "lo" or name.startswith(UNREACHABLE)


def _fabric(place: _Place) -> _Answers:
    if not is_spread(place.pod) or not spans_nodes(place.snapshot):
        return
    for name in ("NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE"):
        if place.value(name) == "0":
            yield f"{name}=0 keeps NCCL from NVLink between nodes", "unset"


def _modules(snapshot: Snapshot) -> tuple[str, ...] | None:
    return None if snapshot.kernel is None else snapshot.kernel.modules


_LOOKS: tuple[Callable[[_Place], _Answers], ...] = (
    _nvlink,
    _levels,
    _shared_memory,
    _network,
    _gpudirect,
    _adapters,
    _interfaces,
    _fabric,
)

_WATCHED = (
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_SHM_DISABLE",
    "NCCL_NET",
    "NCCL_IB_DISABLE",
    "NCCL_DMABUF_ENABLE",
    "NCCL_IB_HCA",
    "NCCL_SOCKET_IFNAME",
    "NCCL_MNNVL_ENABLE",
    "NCCL_CUMEM_ENABLE",
)


def missing(snapshot: Snapshot) -> Inputs:
    """Need the variables, their values, and of the node what they are about."""
    return (*missing_environment(snapshot), *_hidden(snapshot), *_unread(snapshot))


def _hidden(snapshot: Snapshot) -> Iterator[str]:
    for pod, container in with_gpus(snapshot):
        for name, value in (container.environment or {}).items():
            if value is None and name in _WATCHED:
                yield f"value of {name} in {container_name(pod, container)}"


def _unread(snapshot: Snapshot) -> Iterator[str]:
    names = {name for _, container in with_gpus(snapshot) for name in container.environment or ()}
    if not knows_links(snapshot) and names & {
        "NCCL_P2P_DISABLE",
        "NCCL_P2P_LEVEL",
        "NCCL_SHM_DISABLE",
    }:
        yield f"NVLinks{because(snapshot, 'nvml')}"
    if snapshot.hcas is None and "NCCL_IB_HCA" in names:
        yield f"HCAs{because(snapshot, 'rdma')}"
    if _modules(snapshot) is None and "NCCL_DMABUF_ENABLE" in names:
        yield "kernel modules"
