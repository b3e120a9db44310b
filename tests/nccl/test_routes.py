"""NCCL's path types on machines small enough to follow its source by hand."""

import pytest
from msgspec.structs import replace

from nodetopo.model.gpu import Gpu, NvidiaDriver
from nodetopo.model.hca import Hca
from nodetopo.model.numa import CpuTopology
from nodetopo.model.nvlink import NvLink, P2pStatus, PeerAccess, PeerKind, ReportedPair
from nodetopo.model.pci import PciBridge, PcieLink
from nodetopo.model.snapshot import Kernel, Snapshot
from nodetopo.nccl.paths import NcclPath, NcclRoute
from nodetopo.nccl.routes import nccl_paths
from tests.nccl.nccl_machines import AMD, C2C, INTEL, kind, machine, nvlinks, to_switches
from tests.topology.trees import bus, gpu, hca


def test_the_order_is_that_of_nccl_since_2_27() -> None:
    words = "LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS NET DIS"
    assert [found.name for found in NcclPath] == words.split()
    assert [found.value for found in NcclPath] == list(range(12))


@pytest.mark.parametrize(
    ("near", "far", "expected"),
    [
        # root port 1, upstream 2, downstream 3 and 4
        (gpu(0, 1, 2, 3, 8), hca("mlx5_0", 1, 2, 4, 9), NcclPath.PIX),
        # a second switch (upstream 5) below the first
        (gpu(0, 1, 2, 3, 5, 6, 8), hca("mlx5_0", 1, 2, 4, 9), NcclPath.PXB),
        (gpu(0, 1, 2, 3, 5, 6, 8), hca("mlx5_0", 1, 2, 3, 5, 7, 9), NcclPath.PIX),
        # two root ports of one host bridge, two host bridges: no word of its own for NODE
        (gpu(0, 1, 8), hca("mlx5_0", 2, 9), NcclPath.PHB),
        (gpu(0, 1, 8), hca("mlx5_0", 2, 9, numa=1), NcclPath.SYS),
        # right at the host bridge
        (gpu(0, 8), hca("mlx5_0", 9), NcclPath.PHB),
        # firmware gives neither a node, or one of them
        (gpu(0, 1, 8, numa=None), hca("mlx5_0", 2, 9, numa=None), NcclPath.PHB),
        (gpu(0, 1, 8, numa=None), hca("mlx5_0", 2, 9), NcclPath.SYS),
    ],
)
def test_pcie_paths_count_switches_two_levels_of_sysfs_each(
    near: Gpu,
    far: Hca,
    expected: NcclPath,
) -> None:
    found = nccl_paths(machine(near, far))
    assert found["GPU0", "NIC0"].type is found["NIC0", "GPU0"].type is expected


def test_the_node_of_the_topmost_switch_decides_and_not_that_of_the_device() -> None:
    bridge = PciBridge(address=bus(2), numa_node=1)
    found = machine(gpu(0, 1, 2, 3, 8), hca("mlx5_0", 5, 9, numa=1), bridges=(bridge,))
    assert kind(found, "GPU0", "NIC0") == "PHB"
    assert kind(replace(found, bridges=()), "GPU0", "NIC0") == "SYS"


def test_a_route_names_its_nodes_and_the_narrowest_link() -> None:
    slow = PcieLink(max_generation=4, max_width=16)
    found = nccl_paths(machine(gpu(0, 1, 2, 3, 8), hca("mlx5_0", 1, 2, 4, 9, link=slow)))
    hops = ("GPU0", "PCI/0000:02:00.0", "NIC0")
    assert found["GPU0", "NIC0"] == NcclRoute(type=NcclPath.PIX, bandwidth_gbs=24.0, hops=hops)
    assert found["NIC0", "GPU0"].hops == hops[::-1]


def test_the_port_above_limits_a_link_as_much_as_the_device() -> None:
    port = PciBridge(address=bus(3), link=PcieLink(max_generation=3, max_width=16))
    found = machine(gpu(0, 1, 2, 3, 8), hca("mlx5_0", 1, 2, 4, 9), bridges=(port,))
    assert nccl_paths(found)["GPU0", "NIC0"].bandwidth_gbs == 12.0


