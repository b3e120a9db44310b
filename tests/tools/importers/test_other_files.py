"""Files of other tools are known by their form."""

from pathlib import Path

import pytest

from nodetopo.errors import DecodeError
from nodetopo.tools.importers.nccl_xml import parse_nccl_xml
from nodetopo.tools.importers.other_files import recognise
from tests.tools.importers.nccl_xml_text import BY_HAND, DUMP
from tests.tools.importers.topo_m_text import TEXT

LICENCE = "<?xml version='1.0'?>\n<!-- <nvidia_smi_log> in a comment -->\n"
SMI_XML = (
    "<!DOCTYPE nvidia_smi_log SYSTEM 'nvsmi_device_v13.dtd'>\n<nvidia_smi_log></nvidia_smi_log>"
)
HWLOC = "<!DOCTYPE topology SYSTEM 'hwloc2.dtd'>\n<topology version='2.0'/>"
OTHERS = [
    ("<?xml version='1.0' ?>\n" + SMI_XML, "`nvidia-smi -q -x`", "--topo-m"),
    ("<nvidia_smi_log>\n</nvidia_smi_log>", "`nvidia-smi -q -x`", "--topo-m"),
    (LICENCE + HWLOC, "an hwloc topology", "nodetopo capture"),
    ("<topology/>", "an hwloc topology", "nodetopo capture"),
    ("nvidia.com/gpu.count=8\nnvidia.com/gpu.product=NVIDIA-B200\n", "GPU feature", "capture"),
    ('{\n  "nvidia.com/mig.capable": "true"\n}', "GPU feature discovery", "nodetopo capture"),
    (
        '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}',
        "kubelet_internal_checkpoint",
        "nodetopo capture",
    ),
    ('{"policyName":"static","defaultCpuSet":"0-3"}', "cpu_manager_state", "nodetopo capture"),
    ('{"policyName":"None","machineState":{}}', "memory_manager_state", "nodetopo capture"),
    ('{"kubeletconfig":{"enableServer":true}}', "/configz", "nodetopo capture"),
    ('{"pod_resources": []}', "PodResources", "nodetopo capture"),
    ("kind: KubeletConfiguration\n", "a kubelet's configuration", "nodetopo capture"),
    ('{"apiVersion":"v1","kind":"NodeList","items":[]}', "a Node of Kubernetes", "doctor --nodes"),
    ("apiVersion: v1\nkind: Pod\n", "a Pod of Kubernetes", "audit --manifest"),
    ("\n==============NVSMI LOG==============\n", "`nvidia-smi -q`", "--topo-m"),
    ("| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06 |\n", "plain `nvidia-smi`", "--topo-m"),
    ("GPU 0: NVIDIA H100 (UUID: GPU-1)\n", "`nvidia-smi -L`", "--topo-m"),
]


@pytest.mark.parametrize(("text", "what", "cure"), OTHERS)
def test_a_file_of_another_tool_is_named(text: str, what: str, cure: str) -> None:
    other = recognise(text)
    assert other is not None
    assert (what in other.what, cure in other.cure) == (True, True), other


@pytest.mark.parametrize(
    "text", [DUMP, BY_HAND, TEXT, '{"schema": "nodetopo/v1"}', "", "<", "<!--"]
)
def test_our_inputs_are_no_other_files(text: str) -> None:
    assert recognise(text) is None


@pytest.mark.parametrize("name", ["nvidia_smi_log", "topology"])
def test_a_document_type_is_named_and_not_read(name: str) -> None:
    bomb = f'<!DOCTYPE {name} [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><{name}>&b;</{name}>'
    with pytest.raises(DecodeError, match=r"^this is "):
        parse_nccl_xml(bomb)


def test_the_captures_of_other_tools_are_named(corpus: Path) -> None:
    folders = ("smi-xml", "smi-q", "smi-L", "gfd", "kubelet")
    files = [path for folder in folders for path in sorted((corpus / folder).iterdir())]
    files += sorted((corpus / "hwloc").glob("*.xml"))
    assert len(files) > 40
    assert [path.name for path in files if recognise(path.read_text("utf-8")) is None] == []


def test_no_topology_of_the_corpus_is_taken_for_another_file(corpus: Path) -> None:
    files = [path for path in (corpus / "nccl-xml").iterdir() if "graph" not in path.name]
    files += (corpus / "topo-m").iterdir()
    assert [path.name for path in files if recognise(path.read_text("utf-8"))] == []
