"""The join of NVML and sysfs, and what becomes of their disagreements."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.errors import NvmlUnavailable
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import ConfidentialCompute, Gpu
from nodetopo.model.kubelet import CONFIGZ, KubeletSettings
from nodetopo.model.numa import CpuSet
from nodetopo.model.nvlink import ReportedPair
from nodetopo.model.pci import PciAddress
from nodetopo.model.presence import UnlistedGpu
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.discover import Roots, discover, with_audit_facts
from nodetopo.probes.nvml.record import NvmlReading
from tests.compose.sysfs import unpack_whole
from tests.deviceplugin.machines import NODES

SHAPE = "l40sx4-pcie-2numa"
L40S = machine("l40s-pcie-4")
BARE = tuple(replace(gpu, path=None, numa_node=None, function=None) for gpu in L40S.gpus)
"""Its GPUs as NVML alone knows them."""

LAST = PciAddress.parse("0000:e1:00.0")

Unpacked = Callable[[str], Path]


def found(root: Path, nvml: Callable[[], NvmlReading] | None) -> Snapshot:
    """Return what is found below *root*, without the issues of the kubelet's probe."""
    roots = Roots(sysfs=root / "sys", procfs=root / "proc", host=root)
    snapshot = discover(roots, nvml, node="n", captured_at=None)
    issues = tuple(issue for issue in snapshot.issues if issue.probe != "kubelet")
    return replace(snapshot, issues=issues)


def unavailable() -> NvmlReading:
    """Play a node without a driver."""
    raise NvmlUnavailable("cannot load libnvidia-ml.so.1", "install the NVIDIA driver")


def test_gpus_get_their_place_from_sysfs(unpacked: Unpacked) -> None:
    snapshot = found(unpacked(SHAPE), lambda: NvmlReading(gpus=BARE))
    assert (snapshot.gpus, snapshot.issues) == (L40S.gpus, ())


def test_a_gpu_without_cpu_affinity_from_nvml_gets_that_of_sysfs(unpacked: Unpacked) -> None:
    bare = tuple(replace(gpu, cpu_affinity=None) for gpu in BARE)
    snapshot = found(unpacked(SHAPE), lambda: NvmlReading(gpus=bare))
    assert snapshot.gpus == L40S.gpus


def test_the_affinity_that_nvml_gives_is_kept(unpacked: Unpacked) -> None:
    cut = tuple(replace(gpu, cpu_affinity=CpuSet.of([0])) for gpu in BARE)
    snapshot = found(unpacked(SHAPE), lambda: NvmlReading(gpus=cut))
    assert {gpu.cpu_affinity for gpu in snapshot.gpus} == {CpuSet.of([0])}


def test_without_nvml_the_rest_is_found_and_the_gpus_are_counted(unpacked: Unpacked) -> None:
    snapshot = found(unpacked(SHAPE), unavailable)
    assert snapshot.pci_gpus == tuple(gpu.pci for gpu in BARE)
    assert (snapshot.gpus, snapshot.nvlinks, snapshot.numa_nodes, snapshot.issues) == (
        (),
        None,
        L40S.numa_nodes,
        (
            ProbeIssue(probe="nvml", subject="library", reason="cannot load libnvidia-ml.so.1"),
            ProbeIssue(
                probe="pcie", subject="4 NVIDIA GPUs on PCI", reason="NVML lists none of them"
            ),
        ),
    )


def test_nvml_that_was_not_asked_is_said_so(unpacked: Unpacked) -> None:
    snapshot = found(unpacked(SHAPE), None)
    assert [issue.reason for issue in snapshot.issues] == ["NVML was not asked about them"]


def test_a_gpu_that_nvml_does_not_list_is_named(unpacked: Unpacked) -> None:
    snapshot = found(unpacked(SHAPE), lambda: NvmlReading(gpus=BARE[:3]))
    assert snapshot.issues == (
        ProbeIssue(
            probe="pcie",
            subject="0000:e1:00.0",
            reason="an NVIDIA GPU on PCI that NVML does not list",
        ),
    )
    assert snapshot.unlisted_gpus == (UnlistedGpu(pci=LAST, driver="nvidia"),)


@pytest.mark.parametrize("driver", ["vfio-pci", None])
def test_the_driver_of_a_gpu_that_nvml_does_not_list_is_read(
    unpacked: Unpacked, driver: str | None
) -> None:
    root = unpacked(SHAPE)
    link = (root / "sys" / "bus" / "pci" / "devices" / str(LAST)).resolve() / "driver"
    link.unlink()
    if driver is not None:
        link.symlink_to(f"../../../../bus/pci/drivers/{driver}")
    snapshot = found(root, lambda: NvmlReading(gpus=BARE[:3]))
    assert snapshot.unlisted_gpus == (UnlistedGpu(pci=LAST, driver=driver),)


def test_without_an_answer_of_nvml_it_is_not_known_which_gpus_it_lacks(unpacked: Unpacked) -> None:
    assert found(unpacked(SHAPE), unavailable).unlisted_gpus == ()


