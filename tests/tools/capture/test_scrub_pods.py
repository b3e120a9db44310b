"""Scrubbing what pods, the kubelet's state and the Node tell: no owner's words are left."""

import pytest
from msgspec.structs import replace

from nodetopo.model.cdi import CdiFault, CdiSpec
from nodetopo.model.codec import encode
from nodetopo.model.dra import ClaimedDevice, PublishedDevice
from nodetopo.model.host import HostSettings, SwapArea
from nodetopo.model.kubelet_state import (
    CpuState,
    DeviceState,
    HeldDevices,
    HeldMemory,
    KubeletState,
    MemoryState,
)
from nodetopo.model.node import NodeOffer, NodeStatus, PlacedDevice
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedDevices, Container, Pod
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.capture.fields import variable
from nodetopo.tools.capture.scrub import Substitutes, scrubbed

STATIC_UID = "0123456789abcdef" * 2
GPU = "GPU-7a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
CPUS = CpuSet.parse("2-3")
CONTAINER = Container(
    name="ledger-train",
    id="feedface" * 8,
    image="registry.bigbank.example/ledger:1",
    environment={
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_HCA": "=mlx5_0:1,mlx5_2:1",
        "NCCL_TOPO_FILE": "/ledger/topo.xml",
        "NCCL_COMM_ID": "10.23.45.67:1234",
        "NVIDIA_VISIBLE_DEVICES": GPU,
        "CUDA_VISIBLE_DEVICES": None,
    },
    devices=(
        AssignedDevices(resource="nvidia.com/gpu", ids=(GPU,)),
        AssignedDevices(resource="example.com/nic", ids=("bigbank-nic-a", "mlx5_0")),
    ),
    unhealthy_devices=("bigbank-nic-a",),
)
POD = Pod(
    namespace="bigbank",
    name="ledger-0",
    uid=STATIC_UID,
    containers=(CONTAINER,),
    status_reason="UnexpectedAdmissionError",
    status_message="ledger-0 wants bigbank-nic-a of host gpu.bigbank.example",
    hostname="ledger-host",
    runtime_class="bigbank-runtime",
    node_selector={"team": "bigbank", "nvidia.com/gpu.product": "NVIDIA-H100"},
)
SNAPSHOT = Snapshot(
    node="gpu.bigbank.example",
    pods=(POD,),
    offer=NodeOffer(
        devices=(PlacedDevice(resource="example.com/nic", id="bigbank-nic-a", numa_nodes=(0,)),)
    ),
    kubelet_state=KubeletState(
        cpu=CpuState(policy="static", entries={STATIC_UID: {"ledger-train": CPUS}}),
        memory=MemoryState(
            policy="Static",
            entries={
                STATIC_UID: {"ledger-train": (HeldMemory(kind="memory", size=1, numa_nodes=(0,)),)}
            },
        ),
        devices=DeviceState(
            held=(
                HeldDevices(
                    pod_uid=STATIC_UID,
                    container="ledger-train",
                    resource="example.com/nic",
                    ids={"0": ("bigbank-nic-a",)},
                ),
            ),
            registered={"example.com/nic": ("bigbank-nic-a", "bigbank-nic-b")},
        ),
        plugin_sockets=("bigbank-nics.sock", "nvidia-gpu.sock"),
    ),
    node_status=NodeStatus(label_writers={"nvidia.com/a": ("bigbank-operator", "kubectl-label")}),
    host=HostSettings(
        swaps=(
            SwapArea(name="/dev/mapper/bigbank-swap", size=1, used=0),
            SwapArea(name="/dev/sda3", size=1, used=0),
        ),
        cdi_specs=(
            CdiSpec(
                path="/etc/cdi/a.yaml",
                kind="nvidia.com/gpu",
                devices=(GPU,),
                faults=(
                    CdiFault(reason="mounts /srv/bigbank/x, which does not exist", devices=(GPU,)),
                    CdiFault(reason="names /dev/nvidia1, which does not exist"),
                ),
                unseen=("/home/ledger/x", "/usr/bin/nvidia-cdi-hook"),
            ),
        ),
    ),
    issues=(
        ProbeIssue(
            probe="pods",
            subject="API server",
            reason="GET https://api.payroll.example:6443/x: HTTPSConnection("
            "host='api.payroll.example', port=6443): Failed to resolve 'api.payroll.example' "
            "at [2001:db8:1::7] and 10.23.45.67",
        ),
    ),
)
AFTER, DONE = scrubbed(SNAPSHOT, Substitutes())
FOUND = AFTER.pods[0] if AFTER.pods else POD
SECRETS = (
    "bigbank",
    "ledger",
    "payroll",
    "feedface",
    STATIC_UID,
    GPU[4:],
    "10.23.45.67",
    "2001:db8:1::7",
)


