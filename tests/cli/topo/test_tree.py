"""The tree: what hangs where, whichever source told it."""

import json
from typing import Any

from jsonschema import Draft202012Validator

from nodetopo.cli.topo.path import way
from nodetopo.cli.topo.tree import tree
from nodetopo.drawing.containment import BranchKind, containment
from nodetopo.drawing.hops import hops
from nodetopo.drawing.text import memory_nodes
from nodetopo.model.codec import encode
from nodetopo.model.gpu import Gpu
from nodetopo.model.pci import BridgeKind, PciAddress, PciBridge, PcieLink, PciPath
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.importers.topo_m import parse_topo_m
from tests.cli.conftest import Cli
from tests.cli.shapes import GEN5, collapsed, crowded, tray
from tests.cli.test_schema import SCHEMAS

MATRIX = """\
\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tSYS\tPIX\tSYS\t0-7\t0\t\tN/A
GPU1\tSYS\t X \tSYS\tPXB\t8-15\t1\t\tN/A
NIC0\tPIX\tSYS\t X \tSYS\t\t\t\t
NIC1\tSYS\tPXB\tSYS\t X \t\t\t\t
"""


def test_a_matrix_text_gives_groups_in_place_of_switches() -> None:
    assert [_names(node) for node in tree(parse_topo_m(MATRIX))] == [
        (0, [("PIX", [("GPU0", []), ("NIC0", [])])]),
        (1, [("PXB", [("GPU1", []), ("NIC1", [])])]),
    ]


def test_parts_of_devices_hang_below_them() -> None:
    branches = [inner for node in containment(crowded()) for inner in node.walk()]
    below = {branch.name: [part.name for part in branch.children] for branch in branches}
    assert below["NIC0"] == ["NIC2", "NIC3"]
    assert below["NIC1"] == []
    assert below["GPU1"] == ["1g.10gb", "1g.10gb"]


def test_an_hca_of_the_nvlink_fabric_is_marked(cli: Cli) -> None:
    out = cli("topo", "tree", "--snapshot", "-", stdin=encode(crowded())).out
    assert "mlx5_99 0000:ef:00.0 · manages NVLink, not for jobs" in out


def test_lost_gpus_and_mig_are_told(cli: Cli) -> None:
    out = cli("topo", "tree", "--snapshot", "-", stdin=encode(crowded())).out
    assert "NVIDIA H100 80GB HBM3 · lost" in out
    assert "├─ MIG 1g.10gb · GI 7 CI 0" in out


def test_nodes_of_gpu_memory_take_one_line_for_each_gpu() -> None:
    assert [str(group) for group in memory_nodes(tray())] == [
        "NUMA 2-9: GPU0's memory · 184 GiB",
        "NUMA 10-17: GPU1's memory · 184 GiB",
        "NUMA 18-25: GPU2's memory · 184 GiB",
        "NUMA 26-33: GPU3's memory · 184 GiB",
    ]
    assert [node["name"] for node in tree(tray())] == [0, 1]


def test_a_collapsed_tree_has_switches_without_host_bridges() -> None:
    assert [_names(node) for node in tree(collapsed())] == [
        (0, [("0000:16:00.0", [("GPU0", []), ("GPU1", [])])]),
        (1, [("0000:97:00.0", [("GPU2", [])])]),
    ]


def test_the_kind_of_a_bridge_counts_more_than_its_place() -> None:
    """A device below a second root port level, as in some virtual machines, has no switch."""
    address = [PciAddress(0, bus, 0, 0) for bus in range(4)]
    snapshot = Snapshot(
        gpus=(Gpu(index=0, pci=address[3], path=PciPath(root="pci0000:00", hops=(*address,))),),
        bridges=(
            PciBridge(address=address[0], kind=BridgeKind.ROOT_PORT),
            PciBridge(address=address[1], kind=BridgeKind.PCI_BRIDGE),
            PciBridge(address=address[2], kind=BridgeKind.UPSTREAM),
        ),
    )
    kinds = [branch.kind for branch in containment(snapshot)[0].walk()]
    assert kinds == [
        BranchKind.NUMA,
        BranchKind.ROOT,
        BranchKind.BRIDGE,
        BranchKind.SWITCH,
        BranchKind.GPU,
    ]


def test_the_json_of_every_shape_has_the_promised_form(cli: Cli) -> None:
    schema = json.loads((SCHEMAS / "topo-tree.json").read_text(encoding="utf-8"))
    for snapshot in (tray(), collapsed(), crowded(), parse_topo_m(MATRIX)):
        out = cli("topo", "tree", "--snapshot", "-", "-o", "json", stdin=encode(snapshot)).out
        Draft202012Validator(schema).validate(json.loads(out))


def test_the_way_inside_a_collapsed_switch_turns_there() -> None:
    snapshot = collapsed()
    found = hops(snapshot, snapshot.gpus[0], snapshot.gpus[1])
    assert [hop.what for hop in found or ()] == ["GPU0", "turns at switch", "GPU1"]


def test_the_way_between_collapsed_switches_crosses_the_cpus() -> None:
    snapshot = collapsed()
    found = hops(snapshot, snapshot.gpus[0], snapshot.gpus[2])
    assert [(hop.what, hop.numa) for hop in found or ()] == [
        ("GPU0", None),
        ("switch", None),
        ("CPU", 0),
        ("link between NUMA nodes", None),
        ("CPU", 1),
        ("switch", None),
        ("GPU2", None),
    ]


def test_of_both_ends_of_a_link_the_lesser_counts() -> None:
    port, gpu, other = (PciAddress(0, bus, 0, 0) for bus in range(3))
    narrow = PcieLink(generation=4, width=8, max_generation=4, max_width=8)
    snapshot = Snapshot(
        gpus=(
            Gpu(index=0, pci=gpu, path=PciPath(root="pci0000:00", hops=(port, gpu)), pcie=GEN5),
            Gpu(index=1, pci=other, path=PciPath(root="pci0000:00", hops=(other,)), pcie=GEN5),
        ),
        bridges=(PciBridge(address=port, kind=BridgeKind.ROOT_PORT, link=narrow),),
    )
    found = way(snapshot, *snapshot.gpus)["slowest"]
    assert (found["what"], found["ends"], found["link"], found["gb_per_s"]) == (
        "GPU0",
        ["gen5 x16", "gen4 x8"],
        "gen4 x8",
        15.8,
    )


def test_a_grace_gpu_names_its_link_to_the_cpu(cli: Cli) -> None:
    out = cli("topo", "path", "0", "2", "--snapshot", "-", stdin=encode(tray())).out
    assert "GPU0 to its CPU over NVLink-C2C (447 GB/s raw each way)" in out
    assert "link between sockets 0 and 1" in out


def test_a_link_that_nobody_reports_is_said_to_be_unknown(cli: Cli) -> None:
    text = encode(Snapshot(gpus=tuple(_linkless(bus) for bus in (1, 2))))
    out = cli("topo", "path", "0", "1", "--snapshot", "-", stdin=text).out
    assert out.count("link not reported") == 2


def _linkless(bus: int) -> Gpu:
    pci = PciAddress(0, bus, 0, 0)
    return Gpu(index=bus - 1, pci=pci, path=PciPath(root="pci0000:00", hops=(pci,)), numa_node=0)


def _names(branch: dict[str, Any]) -> tuple[Any, list[Any]]:
    return branch["name"], [_names(child) for child in branch["children"]]
