"""NCCL variables that keep a pod from the adapters and interfaces of the node it is on.

What a value does is taken from NVIDIA/nccl v2.30.7-1: ``src/transport/net_ib``, ``src/os/linux.cc``
and ``docs/userguide/source/env.rst``.
"""

from collections.abc import Iterator

from agent.checks.gpu_pods import container_name
from agent.checks.inputs import because
from agent.checks.pods import pods_nccl_levels as levels
from agent.checks.pods.inputs import listed
from agent.checks.pods.pods_adapters import adapters, choice, missing_states
from agent.checks.pods.pods_nccl_place import Place
from agent.checks.pods.pods_spread import is_spread, network_hcas
from agent.checks.rdma_ports import roce_ports
from agent.model.snapshot import Snapshot

UNREACHABLE = ("docker", "virbr")
"""How interfaces begin that lead nowhere but to the own node, beside ``lo`` itself."""

PEERMEM = "nvidia_peermem"
"""The module that lets HCAs reach GPU memory where dma-buf is not used."""

SHARED = "shared"
"""The mode in which every network namespace sees all HCAs (``agent.model.snapshot.Kernel``)."""

_HCA = "NCCL_IB_HCA"
_GID = "NCCL_IB_GID_INDEX"
_INTERFACES = "NCCL_SOCKET_IFNAME"

_Answers = Iterator[tuple[str, str]]


def _has_hcas(place: Place) -> bool:
    """Return whether NCCL in *place* surely reaches HCAs.

    It asks for them, or is a privileged part of a job in the host's network, where it has all.
    """
    if place.asks_for_rdma:
        return True
    is_open = place.is_of_the_host and bool(place.container.is_privileged)
    return is_open and bool(network_hcas(place.snapshot))


def transport(place: Place) -> _Answers:
    """Find NCCL turned away from the HCAs that the pod has."""
    network = place.value("NCCL_NET").casefold()
    if not _has_hcas(place) or place.value("NCCL_NET_PLUGIN"):
        return
    if network == "socket":
        yield "NCCL_NET=Socket beside RDMA devices", "unset, or IB"
    elif not network and place.is_on("NCCL_IB_DISABLE"):
        yield f"{place.shown('NCCL_IB_DISABLE')} beside RDMA devices", "unset"


def gpudirect(place: Place) -> _Answers:
    """Find HCAs kept from GPU memory."""
    if not _has_hcas(place):
        return
    yield from levels.without_gpudirect(place)
    modules = _modules(place.snapshot)
    if place.is_off("NCCL_DMABUF_ENABLE") and modules is not None and PEERMEM not in modules:
        shown = place.shown("NCCL_DMABUF_ENABLE")
        yield f"{shown}, and the module {PEERMEM} is not loaded", "unset"


def hcas(place: Place) -> _Answers:
    """Find a list of HCAs that leaves others than it should."""
    if _sees_hcas(place):
        yield from adapters(place.snapshot, _list(place))


def _list(place: Place) -> str:
    """Return the list of HCAs if NCCL goes by it, and something depends on it."""
    value = place.value(_HCA)
    is_used = place.asks_for_rdma or bool(place.pod.uses_host_network)
    if not is_used or place.has_plugin or _is_turned_away(place):
        return ""
    is_alone = not place.asks_for_rdma and not is_spread(place.pod)
    # By excluding all a job of one pod says that it needs no RDMA.
    return "" if is_alone and choice(value).excludes else value


def _is_turned_away(place: Place) -> bool:
    return place.is_on("NCCL_IB_DISABLE") or place.value("NCCL_NET").casefold() == "socket"


def _sees_hcas(place: Place) -> bool | None:
    """Return whether the pod sees the HCAs of the node, and no others; ``None``: not known."""
    kernel = place.snapshot.kernel
    if place.pod.uses_host_network:
        return True
    return None if kernel is None or kernel.rdma_netns is None else kernel.rdma_netns == SHARED


