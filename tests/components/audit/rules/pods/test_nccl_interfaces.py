"""POD-002 on NCCL_SOCKET_IFNAME: names of interfaces that a job in the host's network has."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import healthy
from tests.components.audit.rules.gpu_pods import (
    found,
    job,
    missing,
    node,
    on_host,
    pod,
    trainer,
    verdict,
)

ROCE = "hgx-h200"
"""A machine whose HCAs speak Ethernet, and have interfaces."""


def with_interfaces(snapshot: Snapshot, *names: str) -> Snapshot:
    assert snapshot.host is not None
    return replace(snapshot, host=replace(snapshot.host, interfaces=names))


@pytest.mark.parametrize("value", ["eth0", "=eth0", "bond,eth", "lo,eth0"])
def test_interfaces_of_the_host_may_not_be_known(value: str) -> None:
    asked = on_host({"NCCL_SOCKET_IFNAME": value})
    unread = node(asked)
    assert unread.host is not None
    for host in (None, replace(unread.host, interfaces=None)):
        assert missing("POD-002", replace(unread, host=host)) == (
            "network interfaces that NCCL_SOCKET_IFNAME in ml/job-worker-1 container trainer names",
        )
        own = job(trainer(env={"NCCL_SOCKET_IFNAME": value}))
        one = pod(trainer(env={"NCCL_SOCKET_IFNAME": value}), uses_host_network=True)
        for other in (own, one):
            assert verdict("POD-002", replace(node(other), host=host)) is Verdict.PASS


@pytest.mark.parametrize("value", ["eth0", "=eno", "bond,eth", "docker,eth0", "=eno1.7,bond0"])
def test_a_list_without_an_interface_of_the_host_is_found(value: str) -> None:
    asked = with_interfaces(node(on_host({"NCCL_SOCKET_IFNAME": value})), "eno1", "ens3", "lo")
    assert found("POD-002", asked) == [
        (
            "ml/job-worker-1 container trainer",
            f"NCCL_SOCKET_IFNAME={value} names no interface of the host",
            "unset, or one of eno1, ens3",
        )
    ]


def test_a_host_with_its_own_interface_alone_has_none_to_name() -> None:
    asked = with_interfaces(node(on_host({"NCCL_SOCKET_IFNAME": "eth0"})), "docker0", "lo")
    ((_, _, expected),) = found("POD-002", asked)
    assert expected == "unset"


@pytest.mark.parametrize(
    "value", ["eno", "=eno1", "bond,en", "=lo,eno1", "^eth,lo", "=eno1:0", "eth0,eno:1", "x", "="]
)
def test_a_list_with_an_interface_of_the_host_is_right(value: str) -> None:
    asked = with_interfaces(node(on_host({"NCCL_SOCKET_IFNAME": value})), "eno1", "lo")
    assert verdict("POD-002", asked) is Verdict.PASS


def test_a_pod_in_a_network_of_its_own_has_interfaces_of_its_own() -> None:
    own = node(job(trainer(env={"NCCL_SOCKET_IFNAME": "eth0"})))
    assert verdict("POD-002", with_interfaces(own, "eno1", "lo")) is Verdict.PASS


def test_interfaces_of_hcas_are_known_without_the_others() -> None:
    netdev = next(one.name for hca in healthy(ROCE).hcas or () for one in hca.netdevs)
    for value in (f"={netdev}", f"eth9,{netdev[:3]}", "^docker,lo"):
        asked = on_host({"NCCL_SOCKET_IFNAME": value})
        unread = replace(node(asked, machine=ROCE), host=None)
        assert verdict("POD-002", unread) is Verdict.PASS
    near = on_host({"NCCL_SOCKET_IFNAME": f"={netdev[:3]}"})
    assert verdict("POD-002", replace(node(near, machine=ROCE), host=None)) is Verdict.UNKNOWN
