"""Virtual machines at their places on the host, by NCCL's own rules of reading the file."""

from collections.abc import Sequence
from itertools import combinations

import pytest
from msgspec.structs import replace

from nodetopo.errors import InputError
from nodetopo.machines.bundled import machine, names
from nodetopo.model.gpu import Gpu, Virtualization
from nodetopo.model.hca import DataDirect, Hca, HcaKind
from nodetopo.model.numa import CpuSet, CpuTopology, NumaNode
from nodetopo.model.pci import PciAddress, PciBridge, PcieLink, PciPath
from nodetopo.model.presence import UnlistedGpu
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.guest import Match, on_host
from nodetopo.nccl.routes import nccl_paths
from nodetopo.nccl.xml import topology_xml
from tests.nccl.strict_parser import Node, complaints, read

NUMA: dict[str, tuple[NumaNode, ...]] = {
    "one": (NumaNode(id=0, cpus=CpuSet.parse("0-15")),),
    "two": (
        NumaNode(id=0, cpus=CpuSet.parse("0-7")),
        NumaNode(id=1, cpus=CpuSet.parse("8-15")),
    ),
}
EMULATED = PcieLink(max_generation=1, max_width=1)
MACHINES = [name for name in names() if machine(name).gpus]


def virtual(
    host: Snapshot,
    *,
    layout: str = "one",
    shows_numa: bool = False,
    gpus: Sequence[int] | None = None,
    is_reversed: bool = True,
) -> Snapshot:
    """A guest of *host*: bus ids by its own count, nothing above devices, another CPU model."""
    kept = [gpu for gpu in host.gpus if gpus is None or gpu.index in gpus]
    known = NUMA[layout]
    order = {node: at for at, node in enumerate(sorted({gpu.numa_node or 0 for gpu in host.gpus}))}

    def node(device: Gpu | Hca) -> int | None:
        return order.get(device.numa_node or 0, 0) % len(known) if shows_numa else None

    # The other way round than on the host, nothing agrees by its position. Functions of one card
    # stay together.
    devices: list[Gpu | Hca] = [*kept, *(host.hcas or ())]
    own = [device.pci for device in devices if device.pci is not None]
    cards = sorted({replace(pci, function=0) for pci in own}, reverse=is_reversed)
    places = {
        pci: PciAddress(0, 2 + cards.index(replace(pci, function=0)), 0, pci.function)
        for pci in own
    }

    def place(device: Gpu | Hca) -> PciAddress:
        assert device.pci is not None
        return places[device.pci]

    def path(device: Gpu | Hca) -> PciPath:
        return PciPath(root="pci0000:00", hops=(place(device),))

    numbers = {gpu.index: at for at, gpu in enumerate(kept)}
    return replace(
        host,
        gpus=tuple(
            replace(
                gpu,
                index=numbers[gpu.index],
                pci=place(gpu),
                path=path(gpu),
                numa_node=node(gpu),
                pcie=EMULATED,
                function=gpu.function and replace(gpu.function, link=EMULATED),
            )
            for gpu in kept
        ),
        hcas=host.hcas
        and tuple(
            replace(
                hca,
                name=f"rdma{at}",
                pci=place(hca),
                path=path(hca),
                numa_node=node(hca),
                function=hca.function and replace(hca.function, link=EMULATED),
            )
            for at, hca in enumerate(reversed(host.hcas))
        ),
        nvlinks=host.nvlinks
        and tuple(
            replace(
                link, gpu=numbers[link.gpu], peer=link.peer and places.get(link.peer, link.peer)
            )
            for link in host.nvlinks
            if link.gpu in numbers
        ),
        data_directs=None,
        bridges=(),
        numa_nodes=known,
        pci_gpus=None,
        cpu=CpuTopology(online=CpuSet.parse("0-15"), vendor="GenuineIntel", family=6),
    )


Way = tuple[str, ...]


