"""The rule on GPUs that a reload of systemd takes away, by how the node hands devices over."""

from nodetopo.checks.inputs import no_gpus
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.kernel_inputs import host_of, unread
from nodetopo.components.audit.rules.kubelet.inputs import place, running, version
from nodetopo.components.audit.rules.runtime_inputs import (
    configs,
    edits_specifications,
    has_cdi,
    is_legacy,
    missing_configs,
    missing_toolkit,
    of_plugins,
    registry,
    without_toolkit,
)
from nodetopo.model.kubelet import CONFIGZ
from nodetopo.model.kubernetes import release
from nodetopo.model.snapshot import Snapshot

_SYSTEMD = "systemd"
_KIND = "nvidia.com/gpu"
_PLUGIN = "nvidia-device-plugin"
"""NVIDIA's device plugin, which hands over by CDI only with its own specification."""

_ASKS_CRI_SINCE, _HEEDS_CRI_SINCE = (1, 31), (1, 36)
"""Releases whose kubelet asks the runtime for its cgroup driver if it answers, and releases for
which every supported runtime does (feature gate KubeletCgroupDriverFromCRI; kubernetes
cmd/kubelet/app/server.go, getCgroupDriverFromCRI).
"""


# A warning, since newer runc and systemd do without links for devices that plugins name.
@rule("RUN-002", Severity.WARNING)
def device_links(snapshot: Snapshot) -> Judgement:
    """Find that ``/dev/char`` lacks links to GPUs that a hook adds, under systemd's cgroups."""
    links, edits = host_of(snapshot).char_devices, edits_specifications(snapshot)
    is_systemd, where = _cgroups(snapshot)
    reason = no_gpus(snapshot) or without_toolkit(snapshot)
    if is_systemd is False:
        reason = f"{where} is not {_SYSTEMD}"
    elif edits:
        reason = "NVIDIA's runtime hands GPUs over by CDI"
    elif _plugin_uses_cdi(snapshot):
        reason = "a device plugin hands GPUs over by CDI"
    if reason:
        yield Skip(reason)
        return
    if links:
        return
    may_use_cdi = _may_use_cdi(snapshot)
    if links is False and edits is False and is_systemd and not may_use_cdi and configs(snapshot):
        yield Finding(
            subject="/dev/char",
            observed=f"a GPU has no link there, {_hook(snapshot)} adds GPUs to containers, and "
            f"{where} is {_SYSTEMD}",
            expected="links to all of NVIDIA's nodes",
        )
    yield from missing_configs(snapshot)
    yield from missing_toolkit(snapshot)
    if host_of(snapshot).toolkit is not None and edits is None:
        yield Missing("version of NVIDIA's container toolkit")
    if is_systemd is None:
        yield Missing("cgroup driver of the container runtime")
    if links is None:
        yield unread(snapshot, "links in /dev/char", "dev")
    if links is False and may_use_cdi:
        yield Missing("whether a device plugin names GPUs by CDI (device-list-strategy)")


def _cgroups(snapshot: Snapshot) -> tuple[bool | None, str]:
    """Return whether systemd manages the containers' cgroups, and the source.

    The runtime decides. If its setting is unknown, the kubelet's counts if the kubelet reports it,
    or is too old to ask the runtime. Between the two releases, ``cgroupfs`` can be the default that
    the runtime's answer overrides, and ``systemd`` was set, for both or for neither.
    """
    for config in configs(snapshot):
        if config.systemd_cgroup is not None:
            return config.systemd_cgroup, f"the cgroup driver in {config.path}"
    settings, kubelet = running(snapshot), release(version(snapshot))
    if settings is None or settings.cgroup_driver is None:
        return None, ""
    is_systemd = settings.cgroup_driver == _SYSTEMD
    counts = settings.source == CONFIGZ or (
        (kubelet is None or kubelet < _HEEDS_CRI_SINCE)
        if is_systemd
        else (kubelet is not None and kubelet < _ASKS_CRI_SINCE)
    )
    return (is_systemd, place(settings, "cgroupDriver")) if counts else (None, "")


def _hook(snapshot: Snapshot) -> str:
    settings = host_of(snapshot).toolkit
    mode = (settings.mode if settings else None) or "auto"
    return f"the hook of NVIDIA's runtime (mode {mode})"


def _takes_cdi(snapshot: Snapshot) -> bool | None:
    """Return whether all runtimes support CDI; ``None`` if unknown."""
    answers = {has_cdi(snapshot, config) for config in configs(snapshot)}
    return answers.pop() if len(answers) == 1 else None


def _plugin_uses_cdi(snapshot: Snapshot) -> bool:
    """Return whether a device plugin or DRA driver is known to use CDI for GPUs."""
    specs = registry(snapshot)
    in_force = any(specs.devices(spec) for spec in of_plugins(snapshot))
    return in_force and _takes_cdi(snapshot) is True


def _may_use_cdi(snapshot: Snapshot) -> bool:
    """Return whether a device plugin can use GPU names of the toolkit's specification.

    Ours does with ``device-list-strategy: auto`` if that specification names all GPUs. NVIDIA's
    does not, and mode ``legacy`` is meant for such plugins.
    """
    host, specs = host_of(snapshot), registry(snapshot)
    if is_legacy(snapshot):
        return False
    if _PLUGIN in (host.peer_programs or ()) or _takes_cdi(snapshot) is False:
        return False
    uuids = [gpu.uuid for gpu in snapshot.gpus if gpu.uuid is not None]
    driver = snapshot.driver_version
    return bool(uuids) and all(specs.fault(_KIND, uuid, driver) is None for uuid in uuids)
