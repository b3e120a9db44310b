"""The file for NCCL: in NCCL's own spelling, and read back it says the same."""

import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from nodetopo.errors import UnreadableError
from nodetopo.machines.bundled import machine, names
from nodetopo.model.gpu import C2c, Gpu
from nodetopo.model.hca import DataDirect, Hca, HcaKind, HcaPort
from nodetopo.model.numa import CpuSet, CpuTopology, NumaNode
from nodetopo.model.nvlink import NvLink, PeerKind
from nodetopo.model.pci import PciAddress, PciBridge, PcieLink, PciFunction, PciPath
from nodetopo.model.snapshot import Kernel, Snapshot
from nodetopo.nccl.xml import topology_xml
from nodetopo.tools.importers.nccl_xml import parse_nccl_xml
from nodetopo.topology.matrix import matrix
from tests.tools.importers.nccl_xml_text import BY_HAND, DUMP

ROOT_PORT, UP, DOWN = (
    PciAddress(0, 0x40, 1, 0),
    PciAddress(0, 0x41, 0, 0),
    PciAddress(0, 0x42, 4, 0),
)
DEVICE, OTHER = PciAddress(0, 0x43, 0, 0), PciAddress(0, 0x44, 0, 0)
GEN5, GEN4 = PcieLink(generation=5, width=16), PcieLink(generation=4, width=16)
IDLE = PcieLink(generation=1, width=16, max_generation=5, max_width=16)

GPU = Gpu(
    index=3,
    pci=DEVICE,
    path=PciPath(root="pci0000:40", hops=(ROOT_PORT, UP, DOWN, DEVICE)),
    function=PciFunction(pci_class="030200", vendor="10de", device="2330"),
    compute_capability=(9, 0),
    numa_node=1,
    pcie=IDLE,
)
NIC = Hca(
    name="mlx5_0",
    pci=OTHER,
    path=PciPath(root="pci0000:40", hops=(ROOT_PORT, OTHER)),
    numa_node=1,
    sys_image_guid="946d:ae03:0050:709a",
    ports=(HcaPort(number=1, state="ACTIVE", rate_gbps=400.0),),
)
SNAPSHOT = Snapshot(
    kernel=Kernel(machine="x86_64"),
    gpus=(GPU,),
    nvlinks=(
        NvLink(gpu=3, link=0, is_active=True, peer_kind=PeerKind.SWITCH),
        NvLink(gpu=3, link=1, is_active=True, peer_kind=PeerKind.SWITCH),
        NvLink(gpu=3, link=2, is_active=False, peer_kind=PeerKind.SWITCH),
    ),
    bridges=(
        PciBridge(address=ROOT_PORT, link=GEN4),
        PciBridge(address=UP, vendor="1000", device="c030", link=GEN5),
        PciBridge(address=DOWN, link=GEN5),
    ),
    numa_nodes=(
        NumaNode(id=1, cpus=CpuSet.parse("28-32")),
        NumaNode(id=2, cpus=CpuSet()),
    ),
    cpu=CpuTopology(online=CpuSet.parse("0-32"), vendor="AuthenticAMD", family=25, model_number=17),
    hcas=(NIC,),
)
WRITTEN = """\
<system version="1">
  <cpu numaid="1" affinity="00000001,f0000000" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="17">
    <pci busid="0000:41:00.0" class="0x060400" vendor="0x1000" device="0xc030" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:43:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="3" sm="90">
          <nvlink target="fffffff:ffff:ff" count="2" tclass="0x068000"/>
        </gpu>
      </pci>
    </pci>
    <pci busid="0000:44:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
      <nic>
        <net name="mlx5_0" speed="400000" port="1" guid="0x9a70500003ae6d94"/>
      </nic>
    </pci>
  </cpu>
</system>
"""  # noqa: E501 - one element a line, as NCCL has it


def test_a_node_is_written_as_nccl_writes_it() -> None:
    assert topology_xml(SNAPSHOT) == WRITTEN


