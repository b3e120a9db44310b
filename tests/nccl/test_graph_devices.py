"""NCCL's paths of devices that need a rule of their own."""

import pytest
from msgspec.structs import replace

from nodetopo.model.gpu import Gpu, Mig
from nodetopo.model.hca import DataDirect, Hca, HcaKind
from nodetopo.model.nvlink import ReportedPair
from nodetopo.model.pci import PciBridge, PcieLink
from nodetopo.nccl.paths import NcclPath, gdr_allowed
from nodetopo.nccl.routes import nccl_paths
from tests.nccl.nccl_machines import AMD, C2C, kind, machine, nvlinks, to_switches
from tests.topology.trees import bus, gpu, hca, path


def test_a_data_direct_function_stands_for_its_hcas() -> None:
    nics = (hca("mlx5_0", 2, 9), hca("mlx5_1", 2, 9, function=1))
    direct = DataDirect(path=path(1, 2, 4, 30), numa_node=0, hcas=("mlx5_0", "mlx5_1"))
    found = machine(gpu(0, 1, 2, 3, 8), *nics, data_directs=(direct,))
    assert kind(found, "GPU0", "NIC0") == kind(found, "GPU0", "NIC1") == "PIX"
    assert kind(replace(found, data_directs=None), "GPU0", "NIC0") == "PHB"


def broadcom(device: str, upper: str, lower: str) -> tuple[PciBridge, ...]:
    """Upstream port 2, and below it 5 and 15, of a Broadcom switch with these ids."""
    return tuple(
        PciBridge(
            address=bus(at),
            vendor="1000",
            device=device,
            subsystem_vendor="1000",
            subsystem_device=mode,
        )
        for at, mode in ((2, upper), (5, lower), (15, lower))
    )


@pytest.mark.parametrize(
    ("bridges", "expected"),
    [
        (broadcom("c010", "a096", "a064"), "PIX"),
        (broadcom("c030", "0072", "1003"), "PIX"),
        (broadcom("c030", "1003", "0072"), "PXB"),
        (broadcom("c010", "0096", "a064"), "PXB"),
        (broadcom("c040", "a096", "a064"), "PXB"),
        (tuple(replace(bridge, vendor="1001") for bridge in broadcom("c010", "a0", "a0")), "PXB"),
        ((), "PXB"),
    ],
)
def test_a_broadcom_switch_of_two_levels_is_one(
    bridges: tuple[PciBridge, ...],
    expected: str,
) -> None:
    found = machine(
        gpu(0, 1, 2, 3, 5, 6, 8),
        hca("mlx5_0", 1, 2, 4, 15, 16, 9),
        bridges=bridges,
    )
    assert kind(found, "GPU0", "NIC0") == expected


def test_a_merged_switch_keeps_the_links_of_both_levels() -> None:
    slow = PcieLink(max_generation=4, max_width=16)
    found = machine(
        gpu(0, 1, 2, 3, 5, 6, 8, link=slow),
        hca("mlx5_0", 1, 2, 4, 15, 16, 9),
        bridges=broadcom("c010", "a096", "a064"),
    )
    route = nccl_paths(found)["GPU0", "NIC0"]
    assert (route.bandwidth_gbs, len(route.hops)) == (24.0, 3)


def test_a_subfunction_hangs_below_the_first_cpu() -> None:
    """It is no PCI function for NCCL, wherever its parent sits."""
    sub = hca("mlx5_4", 1, 2, 4, 9, kind=HcaKind.SUBFUNCTION)
    assert kind(machine(gpu(0, 1, 2, 3, 8), sub), "GPU0", "NIC0") == "PHB"
    there = machine(gpu(0, 1, 8), gpu(1, 11, 18, numa=1), sub)
    assert kind(there, "NIC0", "GPU1") == "SYS"


def test_what_has_no_place_is_left_out() -> None:
    placed, lost = gpu(0, 1, 8), replace(gpu(1, 2, 9), is_lost=True)
    down = hca("mlx5_0", 3, 10)
    down = replace(down, ports=tuple(replace(port, state="DOWN") for port in down.ports))
    soft = replace(hca("rxe0", 3, 11), kind=HcaKind.SOFTWARE)
    found = machine(placed, lost, Gpu(index=2), down, soft, Hca(name="text"))
    assert nccl_paths(found) == {}


def test_unread_nvlinks_leave_out_what_they_could_better() -> None:
    gpus = [gpu(0, 1, 2, 3, 8), gpu(1, 11, 12, 13, 18)]
    found = replace(machine(*gpus, hca("mlx5_0", 1, 2, 4, 9)), nvlinks=None)
    assert {way: route.type.name for way, route in nccl_paths(found).items()} == {
        ("GPU0", "NIC0"): "PIX",
        ("NIC0", "GPU0"): "PIX",
        ("NIC0", "GPU1"): "PHB",
    }


