"""What is no NCCL topology of one node is refused with its place, and nothing does worse."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.errors import DecodeError
from nodetopo.tools.importers.nccl_xml import parse_nccl_xml
from nodetopo.tools.importers.nccl_xml_devices import MAX_BYTES
from nodetopo.topology.matrix import matrix
from tests.tools.importers.mutations import damage, mutated
from tests.tools.importers.nccl_xml_text import BY_HAND, DUMP

BOMB = """\
<!DOCTYPE system [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<system version="1"><cpu numaid="&b;"/></system>
"""
OUTSIDE = '<!DOCTYPE system [<!ENTITY f SYSTEM "file:///etc/passwd">]><system version="&f;"/>'


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "", "not XML: no element found"),
        ("{}", "", "not XML"),
        ("<system", "", "not XML"),
        ("<system version='1'>\ud800</system>", "", "half of a surrogate pair"),
        (BOMB, "", "has a document type (system)"),
        (OUTSIDE, "", "has a document type (system)"),
        ("<a>" * 40 + "</a>" * 40, "", "deeper than 32"),
        (f"<system>{'<cpu/>' * 5000}</system>", "", "more than 4096 elements"),
        (" " * (MAX_BYTES + 1), "", "larger than 1024 KiB"),
        ("<html/>", "", "a document of another kind, 'html'"),
        ("<system><cpu numaid='0'/></system>", "version", "missing"),
        ("<system version='one'/>", "version", "not a number here: 'one'"),
        ("<system version='1'/>", "", "holds no cpu element"),
        (
            "<system version='1'><cpu host_hash='1'/><cpu host_hash='2'/></system>",
            "",
            "the topology of 2 hosts",
        ),
        ("<system version='1'><cpu/></system>", "cpu[0].numaid", "missing"),
        (DUMP.replace('numaid="1"', 'numaid="-2"'), "cpu[0].numaid", "not a number here: '-2'"),
        (
            DUMP.replace('numaid="1"', 'numaid="\u0661"'),
            "cpu[0].numaid",
            "not a number here",
        ),
        (DUMP.replace("00000001,", "0000000x,"), "cpu[0].affinity", "not a CPU mask"),
        (DUMP.replace("00000001,", "0," * 300), "cpu[0].affinity", "not a CPU mask"),
        (DUMP.replace('busid="0000:40:00.0" ', ""), "cpu[0].pci[0].busid", "missing"),
        (
            DUMP.replace("0000:44:00.0", "GPU1"),
            "cpu[0].pci[0].pci[1].busid",
            "not a PCI address: 'GPU1'",
        ),
        (
            DUMP.replace('target="0000:43:00.0"', 'target="x"'),
            "cpu[0].pci[0].pci[1].gpu[0].nvlink[0].target",
            "not a PCI address: 'x'",
        ),
        (
            DUMP.replace('count="2"', 'count="65"'),
            "cpu[0].pci[0].pci[0].gpu[0].nvlink[0].count",
            "not a number here: '65'",
        ),
        (
            DUMP.replace('count="1"', 'count="63"'),
            "cpu[0].pci[0].pci[0].gpu[0].nvlink[1].count",
            "more than a GPU has",
        ),
        (DUMP.replace('sm="90"', 'sm="hopper"'), "cpu[0].pci[0].pci[0].gpu[0].sm", "'hopper'"),
        (
            DUMP.replace('port="2"', 'port="two"'),
            "cpu[0].pci[0].pci[2].nic[0].net[1].port",
            "'two'",
        ),
    ],
)
def test_an_invalid_topology_is_refused_with_its_place(text: str, place: str, words: str) -> None:
    with pytest.raises(DecodeError) as caught:
        parse_nccl_xml(text)
    assert (caught.value.path, words in caught.value.problem) == (place, True), caught.value


@given(st.text(max_size=300))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    _read_or_refuse(text)


@given(st.text(alphabet="<>/=\"'!?-[]& abcpugisyetmn0123:.\n", max_size=200))
def test_no_markup_does_more_than_be_refused(text: str) -> None:
    _read_or_refuse(f'<system version="1"><cpu numaid="0">{text}</cpu></system>')


@given(st.one_of(mutated(DUMP), mutated(BY_HAND)))
def test_no_damage_to_a_topology_does_more_than_get_it_refused(text: str) -> None:
    _read_or_refuse(text)


def _read_or_refuse(text: str) -> None:
    try:
        found = matrix(parse_nccl_xml(text))
    except DecodeError:
        return
    assert all(len(row) == len(found.devices) for row in found.cells)


def test_no_damage_to_a_capture_does_more_than_get_it_refused(corpus: Path) -> None:
    captures = sorted((corpus / "nccl-xml").glob("*.xml"))
    assert captures, "the corpus holds no topologies"
    for capture in captures:
        for seed in range(10):
            _read_or_refuse(damage(capture.read_text("utf-8"), Random(seed), times=3))
