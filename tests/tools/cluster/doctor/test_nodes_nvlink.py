"""What the doctor says of labels that NVML contradicts."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import FabricState
from nodetopo.model.snapshot import Snapshot
from tests.tools.cluster.examined import cluster, nodes, observed, result
from tests.tools.cluster.labelled import (
    CLIQUE,
    CLUSTER,
    DOMAIN,
    PARTITION,
    bare,
    with_labels,
    without,
)

STALE = f"{CLUSTER}.7"


def in_clique(clique: int, state: FabricState = FabricState.COMPLETED) -> Snapshot:
    """Return what NVML says on a tray in *clique*."""
    snapshot = machine("gb200-nvl72")
    gpus = tuple(
        replace(gpu, fabric=replace(gpu.fabric, clique_id=clique, state=state))
        for gpu in snapshot.gpus
        if gpu.fabric is not None
    )
    return replace(snapshot, node="n0", gpus=gpus)


def test_a_clique_that_our_partition_contradicts_is_stale() -> None:
    first, *rest = nodes()
    found = result("CLU-008", cluster((with_labels(first, {CLIQUE: STALE}), *rest)))
    (finding,) = found.findings
    assert (finding.subject, finding.observed) == (f"{CLIQUE} on n0", STALE)
    assert finding.expected == f"{CLUSTER}.0, as NVML says"
    assert found.verdict is Verdict.FAIL


def test_a_clique_on_a_node_without_a_fabric_is_stale() -> None:
    *rest, dgx = nodes()
    found = result("CLU-008", cluster((*rest, with_labels(dgx, {CLIQUE: STALE}))))
    assert [finding.expected for finding in found.findings] == ["no label"]


def test_a_clique_of_gpus_without_nvlink_to_other_nodes_is_found_by_their_product() -> None:
    board = bare("h0", **{"nvidia.com__gpu.product": "NVIDIA-H100-80GB-HBM3"})
    found = result("CLU-008", cluster((with_labels(board, {CLIQUE: STALE}),)))
    assert [(it.observed, it.expected) for it in found.findings] == [(STALE, "no label")]
    assert found.verdict is Verdict.FAIL


@pytest.mark.parametrize("key", [PARTITION, "gpu.topology/interconnect"])
def test_a_clique_that_our_labels_say_nothing_about_is_unknown(key: str) -> None:
    first, *rest = nodes()
    found = result("CLU-008", cluster((without(first, key), *rest)))
    assert found.verdict is Verdict.UNKNOWN
    assert found.missing == ("what NVML says of the fabric of n0",)


def test_a_clique_that_nobody_writes_is_nothing_to_contradict() -> None:
    first, *rest = nodes()
    found = result("CLU-008", cluster((without(first, CLIQUE), *rest)))
    assert found.verdict is Verdict.PASS


def test_a_snapshot_is_believed_before_our_labels() -> None:
    found = replace(cluster(nodes()), snapshots={"n0": in_clique(7)})
    stale = f"{CLUSTER}.0"
    assert observed("CLU-008", found) == [(f"{PARTITION} on n0", stale), (f"{CLIQUE} on n0", stale)]
    agreed = replace(cluster(nodes()), snapshots={"n0": in_clique(0)})
    assert result("CLU-008", agreed).verdict is Verdict.PASS


def test_a_snapshot_without_a_fabric_contradicts_all_three_labels() -> None:
    alone = replace(machine("l40s-pcie-4"), node="n0")
    found = replace(cluster(nodes()), snapshots={"n0": alone})
    assert [subject for subject, _ in observed("CLU-008", found)] == [
        f"{key} on n0" for key in (DOMAIN, PARTITION, CLIQUE)
    ]


def test_a_snapshot_of_a_node_that_still_registers_proves_nothing() -> None:
    waiting = in_clique(7, FabricState.IN_PROGRESS)
    found = result("CLU-008", replace(cluster(nodes()), snapshots={"n0": waiting}))
    assert (found.verdict, found.findings) == (Verdict.UNKNOWN, ())


def test_nodes_with_the_same_stale_value_are_one_finding() -> None:
    stale = [with_labels(node, {CLIQUE: STALE}) for node in nodes()[:2]]
    assert observed("CLU-008", cluster(stale)) == [(f"{CLIQUE} on n[0-1]", STALE)]
