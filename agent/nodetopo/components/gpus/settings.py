"""The settings of the GPUs: resources, placement, and hand-over to containers."""

# ruff: noqa: RUF009 - a setting is a call that returns a dataclass field

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nodetopo.allocation.rules import Model, Policy
from nodetopo.deviceplugin.settings import NumaReport, Strategy
from nodetopo.kernel.settings import policies, values
from nodetopo.kernel.settings.groups import CONTAINERS, DEVICES, HEALTH
from nodetopo.kernel.settings.own import KernelSettings
from nodetopo.kernel.settings.policies import (
    ONE_EACH,
    RENAME,
    PlacementPolicies,
    TimeSlicing,
    XidClasses,
)
from nodetopo.model.gpu_health import HealthClass


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class GpuSettings(KernelSettings):
    """The kernel's settings and the settings of the GPUs."""

    resource_name: str = DEVICES(
        "nvidia.com/gpu",
        "resource name advertised to the kubelet",
        values.resource,
        "NAME",
        is_live=True,
    )
    offer_gpus: str = DEVICES(
        "auto",  # a GPU that two programs give out ends up in two containers
        "advertise GPUs to the kubelet; auto: except GPUs that a DRA driver publishes; never: "
        "leave them to another device plugin",
        "auto",
        "always",
        "never",
        is_live=True,
    )
    dra: bool = DEVICES(
        False,  # the device plugin serves every Kubernetes; DRA needs 1.34, and classes
        "publish GPUs as devices of the DRA driver nodetopo.io, and advertise none by device "
        "plugin",
        writes=True,
    )
    mig_strategy: str = DEVICES(
        "none", "how MIG devices are advertised", "none", "single", "mixed", is_live=True
    )
    time_slicing: TimeSlicing | None = DEVICES(
        None,
        f"comma-separated RESOURCE=REPLICAS, with {RENAME} and {ONE_EACH}",
        policies.time_slicing,
        "LIST",
        is_live=True,
    )
    exclude_gpus: tuple[str, ...] = DEVICES(
        (),
        "GPUs to exclude: index, UUID or its prefix, PCI address, product with *",
        values.names,
        "LIST",
        is_live=True,
    )
    numa_mode: str = DEVICES(
        NumaReport.NUMA.value,
        "NUMA nodes that a device reports: its own, or all of its socket",
        *(mode.value for mode in NumaReport),
        is_live=True,
    )
    placement_policy: PlacementPolicies = DEVICES(
        PlacementPolicies(),  # `best` for all: the least bandwidth lost on traces
        f"{', '.join(Policy)}: one for all resources, or RESOURCE=WORD by comma",
        policies.placement,
        "LIST",
        words=tuple(word.value for word in Policy),
        is_live=True,
    )
    bandwidth_model: str = DEVICES(
        Model.RING.value,
        "model that estimates the bandwidth of a set of GPUs",
        *(model.value for model in Model),
        is_live=True,
    )
    bandwidth_table: Path | None = DEVICES(
        None,
        "measured bandwidths, YAML or JSON; they take precedence over the model",
        values.path,
        "FILE",
        is_live=True,
    )
    pod_policies: bool = DEVICES(
        False,  # any user who may create pods then chooses, and the daemon watches pods
        "follow the annotation nodetopo.io/placement-policy of pods, and place the containers of "
        "a pod as one set",
    )
    tell_pods: bool = DEVICES(
        False,  # an Event for each pod with devices
        "post an Event on each pod with its devices and the reason for the choice",
    )
    device_list_strategy: tuple[str, ...] = CONTAINERS(
        ("auto",),
        f"how devices reach a container, comma-separated: {', '.join(Strategy)}",
        policies.strategies,
        "LIST",
        words=tuple(word.value for word in Strategy),
        is_live=True,
    )
    driver_root: Path = CONTAINERS(
        Path("/"),
        "root directory of the driver's files on the host",
        values.absolute_path,
        "DIR",
        is_live=True,
    )
    dev_root: Path | None = CONTAINERS(
        None,
        "root directory containing dev/ on the host; default driver-root, or / if driver-root has "
        "no device nodes",
        values.absolute_path,
        "DIR",
        is_live=True,
    )
    cdi_kind: str = CONTAINERS(
        "nvidia.com/gpu",  # the kind that nvidia-ctk writes into /var/run/cdi
        "vendor/class of the CDI devices",
        values.resource,
        "NAME",
        is_live=True,
    )
    cdi_annotation_prefix: str = CONTAINERS(
        "cdi.k8s.io/",  # the only one that container runtimes read by default
        "prefix of CDI annotation keys",
        values.annotation_prefix,
        "TEXT",
        is_live=True,
    )
    cdi_spec: str = CONTAINERS(
        "none",  # another program must write it
        "whether the daemon writes the CDI specification",
        "none",
        "write",
        is_live=True,
    )
    cdi_spec_dir: Path = CONTAINERS(
        Path("/var/run/cdi"),  # CDI 1.0, where specifications of a running system are
        "directory for the CDI specification",
        values.absolute_path,
        "DIR",
    )
    cdi_hook: Path = CONTAINERS(
        Path("/usr/bin/nvidia-cdi-hook"),
        "program for the hooks of the CDI specification, on the host",
        values.absolute_path,
        "PATH",
        is_live=True,
    )
    cdi_disable_hooks: tuple[str, ...] = CONTAINERS(
        (),
        "hooks to omit from the CDI specification, such as enable-cuda-compat, or all",
        values.names,
        "LIST",
        is_live=True,
    )
    imex_channels: tuple[int, ...] = CONTAINERS(
        (),
        "IMEX channels for every container: none, or 0",
        values.imex_channels,
        "LIST",
        is_live=True,
    )
    imex_required: bool = CONTAINERS(
        False, "exit at startup if an IMEX channel is missing", is_live=True
    )
    gdrcopy: bool = CONTAINERS(False, "start containers with GDRCopy", is_live=True)
    gds: bool = CONTAINERS(False, "start containers with GPUDirect Storage", is_live=True)
    mofed: bool = CONTAINERS(False, "start containers with Mellanox OFED", is_live=True)
    nccl_hints: bool = CONTAINERS(False, "mount the PCI tree for NCCL into containers")
    nccl_hints_dir: Path = CONTAINERS(
        Path("/run/nodetopo/nccl"),
        "directory of the PCI tree for NCCL, on the host",
        values.absolute_path,
        "DIR",
    )
    xid_classes: Mapping[int, HealthClass] = HEALTH(
        XidClasses(),
        f"XID=CLASS or FROM-TO=CLASS by comma, over the usual: {', '.join(HealthClass)}",
        policies.xid_classes,
        "LIST",
        words=tuple(word.value for word in HealthClass),
        before="recovery_s",
    )
    expect_gpus: int | None = HEALTH(
        None,
        "expected GPUs on the PCI bus, 0 for no check; auto: the most seen so far, or the number "
        "of the instance type",
        values.gpu_count,
        "COUNT",
        before="health_file",
    )
    gpu_count_file: Path | None = HEALTH(
        None,
        "file that keeps the most GPUs seen; default gpu-count.json next to health-file",
        values.path_or_none,
        "FILE",
        before="health_file",
    )


def files(settings: GpuSettings) -> tuple[Path, ...]:
    """Return the files that are part of the settings; they can be missing."""
    return () if settings.bandwidth_table is None else (settings.bandwidth_table,)
