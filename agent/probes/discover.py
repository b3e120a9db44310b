"""The whole node in one snapshot: what NVML says, joined with what sysfs and procfs say."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime

from agent.errors import NvmlUnavailable
from agent.model.gpu import Gpu
from agent.model.pci import PciAddress
from agent.model.snapshot import ProbeIssue, Snapshot
from agent.probes.nvml.reading import NvmlReading
from agent.probes.sysfs.host import Host, HostFacts, PciFacts, Roots

NO_READING = NvmlReading()
"""What is known of GPUs where NVML is not there, or was not asked: nothing."""

__all__ = ["NO_READING", "Roots", "addresses", "ask", "discover", "join", "with_audit_facts"]


def discover(
    roots: Roots,
    nvml: Callable[[], NvmlReading] | None,
    *,
    node: str | None,
    captured_at: datetime | None,
    counters: bool = False,
) -> Snapshot:
    """Read the node; what cannot be read is an issue in the snapshot, never an error.

    Args:
        nvml: one scan of the NVML library; ``None`` if it is not to be asked. Without an
            answer there are no GPUs in the snapshot, since nothing else tells a UUID; an
            issue counts those that PCI shows.
        counters: whether to read what only audits ask for: the error counters of HCAs, a dozen
            files a port, the settings of the host, and what the kubelet left on its disk.
    """
    reading, reader = ask(nvml), Host(roots)
    facts = reader.read(addresses(reading), counters=counters)
    found = replace(
        join(reading, facts, is_asked=nvml is not None), node=node, captured_at=captured_at
    )
    return _for_audits(found, reader, facts) if counters else found


def with_audit_facts(snapshot: Snapshot, roots: Roots) -> Snapshot:
    """Return *snapshot* with what :func:`discover` reads for audits, read anew; NVML is not asked.

    Settings that a kubelet told itself stay beside those of its files.
    """
    reader = Host(roots)
    facts = reader.read((gpu.pci for gpu in snapshot.gpus if gpu.pci is not None), counters=True)
    counted = replace(snapshot, hcas=facts.pci.hcas, management_hcas=facts.pci.management_hcas)
    found = _for_audits(counted, reader, facts)
    is_told = snapshot.kubelet is not None and snapshot.kubelet.is_told
    return replace(found, kubelet=snapshot.kubelet) if is_told else found


def _for_audits(found: Snapshot, reader: Host, facts: HostFacts) -> Snapshot:
    settings, issues = reader.settings(facts)
    kubelet = reader.kubelet()
    return replace(
        found,
        host=settings,
        kubelet=kubelet.settings,
        kubelet_on_disk=kubelet.settings,
        kubelet_state=kubelet.state,
        issues=(*found.issues, *issues, *kubelet.issues),
    )


def ask(nvml: Callable[[], NvmlReading] | None) -> NvmlReading:
    """Return what *nvml* reads; a library that does not answer is a reading of one issue."""
    if nvml is None:
        return NO_READING
    try:
        return nvml()
    except NvmlUnavailable as error:
        issue = ProbeIssue(probe="nvml", subject="library", reason=error.cause)
        return replace(NO_READING, issues=(issue,))


def addresses(reading: NvmlReading) -> tuple[PciAddress, ...]:
    """Return where the GPUs of *reading* are, as far as they say."""
    return tuple(gpu.pci for gpu in reading.gpus if gpu.pci is not None)


def join(reading: NvmlReading, facts: HostFacts, *, is_asked: bool = True) -> Snapshot:
    """Put both into one snapshot; where they disagree, an issue says so and NVML is kept."""
    pci = facts.pci
    return Snapshot(
        driver_version=reading.driver_version,
        nvml_version=reading.nvml_version,
        cuda_version=reading.cuda_version,
        product_name=facts.product_name,
        kernel=facts.kernel,
        nvidia=facts.nvidia,
        confidential_compute=reading.confidential_compute,
        gpus=tuple(_placed(gpu, facts) for gpu in reading.gpus),
        pci_gpus=pci.nvidia_gpus if pci.is_readable else None,
        nvlinks=reading.nvlinks,
        nvswitches=pci.nvswitches if pci.is_readable else None,
        pairs=reading.pairs,
        bridges=pci.bridges if pci.is_readable else None,
        numa_nodes=facts.numa_nodes,
        cpu=facts.cpu,
        hcas=pci.hcas,
        data_directs=pci.data_directs,
        management_hcas=pci.management_hcas,
        kubelet=facts.kubelet,
        issues=(
            *reading.issues,
            *_census(reading.gpus, pci, is_asked=is_asked),
            *_disagreements(reading.gpus, facts),
            *facts.issues,
        ),
    )


def _placed(gpu: Gpu, facts: HostFacts) -> Gpu:
    """Return *gpu* with its place in the PCI tree, as far as sysfs knows it."""
    function = None if gpu.pci is None else facts.pci.placed.get(gpu.pci)
    if gpu.pci is None or function is None:
        return gpu
    memory_node = gpu.memory_numa_node
    return replace(
        gpu,
        path=function.path,
        numa_node=function.numa_node,
        memory_numa_node=(
            facts.gpu_memory_nodes.get(gpu.pci) if memory_node is None else memory_node
        ),
        function=function.facts,
        cpu_affinity=gpu.cpu_affinity or function.facts.local_cpus,
    )


def _census(gpus: tuple[Gpu, ...], pci: PciFacts, *, is_asked: bool) -> Iterator[ProbeIssue]:
    """Yield where NVML and PCI disagree on which GPUs there are.

    A GPU on PCI alone is bound to another driver (vfio-pci), or failed while the driver
    attached it; one in NVML alone is behind a sysfs that is not this node's.
    """
    if not pci.is_readable:
        return
    on_pci = set(pci.nvidia_gpus)
    named = {gpu.pci for gpu in gpus if gpu.pci is not None}
    if on_pci and not gpus:
        reason = "NVML lists none of them" if is_asked else "NVML was not asked about them"
        yield _issue(f"{len(on_pci)} NVIDIA GPUs on PCI", reason)
        return
    for address in sorted(on_pci - named):
        yield _issue(str(address), "an NVIDIA GPU on PCI that NVML does not list")
    for address in sorted(named - on_pci):
        yield _issue(str(address), "a GPU in NVML that is not on PCI here")


def _disagreements(gpus: tuple[Gpu, ...], facts: HostFacts) -> Iterator[ProbeIssue]:
    """Yield where NVML's view of NUMA differs from sysfs's, both being known.

    NVML lists every node that is near (``nvmlDeviceGetMemoryAffinity``), sysfs names one:
    they agree when that one is listed.
    """
    for gpu in gpus:
        if gpu.pci is None or gpu.pci not in facts.pci.placed:
            continue
        node = facts.pci.placed[gpu.pci].numa_node
        if node is not None and gpu.numa_affinity and node not in gpu.numa_affinity:
            listed = ", ".join(map(str, gpu.numa_affinity))
            yield _issue(f"{gpu.pci} numa_node", f"sysfs says {node}, NVML says {listed}")
        memory, seen = gpu.memory_numa_node, facts.gpu_memory_nodes.get(gpu.pci)
        if None not in (memory, seen) and memory != seen:
            yield _issue(
                f"{gpu.pci} memory node", f"the kernel driver says {seen}, NVML says {memory}"
            )


def _issue(subject: str, reason: str) -> ProbeIssue:
    return ProbeIssue(probe="pcie", subject=subject, reason=reason)
