"""Derived levels beside what nvidia-smi printed on the same or the same kind of machine.

docs/internals/topology.md lists every difference; this holds them to that list.
"""

from collections import Counter
from pathlib import Path

from msgspec.structs import replace

from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.pci import PciAddress, PciPath
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.importers.nccl_xml import parse_nccl_xml
from nodetopo.tools.importers.topo_m import parse_topo_m
from nodetopo.topology.matrix import Matrix, matrix
from tests.topology import hwloc_tree


def printed(corpus: Path, name: str) -> Matrix:
    """The matrix that nvidia-smi printed."""
    return matrix(parse_topo_m((corpus / "topo-m" / name).read_text("utf-8")))


def below(root: str, *hops: str) -> PciPath:
    """The path of a device, root port first."""
    return PciPath(root=root, hops=tuple(PciAddress.parse(f"0000:{hop}") for hop in hops))


def differences(ours: Matrix, theirs: Matrix) -> Counter[tuple[str | None, str | None]]:
    """How often we say one word and nvidia-smi another."""
    assert len(ours.devices) == len(theirs.devices)
    return Counter(
        (mine, other)
        for row, other_row in zip(ours.cells, theirs.cells, strict=True)
        for mine, other in zip(row, other_row, strict=True)
        if mine != other
    )


def test_every_cell_of_the_wrx90_follows_from_its_lspci(corpus: Path) -> None:
    tree = (corpus / "pci" / "stelline-wrx90-lspci-tv.txt").read_text("utf-8")
    assert " +-[0000:20]-+-00.0" in tree
    assert "+-01.1-[21]--+-00.0  Mellanox" in tree
    assert " +-[0000:c0]-+-00.0" in tree
    assert "+-01.1-[c1]--+-00.0  NVIDIA" in tree
    assert "+-03.1-[c2]--+-00.0  NVIDIA" in tree
    assert "available: 1 nodes" in (corpus / "pci" / "stelline-wrx90-numa.txt").read_text("utf-8")
    machine = Snapshot(
        gpus=(
            Gpu(index=0, path=below("pci0000:c0", "c0:01.1", "c1:00.0"), numa_node=0),
            Gpu(index=1, path=below("pci0000:c0", "c0:03.1", "c2:00.0"), numa_node=0),
        ),
        nvlinks=(),
        hcas=(
            Hca(name="mlx5_0", path=below("pci0000:20", "20:01.1", "21:00.0"), numa_node=0),
            Hca(name="mlx5_1", path=below("pci0000:20", "20:01.1", "21:00.1"), numa_node=0),
        ),
    )
    assert matrix(machine).cells == printed(corpus, "gpu-x2-2nic-wrx90.txt").cells


def test_an_ac922_has_the_levels_that_nvidia_smi_prints_on_another(corpus: Path) -> None:
    """The Lassen node of hwloc has four HCAs, the captured one six: the first four are alike."""
    ours = matrix(hwloc_tree.read(corpus / "hwloc" / "mpibind-coral-lassen.xml"))
    theirs = printed(corpus, "ac922-v100x4-6mlx5-numa8.txt")
    assert [row.id for row in ours.devices] == [row.id for row in theirs.devices[:8]]
    cut = replace(
        theirs,
        devices=theirs.devices[:8],
        cells=tuple(row[:8] for row in theirs.cells[:8]),
    )
    # The tree tells no NVLinks: below them the bridged pairs sit on one PCIe switch.
    assert differences(ours, cut) == {("PIX", "NV3"): 4}


def test_the_nccl_file_of_a_dgx_a100_is_shallower_than_the_machine(corpus: Path) -> None:
    """Its authors left out a level of switches, so that NCCL sees each GPU's own NIC as PIX."""
    text = (corpus / "nccl-xml" / "dgxa100-mlperf10.xml").read_text("utf-8")
    ours = matrix(parse_nccl_xml(text))
    theirs = printed(corpus, "dgxa100-12mlx5-nps4.txt")
    # The file has no storage HCAs: columns 4, 5, 10 and 11 of the twelve.
    kept = [*range(8), *(8 + nic for nic in (0, 1, 2, 3, 6, 7, 8, 9))]
    cut = Matrix(
        devices=tuple(theirs.devices[at] for at in kept),
        cells=tuple(tuple(theirs.cells[row][at] for at in kept) for row in kept),
    )
    # By NVLink the file says nothing; GPUs of one node and their NICs are otherwise alike.
    assert {pair for pair in differences(ours, cut) if pair[1] != "NV12"} == {("PIX", "PXB")}
    assert differences(ours, cut)["PIX", "PXB"] == 16


def test_on_a_gb200_nvidia_smi_says_sys_between_all_that_share_no_bridge(corpus: Path) -> None:
    """So it does in a container that hides the NUMA nodes: unknown nodes print as SYS there."""
    for name in ("gb200-4gpu-8nic.txt", "h800-4of8-container-17nic-empty-affinity.txt"):
        words = {cell for row in printed(corpus, name).cells for cell in row if cell}
        assert {word for word in words if not word.startswith("NV")} == {"X", "PIX", "SYS"}


def test_in_a_job_of_one_cpu_nvidia_smi_says_node_across_sockets(corpus: Path) -> None:
    theirs = printed(corpus, "h100x8-6nic-slurm-cgroup-cpu.txt")
    assert {row.numa for row in theirs.devices[:8]} == {0, 1}
    assert not any("SYS" in row for row in theirs.cells)
