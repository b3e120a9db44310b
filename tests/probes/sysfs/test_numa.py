"""NUMA nodes from sysfs."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodetopo.model.numa import CpuSet, HugePages, NumaNode
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.sysfs.numa import read_numa

POWER9 = """\
sys/devices/system/node/
  online = 0,8,255
sys/devices/system/node/node8/
  cpulist = 64-127
  distance = 40 10 80
  meminfo |
    |Node 8 MemTotal:       2048 kB
    |Node 8 MemFree:        1024 kB
sys/devices/system/node/node8/hugepages/hugepages-1048576kB/
  nr_hugepages = 4
  free_hugepages = 3
sys/devices/system/node/node8/hugepages/hugepages-2048kB/
  nr_hugepages = 0
  free_hugepages = 0
sys/devices/system/node/node0/
  cpulist = 0-63
  distance = 10 40 80
  meminfo = Node 0 MemTotal: 1024 kB
sys/devices/system/node/node255/
  cpulist =
  distance = 80 80 10
  meminfo = Node 255 MemTotal: 16515072 kB
"""


def test_sparse_ids_and_nodes_without_cpus_are_read_in_order_of_id(
    host_tree: Callable[[str], Path],
) -> None:
    assert read_numa(host_tree(POWER9) / "sys") == (
        (
            NumaNode(id=0, cpus=CpuSet.parse("0-63"), memory_mib=1, distances=(10, 40, 80)),
            NumaNode(
                id=8,
                cpus=CpuSet.parse("64-127"),
                memory_mib=2,
                distances=(40, 10, 80),
                hugepages=(
                    HugePages(size_kib=2048, total=0, free=0),
                    HugePages(size_kib=1048576, total=4, free=3),
                ),
            ),
            NumaNode(id=255, cpus=CpuSet(), memory_mib=16128, distances=(80, 80, 10)),
        ),
        (),
    )


def test_a_kernel_without_numa_is_none_and_an_issue(host_tree: Callable[[str], Path]) -> None:
    assert read_numa(host_tree("sys/\n") / "sys") == (
        None,
        (
            ProbeIssue(
                probe="numa",
                subject="devices/system/node",
                reason="the kernel lists no NUMA nodes",
            ),
        ),
    )


def test_broken_files_cost_their_own_field_only(host_tree: Callable[[str], Path]) -> None:
    broken = POWER9.replace("10 40 80", "near far").replace("Node 0 MemTotal: 1024 kB", "?")
    nodes, issues = read_numa(host_tree(broken) / "sys")
    assert nodes is not None
    assert (nodes[0], [issue.subject for issue in issues]) == (
        NumaNode(id=0, cpus=CpuSet.parse("0-63")),
        ["devices/system/node/node0/meminfo", "devices/system/node/node0/distance"],
    )


def test_nodes_that_are_offline_are_left_out(host_tree: Callable[[str], Path]) -> None:
    nodes, _ = read_numa(host_tree(POWER9.replace("0,8,255", "8,255")) / "sys")
    assert [node.id for node in nodes or ()] == [8, 255]


def test_without_a_list_of_online_nodes_those_that_are_there_count(
    host_tree: Callable[[str], Path],
) -> None:
    nodes, issues = read_numa(host_tree(POWER9.replace("online", "possible")) / "sys")
    assert ([node.id for node in nodes or ()], issues) == ([0, 8, 255], ())


def test_cpus_that_are_printed_as_a_mask_only_are_read(host_tree: Callable[[str], Path]) -> None:
    masks = POWER9.replace("cpulist = 64-127", "cpumap = 00000000,ffffffff,ffffffff,0,0")
    nodes, issues = read_numa(host_tree(masks) / "sys")
    assert nodes is not None
    assert (nodes[1].cpus, issues) == (CpuSet.parse("64-127"), ())


@pytest.mark.parametrize("mask", ["ffffffff,123456789", "ff,,1", "cpus", ",".join(["1"] * 2049)])
def test_a_mask_that_is_none_is_an_issue(mask: str, host_tree: Callable[[str], Path]) -> None:
    broken = POWER9.replace("cpulist = 64-127", f"cpumap = {mask}")
    nodes, issues = read_numa(host_tree(broken) / "sys")
    assert nodes is not None
    assert (nodes[1].cpus, issues[0].subject) == (CpuSet(), "devices/system/node/node8/cpumap")


def test_a_node_that_tells_no_cpus_is_an_issue(host_tree: Callable[[str], Path]) -> None:
    nodes, issues = read_numa(host_tree(POWER9.replace("cpulist = 64-127", "x = 1")) / "sys")
    assert nodes is not None
    assert (nodes[1].cpus, [issue.subject for issue in issues]) == (
        CpuSet(),
        ["devices/system/node/node8/cpulist"],
    )


FILES = ("cpulist", "cpumap", "meminfo", "distance", "hugepages/hugepages-2048kB/nr_hugepages")
"""What noise is written into; `online` stays, since noise there could take the node away."""


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FILES), st.binary(max_size=80)))
def test_no_bytes_in_any_file_break_it(tmp_path: Path, contents: dict[str, bytes]) -> None:
    place = tmp_path / "devices/system/node/node64"
    for name in FILES:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(contents.get(name, b"MemTotal: 1"))
    nodes, _ = read_numa(tmp_path)
    assert [node.id for node in nodes or ()] == [64]
