"""The kubelet's settings and metrics."""

from collections.abc import Mapping

from msgspec import Struct

from nodetopo.model.kubelet_keys import OddKey
from nodetopo.model.limits import AmountOrUnlimited, NumaId


class ReservedMemory(Struct, frozen=True, kw_only=True):
    """Memory of one NUMA node that pods never get (``reservedMemory``)."""

    numa_node: NumaId
    limits: Mapping[str, str]  # memory or hugepages-<size> → quantity as written


CONFIGZ = "configz"
"""The source of settings that the kubelet itself reported at its endpoint ``/configz``."""


class KubeletSettings(Struct, frozen=True, kw_only=True):
    """Settings that decide alignment, and their source.

    Policies are spelled as in the kubelet (``static``, ``single-numa-node``, ``Static`` for
    memory); a setting absent from a file that was read has the kubelet's default here. ``None``
    means unknown.
    """

    source: str  # `configz`, or the path of the file
    # Field of KubeletConfiguration → the file or the flag that states it; a field that is not named
    # has its default. Nested fields by path, `featureGates.X`.
    origins: Mapping[str, str] | None = None
    # The program that contains it: k3s, rke2 …; None for a standalone kubelet.
    embedded_in: str | None = None
    changed_since_start: tuple[str, ...] | None = None  # files changed after the kubelet read them
    # Files with settings where drop-ins usually are, which the running kubelet ignores: no flag
    # names their directory, or their name does not end in `.conf`.
    unloaded_drop_ins: tuple[str, ...] | None = None
    # Keys of the files that some releases do not know as written, or that occur twice; None if they
    # were not read or are too many to keep.
    odd_keys: tuple[OddKey, ...] | None = None
    root_directory: str | None = None  # --root-dir, above state files and sockets
    version: str | None = None
    cpu_manager_policy: str | None = None
    cpu_manager_options: Mapping[str, str] | None = None
    memory_manager_policy: str | None = None
    topology_manager_policy: str | None = None
    topology_manager_scope: str | None = None
    topology_manager_options: Mapping[str, str] | None = None
    reserved_system_cpus: str | None = None
    # system_reserved, kube_reserved, eviction_hard: resource → quantity as written
    system_reserved: Mapping[str, str] | None = None
    kube_reserved: Mapping[str, str] | None = None
    eviction_hard: Mapping[str, str] | None = None
    reserved_memory: tuple[ReservedMemory, ...] | None = None
    # Stated ones; the others have the default of the version.
    feature_gates: Mapping[str, bool] | None = None
    enforce_node_allocatable: tuple[str, ...] | None = None  # pods, system-reserved …
    system_reserved_cgroup: str | None = None
    kube_reserved_cgroup: str | None = None
    cgroup_driver: str | None = None
    cpu_cfs_quota: bool | None = None
    fail_swap_on: bool | None = None
    swap_behavior: str | None = None  # `memorySwap.swapBehavior`, empty for its default
    pod_pids_limit: AmountOrUnlimited | None = None
    max_pods: int | None = None

    @property
    def is_reported(self) -> bool:
        """Whether the kubelet itself reported them, so that they are in force."""
        return self.source == CONFIGZ


class KubeletMetrics(Struct, frozen=True, kw_only=True):
    """The kubelet's counters since its start (its ``/metrics``)."""

    # Reason → rejected pods (`kubelet_admission_rejections_total`, 1.32 and newer).
    rejections: Mapping[str, int] | None = None
    topology_errors: int | None = None  # kubelet_topology_manager_admission_errors_total
    # Resource → share of `Allocate` calls that took longer than a second, 0 to 1
    # (`kubelet_device_plugin_alloc_duration_seconds`).
    slow_allocations: Mapping[str, float] | None = None