def gids(place: Place) -> _Answers:
    """Find an index at which RoCE ports of the host have no address.

    In a network of its own a pod may have addresses that were not there when the ports were read.
    """
    index = place.number(_GID)
    is_read = _has_hcas(place) and not place.has_plugin and bool(place.pod.uses_host_network)
    if index is None or index < 0 or not is_read:
        return
    chosen = choice(place.value(_HCA))
    without = [
        name
        for name, hca, port in roce_ports(place.snapshot)
        if chosen.takes(hca, port) and port.gids and all(gid.index != index for gid in port.gids)
    ]
    if without:
        yield (
            f"{place.shown(_GID)}, at which {listed(without)} has no address",
            "unset: NCCL finds the index itself since 2.21",
        )


def interfaces(place: Place) -> _Answers:
    """Find a job of several pods on interfaces that lead to no other node, or are not there."""
    names = _interface_names(place)
    if not names or not is_spread(place.pod):
        return
    if all(map(_leads_nowhere, names)):
        yield f"{place.shown(_INTERFACES)} in a job of several pods", "unset, or eth0"
    elif place.is_of_the_host and _is_there(place) is False:
        here = [name for name in _interfaces(place.snapshot) or () if not _leads_nowhere(name)]
        yield (
            f"{place.shown(_INTERFACES)} names no interface of the host",
            f"unset, or one of {listed(here)}" if here else "unset",
        )


def _interface_names(place: Place) -> tuple[str, ...]:
    """Return the names that NCCL looks for, without ports; of a single character it takes none."""
    value = place.value(_INTERFACES)
    names = (item.partition(":")[0] for item in value.removeprefix("=").split(","))
    is_list = len(value) > 1 and not value.startswith("^")
    return tuple(name for name in names if name) if is_list else ()


def _leads_nowhere(name: str) -> bool:
    return name == "lo" or name.startswith(UNREACHABLE)


def missing(place: Place) -> Iterator[str]:
    """Name what is not known of the node, and what *place* says depends on."""
    value = _list(place)
    snapshot = place.snapshot
    if snapshot.hcas is None and _asks_about_hcas(place):
        yield f"HCAs{because(snapshot, 'rdma')}"
    if _sees_hcas(place) and (silent := missing_states(snapshot, value)):
        yield f"port states of {listed(silent)}"
    if _sees_hcas(place) is None and any(adapters(snapshot, value)):
        yield "whether pods share the RDMA devices of the node"
    if _has_hcas(place):
        yield from levels.missing(place)
        if _modules(snapshot) is None and place.is_off("NCCL_DMABUF_ENABLE"):
            yield "kernel modules"
    if place.is_of_the_host and _is_there(place) is None:
        name = container_name(place.pod, place.container)
        yield f"network interfaces that {_INTERFACES} in {name} names"


def _asks_about_hcas(place: Place) -> bool:
    if place.value(_HCA):
        return bool(_list(place))
    is_open = place.is_of_the_host and bool(place.container.is_privileged)
    is_set = bool(place.value(_GID)) or bool(place.value(levels.GDR))
    return is_open and (_is_turned_away(place) or is_set)


def _is_there(place: Place) -> bool | None:
    """Return whether *place* names an interface of the host, or none at all; ``None``: not known.

    A list that begins with ``=`` has whole names, any other how names begin.
    """
    names = _interface_names(place)
    if not names or all(map(_leads_nowhere, names)):
        return True
    known = _interfaces(place.snapshot)
    of_hcas = (netdev.name for hca in place.snapshot.hcas or () for netdev in hca.netdevs)
    here = of_hcas if known is None else known
    is_exact = place.value(_INTERFACES).startswith("=")
    if any(one in names if is_exact else one.startswith(names) for one in here):
        return True
    return None if known is None else False


def _interfaces(snapshot: Snapshot) -> tuple[str, ...] | None:
    return None if snapshot.host is None else snapshot.host.interfaces


def _modules(snapshot: Snapshot) -> tuple[str, ...] | None:
    return None if snapshot.kernel is None else snapshot.kernel.modules
