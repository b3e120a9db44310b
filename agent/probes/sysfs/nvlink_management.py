"""Tells HCAs of the NVLink fabric from those that jobs may use.

On HGX B200 and B300 the NVSwitches are no PCI functions. Fabric Manager reaches them through
ConnectX-7 functions that look like any other HCA, except for ``SMDL=SW_MNG`` in their VPD
(:mod:`agent.probes.sysfs.pci_vpd`) and speak InfiniBand. nvidia-smi leaves them out of its matrix.
"""

from collections.abc import Sequence

from agent.model.hca import Hca, HcaKind, LinkLayer
from agent.probes.sysfs.pcie import MELLANOX, PciTree
from agent.probes.sysfs.rdma_files import RdmaFiles

_CONNECTX_7 = "1021"
"""PCI device id (pci.ids); what is built in for the purpose. Others are not asked, since a
function answers for its VPD slowly, word by word."""


def split_management(
    files: RdmaFiles,
    tree: PciTree,
    hcas: Sequence[Hca],
) -> tuple[tuple[Hca, ...], tuple[Hca, ...]]:
    """Return the HCAs for jobs and those of the NVLink fabric, each in the order given.

    Asked are ConnectX-7 functions with a port that is not Ethernet, on a machine with GPUs and
    without an NVSwitch on PCI. Where their VPD cannot be read, which needs root, they count as
    for jobs, and one issue names them.
    """
    if not tree.nvidia_gpus() or tree.nvswitches():
        return tuple(hcas), ()
    verdicts = [_is_management(tree, hca) for hca in hcas]
    unknown = [hca.name for hca, verdict in zip(hcas, verdicts, strict=True) if verdict is None]
    if unknown:
        reason = "VPD cannot be read, so they may belong to the NVLink fabric and not to jobs"
        files.report(f"HCAs {', '.join(unknown)}", reason)
    return (
        tuple(hca for hca, verdict in zip(hcas, verdicts, strict=True) if not verdict),
        tuple(hca for hca, verdict in zip(hcas, verdicts, strict=True) if verdict),
    )


def _is_management(tree: PciTree, hca: Hca) -> bool | None:
    """Return whether *hca* belongs to the NVLink fabric; ``None`` if its VPD does not tell."""
    function = hca.function
    if hca.pci is None or hca.kind is not HcaKind.PHYSICAL or function is None:
        return False
    if (function.vendor, function.device) != (MELLANOX, _CONNECTX_7):
        return False
    if hca.ports and all(port.layer is LinkLayer.ETHERNET for port in hca.ports):
        return False
    return tree.is_nvlink_management(hca.pci)
