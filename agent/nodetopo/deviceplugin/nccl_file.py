"""The topology file for NCCL, in a directory of the host that is mounted into containers.

The directory is mounted, not the file: a runtime that finds no file creates a directory in its
place, and a container would keep the old file when it is replaced. NCCL works without the file if
the directory is empty.
"""

from pathlib import Path

from nodetopo.deviceplugin.host_files import HostFile, seen
from nodetopo.errors import UnreadableError
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.container import FILE_NAME, container_xml


class NcclHints:
    """Keep the file up to date; one thread calls it, and no RPC does."""

    def __init__(self, directory: Path, *, host_root: Path) -> None:
        """Touch nothing yet; *directory* is on the host."""
        self._file = HostFile(seen(host_root, directory) / FILE_NAME)

    def update(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Write the topology of *snapshot* if it changed; return problems, a sentence each.

        A snapshot without GPUs, or without a new reading of NVML, changes nothing. For an
        insufficient one the file is deleted: NCCL's own detection is better than an outdated
        topology.
        """
        if not snapshot.gpus or any(issue.is_whole for issue in snapshot.issues):
            return ()
        try:
            text = container_xml(snapshot)
        except UnreadableError as error:
            problem = self._file.remove()
            why = f"no NCCL topology file: {error}"
            return (why,) if problem is None else (why, problem)
        problem = self._file.write(text)
        return () if problem is None else (f"NCCL topology file: {problem}",)
