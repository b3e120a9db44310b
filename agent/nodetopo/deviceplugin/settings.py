"""Settings of offering devices and handing them over, and time limits of calls."""

from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from nodetopo.deviceplugin.cdi import (
    ANNOTATION_PREFIX,
    KIND,
    checked_annotation_prefix,
    checked_kind,
)
from nodetopo.errors import InputError


class Strategy(StrEnum):
    """A way to make a device visible in a container; several can be combined.

    The names follow NVIDIA's device plugin (``--device-list-strategy``), whose separate
    ``--pass-device-specs`` is ``device-specs`` here. ``auto`` is ours: it stands for the choice of
    :mod:`nodetopo.deviceplugin.hand_over`, and never appears in answers.
    """

    AUTO = "auto"
    CDI_CRI = "cdi-cri"
    CDI_ANNOTATIONS = "cdi-annotations"
    VOLUME_MOUNTS = "volume-mounts"
    ENVVAR = "envvar"
    DEVICE_SPECS = "device-specs"


class Feature(StrEnum):
    """An addition to GPUs in containers, with NVIDIA's name (``--gds-enabled`` ...).

    ``gdrcopy``: copies by the CPU through a mapping of GPU memory. ``gds``: GPUDirect Storage.
    ``mofed``: the RDMA devices of NVIDIA's network driver.
    """

    GDRCOPY = "gdrcopy"
    GDS = "gds"
    MOFED = "mofed"


class NumaReport(StrEnum):
    """The NUMA nodes of a device reported to the kubelet's Topology Manager.

    ``numa``: its NUMA node. ``socket``: all NUMA nodes of its socket. ``none``: nothing.
    """

    NUMA = "numa"
    SOCKET = "socket"
    NONE = "none"


class PluginSettings(Struct, frozen=True, kw_only=True):
    """Settings of offering one resource's devices and handing them over.

    Raises:
        InputError: the CDI kind or the prefix is invalid, or a path is relative.
    """

    # Of an Allocate response; CDI alone by default, because device nodes injected by CDI survive
    # `systemctl daemon-reload` (nvidia-container-toolkit issue 48) and need no hook in the runtime.
    strategies: tuple[Strategy, ...] = (Strategy.CDI_CRI,)
    # Vendor and class of the CDI specification that names the GPUs; `nvidia-ctk cdi generate`
    # writes `nvidia.com/gpu`.
    cdi_kind: str = KIND
    annotation_prefix: str = ANNOTATION_PREFIX  # of a CDI annotation's key
    imex_channels: tuple[int, ...] = ()  # that every container gets; missing ones are left out
    features: frozenset[Feature] = frozenset()  # added to every container
    # The directory on the host with our topology file for NCCL, mounted read-only into every
    # container; None for no such mount.
    nccl_hints: Path | None = None
    numa: NumaReport = NumaReport.NUMA  # `none` leaves NUMA nodes to the preferred allocation
    # The root of the driver's files as seen by the container runtime: `/`, or a driver container's
    # directory.
    driver_root: Path = Path("/")
    # The parent of `dev/` as seen by the container runtime; None for `driver_root` or `/`,
    # whichever has the device nodes.
    dev_root: Path | None = None
    host_root: Path = Path("/")  # the host's / as seen by this process
    procfs_root: Path = Path("/proc")  # the host's /proc as seen by this process
    # Refuse a container more than one replica of a shared resource, because more replicas are no
    # more of a GPU.
    fails_requests_greater_than_one: bool = False

    @property
    def names_cdi_devices(self) -> bool:
        """Whether an Allocate response has CDI names, which the runtime must resolve."""
        return not {Strategy.CDI_CRI, Strategy.CDI_ANNOTATIONS}.isdisjoint(self.strategies)

    def __post_init__(self) -> None:
        checked_kind(self.cdi_kind)
        checked_annotation_prefix(self.annotation_prefix)
        if not self.driver_root.is_absolute():
            raise InputError(f"the driver root {self.driver_root} is relative", "start it with /")
        if self.dev_root is not None and not self.dev_root.is_absolute():
            raise InputError(f"the device root {self.dev_root} is relative", "start it with /")
        if self.nccl_hints is not None and not self.nccl_hints.is_absolute():
            raise InputError(f"the NCCL directory {self.nccl_hints} is relative", "start it with /")


class Deadlines(Struct, frozen=True, kw_only=True):
    """Time limits of the device plugin and the fake kubelet, in seconds."""

    # For the choice of a preferred set; after it the kubelet, and every waiting pod, gets any valid
    # set.
    choice_s: float = 1.0
    # Between two look-ups of the host's device nodes: a burst of health changes must not cause a
    # burst of file look-ups.
    node_lookup_s: float = 1.0
    # Between two device lists on one stream, which limits the kubelet's checkpoint writes, and
    # delays news of a failed GPU by at most this time.
    list_interval_s: float = 1.0
    # For the Register call. The kubelet dials the plugin within the call and allows 10 s for that
    # (1.36 plugin/v1beta1).
    register_s: float = 12.0
    # For the kubelet to watch the device list after a registration; after that it never will.
    first_stream_s: float = 10.0
    competitor_answer_s: float = 2.0  # for another plugin to send its device list
    # For a call in progress at a stop; answers come from memory, in milliseconds.
    stop_grace_s: float = 0.5
    # For the last lines of the allocation log at a stop. The whole plugin stops within a second.
    log_close_s: float = 0.5
    # For a plugin to answer a connection, the same as a kubelet's.
    fake_kubelet_dial_s: float = 10.0
    # For a call to a plugin. A kubelet sets no deadline, but the fake one must not block the
    # program that runs it.
    fake_kubelet_call_s: float = 5.0
    fake_kubelet_stop_s: float = 1.0  # for gRPC to remove a stopped server's socket file


DEADLINES = Deadlines()
"""Defaults of :class:`~nodetopo.deviceplugin.plugin.DevicePlugin` and of fake kubelets."""


def start_warnings(settings: PluginSettings) -> tuple[str, ...]:
    """Return warnings for an operator at startup, a sentence for each risky setting."""
    strategies = settings.strategies
    warnings = []
    if Strategy.ENVVAR in strategies:
        warnings.append(
            "envvar: a pod that sets NVIDIA_VISIBLE_DEVICES itself gets any GPU without asking "
            "for one, unless the NVIDIA container toolkit is told "
            "accept-nvidia-visible-devices-envvar-when-unprivileged = false"
        )
    if Strategy.VOLUME_MOUNTS in strategies:
        warnings.append(
            "volume-mounts: containers get no GPU unless the NVIDIA container toolkit is told "
            "accept-nvidia-visible-devices-as-volume-mounts = true"
        )
    if Strategy.CDI_ANNOTATIONS in strategies and settings.annotation_prefix != ANNOTATION_PREFIX:
        warnings.append(
            f"cdi-annotations: container runtimes look for {ANNOTATION_PREFIX} only; "
            f"{settings.annotation_prefix} has to be told to the NVIDIA container runtime"
        )
    return tuple(warnings)