@pytest.mark.parametrize(
    ("snapshot", "line"),
    [
        (replace(SNAPSHOT, gpus=(replace(GPU, numa_node=None),)), '<cpu numaid="-1" arch="x86_64"'),
        (replace(SNAPSHOT, kernel=Kernel(machine="aarch64")), 'f0000000" arch="arm64">'),
        (replace(SNAPSHOT, kernel=None, cpu=None), '<cpu numaid="1" affinity="00000001,f0000000">'),
        (replace(SNAPSHOT, numa_nodes=None), '<cpu numaid="1" arch='),
        (
            replace(SNAPSHOT, gpus=(replace(GPU, function=None, pcie=None),)),
            '<pci busid="0000:43:00.0" class="0x030200" link_speed="32.0 GT/s PCIe"',
        ),
        (
            replace(SNAPSHOT, gpus=(replace(GPU, c2c=C2c(is_enabled=True, links=10)),)),
            '<c2c count="10"/>',
        ),
        (
            replace(
                SNAPSHOT,
                nvlinks=(
                    NvLink(gpu=3, link=0, is_active=True, peer=OTHER, peer_kind=PeerKind.CPU),
                ),
            ),
            '<nvlink target="0000:44:00.0" count="1" tclass="0x068001"/>',
        ),
        (
            replace(
                SNAPSHOT,
                data_directs=(
                    DataDirect(
                        pci=PciAddress(0, 0x46, 0, 0),
                        path=PciPath(root="pci0000:40", hops=(PciAddress(0, 0x46, 0, 0),)),
                        hcas=("mlx5_0",),
                    ),
                ),
            ),
            '<net name="mlx5_0_dma"/>',
        ),
        (
            replace(SNAPSHOT, hcas=(replace(NIC, kind=HcaKind.SUBFUNCTION),)),
            '    <nic>\n      <net name="mlx5_0"',
        ),
        (replace(SNAPSHOT, hcas=(replace(NIC, ports=()),)), '<net name="mlx5_0" guid='),
    ],
    ids=[
        "no NUMA node",
        "Grace",
        "no CPU facts",
        "no CPU sets",
        "no class",
        "C2C",
        "CPU peer",
        "Data Direct",
        "subfunction",
        "no ports",
    ],
)
def test_what_is_known_is_written(snapshot: Snapshot, line: str) -> None:
    assert line in topology_xml(snapshot)


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (replace(SNAPSHOT, nvlinks=None), ("<gpu",)),
        (replace(SNAPSHOT, nvlinks=()), ("<nvlink",)),
        (
            replace(SNAPSHOT, hcas=(replace(NIC, ports=(HcaPort(number=1, state="DOWN"),)),)),
            ("<nic", "<net", "0000:44:00.0"),
        ),
        (replace(SNAPSHOT, gpus=(replace(GPU, compute_capability=None),)), ("sm=",)),
        (
            replace(SNAPSHOT, numa_nodes=(NumaNode(id=1, cpus=CpuSet.parse("0-1000")),)),
            ("affinity",),
        ),
        (SNAPSHOT, ("<?xml", "\t", "rank=", "gdr=", "host_hash", ROOT_PORT, DOWN, 'numaid="2"')),
    ],
)
def test_what_is_not_known_or_not_ours_to_say_is_left_out(
    snapshot: Snapshot,
    words: tuple[object, ...],
) -> None:
    text = topology_xml(snapshot)
    assert [word for word in words if str(word) in text] == []


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (Snapshot(), "there is no GPU and no HCA"),
        (replace(SNAPSHOT, gpus=(replace(GPU, path=None),)), "the place of GPU3 in the PCI tree"),
        (replace(SNAPSHOT, gpus=(replace(GPU, pci=None),)), "the place of GPU3 in the PCI tree"),
        (replace(SNAPSHOT, hcas=(replace(NIC, path=None),)), "the place of mlx5_0 in the PCI tree"),
        (replace(SNAPSHOT, data_directs=(DataDirect(),)), "the place of a Data Direct function"),
        (replace(SNAPSHOT, hcas=(replace(NIC, name='a"b'),)), "cannot stand in a file for NCCL"),
        (
            replace(SNAPSHOT, hcas=(replace(NIC, name="x" * 255),)),
            "cannot stand in a file for NCCL",
        ),
        (
            replace(
                SNAPSHOT,
                hcas=tuple(
                    replace(NIC, name=f"mlx5_{number}", pci=PciAddress(1, number, 0, 0))
                    for number in range(100)
                ),
            ),
            "the topology has 306 elements, NCCL reads 255",
        ),
    ],
)
def test_what_cannot_be_written_says_why(snapshot: Snapshot, words: str) -> None:
    with pytest.raises(UnreadableError, match=re.escape(words)):
        topology_xml(snapshot)


