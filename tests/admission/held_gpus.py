"""Nodes whose kubelet runs pods that hold GPUs."""

from collections.abc import Iterable

from msgspec.structs import replace

from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.node import NodeOffer, PlacedDevice
from nodetopo.model.pod import AssignedDevices, Container, Pod
from nodetopo.model.snapshot import Snapshot

GPU = "nvidia.com/gpu"


def pod(name: str, gpus: Iterable[str], *, namespace: str = "research") -> Pod:
    devices = (AssignedDevices(resource=GPU, ids=tuple(gpus)),)
    return Pod(
        namespace=namespace,
        name=name,
        uid=f"uid-of-{name}",
        phase="Running",
        containers=(Container(name="main", devices=devices),),
    )


def with_kubelet(node: Snapshot, pods: Iterable[Pod], unhealthy: Iterable[str] = ()) -> Snapshot:
    """Return *node* with a kubelet that offers its GPUs and runs *pods*."""
    offer = NodeOffer(
        devices=tuple(
            PlacedDevice(
                resource=GPU,
                id=gpu.id,
                numa_nodes=() if gpu.numa_node is None else (gpu.numa_node,),
            )
            for gpu in node.gpus
            if gpu.id not in unhealthy
        )
    )
    kubelet = KubeletSettings(
        source="test",
        version="v1.36.3",
        topology_manager_policy="single-numa-node",
        topology_manager_scope="container",
        cpu_manager_policy="none",
        memory_manager_policy="None",
        feature_gates={},
    )
    return replace(node, kubelet=kubelet, offer=offer, pods=tuple(pods), kubelet_state=None)
