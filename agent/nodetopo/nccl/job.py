"""The variables that tell a job which NIC belongs to which GPU.

None of them is ever guessed: what would not be right is left out, and the library then looks for
itself, as it does without the variable. Where each is read, and how:

* ``NCCL_IB_HCA``: NVIDIA/nccl 2.30.7, ``src/transport/net_ib/init.cc`` and ``src/misc/utils.cc``
  (``parseStringList``, ``matchIfList``): names by comma, each with its port; ``=`` before them
  stands for exactly these, as ``mlx5_1`` alone is also the beginning of ``mlx5_10``.
* ``UCX_NET_DEVICES``: openucx/ucx 1.22, ``src/ucp/core/ucp_context.c``: ``name:port`` by comma, of
  which the order means nothing.
* ``NVSHMEM_HCA_LIST``: NVIDIA/nvshmem 3.4.5, ``src/modules/transport/common``
  (``nvshmemt_parse_hca_list``): ``name:port`` by comma. It filters the HCAs whatever
  ``NVSHMEM_ENABLE_NIC_PE_MAPPING`` says (``ibrc.cpp``), though the documentation asks for 1. That
  is left alone: with 1 the PEs get the HCAs one after the other as libibverbs numbers them,
  without it each gets the nearest (``src/host/transport/transport.cpp``). For the same reason
  there is no ``NVSHMEM_HCA_PE_MAPPING``.
* ``VLLM_GPU_NIC_PCIE_MAPPING``: vllm-project/vllm 0.23,
  ``vllm/v1/executor/vllm_net_devices.py``: ``GPU=NIC`` by comma, both as PCI addresses. A worker
  whose GPU is not in it ends with an error, and so does every worker where
  ``VLLM_NIC_SELECTION_VARS`` is not set alongside it.

GPUs stand in the order of their PCI addresses. A container numbers those that it sees from 0 in
this order: CUDA with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``, and by default (``FASTEST_FIRST``) where
they are alike (CUDA C++ Programming Guide, "CUDA Environment Variables"); NVML promises none
(nvml.h, ``nvmlDeviceGetHandleByIndex``). So no value here depends on it: vLLM's names addresses,
which are the same in a container.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import ACTIVE, Hca, HcaKind, LinkLayer
from nodetopo.model.nvlink import Closeness
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot

if TYPE_CHECKING:
    from nodetopo.rdma.pairing import Pairing

NIC_SELECTION = "VLLM_NIC_SELECTION_VARS"
"""The variables that vLLM sets for each worker: ``NAME:suffix`` by comma."""

MOST_HCAS = 32
"""Entries of a list that every reader takes: NCCL 32 (``MAX_IB_DEVS``; 16 up to 2.18.3),
NVSHMEM 48 (``MAX_NUM_HCAS``; 16 up to 3.2). What is beyond would be left out silently."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}")
"""A name that means itself to every reader: 64 bytes are room for a name (NCCL ``struct netIf``,
NVSHMEM ``nvshmemt_hca_info``), and lists end at commas, names at colons."""


class JobVariable(StrEnum):
    """The variables that can be set for a container. Values are their names."""

    NCCL_IB_HCA = "NCCL_IB_HCA"
    UCX_NET_DEVICES = "UCX_NET_DEVICES"
    NVSHMEM_HCA_LIST = "NVSHMEM_HCA_LIST"
    VLLM_GPU_NIC_PCIE_MAPPING = "VLLM_GPU_NIC_PCIE_MAPPING"


class JobValue(Struct, frozen=True, kw_only=True):
    """The value of a variable, with the reason."""

    value: str | None  # None: it must not be set
    reason: str  # a clause without full stop


class JobPorts(Struct, frozen=True, kw_only=True):
    """The ports of a job's HCAs that a list names, by PCI address."""

    ports: tuple[tuple[Hca, int], ...] = ()  # (HCA, number of the port); empty with a `problem`
    layer: LinkLayer | None = None  # of all of them
    problem: str = ""
    remarks: tuple[str, ...] = ()  # a clause for each HCA or port not in the list

    @property
    def names(self) -> tuple[str, ...]:
        """``mlx5_0:1`` for each port."""
        return tuple(f"{hca.name}:{number}" for hca, number in self.ports)