@pytest.mark.parametrize("text", [DUMP, BY_HAND])
def test_a_file_read_and_written_reads_the_same(text: str) -> None:
    snapshot = parse_nccl_xml(text)
    assert parse_nccl_xml(topology_xml(snapshot)) == snapshot


@pytest.mark.parametrize("name", names())
def test_a_machine_written_and_read_has_the_same_matrix(name: str) -> None:
    whole = machine(name)
    written = _by_label(parse_nccl_xml(topology_xml(whole)))
    expected = _by_label(replace(whole, pairs=()))
    # NCCL has no NODE: without a common switch it is PHB below one CPU.
    assert written == {pair: "PHB" if cell == "NODE" else cell for pair, cell in expected.items()}


def _by_label(snapshot: Snapshot) -> dict[tuple[str, str], str | None]:
    """Return the cells by the names of devices: the file knows NICs by address, not by number."""
    found = matrix(snapshot)
    labels = [device.label for device in found.devices]
    return {
        (a, b): cell
        for a, row in zip(labels, found.cells, strict=True)
        for b, cell in zip(labels, row, strict=True)
    }


def _captures(corpus: Path) -> list[Path]:
    captures = sorted((corpus / "nccl-xml").glob("*.xml"))
    assert captures, "the corpus holds no topologies"
    return captures


NOT_WRITABLE = {
    "azure-ncv4-graph.xml",  # no topology
    "aws-p5.xml",  # functions without a class: neither a GPU nor a NIC is known
}


def test_every_topology_of_the_corpus_reads_the_same_when_written(corpus: Path) -> None:
    differing = []
    for capture in _captures(corpus):
        if capture.name not in NOT_WRITABLE:
            snapshot = replace(parse_nccl_xml(capture.read_text("utf-8")), issues=())
            again = replace(parse_nccl_xml(topology_xml(snapshot)), issues=())
            if again != snapshot:
                differing.append(capture.name)
    assert differing == []


@pytest.mark.parametrize("name", ["oci-h100.xml", "oci-h100-kubernetes.xml", "azure-nc48v4.xml"])
def test_a_dump_written_again_has_the_same_elements(corpus: Path, name: str) -> None:
    text = (corpus / "nccl-xml" / name).read_text("utf-8")
    assert _facts(topology_xml(parse_nccl_xml(text))) == _facts(text)


_NOT_OURS = {"rank", "gdr", "dev", "latency", "maxconn"}
"""What NCCL adds for one job, or numbers itself on import."""


def _facts(text: str) -> Counter[tuple[str, ...]]:
    """Return each element as the elements above it and its attributes, with a way of its own."""
    return Counter(_elements(ET.fromstring(text.strip()), ()))


def _elements(element: ET.Element, above: tuple[str, ...]) -> list[tuple[str, ...]]:
    if element.tag in ("nic", "net") and element.find(".//net[@port='0']") is not None:
        return []  # NCCL's socket transport, no RDMA
    kept = {
        name: value
        for name, value in element.items()
        if (name not in _NOT_OURS or (element.tag == "gpu" and name == "dev"))
        and (name, value) not in (("link_speed", ""), ("link_width", "0"))
    }
    if "affinity" in kept:
        kept["affinity"] = re.sub(r"^(0{8},)+", "", kept["affinity"])
    own = f"{element.tag} {sorted(kept.items())}"
    below = [fact for child in element for fact in _elements(child, (*above, own))]
    return [(*above, own), *below]
