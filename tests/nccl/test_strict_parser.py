"""Our files, and those of others, under a second implementation of NCCL's rules."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from msgspec.structs import replace

from nodetopo.errors import UnreadableError
from nodetopo.machines.bundled import machine, names
from nodetopo.model.codec import decode
from nodetopo.model.hca import Hca, HcaPort, LinkLayer
from nodetopo.model.pci import PciAddress, PciPath
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.container import container_xml
from nodetopo.nccl.xml import topology_xml
from nodetopo.tools.importers.nccl_xml import parse_nccl_xml
from tests.nccl.strict_parser import Node, RefusedError, complaints, read
from tests.nccl.test_oracle import trees
from tests.tools.importers.nccl_xml_text import DUMP

PCI = '<pci busid="0000:01:00.0" class="0x030200"/>'


def _wrapped(inner: str) -> str:
    return f'<system version="1">\n  <cpu numaid="0">\n    {inner}\n  </cpu>\n</system>\n'


# The parser itself.


def test_a_dump_has_nothing_to_complain_of() -> None:
    topology = read(DUMP)
    assert topology.system is not None
    assert Counter(node.tag for node in topology.system.every()) == Counter(
        {"system": 1, "cpu": 1, "pci": 5, "gpu": 2, "nvlink": 3, "c2c": 1, "nic": 2, "net": 3}
    )
    assert complaints(topology) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<?xml version="1.0"?>\n' + _wrapped(PCI), "expected >"),
        (_wrapped(PCI).replace("  <cpu", "\t<cpu"), "expecting '<'"),
        (_wrapped(PCI.replace(" class", "  class")), "attribute '' of pci without a value"),
        (_wrapped(PCI.replace("/>", " />")), "attribute '' of pci without a value"),
        (_wrapped(PCI.replace(' class="', ' class = "')), "attribute 'class' of pci without"),
        (_wrapped(PCI.replace('"0x030200"', "0x030200")), "expected (double) quote"),
        (_wrapped(PCI.replace(" class", "\n class")), "expected >"),
        (_wrapped("text"), "expecting '<', got 't'"),
        (_wrapped(PCI.replace("/>", ">")), "mismatch pci / cpu"),
        (_wrapped(PCI).replace("</system>\n", ""), "unterminated system"),
        (_wrapped(PCI)[:-5], "unexpected EOF"),
        (_wrapped(PCI).replace('version="1"', 'version="2"'), "wrong version 2"),
        (_wrapped(PCI).replace(' version="1"', ""), "attribute version of node system"),
        (_wrapped(f"<!-- {PCI}"), "unterminated comment"),
        ("</system>\n", "closing system that is not open"),
        (_wrapped(PCI.replace("0x030200", "x" * 254)), "too long"),
        (_wrapped(f"<{'p' * 254}/>"), "too long"),
        (_wrapped("".join(PCI for _ in range(254))), "limited to 256 nodes"),
    ],
)
def test_what_nccl_does_not_read_is_refused(text: str, problem: str) -> None:
    with pytest.raises(RefusedError) as refused:
        read(text)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        _wrapped(PCI.replace("0x030200", "x" * 253)),
        _wrapped("".join(PCI for _ in range(253))),
        _wrapped(f"<!-- {PCI} -->"),
        _wrapped(PCI.replace('"', "'")),
        _wrapped(PCI).replace("\n", "\r\n"),
        _wrapped(PCI).replace("\n", "").replace("  ", " "),
    ],
    ids=["longest value", "most elements", "comment", "single quotes", "CRLF", "one line"],
)
def test_what_nccl_reads_is_read(text: str) -> None:
    assert read(text).system is not None


@pytest.mark.parametrize(
    ("inner", "complaint"),
    [
        ("<gpu dev='0'/>", "element gpu in cpu"),
        ('<nvlink count="1"/>', "element nvlink in cpu"),
        (PCI.replace(' busid="0000:01:00.0"', ""), "pci without busid"),
        (PCI.replace(' class="0x030200"', ""), "pci without class"),
        (PCI.replace("0000:01:00.0", "01:00.0"), "pci busid='01:00.0'"),
        (PCI.replace("0000:01:00.0", "0000:01:00.A"), "pci busid='0000:01:00.A'"),
        (PCI.replace("0x030200", "0x120000"), "pci class='0x120000' counts as a bridge"),
        (PCI.replace("/>", ' link_speed="32 GB/s"/>'), "link_speed='32 GB/s' counts as 8 GT/s"),
        (PCI.replace("/>", ' link_width="x16"/>'), "pci link_width='x16'"),
        (PCI.replace("/>", ' class="0x020000"/>'), "second attribute class of pci"),
        (PCI.replace("/>", "".join(f' a{at}="0"' for at in range(15)) + "/>"), "attribute a14 of"),
        (PCI + PCI, "0000:01:00.0 stands twice"),
        (PCI.replace("/>", '><nvlink target="x"/></pci>'), "element nvlink in pci"),
        (PCI.replace("/>", '><gpu><nvlink target="x"/></gpu></pci>'), "nvlink target='x'"),
        (PCI.replace("/>", '><gpu><c2c bw="1"/></gpu></pci>'), "c2c without count"),
        (PCI.replace("/>", '><nic><net name="a"/></nic></pci>'), "a nic in a function of class"),
        (PCI.replace("/>", f">{PCI}</pci>"), "functions below one of class 0x030200"),
        (
            "".join(PCI.replace("01:00", f"{at:02x}:00") for at in range(33)),
            "cpu with 33 children",
        ),
    ],
)
def test_what_nccl_misunderstands_is_noticed(inner: str, complaint: str) -> None:
    found = complaints(read(_wrapped(inner)))
    assert any(complaint in text for text in found), found


# Our files.


@pytest.mark.parametrize("name", names())
def test_the_files_of_a_bundled_machine_are_as_nccl_reads_them(name: str) -> None:
    _hold(machine(name))


def test_the_files_of_a_machine_are_as_nccl_reads_them(node_dir: Path) -> None:
    _hold(decode((node_dir / "snapshot.json").read_text("utf-8")).snapshot)


@given(trees())
def test_the_file_of_any_machine_is_as_nccl_reads_it(
    drawn: tuple[Snapshot, object, object],
) -> None:
    _hold(drawn[0])


def _hold(snapshot: Snapshot) -> None:
    """Hold that both files, the whole one and that for containers, are without fault."""
    topology = read(topology_xml(snapshot))
    assert complaints(topology) == []
    assert topology.system is not None
    functions = {node.attributes["busid"] for node in topology.system.every() if node.tag == "pci"}
    assert {str(gpu.pci) for gpu in snapshot.gpus} <= functions
    assert complaints(read(container_xml(snapshot))) == []


def _flat(count: int) -> Snapshot:
    """A machine of *count* HCAs, each of which takes three elements, besides system and cpu."""
    return Snapshot(
        hcas=tuple(
            Hca(
                name=f"mlx5_{at}",
                pci=PciAddress(0, at + 1, 0, 0),
                path=PciPath(root="pci0000:00", hops=(PciAddress(0, at + 1, 0, 0),)),
                numa_node=at % 4,
                ports=(HcaPort(number=1, state="ACTIVE", layer=LinkLayer.INFINIBAND),),
            )
            for at in range(count)
        )
    )


def test_nothing_is_written_that_exceeds_nccls_limits() -> None:
    """1 system, 4 CPUs and 83 HCAs are 254 elements, of 255 that NCCL reads."""
    largest = topology_xml(_flat(83))
    assert read(largest).system is not None
    whole = replace(_flat(83), hcas=(*(_flat(83).hcas or ()), *_software_twin(_flat(83))))
    assert _elements(topology_xml(whole)) == 255
    assert read(topology_xml(whole)).system is not None
    with pytest.raises(UnreadableError, match="NCCL reads 255"):
        topology_xml(replace(whole, hcas=(*(whole.hcas or ()), *_software_twin(whole, "b"))))
    with pytest.raises(UnreadableError, match="cannot stand in a file for NCCL"):
        topology_xml(_named("m" * 254))
    assert read(topology_xml(_named("m" * 253))).system is not None


def _software_twin(snapshot: Snapshot, name: str = "a") -> tuple[Hca, ...]:
    """Another HCA on the function of the first: one element more."""
    return tuple(replace(hca, name=name) for hca in (snapshot.hcas or ())[:1])


def _named(name: str) -> Snapshot:
    return replace(_flat(1), hcas=tuple(replace(hca, name=name) for hca in _flat(1).hcas or ()))


def _elements(text: str) -> int:
    return sum(not line.lstrip().startswith("</") for line in text.splitlines())


# Files of others.

REFUSED = {
    "rccl-topo_4p3l_n4.xml": "wrong version 2",  # AMD's RCCL counts on its own
    "rccl-topo_8p_940vm.xml": "wrong version 2",
}
FAULTS: Mapping[str, set[str]] = {
    "aws-p5.xml": {"pci without class", "functions below one of class "},
    "azure-nc48v4.xml": {"pci link_speed='' counts as 8 GT/s"},
    "azure-ncv4-graph.xml": {"element graphs in the file", "no system"},  # NCCL_GRAPH_FILE
    "dell-xe8545-mlperf20.xml": {"0000:ba:00.0 stands twice"},
}
"""What NCCL would ignore or complete in the others' files."""

