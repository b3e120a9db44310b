"""Rules on the limits that containers inherit from their runtime."""

from collections.abc import Iterable

from agent.checks.inputs import Inputs, no_gpus
from agent.checks.kernel_inputs import missing, of_host
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.hca import HcaKind
from agent.model.host import RuntimeConfig, RuntimeProcess
from agent.model.snapshot import Snapshot

OPEN_FILES = 32_768
"""A job of 144 ranks whose kernels send by themselves (16 contexts of NCCL's GIN) may need more
(NVIDIA/nccl v2.30.7-1, docs/userguide/source/troubleshooting/runtime_and_mpi_issues.rst)."""

_UNLIMITED = -1


def _runtimes(snapshot: Snapshot) -> tuple[RuntimeProcess, ...] | None:
    found = of_host(snapshot, lambda host: host.runtimes)
    return found or None


def _stated(snapshot: Snapshot, name: str) -> RuntimeConfig | None:
    """Return the configuration of the runtime *name*, whose limits come before its own."""
    known: Iterable[RuntimeConfig] = of_host(snapshot, lambda host: host.runtime_configs) or ()
    return next((config for config in known if config.name == name), None)


def _memlock(snapshot: Snapshot, one: RuntimeProcess) -> int | None:
    stated = _stated(snapshot, one.name)
    chosen = None if stated is None else stated.memlock_bytes
    return one.memlock_bytes if chosen is None else chosen


def _open_files(snapshot: Snapshot, one: RuntimeProcess) -> int | None:
    stated = _stated(snapshot, one.name)
    chosen = None if stated is None else stated.open_files
    return one.open_files if chosen is None else chosen


def _without_rdma(snapshot: Snapshot) -> str | None:
    known = snapshot.hcas
    if known is not None and all(hca.kind is HcaKind.SOFTWARE for hca in known):
        return "no RDMA device"
    return no_gpus(snapshot)


def _missing_memlock(snapshot: Snapshot) -> Inputs:
    known = _runtimes(snapshot)
    silent = [one.name for one in known or () if _memlock(snapshot, one) is None]
    absent = missing(snapshot, known, "limits of the container runtime")
    hcas = () if snapshot.hcas is not None else ("HCAs",)
    return absent + hcas + ((f"limit of locked memory of {', '.join(silent)}",) if silent else ())


def _little_memory(snapshot: Snapshot) -> tuple[Finding, ...]:
    if not snapshot.hcas:
        return ()
    limits = ((one.name, _memlock(snapshot, one)) for one in _runtimes(snapshot) or ())
    return tuple(
        Finding(
            subject=f"{name}, locked memory",
            observed=f"{limit} bytes for containers without the capability IPC_LOCK",
            expected="unlimited",
        )
        for name, limit in limits
        if limit is not None and limit != _UNLIMITED
    )


def _missing_open_files(snapshot: Snapshot) -> Inputs:
    known = _runtimes(snapshot)
    silent = [one.name for one in known or () if _open_files(snapshot, one) is None]
    absent = missing(snapshot, known, "limits of the container runtime")
    return absent + ((f"limit of open files of {', '.join(silent)}",) if silent else ())


def _few_files(snapshot: Snapshot) -> tuple[Finding, ...]:
    limits = ((one.name, _open_files(snapshot, one)) for one in _runtimes(snapshot) or ())
    return tuple(
        Finding(
            subject=f"{name}, open files",
            observed=str(limit),
            expected=f"at least {OPEN_FILES}",
        )
        for name, limit in limits
        if limit is not None and 0 <= limit < OPEN_FILES
    )


RULES: tuple[Rule, ...] = (
    # A remark, since POD-005 names the containers that need it and have not the capability.
    Rule(
        code="RUN-006",
        claim="the container runtime lets containers lock memory",
        why="RDMA registers memory by locking it. A container inherits the limit from the runtime, "
        "and with a low one ibv_reg_mr or ibv_create_qp fails with ENOMEM unless the container has "
        "the capability IPC_LOCK.",
        area=Area.RUNTIME,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_missing_memlock,
        check=_little_memory,
        skips=_without_rdma,
        remedy="set LimitMEMLOCK=infinity in a drop-in of containerd.service or crio.service and "
        "restart it, or add the capability IPC_LOCK to containers with RDMA",
        reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/"
        "networking_troubleshooting.html",
    ),
    Rule(
        code="RUN-007",
        claim="containers may open many files",
        why="A large job holds sockets and queues for every peer; NCCL raises its soft limit up to "
        "the hard one, and beyond that fails with `Too many open files`.",
        area=Area.RUNTIME,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_missing_open_files,
        check=_few_files,
        skips=no_gpus,
        remedy="set LimitNOFILE=1048576 in a drop-in of containerd.service or crio.service and "
        "restart it",
        reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/"
        "runtime_and_mpi_issues.html#file-descriptors",
    ),
)
