"""`nodetopo doctor` on a real API server: real field managers, gangs, pages and refusals."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import Struct

from nodetopo.cli.main import main
from tests.lab.cluster import Cluster
from tests.lab.schedulers import fabric, objects
from tests.lab.schedulers.exported import exported
from tests.lab.schedulers.gang import Gang

pytestmark = pytest.mark.lab

_NODE = "/api/v1/nodes/{}"
_GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
_COUNT = "nvidia.com/gpu.count"


class Told(Struct, frozen=True, kw_only=True):
    """Exit status, verdicts that are no pass, and what was observed, by code."""

    code: int
    verdicts: dict[str, str]
    observed: dict[str, list[str]]


Doctor = Callable[..., Told]


@pytest.fixture
def doctor(consumers: Cluster, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Return a function that runs the command against the cluster, where nothing is asked yet."""
    for one in consumers.api.get(_GROUPS)["items"]:
        consumers.api.delete(f"{_GROUPS}/{one['metadata']['name']}")

    def told(*arguments: str) -> Told:
        capsys.readouterr()
        code = main(("doctor", "--kubeconfig", str(consumers.kubeconfig), "-o", "json", *arguments))
        results: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["results"]
        bad = [one for one in results if one["verdict"] != "pass"]
        return Told(
            code=code,
            verdicts={one["id"]: one["verdict"] for one in bad},
            observed={one["id"]: [f["observed"] for f in one["findings"]] for one in bad},
        )

    return told


@pytest.fixture
def relabelled(consumers: Cluster) -> Iterator[Cluster]:
    """Return the cluster, whose labels the test may spoil."""
    yield consumers
    fabric.withdraw(consumers)
    fabric.publish(consumers)


def test_a_cluster_that_our_agents_labelled_has_nothing_amiss(doctor: Doctor) -> None:
    assert doctor() == Told(code=0, verdicts={}, observed={})


def test_a_node_that_lost_its_labels_is_named(doctor: Doctor, relabelled: Cluster) -> None:
    fabric.withdraw(relabelled, ["n03"])
    merge = {"metadata": {"labels": {"nvidia.com/gpu.present": "true"}}}
    relabelled.api.merge(_NODE.format("n03"), merge)
    try:
        found = doctor("--only", "CLU-001")
    finally:
        gone = {"metadata": {"labels": {"nvidia.com/gpu.present": None}}}
        relabelled.api.merge(_NODE.format("n03"), gone)
    assert found.code == 1
    assert found.observed["CLU-001"] == ["missing on 1 of 12: n03"] * 2


def test_a_second_writer_is_known_by_its_field_manager(doctor: Doctor, relabelled: Cluster) -> None:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"labels": {_COUNT: "4"}}}
    relabelled.api.apply(_NODE.format("n03"), body)
    found = doctor("--only", "owners", "--strict")
    assert found.code == 1
    assert found.observed == {"CLU-006": ["written by lab and nodetopo on n03"]}
    released = {"apiVersion": "v1", "kind": "Node", "metadata": {}}
    relabelled.api.apply(_NODE.format("n03"), released)
    assert doctor("--only", "owners").code == 0


def test_a_stale_clique_is_told_from_our_partition(doctor: Doctor, relabelled: Cluster) -> None:
    stale = {"metadata": {"labels": {fabric.CLIQUE: "6b0e1b2c-0000-4000-8000-00000000007f.1"}}}
    relabelled.api.merge(_NODE.format("n03"), stale)
    found = doctor("--only", "nvlink")
    assert (found.code, found.verdicts) == (1, {"CLU-008": "fail"})


@pytest.mark.parametrize(("size", "verdict"), [(4, {}), (5, {"CLU-009": "unknown"})])
def test_a_gang_of_kubernetes_is_judged(
    doctor: Doctor, consumers: Cluster, size: int, verdict: dict[str, str]
) -> None:
    # Its pods are not read, so five of them may or may not need five nodes.
    group = Gang(name=f"asked-{size}", size=size, key=fabric.PARTITION).group()
    objects.apply(consumers.api, group)
    try:
        assert doctor("--only", "gangs").verdicts == verdict
    finally:
        consumers.api.delete(objects.place(consumers.api, group))


@pytest.mark.parametrize(("size", "verdict"), [(4, {}), (5, {"CLU-009": "fail"})])
def test_an_exclusive_leader_worker_set_is_judged(
    doctor: Doctor, consumers: Cluster, size: int, verdict: dict[str, str]
) -> None:
    amounts = {"nvidia.com/gpu": "4"}
    container = {
        "name": "work",
        "image": "registry.invalid/work:1",
        "resources": {"limits": amounts, "requests": amounts},
    }
    template = {"size": size, "workerTemplate": {"spec": {"containers": [container]}}}
    key = "leaderworkerset.sigs.k8s.io/exclusive-topology"
    document = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "served", "annotations": {key: fabric.PARTITION}},
        "spec": {"leaderWorkerTemplate": template},
    }
    objects.apply(consumers.api, document)
    try:
        assert doctor("--only", "gangs").verdicts == verdict
    finally:
        consumers.api.delete(objects.place(consumers.api, document))


@pytest.mark.parametrize("scheduler", ["kai", "kueue"])
def test_what_export_makes_the_doctor_reads_and_finds_good(
    doctor: Doctor, consumers: Cluster, scheduler: str
) -> None:
    made = [objects.apply(consumers.api, one) for one in exported(consumers, scheduler, "judged")]
    try:
        assert doctor("--only", "levels") == Told(code=0, verdicts={}, observed={})
    finally:
        for one in reversed(made):
            consumers.api.delete(objects.place(consumers.api, one))


def test_the_agent_s_own_account_may_not_ask(consumers: Cluster) -> None:
    kubeconfig = consumers.control_plane.agent_kubeconfig()
    assert main(("doctor", "--kubeconfig", str(kubeconfig))) == 3
