"""The state files and checkpoints of the kubelet's managers.

The formats are internal to the kubelet, but they have the policy that is in force and what a pod
holds by its uid (kubernetes 1.36 pkg/kubelet/cm/{cpumanager,memorymanager}/state and
pkg/kubelet/cm/devicemanager/checkpoint).
"""

import re
from collections.abc import Mapping
from hashlib import blake2s

from msgspec import Struct

from nodetopo.model.limits import Amount, NumaId, NumaIds
from nodetopo.model.numa import CpuSet

OUR_SOCKETS = "nodetopo-"
"""Prefix of the sockets of our device plugins, whichever the resource, process or version."""

_DIGEST_BYTES = 3
"""Of what stands for the name of a resource that is too long: six hex digits for a handful of
resources."""


class CpuState(Struct, frozen=True, kw_only=True):
    """``cpu_manager_state``."""

    policy: str
    default: CpuSet | None = None  # CPUs of pods without exclusive CPUs; None under policy `none`
    # Pod uid → container → exclusive CPUs.
    entries: Mapping[str, Mapping[str, CpuSet]] | None = None


class MemoryBlock(Struct, frozen=True, kw_only=True):
    """Memory of one kind on one NUMA node, in bytes."""

    numa_node: NumaId
    kind: str  # memory, or hugepages-<size>
    total: Amount
    system_reserved: Amount
    allocatable: Amount
    reserved: Amount
    free: Amount
    cells: NumaIds = ()  # NUMA nodes allocated together with this one, itself included


class HeldMemory(Struct, frozen=True, kw_only=True):
    """Memory that a container holds, in bytes."""

    kind: str
    size: Amount
    numa_nodes: NumaIds


class MemoryState(Struct, frozen=True, kw_only=True):
    """``memory_manager_state``."""

    policy: str
    blocks: tuple[MemoryBlock, ...] = ()  # by NUMA node and kind; empty under policy `None`
    # Pod uid → container → what it holds.
    entries: Mapping[str, Mapping[str, tuple[HeldMemory, ...]]] | None = None


class HeldDevices(Struct, frozen=True, kw_only=True):
    """Devices of one resource that a container holds."""

    pod_uid: str
    container: str
    resource: str
    ids: Mapping[str, tuple[str, ...]]  # by NUMA node; -1 has those whose plugin named no node


class DeviceState(Struct, frozen=True, kw_only=True):
    """``device-plugins/kubelet_internal_checkpoint``."""

    held: tuple[HeldDevices, ...] = ()
    # Resource → ids of healthy devices, sorted.
    registered: Mapping[str, tuple[str, ...]] | None = None


class KubeletState(Struct, frozen=True, kw_only=True):
    """All state files; a part that could not be read is ``None``, with an issue of the probe."""

    cpu: CpuState | None = None
    memory: MemoryState | None = None
    devices: DeviceState | None = None
    # In the plugins' directory, sorted, without the kubelet's own.
    plugin_sockets: tuple[str, ...] | None = None


def socket_stems(resource: str) -> tuple[str, str]:
    """Return how the names of our sockets for *resource* begin, and where that is too long."""
    stem = re.sub(r"[^A-Za-z0-9.-]", "_", resource.rpartition("/")[2])
    digest = blake2s(resource.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{OUR_SOCKETS}{stem}", f"{OUR_SOCKETS}{digest}"
