"""Which GPUs have NVLinks that ought to be up.

A link that is down is a fault on a module of a baseboard, and none on a PCIe card that was never
given a bridge. The name of a product alone does not say which it is, so that everything that the
driver reports about the GPU and its neighbours counts.
"""

import re

from nodetopo.model.gpu import FabricState, Gpu
from nodetopo.model.nvlink import PeerKind
from nodetopo.model.snapshot import Snapshot

MODULES = re.compile(
    r"SXM|^NVIDIA (H100 80GB HBM3|H800|H20|H20-3e|GH200 .+|H200|B[12]00|GB[23]00)$"
)
"""Names of modules. Those without SXM are from NVIDIA/open-gpu-kernel-modules
(src/nvidia/generated/g_nv_name_released.h) and NVIDIA's data sheets; the cards of the same families
are called ``… PCIe`` and ``… NVL``."""


def is_module(gpu: Gpu) -> bool:
    """Return whether *gpu* sits on a baseboard, whose NVLinks are wired.

    By its place there (``nvmlDeviceGetModuleId``, which some drivers do not answer), because it
    registers with a fabric, or by its name.
    """
    name = gpu.product or ""
    return gpu.module_id is not None or registers(gpu) or MODULES.search(name) is not None


def registers(gpu: Gpu) -> bool:
    """Return whether *gpu* is known to register with an NVLink fabric, in whatever state.

    The driver does so where the board says that there are NVSwitches, and reports NOT_SUPPORTED on
    boards whose GPUs are joined directly, on cards, and while ``NVreg_NvLinkDisable`` is set
    (open-gpu-kernel-modules, gpuFabricProbeIsSupported).
    """
    return gpu.fabric is not None and gpu.fabric.state is not FabricState.NOT_SUPPORTED


def has_switches(snapshot: Snapshot) -> bool:
    """Return whether the node has NVSwitches, or NVLinks that end at one."""
    links = snapshot.nvlinks or ()
    return bool(snapshot.nvswitches) or any(link.peer_kind is PeerKind.SWITCH for link in links)


def wired_gpus(snapshot: Snapshot) -> frozenset[int]:
    """Return the GPUs whose links must all be up.

    A PCIe card without a bridge lists links too, all down and with no far end: that is no
    fault. One of several modules, a GPU alongside NVSwitches, and one with any link that is up or
    names its far end is wired. A module alone is not: a virtual machine can own one of a board. In
    MIG mode a GPU uses no link.
    """
    whole = {gpu.index for gpu in snapshot.gpus if not gpu.is_divided}
    if has_switches(snapshot):
        return frozenset(whole)
    linked = {
        link.gpu
        for link in snapshot.nvlinks or ()
        if link.is_active or link.peer is not None or link.peer_kind is not None
    }
    return frozenset(whole & (linked | {gpu.index for gpu in _modules(snapshot)}))


def modules_without_links(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return the GPUs that sit on a baseboard alongside others and list no NVLink at all.

    A baseboard has NVLinks, so NVML withholds them rather than that there are none, unless the
    driver's ``NVreg_NvLinkDisable`` turned them off. In MIG mode a GPU uses none.
    """
    parameters = (snapshot.nvidia and snapshot.nvidia.parameters) or {}
    if snapshot.nvlinks is None or parameters.get("NvLinkDisable", "0") != "0":
        return ()
    linked = {link.gpu for link in snapshot.nvlinks}
    return tuple(
        gpu for gpu in _modules(snapshot) if gpu.index not in linked and not gpu.is_divided
    )


def _modules(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return the modules, if there are several that NVLinks can join."""
    modules = tuple(gpu for gpu in snapshot.gpus if is_module(gpu))
    return modules if len(modules) > 1 else ()
