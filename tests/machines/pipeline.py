"""The agent's whole discovery, run on the files of one machine."""

from pathlib import Path

import pytest

from agent.model.snapshot import Snapshot
from agent.probes.discover import Roots, discover
from agent.probes.nvml.supervisor import NvmlSupervisor
from tests.compose.parts import CAPTURED_AT


def scan(
    directory: Path,
    root: Path,
    library: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    node: str,
) -> Snapshot:
    """Return what the agent finds for an audit, which is all that files and NVML tell.

    Args:
        directory: holds ``nvml.txt``.
        root: its unpacked ``sysfs.txt`` and ``host.txt``.
        library: holds our ``libnvidia-ml.so.1``.
        monkeypatch: tells the library of *directory*.
        node: name of the node.
    """
    monkeypatch.setenv("NODETOPO_FAKE_NVML", str(directory))
    roots = Roots(sysfs=root / "sys", procfs=root / "proc", host=root)
    supervisor = NvmlSupervisor(library)
    try:
        return discover(roots, supervisor.scan, node=node, captured_at=CAPTURED_AT, counters=True)
    finally:
        supervisor.close()
