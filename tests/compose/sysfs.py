"""A composed machine's `/sys` and `/proc`, as far as this agent and a real kubelet read them."""

from agent.probes.archive import render
from tests.compose import cpus, host_files, pci_files, rdma_files
from tests.compose.machine import Machine


def head(machine: Machine) -> str:
    """Return the comment that says where a machine comes from, for both of its texts."""
    provenance = machine.snapshot.provenance
    assert provenance is not None
    lines = [
        f"{machine.shape}: {provenance.description}",
        f"{provenance.origin.value}, and written by `python -m tests.compose`, from:",
        *(f"- {source}" for source in provenance.sources),
    ]
    return "".join(f"# {line}\n" for line in lines)


def sysfs_text(machine: Machine) -> str:
    """Return the archive of *machine*."""
    return head(machine) + render(
        [
            *cpus.entries(machine),
            *pci_files.entries(machine),
            *rdma_files.entries(machine),
            *host_files.entries(machine),
        ],
    )
