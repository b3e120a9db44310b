"""The rules on NUMA nodes of HCAs, of GPU memory, and of sockets."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.hca import HcaKind
from nodetopo.model.numa import CpuSet, NumaNode
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import healthy, result, with_gpu


def with_homeless_hca(kind: HcaKind) -> Snapshot:
    whole = healthy()
    first, *rest = whole.hcas or ()
    return replace(whole, hcas=(replace(first, numa_node=None, kind=kind), *rest))


def test_an_hca_without_a_node_is_a_warning() -> None:
    found = result("NUM-002", with_homeless_hca(HcaKind.PHYSICAL))
    assert (found.verdict, found.findings) == (
        Verdict.WARN,
        (Finding(subject="mlx5_0 0000:18:00.0", observed="no node", expected="a node number"),),
    )


def test_a_software_device_has_no_node() -> None:
    assert result("NUM-002", with_homeless_hca(HcaKind.SOFTWARE)).verdict is Verdict.PASS


@pytest.mark.parametrize(("part", "missing"), [("hcas", "HCAs"), ("numa_nodes", "NUMA nodes")])
def test_unread_hcas_or_nodes_are_unknown(part: str, missing: str) -> None:
    blind = replace(healthy(), **{part: None})
    assert result("NUM-002", blind).missing == (missing,)


def test_on_a_single_node_no_device_needs_to_tell() -> None:
    single = replace(healthy(), numa_nodes=(healthy().numa_nodes or ())[:1])
    codes = ("NUM-001", "NUM-002", "NUM-004")
    assert {result(code, single).skipped for code in codes} == {"one NUMA node"}


def test_memory_of_a_grace_gpu_that_the_kernel_hands_out_is_a_remark() -> None:
    found = result("NUM-003", healthy("gb200-nvl72"))
    assert (found.verdict, found.findings[0], len(found.findings)) == (
        Verdict.PASS,
        Finding(
            subject="GPU0 0008:01:00.0",
            observed="memory without CPUs is NUMA node 2",
            expected="GPU memory under the driver alone",
        ),
        4,
    )


def test_memory_under_the_driver_passes() -> None:
    tray = healthy("gb200-nvl72")
    nodes = tuple(node for node in tray.numa_nodes or () if node.cpus)
    own = replace(
        tray,
        numa_nodes=nodes,
        gpus=tuple(replace(gpu, memory_numa_node=None) for gpu in tray.gpus),
    )
    found = result("NUM-003", own)
    assert (found.verdict, found.findings, found.skipped) == (Verdict.PASS, (), None)


def test_a_node_whose_gpu_is_not_known_is_named_by_its_number() -> None:
    tray = with_gpu(healthy("gb200-nvl72"), 0, lambda gpu: replace(gpu, memory_numa_node=None))
    assert result("NUM-003", tray).findings[0].subject == "NUMA node 2"


def test_a_node_without_memory_that_waits_for_mig_devices_is_no_matter() -> None:
    tray = healthy("gb200-nvl72")
    waiting = NumaNode(id=99, cpus=CpuSet(), memory_mib=0)
    more = replace(tray, numa_nodes=(*(tray.numa_nodes or ()), waiting))
    assert len(result("NUM-003", more).findings) == 4


def test_a_gpu_on_arm_that_does_not_tell_its_link_is_unknown() -> None:
    tray = healthy("gb200-nvl72")
    silent = replace(tray, gpus=tuple(replace(gpu, c2c=None) for gpu in tray.gpus))
    assert result("NUM-003", silent).missing == ("link to the CPU of GPU0, GPU1, GPU2, GPU3",)
    assert result("NUM-003", healthy()).skipped == "no GPU linked to a Grace CPU"


def test_sockets_in_several_nodes_are_remarked_on() -> None:
    found = result("NUM-004", healthy("dgx-a100"))
    assert (found.verdict, found.findings) == (
        Verdict.PASS,
        tuple(
            Finding(subject=f"socket {socket}", observed="4 NUMA nodes", expected="one")
            for socket in (0, 1)
        ),
    )


def test_grace_sockets_are_one_node_each_whatever_their_gpus_memory_is() -> None:
    found = result("NUM-004", healthy("gb200-nvl72"))
    assert (found.verdict, found.findings, found.missing) == (Verdict.PASS, (), ())


def test_unread_sockets_are_unknown() -> None:
    assert result("NUM-004", replace(healthy(), cpu=None)).missing == ("CPU sockets",)