def test_what_nvml_could_not_tell_stays_told(unpacked: Unpacked) -> None:
    issue = ProbeIssue(probe="nvml", subject="GPU0", reason="GPU is lost")
    snapshot = found(unpacked(SHAPE), lambda: NvmlReading(gpus=BARE, issues=(issue,)))
    assert snapshot.issues == (issue,)


def test_an_nvml_that_does_not_name_the_node_of_sysfs_is_an_issue(unpacked: Unpacked) -> None:
    near = tuple(replace(gpu, numa_affinity=(1,)) for gpu in BARE[:1])
    snapshot = found(unpacked(SHAPE), lambda: NvmlReading(gpus=(*near, *BARE[1:])))
    assert snapshot.issues == (
        ProbeIssue(
            probe="pcie",
            subject=f"{near[0].pci} numa_node",
            reason="sysfs says 0, NVML says 1",
        ),
    )


GRACE_MEMORY = """\
proc/driver/nvidia/gpus/0009:01:00.0/
  numa_status |
    |Node:                    1
    |Status:                  online
sys/bus/pci/devices/
  0009:01:00.0 -> ../../../devices/pci0009:00/0009:00:00.0/0009:01:00.0
sys/devices/pci0009:00/0009:00:00.0/0009:01:00.0/
  vendor = 0x10de
  class = 0x030200
  numa_node = 0
"""


@pytest.mark.parametrize(("told", "expected", "issues"), [(None, 1, 0), (1, 1, 0), (2, 2, 1)])
def test_the_node_of_a_gpu_s_memory_is_nvml_s_or_else_the_driver_s(
    host_tree: Callable[[str], Path], told: int | None, expected: int, issues: int
) -> None:
    gpu = Gpu(index=0, pci=PciAddress(9, 1, 0, 0), memory_numa_node=told)
    snapshot = found(host_tree(GRACE_MEMORY), lambda: NvmlReading(gpus=(gpu,)))
    disagreements = [issue for issue in snapshot.issues if "memory node" in issue.subject]
    assert (snapshot.gpus[0].memory_numa_node, len(disagreements)) == (expected, issues)


def test_every_part_of_the_reading_is_in_the_snapshot(unpacked: Unpacked) -> None:
    reading = NvmlReading(
        driver_version="1",
        nvml_version="2",
        cuda_version=(12, 4),
        confidential_compute=ConfidentialCompute(is_enabled=True),
        nvlinks=(),
        pairs=(ReportedPair(a="GPU0", b="GPU1"),),
    )
    snapshot = found(unpacked(SHAPE), lambda: reading)
    names = [
        name
        for name in reading.__struct_fields__
        if name not in ("gpus", "issues", "calls", "answers")
    ]
    assert [getattr(snapshot, n) for n in names] == [getattr(reading, n) for n in names]


def test_an_empty_host_gives_a_snapshot_of_issues(host_tree: Callable[[str], Path]) -> None:
    snapshot = found(host_tree("sys/\nproc/\n"), unavailable)
    pci = (snapshot.bridges, snapshot.nvswitches, snapshot.pci_gpus)
    unread = (*pci, snapshot.numa_nodes, snapshot.cpu)
    assert (unread, [issue.probe for issue in snapshot.issues]) == (
        (None,) * 5,
        ["nvml", "pcie", "numa", "cpu"],
    )


@pytest.mark.parametrize("shape", ["a100x4-nv4-4numa-2cx", "b200x8-nvswitch-2numa-8cx7"])
def test_with_the_facts_of_audits_it_is_what_a_whole_reading_is(
    unpacked: Unpacked, shape: str
) -> None:
    root = unpacked(shape)
    roots = Roots(sysfs=root / "sys", procfs=root / "proc", host=root)

    def scan(*, counters: bool) -> Snapshot:
        return discover(roots, NvmlReading, node="n", captured_at=None, counters=counters)

    assert scan(counters=False) != scan(counters=True)
    assert with_audit_facts(scan(counters=False), roots) == scan(counters=True)


def test_a_kubelets_own_answer_stays_when_its_files_are_read_again(tmp_path: Path) -> None:
    unpack_whole(NODES / "h100x8-nvswitch-2numa-8cx7", tmp_path)
    roots = Roots(sysfs=tmp_path / "sys", procfs=tmp_path / "proc", host=tmp_path)
    read = discover(roots, NvmlReading, node="n", captured_at=None, counters=True)
    assert read.kubelet is not None
    told = KubeletSettings(source=CONFIGZ, topology_manager_policy="none")
    found = with_audit_facts(replace(read, kubelet=told, kubelet_on_disk=None, issues=()), roots)
    assert (found.kubelet, found.kubelet_on_disk) == (told, read.kubelet_on_disk)
    stale = replace(told, source="file")
    assert with_audit_facts(replace(read, kubelet=stale, issues=()), roots).kubelet == read.kubelet
