"""Pods with a device of every shared pool, where each pool is one HCA, on the kubelet's managers.

That is how DGX machines are documented to be set up: a pool per HCA, and one device of each in a
job. The shared plugin gives the kubelet no NUMA nodes, so such pods are as free as their GPUs.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodetopo.model.pod import Container, ContainerKind, Pod
from tests.lab.admission_case import pod_object
from tests.lab.joint_pairs import GPU, machine, managers, node_info, serving

pytestmark = pytest.mark.lab

_SNAPSHOT = machine()
_HCAS = _SNAPSHOT.hcas or ()
_MOST = 16
_ONE_OF_EACH = range(len(_HCAS))
_OF_ONE_NODE = [at for at, hca in enumerate(_HCAS) if hca.numa_node == 0]


def pool(number: int, **entry: Any) -> Mapping[str, Any]:
    """Return the pool of one HCA."""
    hca = _HCAS[number]
    name = f"shared_ib{number}"
    return {"resourceName": name, "rdmaHcaMax": _MOST, "selectors": {"hcas": [hca.name]}, **entry}


def pod(name: str, gpus: int, pools: Sequence[int] = _ONE_OF_EACH) -> Pod:
    """Return a pod with *gpus* and one device of each of *pools*."""
    limits = {GPU: gpus, **{f"rdma/shared_ib{number}": 1 for number in pools}}
    work = Container(name="work", kind=ContainerKind.APP, requests=limits, limits=limits)
    return Pod(namespace="default", name=name, uid=name, containers=(work,))


PODS = (pod("whole", 8), pod("half", 4), pod("near-half", 4, _OF_ONE_NODE), pod("one", 1))


def admitted(policy: str, **entry: Any) -> Mapping[str, bool]:
    """Return which of :data:`PODS` the kubelet admits, each on an empty node."""
    pools = [pool(number, **entry) for number in _ONE_OF_EACH]
    with tempfile.TemporaryDirectory(prefix="nt-") as short:
        home, sockets = Path(short), Path(short) / "device-plugins"
        sockets.mkdir()
        with serving(home, sockets, is_joint=True, pools=pools) as served:
            for plugins, _ in served:
                plugins.take(_SNAPSHOT)
            names = {f"rdma/{one['resourceName']}": _MOST for one in pools}
            question = {
                "machine": node_info(_SNAPSHOT),
                "topology": {"policy": policy, "scope": "container"},
                "cpu": {"policy": "none", "amount": "1"},
                "memory": {"policy": "None", "amount": "1Gi"},
                "await": {GPU: len(_SNAPSHOT.gpus), **names},
                "steps": [
                    step
                    for one in PODS
                    for step in ({"admit": pod_object(one)}, {"remove": one.name})
                ],
            }
            verdicts = managers(home, question)["verdicts"][::2]
    return {one.name: verdict["admit"] for one, verdict in zip(PODS, verdicts, strict=True)}


@pytest.mark.parametrize(
    ("policy", "rejected"),
    # GPUs of two nodes are too many for single-numa-node, with or without HCAs.
    [("restricted", set()), ("single-numa-node", {"whole"})],
)
def test_pods_with_every_pool_are_admitted_as_beside_the_shared_plugin(
    namespaces: None, policy: str, rejected: set[str]
) -> None:
    del namespaces
    verdicts = admitted(policy)
    assert {name for name, is_admitted in verdicts.items() if not is_admitted} == rejected


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
def test_pools_that_report_their_numa_nodes_keep_off_what_spans_them(
    namespaces: None, policy: str
) -> None:
    del namespaces
    verdicts = admitted(policy, numa=True)
    assert verdicts == {"whole": False, "half": False, "near-half": True, "one": False}
