"""Rules on what running pods really got: GPUs, CPUs, memory and HCAs by NUMA node."""

from collections.abc import Callable

from agent.checks.alignment.devices import NvlinkSets
from agent.checks.alignment.measure import measured
from agent.checks.alignment.record import Apart, Part, PodAlignment
from agent.checks.inputs import Inputs, because, has_one_numa_node, missing_gpus
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.snapshot import Snapshot

_TASKS = "https://kubernetes.io/docs/tasks/administer-cluster"
_PAIR = 2


def _apart(part: Part) -> Callable[[Snapshot], tuple[Finding, ...]]:
    """Find what is apart of that *part*."""

    def check(snapshot: Snapshot) -> tuple[Finding, ...]:
        return tuple(
            _finding(row, one)
            for row in measured(snapshot)
            for one in row.apart
            if one.part is part
        )

    return check


def _finding(row: PodAlignment, apart: Apart) -> Finding:
    why = "; ".join(f"{cause.text} ({cause.code})" for cause in apart.causes)
    return Finding(
        subject=subject(row), observed=f"{apart.observed}: {why}", expected=apart.expected
    )


def subject(row: PodAlignment) -> str:
    """Return the name under which a finding speaks of the container of *row*."""
    return f"{row.namespace}/{row.pod} container {row.container} with {', '.join(row.gpus)}"


def _needs(part: Part) -> Callable[[Snapshot], Inputs]:
    """Need to know *part* of all containers, and the devices that it is compared with."""

    def missing(snapshot: Snapshot) -> Inputs:
        if has_one_numa_node(snapshot):
            return ()
        return _missing_pods(snapshot) + tuple(
            one.what
            for row in measured(snapshot)
            for one in row.missing
            if one.part in (None, part)
        )

    return missing


def _missing_pods(snapshot: Snapshot) -> Inputs:
    reason = because(snapshot, "podresources") or because(snapshot, "pods")
    return (f"pods were not read{reason}",) if snapshot.pods is None else ()


def _needs_hcas(snapshot: Snapshot) -> Inputs:
    missing = _needs(Part.HCAS)(snapshot)
    if has_one_numa_node(snapshot) or snapshot.hcas is not None:
        return missing
    return (*missing, f"HCAs{because(snapshot, 'rdma')}")


def _skips(snapshot: Snapshot) -> str | None:
    return "one NUMA node" if has_one_numa_node(snapshot) else _skips_pods(snapshot)


def _skips_pods(snapshot: Snapshot) -> str | None:
    if snapshot.pods is None or missing_gpus(snapshot) or measured(snapshot):
        return None
    return "no running pod holds GPUs"


def _skips_hcas(snapshot: Snapshot) -> str | None:
    has_none = snapshot.hcas == () and not any(row.hcas for row in measured(snapshot))
    return "no RDMA device" if has_none else _skips(snapshot)


def _unjoined(snapshot: Snapshot) -> tuple[Finding, ...]:
    sets = NvlinkSets(snapshot)
    index = {gpu.name: gpu.index for gpu in snapshot.gpus}
    found = []
    for row in measured(snapshot):
        held = [index[name] for name in row.gpus if name in index]
        if row.nvlink is None or (groups := sets.groups(held)) <= sets.fewest(len(held)):
            continue
        expected = f"{sets.fewest(len(held))} in all, as other GPUs of this node are joined"
        observed = f"{groups} groups without NVLink between them"
        found.append(Finding(subject=subject(row), observed=observed, expected=expected))
    return tuple(found)


def _missing_links(snapshot: Snapshot) -> Inputs:
    sets = NvlinkSets(snapshot)
    rows = measured(snapshot)
    silent = tuple(one.what for row in rows for one in row.missing if not row.gpus)
    unknown = tuple(one.what for row in rows for one in row.missing if one.part is Part.GPUS)
    has_sets = any(len(row.gpus) >= _PAIR for row in rows)
    links = () if sets.is_known or not has_sets else (f"NVLinks{because(snapshot, 'nvml')}",)
    return _missing_pods(snapshot) + silent + unknown + links


def _skips_nvlink(snapshot: Snapshot) -> str | None:
    sets = NvlinkSets(snapshot)
    if snapshot.gpus and sets.is_known and not sets.has_any:
        return "no two GPUs that NVLink joins"
    return _skips_pods(snapshot)


RULES: tuple[Rule, ...] = (
    Rule(
        code="ALN-001",
        claim="the CPUs of every container with GPUs are on the NUMA nodes of its GPUs",
        why="Threads on the other socket feed a GPU across the link between the sockets: less "
        "bandwidth, more latency, and a share of what every other job needs too.",
        area=Area.ALIGNMENT,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs(Part.CPUS),
        check=_apart(Part.CPUS),
        skips=_skips,
        remedy="correct what the finding names, `nodetopo explain CODE` tells how, and create the "
        "pod anew: the kubelet places a pod once, when it admits it",
        reference=f"{_TASKS}/topology-manager/",
    ),
    Rule(
        code="ALN-002",
        claim="the memory of every container with GPUs is on the NUMA nodes of its GPUs",
        why="Copies between a GPU and memory of the other socket cross the link between the "
        "sockets; pinned buffers stay there for the life of the pod.",
        area=Area.ALIGNMENT,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_needs(Part.MEMORY),
        check=_apart(Part.MEMORY),
        skips=_skips,
        remedy="correct what the finding names, `nodetopo explain CODE` tells how, and create the "
        "pod anew",
        reference=f"{_TASKS}/memory-manager/",
    ),
    Rule(
        code="ALN-003",
        claim="the HCAs of every container with GPUs are on the NUMA nodes of its GPUs",
        why="GPUDirect RDMA between a GPU and an HCA of the other socket runs at a fraction of "
        "the rate, and NCCL may not use it at all.",
        area=Area.ALIGNMENT,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs_hcas,
        check=_apart(Part.HCAS),
        skips=_skips_hcas,
        remedy="have the plugin of the HCAs tell their NUMA nodes, set topologyManagerPolicy: "
        "restricted or single-numa-node, and create the pod anew",
        reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ),
    Rule(
        code="ALN-004",
        claim="the GPUs of every container are on as few NUMA nodes as so many need",
        why="What spans NUMA nodes without need copies between its GPUs through both sockets, "
        "unless NVLink joins them, and leaves the next job no whole node.",
        area=Area.ALIGNMENT,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_needs(Part.GPUS),
        check=_apart(Part.GPUS),
        skips=_skips,
        remedy="set topologyManagerPolicy: restricted or single-numa-node, so that such a pod "
        "waits instead, and create the pod anew once a NUMA node is free",
        reference=f"{_TASKS}/topology-manager/",
    ),
    Rule(
        code="ALN-005",
        claim="NVLink joins the GPUs of every container as far as this node can",
        why="Between GPUs without NVLink the collectives run over PCIe, which is several times "
        "slower, while joined GPUs of this node serve other jobs or none.",
        area=Area.ALIGNMENT,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_links,
        check=_unjoined,
        skips=_skips_nvlink,
        remedy="create the pod anew once joined GPUs are free; `nodetopo allocate --size N "
        "--explain` tells which they are",
        reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ),
)
