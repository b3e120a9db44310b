"""Parts that none of the stored machines has: made into a machine here, and found by the agent."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.model.gpu import ConfidentialCompute
from nodetopo.model.hca import Hca, HcaKind, NetDevice
from nodetopo.model.nvlink import P2pStatus, PeerAccess
from nodetopo.model.pci import IommuType
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.compose import hca_models, hcas, mig, processors
from tests.compose.answers import without_answers
from tests.compose.cards import GENOA_PORT, POWER9_PORT
from tests.compose.gpus import H100, V100_SXM2, gpus
from tests.compose.host import Host, host, with_memory_nodes
from tests.compose.machine import Machine
from tests.compose.nvml import nvml_text
from tests.compose.parts import Software, compose
from tests.compose.pci_tree import PciTree, build, leaf, port, root
from tests.compose.sysfs import host_text, sysfs_text, unpack_whole
from tests.compose.wiring import down, mesh, pairs
from tests.machines.pipeline import scan

Find = Callable[[Machine], Snapshot]
TEXTS = {"nvml.txt": nvml_text, "sysfs.txt": sysfs_text, "host.txt": host_text}


@pytest.fixture
def find(
    tmp_path: Path,
    fake_nvml_library: Path,
) -> Find:
    """Return a function from a machine to what the agent finds on it."""

    def found(machine: Machine) -> Snapshot:
        for name, text in TEXTS.items():
            (tmp_path / name).write_text(text(machine), "utf-8")
        unpack_whole(tmp_path, tmp_path / "host")
        return scan(tmp_path, tmp_path / "host", fake_nvml_library, node=machine.shape)

    return found


def described(machine: Machine) -> Snapshot:
    """Return what should be found."""
    return replace(without_answers(machine.snapshot), provenance=None)


def made(cpus: Host, tree: PciTree, *, devices: tuple[Hca, ...] = (), **parts: object) -> Machine:
    """Return a machine of these parts, nameless but for its shape."""
    given: dict[str, object] = {"gpus": (), "hcas": hcas.in_order(*devices), **parts}
    return compose(
        shape="parts",
        name=None,
        product_name=None,
        description="parts",
        sources=(),
        host=cpus,
        tree=tree,
        **given,  # type: ignore[arg-type]
    )


def genoa(**facts: object) -> Host:
    """Return a small host."""
    return host(processors.EPYC_9654, sockets=1, memory_mib=1000, **facts)  # type: ignore[arg-type]


def test_a_partitioned_gpu_is_found_with_its_instances(find: Find) -> None:
    cpus = genoa()
    tree = build(cpus, root(0, port(leaf("gpu0", H100.card)), model=GENOA_PORT))
    whole = gpus(H100, tree, cpus, series=1)[0]
    cut = mig.partitioned(whole, mig.H100_80, [("3g.40gb", 4), ("1g.10gb", 0)], is_pending=True)
    machine = made(cpus, tree, gpus=(cut,))
    assert find(machine) == described(machine)
    assert cut.mig is not None
    assert [it.profile for it in cut.mig.instances] == ["3g.40gb", "1g.10gb"]


def test_a_link_that_is_down_at_one_end_is_found_with_an_issue(find: Find) -> None:
    cpus = genoa()
    plugged = (port(leaf(f"gpu{at}", V100_SXM2.card)) for at in range(2))
    tree = build(cpus, root(0, *plugged, model=GENOA_PORT))
    both = gpus(V100_SXM2, tree, cpus, series=2)
    links = down(mesh(both, {(0, 1): 2}, version=2, links_per_gpu=3), (1, 0))
    refused = PeerAccess(read=P2pStatus.OK, write=P2pStatus.OK, nvlink=P2pStatus.DISABLED_BY_REGKEY)
    machine = made(
        cpus,
        tree,
        gpus=both,
        nvlinks=links,
        pairs=pairs(both, links, refused={(1, 0): refused}),
        issues=(
            ProbeIssue(
                probe="nvml",
                subject="GPU1 NVLink 0",
                reason="down here, up at its far end, NVLink 0 of GPU0",
            ),
            ProbeIssue(
                probe="nvml",
                subject="GPU0 GPU1 NVLink",
                reason="links up between them: 2 by GPU0, 1 by GPU1",
            ),
        ),
    )
    assert find(machine) == described(machine)
    assert machine.snapshot.pairs[0].p2p_nvlink is False


def test_a_bond_is_one_hca_for_both_functions_of_a_card(find: Find) -> None:
    cpus = genoa()
    card = hca_models.on_ethernet(hca_models.CONNECTX_7)
    functions = (leaf(f"nic{at}", card, function=at) for at in range(2))
    tree = build(cpus, root(0, port(*functions), model=GENOA_PORT))
    bond = hcas.roce(
        "mlx5_bond_0",
        tree["nic0"],
        hca_models.CONNECTX_7,
        number=0,
        netdev="ens1f0np0",
        address="10.0.0.1",
        bond="bond0",
    )
    other = NetDevice(name="ens1f1np1", mtu=9000, state="up", master="bond0")
    machine = made(cpus, tree, devices=(bond,), netdevs={"nic1": other})
    assert find(machine) == described(machine)
    assert bond.kind is HcaKind.BOND


def test_virtual_functions_and_subfunctions_name_their_function(find: Find) -> None:
    cpus = genoa()
    plugged = port(
        leaf("nic0", hca_models.on_ethernet(hca_models.CONNECTX_7)),
        leaf("vf0", hca_models.VIRTUAL_FUNCTION, function=2),
        leaf("vf1", hca_models.VIRTUAL_FUNCTION, function=3),
    )
    tree = build(cpus, root(0, plugged, model=GENOA_PORT), iommu=IommuType.DMA)

    def nic(name: str, number: int) -> Hca:
        return hcas.roce(
            name, tree["nic0"], hca_models.CONNECTX_7, number=number, netdev=f"eth{number}"
        )

    machine = made(
        cpus,
        tree,
        devices=(
            nic("rocep1s0f0", 0),
            hcas.virtual_function(nic("rocep1s0f0v0", 1), tree["vf0"], tree["nic0"]),
            hcas.virtual_function(nic("rocep1s0f0v1", 2), tree["vf1"], tree["nic0"]),
            hcas.subfunction(nic("rocep1s0f0S88", 3), tree["nic0"], 88),
        ),
    )
    assert find(machine) == described(machine)
    found = {hca.name: hca for hca in machine.snapshot.hcas or ()}
    assert found["rocep1s0f0v1"].parent == found["rocep1s0f0S88"].parent == tree["nic0"].pci


def test_an_efa_and_a_port_that_is_down_are_found(find: Find) -> None:
    cpus = genoa(is_virtual=True, governor=None)
    tree = build(
        cpus,
        root(
            0,
            port(leaf("efa0", hca_models.EFA_2.card)),
            port(leaf("nic0", hca_models.CONNECTX_7.card)),
            model=GENOA_PORT,
            node=None,
        ),
    )
    devices = (
        hcas.efa("rdmap1s0", tree["efa0"], number=1),
        hcas.infiniband("mlx5_0", tree["nic0"], hca_models.CONNECTX_7, number=0, state="DOWN"),
    )
    machine = made(
        cpus,
        tree,
        devices=devices,
        confidential_compute=ConfidentialCompute(is_enabled=True, is_dev_tools=False),
    )
    found = find(machine)
    assert [(hca.name, hca.numa_node) for hca in found.hcas or ()] == [
        ("rdmap1s0", 0),  # the only node there is, although firmware names none
        ("mlx5_0", 0),
    ]
    described_hcas = machine.snapshot.hcas or ()
    assert [hca.ports for hca in found.hcas or ()] == [hca.ports for hca in described_hcas]
    assert [port.counters for port in described_hcas[0].ports] == [{}]
    assert found.cpu == cpus.cpu
    assert found.confidential_compute == machine.snapshot.confidential_compute


def test_a_data_direct_function_serves_the_hcas_of_its_card(find: Find) -> None:
    cpus = genoa()
    tree = build(
        cpus,
        root(0, port(leaf("nic0", hca_models.CONNECTX_8.card)), model=GENOA_PORT),
        root(0x40, port(leaf("dd0", hca_models.DATA_DIRECT)), model=GENOA_PORT),
    )
    nic = hcas.infiniband("mlx5_0", tree["nic0"], hca_models.CONNECTX_8, number=0)
    served = (hcas.data_direct(tree["dd0"], "mlx5_0"),)
    machine = made(cpus, tree, devices=(nic,), data_directs=served)
    assert find(machine) == described(machine)


def test_power9_has_sparse_nodes_and_four_threads_a_core(find: Find) -> None:
    base = host(processors.POWER9, sockets=2, memory_mib=260_000, distances=(40, 40), ids=(0, 8))
    cpus = with_memory_nodes(
        base, memory_mib={254: 32_256, 255: 32_256}, distance_to={}, default=80
    )
    tree = build(
        cpus,
        root(0, port(leaf("gpu0", V100_SXM2.card)), model=POWER9_PORT, domain=4),
        root(0, port(leaf("gpu1", V100_SXM2.card)), model=POWER9_PORT, domain=0x35, node=8),
    )
    machine = made(
        cpus,
        tree,
        gpus=gpus(V100_SXM2, tree, cpus, series=9, memory_nodes=(255, 254)),
        software=Software(machine="ppc64le", is_open=False),
    )
    assert find(machine) == described(machine)
    assert str(cpus.cpu.cores[1]) == "4-7"
    assert [node.id for node in cpus.nodes] == [0, 8, 254, 255]
