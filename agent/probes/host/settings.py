"""Settings of the host that only audits ask for: runtimes, limits, interrupts, swap, CDI.

They cost some thousand reads on a large node, and nothing that a daemon publishes depends on them.
"""

from collections.abc import Iterable
from dataclasses import fields

from agent.model.hca import Hca
from agent.model.host import HostSettings
from agent.model.numa import CpuTopology
from agent.model.snapshot import ProbeIssue
from agent.probes.host.cdi import cdi_specs
from agent.probes.host.host_cgroup import cgroup_version
from agent.probes.host.host_cpus import (
    energy_preferences,
    frequency_drivers,
    idle_states,
    is_virtual,
)
from agent.probes.host.host_devices import char_devices, gdrcopy, infiniband_devices
from agent.probes.host.host_interfaces import interfaces
from agent.probes.host.host_interrupts import hca_interrupts
from agent.probes.host.host_swap import swap_areas
from agent.probes.host.host_toolkit import read_toolkit
from agent.probes.host.processes import (
    FABRIC_MANAGER,
    host_processes,
    of_the_node,
    peer_programs,
    runtime_processes,
)
from agent.probes.host.runtimes import runtime_configs
from agent.probes.sysfs.files import Files
from agent.probes.sysfs.tree import Root, Tree

PROBE = "host"


def read_host_settings(
    sysfs: Root,
    procfs: Root,
    host: Root,
    *,
    hcas: Iterable[Hca] | None,
    cpu: CpuTopology | None,
) -> tuple[HostSettings | None, tuple[ProbeIssue, ...]]:
    """Return what can be read of them; ``None`` if nothing can.

    Args:
        hcas: whose interrupts to look for; ``None`` if they are not known.
    """
    sys, proc, files = Files(PROBE, sysfs), Files(PROBE, procfs), Files(PROBE, host)
    seen = host_processes(Tree.of(procfs))
    processes = None if seen is None else of_the_node(proc, seen)
    settings = HostSettings(
        cgroup_version=cgroup_version(sys),
        swaps=swap_areas(proc),
        interrupts=None if hcas is None else hca_interrupts(sys, proc, hcas),
        runtimes=None if processes is None else runtime_processes(proc, processes),
        runtime_configs=runtime_configs(files, processes),
        cdi_specs=cdi_specs(files),
        toolkit=read_toolkit(files),
        char_devices=char_devices(files),
        infiniband_devices=infiniband_devices(files),
        interfaces=interfaces(sys),
        gdrcopy=gdrcopy(sys, files),
        idle_states=idle_states(sys, cpu),
        frequency_drivers=frequency_drivers(sys),
        energy_preferences=energy_preferences(sys),
        is_vm=is_virtual(sys, cpu),
        fabric_manager=(
            None
            if processes is None
            else any(process.name == FABRIC_MANAGER for process in processes)
        ),
        peer_programs=None if processes is None else peer_programs(processes),
    )
    is_empty = all(getattr(settings, field.name) is None for field in fields(settings))
    return None if is_empty else settings, sys.issues + proc.issues + files.issues