def test_links_that_a_text_counts_are_as_good() -> None:
    gpus = [gpu(0, 1, 8), gpu(1, 11, 18)]
    pair = ReportedPair(a="GPU1", b="GPU0", nvlinks=12)
    found = replace(machine(*gpus, pairs=(pair,)), nvlinks=None)
    assert kind(found, "GPU0", "GPU1") == "NVL"


def test_a_gpu_in_mig_mode_has_no_nvlink() -> None:
    gpus = [gpu(0, 1, 8), replace(gpu(1, 11, 18), mig=Mig(is_enabled=True))]
    found = machine(*gpus, links=to_switches(*gpus))
    assert kind(found, "GPU0", "GPU1") == "PHB"


@pytest.mark.parametrize(
    ("path_type", "is_read", "capability", "has_nvlink", "expected"),
    [
        (NcclPath.PXB, False, 90, False, True),
        (NcclPath.P2C, True, 90, False, True),
        (NcclPath.PHB, False, 90, True, False),
        (NcclPath.PIX, True, 75, False, False),
        (NcclPath.PIX, True, 70, True, True),
        (NcclPath.PIX, False, 75, False, True),
        (NcclPath.PIX, True, None, False, True),
    ],
)
def test_gpudirect_depends_on_distance_and_reads_on_the_generation(
    path_type: NcclPath,
    is_read: bool,
    capability: int | None,
    has_nvlink: bool,
    expected: bool,
) -> None:
    allowed = gdr_allowed(path_type, is_read=is_read, capability=capability, has_nvlink=has_nvlink)
    assert allowed is expected


def test_two_gpus_of_an_amd_machine_reach_each_other_anywhere() -> None:
    """Then the best path stands; else it takes the way by the CPU that is the same here."""
    two = machine(gpu(0, 1, 8), gpu(1, 11, 18, numa=1), cpu=AMD)
    assert nccl_paths(two)["GPU0", "GPU1"].hops == ("GPU0", "CPU/0", "CPU/1", "GPU1")


def test_a_link_that_nobody_looked_at_is_unknown_and_one_without_speed_is_slow() -> None:
    """NCCL takes what sysfs does not state, as in virtual machines, for 16 lanes of Gen3."""
    found = machine(gpu(0, 1, 2, 3, 8), hca("mlx5_0", 11, 19))
    assert nccl_paths(found)["GPU0", "NIC0"].bandwidth_gbs is None
    looked = replace(found, bridges=(PciBridge(address=bus(2)),))
    assert nccl_paths(looked)["GPU0", "NIC0"].bandwidth_gbs == 12.0
    unread = replace(found.gpus[0], function=None, pcie=None)
    assert nccl_paths(replace(looked, gpus=(unread,)))["GPU0", "NIC0"].bandwidth_gbs is None


def test_a_third_level_of_broadcom_switches_stays() -> None:
    """NCCL merges a switch once, and marks the result."""
    ids = broadcom("c010", "a096", "a064")
    third = replace(ids[1], address=bus(25))
    found = machine(
        gpu(0, 1, 2, 3, 5, 6, 25, 26, 8),
        hca("mlx5_0", 1, 2, 3, 5, 7, 9),
        bridges=(*ids, third),
    )
    assert kind(found, "GPU0", "NIC0") == "PXB"


def test_the_cpu_of_a_gpu_is_its_own_though_a_bridge_makes_another_as_wide() -> None:
    here, there, beside = gpu(0, 1, 8), gpu(1, 11, 18, numa=1), gpu(2, 12, 19, numa=1)
    found = nccl_paths(machine(here, there, beside, links=nvlinks((here, there, 4))))
    assert found["GPU2", "GPU1"].hops == ("GPU2", "CPU/1", "GPU1")
    assert found["GPU2", "GPU0"].type is NcclPath.SYS
    assert found["GPU0", "GPU2"].type is NcclPath.PHB  # by NVLink to the far CPU


def test_a_narrow_gpu_sends_through_a_wide_one_below_the_same_switch() -> None:
    narrow = gpu(0, 1, 2, 3, 8, link=PcieLink(max_generation=3, max_width=16))
    wide = gpu(1, 1, 2, 5, 10)
    found = machine(narrow, wide, hca("mlx5_0", 1, 2, 4, 9), links=to_switches(narrow, wide))
    assert kind(found, "GPU0", "NIC0") == "PXN"
    assert kind(found, "NIC0", "GPU0") == kind(found, "GPU1", "NIC0") == "PIX"


def test_c2c_does_not_worsen_a_nic_on_the_gpus_own_switch() -> None:
    direct = DataDirect(path=path(1, 2, 4, 30), numa_node=0, hcas=("mlx5_0",))
    with_c2c = replace(gpu(0, 1, 2, 3, 8), c2c=C2C)
    found = machine(with_c2c, hca("mlx5_0", 5, 9), data_directs=(direct,))
    assert kind(found, "GPU0", "NIC0") == kind(found, "NIC0", "GPU0") == "PIX"
