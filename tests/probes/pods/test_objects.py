"""A Pod object, field by field; what is not placement's business is left where it is."""

from collections.abc import Mapping
from typing import Any

import pytest

from nodetopo.errors import DecodeError
from nodetopo.model.pod import ContainerKind, SharedMemory
from nodetopo.probes.pods.objects import pod_from_object
from tests.probes.pods.pod_facts import plain_container, plain_pod

NAMED = {"name": "p"}


def pod(
    spec: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    return {"metadata": {**NAMED, **(metadata or {})}, "spec": spec, "status": status}


def app(**stated: Any) -> Mapping[str, Any]:
    return {"containers": [{"name": "app", **stated}]}


def test_an_object_is_reduced_to_what_placement_needs_and_not_defaulted() -> None:
    found = {
        "metadata": {
            "name": "train",
            "namespace": "ml",
            "uid": "u-1",
            "labels": {"secret": "x"},
            "ownerReferences": [
                {"kind": "Node", "name": "n"},
                {"kind": "Job", "name": "j", "controller": True},
            ],
        },
        "spec": {
            "nodeName": "gpu-1",
            "hostNetwork": True,
            "hostname": "rank-0",
            "runtimeClassName": "nvidia",
            "nodeSelector": {"gpu": "h100"},
            "containers": [
                {
                    "name": "app",
                    "image": "x:1",
                    "command": ["secret"],
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                }
            ],
            "ephemeralContainers": [{"name": "debug"}],
        },
        "status": {
            "phase": "Failed",
            "qosClass": "BestEffort",
            "reason": "TopologyAffinityError",
            "message": "Resources cannot be allocated",
        },
    }
    assert pod_from_object(found) == plain_pod(
        namespace="ml",
        name="train",
        uid="u-1",
        phase="Failed",
        qos_class="BestEffort",
        owner_kind="Job",
        status_reason="TopologyAffinityError",
        status_message="Resources cannot be allocated",
        uses_host_network=True,
        hostname="rank-0",
        runtime_class="nvidia",
        node_selector={"gpu": "h100"},
        containers=(plain_container(image="x:1", limits={"nvidia.com/gpu": 1}),),
    )


def test_a_pod_of_nothing_is_a_name() -> None:
    assert pod_from_object({"metadata": NAMED}) == plain_pod()


def test_pod_level_resources_are_kept() -> None:
    spec = {"resources": {"requests": {"cpu": "2"}, "limits": {"memory": "1Ki"}}}
    found = pod_from_object(pod(spec))
    assert (found.requests, found.limits) == ({"cpu": 2000}, {"memory": 1024})


def test_an_init_container_that_restarts_is_a_sidecar() -> None:
    containers = [{"name": "a"}, {"name": "b", "restartPolicy": "Always"}]
    found = pod_from_object(pod({"initContainers": containers}))
    assert [it.kind for it in found.containers] == [ContainerKind.INIT, ContainerKind.SIDECAR]


def test_only_variables_of_known_libraries_are_read_and_no_secrets_of_theirs() -> None:
    env = [
        {"name": "TOKEN", "value": "hush"},
        {"name": "NCCL_DEBUG", "value": "INFO"},
        {"name": "UCX_TLS"},
        {"name": "NVIDIA_API_KEY", "value": "hush"},
        {"name": "NCCL_IB_PKEY", "value": "3"},
        {"name": "CUDA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
        {"name": "NCCL_DEBUG", "value": "WARN"},
    ]
    (found,) = pod_from_object(pod(app(env=env, envFrom=[{"secretRef": {"name": "s"}}]))).containers
    assert list((found.environment or {}).items()) == [
        ("UCX_TLS", ""),
        ("NVIDIA_API_KEY", None),
        ("NCCL_IB_PKEY", "3"),
        ("CUDA_VISIBLE_DEVICES", None),
        ("NCCL_DEBUG", "WARN"),
    ]
    assert found.has_hidden_environment


def test_privileges_are_read() -> None:
    security = {"privileged": True, "capabilities": {"add": ["IPC_LOCK", "cap_sys_nice"]}}
    (found,) = pod_from_object(pod(app(securityContext=security))).containers
    assert (found.is_privileged, found.capabilities) == (True, ("IPC_LOCK", "SYS_NICE"))


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}, (SharedMemory.MEMORY, 1 << 30)),
        ({"emptyDir": {"medium": "Memory"}}, (SharedMemory.MEMORY, None)),
        ({"emptyDir": {}}, (SharedMemory.OTHER, None)),
        ({"emptyDir": {"medium": "HugePages"}}, (SharedMemory.OTHER, None)),
        ({"hostPath": {"path": "/dev/shm"}}, (SharedMemory.HOST, None)),
        ({"persistentVolumeClaim": {"claimName": "c"}}, (SharedMemory.OTHER, None)),
    ],
)
def test_shared_memory_is_the_volume_that_is_mounted_there(
    volume: Mapping[str, Any], expected: tuple[SharedMemory, int | None]
) -> None:
    mounts = [{"name": "d", "mountPath": "/data"}, {"name": "v", "mountPath": "/dev//shm/"}]
    spec = {**app(volumeMounts=mounts), "volumes": [{"name": "d"}, {"name": "v", **volume}]}
    (found,) = pod_from_object(pod({**spec, "hostIPC": True})).containers
    assert (found.shared_memory, found.shared_memory_bytes) == expected


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"io.kubernetes.cri-o.ShmSize": "8Gi"}, (SharedMemory.MEMORY, 8 << 30)),
        (
            {"io.kubernetes.cri-o.ShmSize": "8Gi", "shm-size.crio.io": "1Gi"},
            (SharedMemory.MEMORY, 1 << 30),
        ),
        ({"io.kubernetes.cri-o.ShmSize": "much"}, (SharedMemory.DEFAULT, None)),
    ],
)
def test_an_annotation_of_cri_o_sizes_the_runtime_s_own(
    annotations: Mapping[str, str], expected: tuple[SharedMemory, int | None]
) -> None:
    (found,) = pod_from_object(pod(app(), {"annotations": annotations})).containers
    assert (found.shared_memory, found.shared_memory_bytes) == expected


