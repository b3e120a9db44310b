import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from nodetopo.errors import UnreadableError
from nodetopo.model.codec import decode
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.container import container_xml
from nodetopo.nccl.xml import topology_xml

NODES = Path(__file__).parents[1] / "nodes"
SHAPES = tuple(sorted(path.name for path in NODES.iterdir() if path.is_dir()))


def node(shape: str) -> Snapshot:
    return decode((NODES / shape / "snapshot.json").read_text("utf-8")).snapshot


def places(text: str) -> dict[str, str]:
    """Return what each PCI function of the tree hangs under."""
    root = ET.fromstring(text)
    return {
        child.attrib["busid"]: parent.attrib.get("busid", parent.attrib.get("numaid", ""))
        for parent in root.iter()
        for child in parent
        if child.tag == "pci"
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_every_machine_has_a_tree_without_devices(shape: str) -> None:
    snapshot = node(shape)
    text = container_xml(snapshot)
    assert set(re.findall(r"<(\w+)", text)) <= {"system", "cpu", "pci"}
    assert {str(gpu.pci) for gpu in snapshot.gpus} <= set(places(text))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_device_hangs_where_the_whole_file_has_it(shape: str) -> None:
    snapshot = node(shape)
    assert places(container_xml(snapshot)) == places(topology_xml(snapshot))


def test_a_device_whose_place_is_unknown_is_left_to_nccl() -> None:
    snapshot = node("h100x8-nvswitch-2numa-8cx7")
    gpus = (replace(snapshot.gpus[0], path=None), *snapshot.gpus[1:])
    hcas = snapshot.hcas or ()
    lacking = replace(snapshot, gpus=gpus, hcas=(replace(hcas[0], path=None), *hcas[1:]))
    found = places(container_xml(lacking))
    assert str(gpus[0].pci) not in found
    assert str(hcas[0].pci) not in found
    assert str(gpus[1].pci) in found
    assert str(hcas[1].pci) in found


def test_a_node_of_which_no_place_is_known_has_no_tree() -> None:
    snapshot = node("h100x8-nvswitch-2numa-8cx7")
    gpus = tuple(replace(gpu, path=None) for gpu in snapshot.gpus)
    with pytest.raises(UnreadableError, match="no GPU and no HCA"):
        container_xml(replace(snapshot, gpus=gpus, hcas=None))
