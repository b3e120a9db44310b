"""POD-012, and of POD-002 a list of HCAs that leaves none of those that a container was given."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.pod import AssignedDevices, Container
from nodetopo.model.snapshot import Kernel, Snapshot
from tests.components.audit.judge import result
from tests.components.audit.rules.gpu_pods import (
    found,
    missing,
    node,
    observed,
    pod,
    trainer,
    verdict,
)

RDMA = {"rdma/hca": 1}
ROCE = "hgx-h200"


def roce(netns: Any = "shared", **changes: Any) -> Snapshot:
    """Return a node whose HCAs all speak RoCE, with a pod that asks for one."""
    return node(pod(trainer(RDMA), **changes), machine=ROCE, kernel=Kernel(rdma_netns=netns))


def test_a_roce_hca_has_no_address_in_the_network_of_pods() -> None:
    ((subject, text, expected),) = found("POD-012", roce())
    assert subject == "ml/job-0 container trainer"
    assert text.startswith("RoCE HCAs mlx5_bond_0, mlx5_2, mlx5_3, mlx5_4, mlx5_5 and ")
    assert expected == "the host's network, or a network with an interface of an HCA"


@pytest.mark.parametrize("way", ["uses_host_network", "has_other_devices"])
def test_the_hosts_network_or_another_interface_has_one(way: str) -> None:
    assert verdict("POD-012", roce(**{way: True})) is Verdict.PASS
    assert missing("POD-012", roce(**{way: None})) == ("networks of ml/job-0 container trainer",)


def test_infiniband_needs_no_interface() -> None:
    assert result("POD-012", node(pod(trainer(RDMA)))).skipped == "no RoCE HCA"
    mixed = node(pod(trainer(RDMA)), machine="dgx-a100")  # RoCE for storage
    assert result("POD-012", mixed).skipped is None
    assert verdict("POD-012", mixed) is Verdict.PASS


def test_only_the_hcas_that_a_container_holds_count() -> None:
    held = (AssignedDevices(resource="rdma/hca", ids=("0000:61:00.0::0",)),)
    storage = node(pod(replace(trainer(RDMA), devices=held)), machine="dgx-a100")
    assert observed("POD-012", storage) == ["RoCE HCAs mlx5_4, in the pods' network"]


def test_modes_of_namespaces() -> None:
    assert result("POD-012", roce("exclusive")).skipped == "RDMA network namespaces are exclusive"
    assert missing("POD-012", roce(None)) == ("mode of RDMA network namespaces",)


def test_efa_is_no_roce_and_other_resources_are_no_hcas() -> None:
    for name in ("vpc.amazonaws.com/efa", "example.com/fpga"):
        snapshot = node(pod(trainer({name: 1})), machine=ROCE)
        assert verdict("POD-012", snapshot) is Verdict.PASS


def test_an_unread_link_layer_leaves_it_open() -> None:
    whole = roce()
    hcas = tuple(
        replace(hca, ports=tuple(replace(port, layer=None) for port in hca.ports))
        for hca in whole.hcas or ()
    )
    assert missing("POD-012", replace(whole, hcas=hcas))[0].startswith("link layer of mlx5_bond_0")


def given(value: str, *ids: str) -> Snapshot:
    """Return a node with a container that was given devices, and sets the list of HCAs."""
    one: Container = trainer(RDMA, env={"NCCL_IB_HCA": value})
    devices = (AssignedDevices(resource="rdma/hca", ids=ids),)
    return node(pod(replace(one, devices=devices)))


FIRST = "0000:18:00.0"


def test_a_list_that_leaves_none_of_the_hcas_that_were_given_is_found() -> None:
    assert found("POD-002", given("=mlx5_3:1", FIRST)) == [
        (
            "ml/job-0 container trainer",
            "NCCL_IB_HCA==mlx5_3:1, which leaves no HCA that it was given",
            "mlx5_0",
        )
    ]


@pytest.mark.parametrize("value", ["=mlx5_0:1", "=mlx5_3,mlx5_0", "^=mlx5_3"])
def test_a_list_that_leaves_one_is_fine(value: str) -> None:
    assert verdict("POD-002", given(value, FIRST)) is Verdict.PASS


def test_a_device_of_a_pool_may_have_given_others() -> None:
    shared = given("=mlx5_3:1", f"{FIRST}::2")
    assert observed("POD-002", shared) == []
    assert missing("POD-002", shared) == (
        "whether ml/job-0 container trainer has other HCAs of the pool than mlx5_0",
    )
    assert verdict("POD-002", given("=mlx5_3:1", "2")) is Verdict.PASS  # every HCA of the pool