def test_no_word_of_an_owner_is_left() -> None:
    assert [secret for secret in SECRETS if secret in str(AFTER)] == []


def test_what_is_everybody_s_is_kept() -> None:
    environment = FOUND.containers[0].environment or {}
    assert list(environment) == list(CONTAINER.environment or {})
    assert environment["NCCL_DEBUG"] == "INFO"
    assert environment["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_2:1"
    assert environment["CUDA_VISIBLE_DEVICES"] is None
    assert environment["NCCL_TOPO_FILE"] == "…"
    assert (FOUND.node_selector or {})["nvidia.com/gpu.product"] == "NVIDIA-H100"
    assert AFTER.kubelet_state is not None
    assert AFTER.kubelet_state.plugin_sockets == ("socket-0.sock", "nvidia-gpu.sock")
    assert AFTER.node_status is not None
    assert AFTER.node_status.label_writers == {"nvidia.com/a": ("writer-0", "kubectl-label")}
    assert AFTER.host is not None
    assert [area.name for area in AFTER.host.swaps or ()] == ["/swap-0", "/dev/sda3"]
    (spec,) = AFTER.host.cdi_specs or ()
    assert [fault.reason for fault in spec.faults] == [
        "mounts /…, which does not exist",
        "names /dev/nvidia1, which does not exist",
    ]
    assert spec.unseen == ("/…", "/usr/bin/nvidia-cdi-hook")


def test_a_name_is_replaced_by_the_same_one_everywhere() -> None:
    state = AFTER.kubelet_state
    assert state is not None
    assert state.cpu is not None
    assert state.memory is not None
    assert state.devices is not None
    (held,) = state.devices.held
    container = FOUND.containers[0]
    assert state.cpu.entries == {FOUND.uid: {container.name: CPUS}}
    assert list(state.memory.entries or {}) == [FOUND.uid]
    assert (held.pod_uid, held.container) == (FOUND.uid, container.name)
    (nic,) = held.ids["0"]
    assert container.unhealthy_devices == (nic,)
    assert container.devices is not None
    assert container.devices[1].ids == (nic, "mlx5_0")
    assert AFTER.offer is not None
    assert AFTER.offer.devices[0].id == nic
    assert (state.devices.registered or {})["example.com/nic"][0] == nic
    assert (container.environment or {})["NVIDIA_VISIBLE_DEVICES"] == container.devices[0].ids[0]


def test_a_message_of_the_kubelet_is_kept_without_names() -> None:
    assert (FOUND.status_message or "").startswith("pod-0 wants ")
    other = replace(SNAPSHOT, pods=(replace(POD, status_reason="Evicted"),))
    after, _ = scrubbed(other, Substitutes())
    assert [pod.status_message for pod in after.pods or ()] == ["…"]


def test_a_pod_without_anything_stays_without() -> None:
    bare = Pod(namespace="a", name="b", containers=(Container(name="c"),))
    after, _ = scrubbed(Snapshot(pods=(bare,)), Substitutes())
    (pod,) = after.pods or ()
    assert replace(pod, namespace="a", name="b", containers=bare.containers) == bare
    assert replace(pod.containers[0], name="c") == bare.containers[0]


def test_claims_keep_their_gpus_and_lose_their_names() -> None:
    claimed = ClaimedDevice(
        driver="nodetopo.io",
        pool="gpu.bigbank.example",
        name="gpu-1b",
        namespace="bigbank",
        claim="ledger-claim",
        cdi_devices=(f"device-plugin.nodetopo.io/gpu={GPU}", "k8s.io/claim=bigbank-1"),
    )
    published = PublishedDevice(driver="nodetopo.io", pool="gpu.bigbank.example", name="gpu-1b")
    with_claim = replace(CONTAINER, claims=("ledger",), claimed=(claimed,))
    pods = (replace(POD, containers=(with_claim,)),)
    after, _ = scrubbed(replace(SNAPSHOT, pods=pods, published=(published,)), Substitutes())
    assert "bigbank" not in encode(after)
    assert "ledger" not in encode(after)
    (container,) = (after.pods or ())[0].containers
    (kept,) = container.claimed or ()
    assert kept.cdi_devices == (f"gpu={(container.devices or ())[0].ids[0]}",)
    assert [device.key for device in after.published or ()] == [kept.key]


def published(driver: str, name: str, taints: tuple[str, ...] = (), **own: str) -> PublishedDevice:
    attributes = {f"{driver}/{attribute}": value for attribute, value in own.items()}
    attributes["resource.kubernetes.io/numaNode"] = "1"
    return PublishedDevice(
        driver=driver,
        pool="n",
        name=name,
        attributes=attributes,
        counters=(f"{name}-counters/memory",),
        taints=taints,
    )


def test_what_another_driver_publishes_is_kept_as_far_as_it_says_where_a_device_is() -> None:
    network = published(
        "dra.net",
        "bigbank-vlan",
        ("dra.net/owner=bigbank:NoSchedule",),
        ifName="bigbank-vlan",
        ipv4="10.23.45.67/24",
        cloudNetwork="projects/bigbank/networks/ledger",
        pciAddress="0000:0c:00.0",
    )
    holder = ClaimedDevice(
        driver="dra.net", pool="n", name="bigbank-vlan", namespace="ml", claim="c"
    )
    pods = (replace(POD, containers=(replace(CONTAINER, claimed=(holder,)),)),)
    after, _ = scrubbed(replace(SNAPSHOT, pods=pods, published=(network,)), Substitutes())
    text = encode(after)
    assert [secret for secret in (*SECRETS, "vlan") if secret in text] == []
    (kept,) = after.published or ()
    assert kept.attributes == {
        "dra.net/pciAddress": "0000:0c:00.0",
        "resource.kubernetes.io/numaNode": "1",
    }
    assert kept.counters == ()
    assert kept.taints == ("dra.net/owner=…:NoSchedule",)
    assert [kept.key] == [it.key for it in (after.pods or ())[0].containers[0].claimed or ()]


@pytest.mark.parametrize("driver", ["gpu.nvidia.com", "nodetopo.io"])
def test_what_known_drivers_of_gpus_publish_is_kept(driver: str) -> None:
    device = published(
        driver, "gpu-0", (f"{driver}/unhealthy=xid-79:NoSchedule",), productName="H100", type="gpu"
    )
    after, _ = scrubbed(replace(SNAPSHOT, published=(device,)), Substitutes())
    assert after.published == (replace(device, pool="pool-0"),)


def test_the_api_server_s_refusal_of_slices_names_no_host() -> None:
    refused = replace(SNAPSHOT.issues[0], probe="slices")
    after, _ = scrubbed(replace(SNAPSHOT, issues=(refused,)), Substitutes())
    assert [secret for secret in SECRETS if secret in str(after.issues)] == []


@pytest.mark.parametrize(
    ("value", "is_kept"),
    [
        ("", True),
        ("1", True),
        ("4194304", True),
        ("64M", True),
        ("0x1f", True),
        ("INFO", True),
        ("NVL", True),
        ("^docker0,lo", True),
        ("mlx5_0,mlx5_1:1", True),
        ("rc_x,cuda_copy", True),
        ("compute,utility", True),
        (GPU, True),
        ("ens3f0np0", True),
        ("ibmcloud", False),
        ("eth-secret", False),
        ("10.0.0.1", False),
        ("/tmp/x", False),
        ("rank0.ledger", False),
        ("hush", False),
    ],
)
def test_a_value_is_kept_only_if_all_of_it_is_public(value: str, is_kept: bool) -> None:
    assert variable(value) == (value if is_kept else "…")


KEPT = {
    *("kind", "requests", "limits", "cpus", "memory", "has_hidden_environment", "is_privileged"),
    *("capabilities", "shared_memory", "shared_memory_bytes", "cpuset", "memory_nodes"),
    *("throttled", "phase", "qos_class", "owner_kind", "replicas", "status_reason"),
    *("uses_host_network", "uses_host_ipc", "uses_host_pid", "has_other_devices"),
}
CHANGED = {
    *("name", "image", "environment", "devices", "unhealthy_devices", "id", "namespace", "uid"),
    *("containers", "status_message", "hostname", "runtime_class", "node_selector"),
    *("claims", "claimed"),
}


def test_every_field_of_a_pod_was_thought_of() -> None:
    known = {*Pod.__struct_fields__, *Container.__struct_fields__}
    assert known == KEPT | CHANGED
