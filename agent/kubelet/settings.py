"""What an operator may choose about how devices are offered and handed over."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from agent.errors import InputError
from agent.kubelet.cdi import KIND, checked_kind


class Strategy(StrEnum):
    """One way to make a device visible in a container; several may be used at once.

    The names are those of NVIDIA's device plugin (``--device-list-strategy``), where
    ``device-specs`` is its separate ``--pass-device-specs``.
    """

    CDI_CRI = "cdi-cri"
    ENVVAR = "envvar"
    DEVICE_SPECS = "device-specs"


class NumaReport(StrEnum):
    """Whether the kubelet's Topology Manager learns where a device sits."""

    NUMA = "numa"
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
        numa: ``none`` leaves the choice of NUMA nodes to the preferred allocation.
        dev_root: the directory that holds ``dev/`` as the container runtime sees it.
        host_root: where this process sees the host's ``/``.

    Raises:
        InputError: the CDI kind or the device root is no such thing.
    """

    strategies: tuple[Strategy, ...] = (Strategy.CDI_CRI,)
    cdi_kind: str = KIND
    numa: NumaReport = NumaReport.NUMA
    dev_root: Path = Path("/")
    host_root: Path = Path("/")

    def __post_init__(self) -> None:
        checked_kind(self.cdi_kind)
        if not self.dev_root.is_absolute():
            raise InputError(f"the device root {self.dev_root} is relative", "start it with /")
