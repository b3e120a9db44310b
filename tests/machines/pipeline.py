"""The agent's whole discovery, run on the files of one machine."""

import os
from pathlib import Path
from unittest import mock

from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.discover import Roots, discover
from nodetopo.probes.nvml.supervisor import NvmlSupervisor
from tests.compose.parts import CAPTURED_AT


def scan(
    directory: Path,
    root: Path,
    library: Path,
    *,
    node: str,
) -> Snapshot:
    """Return what the agent finds for an audit, which is all that files and NVML tell.

    Args:
        directory: holds ``nvml.txt``.
        root: its unpacked ``sysfs.txt`` and ``host.txt``.
        library: holds our ``libnvidia-ml.so.1``.
        node: name of the node.
    """
    roots = Roots(sysfs=root / "sys", procfs=root / "proc", host=root)
    with mock.patch.dict(os.environ, {"NODETOPO_FAKE_NVML": str(directory)}):
        supervisor = NvmlSupervisor(library)
        try:
            return discover(
                roots, supervisor.scan, node=node, captured_at=CAPTURED_AT, counters=True
            )
        finally:
            supervisor.close()
