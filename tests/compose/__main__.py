"""Rewrite the texts of every composed machine: `python -m tests.compose`."""

from pathlib import Path

from tests.compose.machines import machines
from tests.compose.nvml import nvml_text
from tests.compose.sysfs import host_text, sysfs_text

NODES = Path(__file__).parents[1] / "nodes"


def main() -> None:
    """Write the files."""
    for machine in machines():
        directory = NODES / machine.shape
        directory.mkdir(exist_ok=True)
        (directory / "nvml.txt").write_text(nvml_text(machine), "utf-8")
        (directory / "sysfs.txt").write_text(sysfs_text(machine), "utf-8")
        (directory / "host.txt").write_text(host_text(machine), "utf-8")


if __name__ == "__main__":
    main()
