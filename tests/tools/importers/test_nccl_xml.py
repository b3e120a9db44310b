"""NCCL's topology XML: every element becomes the fact it states, what has no noun an issue."""

import pytest

from nodetopo.components.labels.catalogue import labels
from nodetopo.model.gpu import C2c, Gpu
from nodetopo.model.hca import DataDirect, Hca, HcaPort
from nodetopo.model.numa import CpuSet, CpuTopology, NumaNode
from nodetopo.model.nvlink import NvLink, PeerKind
from nodetopo.model.pci import PciAddress, PciBridge, PcieLink, PciFunction, PciPath
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Kernel, Snapshot
from nodetopo.tools.importers.nccl_xml import parse_nccl_xml
from nodetopo.topology.links import nvlinks_between
from nodetopo.topology.matrix import matrix
from tests.tools.importers.nccl_xml_text import BY_HAND, DUMP

CPUS = CpuSet.parse("28-32")
GEN5 = PcieLink(generation=5, width=16)
SWITCH = PciAddress(0, 0x40, 0, 0)
FIRST, SECOND = PciAddress(0, 0x43, 0, 0), PciAddress(0, 0x44, 0, 0)


def _path(*hops: PciAddress) -> PciPath:
    return PciPath(root=None, hops=hops, is_collapsed=True)


def _gpu(index: int, pci: PciAddress, subsystem: tuple[str | None, str | None]) -> Gpu:
    return Gpu(
        index=index,
        pci=pci,
        path=_path(SWITCH, pci),
        function=PciFunction(
            pci_class="030200",
            vendor="10de",
            device="2330",
            subsystem_vendor=subsystem[0],
            subsystem_device=subsystem[1],
            link=GEN5,
        ),
        architecture="hopper",
        compute_capability=(9, 0),
        numa_node=1,
        cpu_affinity=CPUS,
        c2c=None if index else C2c(is_enabled=True, links=10, speed_mbps=44712),
    )


def _link(gpu: int, link: int, peer: PciAddress | None, kind: PeerKind) -> NvLink:
    return NvLink(gpu=gpu, link=link, is_active=True, peer=peer, peer_kind=kind)


def test_a_dump_becomes_a_snapshot_of_what_it_says() -> None:
    nic, direct = PciAddress(0, 0x42, 0, 0), PciAddress(0, 0x46, 0, 0)
    assert parse_nccl_xml(DUMP) == Snapshot(
        kernel=Kernel(machine="x86_64"),
        gpus=(_gpu(0, FIRST, ("10de", "16c1")), _gpu(1, SECOND, (None, None))),
        nvlinks=(
            _link(0, 0, SECOND, PeerKind.GPU),
            _link(0, 1, SECOND, PeerKind.GPU),
            _link(0, 2, None, PeerKind.SWITCH),
            _link(1, 0, FIRST, PeerKind.GPU),
            _link(1, 1, FIRST, PeerKind.GPU),
        ),
        bridges=(
            PciBridge(
                address=SWITCH,
                vendor="1000",
                device="c030",
                subsystem_vendor="1000",
                subsystem_device="0072",
                numa_node=1,
                link=GEN5,
            ),
        ),
        numa_nodes=(NumaNode(id=1, cpus=CPUS),),
        cpu=CpuTopology(online=CPUS, vendor="AuthenticAMD", family=25, model_number=17),
        hcas=(
            Hca(
                name="mlx5_0",
                pci=nic,
                path=_path(SWITCH, nic),
                function=PciFunction(pci_class="020700", vendor="15b3", device="1021", link=GEN5),
                numa_node=1,
                sys_image_guid="946d:ae03:0050:709a",
                ports=(HcaPort(number=1, rate_gbps=400.0), HcaPort(number=2, rate_gbps=200.0)),
            ),
        ),
        data_directs=(
            DataDirect(
                pci=direct,
                path=_path(direct),
                function=PciFunction(
                    pci_class="080100",
                    vendor="15b3",
                    device="2100",
                    link=PcieLink(generation=6, width=16),
                ),
                numa_node=1,
                hcas=("mlx5_0",),
            ),
        ),
    )