def container_variables(
    snapshot: Snapshot,
    gpus: Sequence[Gpu],
    hcas: Sequence[Hca],
    wanted: Collection[JobVariable],
    *,
    pairing: "Pairing | None" = None,
    are_gpus_certain: bool = True,
) -> Mapping[str, str]:
    """Return the variables of a container that got *gpus* and *hcas*, by name.

    The *wanted* variables that can be set, in their order; with vLLM's also the one that it
    requires (:data:`NIC_SELECTION`), and not UCX's, whose list would make it void.

    Args:
        gpus: empty if unknown, or not known yet: variables that need them are then left out.
        hcas: of *snapshot*, or of an older one: an HCA that was renamed goes by its present name.
        pairing: of *snapshot*, where one is at hand; its distances take longer than the rest.
        are_gpus_certain: ``False`` if *gpus* are a guess, such as the GPUs of the latest container.
            vLLM's mapping then has the other GPUs of the node too, each with the nearest of *hcas*:
            a worker whose GPU is missing would end with an error.
    """
    if not wanted:
        return {}
    ports = job_ports(snapshot, hcas)
    found: dict[str, str] = {}
    for variable in JobVariable:
        if variable not in wanted:
            continue
        if variable is not JobVariable.VLLM_GPU_NIC_PCIE_MAPPING:
            given = port_list(variable, ports)
        else:
            given = vllm_mapping(snapshot, gpus, ports, pairing, are_gpus_certain=are_gpus_certain)
        if given.value is not None:
            found[variable.value] = given.value
            if variable is JobVariable.VLLM_GPU_NIC_PCIE_MAPPING:
                found[NIC_SELECTION] = vllm_selection(ports)
                found.pop(JobVariable.UCX_NET_DEVICES, None)  # which vLLM sets for each worker
    return found


def job_ports(snapshot: Snapshot, hcas: Sequence[Hca]) -> JobPorts:
    """Return the ACTIVE ports of *hcas*, all of one link layer, or why there is no list of them.

    A list shuts out what it does not name. So an HCA whose state is not known, or a second link
    layer, is a reason for none at all, while ports that are down are left out: no library uses
    them.
    """
    if not hcas:
        return JobPorts(problem="there is no HCA for the job")
    if snapshot.hcas is None:
        return JobPorts(problem="the node's HCAs are not known")
    now = [(hca, _present(snapshot, hca)) for hca in hcas]
    if gone := [before.name for before, hca in now if hca is None]:
        return JobPorts(problem=f"{_listed(gone)} {_is(gone)} not on the node any more")
    present = {hca.name: hca for _, hca in now if hca is not None}
    remarks = [
        f"{before.name} is now called {hca.name}"
        for before, hca in now
        if hca is not None and hca.name != before.name
    ]
    if odd := [name for name in present if _NAME.fullmatch(name) is None]:
        return JobPorts(problem=f"a list cannot hold the name {odd[0]!r}")
    ordered = sorted(present.values(), key=lambda hca: hca.pci_order)
    if fabric := [hca.name for hca in ordered if is_efa(hca)]:
        speaks = f"{_is(fabric)} EFA, which speaks neither InfiniBand nor RoCE"
        return JobPorts(problem=f"{_listed(fabric)} {speaks}")
    unknown = [
        hca.name
        for hca in ordered
        if not hca.ports or any(port.state is None or port.layer is None for port in hca.ports)
    ]
    if unknown:
        return JobPorts(problem=f"the ports of {_listed(unknown)} are not known")
    every = [(hca, port) for hca in ordered for port in hca.ports]
    remarks += [
        f"{hca.name}:{port.number} is {port.state}" for hca, port in every if port.state != ACTIVE
    ]
    active = [(hca, port) for hca, port in every if port.state == ACTIVE]
    if not active:
        return JobPorts(problem=f"no port is ACTIVE: {_listed(remarks)}", remarks=tuple(remarks))
    layers = {port.layer: f"{hca.name}:{port.number}" for hca, port in reversed(active)}
    if len(layers) > 1:
        which = " and ".join(f"{name} speaks {layer}" for layer, name in sorted(layers.items()))
        return JobPorts(problem=f"{which}, which do not reach each other", remarks=tuple(remarks))
    if len(active) > MOST_HCAS:
        return JobPorts(
            problem=f"{len(active)} ports are ACTIVE, and lists hold {MOST_HCAS}",
            remarks=tuple(remarks),
        )
    return JobPorts(
        ports=tuple((hca, port.number) for hca, port in active),
        layer=next(iter(layers)),
        remarks=tuple(remarks),
    )


def is_efa(hca: Hca) -> bool:
    """Return whether *hca* is an Elastic Fabric Adapter, by its driver."""
    return hca.function is not None and hca.function.driver == "efa"


def port_list(variable: JobVariable, ports: JobPorts) -> JobValue:
    """Return one of the three variables that list ports."""
    if ports.problem:
        return JobValue(value=None, reason=ports.problem)
    sign = "=" if variable is JobVariable.NCCL_IB_HCA else ""
    count = len(ports.ports)
    reason = "; ".join(
        (f"{count} ACTIVE {ports.layer} port{'s' * (count > 1)} of the job's HCAs", *ports.remarks)
    )
    return JobValue(value=sign + ",".join(ports.names), reason=reason)


