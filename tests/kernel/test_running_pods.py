"""What pods hold, from a kubelet's socket, its checkpoint and cgroups made here."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.errors import UnreadableError
from nodetopo.kernel.running_pods import RunningPods
from nodetopo.kernel.settings.declare import Settings
from nodetopo.machines.bundled import machine
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubelet_state import DeviceState, HeldDevices, KubeletState
from nodetopo.model.node import PlacedDevice
from nodetopo.model.numa import CpuSet
from nodetopo.probes.kubelet.pb import podresources_pb2 as pb
from tests.probes.kubelet.test_podresources_kept import GPU, device, serving
from tests.probes.pods.cgroup_tree import APP, SANDBOX, UID, UNIT, group, unified

H100 = machine("dgx-h100")
SLICE = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNIT}.slice"
CONTAINER = pb.ContainerResources(name="worker", devices=[device("GPU-1", 0)])
LISTED = pb.ListPodResourcesResponse(
    pod_resources=[pb.PodResources(namespace="ml", name="job-0", containers=[CONTAINER])]
)
OFFERED = pb.AllocatableResourcesResponse(devices=[device("GPU-1", 0), device("GPU-2", 1)])
ENTRY = {
    "PodUID": UID,
    "ContainerName": "worker",
    "ResourceName": GPU,
    "DeviceIDs": {"0": ["GPU-1"]},
    "AllocResp": "",
}
CHECKPOINT = {"Data": {"PodDeviceEntries": [ENTRY], "RegisteredDevices": {}}, "Checksum": 1}


def no_offer(method: str) -> None:
    """Answer as a kubelet that tells its pods alone."""
    if method == "GetAllocatableResources":
        raise RuntimeError("the feature is switched off")


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """Return settings that lead to files below a directory, and a socket near the root."""
    with TemporaryDirectory(prefix="nodetopo-") as short:
        yield Settings(
            node_name="gpu-1",
            sysfs_root=tmp_path / "sys",
            host_root=tmp_path,
            pod_resources_socket=Path(short) / "kubelet.sock",
        )


def with_checkpoint(settings: Settings) -> None:
    place = settings.host_root / "var/lib/kubelet/device-plugins"
    place.mkdir(parents=True)
    place.joinpath("kubelet_internal_checkpoint").write_text(json.dumps(CHECKPOINT))


def test_a_pod_has_its_uid_by_its_devices_and_what_its_cgroup_lets_it_use(
    settings: Settings,
) -> None:
    with_checkpoint(settings)
    unified(
        settings.sysfs_root,
        {
            f"{SLICE}/cri-containerd-{APP}.scope": group("0-7", "0"),
            f"{SLICE}/cri-containerd-{SANDBOX}.scope": group("0-63", weight=1),
        },
    )
    held = RunningPods(settings)
    with serving(settings.pod_resources_socket, LISTED, OFFERED):
        found = held.read(H100)
    held.close()
    (pod,) = found.pods or ()
    (container,) = pod.containers
    assert (pod.uid, pod.qos_class) == (UID, "Burstable")
    assert (container.cpuset, container.memory_nodes) == (CpuSet.parse("0-7"), (0,))
    assert found.offer is not None
    assert found.offer.devices == (
        PlacedDevice(resource=GPU, id="GPU-1", numa_nodes=(0,)),
        PlacedDevice(resource=GPU, id="GPU-2", numa_nodes=(1,)),
    )
    assert found.gpus == H100.gpus


def test_without_the_kubelets_files_pods_have_no_uid_and_the_last_state_is_kept(
    settings: Settings,
) -> None:
    before = KubeletState(plugin_sockets=("a.sock",))
    held = RunningPods(settings)
    with serving(settings.pod_resources_socket, LISTED, OFFERED):
        found = held.read(replace(H100, kubelet_state=before))
    held.close()
    assert [(pod.name, pod.uid) for pod in found.pods or ()] == [("job-0", None)]
    assert found.kubelet_state == before


def test_the_kubelets_own_root_directory_is_read(settings: Settings) -> None:
    place = settings.host_root / "data/kubelet"
    place.mkdir(parents=True)
    state = {"policyName": "none", "defaultCpuSet": "", "checksum": 1}
    place.joinpath("cpu_manager_state").write_text(json.dumps(state))
    moved = KubeletSettings(source="flags", root_directory="/data/kubelet")
    held = RunningPods(settings)
    with serving(settings.pod_resources_socket):
        found = held.read(replace(H100, kubelet=moved))
    held.close()
    assert found.kubelet_state is not None
    assert found.kubelet_state.cpu is not None
    assert found.kubelet_state.cpu.policy == "none"


def test_pods_are_read_without_the_offer_and_the_log_says_so_once(
    settings: Settings,
) -> None:
    with_checkpoint(settings)
    answers: list[Callable[[str], object]] = [no_offer, no_offer, str, no_offer]

    def asked(method: str) -> None:
        answers[0](method)

    held, found = RunningPods(settings), []
    socket = settings.pod_resources_socket
    with serving(socket, LISTED, OFFERED, asked=asked), capture_logs() as log:
        while answers:
            found.append(held.read(H100))
            answers.pop(0)
    held.close()
    assert [(pod.name, pod.uid) for one in found for pod in one.pods or ()] == [("job-0", UID)] * 4
    assert [one.offer is None for one in found] == [True, True, False, True]
    told = [[(i.probe, i.subject) for i in one.issues[len(H100.issues) :]] for one in found]
    assert told == [[("podresources", "kubelet")] * (one.offer is None) for one in found]
    assert "switched off" in found[0].issues[-1].reason
    assert [line["event"] for line in log] == ["kubelet's offer not read"] * 2


def test_a_kubelet_state_that_was_just_read_is_not_read_again(settings: Settings) -> None:
    with_checkpoint(settings)
    seen = HeldDevices(pod_uid="other", container="worker", resource=GPU, ids={"0": ("GPU-1",)})
    state = KubeletState(devices=DeviceState(held=(seen,), registered={}))
    held = RunningPods(settings)
    with serving(settings.pod_resources_socket, LISTED, OFFERED):
        found = held.read_beside_state(replace(H100, kubelet_state=state))
    held.close()
    assert [(pod.name, pod.uid) for pod in found.pods or ()] == [("job-0", "other")]
    assert found.kubelet_state is state
    assert found.offer is not None


def test_a_kubelet_that_is_not_there_is_an_error(settings: Settings) -> None:
    with pytest.raises(UnreadableError):
        RunningPods(settings).read(H100)


def test_reading_with_the_offer_fails_without_it(settings: Settings) -> None:
    held = RunningPods(settings)
    with serving(settings.pod_resources_socket, LISTED, OFFERED):
        assert held.read_with_offer(H100) == held.read(H100)
    held.close()
    refusing = RunningPods(settings)
    with (
        serving(settings.pod_resources_socket, LISTED, asked=no_offer),
        pytest.raises(UnreadableError, match="switched off"),
    ):
        refusing.read_with_offer(H100)
    refusing.close()
