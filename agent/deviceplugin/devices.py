"""A device of a resource as the kubelet sees it, and what is remembered of the GPUs behind it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from agent.allocation.shared.devices import SEPARATOR
from agent.deviceplugin.settings import NumaReport
from agent.model.gpu import Gpu, Mig
from agent.model.pci import PciAddress
from agent.model.snapshot import Snapshot
from agent.topology.affinity import socket_of_node

# GPUs that an operator keeps from pods, by any of the names that a GPU has.

UUID_START = "gpu-"
"""How a GPU's UUID begins, in lower case."""


SHORTEST_START = len(UUID_START) + 1
"""Characters that the beginning of a UUID must have: with fewer it would be every GPU's."""


def is_excluded(gpu: Gpu, patterns: Sequence[str]) -> bool:
    """Tell whether one of *patterns* names *gpu*."""
    return any(matches(gpu, pattern) for pattern in patterns)


def unused(gpus: Sequence[Gpu], patterns: Sequence[str]) -> tuple[str, ...]:
    """Return those of *patterns* that name none of *gpus*."""
    return tuple(one for one in patterns if not any(matches(gpu, one) for gpu in gpus))


def matches(gpu: Gpu, pattern: str) -> bool:
    """Tell whether *pattern* names *gpu*, whatever the case of its letters.

    It is an index (``3``), a name (``GPU3``), a UUID or its beginning, a PCI address as sysfs,
    NVML, lspci or nvidia-smi write it, or a product, in which ``*`` stands for anything.
    Indices count as NVML counts, and move when a GPU goes away.
    """
    wanted = pattern.strip().lower()
    if wanted in (str(gpu.index), gpu.name.lower()):
        return True
    if gpu.uuid is not None and _begins(gpu.uuid.lower(), wanted):
        return True
    address = PciAddress.as_written(wanted)
    if address is not None:
        return gpu.pci == address
    return gpu.product is not None and fnmatchcase(gpu.product.lower(), _literal(wanted))


def _begins(uuid: str, wanted: str) -> bool:
    is_long_enough = len(wanted) >= SHORTEST_START and wanted.startswith(UUID_START)
    return wanted == uuid or (is_long_enough and uuid.startswith(wanted))


def _literal(pattern: str) -> str:
    """Return *pattern* with ``*`` alone as a wildcard."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


# The device nodes that open a MIG device: ``/dev/nvidia-caps/nvidia-capN``.
#
# The driver numbers them for every GPU and instance that could exist and lists the numbers in
# one file (NVIDIA MIG User Guide, "Device Nodes and Capabilities"), of which NVIDIA's device
# plugin takes them as well (k8s-device-plugin v0.19.0, internal/mig/mig-dp.go).

MINORS = Path("driver", "nvidia-caps", "mig-minors")
"""The file below ``/proc``; containers see the host's, whichever GPUs they were given."""


Minors = Mapping[tuple[int, int, int | None], int]
"""N by minor number of the GPU, id of the GPU instance, and id of the compute instance, which
is ``None`` for the node of the GPU instance itself."""


_LINE = re.compile(r"gpu([0-9]+)/gi([0-9]+)(?:/ci([0-9]+))?/access ([0-9]+)", re.ASCII)


def read_minors(procfs: Path) -> Minors:
    """Return the numbers that the driver lists; none where it has no such file."""
    try:
        text = (procfs / MINORS).read_text("ascii", errors="replace")
    except OSError:
        return {}  # no driver, or one without MIG
    found = (_LINE.fullmatch(line.strip()) for line in text.splitlines())
    return {
        (int(line[1]), int(line[2]), None if line[3] is None else int(line[3])): int(line[4])
        for line in found
        if line is not None
    }


def capabilities(
    minors: Minors,
    gpu: int | None,
    gpu_instance: int | None,
    compute_instance: int | None,
) -> tuple[int, ...] | None:
    """Return the two numbers of a MIG device; ``None`` where one is not known.

    *gpu* is the minor number of its GPU; the ids of the instances are NVML's.
    """
    if gpu is None or gpu_instance is None or compute_instance is None:
        return None
    instance = minors.get((gpu, gpu_instance, None))
    compute = minors.get((gpu, gpu_instance, compute_instance))
    return None if instance is None or compute is None else (instance, compute)


