"""Rules on container runtimes, NVIDIA's container toolkit and CDI."""

from collections.abc import Iterable

from agent.checks import runtime_toolkit
from agent.checks import runtime_toolkit as runtime_cdi
from agent.checks.inputs import Inputs, no_gpus
from agent.checks.kernel_inputs import cgroup_version, missing, missing_cgroup, of_host
from agent.checks.kubelet.inputs import lacking, place, running, version
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.checks.runtime_inputs import edits_specifications, of_gpus
from agent.model.hca import HcaKind
from agent.model.host import RuntimeConfig, RuntimeProcess
from agent.model.kubernetes import release
from agent.model.snapshot import Snapshot

# Rules on control groups.

_REFUSED_SINCE = (1, 35)
"""Release whose kubelet refuses to start on cgroup v1 unless failCgroupV1 is false
(kubernetes CHANGELOG-1.35, KEP-5573)."""


_SYSTEMD = "systemd"


def _old_cgroup(snapshot: Snapshot) -> tuple[Finding, ...]:
    if cgroup_version(snapshot) != 1:
        return ()
    known = release(version(snapshot))
    ends = known is not None and known >= _REFUSED_SINCE
    fate = ", on which this kubelet starts only with failCgroupV1: false" if ends else ""
    return (Finding(subject="/sys/fs/cgroup", observed=f"v1{fate}", expected="v2"),)


def _without_systemd(snapshot: Snapshot) -> str | None:
    driver = snapshot.kubelet.cgroup_driver if snapshot.kubelet else None
    if driver and driver != _SYSTEMD:
        return f"cgroupDriver is {driver}"
    if of_gpus(snapshot):
        return "CDI specifications of GPUs are there"
    if edits_specifications(snapshot):
        return "NVIDIA's runtime hands GPUs over by CDI"
    return no_gpus(snapshot)


def _missing_links(snapshot: Snapshot) -> Inputs:
    links = of_host(snapshot, lambda host: host.char_devices)
    fields = lacking(snapshot, running(snapshot), "cgroupDriver")
    return fields + missing(snapshot, links, "links in /dev/char", "dev")


def _without_links(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = running(snapshot)
    links = of_host(snapshot, lambda host: host.char_devices)
    if settings is None or settings.cgroup_driver != _SYSTEMD or links is not False:
        return ()
    observed = f"a GPU has no link there, and {place(settings, 'cgroupDriver')} is {_SYSTEMD}"
    return (
        Finding(subject="/dev/char", observed=observed, expected="links to all of NVIDIA's nodes"),
    )


CGROUP_RULES: tuple[Rule, ...] = (
    # A warning, since kubelets before 1.35 run on it as well as ever.
    Rule(
        code="RUN-001",
        claim="the host uses cgroup v2",
        why="Kubernetes no longer tests version 1, and a kubelet of 1.35 or newer does not start "
        "on it by default; limits of swap and pressure figures need version 2.",
        area=Area.RUNTIME,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=missing_cgroup,
        check=_old_cgroup,
        skips=no_gpus,
        remedy="boot with systemd.unified_cgroup_hierarchy=1, or move to a distribution that uses "
        "cgroup v2 from the start",
        reference="https://kubernetes.io/docs/concepts/architecture/cgroups/",
    ),
    # A warning, since newer runc and systemd do without links for devices that plugins name.
    Rule(
        code="RUN-002",
        claim="a reload of systemd takes no GPU from a running container",
        why="Where GPUs are added behind runc's back, `systemctl daemon-reload` takes them from "
        "the container, and every call fails with `Failed to initialize NVML: Unknown Error`.",
        area=Area.RUNTIME,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_links,
        check=_without_links,
        skips=_without_systemd,
        remedy="run `nvidia-ctk system create-dev-char-symlinks --create-all` at each boot, after "
        "the driver is loaded, or hand GPUs over by CDI",
        reference="https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",
    ),
)


# Rules on the limits that containers inherit from their runtime.

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


LIMITS_RULES: tuple[Rule, ...] = (
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


RULES: tuple[Rule, ...] = (
    *CGROUP_RULES,
    *runtime_cdi.CDI_RULES,
    *LIMITS_RULES,
    *runtime_toolkit.RULES,
)
