"""GFD's labels of nodes that are guests with virtual GPUs.

GFD reads PCI config space alone, and so takes privileges to say that there is no vGPU; NVML
tells that to everybody.
"""

from collections.abc import Callable

from agent.labels.gpu_model import counted, first_known
from agent.labels.label import LabelEntry, LabelRow, boolean
from agent.model.gpu import Gpu, Virtualization
from agent.model.pci import VgpuHost
from agent.model.snapshot import Snapshot


def _host(gpu: Gpu) -> VgpuHost | None:
    return None if gpu.function is None else gpu.function.vgpu_host


def _is_vgpu(gpu: Gpu) -> bool | None:
    if _host(gpu) is not None:
        return True
    return None if gpu.virtualization is None else gpu.virtualization is Virtualization.VGPU


def _is_present(snapshot: Snapshot) -> bool | None:
    """Return whether any GPU is virtual.

    One of which nothing is known leaves it open, unless it is lost and others tell.
    """
    told = {_is_vgpu(gpu) for gpu in counted(snapshot) if not gpu.is_lost}
    if True in told:
        return True
    return None if not told or None in told else False


def _of_host(fact: Callable[[VgpuHost], str]) -> Callable[[Snapshot], str | None]:
    def value(snapshot: Snapshot) -> str | None:
        found = first_known(counted(snapshot), _host)
        return None if found is None else fact(found)

    return value


_CONFIG_SPACE = "vendor-specific capability in the GPU's PCI config space"

ENTRIES: tuple[LabelRow, ...] = (
    LabelEntry(
        key="nvidia.com/vgpu.present",
        meaning="Whether a GPU of this node is a virtual one (NVIDIA vGPU).",
        source=f"nvmlDeviceGetVirtualizationMode, {_CONFIG_SPACE}",
        cardinality="2",
        value=lambda snapshot: boolean(_is_present(snapshot)),
    ),
    LabelEntry(
        key="nvidia.com/vgpu.host-driver-version",
        meaning="Driver of the host that virtual GPUs come from; absent without them.",
        source=_CONFIG_SPACE,
        cardinality="one per driver version",
        value=_of_host(lambda host: host.driver_version),
    ),
    LabelEntry(
        key="nvidia.com/vgpu.host-driver-branch",
        meaning="Branch of that driver.",
        source=_CONFIG_SPACE,
        cardinality="one per driver version",
        value=_of_host(lambda host: host.driver_branch),
    ),
)
