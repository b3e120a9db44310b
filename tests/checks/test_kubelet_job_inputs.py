"""KUB-005, KUB-006, KUB-007, KUB-008: what they cannot do without."""

from dataclasses import replace

import pytest

from agent.checks.kubelet_inputs import ATTRIBUTES
from agent.model.pod import Container, Pod
from tests.checks.judge import healthy
from tests.checks.kubelet_node import missing, node, observed

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
    assert "pods were not read" in missing(code, snapshot)


@pytest.mark.parametrize(
    "container", [Container(name="c", requests=FIVE), Container(name="c", limits=FIVE)]
)
def test_of_requests_and_limits_the_one_that_is_stated_is_enough(container: Container) -> None:
    snapshot = replace(healthy(), pods=(job(container),))
    assert observed("KUB-005", snapshot) == ["5 nvidia.com/gpu"]
