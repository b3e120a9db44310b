"""What the plugin offers, derived from snapshots."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginDevice:
    """One device of a resource, as the kubelet shall see it.

    Attributes:
        id: the GPU's UUID; it never changes meaning.
        numa_nodes: the nodes that are near, ascending. Either every device of a resource
            has some, or none has: the kubelet would never hand out those without, once
            another has one (1.36 pkg/kubelet/cm/devicemanager/topology_hints.go counts only those
            with a node).
        minor: the N of ``/dev/nvidiaN``; ``None`` where NVML did not say.
    """

    id: str
    is_healthy: bool = True
    numa_nodes: tuple[int, ...] = ()
    minor: int | None = None


def plugin_devices(snapshot: Snapshot) -> tuple[PluginDevice, ...]:
    """Return the GPUs of *snapshot* in its order; GPUs without a UUID cannot be offered.

    A GPU whose node is unknown is near all nodes that have CPUs; where all are unknown,
    none has a node. MIG mode is not looked at: this is the resource of whole GPUs.
    """
    return merge((), snapshot)


def merge(previous: Sequence[PluginDevice], snapshot: Snapshot) -> tuple[PluginDevice, ...]:
    """Return *previous* brought up to date, in its order, with newcomers behind.

    A GPU that is gone stays, unhealthy, so that the kubelet keeps counting it and its pods'
    accounting holds. A snapshot that lists no GPU because NVML did not answer proves
    nothing, and leaves *previous* as it was. What is no longer known of a GPU (its node,
    its minor number) stays as last known.
    """
    if not snapshot.gpus and any(issue.probe == "nvml" for issue in snapshot.issues):
        return tuple(previous)
    nodes = tuple(node.id for node in snapshot.numa_nodes or ())
    present = {d.id: d for d in (_device(g, nodes) for g in snapshot.gpus if g.uuid is not None)}
    merged = [_updated(device, present.pop(device.id, None)) for device in previous]
    with_cpus = tuple(node.id for node in snapshot.numa_nodes or () if node.cpus)
    return _uniform([*merged, *present.values()], with_cpus or nodes)


def _updated(before: PluginDevice, now: PluginDevice | None) -> PluginDevice:
    if now is None:
        return replace(before, is_healthy=False)
    return replace(
        now,
        numa_nodes=now.numa_nodes or before.numa_nodes,
        minor=before.minor if now.minor is None else now.minor,
    )


def _device(gpu: Gpu, nodes: Sequence[int]) -> PluginDevice:
    # A node that the kernel does not list is dropped by the kubelet, which would strand
    # the GPU: as good as unknown. The same guard keeps −1 out, which would make the
    # Topology Manager reject every pod.
    node = gpu.numa_node
    is_known = node is not None and node >= 0 and (not nodes or node in nodes)
    return PluginDevice(
        id=gpu.id,
        is_healthy=not gpu.is_lost,
        numa_nodes=(node,) if node is not None and is_known else (),
        minor=gpu.minor,
    )


def _uniform(devices: Sequence[PluginDevice], nodes: Sequence[int]) -> tuple[PluginDevice, ...]:
    known = _ascending(node for device in devices for node in device.numa_nodes)
    anywhere = _ascending([*known, *nodes]) if known else ()
    return tuple(
        device if device.numa_nodes else replace(device, numa_nodes=anywhere) for device in devices
    )


def _ascending(nodes: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(nodes)))
