"""Variables to set or leave unset for a job with given GPUs and HCAs, by release.

The lists of HCAs and vLLM's mapping come from :mod:`nodetopo.nccl.job`. Other variables depend on
the release of NCCL, and are mostly unnecessary: newer releases detect the values. Releases are the
ones whose sources were read (NVIDIA/nccl, by tag).
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.errors import InputError
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Gid, Hca, HcaPort, LinkLayer
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.container import FILE_NAME
from nodetopo.nccl.job import (
    NIC_SELECTION,
    JobPorts,
    JobVariable,
    is_efa,
    is_virtual_machine,
    job_ports,
    port_list,
    vllm_mapping,
    vllm_selection,
)
from nodetopo.nccl.paths import NcclPath
from nodetopo.nccl.routes import nccl_paths
from nodetopo.nccl.variables import NEWEST
from nodetopo.rdma.pairing import Pairing
from nodetopo.rdma.rails import usable_cards

DEFAULT_FILE = f"/var/run/nvidia-topologyd/{FILE_NAME}"
"""Where NCCL looks for a topology without being told, since 2.10.3 (src/graph/topo.cc)."""

FEW = 16
"""Entries of lists that older releases read: NCCL up to 2.18.3, NVSHMEM up to 3.2."""

ROCE_V2 = "RoCE v2"
"""sysfs ``gid_attrs/types``; the version NCCL wants (NCCL_IB_ROCE_VERSION_NUM, default 2)."""

_GUIDE = "NCCL User Guide, Environment Variables"
_SOURCES = f"NVIDIA/nccl {NEWEST}"

_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}")

_IPV4 = re.compile(r"(?:0000:){5}ffff:[0-9a-f]{4}:[0-9a-f]{4}")
"""A GID that holds an IPv4 address, which NCCL prefers (NCCL_IB_ADDR_FAMILY, default AF_INET)."""


class JobAdvice(Struct, frozen=True, kw_only=True):
    """One variable, for some releases of the library that reads it."""

    variable: str
    value: str | None  # None: leave it unset
    library: str  # NCCL, UCX, NVSHMEM, vLLM, or libfabric
    # since, until: first and last release; None for `until`: the newest too
    since: str
    until: str | None = None
    reason: str  # a clause without full stop
    source: str  # the documentation or source file that says so

    def is_about(self, version: str) -> bool:
        """Return whether *version* is one of the releases; ``2.21`` is any release of 2.21."""
        numbers = _numbers(version)
        first, last = _numbers(self.since), None if self.until is None else _numbers(self.until)
        length = min(len(numbers), len(first))
        if numbers[:length] < first[:length]:
            return False
        return last is None or numbers[: len(last)] <= last[: len(numbers)]


def checked_version(text: str) -> str:
    if _VERSION.fullmatch(text) is None:
        raise InputError(f"not a version of NCCL: {text[:40]!r}", f"give one such as {NEWEST}")
    return text


def advise(
    snapshot: Snapshot,
    gpus: Sequence[Gpu],
    hcas: Sequence[Hca],
    *,
    nccl: str | None = None,
    topology_file: str | None = None,
    rails: Mapping[str, int] | None = None,
) -> tuple[JobAdvice, ...]:
    """Return the variables to set or not to set, by library.

    Args:
        gpus, hcas: of the job, all in *snapshot*.
        nccl: limits the advice to a release of NCCL; ``None``: all releases.
        topology_file: the path at which the job has a topology for NCCL, if it has one.
        rails: the number of the rail by the name of an HCA, for NCCL's list; ``None``: the list
            names none. NCCL connects no two rails where it keeps to one NIC, so the numbers must be
            the fabric's.
    """
    ports = job_ports(snapshot, hcas)
    is_fabric = any(map(is_efa, hcas))
    every = (
        *([_efa()] if is_fabric else []),
        *_nccl_hcas(ports, rails),
        *_gid_index(ports),
        *([] if is_fabric else _gdr_level(snapshot, gpus, hcas)),  # not NCCL's to decide there
        *_topology(snapshot, topology_file),
        *_others(snapshot, gpus, ports),
    )
    return tuple(
        advice
        for advice in every
        if nccl is None or advice.library != "NCCL" or advice.is_about(nccl)
    )


def for_one_job(every: Sequence[JobAdvice]) -> tuple[JobAdvice, ...]:
    """Return *every* without UCX's list if vLLM's variables, which it makes void, are to be set."""
    if not any(it.variable == NIC_SELECTION and it.value is not None for it in every):
        return tuple(every)
    ucx = JobVariable.UCX_NET_DEVICES
    reason = f"vLLM sets it for each worker; `--only {ucx}` has the list for jobs without vLLM"
    return tuple(
        replace(it, value=None, reason=reason) if it.variable == ucx else it for it in every
    )


def nearest_set(snapshot: Snapshot, gpus: Sequence[Gpu]) -> tuple[Hca, ...]:
    """Return an HCA for each of *gpus*, the nearest available.

    Cards that are no rail and HCAs without an ACTIVE port are passed over. Each includes other HCAs
    on the same card at the same distance: NCCL makes one device of the ports of a card
    (src/graph/topo.cc, ncclTopoAutoMerge).
    """
    hcas = snapshot.hcas or ()
    usable = sorted(usable_cards(snapshot), key=lambda at: hcas[at].pci_order)
    positions = {gpu.index: at for at, gpu in enumerate(snapshot.gpus)}
    wanted = [positions[gpu.index] for gpu in gpus]
    pairing = Pairing(snapshot=snapshot)
    chosen = set(pairing.hcas_for(wanted, usable, len(wanted)))
    guids = {hcas[at].sys_image_guid: at for at in chosen if hcas[at].sys_image_guid is not None}
    near = {
        at
        for at in usable
        if (first := guids.get(hcas[at].sys_image_guid)) is not None
        and pairing.distance(wanted, [at]) == pairing.distance(wanted, [first])
    }
    return tuple(hcas[at] for at in usable if at in chosen | near)


def gid_index(gids: Sequence[Gid]) -> int | None:
    """Return the index of the GID that NCCL since 2.21 would choose of a RoCE port's table.

    The rule of ncclIbGetGidIndex (NVIDIA/nccl 2.21.5, ``src/transport/net_ib.cc``) with its
    defaults: the first RoCE v2 entry with an IPv4 address. ``None`` if there is none, or where
    the type of an entry that could come first is not known.
    """
    for gid in sorted(gids, key=lambda gid: gid.index):
        if _IPV4.fullmatch(gid.gid.lower()) is None:
            continue
        if gid.type is None:
            return None
        if gid.type == ROCE_V2:
            return gid.index
    return None


# Each variable.


RAILS_SINCE, RAILS_BEFORE = "2.30.7", "2.30.4"
"""The first release that reads a rail and a plane behind a port, and the last that skips them."""


def _nccl_hcas(ports: JobPorts, rails: Mapping[str, int] | None) -> Iterator[JobAdvice]:
    given = port_list(JobVariable.NCCL_IB_HCA, ports)
    plain = JobAdvice(
        variable=JobVariable.NCCL_IB_HCA,
        value=given.value,
        library="NCCL",
        since="2.5.6" if len(ports.ports) <= FEW else "2.18.5",
        reason=given.reason,
        source=f"{_GUIDE}; {_SOURCES} src/transport/net_ib/init.cc, src/misc/utils.cc",
    )
    known = {} if rails is None else {hca.name: rails.get(hca.name) for hca, _ in ports.ports}
    if rails is None or given.value is None:
        yield plain
        return
    if missing := [name for name, rail in known.items() if rail is None]:
        yield replace(
            plain, reason=f"{given.reason}; the rail of {', '.join(missing)} is not known"
        )
        return
    yield replace(plain, until=RAILS_BEFORE)
    entries = (f"{hca.name}:{number}:{known[hca.name]}" for hca, number in ports.ports)
    yield replace(
        plain,
        value=f"={','.join(entries)}",
        since=RAILS_SINCE,
        reason=f"{given.reason}, each with its rail, numbered as in the fabric",
    )


def _efa() -> JobAdvice:
    return JobAdvice(
        variable="FI_PROVIDER",
        value="efa",
        library="libfabric",
        since="1.8.0",
        reason="NCCL reaches EFA only by the plugin aws-ofi-nccl and libfabric; without the plugin "
        "in the container it uses sockets",
        source="ofiwg/libfabric NEWS.md, v1.8.0; aws/aws-ofi-nccl README.md",
    )


def _gid_index(ports: JobPorts) -> Iterator[JobAdvice]:
    name = "NCCL_IB_GID_INDEX"
    if ports.problem:
        return
    source = f"{_GUIDE}; NVIDIA/nccl 2.20.5 and 2.21.5 src/transport/net_ib.cc, ncclIbGetGidIndex"
    if ports.layer is LinkLayer.INFINIBAND:
        yield JobAdvice(
            variable=name,
            value=None,
            library="NCCL",
            since="2.3.5",
            reason="InfiniBand uses entry 0, the default",
            source=source,
        )
        return
    tables = {f"{hca.name}:{number}": _port(hca, number).gids for hca, number in ports.ports}
    indexes = {port: gid_index(gids) for port, gids in tables.items()}
    different = set(indexes.values())
    value = None
    if None in different:
        port = next(port for port, index in indexes.items() if index is None)
        reason = f"{port} has no RoCE v2 entry with an IPv4 address that is known"
    elif len(different) > 1:
        named = ", ".join(f"{port} {index}" for port, index in list(indexes.items())[:4])
        reason = f"one index serves all ports, and theirs differ: {named}"
    else:
        value = str(next(iter(different)))
        reason = (
            "the RoCE v2 entry with an IPv4 address, on the host's network; these releases "
            "take 0 otherwise"
        )
    yield JobAdvice(
        variable=name,
        value=value,
        library="NCCL",
        since="2.3.5",
        until="2.20.5",
        reason=reason,
        source=source,
    )
    sparse = {port: table for port, table in tables.items() if _stops_the_search(table)}
    own = any(_addresses(table) for table in tables.values())
    if sparse:
        yield _sparse_gid_index(next(iter(sparse)), tables)
    elif own:
        yield JobAdvice(
            variable=name,
            value=None,
            library="NCCL",
            since="2.21.5",
            until="2.25.1",
            reason="NCCL finds the entry of each port itself on the host's network; a job with an "
            "address of its own on these ports, in another network namespace, needs the index of "
            "that address (`show_gids`), as these releases end with an error on the host's",
            source=f"NVIDIA/nccl issue 1573; {source}",
        )
    yield JobAdvice(
        variable=name,
        value=None,
        library="NCCL",
        since="2.26.2" if own else "2.21.5",
        reason="NCCL finds the entry of each port itself, in the network that the job is in",
        source=source,
    )


def _addresses(gids: Sequence[Gid]) -> list[Gid]:
    return [gid for gid in gids if _IPV4.fullmatch(gid.gid.lower()) is not None]


def _stops_the_search(gids: Sequence[Gid]) -> bool:
    """Return whether NCCL 2.21.5 to 2.25 ends with an error on a port's table.

    From the second IPv4 entry on, these releases read the type of each and of the one chosen so
    far, and give up where the kernel refuses it: its interface is in another network namespace.
    Entries that are not set, and those of IPv6, stop nothing, wherever they are: their types are
    not read (``src/transport/net_ib.cc``, ncclUpdateGidIndex).
    """
    addresses = _addresses(gids)
    return len(addresses) > 1 and any(gid.type is None for gid in addresses)


def _sparse_gid_index(port: str, tables: Mapping[str, Sequence[Gid]]) -> JobAdvice:
    """Return the advice for releases that end with an error on the table of *port*."""
    known = [gid_index([gid for gid in gids if gid.type is not None]) for gids in tables.values()]
    is_one = len(set(known)) == 1 and known[0] is not None
    reason = (
        f"a GID of {port} belongs to an interface of another network namespace; these releases end "
        "with `read failed in ncclIbRoceGetVersionNum` on it unless an index is set: take 2.26, or "
    )
    return JobAdvice(
        variable="NCCL_IB_GID_INDEX",
        value=str(known[0]) if is_one else None,
        library="NCCL",
        since="2.21.5",
        until="2.25.1",
        reason=reason
        + (
            "this index on the host's network" if is_one else "the job's own, as `show_gids` has it"
        ),
        source="NVIDIA/nccl issue 1573; 2.21.5 src/transport/net_ib.cc, ncclUpdateGidIndex",
    )


def _gdr_level(snapshot: Snapshot, gpus: Sequence[Gpu], hcas: Sequence[Hca]) -> Iterator[JobAdvice]:
    """Yield the level up to which HCAs reach GPU memory, where NCCL's own is too low."""
    if not gpus or not hcas:
        return
    name, source = (
        "NCCL_NET_GDR_LEVEL",
        f"{_GUIDE}; {_SOURCES} src/graph/paths.cc, ncclTopoCheckGdr",
    )
    paths = nccl_paths(snapshot)
    places = {hca.name: at for at, hca in enumerate(snapshot.hcas or ())}
    best: dict[str, NcclPath] = {}
    for gpu in gpus:
        # Towards the GPU: from it NCCL can relay through another GPU, for which the same holds.
        rows = [f"NIC{places[hca.name]}" for hca in hcas if hca.name in places]
        types = [paths[row, gpu.name].type for row in rows if (row, gpu.name) in paths]
        if types:
            best[gpu.name] = min(types)
    over_c2c = [gpu for gpu, kind in best.items() if kind is NcclPath.P2C]
    far = [gpu for gpu, kind in best.items() if kind > NcclPath.P2C]
    if over_c2c:
        reason = f"{over_c2c[0]} reaches its HCA through the CPU's chip-to-chip link, which NCCL "
        yield JobAdvice(
            variable=name,
            value="PHB",
            library="NCCL",
            since="2.6.4",
            until="2.25.1",
            reason=f"{reason}takes for PHB, where GPUDirect RDMA is off",
            source=f"{source}; NVIDIA/nccl issue 1579",
        )
        yield JobAdvice(
            variable="NCCL_NET_GDR_C2C",
            value="1",
            library="NCCL",
            since="2.26.2",
            until="2.26.6",
            reason=f"{reason}uses for GPUDirect RDMA only when asked to",
            source=source,
        )
        since = "2.27.3"
    else:
        since = "2.6.4"
    if far:
        far_reason = (
            f"{far[0]} reaches its nearest HCA through a CPU ({best[far[0]].name}), where NCCL "
            "keeps GPUDirect RDMA off"
        )
        if is_virtual_machine(snapshot):
            reason = (
                f"{far_reason}; if this virtual machine hides a switch, give NCCL the provider's "
                "topology file, and only without one measure PHB and SYS"
            )
        else:
            reason = f"{far_reason}: through a CPU it is often slower than without it"
    elif best:
        reason = "GPUDirect RDMA is on by default for these GPUs and HCAs"
    else:
        reason = "the paths between these GPUs and HCAs are not known"
    yield JobAdvice(
        variable=name, value=None, library="NCCL", since=since, reason=reason, source=source
    )


