"""States of the page: machines, pods that hold GPUs, things that are broken."""

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from nodetopo.checks.engine import evaluate
from nodetopo.checks.rule import Suite
from nodetopo.components.page.state import PageState
from nodetopo.deviceplugin.allocation_log import LoggedAllocation
from nodetopo.kernel.shown import ListedPods, ResourceState
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Gpu, Mig, MigInstance
from nodetopo.model.gpu_health import GpuHealth, HealthClass
from nodetopo.model.nvml_event import NvmlStatus, NvmlTrouble
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.node_rules import node_rules
from tests.admission.held_gpus import GPU, pod, with_kubelet

NOON = datetime(2026, 11, 23, 12, 0, 5, tzinfo=UTC)
BROKEN = GpuHealth(
    is_healthy=False, reason="Xid79", said="fell off the bus (XID 79)", kind=HealthClass.REBOOT
)
WORN = GpuHealth(
    is_degraded=True, reason="Xid63", said="a row was remapped", kind=HealthClass.DEGRADED
)


def state(node: Snapshot, **others: Any) -> PageState:
    """Return a sound daemon on *node*."""
    count = len(node.gpus)
    resource = ResourceState(
        name=GPU,
        healthy=count,
        unhealthy=0,
        is_registered=True,
        registrations=1,
        endpoint="nodetopo-gpu.sock",
        problem=None,
        placement="policy best, bandwidth model ring",
        allocations=0,
    )
    base = PageState(
        node=node.node or "node-1",
        version="0.1.0",
        nvml=NvmlStatus(),
        settings=(("mig-strategy", "none"), ("device-list-strategy", "cdi-cri")),
        snapshot=node,
        generation=1,
        scanned_at=NOON,
        health={},
        resources=(resource,) if count else (),
        labels={"nvidia.com/gpu.count": str(count)},
        label_outputs=("node",),
    )
    return dataclasses.replace(base, **others)


def busy(name: str = "dgx-h100") -> PageState:
    """Return a machine with pods on it, a broken and a worn GPU, and both reports."""
    node = machine(name)
    ids = [gpu.id for gpu in node.gpus]
    listed = with_kubelet(node, [pod("trainer-0", ids[:2]), pod("server-7d9f", ids[2:3])], ids[-1:])
    made = state(
        node,
        health={ids[-1]: BROKEN, ids[-2]: WORN},
        xid_counts={(ids[-1], 79): 1, (ids[-2], 63): 2},
        pods=ListedPods(snapshot=listed, at=NOON),
        reports={
            "health": evaluate(node, node_rules(Suite.HEALTH)),
            "audit": evaluate(listed, node_rules(Suite.AUDIT)),
        },
        allocations=(
            LoggedAllocation(
                at=NOON,
                resource=GPU,
                devices=tuple(ids[:2]),
                is_ours=True,
                said="GPU0 GPU1: 450 GB/s in a ring; one NUMA node; leaves 6 of 6 together",
            ),
        ),
        pods_measured={"aligned": 1, "misaligned": 1, "unknown": 0},
        not_ready="ResourceConflict: another plugin serves nvidia.com/gpu",
    )
    (resource,) = made.resources
    return dataclasses.replace(
        made, resources=(replace(resource, healthy=len(ids) - 1, unhealthy=1, allocations=2),)
    )


def divided() -> PageState:
    """Return a machine of two GPUs, one of them in MIG mode and partly held."""
    instances = tuple(
        MigInstance(gpu_instance=at, compute_instance=0, uuid=f"MIG-{at}", profile="1g.10gb")
        for at in range(7)
    )
    gpus = (
        Gpu(index=0, uuid="GPU-a", product="NVIDIA H100 80GB HBM3", numa_node=0),
        Gpu(
            index=1,
            uuid="GPU-b",
            product="NVIDIA H100 80GB HBM3",
            numa_node=0,
            mig=Mig(is_enabled=True, max_instances=7, instances=instances),
        ),
    )
    node = replace(machine("h100-vm-1"), gpus=gpus, nvlinks=())
    listed = with_kubelet(node, [pod("a-model", ["MIG-0", "MIG-3"]), pod("b-model", ["MIG-1"])])
    return state(node, pods=ListedPods(snapshot=listed, at=NOON))


def many(count: int = 72) -> PageState:
    """Return a machine with *count* GPUs, as NVML lists on no machine of today."""
    gpus = tuple(
        Gpu(index=at, uuid=f"GPU-{at}", product="NVIDIA GB200", numa_node=at % 2)
        for at in range(count)
    )
    return state(replace(machine("h100-vm-1"), gpus=gpus, nvlinks=()))


def nvml_dead() -> PageState:
    """Return a machine whose driver answers no more, after a good scan."""
    trouble = NvmlStatus(trouble=NvmlTrouble.NO_ANSWER, failures=4, cause="no answer for 20 s")
    return state(machine("l40s-pcie-4"), nvml=trouble, not_ready="NvmlUnresponsive: no answer")


def not_scanned() -> PageState:
    """Return a daemon that has just begun."""
    return PageState(
        node="node-1",
        version="0.1.0",
        nvml=NvmlStatus(),
        not_ready="NotScanned: the node has not been read yet",
    )


STATES: Mapping[str, Callable[[], PageState]] = {
    "busy": busy,
    "one": lambda: state(machine("h100-vm-1")),
    "sixteen": lambda: state(machine("dgx-2")),
    "seventy-two": many,
    "mig": divided,
    "none": lambda: state(Snapshot(node="cpu-only")),
    "nvml-dead": nvml_dead,
    "not-scanned": not_scanned,
    "grace": lambda: busy("gb200-nvl72"),
}
