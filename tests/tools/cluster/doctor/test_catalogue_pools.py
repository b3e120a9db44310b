"""What the doctor says of clusters whose machines are not alike, or tell of nothing."""

import pytest

from nodetopo.checks.engine import Result
from nodetopo.checks.rule import Verdict
from nodetopo.tools.cluster.cluster import Cluster, Topology
from nodetopo.tools.cluster.levels import (
    FROM_LABELS,
    WITH_NVLINK,
    WITHOUT_NVLINK,
    is_from_labels,
    levels_in_use,
)
from nodetopo.tools.cluster.node import ClusterNode
from tests.tools.cluster.examined import nodes, observed, result
from tests.tools.cluster.labelled import (
    DOMAIN,
    HOSTNAME,
    PARTITION,
    ZONE,
    bare,
    labelled,
    with_labels,
)
from tests.tools.cluster.labelled import without as lacking

PREFIX = "gpu.topology/"
NO_NVLINK = {f"{PREFIX}interconnect": "pcie"}
PCIE = tuple(labelled(f"l40-{number}", "l40s-pcie-4") for number in range(2))
PRODUCT = "nvidia.com/gpu.product"


def judged(*of: ClusterNode, named: tuple[str, ...] = ()) -> Result:
    found = levels_in_use(of, PREFIX, named)
    return result("CLU-001", Cluster(nodes=of, prefix=PREFIX, topologies=found))


def subjects(found: Result) -> list[tuple[str, str]]:
    return [(one.subject.partition(" ")[0], one.observed) for one in found.findings]


def test_machines_joined_by_pcie_are_a_pool_of_their_own() -> None:
    found = levels_in_use((*nodes(), *PCIE), PREFIX)
    assert [(one.name, one.levels) for one in found] == [
        (WITH_NVLINK, (ZONE, DOMAIN, PARTITION, HOSTNAME)),
        (WITHOUT_NVLINK, (HOSTNAME,)),
    ]
    assert all(map(is_from_labels, found))
    assert judged(*nodes(), *PCIE).verdict is Verdict.PASS
    assert [one.name for one in levels_in_use(PCIE, PREFIX)] == [FROM_LABELS]


def test_a_broken_node_is_found_in_its_own_pool() -> None:
    first, *rest = nodes()
    found = judged(lacking(first, DOMAIN, PARTITION), *rest, *PCIE)
    assert found.verdict is Verdict.FAIL
    assert subjects(found) == [(key, "missing on 1 of 5: n0") for key in (DOMAIN, PARTITION)]
    found = judged(*nodes(), with_labels(PCIE[0], {ZONE: "a"}), PCIE[1])
    assert subjects(found) == [(ZONE, "missing on 1 of 2: l40-1")]


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({}, Verdict.FAIL),
        ({f"{PREFIX}mig-enabled": "true"}, Verdict.PASS),
        ({PRODUCT: "NVIDIA-H100-PCIe"}, Verdict.PASS),
    ],
)
def test_a_machine_that_lost_its_nvlink_is_no_machine_without_nvlink(
    more: dict[str, str], verdict: Verdict
) -> None:
    lost = lacking(labelled("lost", "dgx-h100", {ZONE: "a"}), DOMAIN, PARTITION)
    assert judged(*nodes(), with_labels(lost, {**NO_NVLINK, **more})).verdict is verdict


def test_a_chosen_node_without_labels_of_gpus_is_unknown_and_never_passed() -> None:
    found = judged(bare("new-1"), bare("new-2"))
    assert found.verdict is Verdict.UNKNOWN
    assert found.missing == ("whether new-[1-2] should have levels: no label tells of GPUs",)
    assert judged(bare("new-1"), named=(HOSTNAME,)).verdict is Verdict.PASS


def test_nodes_that_no_label_gives_a_level_are_unknown() -> None:
    found = judged(lacking(PCIE[0], HOSTNAME))
    assert found.missing == ("levels: no label makes one (name keys with --levels)",)


def test_a_topology_may_be_meant_for_some_nodes() -> None:
    assert Topology(name="it", levels=()).is_for("n1")
    assert not Topology(name="it", levels=(), only=frozenset({"n2"})).is_for("n1")


def test_nodes_of_one_host_name_fail() -> None:
    twins = tuple(with_labels(node, {HOSTNAME: "ubuntu"}) for node in PCIE)
    found = levels_in_use(twins, PREFIX)
    whole = Cluster(nodes=twins, prefix=PREFIX, topologies=found)
    assert observed("CLU-003", whole) == [(f"{HOSTNAME}=ubuntu", "on 2 Nodes: l40-[0-1]")]
    assert observed("CLU-003", Cluster(nodes=PCIE, prefix=PREFIX, topologies=found)) == []
