"""POD-002 on ``NCCL_IB_HCA``: what a list of HCAs leaves NCCL of the node's."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.hca import Hca, HcaKind
from nodetopo.model.pci import PciFunction
from nodetopo.model.pod import Pod
from nodetopo.model.snapshot import Kernel, Snapshot
from tests.components.audit.judge import healthy
from tests.components.audit.rules.gpu_pods import (
    found,
    job,
    missing,
    node,
    observed,
    pod,
    trainer,
    verdict,
)

RDMA = {"rdma/hca": 1}
EVERY = "which excludes every HCA of this node"
NONE_SO = "and no HCA of this node is named so"


def hca(name: str, *states: str | None, **fields: Any) -> Hca:
    """Return an HCA with a port in each of *states*."""
    port = (healthy().hcas or ())[0].ports[0]
    ports = (
        replace(port, number=number, state=state) for number, state in enumerate(states, start=1)
    )
    return Hca(name=name, ports=tuple(ports), **fields)


def hcas(*names: str) -> tuple[Hca, ...]:
    """Return HCAs with one active port each."""
    return tuple(hca(name, "ACTIVE") for name in names)


THREE = hcas("mlx5_0", "mlx5_1", "mlx5_10")


def listing(value: str, **changes: Any) -> Snapshot:
    """Return a node with a pod that has HCAs and this list of them."""
    changes.setdefault("hcas", THREE)
    return node(pod(trainer(RDMA, env={"NCCL_IB_HCA": value})), **changes)


@pytest.mark.parametrize(
    ("value", "seen", "expected"),
    [
        ("mlx5_1", "which takes mlx5_10 too", "NCCL_IB_HCA==mlx5_1"),
        ("mlx5_1:1", "which takes mlx5_10 too", "NCCL_IB_HCA==mlx5_1:1"),
        ("^mlx5_1", "which excludes mlx5_10 too", "NCCL_IB_HCA=^=mlx5_1"),
        ("=mlx5_7", NONE_SO, "mlx5_0, mlx5_1, mlx5_10"),
        (" mlx5_0", NONE_SO, "mlx5_0, mlx5_1, mlx5_10"),
        ("=^mlx5_0", NONE_SO, "mlx5_0, mlx5_1, mlx5_10"),
        ("=mlx5", NONE_SO, "mlx5_0, mlx5_1, mlx5_10"),
        ("^mlx5", EVERY, "mlx5_0, mlx5_1, mlx5_10"),
        ("^=mlx5_0,mlx5_1,mlx5_10", EVERY, "mlx5_0, mlx5_1, mlx5_10"),
        ("^=mlx5_0:1,mlx5_1:1,mlx5_10", EVERY, "mlx5_0, mlx5_1, mlx5_10"),
        ("^", EVERY, "mlx5_0, mlx5_1, mlx5_10"),
        ("^=,", EVERY, "mlx5_0, mlx5_1, mlx5_10"),
        ("mlx5_0:2", "and the HCAs that it names have no such port", "mlx5_0, mlx5_1, mlx5_10"),
        (
            "mlx5_0:2,mlx5_10:2",
            "and the HCAs that it names have no such port",
            "mlx5_0, mlx5_1, mlx5_10",
        ),
        ("mlx5_0:x", "and the HCAs that it names have no such port", "mlx5_0, mlx5_1, mlx5_10"),
        ("=mlx5_0,mlx5_1:2", "of which mlx5_1:2 is no port of this node", "mlx5_1:1"),
        ("^=mlx5_0:2", "of which mlx5_0:2 is no port of this node", "mlx5_0:1"),
    ],
)
def test_a_list_of_adapters_that_does_not_say_what_it_should_is_found(
    value: str, seen: str, expected: str
) -> None:
    assert [pair[1:] for pair in found("POD-002", listing(value))] == [
        (f"NCCL_IB_HCA={value}, {seen}", expected)
    ]


@pytest.mark.parametrize(
    "value",
    [
        "",
        ",,,",
        "=",
        "=mlx5_1",
        "mlx5_1,mlx5_10",
        "mlx5_",
        "mlx5_0:1",
        "mlx5_0:",
        "=mlx5_0::0:0",
        "=mlx5_0:1:0:1",
        "=mlx5_0:-1",
        "^mlx5_0",
        "^=mlx5_0,mlx5_1",
        "^=mlx5",
        "^roce",
        "^,mlx5_0",
    ],
)
def test_a_list_of_adapters_that_leaves_some_is_fine(value: str) -> None:
    assert verdict("POD-002", listing(value)) is Verdict.PASS


def test_a_switch_management_hca_is_none_for_jobs() -> None:
    managed = hcas("mlx5_2", "mlx5_3")
    seen = observed("POD-002", listing("=mlx5_2", management_hcas=managed))
    assert seen == [
        "NCCL_IB_HCA==mlx5_2, and no HCA of this node is named so",
        "NCCL_IB_HCA==mlx5_2, of which mlx5_2 is the NVLink fabric's",
    ]
    for value in ("^=mlx5_2", "=mlx5_0"):
        assert verdict("POD-002", listing(value, management_hcas=managed)) is Verdict.PASS


def test_an_entry_beyond_those_that_nccl_reads_excludes_nothing() -> None:
    names = [f"mlx5_{number}" for number in range(33)]
    value = "^=" + ",".join(names)
    assert verdict("POD-002", listing(value, hcas=hcas(*names))) is Verdict.PASS
    assert verdict("POD-002", listing(value, hcas=hcas(*names[:32]))) is Verdict.WARN


def test_a_list_of_ports_that_are_down_leaves_none() -> None:
    some = (hca("mlx5_0", "DOWN"), hca("mlx5_1", "ACTIVE"))
    assert found("POD-002", listing("=mlx5_0", hcas=some))[0][1:] == (
        "NCCL_IB_HCA==mlx5_0, of which no port is active",
        "mlx5_1",
    )
    assert verdict("POD-002", listing("=mlx5_1", hcas=some)) is Verdict.PASS


def test_a_port_of_unknown_state_may_be_what_a_list_leaves() -> None:
    some = (hca("mlx5_0", None), hca("mlx5_1", "ACTIVE"))
    assert missing("POD-002", listing("=mlx5_0", hcas=some)) == ("port states of mlx5_0",)
    for value in ("=mlx5_1", "mlx5"):
        assert verdict("POD-002", listing(value, hcas=some)) is Verdict.PASS
    assert verdict("POD-002", listing("=mlx5_2", hcas=some)) is Verdict.WARN
    both = (hca("mlx5_0", None, None), hca("mlx5_1", None))
    assert verdict("POD-002", listing("", hcas=both)) is Verdict.PASS
    assert missing("POD-002", listing("mlx5", hcas=both)) == ("port states of mlx5_0, mlx5_1",)


@pytest.mark.parametrize(
    ("value", "names"), [("roce1", ("roce1", "roce1s0")), ("mlx5_1,ib", ("mlx5_1", "ib00001"))]
)
def test_a_longer_name_is_a_slip_only_if_it_has_more_digits(
    value: str, names: tuple[str, ...]
) -> None:
    assert verdict("POD-002", listing(value, hcas=hcas(*names))) is Verdict.PASS


def test_what_a_list_takes_too_must_be_up() -> None:
    one = hcas("mlx5_1")
    down, half = (hca("mlx5_10", *states) for states in (("DOWN",), ("DOWN", "ACTIVE")))
    assert verdict("POD-002", listing("mlx5_1", hcas=(*one, down))) is Verdict.PASS
    assert verdict("POD-002", listing("mlx5_1", hcas=(*one, half))) is Verdict.WARN


def test_a_port_that_one_of_the_named_adapters_has_is_a_port() -> None:
    some = (hca("mlx5_0", "ACTIVE", "ACTIVE"), hca("mlx5_1", "ACTIVE"))
    assert verdict("POD-002", listing("mlx5:2", hcas=some)) is Verdict.PASS
    assert observed("POD-002", listing("^mlx5:2", hcas=some)) == []
    assert observed("POD-002", listing("=mlx5_0,mlx5_1:2", hcas=some)) == [
        "NCCL_IB_HCA==mlx5_0,mlx5_1:2, of which mlx5_1:2 is no port of this node"
    ]


def test_an_adapter_without_known_ports_may_have_any() -> None:
    some = (hca("mlx5_0"), hca("mlx5_1", "ACTIVE"))
    for value in ("=mlx5_1,mlx5_0:2", "mlx5_1,mlx5:2"):
        assert verdict("POD-002", listing(value, hcas=some)) is Verdict.PASS


def test_nccl_has_nothing_to_lose_without_an_adapter_that_it_can_use() -> None:
    software = (hca("rxe0", "ACTIVE", kind=HcaKind.SOFTWARE),)
    amazon = (hca("rdmap0s6", "ACTIVE", function=PciFunction(driver="efa")),)
    down = (hca("mlx5_0", "DOWN"),)
    for some in ((), software, amazon, down):
        assert verdict("POD-002", listing("^mlx5,rxe,rdmap", hcas=some)) is Verdict.PASS


def test_what_is_left_in_software_is_no_adapter() -> None:
    some = (*hcas("mlx5_0"), hca("rxe0", "ACTIVE", kind=HcaKind.SOFTWARE))
    assert verdict("POD-002", listing("^mlx5", hcas=some)) is Verdict.WARN


def test_names_of_adapters_say_nothing_where_each_pod_has_its_own() -> None:
    kernel = replace(healthy().kernel or Kernel(), rdma_netns="exclusive")
    assert verdict("POD-002", listing("=mlx5_99", kernel=kernel)) is Verdict.PASS


@pytest.mark.parametrize("kernel", [None, Kernel()])
def test_whose_adapters_a_pod_sees_is_asked_where_the_list_leaves_none(
    kernel: Kernel | None,
) -> None:
    needed = ("whether pods share the RDMA devices of the node",)
    assert missing("POD-002", listing("=mlx5_99", kernel=kernel)) == needed
    assert verdict("POD-002", listing("=mlx5_0", kernel=kernel)) is Verdict.PASS


def on_host(value: str, make: Any = job, **env: str) -> Pod:
    """Return a pod in the host's network that asks for no RDMA device."""
    container = trainer(env={"NCCL_IB_HCA": value, **env})
    one: Pod = make(container, uses_host_network=True)
    return one


def test_a_pod_in_the_hosts_network_sees_the_hosts_adapters() -> None:
    kernel = replace(healthy().kernel or Kernel(), rdma_netns="exclusive")
    for value in ("=mlx5_99", "^mlx5"):
        assert verdict("POD-002", node(on_host(value), kernel=kernel)) is Verdict.WARN


def test_a_job_of_one_pod_may_exclude_all_adapters_and_may_not_name_others() -> None:
    assert verdict("POD-002", node(on_host("^mlx5", pod))) is Verdict.PASS
    assert verdict("POD-002", node(on_host("=mlx5_99", pod))) is Verdict.WARN


@pytest.mark.parametrize(
    "env", [{"NCCL_NET_PLUGIN": "fastrak"}, {"NCCL_IB_DISABLE": "1"}, {"NCCL_NET": "Socket"}]
)
def test_a_list_that_nccl_does_not_go_by_is_none(env: dict[str, str]) -> None:
    assert verdict("POD-002", node(on_host("=mlx5_99", **env))) is Verdict.PASS


def test_without_a_plugin_nccl_goes_by_the_list() -> None:
    assert verdict("POD-002", node(on_host("=mlx5_99", NCCL_NET_PLUGIN="none"))) is Verdict.WARN