def test_a_file_by_hand_has_places_and_no_links() -> None:
    switch, first = PciAddress(0xFFFF, 0xFF, 1, 0), PciAddress(1, 0, 0, 0)
    second, nic = PciAddress(0, 2, 0, 0), PciAddress(0x101, 0, 0, 0)
    assert parse_nccl_xml(BY_HAND) == Snapshot(
        gpus=(
            Gpu(
                index=0,
                pci=second,
                path=_path(second),
                function=PciFunction(pci_class="030200"),
            ),
            Gpu(
                index=1,
                pci=first,
                path=_path(switch, first),
                function=PciFunction(
                    pci_class="030200",
                    link=PcieLink(generation=4, width=16),
                ),
                numa_node=0,
                cpu_affinity=CpuSet.parse("0-7"),
            ),
        ),
        bridges=(PciBridge(address=switch, numa_node=0),),
        numa_nodes=(NumaNode(id=0, cpus=CpuSet.parse("0-7")),),
        hcas=(
            Hca(
                name="0101:00:00.0",
                pci=nic,
                path=_path(switch, nic),
                function=PciFunction(pci_class="020700"),
                numa_node=0,
            ),
        ),
    )


@pytest.mark.parametrize(
    ("text", "issue"),
    [
        (
            DUMP.replace("<c2c ", "<xgmi/><xgmi/><c2c "),
            ("xgmi", "unknown element, 2 left out"),
        ),
        (
            DUMP.replace('version="1"', 'version="2"'),
            ("system", "version 2; NCCL's is 1, AMD's RCCL writes others"),
        ),
        (
            DUMP.replace(' affinity="00000001,f0000000"', ""),
            ("cpu", "no affinity of NUMA node 1"),
        ),
        (
            DUMP.replace('dev="1"', 'dev="0"'),
            ("gpu", "dev is not given once for each, GPUs are counted by PCI address"),
        ),
        (
            DUMP.replace('"0x10de"', '"0x1002"', 1),
            ("gpu", "a GPU of another vendor, 1 left out"),
        ),
        (
            DUMP.replace("0000:46:00.0", "0000:43:00.0"),
            ("0000:43:00.0", "stands at 2 places"),
        ),
        (
            BY_HAND.replace("'0x020700'", "'0x010802'"),
            ("pci", "a function of class 010802, neither GPU nor NIC, 1 left out"),
        ),
        (
            DUMP.replace('name="mlx5_0" dev="1"', 'name="mlx5_0+mlx5_1" dev="1"'),
            ("net", "HCAs fused into one, 1 left out"),
        ),
        (
            DUMP.replace('port="2"', 'port="0"'),
            ("net", "an interface without RDMA, 1 left out"),
        ),
        (
            BY_HAND.replace(
                "<pci busid='0000:02:00.0' class='0x030200'/>",
                "<pci busid='0000:02:00.0' class='0x03'><gpu dev='0'/></pci>",
            ),
            ("nvlink", "not every GPU has a gpu element, so links are left out"),
        ),
    ],
)
def test_left_out_elements_are_issues(text: str, issue: tuple[str, str]) -> None:
    subject, reason = issue
    expected = ProbeIssue(probe="nccl-xml", subject=subject, reason=reason)
    assert expected in parse_nccl_xml(text).issues


def test_a_virtual_nic_has_no_place() -> None:
    text = BY_HAND.replace("  </cpu>\n  <cpu", "<nic><net name='mlx5_9' port='1'/></nic></cpu><cpu")
    hcas = parse_nccl_xml(text).hcas
    assert hcas is not None
    assert hcas[-1] == Hca(name="mlx5_9", ports=(HcaPort(number=1),))


@pytest.mark.parametrize(
    ("text", "family"),
    [("6", 6), ("143", 23), ("175", 25), ("25", 25), ("191", 26), ("15", 15)],
)
def test_the_family_is_counted_as_linux_counts_it(text: str, family: int) -> None:
    cpu = parse_nccl_xml(DUMP.replace('familyid="175"', f'familyid="{text}"')).cpu
    assert cpu is not None
    assert cpu.family == family


