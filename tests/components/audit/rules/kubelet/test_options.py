"""KUB-009, KUB-010: options with which the kubelet does not start."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import NODE, healthy, result
from tests.components.audit.rules.kubelet.kubelet_node import FILE, missing, node, observed, skipped

ALPHA = {"CPUManagerPolicyAlphaOptions": True}
OFF = "CPUManagerPolicyAlphaOptions is off"


def cpu(
    options: Mapping[str, str],
    *,
    version: str | None = "v1.36.3",
    gates: Mapping[str, bool] | None = None,
    policy: str = "best-effort",
) -> Snapshot:
    settings = node(
        cpu_manager_options=options, feature_gates=gates or {}, topology_manager_policy=policy
    )
    return replace(settings, node_status=replace(NODE, kubelet_version=version))


def topology(options: Mapping[str, str], version: str = "v1.36.3", **gates: bool) -> Snapshot:
    settings = node(topology_manager_options=options, feature_gates=gates)
    return replace(settings, node_status=replace(NODE, kubelet_version=version))


def test_an_unknown_option_is_found_with_its_file() -> None:
    (finding,) = result("KUB-009", cpu({"full-pcpu-only": "true"})).findings
    assert finding == Finding(
        subject=f"cpuManagerPolicyOptions in {FILE}",
        observed="full-pcpu-only: no such option",
        expected="an option that this kubelet takes",
    )


@pytest.mark.parametrize(
    ("option", "version", "reason"),
    [
        ("full-pcpus-only", "v1.24.0", None),
        ("full-pcpus-only", "v1.22.9", OFF),
        ("distribute-cpus-across-numa", "v1.32.7", OFF),
        ("distribute-cpus-across-numa", "v1.33.0", None),
        ("align-by-socket", "v1.37.0", OFF),
        ("distribute-cpus-across-cores", "v1.30.1", "Kubernetes 1.30 has no such option"),
        ("distribute-cpus-across-cores", "v1.31.0", OFF),
        ("strict-cpu-reservation", "v1.31.0", "Kubernetes 1.31 has no such option"),
        ("strict-cpu-reservation", "v1.32.7", OFF),
        ("strict-cpu-reservation", "v1.33.0", None),
        ("prefer-align-cpus-by-uncorecache", "v1.33.0", OFF),
        ("prefer-align-cpus-by-uncorecache", "v1.34.1", None),
    ],
)
def test_an_option_needs_a_release_and_its_gate(
    option: str, version: str, reason: str | None
) -> None:
    found = observed("KUB-009", cpu({option: "true"}, version=version))
    assert found == ([] if reason is None else [f"{option}: {reason}"])


@pytest.mark.parametrize("gates", [ALPHA, {"AllAlpha": True}])
def test_an_alpha_option_is_taken_with_its_gate(gates: Mapping[str, bool]) -> None:
    assert observed("KUB-009", cpu({"align-by-socket": "true"}, gates=gates)) == []


def test_a_gate_of_its_own_goes_before_that_of_all() -> None:
    gates = {"AllAlpha": True, "CPUManagerPolicyAlphaOptions": False}
    assert observed("KUB-009", cpu({"align-by-socket": "true"}, gates=gates)) == [
        f"align-by-socket: {OFF}"
    ]


@pytest.mark.parametrize("gate", ["CPUManagerPolicyBetaOptions", "AllBeta"])
def test_a_beta_option_is_refused_where_its_gate_is_off(gate: str) -> None:
    options = {"distribute-cpus-across-numa": "true"}
    assert observed("KUB-009", cpu(options, gates={gate: False})) == [
        "distribute-cpus-across-numa: CPUManagerPolicyBetaOptions is off"
    ]


@pytest.mark.parametrize(
    "pair",
    [
        ("full-pcpus-only", "distribute-cpus-across-cores"),
        ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
        ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
        ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
    ],
)
def test_options_that_exclude_each_other_are_found(pair: tuple[str, str]) -> None:
    both = cpu(dict.fromkeys(pair, "true"), gates=ALPHA)
    one = cpu({pair[0]: "true", pair[1]: "false"}, gates=ALPHA)
    assert observed("KUB-009", both) == [" and ".join(pair)]
    assert observed("KUB-009", one) == []


def test_policy_none_takes_no_options() -> None:
    snapshot = node(cpu_manager_policy="none", cpu_manager_options={"full-pcpus-only": "false"})
    assert observed("KUB-009", snapshot) == ["full-pcpus-only with cpuManagerPolicy none"]


def test_a_value_that_is_no_truth_is_found() -> None:
    assert observed("KUB-009", cpu({"full-pcpus-only": "yes"})) == ["full-pcpus-only: yes"]


def test_alignment_by_socket_and_single_numa_node_exclude_each_other() -> None:
    snapshot = cpu({"align-by-socket": "true"}, gates=ALPHA, policy="single-numa-node")
    assert observed("KUB-009", snapshot) == [
        "align-by-socket with topologyManagerPolicy single-numa-node"
    ]


def test_alignment_by_socket_needs_a_numa_node_for_each_socket() -> None:
    whole = cpu({"align-by-socket": "true"}, gates=ALPHA)
    snapshot = replace(whole, numa_nodes=(whole.numa_nodes or ())[:1])
    assert observed("KUB-009", snapshot) == ["align-by-socket with 2 sockets and 1 NUMA nodes"]


def test_without_a_version_options_are_unknown_and_none_are_fine() -> None:
    assert missing("KUB-009", cpu({"full-pcpus-only": "true"}, version=None)) == (
        "version of the kubelet",
    )
    assert result("KUB-009", cpu({}, version=None)).missing == ()


def test_without_gates_options_are_unknown() -> None:
    assert missing("KUB-009", node(feature_gates=None)) == ("featureGates",)


def test_a_newer_kubelet_may_know_an_option_that_is_unknown_here() -> None:
    snapshot = cpu({"spread-by-phase-of-moon": "true"}, version="v1.38.0")
    assert missing("KUB-009", snapshot) == (
        "cpuManagerPolicyOptions: spread-by-phase-of-moon, unknown here",
    )


@pytest.mark.parametrize(
    ("options", "version", "finding"),
    [
        ({"prefer-closest-numa-nodes": "true"}, "v1.28.0", None),
        ({"max-allowable-numa-nodes": "8"}, "v1.36.3", None),
        ({"max-allowable-numa-nodes": "+12"}, "v1.36.3", None),
        ({"max-allowable-numa-nodes": "7"}, "v1.36.3", "max-allowable-numa-nodes: 7"),
        ({"max-allowable-numa-nodes": "many"}, "v1.36.3", "max-allowable-numa-nodes: many"),
        (
            {"max-allowable-numa-nodes": "16"},
            "v1.30.0",
            "max-allowable-numa-nodes: Kubernetes 1.30 has no such option",
        ),
        (
            {"prefer-closest-numa-nodes": "true"},
            "v1.27.0",
            "prefer-closest-numa-nodes: TopologyManagerPolicyAlphaOptions is off",
        ),
        ({"prefer-closest": "true"}, "v1.36.3", "prefer-closest: no such option"),
    ],
)
def test_topology_options_are_judged_by_release(
    options: Mapping[str, str], version: str, finding: str | None
) -> None:
    found = observed("KUB-010", topology(options, version))
    assert found == ([] if finding is None else [finding])


def test_policy_none_does_not_look_at_topology_options() -> None:
    snapshot = node(topology_manager_policy="none", topology_manager_options={"x": "y"})
    assert skipped("KUB-010", snapshot) == "topologyManagerPolicy is none"


def test_a_node_without_gpus_is_not_judged() -> None:
    snapshot = replace(cpu({"x": "y"}), gpus=())
    assert skipped("KUB-009", snapshot) == "no GPU"
    assert healthy().gpus
