"""A composed machine's `/sys` and `/proc`, as far as this agent and a real kubelet read them."""

from pathlib import Path

from nodetopo.tools.capture.archive import parse, render, unpack
from tests.compose import audit_files, cpus, host_files, pci_files, rdma_files
from tests.compose.machine import Machine


def head(machine: Machine) -> str:
    """Return the comment that says where a machine comes from, for all of its texts."""
    provenance = machine.snapshot.provenance
    assert provenance is not None
    lines = [
        f"{machine.shape}: {provenance.description}",
        f"{provenance.origin.value}, and written by `scripts/generate compose`, from:",
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


def host_text(machine: Machine) -> str:
    """Return the archive of what only audits read of *machine*, apart from :func:`sysfs_text`."""
    return head(machine) + render(audit_files.entries(machine))


def unpack_whole(directory: Path, root: Path) -> None:
    """Write both archives of a machine's *directory* into *root*, which is new or empty."""
    unpack((directory / "sysfs.txt").read_text("utf-8"), root)
    for entry in parse((directory / "host.txt").read_text("utf-8")):
        place = root / entry.path
        place.parent.mkdir(parents=True, exist_ok=True)
        if entry.target is not None:
            place.symlink_to(entry.target)
        elif entry.content is not None:
            place.write_bytes(entry.content)
        else:
            place.mkdir(parents=True, exist_ok=True)
