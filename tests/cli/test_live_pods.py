"""A live node's pods: what each source tells, put together, and what stays unknown."""

import dataclasses
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

from nodetopo.cli.live_pods import join, with_pods
from nodetopo.kernel.settings.declare import Settings
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubelet_state import CpuState, KubeletState
from nodetopo.model.node import NodeOffer, NodeStatus, PlacedDevice
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedDevices, Container, Pod
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.kubelet.pb import podresources_pb2 as pb
from tests.kubeapi.test_pods import kubeconfig, serving
from tests.probes.kubelet.test_podresources_kept import GPU, device
from tests.probes.kubelet.test_podresources_kept import serving as serving_kubelet
from tests.probes.pods.cgroup_tree import APP, UID, group, unified

ON_DISK = KubeletSettings(source="/k", version="v1.34.1", cpu_manager_policy="none")
RUNNING = KubeletSettings(source="configz", cpu_manager_policy="static")


def settings(tmp_path: Path, **more: Any) -> Settings:
    found = Settings(
        node_name="gpu-1",
        kubeconfig=tmp_path / "none",
        pod_resources_socket=tmp_path / "none.sock",
        sysfs_root=tmp_path / "sys",
    )
    return dataclasses.replace(found, **more)


def test_sources_that_do_not_answer_are_issues_and_leave_the_rest_unknown(tmp_path: Path) -> None:
    before = Snapshot(kubelet=ON_DISK)
    found = with_pods(before, settings(tmp_path))
    assert replace(found, issues=()) == before
    assert [issue.probe for issue in found.issues] == ["pods", "podresources"]


def test_a_kubelet_without_its_token_is_an_issue(tmp_path: Path) -> None:
    found = with_pods(
        Snapshot(kubelet=ON_DISK), settings(tmp_path, kubelet_url="https://127.0.0.1:1")
    )
    issues = [(issue.probe, issue.subject) for issue in found.issues]
    assert issues[:2] == [("kubelet", "configz"), ("kubelet", "metrics")]
    assert (found.kubelet, found.kubelet_on_disk) == (ON_DISK, ON_DISK)


def test_the_server_s_pods_get_their_cgroups_and_the_kubelet_its_version(tmp_path: Path) -> None:
    pods = {
        "items": [
            {
                "metadata": {"name": "p", "uid": UID},
                "spec": {"containers": [{"name": "app"}]},
                "status": {
                    "containerStatuses": [
                        {
                            "name": "app",
                            "containerID": f"containerd://{APP}",
                            "state": {"running": {}},
                        }
                    ]
                },
            }
        ]
    }
    node = {"status": {"nodeInfo": {"kubeletVersion": "v1.36.3"}}}
    rights = [{"status": {"allowed": allowed}} for allowed in (True, False, True, False)]
    me = {"status": {"userInfo": {"username": "system:serviceaccount:nodetopo:nodetopo"}}}
    agent: dict[str, list[object]] = {"items": []}
    answers = [json.dumps(it).encode() for it in (pods, {"items": []}, node, me, agent, *rights)]
    unified(tmp_path / "sys", {f"kubepods/pod{UID}/{APP}": group("2-3", "0")})
    with serving(*((200, answer) for answer in answers)) as server:
        config = kubeconfig(tmp_path, server.server_port)
        found = with_pods(Snapshot(kubelet=RUNNING), settings(tmp_path, kubeconfig=config))
    (pod,) = found.pods or ()
    assert (pod.qos_class, pod.containers[0].cpuset) == ("Guaranteed", CpuSet.parse("2-3"))
    assert found.node_status == NodeStatus(kubelet_version="v1.36.3", labels={})
    assert found.agent_rights == {
        "get nodes/proxy": True,
        "create nodes/proxy": False,
        "get nodes/configz": True,
        "get nodes/metrics": False,
    }
    assert found.kubelet == replace(RUNNING, version="v1.36.3")


def test_the_kubelet_alone_tells_of_devices_cpus_and_through_its_files_of_cgroups(
    tmp_path: Path,
) -> None:
    cpus = CpuSet.parse("2-3")
    state = KubeletState(cpu=CpuState(policy="static", entries={UID: {"app": cpus}}))
    unified(tmp_path / "sys", {f"kubepods/pod{UID}/{APP}": group("2-3", "0", throttled=7)})
    listed = pb.ListPodResourcesResponse(
        pod_resources=[
            pb.PodResources(
                namespace="ml",
                name="p",
                containers=[pb.ContainerResources(name="app", cpu_ids=cpus, devices=[device("g")])],
            )
        ]
    )
    allocatable = pb.AllocatableResourcesResponse(cpu_ids=[2, 3], devices=[device("g", 1)])
    with TemporaryDirectory(prefix="nodetopo-") as home:
        socket = Path(home) / "kubelet.sock"
        with serving_kubelet(socket, listed, allocatable):
            found = with_pods(
                Snapshot(kubelet_state=state), settings(tmp_path, pod_resources_socket=socket)
            )
    app = Container(
        name="app",
        devices=(AssignedDevices(resource=GPU, ids=("g",)),),
        cpus=cpus,
        memory=(),
        cpuset=cpus,
        memory_nodes=(0,),
        throttled=7,
    )
    pod = Pod(namespace="ml", name="p", qos_class="Guaranteed", containers=(app,))
    placed = PlacedDevice(resource=GPU, id="g", numa_nodes=(1,))
    assert found.pods == (pod,)
    assert found.offer == NodeOffer(devices=(placed,), cpus=cpus)
    assert [issue.probe for issue in found.issues] == ["pods"]


def test_a_pod_gets_the_devices_that_the_kubelet_reports() -> None:
    amounts = {"nvidia.com/gpu": 1}
    given = (AssignedDevices(resource="nvidia.com/gpu", ids=("GPU-1",)),)
    specified = Pod(namespace="a", name="b", containers=(Container(name="c", requests=amounts),))
    assigned = Pod(namespace="a", name="b", containers=(Container(name="c", devices=given),))
    both = Container(name="c", requests=amounts, devices=given)
    assert join((specified,), (assigned,)) == (Pod(namespace="a", name="b", containers=(both,)),)


def test_a_pod_that_only_the_kubelet_knows_is_kept() -> None:
    lone = Pod(namespace="a", name="static")
    assert join((), (lone,)) == (lone,)


def test_pods_that_nobody_reports_are_unknown() -> None:
    assert join(None, None) is None