def distances(snapshot: Snapshot) -> dict[frozenset[str], tuple[str, frozenset[Way]]]:
    """Return how NCCL sees each pair of devices, by UUID and GUID, from the file alone.

    PIX within one switch, PXB within several, PHB below one CPU, else SYS; and the links from
    the element that both are below down to each of them.
    """
    topology = read(topology_xml(snapshot))
    assert complaints(topology) == []
    assert topology.system is not None
    named = {str(gpu.pci): gpu.uuid or "" for gpu in snapshot.gpus}
    named |= {str(hca.pci): hca.node_guid or "" for hca in snapshot.hcas or ()}
    chains = {}
    for cpu in topology.system.children:
        for chain in _chains(cpu, ()):
            if (name := named.get(chain[-1].attributes.get("busid", ""))) is not None:
                chains[name] = chain
    return {frozenset((a, b)): _distance(chains[a], chains[b]) for a, b in combinations(chains, 2)}


def _chains(node: Node, above: tuple[Node, ...]) -> list[tuple[Node, ...]]:
    own = (*above, node)
    below = [child for child in node.children if child.tag == "pci"]
    return [own, *(chain for child in below for chain in _chains(child, own))]


def _distance(a: tuple[Node, ...], b: tuple[Node, ...]) -> tuple[str, frozenset[Way]]:
    common = next(
        (at for at, (one, two) in enumerate(zip(a, b, strict=False)) if one is not two),
        min(len(a), len(b)),
    )
    ways = frozenset(
        tuple(f"{n.attributes.get('link_speed')} x{n.attributes.get('link_width')}" for n in way)
        for way in (a[common:], b[common:])
    )
    if common == 0:
        return "SYS", ways
    if common == 1:
        return "PHB", ways
    return ("PIX" if max(len(a), len(b)) - common == 1 else "PXB"), ways


def by_identity(snapshot: Snapshot) -> dict[tuple[str, str], str]:
    """Return the types of NCCL's paths, by UUID and GUID."""
    named = {gpu.name: gpu.uuid or "" for gpu in snapshot.gpus}
    named |= {f"NIC{at}": hca.node_guid or "" for at, hca in enumerate(snapshot.hcas or ())}
    return {
        (named[a], named[b]): path.type.name
        for (a, b), path in nccl_paths(snapshot).items()
        if a in named and b in named
    }


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize(("layout", "shows_numa"), [("one", False), ("two", False), ("two", True)])
def test_a_guest_has_the_distances_of_its_host(name: str, layout: str, shows_numa: bool) -> None:
    host = replace(machine(name), data_directs=None)
    guest = virtual(host, layout=layout, shows_numa=shows_numa)
    found = on_host(guest, host)
    assert [match.device for match in found.matches if match.reason is not None] == []
    assert distances(found.snapshot) == distances(host)


@pytest.mark.parametrize("name", MACHINES)
def test_a_guest_in_the_hosts_order_has_its_paths(name: str) -> None:
    # The order decides between equal ways, such as the GPU that relays to a far HCA.
    host = replace(machine(name), data_directs=None)
    found = on_host(virtual(host, is_reversed=False), host)
    assert by_identity(found.snapshot) == by_identity(host)


def test_without_the_host_a_guest_has_one_distance() -> None:
    host = machine("dgx-h100")
    assert {kind for kind, _ in distances(virtual(host)).values()} == {"PHB"}
    assert {kind for kind, _ in distances(host).values()} == {"PXB", "PHB", "SYS"}


def test_switches_have_bus_ids_that_the_guest_has_not() -> None:
    host = machine("dgx-h100")
    guest = virtual(host)
    taken = {hop.domain for gpu in guest.gpus for hop in gpu.path.hops if gpu.path}  # type: ignore[union-attr]
    text = topology_xml(on_host(guest, host).snapshot)
    assert taken == {0}
    switches = [line for line in text.splitlines() if 'class="0x060400"' in line]
    assert switches
    assert all('busid="ffff:' in line for line in switches)
    odd = PciAddress(0xFFFF, 1, 0, 0)
    crowded = replace(guest, bridges=(PciBridge(address=odd),))
    assert 'busid="fffe:' in topology_xml(on_host(crowded, host).snapshot)


