"""Rules on the NCCL variables of pods: whether NCCL reads them, and their effect on this node.

Effects of values follow NVIDIA/nccl v2.30.7-1: ``src/graph/paths.cc``, ``src/transport/nvls.cc``
and ``docs/userguide/source/env.rst``.
"""

from collections.abc import Callable, Iterator

from nodetopo.checks.inputs import because, confidential, unknown_of
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, rule
from nodetopo.components.audit.rules.gpu_pods import container_name, live
from nodetopo.components.audit.rules.nvlink_inputs import knows_links, switched
from nodetopo.components.audit.rules.pods import nccl_network as network
from nodetopo.components.audit.rules.pods.inputs import (
    has_nvlink,
    is_spread,
    listed,
    missing_environment,
    spans_nodes,
    whole_gpus,
    with_gpus,
)
from nodetopo.components.audit.rules.pods.nccl_network import PlacedContainer, Remarks
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.paths import NcclPath
from nodetopo.nccl.variables import KNOWN, LONGEST, NEWEST, Standing, instead_of, is_foreign

FIRST_WITH_MULTICAST = (9, 0)
"""Compute capability of Hopper, the first whose NVSwitches reduce."""

FIRST_CUDA = (12, 1)
"""CUDA release since which the driver lets programs use that."""

LEAST_GPUS = 3
"""GPUs from which every NCCL of today reduces in the switches."""

IN_USE = (2, 18)
"""The oldest NCCL that a variable must be for: PyTorch 2.1, of 2023, came with it."""

MOST = 20
"""Variables of one container named in findings; a pod can set thousands."""


@rule("POD-001", Severity.WARNING)
def unread_variables(snapshot: Snapshot) -> Judgement:
    """Look for variables that no NCCL in use reads."""
    yield from missing_environment(snapshot)
    for pod in live(snapshot):
        for container in pod.containers:
            unread = [name for name in container.environment or () if not _is_read(name)]
            for name in unread[:MOST]:
                shown = name if len(name) <= LONGEST else f"{name[:LONGEST]}…"
                known = KNOWN.get(name)
                ended = (
                    f"which no NCCL up to {NEWEST} reads"
                    if known is None
                    else f"which NCCL {known.until} was the last to read"
                )
                yield Finding(
                    subject=container_name(pod, container),
                    observed=f"{shown}, {ended}",
                    expected=instead_of(name) or "no such variable",
                )


def _is_read(name: str) -> bool:
    if is_foreign(name):
        return True
    known = KNOWN.get(name)
    if known is None or known.until is None:
        return known is not None
    return tuple(map(int, known.until.split("."))) >= IN_USE


@rule("POD-003", Severity.INFO)
def debugging_variables(snapshot: Snapshot) -> Judgement:
    """Look for variables that NCCL's guide lists for debugging."""
    yield from missing_environment(snapshot)
    for pod in live(snapshot):
        for container in pod.containers:
            names = [
                name
                for name in container.environment or ()
                if name in KNOWN and KNOWN[name].standing is Standing.DEBUGGING and _is_read(name)
            ]
            if names:
                yield Finding(
                    subject=container_name(pod, container),
                    observed=listed(names),
                    expected="unset, once what they work around is mended",
                )


_NVLS = "NCCL_NVLS_ENABLE"
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
"""Variables whose values the rule below has to know."""


@rule("POD-002", Severity.WARNING)
def harmful_variables(snapshot: Snapshot) -> Judgement:
    """Compare the NCCL variables of containers with GPUs with the node's hardware."""
    places = [PlacedContainer(snapshot, pod, container) for pod, container in with_gpus(snapshot)]
    yield from missing_environment(snapshot)
    for place in places:
        for name, value in (place.container.environment or {}).items():
            if value is None and name in _WATCHED:
                yield Missing(f"value of {name} in {container_name(place.pod, place.container)}")
    for place in places:
        names = (place.container.environment or {}).keys()
        about_links = {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", _NVLS}
        if names & about_links and not knows_links(snapshot):
            yield Missing("NVLinks", because(snapshot, "nvml"))
        if _turns_switches_off(place):
            silent = (gpu.name for gpu in switched(snapshot) if gpu.compute_capability is None)
            yield from unknown_of("compute capability", silent)
        yield from network.missing(place)
    for place in places:
        for look in _LOOKS:
            for observed, expected in look(place):
                subject = container_name(place.pod, place.container)
                yield Finding(subject=subject, observed=observed, expected=expected)


def _nvlink(place: PlacedContainer) -> Remarks:
    if not place.has_peers or not has_nvlink(place.snapshot):
        return
    if place.number("NCCL_P2P_DISABLE") == 1:
        yield f"{place.shown('NCCL_P2P_DISABLE')} keeps NCCL from NVLink", "unset"
    if network.level(place, network.P2P) is NcclPath.LOC:
        yield f"{place.shown(network.P2P)} keeps NCCL from NVLink", "unset"


def _shared_memory(place: PlacedContainer) -> Remarks:
    is_alone = knows_links(place.snapshot) and not has_nvlink(place.snapshot)
    if place.has_peers and is_alone and place.number("NCCL_SHM_DISABLE") == 1:
        yield (
            f"{place.shown('NCCL_SHM_DISABLE')} leaves GPUs without a direct path only the network",
            "unset",
        )


def _switches(place: PlacedContainer) -> Remarks:
    if _turns_switches_off(place) and all(
        gpu.compute_capability is not None and gpu.compute_capability >= FIRST_WITH_MULTICAST
        for gpu in switched(place.snapshot)
    ):
        yield f"{place.shown(_NVLS)} keeps NCCL from reducing in the NVSwitches", "unset"


def _turns_switches_off(place: PlacedContainer) -> bool:
    """Return whether *place* forgoes NVSwitches that reduce, if its GPUs can."""
    snapshot = place.snapshot
    is_old = snapshot.cuda_version is not None and snapshot.cuda_version < FIRST_CUDA
    is_meant = place.is_off(_NVLS) and whole_gpus(place.container) >= LEAST_GPUS
    return is_meant and not is_old and not confidential(snapshot) and bool(switched(snapshot))


def _fabric(place: PlacedContainer) -> Remarks:
    if not is_spread(place.pod) or not spans_nodes(place.snapshot):
        return
    for name in ("NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE"):
        if place.is_off(name):
            yield f"{place.shown(name)} keeps NCCL from NVLink between nodes", "unset"


_LOOKS: tuple[Callable[[PlacedContainer], Iterator[tuple[str, str]]], ...] = (
    _nvlink,
    network.ignored,
    _shared_memory,
    _switches,
    network.transport,
    network.gpudirect,
    network.hcas,
    network.gids,
    network.interfaces,
    _fabric,
)
