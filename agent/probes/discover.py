"""The whole node in one snapshot: what NVML says, joined with what sysfs and procfs say."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from agent.errors import NvmlUnavailable
from agent.model.gpu import Gpu
from agent.model.pci import PciAddress
from agent.model.snapshot import ProbeIssue, Snapshot
from agent.probes.cpu import read_cpu
from agent.probes.files import Files
from agent.probes.kernel import read_kernel
from agent.probes.kubelet_config import read_kubelet_settings
from agent.probes.numa import read_numa
from agent.probes.nvml import NvmlReading
from agent.probes.pcie import PciTree
from agent.probes.rdma import read_rdma

NO_READING = NvmlReading()
"""What is known of GPUs where NVML is not there, or was not asked: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the node's trees are seen from here.

    Attributes:
        host: the host's root directory, for the kubelet's files.
    """

    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    host: Path = Path("/")


def discover(
    roots: Roots,
    nvml: Callable[[], NvmlReading] | None,
    *,
    node: str | None,
    captured_at: datetime | None,
) -> Snapshot:
    """Read the node; what cannot be read is an issue in the snapshot, never an error.

    Args:
        nvml: one scan of the NVML library; ``None`` if it is not to be asked. Without an
            answer there are no GPUs in the snapshot, since nothing else tells a UUID; an
            issue counts those that PCI shows.
    """
    reading, nvml_issues = _ask(nvml)
    tree = PciTree(roots.sysfs)
    gpus = tuple(_placed(gpu, tree) for gpu in reading.gpus)
    hcas, rdma_issues = read_rdma(roots.sysfs, tree)
    paths = (*(gpu.path for gpu in gpus), *(hca.path for hca in hcas or ()))
    nvswitches, bridges = tree.nvswitches(), tree.bridges(filter(None, paths))
    numa_nodes, numa_issues = read_numa(roots.sysfs)
    cpu, cpu_issues = read_cpu(roots.sysfs, roots.procfs)
    kernel, kernel_issues = read_kernel(roots.procfs)
    kubelet, kubelet_issues = read_kubelet_settings(roots.host, roots.procfs)
    dmi = Files("dmi", roots.sysfs)
    census_issues = tuple(_census(reading.gpus, tree, is_asked=nvml is not None))
    return Snapshot(
        node=node,
        captured_at=captured_at,
        driver_version=reading.driver_version,
        nvml_version=reading.nvml_version,
        cuda_version=reading.cuda_version,
        product_name=dmi.text("class/dmi/id/product_name") or None,
        kernel=kernel,
        gpus=gpus,
        nvlinks=reading.nvlinks,
        nvswitches=nvswitches if tree.is_readable else None,
        pairs=reading.pairs,
        bridges=bridges if tree.is_readable else None,
        numa_nodes=numa_nodes,
        cpu=cpu,
        hcas=hcas,
        kubelet=kubelet,
        issues=(
            *nvml_issues,
            *census_issues,
            *tree.issues,
            *rdma_issues,
            *numa_issues,
            *cpu_issues,
            *kernel_issues,
            *kubelet_issues,
            *dmi.issues,
        ),
    )


def _ask(nvml: Callable[[], NvmlReading] | None) -> tuple[NvmlReading, tuple[ProbeIssue, ...]]:
    if nvml is None:
        return NO_READING, ()
    try:
        reading = nvml()
    except NvmlUnavailable as error:
        return NO_READING, (ProbeIssue(probe="nvml", subject="library", reason=error.cause),)
    return reading, reading.issues


def _placed(gpu: Gpu, tree: PciTree) -> Gpu:
    """Return *gpu* with its place in the PCI tree, as far as sysfs knows it."""
    function = None if gpu.pci is None else tree.function(gpu.pci)
    if function is None:
        return gpu
    return replace(
        gpu,
        path=function.path,
        numa_node=function.numa_node,
        pci_class=function.pci_class,
        cpu_affinity=gpu.cpu_affinity or function.local_cpus,
    )


def _census(gpus: tuple[Gpu, ...], tree: PciTree, *, is_asked: bool) -> Iterator[ProbeIssue]:
    """Yield where NVML and PCI disagree on which GPUs there are.

    A GPU on PCI alone is bound to another driver (vfio-pci), or failed while the driver
    attached it; one in NVML alone is behind a sysfs that is not this node's.
    """
    if not tree.is_readable:
        return
    on_pci = set(tree.nvidia_gpus())
    named = {gpu.pci for gpu in gpus if gpu.pci is not None}
    if on_pci and not gpus:
        reason = "NVML lists none of them" if is_asked else "NVML was not asked about them"
        yield _issue(f"{len(on_pci)} NVIDIA GPUs on PCI", reason)
        return
    for address in sorted(on_pci - named):
        yield _issue(str(address), "an NVIDIA GPU on PCI that NVML does not list")
    for address in sorted(named - on_pci):
        yield _issue(str(address), "a GPU in NVML that is not on PCI here")


def _issue(subject: str | PciAddress, reason: str) -> ProbeIssue:
    return ProbeIssue(probe="pcie", subject=str(subject), reason=reason)
