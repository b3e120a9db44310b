"""The topology family as a whole, and what it says of NVLink."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from nodetopo.components.labels.catalogue import labels
from nodetopo.components.labels.rules import DEFAULT_PREFIX, LabelRules
from nodetopo.model.gpu import Fabric, FabricState, Mig
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.labels.topology_machines import changed, own, shape, with_gpu
from tests.strategies import damaged, machines, snapshots

VALUE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""A label value that is not empty (k8s.io/apimachinery validation)."""
KEY = re.compile(r"[a-z.]+/[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
DGX = "h100x8-nvswitch-2numa-8cx7"
NVL72 = "gb200x4-nvl72-34numa-4cx7"
PAIRS = "a100x4-pcie-bridged-2numa"
PCIE = "l40sx4-pcie-2numa"
MIG = "h100x8-nvswitch-2numa-mig"
CLUSTER = "6b0e1b2c-0000-4000-8000-000000000072"
MAX_OWN_LABELS = 40
LEVELS = {f"tier-{tier}": f"sw{tier}" for tier in range(8)}

any_machine = st.one_of(snapshots(), machines(), damaged(machines()))


def nvlink(snapshot: Snapshot) -> dict[str, str]:
    return {key: value for key, value in own(snapshot).items() if key.startswith("nvlink-")}


@given(any_machine)
def test_every_label_of_any_machine_is_one_that_the_api_server_takes(snapshot: Snapshot) -> None:
    found = own(snapshot, levels=LEVELS)
    assert [item for item in found.items() if not VALUE.fullmatch(item[1])] == []
    assert [key for key in found if not KEY.fullmatch(DEFAULT_PREFIX + key)] == []
    assert len(found) <= MAX_OWN_LABELS


@given(any_machine)
def test_a_level_of_nvlink_holds_a_dot_only_behind_its_own_parent(snapshot: Snapshot) -> None:
    # KAI joins the values of the levels with dots: "r.1" below "a" would be "1" below "a.r".
    found = own(snapshot)
    domain, partition = found.get("nvlink-domain"), found.get("nvlink-partition")
    assert "." not in (partition or "").removeprefix(f"{domain}.")


@given(machines())
def test_the_same_hardware_under_another_name_differs_in_its_nvlink_domain_only(
    snapshot: Snapshot,
) -> None:
    one = structs.replace(snapshot, node="gpu-1")
    other = structs.replace(snapshot, node="gpu-2", issues=(), captured_at=None)
    assert set(changed(one, other)) <= {"nvlink-domain", "nvlink-partition"}


@pytest.mark.parametrize("name", [DGX, PCIE, NVL72])
def test_a_node_without_gpus_has_none_of_the_family(name: str) -> None:
    bare = structs.replace(shape(name), gpus=(), nvlinks=(), pairs=(), nvswitches=())
    assert own(bare, levels=LEVELS) == {}


def test_another_prefix_moves_the_whole_family() -> None:
    node = shape(DGX)
    moved = labels(node, LabelRules(prefix="example.com/"))
    expected = {f"example.com/{key}": value for key, value in own(node).items()}
    assert {key: value for key, value in moved.items() if "nvidia.com" not in key} == expected


def test_an_nvswitch_machine_is_a_domain_of_its_own() -> None:
    assert nvlink(shape(DGX)) == {
        "nvlink-domain": "node-78c864fc4cb08393",
        "nvlink-domain-size": "8",
        "nvlink-gpus": "8",
        "nvlink-islands": "1",
        "nvlink-links": "18",
        "nvlink-partition": "node-78c864fc4cb08393",
        "nvlink-version": "4",
    }


def test_a_node_of_a_rack_names_the_racks_domain_and_its_part_of_it() -> None:
    assert nvlink(shape(NVL72)) == {
        "nvlink-domain": CLUSTER,
        "nvlink-gpus": "4",
        "nvlink-islands": "1",
        "nvlink-links": "18",
        "nvlink-partition": f"{CLUSTER}.2",
        "nvlink-version": "5",
    }


@pytest.mark.parametrize(
    ("machine", "product", "size"),
    [
        ("GB200 NVL72", "NVIDIA GB200", "72"),
        ("ARS-121GL-NB3-LCC-R1", "NVIDIA GB300 NVL72", "72"),
        ("GB300-NVL72", "NVIDIA GB300 NVL72", "72"),
        ("GB200 NVL36", "NVIDIA GB200 NVL72", None),
        ("GB200 NVL4", "NVIDIA GB200", None),
        ("SRS-72", "NVIDIA GB200", None),
        (None, "NVIDIA GB200", None),
    ],
)
def test_a_racks_size_is_what_its_names_state(
    machine: str | None, product: str, size: str | None
) -> None:
    node = structs.replace(shape(NVL72), product_name=machine)
    for position in range(len(node.gpus)):
        node = with_gpu(node, position, product=product)
    found = own(node)
    assert (found.get("nvlink-domain-size"), found["nvlink-gpus"]) == (size, "4")


def test_a_name_alone_makes_no_rack() -> None:
    named = structs.replace(shape(DGX), product_name="GB200 NVL72")
    assert own(named)["nvlink-domain-size"] == "8"


def test_the_partition_stays_where_another_program_owns_the_clique() -> None:
    assert own(shape(NVL72), has_clique=False)["nvlink-partition"] == f"{CLUSTER}.2"


def test_bridged_pairs_are_islands() -> None:
    found = nvlink(shape(PAIRS))
    assert (found["nvlink-islands"], found["nvlink-gpus"]) == ("2", "2")


def test_without_nvlink_there_are_no_islands_and_no_domain() -> None:
    assert nvlink(shape(PCIE)) == {
        "nvlink-domain-size": "1",
        "nvlink-gpus": "1",
        "nvlink-islands": "0",
        "nvlink-links": "0",
    }


def test_a_fabric_that_is_still_registering_leaves_domain_and_partition_open() -> None:
    node = shape(NVL72)
    waiting = with_gpu(node, 1, fabric=Fabric(state=FabricState.IN_PROGRESS))
    assert {"nvlink-domain": None, "nvlink-partition": None}.items() <= changed(
        node, waiting
    ).items()


def test_the_links_are_those_of_the_gpu_with_the_fewest() -> None:
    node = shape(DGX)
    links = node.nvlinks or ()
    down = tuple(
        structs.replace(link, is_active=False) if (link.gpu, link.link) == (3, 4) else link
        for link in links
    )
    assert own(structs.replace(node, nvlinks=down))["nvlink-links"] == "17"


def test_the_links_of_a_gpu_that_keeps_silent_leave_the_number_open() -> None:
    node = shape(DGX)
    links = node.nvlinks or ()
    silent = (structs.replace(links[0], is_active=None), *links[1:])
    assert changed(node, structs.replace(node, nvlinks=silent))["nvlink-links"] is None


def test_gpus_in_mig_mode_do_not_count_for_links() -> None:
    node = shape(MIG)
    assert (own(node)["nvlink-links"], own(node)["mig-enabled"]) == ("18", "true")


def test_a_mig_mode_that_could_not_be_read_is_not_called_off() -> None:
    node = shape(PCIE)
    issue = ProbeIssue(probe="nvml", subject="GPU0 nvmlDeviceGetMigMode", reason="UNKNOWN")
    assert own(node)["mig-enabled"] == "false"
    assert "mig-enabled" not in own(structs.replace(node, issues=(issue,)))


def test_one_gpu_in_mig_mode_is_enough_whatever_is_unread() -> None:
    issue = ProbeIssue(probe="nvml", subject="GPU0 nvmlDeviceGetMigMode", reason="UNKNOWN")
    node = structs.replace(shape(DGX), issues=(issue,))
    assert own(with_gpu(node, 1, mig=Mig(is_enabled=True)))["mig-enabled"] == "true"