def test_devices_keep_bus_id_ports_and_nvlinks_of_the_guest() -> None:
    host = machine("dgx-h100")
    guest = virtual(host)
    before, after = topology_xml(guest), topology_xml(on_host(guest, host).snapshot)

    def lines(text: str, tag: str) -> list[str]:
        return sorted(line.strip() for line in text.splitlines() if line.strip().startswith(tag))

    for tag in ("<gpu", "<nvlink", "<net"):
        assert lines(after, tag) == lines(before, tag) != []
    assert {f'busid="{gpu.pci}"' in after for gpu in guest.gpus} == {True}


def test_data_direct_functions_follow_their_hcas() -> None:
    host, far = machine("dgx-h100"), PciAddress(1, 0x46, 0, 0)
    above = ((host.hcas or ())[0].path or PciPath(root=None, hops=())).hops[:-1]
    served = (host.hcas or ())[0].name
    there = DataDirect(pci=far, path=PciPath(root=None, hops=(*above, far)), hcas=(served,))
    own = PciAddress(0, 99, 0, 0)
    here = DataDirect(pci=own, path=PciPath(root=None, hops=(own,)), hcas=("rdma7",))
    strange = replace(here, pci=replace(own, bus=98), hcas=("other",))
    guest = replace(virtual(host), data_directs=(here, strange))
    found = on_host(guest, replace(host, data_directs=(there,))).snapshot
    moved, left = found.data_directs or ()
    assert moved.path == PciPath(
        root=None, hops=(*(replace(hop, domain=0xFFFF) for hop in above), own)
    )
    assert left == strange


# CPUs.


def _cpus(snapshot: Snapshot) -> list[tuple[str, str | None]]:
    system = read(topology_xml(snapshot)).system
    assert system is not None
    return [
        (cpu.attributes["numaid"], cpu.attributes.get("affinity"))
        for cpu in system.children
        if cpu.children
    ]


def test_numa_nodes_that_the_guest_shows_have_its_numbers_and_cpus() -> None:
    host = machine("dgx-h100")
    found = on_host(virtual(host, layout="two", shows_numa=True), host)
    assert _cpus(found.snapshot) == [("0", "000000ff"), ("1", "0000ff00")]
    assert found.remarks == ()


def test_numa_nodes_that_the_guest_mixes_up_have_all_its_cpus() -> None:
    host = machine("dgx-h100")
    found = on_host(virtual(host, layout="two"), host)
    assert _cpus(found.snapshot) == [("2", "0000ffff"), ("3", "0000ffff")]
    assert found.remarks == (
        (
            "the guest does not show which of its CPUs are on NUMA nodes 0, 1 of the host: NCCL "
            "does not bind threads to a part of them"
        ),
    )


def test_one_numa_node_of_the_guest_is_every_node_of_the_host() -> None:
    host = machine("dgx-h100")
    found = on_host(virtual(host), host)
    assert _cpus(found.snapshot) == [("0", "0000ffff"), ("1", "0000ffff")]
    assert [remark.partition(" of the host")[0] for remark in found.remarks] == [
        "the guest does not show which of its CPUs are on NUMA nodes 0, 1"
    ]


def test_a_guest_on_one_numa_node_needs_no_remark() -> None:
    host = machine("dgx-h100")
    guest = replace(virtual(host, gpus=(0, 1, 2, 3)), hcas=())
    found = on_host(guest, host)
    assert _cpus(found.snapshot) == [("0", "0000ffff")]
    assert found.remarks == ()


def test_nodes_that_trade_numbers_go_by_their_devices() -> None:
    host = machine("dgx-h100")
    guest = virtual(host, layout="two", shows_numa=True)
    flipped = replace(
        guest,
        gpus=tuple(replace(gpu, numa_node=1 - (gpu.numa_node or 0)) for gpu in guest.gpus),
        hcas=tuple(replace(hca, numa_node=1 - (hca.numa_node or 0)) for hca in guest.hcas or ()),
    )
    found = on_host(flipped, host)
    assert [gpu.numa_node for gpu in found.snapshot.gpus] == [1, 1, 1, 1, 0, 0, 0, 0]
    assert distances(found.snapshot) == distances(host)


