"""Rules on running pods' real placement: GPUs, CPUs, memory and HCAs by NUMA node."""

from nodetopo.checks.inputs import because, has_one_numa_node, missing_gpus, missing_hcas
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.alignment.devices import NvlinkSets
from nodetopo.components.audit.alignment.measure import measured
from nodetopo.components.audit.alignment.record import Part, PodAlignment
from nodetopo.components.audit.rules.kubelet.remedies import restarted_with
from nodetopo.model.snapshot import Snapshot


@rule("ALN-001", Severity.ERROR)
def cpus(snapshot: Snapshot) -> Judgement:
    """Compare the CPUs of each container with its GPUs."""
    return _apart(snapshot, Part.CPUS)


@rule("ALN-002", Severity.WARNING)
def memory(snapshot: Snapshot) -> Judgement:
    """Compare the memory of each container with its GPUs."""
    return _apart(snapshot, Part.MEMORY)


@rule("ALN-003", Severity.ERROR, cure=restarted_with(topology_manager_policy="restricted"))
def hcas(snapshot: Snapshot) -> Judgement:
    """Compare the HCAs of each container with its GPUs."""
    if snapshot.hcas == () and not any(row.hcas for row in measured(snapshot)):
        yield Skip("no RDMA device")
        return
    yield from _apart(snapshot, Part.HCAS)
    if not has_one_numa_node(snapshot):
        yield from missing_hcas(snapshot)


@rule("ALN-004", Severity.WARNING, cure=restarted_with(topology_manager_policy="restricted"))
def gpus(snapshot: Snapshot) -> Judgement:
    """Compare the GPUs of each container with each other."""
    return _apart(snapshot, Part.GPUS)


def _apart(snapshot: Snapshot, part: Part) -> Judgement:
    """Yield each container whose *part* is apart from its GPUs, and the unknown inputs."""
    rows = measured(snapshot)
    if has_one_numa_node(snapshot):
        yield Skip("one NUMA node")
    elif _has_no_gpu_pods(snapshot, rows):
        yield Skip("no running pod holds GPUs")
    else:
        yield from _missing_pods(snapshot)
        for row in rows:
            for unknown in row.missing:
                if unknown.part in (None, part):
                    yield Missing(unknown.what)
            for apart in row.apart:
                if apart.part is part:
                    why = "; ".join(f"{cause.text} ({cause.code})" for cause in apart.causes)
                    observed = f"{apart.observed}: {why}"
                    yield Finding(subject=_subject(row), observed=observed, expected=apart.expected)


@rule("ALN-005", Severity.WARNING)
def nvlink(snapshot: Snapshot) -> Judgement:
    """Compare the NVLink groups of each container with the best of this node."""
    rows, sets = measured(snapshot), NvlinkSets(snapshot)
    if snapshot.gpus and sets.is_known and not sets.has_any:
        yield Skip("no two GPUs that NVLink joins")
        return
    if _has_no_gpu_pods(snapshot, rows):
        yield Skip("no running pod holds GPUs")
        return
    yield from _missing_pods(snapshot)
    yield from (Missing(missing.what) for row in rows for missing in row.missing if not row.gpus)
    yield from (
        Missing(missing.what)
        for row in rows
        for missing in row.missing
        if missing.part is Part.GPUS
    )
    if not sets.is_known and any(len(row.gpus) > 1 for row in rows):
        yield Missing("NVLinks", because(snapshot, "nvml"))
    index = {gpu.name: gpu.index for gpu in snapshot.gpus}
    for row in rows:
        held = [index[name] for name in row.gpus if name in index]
        groups, fewest = sets.groups(held), sets.fewest(len(held))
        if row.nvlink is not None and groups > fewest:
            yield Finding(
                subject=_subject(row),
                observed=f"{groups} groups without NVLink between them",
                expected=f"{fewest} in all, as other GPUs of this node are joined",
            )


def _has_no_gpu_pods(snapshot: Snapshot, rows: tuple[PodAlignment, ...]) -> bool:
    return snapshot.pods is not None and not missing_gpus(snapshot) and not rows


def _missing_pods(snapshot: Snapshot) -> Judgement:
    if snapshot.pods is None:
        reason = because(snapshot, "podresources") or because(snapshot, "pods")
        yield Missing("pods", reason)


def _subject(row: PodAlignment) -> str:
    return f"{row.namespace}/{row.pod} container {row.container} with {', '.join(row.gpus)}"