@pytest.mark.parametrize(
    ("cpu", "kernel", "expected"),
    [
        (INTEL, None, 22.0),
        (AMD, None, 16.0),
        (None, None, None),
        (None, Kernel(machine="aarch64"), 6.0),
    ],
)
def test_across_sockets_the_cpu_limits(
    cpu: CpuTopology | None,
    kernel: Kernel | None,
    expected: float | None,
) -> None:
    plain = machine(gpu(0, 1, 8), hca("mlx5_0", 2, 9, numa=1))
    found = nccl_paths(replace(plain, cpu=cpu, kernel=kernel))
    assert found["GPU0", "NIC0"].bandwidth_gbs == expected


def test_an_unknown_rate_leaves_the_type_known_and_the_bandwidth_open() -> None:
    found = nccl_paths(machine(gpu(0, 1, 2, 3, 8), hca("mlx5_0", 1, 2, 4, 9, rates=(None,))))
    assert found["GPU0", "NIC0"].type is NcclPath.PIX
    assert found["GPU0", "NIC0"].bandwidth_gbs is None


def test_direct_nvlinks_add_up_and_one_gpu_may_stand_between() -> None:
    gpus = [gpu(at, 1 + at, 8 + at, capability=(7, 0)) for at in range(4)]
    chain = nvlinks((gpus[0], gpus[1], 2), (gpus[1], gpus[2], 1), (gpus[2], gpus[3], 1))
    found = nccl_paths(machine(*gpus, links=chain))
    assert found["GPU0", "GPU1"] == NcclRoute(
        type=NcclPath.NVL,
        bandwidth_gbs=40.0,
        hops=("GPU0", "GPU1"),
    )
    assert found["GPU0", "GPU2"] == NcclRoute(
        type=NcclPath.NVB,
        bandwidth_gbs=20.0,
        hops=("GPU0", "GPU1", "GPU2"),
    )
    assert found["GPU0", "GPU3"].type is NcclPath.PHB


def test_switches_are_one_node_whatever_links_lead_to_them() -> None:
    gpus = [gpu(at, 1 + at, 8 + at) for at in range(3)]
    links = to_switches(*gpus[:2]) + to_switches(gpus[2], count=17)
    found = nccl_paths(machine(*gpus, links=links))
    assert found["GPU0", "GPU1"].hops == ("GPU0", "NVS", "GPU1")
    assert found["GPU0", "GPU1"].bandwidth_gbs == pytest.approx(18 * 20.6)
    assert found["GPU2", "GPU0"].bandwidth_gbs == pytest.approx(17 * 20.6)


def test_nvlink_of_an_unknown_gpu_has_no_figure() -> None:
    gpus = [gpu(at, 1 + at, 8 + at, capability=None) for at in range(2)]
    found = nccl_paths(machine(*gpus, links=to_switches(*gpus)))
    assert found["GPU0", "GPU1"].type is NcclPath.NVL
    assert found["GPU0", "GPU1"].bandwidth_gbs is None


def test_nvlinks_to_the_cpu_join_two_gpus_of_one_socket() -> None:
    """POWER9: the CPU is one node on the way, and all steps are NVLink."""
    gpus = [gpu(at, 1 + at, 8 + at, capability=(7, 0)) for at in range(2)]
    links = tuple(
        NvLink(gpu=one.index, link=at, is_active=True, peer=bus(99), peer_kind=PeerKind.CPU)
        for one in gpus
        for at in range(3)
    )
    found = nccl_paths(machine(*gpus, links=links))
    assert found["GPU0", "GPU1"].hops == ("GPU0", "CPU/0", "GPU1")
    assert (found["GPU0", "GPU1"].type, found["GPU0", "GPU1"].bandwidth_gbs) == (NcclPath.NVL, 60.0)


