"""Rules on the NCCL variables that pods set: whether NCCL reads them, and what for."""

from collections.abc import Callable, Iterator

from agent.checks.gpu_pods import container_name, live
from agent.checks.inputs import Inputs, because, confidential, unknown_of
from agent.checks.nvlink_inputs import knows_links, switched
from agent.checks.pods import nccl_network as levels
from agent.checks.pods import nccl_network as network
from agent.checks.pods.inputs import (
    has_nvlink,
    is_spread,
    listed,
    missing_environment,
    spans_nodes,
    whole_gpus,
    with_gpus,
)
from agent.checks.pods.nccl_network import Place
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.pod import Container
from agent.model.snapshot import Snapshot
from agent.nccl.paths import NcclPath
from agent.nccl.variables import KNOWN, LONGEST, NEWEST, PREFIX, Standing, instead_of, is_foreign

# NCCL variables that keep a pod from the fast paths of the node it is on.
#
# What a value does is taken from NVIDIA/nccl v2.30.7-1: ``src/graph/paths.cc``,
# ``src/transport/nvls.cc`` and ``docs/userguide/source/env.rst``.

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
    unread = (name for place in _places(snapshot) for name in _paths_unread(place))
    return (*missing_environment(snapshot), *hidden, *dict.fromkeys(unread))


def _hidden(place: Place) -> Iterator[str]:
    for name, value in (place.container.environment or {}).items():
        if value is None and name in _WATCHED:
            yield f"value of {name} in {container_name(place.pod, place.container)}"


def _paths_unread(place: Place) -> Iterator[str]:
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


IN_USE = (2, 18)
"""The oldest NCCL that a variable must be for: PyTorch 2.1, of 2023, came with it."""


MOST = 20
"""Variables of one container that findings speak of; a pod may set thousands."""


_GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


def _unread(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(subject=container_name(pod, container), observed=observed, expected=expected)
        for pod in live(snapshot)
        for container in pod.containers
        for observed, expected in _slips(container)
    )


def _slips(container: Container) -> Iterator[tuple[str, str]]:
    unread = [name for name in container.environment or () if not _is_read(name)]
    for name in unread[:MOST]:
        shown = name if len(name) <= LONGEST else f"{name[:LONGEST]}…"
        yield f"{shown}, {_ended(name)}", instead_of(name) or "no such variable"


def _is_read(name: str) -> bool:
    if is_foreign(name):
        return True
    known = KNOWN.get(name)
    return known is not None and (known.until is None or _release(known.until) >= IN_USE)


def _ended(name: str) -> str:
    known = KNOWN.get(name)
    if known is None:
        return f"which no NCCL up to {NEWEST} reads"
    return f"which NCCL {known.until} was the last to read"


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _for_debugging(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=container_name(pod, container),
            observed=listed(names),
            expected="unset, once what they work around is mended",
        )
        for pod in live(snapshot)
        for container in pod.containers
        if (names := tuple(_debugging(container)))
    )


def _debugging(container: Container) -> Iterator[str]:
    for name in container.environment or ():
        known = KNOWN.get(name)
        if known is not None and known.standing is Standing.DEBUGGING and _is_read(name):
            yield name


RULES: tuple[Rule, ...] = (
    Rule(
        code="POD-001",
        claim="NCCL reads every NCCL variable that pods set",
        why="NCCL says nothing of a variable that it does not know: a misspelt one, or one that "
        "never was, such as NCCL_PORT_RANGE, changes nothing.",
        area=Area.PODS,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=missing_environment,
        check=_unread,
        remedy=f"remove the variable, or spell it as NCCL does; `{PREFIX}DEBUG=INFO` with "
        f"`{PREFIX}DEBUG_SUBSYS=ENV` makes NCCL name those it reads",
        reference=_GUIDE,
    ),
    Rule(
        code="POD-002",
        claim="no NCCL variable of a pod works against this node",
        why="Recipes travel from machine to machine: one that turns off NVLink or RDMA, or names "
        "the wrong adapters, costs most of the bandwidth that the node has.",
        area=Area.PODS,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=missing,
        check=findings,
        remedy=f"remove the variable or give it the value that this node needs; `{PREFIX}"
        "DEBUG=INFO` shows the paths that NCCL then takes",
        reference=_GUIDE,
    ),
    Rule(
        code="POD-003",
        claim="pods leave NCCL's debugging variables unset",
        why="They keep NCCL from tuning itself to the node; its guide wants them out of "
        "production and out of scripts, except as workarounds.",
        area=Area.PODS,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=missing_environment,
        check=_for_debugging,
        remedy="try the job without them, and keep only what measurably helps",
        reference=f"{_GUIDE}#debugging",
    ),
)
