"""The texts of composed machines: what NVML, sysfs and the host's files say there."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.compose.machine import Machine
from tests.compose.machines import machines
from tests.compose.nvml import nvml_text
from tests.compose.sysfs import host_text, sysfs_text

NODES = Path(__file__).parents[2] / "tests" / "nodes"

TEXTS = {"nvml.txt": nvml_text, "sysfs.txt": sysfs_text, "host.txt": host_text}


def made() -> Mapping[Path, str]:
    """Return the texts of every composed machine."""
    return {path: text for machine in machines() for path, text in texts(machine).items()}


def texts(machine: Machine) -> Mapping[Path, str]:
    """Return the texts of *machine*."""
    return {NODES / machine.shape / name: text(machine) for name, text in TEXTS.items()}


def owned() -> Iterable[Path]:
    """Return the stored texts; a captured machine has its own."""
    return (NODES / machine.shape / name for machine in machines() for name in TEXTS)
