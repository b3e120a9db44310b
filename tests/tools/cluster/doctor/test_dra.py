"""What DRA drivers publish, judged over the cluster."""

from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.dra import PCI_BUS_ID, PublishedDevice, PublishedPool
from tests.tools.cluster.examined import cluster, nodes, observed, result

ADDRESS = "0000:1b:00.0"


def device(driver: str, address: str = ADDRESS) -> PublishedDevice:
    return PublishedDevice(driver=driver, pool="n", name="gpu", attributes={PCI_BUS_ID: address})


OURS = PublishedDevice(
    driver="nodetopo.io", pool="n", name="gpus", counters=("gpus/count", "gpus/gpu-0000-1b-00-0")
)


def test_a_gpu_of_two_drivers_is_found_by_its_address_or_its_counter() -> None:
    both = {"n1": (device("gpu.nvidia.com"), OURS), "n2": (OURS, device("gpu.nvidia.com"))}
    found = observed("CLU-011", replace(cluster(nodes()), published=both))
    assert found == [("n[1-2]", "GPUs published by gpu.nvidia.com and nodetopo.io")]


def test_other_gpus_other_nodes_and_other_devices_are_no_conflict() -> None:
    apart = {
        "n1": (device("gpu.nvidia.com", "0000:43:00.0"), OURS, device("dra.net")),
        "n2": (device("gpu.nvidia.com"),),
    }
    assert observed("CLU-011", replace(cluster(nodes()), published=apart)) == []


def test_a_node_with_published_gpus_and_without_labels_is_named() -> None:
    published = {"bare": (device("gpu.nvidia.com"),), "n1": (OURS,), "nic": (device("dra.net"),)}
    of = replace(cluster(nodes()), others=("bare", "cpu", "nic"), published=published)
    assert observed("CLU-012", of) == [("bare", "GPUs published by DRA, no GPU labels")]


def test_pools_that_lack_slices_are_named_by_their_nodes() -> None:
    lacking = [
        PublishedPool(driver="gpu.nvidia.com", name=name, nodes=(name,), slices=1, expected=2)
        for name in ("n1", "n2")
    ]
    rack = PublishedPool(driver="fabric.example.com", name="rack-7", slices=3, expected=4)
    whole = PublishedPool(driver="nodetopo.io", name="n1", slices=2, expected=2)
    of = replace(cluster(nodes()), pools=(*lacking, rack, whole))
    assert observed("CLU-013", of) == [
        ("rack-7", "3 of 4 slices of a pool of fabric.example.com"),
        ("n[1-2]", "1 of 2 slices of a pool of gpu.nvidia.com"),
    ]


def test_slices_that_nobody_listed_leave_all_unknown() -> None:
    of = replace(cluster(nodes()), published=None, pools=None)
    codes = ("CLU-011", "CLU-012", "CLU-013")
    assert {result(code, of).verdict for code in codes} == {Verdict.UNKNOWN}
