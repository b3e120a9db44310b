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

    resource_name: str = DEVICES.setting(
        "nvidia.com/gpu",
        values.resource,
        "resource name advertised to the kubelet",
        "NAME",
        is_live=True,
    )
    offer_gpus: str = DEVICES.choice(
        "auto",  # a GPU that two programs give out ends up in two containers
        "advertise GPUs to the kubelet; auto: except GPUs that a DRA driver publishes; never: "
        "leave them to another device plugin",
        "auto",
        "always",
        "never",
        is_live=True,
    )
    dra: bool = DEVICES.switch(
        False,  # the device plugin serves every Kubernetes; DRA needs 1.34, and classes
        "publish GPUs as devices of the DRA driver nodetopo.io, and advertise none by device "
        "plugin",
        writes=True,
    )
    mig_strategy: str = DEVICES.choice(
        "none", "how MIG devices are advertised", "none", "single", "mixed", is_live=True
    )
    time_slicing: TimeSlicing | None = DEVICES.setting(
        None,
        policies.time_slicing,
        f"comma-separated RESOURCE=REPLICAS, with {RENAME} and {ONE_EACH}",
        "LIST",
        is_live=True,
    )
    exclude_gpus: tuple[str, ...] = DEVICES.setting(
        (),
        values.names,
        "GPUs to exclude: index, UUID or its prefix, PCI address, product with *",
        "LIST",
        is_live=True,
    )
    numa_mode: str = DEVICES.choice(
        NumaReport.NUMA.value,
        "NUMA nodes that a device reports: its own, or all of its socket",
        *(mode.value for mode in NumaReport),
        is_live=True,
    )
    placement_policy: PlacementPolicies = DEVICES.setting(
        PlacementPolicies(),  # `best` for all: the least bandwidth lost on traces
        policies.placement,
        f"{', '.join(Policy)}: one for all resources, or RESOURCE=WORD by comma",
        "LIST",
        words=tuple(word.value for word in Policy),
        is_live=True,
    )
    bandwidth_model: str = DEVICES.choice(
        Model.RING.value,
        "model that estimates the bandwidth of a set of GPUs",
        *(model.value for model in Model),
        is_live=True,
    )
    bandwidth_table: Path | None = DEVICES.setting(
        None,
        values.path,
        "measured bandwidths, YAML or JSON; they take precedence over the model",
        "FILE",
        is_live=True,
    )
    pod_policies: bool = DEVICES.switch(
        False,  # any user who may create pods then chooses, and the daemon watches pods
        "follow the annotation nodetopo.io/placement-policy of pods, and place the containers of "
        "a pod as one set",
    )
    tell_pods: bool = DEVICES.switch(
        False,  # an Event for each pod with devices
        "post an Event on each pod with its devices and the reason for the choice",
    )
    device_list_strategy: tuple[str, ...] = CONTAINERS.setting(
        ("auto",),
        policies.strategies,
        f"how devices reach a container, comma-separated: {', '.join(Strategy)}",
        "LIST",
        words=tuple(word.value for word in Strategy),
        is_live=True,
    )
    driver_root: Path = CONTAINERS.setting(
        Path("/"),
        values.absolute_path,
        "root directory of the driver's files on the host",
        "DIR",
        is_live=True,
    )
    dev_root: Path | None = CONTAINERS.setting(
        None,
        values.absolute_path,
        "root directory containing dev/ on the host; default driver-root, or / if driver-root has "
        "no device nodes",
        "DIR",
        is_live=True,
    )
    cdi_kind: str = CONTAINERS.setting(
        "nvidia.com/gpu",  # the kind that nvidia-ctk writes into /var/run/cdi
        values.resource,
        "vendor/class of the CDI devices",
        "NAME",
        is_live=True,
    )
    cdi_annotation_prefix: str = CONTAINERS.setting(
        "cdi.k8s.io/",  # the only one that container runtimes read by default
        values.annotation_prefix,
        "prefix of CDI annotation keys",
        "TEXT",
        is_live=True,
    )
    cdi_spec: str = CONTAINERS.choice(
        "none",  # another program must write it
        "whether the daemon writes the CDI specification",
        "none",
        "write",
        is_live=True,
    )
    cdi_spec_dir: Path = CONTAINERS.setting(
        Path("/var/run/cdi"),  # CDI 1.0, where specifications of a running system are
        values.absolute_path,
        "directory for the CDI specification",
        "DIR",
    )
    cdi_hook: Path = CONTAINERS.setting(
        Path("/usr/bin/nvidia-cdi-hook"),
        values.absolute_path,
        "program for the hooks of the CDI specification, on the host",
        "PATH",
        is_live=True,
    )
    cdi_disable_hooks: tuple[str, ...] = CONTAINERS.setting(
        (),
        values.names,
        "hooks to omit from the CDI specification, such as enable-cuda-compat, or all",
        "LIST",
        is_live=True,
    )
    imex_channels: tuple[int, ...] = CONTAINERS.setting(
        (),
        values.imex_channels,
        "IMEX channels for every container: none, or 0",
        "LIST",
        is_live=True,
    )
    imex_required: bool = CONTAINERS.switch(
        False, "exit at startup if an IMEX channel is missing", is_live=True
    )
    gdrcopy: bool = CONTAINERS.switch(False, "start containers with GDRCopy", is_live=True)
    gds: bool = CONTAINERS.switch(False, "start containers with GPUDirect Storage", is_live=True)
    mofed: bool = CONTAINERS.switch(False, "start containers with Mellanox OFED", is_live=True)
    nccl_hints: bool = CONTAINERS.switch(False, "mount the PCI tree for NCCL into containers")
    nccl_hints_dir: Path = CONTAINERS.setting(
        Path("/run/nodetopo/nccl"),
        values.absolute_path,
        "directory of the PCI tree for NCCL, on the host",
        "DIR",
    )
    xid_classes: Mapping[int, HealthClass] = HEALTH.setting(
        XidClasses(),
        policies.xid_classes,
        f"XID=CLASS or FROM-TO=CLASS by comma, over the usual: {', '.join(HealthClass)}",
        "LIST",
        words=tuple(word.value for word in HealthClass),
        before="recovery_s",
    )
    expect_gpus: int | None = HEALTH.setting(
        None,
        values.gpu_count,
        "expected GPUs on the PCI bus, 0 for no check; auto: the most seen so far, or the number "
        "of the instance type",
        "COUNT",
        before="health_file",
    )
    gpu_count_file: Path | None = HEALTH.setting(
        None,
        values.path_or_none,
        "file that keeps the most GPUs seen; default gpu-count.json next to health-file",
        "FILE",
        before="health_file",
    )


def files(settings: GpuSettings) -> tuple[Path, ...]:
    """Return the files that are part of the settings; they can be missing."""
    return () if settings.bandwidth_table is None else (settings.bandwidth_table,)