@pytest.mark.parametrize(
    ("speed", "width", "link"),
    [
        ("2.5 GT/s PCIe", "8", PcieLink(generation=1, width=8)),
        ("32 GT/s PCIe/s", "16", PcieLink(generation=5, width=16)),
        ("64.0 GT/s PCIe", "0", PcieLink(generation=6)),
        ("Unknown", "4", PcieLink(width=4)),
        ("7 GT/s", "255", None),
        ("", "", None),
    ],
)
def test_a_link_is_what_speed_and_width_say(speed: str, width: str, link: PcieLink | None) -> None:
    text = BY_HAND.replace("'16 GT/s' link_width='16'", f"'{speed}' link_width='{width}'")
    function = parse_nccl_xml(text).gpus[1].function
    assert function is not None
    assert function.link == link


@pytest.mark.parametrize(
    ("sm", "architecture"),
    [
        ("60", "pascal"),
        ("70", "volta"),
        ("75", "turing"),
        ("86", "ampere"),
        ("89", "ada-lovelace"),
        ("103", "blackwell"),
        ("120", "blackwell"),
        ("999", None),
    ],
)
def test_the_architecture_follows_from_the_compute_capability(
    sm: str,
    architecture: str | None,
) -> None:
    assert (
        parse_nccl_xml(DUMP.replace('sm="90"', f'sm="{sm}"')).gpus[0].architecture == architecture
    )


LOOPS = """\
<system version="1">
  <cpu numaid="0" affinity="0000ffff">
    <pci busid="0001:00:00.0" class="0x030200">
      <gpu dev="0" sm="80"><nvlink target="0001:00:00.0" count="12" tclass="0x030200"/></gpu>
    </pci>
    <pci busid="0002:00:00.0" class="0x030200">
      <gpu dev="1" sm="80"><nvlink target="0002:00:00.0" count="12" tclass="0x030200"/></gpu>
    </pci>
  </cpu>
</system>
"""
"""What NCCL dumps where the driver of a virtual machine names a GPU as its own far end."""


def test_nvlinks_to_their_own_gpu_are_an_issue_and_in_no_label() -> None:
    snapshot = parse_nccl_xml(LOOPS)
    (issue,) = snapshot.issues
    assert (issue.subject, issue.reason) == (
        "nvlink",
        "24 of GPU0, GPU1 lead to the GPU itself, so where to is not known",
    )
    assert nvlinks_between(snapshot) == {(0, 1): None}
    published = labels(snapshot)
    about_links = {key for key in published if "nvlink" in key or "nvswitch" in key}
    assert (about_links, "gpu.topology/interconnect" in published) == (set(), False)
    assert published["gpu.topology/numa-nodes"] == "1"


def test_gpus_of_one_cpu_are_phb_where_no_switch_is_given() -> None:
    found = matrix(parse_nccl_xml(LOOPS)).cells
    assert found == (("X", "PHB"), ("PHB", "X"))


@pytest.mark.parametrize(
    "text",
    [
        LOOPS.replace(' class="0x030200"', "").replace("<gpu", "<other").replace("gpu>", "other>"),
        LOOPS.replace('sm="80"', 'gcn="942"'),
    ],
    ids=["without class codes", "AMD"],
)
def test_a_file_without_gpus_of_nvidia_leaves_the_gpus_unknown(text: str) -> None:
    snapshot = parse_nccl_xml(text)
    assert snapshot.gpus == ()
    (issue,) = (issue for issue in snapshot.issues if issue.hides_gpus)
    assert issue.reason == "the file names none of NVIDIA's, so the node's are not known"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Here is the dump:\n```xml\n", "\n```\n\nThanks!\n"),
        ("root@node-a:~# cat topo.xml\n", "\nroot@node-a:~#"),
    ],
)
def test_prose_a_fence_and_a_prompt_around_the_file_are_left_out(before: str, after: str) -> None:
    assert parse_nccl_xml(f"{before}{DUMP[DUMP.index('<system') :]}{after}") == parse_nccl_xml(DUMP)
