"""Rules on container runtimes: control groups, inherited limits, and who keeps the driver open."""

from nodetopo.checks.inputs import because, no_adapters, no_gpus, unknown_of
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.kernel_inputs import host_of, missing_cgroup
from nodetopo.components.audit.rules.kubelet.inputs import version
from nodetopo.components.audit.rules.runtime_inputs import configs
from nodetopo.model.host import UNLIMITED, RuntimeConfig
from nodetopo.model.kubernetes import release, size_text
from nodetopo.model.operator_labels import driver_claim
from nodetopo.model.snapshot import Snapshot

OPEN_FILES = 32_768
"""A job of 144 ranks with device-initiated communication (16 contexts of NCCL's GIN) can need more
(NVIDIA/nccl v2.30.7-1, docs/userguide/source/troubleshooting/runtime_and_mpi_issues.rst).
"""

_REFUSED_SINCE = (1, 35)
"""Release whose kubelet refuses to start on cgroup v1 unless failCgroupV1 is false
(kubernetes CHANGELOG-1.35, KEP-5573)."""


# A warning, since kubelets before 1.35 still support it.
@rule("RUN-001", Severity.WARNING, unless=no_gpus)
def cgroup_version(snapshot: Snapshot) -> Judgement:
    """Find version 1 of control groups."""
    if host_of(snapshot).cgroup_version == 1:
        kubelet = release(version(snapshot))
        refuses = kubelet is not None and kubelet >= _REFUSED_SINCE
        fate = ", on which this kubelet starts only with failCgroupV1: false" if refuses else ""
        yield Finding(subject="/sys/fs/cgroup", observed=f"v1{fate}", expected="v2")
    yield from missing_cgroup(snapshot)


# A remark, since POD-005 names the containers that need it and lack the capability.
@rule("RUN-006", Severity.INFO, unless=(no_adapters, no_gpus))
def locked_memory(snapshot: Snapshot) -> Judgement:
    """Find runtimes with a limit of locked memory."""
    processes, silent = host_of(snapshot).runtimes, []
    for process in processes or ():
        stated = _configured(snapshot, process.name).memlock_bytes
        limit = process.memlock_bytes if stated is None else stated
        if limit is None:
            silent.append(process.name)
        elif limit != UNLIMITED and snapshot.hcas:
            yield Finding(
                subject=f"{process.name}, locked memory",
                observed=f"{size_text(limit)} for containers without the capability IPC_LOCK",
                expected="unlimited",
            )
    if not processes:
        yield Missing("limits of the container runtime")
    if snapshot.hcas is None:
        yield Missing("HCAs")
    yield from unknown_of("limit of locked memory", silent)


@rule("RUN-007", Severity.INFO, unless=no_gpus)
def open_files(snapshot: Snapshot) -> Judgement:
    """Find runtimes with a low limit of open files."""
    processes, silent = host_of(snapshot).runtimes, []
    for process in processes or ():
        stated = _configured(snapshot, process.name).open_files
        limit = process.open_files if stated is None else stated
        if limit is None:
            silent.append(process.name)
        elif 0 <= limit < OPEN_FILES:
            yield Finding(
                subject=f"{process.name}, open files",
                observed=str(limit),
                expected=f"at least {OPEN_FILES}",
            )
    if not processes:
        yield Missing("limits of the container runtime")
    yield from unknown_of("limit of open files", silent)


@rule("RUN-012", Severity.WARNING)
def driver_in_use(snapshot: Snapshot) -> Judgement:
    """Find processes that hold device nodes of the driver while it has to be free."""
    node = snapshot.node_status
    if node is None or node.labels is None:
        yield Missing("labels of the Node", because(snapshot, "node"))
        return
    claim = driver_claim(node.labels)
    if claim is None:
        yield Skip("no label asks for a free driver")
        return
    holders = host_of(snapshot).driver_holders
    if holders is None:
        yield Missing("processes of the host")
        return
    for holder in holders.processes:
        where = "" if holder.container is None else f", container {holder.container}"
        yield Finding(
            subject=f"{holder.name} (process {holder.pid}{where})",
            observed="has device nodes of the driver open",
            expected=f"closed while {claim}",
        )
    if holders.unread:
        yield Missing(f"open files of {holders.unread} processes")


def _configured(snapshot: Snapshot, name: str) -> RuntimeConfig:
    """Return the configuration of the runtime *name*; its limits take precedence over defaults."""
    empty = RuntimeConfig(name=name, path="")
    return next((config for config in configs(snapshot) if config.name == name), empty)
