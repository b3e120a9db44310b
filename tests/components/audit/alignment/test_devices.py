"""Which GPUs and HCAs the devices of a container are, and on which NUMA nodes."""

import pytest
from msgspec.structs import replace

from nodetopo.components.audit.alignment.record import Alignment
from nodetopo.model.gpu import Mig, MigInstance
from nodetopo.model.kubelet_state import CpuState, DeviceState, HeldDevices, KubeletState
from nodetopo.model.node import NodeOffer, PlacedDevice
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedDevices
from tests.components.audit.alignment.alignment_nodes import (
    GIB,
    GPU,
    node,
    placed,
    row,
    with_devices,
    worker,
)
from tests.components.audit.judge import with_gpu

H100 = node()
TOGETHER = worker(H100, [0, 1], hcas=["mlx5_0"], cpus="0-15", memory={0: 64 * GIB})


def test_mig_devices_and_replicas_are_where_their_gpu_is() -> None:
    def divided(gpu: object) -> object:
        instance = MigInstance(uuid="MIG-7")
        return replace(gpu, mig=Mig(is_enabled=True, instances=(instance,)))  # type: ignore[type-var]

    snapshot = with_gpu(H100, 7, divided)  # type: ignore[arg-type]
    bare = worker(H100, cpus="56-60", memory={1: GIB})
    other = f"{H100.gpus[4].uuid}::2"
    for ids, names in ((("MIG-7::1",), ("GPU7",)), ((other, "MIG-7"), ("GPU4", "GPU7"))):
        found = row(placed(snapshot, with_devices(bare, "nvidia.com/mig-1g.10gb", *ids)))
        assert (found.gpus, found.gpu_nodes, found.verdict) == (names, (1,), Alignment.ALIGNED)
        assert found.nvlink is None


def test_devices_that_our_map_lacks_are_where_the_kubelet_was_told() -> None:
    snapshot = replace(
        H100,
        offer=NodeOffer(devices=(PlacedDevice(resource=GPU, id="GPU-x", numa_nodes=(1,)),)),
        kubelet_state=KubeletState(
            cpu=CpuState(policy="static"),
            devices=DeviceState(
                held=(
                    HeldDevices(
                        pod_uid="u", container="c", resource="rdma/vf", ids={"1": ("vf-3",)}
                    ),
                ),
            ),
        ),
    )
    bare = worker(H100, cpus="56-60", memory={1: GIB})
    held = replace(
        bare,
        devices=(
            AssignedDevices(resource=GPU, ids=("GPU-x",)),
            AssignedDevices(resource="rdma/vf", ids=("vf-3",)),
        ),
    )
    found = row(placed(snapshot, held))
    assert (found.gpus, found.gpu_nodes, found.hcas, found.hca_nodes) == (
        ("GPU-x",),
        (1,),
        ("vf-3",),
        (1,),
    )


@pytest.mark.parametrize("nodes", [(), (0, 1)], ids=["none", "all"])
def test_a_device_of_which_the_plugin_does_not_know_the_node_is_unknown(
    nodes: tuple[int, ...],
) -> None:
    offer = NodeOffer(devices=(PlacedDevice(resource=GPU, id="GPU-x", numa_nodes=nodes),))
    held = with_devices(worker(H100, cpus="56-60", memory={1: GIB}), GPU, "GPU-x")
    found = row(placed(replace(H100, offer=offer), held))
    assert (found.gpu_nodes, found.verdict) == (None, Alignment.UNKNOWN)
    assert found.missing[0].what == "NUMA node of GPU-x in ml/job-0 container worker"


def test_a_number_of_the_shared_rdma_plugin_tells_of_no_place() -> None:
    held = replace(
        TOGETHER,
        devices=(*(TOGETHER.devices or ())[:1], AssignedDevices(resource="rdma/a", ids=("7",))),
    )
    found = row(placed(H100, held))
    assert (found.hcas, found.hca_nodes, found.verdict) == ((), (), Alignment.ALIGNED)


def test_on_one_numa_node_all_is_together_whatever_the_firmware_tells() -> None:
    whole = H100.numa_nodes or ()
    single = replace(
        H100,
        numa_nodes=(replace(whole[0], cpus=CpuSet.parse("0-223")),),
        gpus=tuple(replace(gpu, numa_node=None, cpu_affinity=None) for gpu in H100.gpus),
    )
    assert row(placed(single, worker(single, [0, 7]))).verdict is Alignment.ALIGNED
