"""The devices offered to the kubelet, and the remembered state of their GPUs."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.errors import InputError
from nodetopo.model.gpu import Gpu, Mig
from nodetopo.model.node import REPLICA, unshared
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.affinity import socket_of_node

MINORS = Path("driver", "nvidia-caps", "mig-minors")
"""The file below ``/proc`` with the numbers of the device nodes of MIG devices,
``/dev/nvidia-caps/nvidia-capN``. Containers see the host's, whichever GPUs they were given."""

Minors = Mapping[tuple[int, int, int | None], int]
"""N by minor number of the GPU, id of the GPU instance, and id of the compute instance, which
is ``None`` for the node of the GPU instance itself."""

_MINORS_LINE = re.compile(r"gpu([0-9]+)/gi([0-9]+)(?:/ci([0-9]+))?/access ([0-9]+)", re.ASCII)

_UUID_PREFIX = "gpu-"
"""The prefix of a GPU's UUID, in lower case. A UUID can be abbreviated to any longer prefix."""

_MIG_CALLS = ("nvmlDeviceGetMig", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetUUID")
"""Beginnings of the calls without which a GPU's MIG devices are not all known."""


class PluginDevice(Struct, frozen=True, kw_only=True):
    """One device of a resource, as the kubelet sees it."""

    # The UUID of the GPU or MIG device; of a replica, followed by `REPLICA` and its number. It
    # never changes meaning.
    id: str
    is_healthy: bool = True
    # The nodes that are near, ascending. Either every device of a resource has some, or none has:
    # once a device has a node, the kubelet would never allocate those without (1.36
    # pkg/kubelet/cm/devicemanager/topology_hints.go counts only those with a node).
    numa_nodes: tuple[int, ...] = ()
    minor: int | None = None  # the N of the GPU's /dev/nvidiaN
    # The N of each /dev/nvidia-caps/nvidia-capN that a MIG device needs; empty for a GPU, None if
    # the driver does not list them.
    capabilities: tuple[int, ...] | None = ()
    # All nodes with CPUs of the socket that holds those, ascending; empty if they are the same, or
    # the socket is unknown.
    socket_nodes: tuple[int, ...] = ()

    def reported_nodes(self, numa: NumaReport) -> tuple[int, ...]:
        """Return the nodes that the Topology Manager is given; without any it has no preference."""
        match numa:
            case NumaReport.NUMA:
                return self.numa_nodes
            case NumaReport.SOCKET:
                return self.socket_nodes or self.numa_nodes
            case NumaReport.NONE:
                return ()

    @property
    def uuid(self) -> str:
        """The UUID of the GPU or MIG device that a container is given, whichever replica it is."""
        return unshared(self.id)

    @property
    def is_replica(self) -> bool:
        """Whether the same GPU or MIG device is offered several times."""
        return REPLICA in self.id


MOST_BYTES = 4 << 20
"""Of one device list: a kubelet reads messages of 4 MiB (google.golang.org/grpc clientconn.go,
``defaultClientMaxReceiveMessageSize``) and drops a plugin that sends more (kubernetes issue
109304)."""

Copies = Sequence[tuple[PluginDevice, int | None]]
"""Devices, each with the number of its replicas or tokens; ``None``: it has its own id, once."""


def copies(device: PluginDevice, count: int | None) -> Iterator[PluginDevice]:
    """Yield *count* devices that stand for *device*, numbered from 0."""
    if count is None:
        yield device
        return
    for number in range(count):
        yield replace(device, id=f"{device.id}{REPLICA}{number}")


def size_problem(devices: Copies, numa: NumaReport, setting: str) -> InputError | None:
    """Return why a kubelet would not read the list of *devices*; ``None`` if it would.

    *setting* is the number to lower. The list is not made: its devices can exceed the memory.
    """
    size = list_bytes(devices, numa)
    if size <= MOST_BYTES:
        return None
    number = sum(1 if count is None else count for _, count in devices)
    has_nodes = any(device.reported_nodes(numa) for device, _ in devices)
    return InputError(
        f"a list of {number} devices takes {size} bytes; a kubelet reads messages of {MOST_BYTES}",
        f"lower {setting}" + (", or set numa-mode to none" if has_nodes else ""),
    )


def replicas_problem(count: int) -> InputError | None:
    """Return why a kubelet would not read *count* replicas of a single GPU; ``None`` if it would.

    So many are wrong whatever the node has.
    """
    gpu = PluginDevice(id="GPU-00000000-0000-0000-0000-000000000000")
    return size_problem([(gpu, count)], NumaReport.NONE, "its replicas")


def most_that_fit(count: int, size: Callable[[int], int]) -> int:
    """Return the greatest number up to *count* of which *size* is no more than a kubelet reads."""
    return bisect_right(range(count + 1), MOST_BYTES, key=size) - 1


def list_bytes(devices: Copies, numa: NumaReport) -> int:
    """Return the size in bytes of the message that lists *devices*, each ``Unhealthy``."""

    def field(size: int) -> int:  # protobuf: a tag, the length as a varint, and the content
        return 1 + (size.bit_length() + 6) // 7 + size if size else 2

    total = 0
    for device, count in devices:
        nodes = device.reported_nodes(numa)
        numbers = (1 + (node.bit_length() + 6) // 7 if node else 0 for node in nodes)
        topology = field(sum(map(field, numbers))) if nodes else 0
        least = len(device.id.encode())
        ids = [(least, 1)] if count is None else []
        digits, below = 1, 0
        while count is not None and below < count:
            upto = min(count, 10**digits)
            ids.append((least + len(REPLICA) + digits, upto - below))
            digits, below = digits + 1, upto
        for length, number in ids:
            total += number * field(field(length) + field(len("Unhealthy")) + topology)
    return total


def matches(gpu: Gpu, pattern: str) -> bool:
    """Return whether *pattern*, in any case of letters, names *gpu*.

    It is an index (``3``), a name (``GPU3``), a UUID or its beginning, a PCI address as sysfs,
    NVML, lspci or nvidia-smi write it, or a product, in which ``*`` stands for anything.
    Indices are NVML's, and change when a GPU disappears.
    """
    wanted = pattern.strip().lower()
    if wanted in (str(gpu.index), gpu.name.lower()):
        return True
    if gpu.uuid is not None:
        uuid = gpu.uuid.lower()
        is_prefix = wanted.startswith(_UUID_PREFIX) and len(wanted) > len(_UUID_PREFIX)
        if wanted == uuid or (is_prefix and uuid.startswith(wanted)):
            return True
    address = PciAddress.as_written(wanted)
    if address is not None:
        return gpu.pci == address
    # Only * is a wildcard, so the others of fnmatch are escaped.
    product_pattern = wanted.replace("[", "[[]").replace("?", "[?]")
    return gpu.product is not None and fnmatchcase(gpu.product.lower(), product_pattern)


def is_excluded(gpu: Gpu, patterns: Sequence[str]) -> bool:
    """Return whether any of *patterns* names *gpu*."""
    return any(matches(gpu, pattern) for pattern in patterns)


def read_minors(procfs: Path) -> Minors:
    """Return the numbers of MIG device nodes that the driver lists; none if it has no such file.

    The driver numbers the nodes of every GPU and instance that could exist and lists them in one
    file (NVIDIA MIG User Guide, "Device Nodes and Capabilities"), which NVIDIA's device plugin
    reads as well (k8s-device-plugin v0.19.0, internal/mig/mig-dp.go).
    """
    try:
        text = (procfs / MINORS).read_text("ascii", errors="replace")
    except OSError:
        return {}  # no driver, or one without MIG
    lines = (_MINORS_LINE.fullmatch(line.strip()) for line in text.splitlines())
    return {
        (int(line[1]), int(line[2]), None if line[3] is None else int(line[3])): int(line[4])
        for line in lines
        if line is not None
    }


def capabilities(
    minors: Minors,
    gpu: int | None,
    gpu_instance: int | None,
    compute_instance: int | None,
) -> tuple[int, ...] | None:
    """Return the two capability numbers of a MIG device; ``None`` if one is unknown.

    *gpu* is the minor number of its GPU; the ids of the instances are NVML's.
    """
    if gpu is None or gpu_instance is None or compute_instance is None:
        return None
    instance = minors.get((gpu, gpu_instance, None))
    compute = minors.get((gpu, gpu_instance, compute_instance))
    return None if instance is None or compute is None else (instance, compute)


def with_nodes(devices: Sequence[PluginDevice], snapshot: Snapshot) -> tuple[PluginDevice, ...]:
    """Return *devices* all with NUMA nodes, or all without if no node is known.

    A device whose node is unknown is near all nodes that have CPUs. Each of the others also gets
    the nodes of its socket.
    """
    numa_nodes = snapshot.numa_nodes or ()
    sockets = socket_of_node(snapshot)
    known = _ascending(node for device in devices for node in device.numa_nodes)
    all_nodes = [node.id for node in numa_nodes if node.cpus] or [node.id for node in numa_nodes]
    anywhere = _ascending([*known, *all_nodes]) if known else ()

    def socket_nodes(nodes: tuple[int, ...]) -> tuple[int, ...]:
        if not all(node in sockets for node in nodes):
            return ()
        holding = {sockets[node] for node in nodes}
        together = _ascending(node for node, socket in sockets.items() if socket in holding)
        return () if together == nodes else together

    return tuple(
        replace(device, socket_nodes=socket_nodes(device.numa_nodes))
        if device.numa_nodes
        else replace(device, numa_nodes=anywhere)
        for device in devices
    )


def remembered(previous: Sequence[Gpu], snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return *previous* updated from *snapshot*, in its order, followed by new GPUs.

    A missing GPU stays, as lost, so that the kubelet keeps counting its devices and its pods'
    accounting stays right. A snapshot without GPUs because NVML did not answer proves nothing, and
    leaves *previous* unchanged. Unknown facts of a GPU (its node, its minor number, its MIG mode,
    an unreadable MIG device) keep their last known value. GPUs without a UUID cannot be offered,
    and are left out.
    """
    if not snapshot.gpus and any(issue.probe == "nvml" for issue in snapshot.issues):
        return tuple(previous)
    nodes = [node.id for node in snapshot.numa_nodes or ()]
    present = {}
    for gpu in snapshot.gpus:
        # The kubelet drops a node that the kernel does not list, which would strand the GPU: as
        # good as unknown. The same check rejects -1, with which the Topology Manager would
        # reject every pod.
        node = gpu.numa_node
        is_known = node is not None and node >= 0 and (not nodes or node in nodes)
        if gpu.uuid is not None:
            present[gpu.id] = gpu if is_known else replace(gpu, numa_node=None)
    kept = [_updated(gpu, present.pop(gpu.id, None), snapshot) for gpu in previous]
    return (*kept, *present.values())


def _updated(before: Gpu, now: Gpu | None, snapshot: Snapshot) -> Gpu:
    if now is None:
        return replace(before, is_lost=True)
    # Whether a call about its MIG devices was refused.
    is_partial = any(
        issue.gpus == (now.index,) and issue.call.startswith(_MIG_CALLS)
        for issue in snapshot.issues
    )
    return replace(
        now,
        numa_node=before.numa_node if now.numa_node is None else now.numa_node,
        minor=before.minor if now.minor is None else now.minor,
        product=now.product or before.product,
        mig=_updated_mig(before.mig, now.mig, is_partial=is_partial),
    )


def _updated_mig(before: Mig | None, now: Mig | None, *, is_partial: bool) -> Mig | None:
    if now is None or before is None:
        return now or before
    if not (is_partial and now.is_enabled):
        return now
    seen = {instance.uuid for instance in now.instances}
    unseen = tuple(instance for instance in before.instances if instance.uuid not in seen)
    return replace(now, instances=(*now.instances, *unseen))


def _ascending(nodes: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(nodes)))
