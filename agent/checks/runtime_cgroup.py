"""Rules on control groups."""

from agent.checks.inputs import Inputs, no_gpus
from agent.checks.kernel_inputs import cgroup_version, missing, missing_cgroup, of_host
from agent.checks.kubelet.inputs import lacking, place, running, version
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.checks.runtime_inputs import edits_specifications, of_gpus
from agent.model.kubernetes import release
from agent.model.snapshot import Snapshot

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


RULES: tuple[Rule, ...] = (
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