def test_numa_nodes_that_were_not_read_are_said_to_be() -> None:
    host = machine("dgx-h100")
    found = on_host(replace(virtual(host), numa_nodes=None), host)
    assert found.remarks[0].startswith("the guest's NUMA nodes are not known")


def test_the_cpu_model_is_the_hosts() -> None:
    host = machine("dgx-a100")
    text = topology_xml(on_host(virtual(host), host).snapshot)
    assert 'vendor="AuthenticAMD" familyid="143"' in text


# Faults.


def test_a_snapshot_of_another_machine_is_refused() -> None:
    guest = virtual(machine("dgx-h100"))
    with pytest.raises(InputError, match="no device of the guest is one of the host's") as caught:
        on_host(guest, machine("dgx-a100"))
    assert "GPU0: the host has no GPU GPU-" in str(caught.value)


def test_a_host_whose_gpus_are_passed_through_already_is_called_that() -> None:
    host = machine("dgx-h100")
    held = tuple(UnlistedGpu(pci=gpu.pci, driver="vfio-pci") for gpu in host.gpus if gpu.pci)
    with pytest.raises(InputError, match="8 GPUs of the host are held by vfio-pci"):
        on_host(virtual(host), replace(host, gpus=(), hcas=(), unlisted_gpus=held))


def test_a_part_of_the_gpus_has_the_distances_of_that_part() -> None:
    host = machine("hgx-b200")
    found, wanted = (
        distances(on_host(virtual(host, gpus=(1, 4, 6)), host).snapshot),
        distances(host),
    )
    assert len(found) == 11 * 10 // 2
    assert found == {pair: wanted[pair] for pair in found}


def test_the_same_snapshot_twice_changes_nothing() -> None:
    host = machine("dgx-h100")
    found = on_host(host, host)
    assert found.snapshot == host
    assert found.remarks == (
        "the guest has the host's bus ids and switches: it needs no file from the host",
    )


def _with_hca(snapshot: Snapshot, at: int, **changes: object) -> Snapshot:
    hcas = list(snapshot.hcas or ())
    hcas[at] = replace(hcas[at], **changes)
    return replace(snapshot, hcas=tuple(hcas))


@pytest.mark.parametrize("own_guid", ["0000:0000:0000:0000", None, "0a0b:0c0d:0e0f:0001"])
def test_virtual_functions_go_by_their_card(own_guid: str | None) -> None:
    host = machine("dgx-h100")
    guest = virtual(host)
    for at in range(len(guest.hcas or ())):
        guest = _with_hca(guest, at, node_guid=own_guid, kind=HcaKind.VIRTUAL)
    found = on_host(guest, host)
    hosts = [hca.name for hca in reversed(host.hcas or ())]
    assert [(match.host, match.by) for match in found.matches[8:]] == [
        (name, "system-image GUID") for name in hosts
    ]
    assert [hca.numa_node for hca in found.snapshot.hcas or ()] == [
        hca.numa_node for hca in reversed(host.hcas or ())
    ]


def test_a_card_at_two_places_is_not_guessed() -> None:
    host = machine("dgx-h100")
    first = (host.hcas or ())[0].sys_image_guid
    host = _with_hca(host, 7, sys_image_guid=first)
    guest = _with_hca(virtual(host), 7, node_guid=None, sys_image_guid=first)
    names = [(host.hcas or ())[at].name for at in (0, 7)]
    assert on_host(guest, host).matches[-1] == Match(
        device="rdma7",
        reason=f"its system-image GUID is the one of the host's {names[0]} and {names[1]}, which "
        "are at different places",
    )


def test_guids_of_zeros_identify_nothing() -> None:
    host, zeros = machine("dgx-h100"), "0000:0000:0000:0000"
    blank = {"node_guid": zeros, "sys_image_guid": zeros}
    found = on_host(_with_hca(virtual(host), 0, **blank), _with_hca(host, 3, **blank))
    assert found.matches[8] == Match(device="rdma0", reason="its GUIDs are not known")


