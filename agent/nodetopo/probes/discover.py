"""The whole node in one snapshot: NVML's reading joined with sysfs and procfs."""

from collections.abc import Callable, Iterator
from datetime import datetime

from msgspec.structs import replace

from nodetopo.errors import NvmlUnavailable
from nodetopo.model.gpu import Gpu
from nodetopo.model.pci import PciAddress
from nodetopo.model.presence import UnlistedGpu
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.nvml.record import NvmlReading
from nodetopo.probes.sysfs.host import Host, Places, Roots

NO_READING = NvmlReading()
"""The reading where NVML is not there or was not called."""

__all__ = [
    "NO_READING",
    "Roots",
    "addresses",
    "discover",
    "join",
    "read_or_issue",
    "unread",
    "with_audit_facts",
]


def discover(
    roots: Roots,
    nvml: Callable[[], NvmlReading] | None,
    *,
    node: str | None,
    captured_at: datetime | None,
    counters: bool = False,
) -> Snapshot:
    """Read the node; unreadable parts become issues in the snapshot, never errors.

    Args:
        nvml: one scan of the NVML library; ``None`` leaves NVML out. Without a reading the snapshot
            has no GPUs, since only NVML has their UUIDs; an issue counts the GPUs on PCI.
        counters: whether to read the facts for audits: the error counters of HCAs, a dozen files a
            port, the settings of the host, and the kubelet's files on disk.
    """
    reading, reader = read_or_issue(nvml), Host(roots)
    facts, places = reader.read(addresses(reading), counters=counters)
    snapshot = join(reading, facts, places, is_asked=nvml is not None)
    snapshot = replace(snapshot, node=node, captured_at=captured_at)
    return reader.for_audits(snapshot, facts) if counters else snapshot


def with_audit_facts(snapshot: Snapshot, roots: Roots) -> Snapshot:
    """Return *snapshot* with the facts for audits of :func:`discover`, without calling NVML.

    Settings from a kubelet's answer are kept alongside its files' settings.
    """
    reader = Host(roots)
    now, _ = reader.read((gpu.pci for gpu in snapshot.gpus if gpu.pci is not None), counters=True)
    counted = replace(snapshot, hcas=now.hcas, management_hcas=now.management_hcas)
    audited = reader.for_audits(counted, now)
    is_own_answer = snapshot.kubelet is not None and snapshot.kubelet.is_reported
    return replace(audited, kubelet=snapshot.kubelet) if is_own_answer else audited


def read_or_issue(nvml: Callable[[], NvmlReading] | None) -> NvmlReading:
    """Return the result of *nvml*; if NVML is unavailable, a reading of one issue."""
    if nvml is None:
        return NO_READING
    try:
        return nvml()
    except NvmlUnavailable as error:
        return unread(error)


def unread(error: NvmlUnavailable) -> NvmlReading:
    """Return a reading of one issue, the cause of *error*."""
    issue = ProbeIssue(probe="nvml", subject="library", reason=error.cause)
    return replace(NO_READING, issues=(issue,))


def addresses(reading: NvmlReading) -> tuple[PciAddress, ...]:
    """Return the known PCI addresses of the GPUs in *reading*."""
    return tuple(gpu.pci for gpu in reading.gpus if gpu.pci is not None)


def join(
    reading: NvmlReading, facts: Snapshot, places: Places, *, is_asked: bool = True
) -> Snapshot:
    """Join both into one snapshot; where they disagree, NVML counts, with an issue."""
    disagreements = _disagreements(reading.gpus, places, is_asked=is_asked)
    return replace(
        facts,
        driver_version=reading.driver_version,
        nvml_version=reading.nvml_version,
        cuda_version=reading.cuda_version,
        confidential_compute=reading.confidential_compute,
        gpus=tuple(_placed(gpu, places) for gpu in reading.gpus),
        unlisted_gpus=_unlisted(reading, places) if is_asked else (),
        nvlinks=reading.nvlinks,
        pairs=reading.pairs,
        issues=(*reading.issues, *disagreements, *facts.issues),
    )


def _placed(gpu: Gpu, places: Places) -> Gpu:
    """Return *gpu* with its place in the PCI tree, where sysfs has it."""
    function = None if gpu.pci is None else places.placed.get(gpu.pci)
    if gpu.pci is None or function is None:
        return gpu
    memory_node = gpu.memory_numa_node
    return replace(
        gpu,
        path=function.path,
        numa_node=function.numa_node,
        memory_numa_node=(places.memory_nodes.get(gpu.pci) if memory_node is None else memory_node),
        function=function.facts,
        cpu_affinity=gpu.cpu_affinity or function.facts.local_cpus,
    )


def _unlisted(reading: NvmlReading, places: Places) -> tuple[UnlistedGpu, ...]:
    """Return the GPUs on PCI that NVML does not list; none where it did not answer."""
    if places.listed is None or any(issue.is_whole for issue in reading.issues):
        return ()
    named = {gpu.pci for gpu in reading.gpus}
    if None in named:  # it can be any of them
        return ()
    return tuple(
        UnlistedGpu(pci=address, driver=driver)
        for address, driver in sorted(places.others.items())
        if address not in named
    )


def _disagreements(
    gpus: tuple[Gpu, ...], places: Places, *, is_asked: bool
) -> Iterator[ProbeIssue]:
    """Yield where NVML disagrees with PCI on which GPUs there are, or with sysfs on NUMA.

    A GPU on PCI alone is bound to another driver (vfio-pci), or failed while the driver
    attached it; one in NVML alone is behind a sysfs that is not this node's. NVML lists every
    NUMA node that is near (``nvmlDeviceGetMemoryAffinity``), sysfs names one: they agree when
    that one is listed, or where either is unknown.
    """
    on_pci = set(places.listed or ())
    named = {gpu.pci for gpu in gpus if gpu.pci is not None}
    if on_pci and not gpus:
        reason = "NVML lists none of them" if is_asked else "NVML was not asked about them"
        yield _issue(f"{len(on_pci)} NVIDIA GPUs on PCI", reason)
    elif places.listed is not None:
        for address in sorted(on_pci - named):
            yield _issue(str(address), "an NVIDIA GPU on PCI that NVML does not list")
        for address in sorted(named - on_pci):
            yield _issue(str(address), "a GPU in NVML that is not on PCI here")
    for gpu in gpus:
        if gpu.pci is None or gpu.pci not in places.placed:
            continue
        node = places.placed[gpu.pci].numa_node
        if node is not None and gpu.numa_affinity and node not in gpu.numa_affinity:
            listed = ", ".join(map(str, gpu.numa_affinity))
            yield _issue(f"{gpu.pci} numa_node", f"sysfs says {node}, NVML says {listed}")
        memory, seen = gpu.memory_numa_node, places.memory_nodes.get(gpu.pci)
        if None not in (memory, seen) and memory != seen:
            yield _issue(
                f"{gpu.pci} memory node", f"the kernel driver says {seen}, NVML says {memory}"
            )


def _issue(subject: str, reason: str) -> ProbeIssue:
    return ProbeIssue(probe="pcie", subject=subject, reason=reason)
