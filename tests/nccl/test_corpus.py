"""NCCL's path types on the topologies that NCCL itself or its users wrote."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.affinity import nccl_nearest_hcas
from nodetopo.nccl.paths import NcclPath, NcclRoute
from nodetopo.nccl.routes import nccl_paths
from nodetopo.tools.importers.nccl_xml import parse_nccl_xml
from nodetopo.topology.affinity import rails
from nodetopo.topology.matrix import pci_closeness


def read(corpus: Path, name: str) -> Snapshot:
    """One topology of the corpus."""
    return parse_nccl_xml((corpus / "nccl-xml" / name).read_text("utf-8"))


def near(found: Mapping[tuple[str, str], NcclRoute], gpus: int, hcas: int) -> list[dict[str, str]]:
    """For each GPU the HCAs below the same switches, with the type of the path."""
    return [
        {
            f"NIC{nic}": found[f"GPU{gpu}", f"NIC{nic}"].type.name
            for nic in range(hcas)
            if (route := found.get((f"GPU{gpu}", f"NIC{nic}"))) and route.type <= NcclPath.PXB
        }
        for gpu in range(gpus)
    ]


@pytest.mark.parametrize("name", ["oci-h100.xml", "oci-h100-kubernetes.xml"])
def test_two_level_switches_of_a_dumped_h100_are_flat_for_nccl(corpus: Path, name: str) -> None:
    snapshot = read(corpus, name)
    found = nccl_paths(snapshot)
    expected = [{f"NIC{2 * gpu}": "PIX", f"NIC{2 * gpu + 1}": "PIX"} for gpu in range(8)]
    assert near(found, 8, 16) == expected
    levels = pci_closeness(snapshot)
    assert {levels[frozenset((f"GPU{gpu}", f"NIC{2 * gpu}"))].name for gpu in range(8)} == {"PXB"}


def test_the_dumped_h100_has_nvlink_to_all_and_relays_to_far_nics(corpus: Path) -> None:
    found = nccl_paths(read(corpus, "oci-h100.xml"))
    between = {found[f"GPU{a}", f"GPU{b}"] for a in range(8) for b in range(8) if a != b}
    assert {route.type for route in between} == {NcclPath.NVL}
    assert [route.bandwidth_gbs for route in between] == pytest.approx([18 * 20.6] * len(between))
    assert {found["GPU0", f"NIC{nic}"].type.name for nic in range(2, 16)} == {"PXN"}
    assert {found[f"NIC{nic}", "GPU0"].type.name for nic in range(2, 8)} == {"PHB"}
    assert {found[f"NIC{nic}", "GPU0"].type.name for nic in range(8, 16)} == {"SYS"}


def test_both_ports_of_a_dumped_card_are_one_device_of_one_gpu(corpus: Path) -> None:
    """180 Gb/s a port, as dumped: 45 GB/s together, within what the PCIe link carries."""
    found = nccl_nearest_hcas(read(corpus, "oci-h100.xml"))
    assert [(near.bandwidth_gbs, len(near.nets)) for near in found.values()] == [(45.0, 1)] * 8
    assert all(len(near.nets[0].hcas) == 2 for near in found.values())
    cards = {port.card for near in found.values() for port in near.nets[0].ports}
    assert (len(cards), len({guid for guid, _ in filter(None, cards)})) == (16, 8)


@pytest.mark.parametrize("name", ["azure-ndv5.xml", "superbench-ndv5.xml"])
def test_an_azure_file_gives_each_gpu_its_nic(corpus: Path, name: str) -> None:
    snapshot = read(corpus, name)
    assert near(nccl_paths(snapshot), 8, 8) == [{f"NIC{gpu}": "PIX"} for gpu in range(8)]
    assert [(rail.number, rail.gpus) for rail in rails(snapshot)] == [
        (at, (at,)) for at in range(8)
    ]


@pytest.mark.parametrize("name", ["aws-p4de.xml", "aws-p4d-uccl.xml"])
def test_an_aws_file_gives_two_gpus_one_nic(corpus: Path, name: str) -> None:
    snapshot = read(corpus, name)
    assert near(nccl_paths(snapshot), 8, 4) == [{f"NIC{gpu // 2}": "PIX"} for gpu in range(8)]
    assert [(rail.number, rail.gpus) for rail in rails(snapshot)] == [
        (None, (2 * at, 2 * at + 1)) for at in range(4)
    ]


def test_the_flat_file_of_an_a100_shares_two_nics_between_two_gpus(corpus: Path) -> None:
    found = nccl_nearest_hcas(read(corpus, "oci-a100-flat.xml"))
    chosen = [[hca.name for net in near.nets for hca in net.hcas] for near in found.values()]
    assert chosen[:2] == [["0000:0c:00.0"], ["0000:16:00.0"]]
    assert all(len(near.candidates) == 2 for near in found.values())


def test_the_files_of_a_dgx_a100_are_pix_to_one_nic_and_pxb_to_the_next(corpus: Path) -> None:
    for name in ("dgxa100-mlperf07.xml", "dgxa100-mlperf10.xml"):
        kinds = near(nccl_paths(read(corpus, name)), 8, 8)
        assert [sorted(found.values()) for found in kinds] == [["PIX", "PXB"]] * 8


def test_a_bridged_pair_in_a_virtual_machine_has_nvlink_and_nothing_else(corpus: Path) -> None:
    found = nccl_paths(read(corpus, "azure-nc48v4.xml"))
    assert {way: (route.type.name, route.bandwidth_gbs) for way, route in found.items()} == {
        ("GPU0", "GPU1"): ("NVL", 240.0),
        ("GPU1", "GPU0"): ("NVL", 240.0),
    }


def test_every_topology_of_the_corpus_is_classified(corpus: Path) -> None:
    for file in sorted((corpus / "nccl-xml").glob("*.xml")):
        if file.name != "azure-ncv4-graph.xml":
            snapshot = parse_nccl_xml(file.read_text("utf-8"))
            assert set(nccl_nearest_hcas(snapshot)) <= {gpu.index for gpu in snapshot.gpus}
            assert nccl_paths(snapshot).keys() >= set()