def test_two_hcas_of_one_node_guid_go_by_their_cards() -> None:
    host = machine("dgx-h100")
    guest = virtual(host)
    copied = (guest.hcas or ())[0].node_guid
    found = on_host(_with_hca(guest, 1, node_guid=copied), host)
    assert {match.by for match in found.matches[8:10]} == {"system-image GUID"}
    assert distances(found.snapshot).keys() <= distances(host).keys()


def test_a_node_guid_on_another_card_is_a_contradiction() -> None:
    host = machine("dgx-h100")
    guest = virtual(host)
    other = (guest.hcas or ())[1].sys_image_guid
    match = on_host(_with_hca(guest, 0, sys_image_guid=other), host).matches[8]
    assert match.host is None
    assert "and another system-image GUID" in (match.reason or "")


def _with_gpu(snapshot: Snapshot, at: int, **changes: object) -> Snapshot:
    gpus = list(snapshot.gpus)
    gpus[at] = replace(gpus[at], **changes)
    return replace(snapshot, gpus=tuple(gpus))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"uuid": None}, "its UUID is not known"),
        ({"uuid": "GPU-1"}, "the host has no GPU GPU-1"),
        (
            {"uuid": "GPU-1", "virtualization": Virtualization.VGPU},
            "the host has no GPU GPU-1: a vGPU has a UUID that its host does not list",
        ),
    ],
)
def test_a_gpu_without_a_counterpart_stays_and_says_why(
    changes: dict[str, object], reason: str
) -> None:
    host = machine("dgx-h100")
    guest = _with_gpu(virtual(host), 2, **changes)
    found = on_host(guest, host)
    assert found.matches[2] == Match(device="GPU2", reason=reason)
    assert found.snapshot.gpus[2] == guest.gpus[2]


def test_a_uuid_that_stands_twice_matches_nothing() -> None:
    host = machine("dgx-h100")
    guest = virtual(host)
    twice = guest.gpus[0].uuid
    for one, other in (
        (_with_gpu(guest, 1, uuid=twice), host),
        (guest, _with_gpu(host, 1, uuid=twice)),
    ):
        match = on_host(one, other).matches[0]
        assert match.host is None
        assert "have its UUID" in (match.reason or "")


def test_a_host_without_places_is_no_counterpart() -> None:
    host = machine("dgx-h100")
    found = on_host(virtual(host), _with_gpu(host, 0, path=None))
    assert found.matches[0].reason == "the place of the host's GPU0 in the PCI tree is not known"


def test_a_switch_without_a_link_is_said_to_count_as_slow() -> None:
    host = machine("dgx-h100")
    bare = replace(host, bridges=tuple(replace(bridge, link=None) for bridge in host.bridges or ()))
    remarks = on_host(virtual(host), bare).remarks
    assert remarks[-1].endswith("NCCL takes it for 8 GT/s and 16 lanes")
    assert remarks[-1].startswith("the link of 16 switches")


def test_cards_that_share_a_slot_of_the_guest_are_named() -> None:
    host = machine("dgx-h100")
    guest = virtual(host, layout="two", shows_numa=True)
    slot = (guest.hcas or ())[0].pci
    assert slot is not None
    beside = replace(slot, function=1)
    shared = _with_hca(guest, 1, pci=beside, path=PciPath(root=None, hops=(beside,)))
    (remark,) = on_host(shared, host).remarks
    assert remark.startswith(f"rdma0 and rdma1 are functions of {slot} in the guest and different")
    assert on_host(guest, host).remarks == ()
    # Functions of one card are one card for NCCL on the host, too.
    station = machine("ac922")
    assert "functions" not in " ".join(on_host(virtual(station), station).remarks)


def test_ports_that_are_down_are_not_matched() -> None:
    host = machine("dgx-h100")
    guest = virtual(host)
    down = tuple(replace(port, state="DOWN") for port in (guest.hcas or ())[0].ports)
    found = on_host(_with_hca(guest, 0, ports=down), host)
    assert "rdma0" not in {match.device for match in found.matches}