_MIG_CALLS = ("nvmlDeviceGetMig", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetUUID")
"""Beginnings of the calls without which a GPU's MIG devices are not all known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginDevice:
    """One device of a resource, as the kubelet shall see it.

    Attributes:
        id: the UUID of the GPU or MIG device; of a replica, with its number behind
            :data:`SEPARATOR`. It never changes meaning.
        numa_nodes: the nodes that are near, ascending. Either every device of a resource
            has some, or none has: the kubelet would never hand out those without, once
            another has one (1.36 pkg/kubelet/cm/devicemanager/topology_hints.go counts only those
            with a node).
        socket_nodes: all nodes with CPUs of the socket that holds those, ascending; empty where
            they are the same, or the socket is unknown.
        minor: the N of the GPU's ``/dev/nvidiaN``; ``None`` where NVML did not say.
        capabilities: the N of each ``/dev/nvidia-caps/nvidia-capN`` that a container needs for
            a MIG device; empty for a GPU, ``None`` where the driver did not say.
    """

    id: str
    is_healthy: bool = True
    numa_nodes: tuple[int, ...] = ()
    minor: int | None = None
    capabilities: tuple[int, ...] | None = ()
    socket_nodes: tuple[int, ...] = ()

    def reported_nodes(self, numa: NumaReport) -> tuple[int, ...]:
        """Return the nodes that the Topology Manager learns of; with none it has no opinion."""
        match numa:
            case NumaReport.NUMA:
                return self.numa_nodes
            case NumaReport.SOCKET:
                return self.socket_nodes or self.numa_nodes
            case NumaReport.NONE:
                return ()

    @property
    def uuid(self) -> str:
        """What a container is given: the UUID of the GPU or MIG device, whichever replica."""
        return self.id.partition(SEPARATOR)[0]

    @property
    def is_replica(self) -> bool:
        """Whether others are offered of the same GPU or MIG device."""
        return SEPARATOR in self.id


def remembered(previous: Sequence[Gpu], snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return *previous* brought up to date with *snapshot*, in its order, newcomers behind.

    A GPU that is gone stays, lost, so that the kubelet keeps counting its devices and its
    pods' accounting holds. A snapshot that lists no GPU because NVML did not answer proves
    nothing, and leaves *previous* as it was. What is no longer known of a GPU (its node, its
    minor number, its MIG mode, a MIG device that could not be asked) stays as last known.
    GPUs without a UUID cannot be offered, and are left out.
    """
    if not snapshot.gpus and any(issue.probe == "nvml" for issue in snapshot.issues):
        return tuple(previous)
    nodes = tuple(node.id for node in snapshot.numa_nodes or ())
    present = {gpu.id: _placed(gpu, nodes) for gpu in snapshot.gpus if gpu.uuid is not None}
    kept = [_updated(gpu, present.pop(gpu.id, None), snapshot) for gpu in previous]
    return (*kept, *present.values())


def with_nodes(devices: Sequence[PluginDevice], snapshot: Snapshot) -> tuple[PluginDevice, ...]:
    """Return *devices* all with NUMA nodes, or all without where no node is known.

    One whose node is unknown is near all nodes that have CPUs. The nodes of its socket are
    given to each beside its own.
    """
    numa_nodes = snapshot.numa_nodes or ()
    sockets = socket_of_node(snapshot)
    known = _ascending(node for device in devices for node in device.numa_nodes)
    all_nodes = [node.id for node in numa_nodes if node.cpus] or [node.id for node in numa_nodes]
    anywhere = _ascending([*known, *all_nodes]) if known else ()
    return tuple(
        replace(device, socket_nodes=_socket_nodes(device.numa_nodes, sockets))
        if device.numa_nodes
        else replace(device, numa_nodes=anywhere)
        for device in devices
    )


def _socket_nodes(nodes: tuple[int, ...], sockets: Mapping[int, int]) -> tuple[int, ...]:
    """Return all nodes of the sockets that hold *nodes*, unless those are the same."""
    if not all(node in sockets for node in nodes):
        return ()
    holding = {sockets[node] for node in nodes}
    found = _ascending(node for node, socket in sockets.items() if socket in holding)
    return () if found == nodes else found


def _placed(gpu: Gpu, nodes: Sequence[int]) -> Gpu:
    # A node that the kernel does not list is dropped by the kubelet, which would strand
    # the GPU: as good as unknown. The same guard keeps −1 out, which would make the
    # Topology Manager reject every pod.
    node = gpu.numa_node
    is_known = node is not None and node >= 0 and (not nodes or node in nodes)
    return gpu if is_known else replace(gpu, numa_node=None)


def _updated(before: Gpu, now: Gpu | None, snapshot: Snapshot) -> Gpu:
    if now is None:
        return replace(before, is_lost=True)
    return replace(
        now,
        numa_node=before.numa_node if now.numa_node is None else now.numa_node,
        minor=before.minor if now.minor is None else now.minor,
        product=now.product or before.product,
        mig=_updated_mig(before.mig, now.mig, is_partial=_is_partial(now, snapshot)),
    )


def _updated_mig(before: Mig | None, now: Mig | None, *, is_partial: bool) -> Mig | None:
    if now is None or before is None:
        return now or before
    if not (is_partial and now.is_enabled):
        return now
    seen = {instance.uuid for instance in now.instances}
    unseen = tuple(instance for instance in before.instances if instance.uuid not in seen)
    return replace(now, instances=(*now.instances, *unseen))


def _is_partial(gpu: Gpu, snapshot: Snapshot) -> bool:
    """Tell whether a call about the MIG devices of *gpu* was refused."""
    return any(
        issue.gpus == (gpu.index,) and issue.call.startswith(_MIG_CALLS)
        for issue in snapshot.issues
    )


def _ascending(nodes: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(nodes)))