def _topology(snapshot: Snapshot, path: str | None) -> Iterator[JobAdvice]:
    name, source = "NCCL_TOPO_FILE", f"{_GUIDE}; {_SOURCES} src/graph/topo.cc, ncclTopoGetSystem"
    if path is not None:
        is_default = path == DEFAULT_FILE
        reason = "older releases have no default path" if is_default else "not NCCL's own path"
        yield JobAdvice(
            variable=name,
            value=path,
            library="NCCL",
            since="2.6.4",
            until="2.9.9" if is_default else None,
            reason=reason,
            source=source,
        )
        if is_default:
            yield JobAdvice(
                variable=name,
                value=None,
                library="NCCL",
                since="2.10.3",
                reason=f"NCCL reads {DEFAULT_FILE} by itself",
                source=source,
            )
        return
    reason = "NCCL finds the topology itself"
    if is_virtual_machine(snapshot):
        reason += (
            ", unless this virtual machine hides it: then mount the provider's file at "
            f"{DEFAULT_FILE}"
        )
    else:
        reason += f"; where a container hides it, `nccl-hints` mounts {DEFAULT_FILE}"
    yield JobAdvice(
        variable=name, value=None, library="NCCL", since="2.6.4", reason=reason, source=source
    )


def _others(snapshot: Snapshot, gpus: Sequence[Gpu], ports: JobPorts) -> Iterator[JobAdvice]:
    """Yield what libraries other than NCCL read."""
    given = port_list(JobVariable.UCX_NET_DEVICES, ports)
    yield JobAdvice(
        variable=JobVariable.UCX_NET_DEVICES,
        value=given.value,
        library="UCX",
        since="1.2.0",
        reason=given.reason,
        source="openucx/ucx 1.22 src/ucp/core/ucp_context.c",
    )
    given = port_list(JobVariable.NVSHMEM_HCA_LIST, ports)
    reason = given.reason
    odd = [hca.name for hca, _ in ports.ports if "mlx5" not in hca.name]
    if odd:
        # ibgda.cpp and ibdevx.cpp: strstr(name, NVSHMEM_HCA_PREFIX), up to 3.3 "mlx5" itself.
        reason += f"; IBGDA takes {odd[0]} only with NVSHMEM_HCA_PREFIX, since 3.4"
    yield JobAdvice(
        variable=JobVariable.NVSHMEM_HCA_LIST,
        value=given.value,
        library="NVSHMEM",
        since="1.0.1" if len(ports.ports) <= FEW else "3.3.9",
        reason=reason,
        source="NVIDIA/nvshmem 3.4.5 src/modules/transport/common/transport_common.cpp, env_defs.h",
    )
    mapping = vllm_mapping(snapshot, gpus, ports)
    source = "vllm-project/vllm 0.23.0 vllm/v1/executor/vllm_net_devices.py"
    yield JobAdvice(
        variable=JobVariable.VLLM_GPU_NIC_PCIE_MAPPING,
        value=mapping.value,
        library="vLLM",
        since="0.23.0",
        reason=mapping.reason,
        source=source,
    )
    if mapping.value is not None:
        yield JobAdvice(
            variable=NIC_SELECTION,
            value=vllm_selection(ports),
            library="vLLM",
            since="0.23.0",
            reason="vLLM takes the mapping only together with it",
            source=source,
        )


def _port(hca: Hca, number: int) -> HcaPort:
    return next(port for port in hca.ports if port.number == number)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
