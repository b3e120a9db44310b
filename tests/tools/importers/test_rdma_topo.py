"""Dumps of rdma_topo: of every machine of `tests/nodes`, and of none."""

import json
import zlib
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.checks.engine import evaluate
from nodetopo.checks.rule import Verdict
from nodetopo.errors import DecodeError
from nodetopo.model.codec import decode
from nodetopo.model.hca import HcaKind
from nodetopo.tools.node_rules import node_rules
from nodetopo.topology.complexes import complexes
from tests.tools.importers.rdma_topo import parse_rdma_topo
from tests.tools.importers.rdma_topo_text import data_direct, dump, packed, text

NODES = Path(__file__).parents[2] / "nodes"
SHAPES = sorted(path.name for path in NODES.iterdir())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_dump_holds_the_places_of_gpus_hcas_and_bridges(
    shape: str, unpacked: Callable[[str], Path]
) -> None:
    whole = decode((NODES / shape / "snapshot.json").read_text("utf-8")).snapshot
    found = parse_rdma_topo(dump(unpacked(shape)))
    gpus = sorted((gpu.pci, gpu.path) for gpu in whole.gpus if gpu.pci and gpu.path)
    assert [(gpu.pci, gpu.path) for gpu in found.gpus] == gpus
    assert {it.address: it.acs_control for it in found.bridges or ()} == {
        it.address: it.acs_control for it in whole.bridges or ()
    }
    # The kind is not in the file, and a bond takes its name from files that are not either.
    real = [it for it in whole.hcas or () if it.kind is not HcaKind.SOFTWARE]
    assert {(it.name, it.pci, it.numa_node) for it in found.hcas or ()} == {
        (it.name, it.pci, it.numa_node) for it in real if it.kind is not HcaKind.SUBFUNCTION
    }
    assert [(it.pci, it.hcas) for it in found.data_directs or ()] == [
        (it.pci, it.hcas) for it in whole.data_directs or ()
    ]


@pytest.mark.parametrize(
    "shape", ["gb300x2-station-1grace-datadirect", "gb200x4-nvl72-34numa-4cx7"]
)
def test_the_complexes_of_a_dump_are_those_of_the_node(
    shape: str, unpacked: Callable[[str], Path]
) -> None:
    whole = decode((NODES / shape / "snapshot.json").read_text("utf-8")).snapshot
    live, read = complexes(whole), complexes(parse_rdma_topo(dump(unpacked(shape))))
    assert (read.layout, read.ports) == (live.layout, live.ports)
    assert [[hca.name for hca in it.hcas] for it in read.complexes] == [
        [hca.name for hca in it.hcas] for it in live.complexes
    ]


def test_what_a_dump_does_not_hold_is_unknown_to_the_checks() -> None:
    found = evaluate(parse_rdma_topo(text(data_direct())), node_rules())
    assert [it.rule.code for it in found.results if it.verdict is Verdict.FAIL] == []


def entries(**changes: Any) -> str:
    """Return a dump whose fifth function has other values; ``...`` takes one away."""
    document = json.loads(text(data_direct()))
    document[4] |= changes
    document[4] = {key: value for key, value in document[4].items() if value is not ...}
    return json.dumps(document)


@pytest.mark.parametrize(
    ("content", "path", "problem"),
    [
        ("{", "", "not JSON"),
        ("{}", "", "not a list of PCI functions"),
        ("[]", "", "no PCI function in it"),
        ("[1]", "", "not a list of PCI functions"),
        (entries(realpath=...), "[4].realpath", "missing"),
        (entries(realpath="/sys/bus/x"), "[4].realpath", "no place of a device"),
        (entries(realpath="/sys/devices/../x"), "[4].realpath", "no place of a device"),
        (
            entries(realpath="/sys/devices/" + "pci0000:00/" * 80 + "x"),
            "[4].realpath",
            "bridges deep",
        ),
        (entries(modalias="usb:v1"), "[4].modalias", "no PCI ids"),
        (entries(config=...), "[4].config", "missing"),
        (entries(config="%%%"), "[4].config", "not zlib in base64"),
        (entries(config=b64encode(b"plain").decode()), "[4].config", "not zlib in base64"),
        (entries(config=packed(bytes(4097))), "[4].config", "more than 4096 bytes"),
        (entries(vpd=packed(bytes(1 << 25))), "[4].vpd", "more than 32768 bytes"),
        (entries(vpd=1), "[4].vpd", "no text"),
        (entries(iommu_group="1"), "[4].iommu_group", "not a number"),
        (entries(numa_node=True), "[4].numa_node", "not a number"),
        (entries(subsystems=[]), "", ""),
        (entries(subsystems=["net"]), "[4].subsystems", "not an object"),
        (entries(subsystems={"net": "eth0"}), "[4].subsystems.net", "not a list"),
        (entries(subsystems={"infiniband": ["../x"]}), "[4].subsystems.infiniband", "not a name"),
    ],
)
def test_what_is_no_dump_is_refused_with_the_place(content: str, path: str, problem: str) -> None:
    if not problem:
        assert parse_rdma_topo(content).gpus
        return
    with pytest.raises(DecodeError) as refused:
        parse_rdma_topo(content)
    assert (refused.value.path, problem in refused.value.problem) == (path, True)


def test_a_function_at_two_places_is_refused() -> None:
    document = json.loads(text(data_direct()))
    document[5]["realpath"] = (
        "/sys/devices/pci0001:00/" + document[4]["realpath"].rpartition("/")[2]
    )
    with pytest.raises(DecodeError, match="twice"):
        parse_rdma_topo(json.dumps(document))


def test_a_small_file_that_unpacks_to_much_is_refused() -> None:
    (entry, *_) = json.loads(text(data_direct()))
    place = entry["realpath"].rpartition("/")[0]
    many = [
        entry | {"realpath": f"{place}/0000:{at >> 8:02x}:{at >> 3 & 31:02x}.{at & 7}", "vpd": VPD}
        for at in range(4096)
    ]
    with pytest.raises(DecodeError, match="more than 64 MiB of config space and VPD"):
        parse_rdma_topo(json.dumps(many))


VPD = packed(bytes(1 << 15))


def test_a_file_without_gpus_is_an_issue() -> None:
    found = parse_rdma_topo(text(data_direct()[:1]))
    assert [(it.probe, it.reason) for it in found.issues] == [("rdma-topo", "none in the file")]


@given(st.binary(max_size=400), st.integers(0, 15))
def test_no_config_space_breaks_it(config: bytes, position: int) -> None:
    document = json.loads(text(data_direct()))
    document[position]["config"] = b64encode(zlib.compress(config)).decode()
    complexes(parse_rdma_topo(json.dumps(document)))
