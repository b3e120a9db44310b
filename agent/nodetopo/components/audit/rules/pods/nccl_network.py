"""NCCL variables that keep a pod from its node's adapters and interfaces.

Effects of values follow NVIDIA/nccl v2.30.7-1: ``src/transport/net_ib``, ``src/os/linux.cc`` and
``docs/userguide/source/env.rst``.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from nodetopo.checks.inputs import (
    adapters,
    because,
    is_virtual_machine,
    missing_machine,
    unknown_of,
)
from nodetopo.checks.rule import Missing
from nodetopo.components.audit.alignment.devices import DevicePlaces
from nodetopo.components.audit.rules.gpu_pods import container_name
from nodetopo.components.audit.rules.pods.inputs import (
    is_rdma,
    is_spread,
    listed,
    network_hcas,
    others,
    whole_gpus,
)
from nodetopo.components.audit.rules.rdma_devices import Meaning, RdmaPools, is_rdma_device
from nodetopo.components.audit.rules.rdma_ports import is_efa, roce_ports
from nodetopo.model.digits import is_digits
from nodetopo.model.hca import ACTIVE, Hca, HcaPort
from nodetopo.model.pod import Container, Pod
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.paths import GDR_LIMIT, NcclPath
from nodetopo.nccl.routes import gdr_supported, nccl_paths

# What a value of ``NCCL_IB_HCA`` means on a node.
#
# A list of names after ``^`` (all but these) and ``=`` (exactly these); without ``=`` each stands
# for all names that begin with it. A colon and a port may follow a name. Of the ports that the
# list leaves NCCL uses the active ones, and without any it goes through sockets
# (NVIDIA/nccl v2.30.7-1, ``src/transport/net_ib/init.cc`` and ``src/misc/utils.cc``).

MOST = 32
"""Entries of a list that NCCL reads (``MAX_IB_DEVS``)."""


SHOWN = 60
"""Characters of a value that are repeated."""


_ANY = -1
"""The port of an entry that names none."""

Remarks = Iterator[tuple[str, str]]
"""The observed and the expected value of a variable."""


class _Entry(Struct, frozen=True):
    """One port in ``NCCL_IB_HCA``."""

    name: str
    port: int

    def is_of(self, hca: Hca, *, is_exact: bool) -> bool:
        return hca.name == self.name if is_exact else hca.name.startswith(self.name)

    def has(self, port: HcaPort) -> bool:
        return self.port in (_ANY, port.number)


class Choice(Struct, frozen=True):
    """A list as NCCL reads it; one without entries names all HCAs."""

    entries: tuple[_Entry, ...]
    is_exact: bool
    excludes: bool

    def takes(self, hca: Hca, port: HcaPort) -> bool:
        """Return whether the list lets NCCL use *port* of *hca*."""
        is_named = any(
            entry.is_of(hca, is_exact=self.is_exact) and entry.has(port) for entry in self.entries
        )
        return (is_named or not self.entries) != self.excludes

    def named(self, snapshot: Snapshot) -> tuple[Hca, ...]:
        """Return the HCAs that an entry stands for, by whatever port."""
        return tuple(
            hca
            for hca in snapshot.hcas or ()
            if any(entry.is_of(hca, is_exact=self.is_exact) for entry in self.entries)
        )


def choice(value: str) -> Choice:
    """Parse *value* of ``NCCL_IB_HCA``; an empty value selects every HCA."""
    excludes = value.startswith("^")
    rest = value[excludes:]
    is_exact = rest.startswith("=")
    entries: list[_Entry] = []
    for item in rest[is_exact:].split(","):
        name, _, ports = item.partition(":")
        port = ports.partition(":")[0]
        if name and len(entries) < MOST:
            digits = re.match(r"\s*([+-]?[0-9]{1,9})", port)
            entries.append(_Entry(name, _ANY if not port else int(digits[1]) if digits else 0))
    return Choice(tuple(entries), is_exact, excludes)


def wrong_hcas(snapshot: Snapshot, value: str) -> Remarks:
    """Yield the faults of *value* on this node, whose HCAs the pod sees."""
    chosen = choice(value)
    shown = f"NCCL_IB_HCA={value[:SHOWN]}"
    ports = tuple(_ports(snapshot))
    able = list(dict.fromkeys(hca.name for hca, _ in ports))
    if ports and not any(chosen.takes(hca, port) for hca, port in ports):
        yield f"{shown}, {_why_none(snapshot, chosen)}", listed(able)
    else:
        # Entries that name a port which none of their HCAs has.
        for entry in chosen.entries:
            hcas = [hca for hca in adapters(snapshot) if entry.is_of(hca, is_exact=chosen.is_exact)]
            own = [port for hca in hcas for port in hca.ports]
            if own and all(hca.ports for hca in hcas) and not any(map(entry.has, own)):
                numbers = sorted({port.number for port in own})
                yield (
                    f"{shown}, of which {entry.name}:{entry.port} is no port of this node",
                    listed(f"{entry.name}:{number}" for number in numbers),
                )
    # An entry without "=" also names HCAs with more digits: mlx5_1 also names mlx5_10.
    names = {entry.name for entry in chosen.entries}
    named = chosen.named(snapshot)
    meant = names & {hca.name for hca in named}
    also = [
        hca.name
        for hca in named
        if hca.name not in meant
        and any(port.state == ACTIVE for port in hca.ports)
        and any(hca.name.startswith(n) and is_digits(hca.name[len(n) :]) for n in meant)
    ]
    if also:
        verb, sign = ("excludes", "^") if chosen.excludes else ("takes", "")
        exact = value.removeprefix("^")[:SHOWN]
        yield f"{shown}, which {verb} {listed(also)} too", f"NCCL_IB_HCA={sign}={exact}"
    fabric = [hca.name for hca in snapshot.management_hcas or () if hca.name in names]
    if fabric and not chosen.excludes:
        yield f"{shown}, of which {listed(fabric)} is the NVLink fabric's", listed(able)


def _why_none(snapshot: Snapshot, chosen: Choice) -> str:
    """Return why a list leaves NCCL no HCA."""
    if chosen.excludes:
        return "which excludes every HCA of this node"
    if not chosen.named(snapshot):
        return "and no HCA of this node is named so"
    if any(chosen.takes(hca, port) for hca in snapshot.hcas or () for port in hca.ports):
        return "of which no port is active"
    return "and the HCAs that it names have no such port"


def missing_states(snapshot: Snapshot, value: str) -> tuple[str, ...]:
    """Return the HCAs whose port states decide whether *value* leaves NCCL an active port."""
    chosen = choice(value)
    taken = [(hca, port) for hca, port in _ports(snapshot) if chosen.takes(hca, port)]
    if not value or any(port.state == ACTIVE for _, port in taken):
        return ()
    return tuple(dict.fromkeys(hca.name for hca, _ in taken))


def _ports(snapshot: Snapshot) -> Iterator[tuple[Hca, HcaPort]]:
    """Yield the ports that NCCL could use: hardware that it supports, not known to be down."""
    for hca in adapters(snapshot):
        for port in hca.ports:
            if port.state in (ACTIVE, None) and not is_efa(hca):
                yield hca, port


LONGEST = 4096
"""Characters of a value that are read."""


class PlacedContainer(Struct, frozen=True):
    """A container with GPUs, its pod and node: NCCL variables, and available hardware."""

    snapshot: Snapshot
    pod: Pod
    container: Container

    def value(self, name: str) -> str:
        """Return the value of *name* as NCCL reads it; empty where it is unset or not known."""
        return ((self.container.environment or {}).get(name) or "")[:LONGEST]

    def shown(self, name: str) -> str:
        """Return *name* with its value, as a finding repeats it."""
        return f"{name}={self.value(name)[:SHOWN]}"

    def number(self, name: str) -> int | None:
        """Return the value as NCCL parses it; ``None`` without a value.

        A text that does not begin with a number, such as ``true``, is 0 (``strtoll``, NVIDIA/nccl
        v2.30.7-1 ``src/misc/param.cc``).
        """
        value = self.value(name)
        return number(value) if value else None

    def is_off(self, name: str) -> bool:
        """Return whether NCCL reads the value of *name* as 0."""
        return self.number(name) == 0

    def is_on(self, name: str) -> bool:
        """Return whether NCCL reads the value of *name* as another number than 0."""
        return self.number(name) not in (None, 0)

    @property
    def has_peers(self) -> bool:
        """Whether the container has several whole GPUs."""
        return whole_gpus(self.container) > 1

    @property
    def asks_for_rdma(self) -> bool:
        """Whether it requests HCAs that NCCL supports natively; EFA needs a plugin."""
        names = others(self.container)
        return any(is_rdma(name) and "efa" not in name for name in names)

    @property
    def is_of_the_host(self) -> bool:
        """Whether it is part of a multi-pod job in the host's network."""
        return bool(self.pod.uses_host_network) and is_spread(self.pod)

    @property
    def has_plugin(self) -> bool:
        """Whether a network plugin takes precedence, which can ignore NCCL's variables."""
        return self.value("NCCL_NET_PLUGIN").casefold() not in ("", "none")