def vllm_mapping(
    snapshot: Snapshot,
    gpus: Sequence[Gpu],
    ports: JobPorts,
    pairing: "Pairing | None" = None,
    *,
    are_gpus_certain: bool = True,
) -> JobValue:
    """Return the NIC of every GPU as vLLM reads it; all of *gpus* are in it, or there is none.

    See :func:`container_variables` for *are_gpus_certain*.
    """
    if not gpus:
        return JobValue(value=None, reason="the job's GPUs are not known")
    if ports.problem:
        return JobValue(value=None, reason=ports.problem)
    first = _first_ports(ports)
    problem = _vllm_problem(snapshot, gpus, first)
    if problem:
        return JobValue(value=None, reason=problem)
    # Loaded for those who want it: it imports the rest of nodetopo.rdma and nodetopo.topology.
    from nodetopo.rdma.pairing import Pairing  # noqa: PLC0415

    pairing = pairing or Pairing(snapshot=snapshot)
    positions = {gpu.index: at for at, gpu in enumerate(snapshot.gpus)}
    places = {hca.name: at for at, hca in enumerate(snapshot.hcas or ())}
    own = sorted(positions[gpu.index] for gpu in gpus)
    cards = [places[hca.name] for hca, _ in first]
    pairs = pairing.matched(own, cards)
    if not are_gpus_certain:
        others = [
            at for at, gpu in enumerate(snapshot.gpus) if at not in own and gpu.pci is not None
        ]
        spare = [pair for at in others for pair in pairing.matched([at], cards)]
        pairs = (*pairs, *(pair for pair in spare if pair.closeness is not None))
    entries: list[tuple[PciAddress, str]] = []
    distances = []
    for pair in pairs:
        gpu, hca = snapshot.gpus[pair.gpu], (snapshot.hcas or ())[pair.hca]
        if pair.closeness is None or gpu.pci is None:
            reason = f"how far {gpu.name} is from {hca.name} is not known"
            return JobValue(value=None, reason=reason)
        if pair.closeness > Closeness.PXB and is_virtual_machine(snapshot):
            reason = f"this virtual machine may hide which HCA is nearest to {gpu.name}"
            return JobValue(value=None, reason=reason)
        entries.append((gpu.pci, f"{gpu.pci}={hca.pci}"))
        distances.append(f"{gpu.name} {hca.name} {pair.closeness.name}")
    return JobValue(
        value=",".join(entry for _, entry in sorted(entries)), reason=", ".join(distances)
    )


def vllm_selection(ports: JobPorts) -> str:
    """Return the variables for vLLM to set: UCX's alone.

    NCCL and NVSHMEM give each GPU its nearest NIC by themselves, and NCCL needs the others for
    its relays (PXN). vLLM puts the worker's NIC before what a variable holds already
    (``NIC,value``), and UCX uses all of a list, so the variable must not hold any.
    """
    return f"{JobVariable.UCX_NET_DEVICES}:{_first_ports(ports)[0][1]}"


def is_virtual_machine(snapshot: Snapshot) -> bool:
    """Return whether the node is surely a virtual machine, which can hide switches."""
    by_cpu = snapshot.cpu is not None and snapshot.cpu.is_virtual
    by_host = snapshot.host is not None and snapshot.host.is_vm
    return bool(by_cpu or by_host)


def _vllm_problem(snapshot: Snapshot, gpus: Sequence[Gpu], first: Sequence[tuple[Hca, int]]) -> str:
    """Return why vLLM cannot be given a mapping to the *first* ports; empty where it can."""
    known = {gpu.index for gpu in snapshot.gpus if gpu.pci is not None}
    if strange := [gpu.name for gpu in gpus if gpu.index not in known]:
        return f"the PCI address of {_listed(strange)} is not known"
    numbers = {number for _, number in first}
    if len(numbers) > 1:
        named = _listed([f"{hca.name}:{number}" for hca, number in first])
        return f"vLLM takes one port number for all, and the ports are {named}"
    for hca, _ in first:
        # vLLM looks for the first name whose device is at the address (rdma_name_for_nic_pci).
        there = sorted(
            other.name
            for other in snapshot.hcas or ()
            if other.pci == hca.pci and other.kind is not HcaKind.SUBFUNCTION
        )
        if hca.pci is None or hca.kind is HcaKind.SUBFUNCTION or there[0] != hca.name:
            return f"{hca.name} has no PCI address of its own, by which vLLM finds it"
    return ""


def _first_ports(ports: JobPorts) -> tuple[tuple[Hca, int], ...]:
    return tuple({hca.name: (hca, number) for hca, number in reversed(ports.ports)}.values())[::-1]


def _present(snapshot: Snapshot, given: Hca) -> Hca | None:
    """Return what *given* is in *snapshot*, by its name and place; ``None``: it is gone.

    Names can change (``rdma dev set``, udev) and be taken over by another HCA, so where both know
    a PCI address that decides, and the name only among HCAs that share the address.
    """
    here = [hca for hca in snapshot.hcas or () if _is_same_place(hca, given)]
    same = [hca for hca in here if hca.name == given.name]
    if same:
        return same[0]
    return here[0] if len(here) == 1 and given.pci is not None else None


def _is_same_place(hca: Hca, given: Hca) -> bool:
    return (hca.pci, hca.subfunction) == (given.pci, given.subfunction)


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _listed(names: Sequence[str]) -> str:
    """Return up to four names, and how many more there are."""
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
