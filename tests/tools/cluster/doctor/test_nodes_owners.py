"""What the doctor says of label owners."""

from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from tests.tools.cluster.examined import cluster, nodes, observed, result
from tests.tools.cluster.labelled import CLIQUE, DOMAIN, with_labels, without

COUNT, MARK = "nvidia.com/gpu.count", "nvidia.com/gfd.timestamp"


def written(node_index: int, key: str, *managers: str) -> list[tuple[str, str]]:
    """Return what is found when *managers* write *key* of one node."""
    changed = list(nodes())
    node = changed[node_index]
    changed[node_index] = replace(node, owners={**(node.owners or {}), key: managers})
    return observed("CLU-006", cluster(changed))


def test_two_writers_of_nvidia_s_and_of_our_labels_are_named() -> None:
    assert written(0, COUNT, "nfd-master", "nodetopo") == [
        (COUNT, "written by nfd-master and nodetopo on n0")
    ]
    assert written(1, DOMAIN, "kubectl-label", "nodetopo") == [
        (DOMAIN, "written by kubectl-label and nodetopo on n1")
    ]


def test_two_strangers_who_share_the_clique_are_named() -> None:
    found = written(0, CLIQUE, "compute-domain-kubelet-plugin", "nfd-master")
    assert found == [(CLIQUE, "written by compute-domain-kubelet-plugin and nfd-master on n0")]


def test_one_writer_who_is_not_us_is_no_conflict() -> None:
    assert written(0, CLIQUE, "compute-domain-kubelet-plugin") == []


def test_labels_of_kubernetes_are_not_ours_to_judge() -> None:
    assert written(0, "kubernetes.io/hostname", "kubelet", "cloud-controller-manager") == []


def test_nodes_with_the_same_conflict_are_one_finding() -> None:
    shared = [replace(node, owners={COUNT: ("a", "b")}) for node in nodes()]
    assert observed("CLU-006", cluster(shared)) == [(COUNT, "written by a and b on n[0-4]")]


def test_owners_that_nobody_told_are_unknown_and_what_is_known_still_counts() -> None:
    first, second, *rest = nodes()
    untold = replace(first, owners=None)
    found = result("CLU-006", cluster((untold, second, *rest)))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, ("field managers of n0",))
    conflict = replace(second, owners={COUNT: ("a", "b")})
    assert result("CLU-006", cluster((untold, conflict, *rest))).verdict is Verdict.WARN


def test_gfd_beside_us_is_found_and_gfd_alone_is_not() -> None:
    first, second, *rest = nodes()
    both = with_labels(first, {MARK: "1700000000"})
    ours = [key for key in second.labels if key.startswith("gpu.topology/")]
    alone = with_labels(without(second, *ours), {MARK: "1700000000"})
    found = cluster((both, alone, *rest))
    assert observed("CLU-007", found) == [(MARK, "alongside labels of nodetopo on n0")]
    assert result("CLU-007", found).verdict is Verdict.WARN
