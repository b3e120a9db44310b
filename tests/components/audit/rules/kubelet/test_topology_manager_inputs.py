"""KUB-005, KUB-006, KUB-007, KUB-008: what they cannot do without."""

import pytest
from msgspec.structs import replace

from nodetopo.components.audit.rules.kubelet.inputs import ATTRIBUTES
from nodetopo.model.pod import AssignedDevices, Container, Pod
from tests.components.audit.judge import GIB, healthy, result
from tests.components.audit.rules.kubelet.kubelet_node import missing, node, observed

BOTH = ("topologyManagerPolicy", "topologyManagerScope")
NEEDED = {
    "KUB-005": BOTH,
    "KUB-006": BOTH[:1],
    "KUB-007": (*BOTH, "cpuManagerPolicy", "memoryManagerPolicy"),
    "KUB-008": BOTH,
}
FIVE = {"nvidia.com/gpu": 5}
"""More than one NUMA node has."""


def job(*containers: Container) -> Pod:
    return Pod(namespace="ml", name="job", containers=containers)


@pytest.mark.parametrize(
    ("code", "field"), [(code, field) for code, fields in NEEDED.items() for field in fields]
)
def test_each_setting_that_a_rule_needs_is_named(code: str, field: str) -> None:
    policy = "restricted" if code == "KUB-007" else "single-numa-node"
    settings = {"topology_manager_policy": policy, ATTRIBUTES[field]: None}
    assert field in missing(code, node(**settings))


@pytest.mark.parametrize("code", NEEDED)
def test_unread_settings_are_unknown_whatever_the_pods_ask_for(code: str) -> None:
    two = job(Container(name="a", requests=FIVE), Container(name="b", requests=FIVE))
    snapshot = replace(healthy(), pods=(two,), kubelet=None, kubelet_on_disk=None)
    assert missing(code, snapshot)[:1] == ("kubelet settings",)


@pytest.mark.parametrize("code", ["KUB-005", "KUB-007", "KUB-008"])
def test_pods_that_were_not_read_are_unknown(code: str) -> None:
    policy = "restricted" if code == "KUB-007" else "single-numa-node"
    snapshot = replace(node(topology_manager_policy=policy), pods=None)
    assert "pods" in missing(code, snapshot)


@pytest.mark.parametrize(
    "unclear",
    [
        Container(name="c"),
        Container(name="c", devices=(AssignedDevices(resource="nvidia.com/gpu", ids=("x",)),)),
    ],
)
def test_a_container_of_unknown_resources_is_unknown(unclear: Container) -> None:
    snapshot = replace(healthy(), pods=(job(unclear),))
    assert missing("KUB-005", snapshot) == ("resources of container c in ml/job",)


@pytest.mark.parametrize(
    "container", [Container(name="c", requests=FIVE), Container(name="c", limits=FIVE)]
)
def test_of_requests_and_limits_the_one_that_is_stated_is_enough(container: Container) -> None:
    snapshot = replace(healthy(), pods=(job(container),))
    assert observed("KUB-005", snapshot) == ["5 nvidia.com/gpu"]


def test_memory_that_is_pinned_without_gpus_is_not_asked_for() -> None:
    amounts = {"cpu": 4_000, "memory": GIB}
    plain = job(Container(name="c", requests=amounts, limits=amounts))
    snapshot = replace(node(topology_manager_policy="restricted"), pods=(plain,))
    assert result("KUB-007", snapshot).missing == ()


def test_a_pod_that_is_called_guaranteed_without_cpus_has_none() -> None:
    odd = replace(job(Container(name="c", requests=FIVE)), qos_class="Guaranteed")
    assert observed("KUB-005", replace(healthy(), pods=(odd,))) == ["5 nvidia.com/gpu"]


def test_scope_pod_needs_no_pods() -> None:
    snapshot = replace(node(topology_manager_scope="pod"), pods=None)
    assert result("KUB-008", snapshot).missing == ()
    assert missing("KUB-008", replace(node(), pods=None)) == ("pods",)
