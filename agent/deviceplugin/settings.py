"""What an operator may choose about how devices are offered and handed over."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from agent.deviceplugin.cdi import ANNOTATION_PREFIX, KIND, checked_annotation_prefix, checked_kind
from agent.errors import InputError


class Strategy(StrEnum):
    """One way to make a device visible in a container; several may be used at once.

    The names are those of NVIDIA's device plugin (``--device-list-strategy``), where
    ``device-specs`` is its separate ``--pass-device-specs``.
    """

    CDI_CRI = "cdi-cri"
    CDI_ANNOTATIONS = "cdi-annotations"
    VOLUME_MOUNTS = "volume-mounts"
    ENVVAR = "envvar"
    DEVICE_SPECS = "device-specs"


class Feature(StrEnum):
    """What a container may want beside GPUs; the words are NVIDIA's (``--gds-enabled`` ...).

    ``gdrcopy``: copies by the CPU through a mapping of GPU memory. ``gds``: GPUDirect Storage.
    ``mofed``: the RDMA devices of NVIDIA's network driver.
    """

    GDRCOPY = "gdrcopy"
    GDS = "gds"
    MOFED = "mofed"


class NumaReport(StrEnum):
    """Whether the kubelet's Topology Manager learns where a device sits.

    ``numa``: its NUMA node. ``socket``: all NUMA nodes of its socket. ``none``: nothing.
    """

    NUMA = "numa"
    SOCKET = "socket"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """How one resource's devices are offered and handed over.

    Attributes:
        strategies: what an Allocate answer holds; CDI alone by default, because device
            nodes given by CDI survive ``systemctl daemon-reload`` (nvidia-container-toolkit
            issue 48) and need no hook in the runtime.
        cdi_kind: vendor and class of the CDI specification that names the GPUs;
            ``nvidia-ctk cdi generate`` writes ``nvidia.com/gpu``.
        annotation_prefix: what the key of a CDI annotation begins with.
        imex_channels: numbers of the IMEX channels that every container gets; those that the
            host lacks are left out.
        features: what every container gets beside its devices.
        nccl_hints: the directory on the host with our topology file for NCCL, mounted read-only
            into every container; ``None`` for no such mount.
        numa: ``none`` leaves the choice of NUMA nodes to the preferred allocation.
        dev_root: the directory that holds ``dev/`` as the container runtime sees it.
        host_root: where this process sees the host's ``/``.
        fails_requests_greater_than_one: a container gets one replica of a shared resource at
            most, because more would give it no more of a GPU.

    Raises:
        InputError: the CDI kind, the prefix, the device root or the directory is no such thing.
    """

    strategies: tuple[Strategy, ...] = (Strategy.CDI_CRI,)
    cdi_kind: str = KIND
    annotation_prefix: str = ANNOTATION_PREFIX
    imex_channels: tuple[int, ...] = ()
    features: frozenset[Feature] = frozenset()
    nccl_hints: Path | None = None
    numa: NumaReport = NumaReport.NUMA
    dev_root: Path = Path("/")
    host_root: Path = Path("/")
    fails_requests_greater_than_one: bool = False

    def __post_init__(self) -> None:
        checked_kind(self.cdi_kind)
        checked_annotation_prefix(self.annotation_prefix)
        if not self.dev_root.is_absolute():
            raise InputError(f"the device root {self.dev_root} is relative", "start it with /")
        if self.nccl_hints is not None and not self.nccl_hints.is_absolute():
            raise InputError(f"the NCCL directory {self.nccl_hints} is relative", "start it with /")


def start_warnings(settings: PluginSettings) -> tuple[str, ...]:
    """Say what an operator should know of *settings*, once, at start; nothing if all is well."""
    strategies = settings.strategies
    found = []
    if Strategy.ENVVAR in strategies:
        found.append(
            "envvar: a pod that sets NVIDIA_VISIBLE_DEVICES itself gets any GPU without asking "
            "for one, unless the NVIDIA container toolkit is told "
            "accept-nvidia-visible-devices-envvar-when-unprivileged = false"
        )
    if Strategy.VOLUME_MOUNTS in strategies:
        found.append(
            "volume-mounts: containers get no GPU unless the NVIDIA container toolkit is told "
            "accept-nvidia-visible-devices-as-volume-mounts = true"
        )
    if Strategy.CDI_ANNOTATIONS in strategies and settings.annotation_prefix != ANNOTATION_PREFIX:
        found.append(
            f"cdi-annotations: container runtimes look for {ANNOTATION_PREFIX} only; "
            f"{settings.annotation_prefix} has to be told to the NVIDIA container runtime"
        )
    return tuple(found)