UNWRITABLE = {
    "azure-ncv4-graph.xml",  # no topology
    "aws-p5.xml",  # functions without a class: neither a GPU nor a NIC is known
}


def _corpus(corpus: Path) -> Iterator[tuple[str, str]]:
    files = sorted((corpus / "nccl-xml").glob("*.xml"))
    assert files, "the corpus holds no topologies"
    for file in files:
        yield file.name, file.read_text("utf-8")


def test_the_topologies_of_others_are_read_as_nccl_does(corpus: Path) -> None:
    """Those of Azure, Amazon and Oracle, and dumps: without fault, or with a known one."""
    refused: dict[str, str] = {}
    faults: dict[str, set[str]] = {}
    for name, text in _corpus(corpus):
        try:
            found = complaints(read(text))
        except RefusedError as error:
            refused[name] = str(error)
        else:
            faults |= {name: set(found)} if found else {}
    assert (refused, faults) == (REFUSED, FAULTS)


def test_what_others_wrote_is_read_written_and_read_with_the_same_tree(corpus: Path) -> None:
    compared = 0
    for name, text in _corpus(corpus):
        if name in REFUSED or name in UNWRITABLE:
            continue
        again = read(topology_xml(parse_nccl_xml(text)))
        assert set(complaints(again)) <= FAULTS.get(name, set()), name
        before, after = read(text).system, again.system
        assert before is not None
        assert after is not None
        assert set(_devices(after)) == set(_devices(before)), name
        compared += 1
    assert compared > 10


def _devices(node: Node, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield each GPU and NIC with its link and all functions above it, its NUMA node first."""
    own = node.attributes
    if node.tag == "cpu":
        above = (own["numaid"],)
    if node.tag == "pci":
        above = (*above, own["busid"])
        if own["class"].startswith(("0x03", "0x02")):
            rate = re.match("[0-9]+", own.get("link_speed", ""))
            width = own.get("link_width", "0")
            yield (*above, own["class"], rate[0] if rate else "", "" if width == "0" else width)
    for child in node.children:
        yield from _devices(child, above)