def number(text: str) -> int:
    """Return the number that *text* begins with, as ``strtoll`` of base 0 does; else 0."""
    match = re.match(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", text)
    if match is None:
        return 0
    sign, digits = match.groups()
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
    return int(digits, base) * (-1 if sign == "-" else 1)


# Levels of NCCL: how far two devices may be apart for NCCL to let them reach each other.
#
# What a value does is taken from NVIDIA/nccl v2.30.7-1 ``src/graph/paths.cc``, ``ncclGetLevel`` and
# ``ncclTopoCheckGdr``.

C2C = "NCCL_NET_GDR_C2C"
"""Whether an HCA at a Grace CPU can reach the memory of that CPU's GPU."""


GDR = "NCCL_NET_GDR_LEVEL"
"""The largest distance at which an HCA reaches a GPU's memory."""


P2P = "NCCL_P2P_LEVEL"
"""The same between two GPUs."""


LEVELS = tuple(path.name for path in NcclPath if path <= NcclPath.SYS)
"""Path types, as NCCL spells them, nearest first."""


_OLD = (NcclPath.LOC, NcclPath.PIX, NcclPath.PXB, NcclPath.PHB, NcclPath.SYS)
"""Meanings of the digits; greater numbers mean the last."""


def level(place: PlacedContainer, name: str) -> NcclPath | None:
    """Return the level set by *name*; ``None`` if NCCL keeps its default."""
    value = place.value(name)
    if value in LEVELS:
        return NcclPath[value]
    if value[:1] not in tuple("0123456789"):
        return None
    return _OLD[min(number(value), len(_OLD) - 1)]


def ignored(place: PlacedContainer) -> Remarks:
    """Find values that are no level."""
    for name in (P2P, GDR):
        if place.value(name) and level(place, name) is None:
            yield f"{place.shown(name)}, which NCCL ignores", f"one of {', '.join(LEVELS)}"


def without_gpudirect(place: PlacedContainer) -> Remarks:
    """Find a level that no HCA is near enough for, where NCCL's own would let some."""
    name, most = _gdr_limit(place)
    if most is NcclPath.LOC:
        yield f"{place.shown(name)} turns GPUDirect RDMA off", "unset"
    elif most is not None and not missing_for_level(place):
        if is_virtual_machine(place.snapshot):
            return
        # Through another GPU (PXN), that GPU's distance counts.
        direct = (
            route.type
            for (start, end), route in nccl_paths(place.snapshot).items()
            if start.startswith("GPU") and end.startswith("NIC") and route.type is not NcclPath.PXN
        )
        nearest = min(direct, default=None)
        if nearest is not None and most < nearest <= GDR_LIMIT:
            off = "turns GPUDirect RDMA off: the nearest HCAs are at"
            yield f"{place.shown(name)} {off} {nearest.name}", "unset"


def missing_for_level(place: PlacedContainer) -> tuple[Missing, ...]:
    """Name unknown paths from GPUs to HCAs, if a level may be too low for them.

    A virtual machine can have a file that gives NCCL a different topology.
    """
    _, most = _gdr_limit(place)
    snapshot = place.snapshot
    if most is None or not NcclPath.LOC < most < GDR_LIMIT or not snapshot.hcas:
        return ()
    unplaced = [
        *(
            gpu.name
            for gpu in snapshot.gpus
            if gpu.is_lost or gpu.path is None or not gpu.path.hops
        ),
        *(hca.name for hca in adapters(snapshot) if hca.path is None or not hca.path.hops),
    ]
    is_known = gdr_supported(snapshot) is not None
    return (
        *missing_machine(snapshot),
        *unknown_of("place on the PCI bus", unplaced),
        *(() if is_known else (Missing("whether HCAs can reach GPU memory"),)),
    )


def _gdr_limit(place: PlacedContainer) -> tuple[str, NcclPath | None]:
    """Return the variable that limits the distance of HCAs, and the limit."""
    if place.value("NCCL_TOPO_FILE"):
        return GDR, None
    most = level(place, GDR)
    is_without_c2c = most is None and place.is_off(C2C)
    return (C2C, NcclPath.PXB) if is_without_c2c else (GDR, most)


UNREACHABLE = ("docker", "virbr")
"""Prefixes of interfaces that lead only to the own node, in addition to ``lo``."""


PEERMEM = "nvidia_peermem"
"""The module that lets HCAs reach GPU memory where dma-buf is not used."""


SHARED = "shared"
"""The mode in which every network namespace sees all HCAs (``nodetopo.model.snapshot.Kernel``)."""


_HCA = "NCCL_IB_HCA"


_GID = "NCCL_IB_GID_INDEX"


_INTERFACES = "NCCL_SOCKET_IFNAME"


def _has_hcas(place: PlacedContainer) -> bool:
    """Return whether NCCL in *place* certainly reaches HCAs.

    It requests them, or is a privileged part of a job in the host's network, which has all.
    """
    return place.asks_for_rdma or (_sees_host(place) and bool(network_hcas(place.snapshot)))


def _sees_host(place: PlacedContainer) -> bool:
    return place.is_of_the_host and bool(place.container.is_privileged)


def transport(place: PlacedContainer) -> Remarks:
    """Find NCCL turned away from the HCAs that the pod has."""
    network = place.value("NCCL_NET").casefold()
    if not _has_hcas(place) or place.value("NCCL_NET_PLUGIN"):
        return
    if network == "socket":
        yield "NCCL_NET=Socket with RDMA devices", "unset, or IB"
    elif not network and place.is_on("NCCL_IB_DISABLE"):
        yield f"{place.shown('NCCL_IB_DISABLE')} with RDMA devices", "unset"


def gpudirect(place: PlacedContainer) -> Remarks:
    """Find HCAs that are kept from GPU memory."""
    if not _has_hcas(place):
        return
    yield from without_gpudirect(place)
    modules = _modules(place.snapshot)
    if place.is_off("NCCL_DMABUF_ENABLE") and modules is not None and PEERMEM not in modules:
        shown = place.shown("NCCL_DMABUF_ENABLE")
        yield f"{shown}, and the module {PEERMEM} is not loaded", "unset"


def hcas(place: PlacedContainer) -> Remarks:
    """Find a list of HCAs that leaves others than it should."""
    if not _sees_hcas(place):
        return
    wrong = [*wrong_hcas(place.snapshot, _list(place))]
    yield from wrong
    given, is_all = _given(place)
    if not wrong and given and is_all:
        yield f"{place.shown(_HCA)}, which leaves no HCA that it was given", listed(given)


def _given(place: PlacedContainer) -> tuple[tuple[str, ...], bool]:
    """Return the HCAs that *place* was given where its list leaves none, and if they are all."""
    value, pools = _list(place), RdmaPools(place.snapshot)
    meanings = {
        pools.meaning(devices.resource, device)
        for devices in place.container.devices or ()
        for device in devices.ids
        if is_rdma_device(devices.resource, device)
    }
    if not value or not meanings or not meanings.isdisjoint((Meaning.NUMBER, None)):
        return (), False
    chosen, known = choice(value), place.snapshot.hcas or ()
    held = DevicePlaces(place.snapshot).hcas(place.container)
    names = tuple(hca.name for hca in held)
    given = [hca for hca in known if hca.name in names]
    is_left = any(chosen.takes(hca, port) for hca in given for port in hca.ports)
    is_known = len(given) == len(held) and all(hca.ports for hca in given)
    return ((), False) if is_left or not is_known else (names, Meaning.OPEN not in meanings)


def _list(place: PlacedContainer) -> str:
    """Return the list of HCAs if NCCL goes by it, and something depends on it."""
    value = place.value(_HCA)
    is_used = place.asks_for_rdma or bool(place.pod.uses_host_network)
    if not is_used or place.has_plugin or _is_turned_away(place):
        return ""
    is_alone = not place.asks_for_rdma and not is_spread(place.pod)
    # By excluding all, a job of one pod declares that it needs no RDMA.
    return "" if is_alone and choice(value).excludes else value


def _is_turned_away(place: PlacedContainer) -> bool:
    return place.is_on("NCCL_IB_DISABLE") or place.value("NCCL_NET").casefold() == "socket"


def _sees_hcas(place: PlacedContainer) -> bool | None:
    """Return whether the pod sees exactly the node's HCAs; ``None`` if unknown."""
    kernel = place.snapshot.kernel
    if place.pod.uses_host_network:
        return True
    return None if kernel is None or kernel.rdma_netns is None else kernel.rdma_netns == SHARED


def gids(place: PlacedContainer) -> Remarks:
    """Find a GID index without an address on the host's RoCE ports.

    In its own network namespace, a pod can have addresses added after the ports were read.
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


def interfaces(place: PlacedContainer) -> Remarks:
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


def _interface_names(place: PlacedContainer) -> tuple[str, ...]:
    """Return the names that NCCL looks for, without ports; of a single character it takes none."""
    value = place.value(_INTERFACES)
    names = (item.partition(":")[0] for item in value.removeprefix("=").split(","))
    is_list = len(value) > 1 and not value.startswith("^")
    return tuple(name for name in names if name) if is_list else ()


def _leads_nowhere(name: str) -> bool:
    return name == "lo" or name.startswith(UNREACHABLE)


def missing(place: PlacedContainer) -> Iterator[Missing]:
    """Name the unknown inputs that decide the effect of a variable of *place*."""
    value = _list(place)
    snapshot = place.snapshot
    if snapshot.hcas is None and _asks_about_hcas(place):
        yield Missing("HCAs", because(snapshot, "rdma"))
    if _sees_hcas(place) and (silent := missing_states(snapshot, value)):
        yield Missing(f"port states of {listed(silent)}")
    given, is_all = _given(place)
    if _sees_hcas(place) and given and not is_all:
        name = container_name(place.pod, place.container)
        yield Missing(f"whether {name} has other HCAs of the pool than {listed(given)}")
    if _sees_hcas(place) is None and any(wrong_hcas(snapshot, value)):
        yield Missing("whether pods share the RDMA devices of the node")
    if _has_hcas(place):
        yield from missing_for_level(place)
        if _modules(snapshot) is None and place.is_off("NCCL_DMABUF_ENABLE"):
            yield Missing("kernel modules")
    if place.is_of_the_host and _is_there(place) is None:
        name = container_name(place.pod, place.container)
        yield Missing(f"network interfaces that {_INTERFACES} in {name} names")


def _asks_about_hcas(place: PlacedContainer) -> bool:
    if place.value(_HCA):
        return bool(_list(place))
    is_set = bool(place.value(_GID)) or bool(place.value(GDR))
    return _sees_host(place) and (_is_turned_away(place) or is_set)


def _is_there(place: PlacedContainer) -> bool | None:
    """Return whether *place* names an interface of the host, or none at all; ``None``: not known.

    A list that begins with ``=`` has whole names, any other how names begin.
    """
    names = _interface_names(place)
    if not names or all(map(_leads_nowhere, names)):
        return True
    interfaces = _interfaces(place.snapshot)
    of_hcas = (netdev.name for hca in place.snapshot.hcas or () for netdev in hca.netdevs)
    here = of_hcas if interfaces is None else interfaces
    is_exact = place.value(_INTERFACES).startswith("=")
    if any(interface in names if is_exact else interface.startswith(names) for interface in here):
        return True
    return None if interfaces is None else False


def _interfaces(snapshot: Snapshot) -> tuple[str, ...] | None:
    return None if snapshot.host is None else snapshot.host.interfaces


def _modules(snapshot: Snapshot) -> tuple[str, ...] | None:
    return None if snapshot.kernel is None else snapshot.kernel.modules
