"""Invented names in place of those that tell one node, owner or workload from others.

Each original has one substitute of the same form, the same wherever it stands, so that what
was equal stays equal.
"""

from collections.abc import Iterable
from dataclasses import replace

from agent.model.codec import decode, encode
from agent.model.snapshot import Kernel, Snapshot
from agent.probes.capture.scrub_issues import scrub_issue
from agent.probes.capture.scrub_node import scrub_host, scrub_node_status
from agent.probes.capture.scrub_pods import learn_devices, scrub_pods
from agent.probes.capture.scrub_state import scrub_state
from agent.probes.capture.substitutes import LEAST, Substitutes

__all__ = ["NODE", "Substitutes", "command_line", "learn_hosts", "scrubbed"]

NODE = "node"
"""What every scrubbed node is called."""

PARAMETERS = frozenset(
    """
    amd_iommu amd_pstate cgroup_enable cgroup_no_v1 clocksource default_hugepagesz hugepages
    hugepagesz idle init_on_alloc intel_idle.max_cstate intel_iommu intel_pstate iommu
    iommu.passthrough iommu.strict irqaffinity isolcpus kthread_cpus maxcpus mitigations
    nmi_watchdog nohz nohz_full noht nosmt nosoftlockup nr_cpus numa numa_balancing pci
    pcie_acs_override pcie_aspm pcie_ports processor.max_cstate quiet rcu_nocbs ro rw
    skew_tick split_lock_detect transparent_hugepage tsc vfio-pci.ids
    systemd.unified_cgroup_hierarchy
    """.split(),  # noqa: SIM905 - as prose
)
"""Kernel parameters that are kept with their value (admin-guide/kernel-parameters.txt)."""

MODULES = ("nvidia", "nvidia_drm", "nvidia-drm", "mlx5_core", "mlx4_core", "ib_core", "vfio_pci")
"""Kernel modules whose parameters (``module.name=value``) are kept too."""


def scrubbed(
    snapshot: Snapshot, substitutes: Substitutes, hosts: Iterable[str] = ()
) -> tuple[Snapshot, tuple[str, ...]]:
    """Return *snapshot* without what identifies its node, and what was done to it.

    Names of the kubelet's files, of resources and of labels are kept as far as they hold none
    of the names that are replaced.

    Args:
        hosts: other names of the node.
    """
    before = snapshot.kernel.command_line if snapshot.kernel else None
    learn_hosts(substitutes, (snapshot.node or "", *hosts))
    substitutes.learn(snapshot)
    learn_devices(snapshot, substitutes)
    named = _named(snapshot, substitutes)
    text = encode(named)
    substitutes.learn_text(text)
    after = named.kernel.command_line if named.kernel else None
    done = [] if before == after else ["parameters of the kernel's command line left out"]
    return decode(substitutes.apply(text)).snapshot, (*substitutes.summary(), *done)


def _named(snapshot: Snapshot, substitutes: Substitutes) -> Snapshot:
    """Return *snapshot* with those names replaced that are no identifiers by their form."""
    pods = snapshot.pods
    return replace(
        snapshot,
        node=None if snapshot.node is None else NODE,
        kernel=_kernel(snapshot.kernel),
        host=scrub_host(snapshot.host, substitutes),
        kubelet_state=scrub_state(snapshot.kubelet_state, substitutes),
        node_status=scrub_node_status(snapshot.node_status, substitutes),
        pods=None if pods is None else scrub_pods(pods, substitutes),
        issues=tuple(scrub_issue(issue, pods or ()) for issue in snapshot.issues),
    )


def learn_hosts(substitutes: Substitutes, names: Iterable[str]) -> None:
    """Invent nothing for the node's names: all of them become :data:`NODE`."""
    for name in names:
        if len(name) >= LEAST:
            substitutes.kinds.setdefault("host name", {})[name] = NODE


def command_line(text: str) -> str:
    """Return a kernel command line with the parameters that are known to tell no secret."""
    kept = (word for word in text.split() if _is_kept(word.partition("=")[0]))
    return " ".join(kept)


def _is_kept(name: str) -> bool:
    return name in PARAMETERS or name.startswith(tuple(f"{module}." for module in MODULES))


def _kernel(kernel: Kernel | None) -> Kernel | None:
    if kernel is None or kernel.command_line is None:
        return kernel
    return replace(kernel, command_line=command_line(kernel.command_line))