def test_a_far_nic_is_reached_through_the_gpu_beside_it_when_sending_only() -> None:
    gpus = [gpu(0, 1, 2, 3, 8), gpu(1, 11, 12, 13, 18, numa=1)]
    nics = [hca("mlx5_0", 1, 2, 4, 9), hca("mlx5_1", 11, 12, 14, 19, numa=1)]
    found = nccl_paths(machine(*gpus, *nics, links=to_switches(*gpus)))
    assert found["GPU0", "NIC1"] == NcclRoute(
        type=NcclPath.PXN,
        bandwidth_gbs=48.0,
        hops=("GPU0", "NVS", "GPU1", "PCI/0000:0c:00.0", "NIC1"),
    )
    assert found["NIC1", "GPU0"].type is NcclPath.SYS
    assert found["GPU0", "NIC0"].type is NcclPath.PIX


def test_there_is_no_relay_without_nvlink_nor_past_a_cpu() -> None:
    gpus = [gpu(0, 1, 8), gpu(1, 11, 18, numa=1)]
    nic = hca("mlx5_0", 12, 19, numa=1)
    assert kind(machine(*gpus, nic), "GPU0", "NIC0") == "SYS"
    assert kind(machine(*gpus, nic, links=to_switches(*gpus)), "GPU0", "NIC0") == "SYS"


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        (None, "PIX"),
        (NvidiaDriver(), "PIX"),
        (NvidiaDriver(peer_memory=False, is_open=True), "PIX"),
        (NvidiaDriver(peer_memory=True, is_open=False), "PIX"),
        (NvidiaDriver(peer_memory=False), "PIX"),
        (NvidiaDriver(peer_memory=False, is_open=False), "PHB"),
    ],
)
def test_without_gpudirect_traffic_goes_through_the_cpu(
    driver: NvidiaDriver | None,
    expected: str,
) -> None:
    found = machine(gpu(0, 1, 2, 3, 8), hca("mlx5_0", 1, 2, 4, 9), nvidia=driver)
    assert kind(found, "GPU0", "NIC0") == kind(found, "NIC0", "GPU0") == expected


def test_a_denied_pair_goes_through_the_cpu() -> None:
    refused = PeerAccess(read=P2pStatus.OK, write=P2pStatus.CHIPSET_NOT_SUPPORTED)
    pair = ReportedPair(a="GPU0", b="GPU1", backward=refused)
    found = machine(gpu(0, 1, 2, 3, 8), gpu(1, 1, 2, 4, 9))
    assert kind(found, "GPU0", "GPU1") == "PIX"
    denied = nccl_paths(replace(found, pairs=(pair,)))
    assert denied["GPU0", "GPU1"].type is NcclPath.PHB
    assert denied["GPU0", "GPU1"].hops == (
        "GPU0",
        "PCI/0000:02:00.0",
        "CPU/0",
        "PCI/0000:02:00.0",
        "GPU1",
    )


def grace(*nics: Hca) -> Snapshot:
    """Two Grace superchips, each GPU at a host bridge of its own, joined by switches."""
    gpus = [replace(gpu(at, 1 + 20 * at, 8 + 20 * at, numa=at), c2c=C2C) for at in range(2)]
    kernel = Kernel(machine="aarch64")
    return machine(*gpus, *nics, links=to_switches(*gpus), cpu=None, kernel=kernel)


def test_c2c_and_pcie_to_the_nearest_nic_is_p2c() -> None:
    found = nccl_paths(grace(hca("mlx5_0", 2, 9), hca("mlx5_1", 22, 29, numa=1)))
    assert found["GPU0", "NIC0"] == NcclRoute(
        type=NcclPath.P2C,
        bandwidth_gbs=48.0,
        hops=("GPU0", "CPU/0", "NIC0"),
    )
    assert found["NIC0", "GPU0"].type is NcclPath.P2C
    assert found["GPU0", "NIC1"].type is NcclPath.PXN


def test_a_c2c_link_that_is_off_leaves_pcie() -> None:
    plain = grace(hca("mlx5_0", 2, 9))
    off = tuple(replace(one, c2c=replace(C2C, is_enabled=False)) for one in plain.gpus)
    assert kind(replace(plain, gpus=off), "GPU0", "NIC0") == "PHB"