def test_a_mount_of_a_volume_that_is_not_there_is_some_other_one() -> None:
    spec = app(volumeMounts=[{"name": "v", "mountPath": "/dev/shm"}])
    assert pod_from_object(pod(spec)).containers[0].shared_memory is SharedMemory.OTHER


def test_a_pod_in_the_host_s_ipc_namespace_has_the_host_s_shared_memory() -> None:
    found = pod_from_object(pod({**app(), "hostIPC": True, "hostPID": True}))
    assert (found.uses_host_ipc, found.uses_host_pid) == (True, True)
    assert found.containers[0].shared_memory is SharedMemory.HOST


@pytest.mark.parametrize(
    ("metadata", "spec"),
    [
        ({}, {"resourceClaims": [{"name": "c"}]}),
        ({"annotations": {"k8s.v1.cni.cncf.io/networks": "ib"}}, {}),
    ],
)
def test_devices_by_claims_and_networks_are_noted(
    metadata: Mapping[str, Any], spec: Mapping[str, Any]
) -> None:
    assert pod_from_object(pod(spec, metadata)).has_other_devices is True


def test_a_running_container_has_its_id_and_its_failing_devices() -> None:
    devices = [
        {"resourceID": "GPU-1", "health": "Unhealthy"},
        {"resourceID": "GPU-2", "health": "Healthy"},
        {"resourceID": "GPU-3", "health": "Unknown"},
        {"health": "Unhealthy"},
    ]
    status = {
        "initContainerStatuses": [
            {"name": "i", "containerID": "containerd://i1", "state": {"terminated": {}}}
        ],
        "containerStatuses": [
            {
                "name": "app",
                "containerID": "containerd://a1",
                "state": {"running": {"startedAt": "x"}},
                "allocatedResourcesStatus": [{"name": "nvidia.com/gpu", "resources": devices}],
            }
        ],
    }
    spec = {"initContainers": [{"name": "i"}], **app()}
    ended, running = pod_from_object(pod(spec, status=status)).containers
    assert (ended.id, ended.unhealthy_devices) == (None, None)
    assert running.id == "a1"
    assert running.unhealthy_devices == ("GPU-1", "GPU-3", "a device without id")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (pod(status={"phase": 1}), "status.phase: expected a text, found int"),
        (pod({"hostNetwork": "yes"}), "spec.hostNetwork: expected true or false, found str"),
        (pod({"nodeSelector": {"a": 1}}), "spec.nodeSelector.a: expected a text, found int"),
        (pod({"volumes": {}}), "spec.volumes: expected a list, found dict"),
        (pod({"volumes": [3]}), "spec.volumes[0]: expected an object, found int"),
        (pod({"resourceClaims": 3}), "spec.resourceClaims: expected a list, found int"),
        (pod(app(env=[{"name": 3}])), "spec.containers[0].env[0].name: expected a text, found int"),
        (
            pod(app(env=[{"name": "NCCL_DEBUG", "value": 3}])),
            "spec.containers[0].env[0].value: expected a text, found int",
        ),
        (
            pod(app(securityContext={"capabilities": {"add": "ALL"}})),
            "spec.containers[0].securityContext.capabilities.add: expected a list of texts",
        ),
        (
            pod({"volumes": [{"emptyDir": {"sizeLimit": []}}]}),
            "spec.volumes[0].emptyDir.sizeLimit: expected a quantity, found list",
        ),
        (
            pod(app(resources={"limits": {"cpu": "9" * 65}})),
            "spec.containers[0].resources.limits.cpu: a quantity of 65 characters",
        ),
        (
            pod(app(resources={"limits": {"cpu": -(10**5000)}})),
            "spec.containers[0].resources.limits.cpu: a negative amount: -1",
        ),
        (
            pod(status={"containerStatuses": [{"name": "a", "containerID": 3}]}),
            "status.containerStatuses[0].containerID: expected a text, found int",
        ),
        (
            pod(metadata={"ownerReferences": "x"}),
            "metadata.ownerReferences: expected a list, found str",
        ),
        ({"metadata": {}}, "metadata.name: missing"),
    ],
    ids=range(15),
)
def test_a_field_of_the_wrong_type_is_named(found: Mapping[str, Any], message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        pod_from_object(found)
    assert str(caught.value) == message


@pytest.mark.parametrize("written", [10**5000, "1e999", "99999999999999999999Ei"], ids="abc")
def test_an_amount_beyond_all_machines_is_the_largest_one(written: Any) -> None:
    (found,) = pod_from_object(pod(app(resources={"limits": {"memory": written}}))).containers
    assert found.limits == {"memory": (1 << 63) - 1}
