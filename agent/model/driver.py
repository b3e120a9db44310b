"""The NVIDIA kernel driver as procfs and sysfs show it, apart from the devices."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaDriver:
    """What the loaded kernel module says of itself.

    Attributes:
        is_open: whether it is the open kernel module, which dma-buf needs
            (``/proc/driver/nvidia/version``).
        parameters: ``/proc/driver/nvidia/params``, names without the ``NVreg_``.
        peer_memory: whether an RDMA driver can register GPU memory through nvidia_peermem
            (NCCL's own test: ``memory_peers/nv_mem*`` or the module ``nvidia_peermem``).
        imex_channels: numbers of ``/dev/nvidia-caps-imex-channels``; ``None``: not looked at.
    """

    is_open: bool | None = None
    parameters: Mapping[str, str] | None = None
    peer_memory: bool | None = None
    imex_channels: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidentialCompute:
    """The state of confidential computing (``nvmlSystemGetConfComputeState``).

    Attributes:
        is_enabled: GPU memory is encrypted against the host, which also turns peer access off.
        is_dev_tools: the mode for developers, which protects nothing.
    """

    is_enabled: bool
    is_dev_tools: bool | None = None
