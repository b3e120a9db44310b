"""The topology file for NCCL that containers find in a mount of a host's directory.

The directory is mounted, not the file: a runtime that finds no file makes a directory in its
place, and a file that is replaced would stay the old one in a container. NCCL goes on without
where the directory is empty.
"""

from pathlib import Path

from agent.deviceplugin.host_files import HostFile, seen
from agent.errors import UnreadableError
from agent.model.snapshot import Snapshot
from agent.nccl.container import FILE_NAME, container_xml


class NcclHints:
    """Keep the file true to the node; one thread calls it, and no RPC does."""

    def __init__(self, directory: Path, *, host_root: Path) -> None:
        """Touch nothing yet; *directory* is on the host."""
        self._file = HostFile(seen(host_root, directory) / FILE_NAME)

    def update(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Write what *snapshot* says, as far as it changed; return what a person should know.

        A snapshot without GPUs is no news. One that does not suffice has the file deleted: what
        NCCL finds out for itself is better than what was true once.
        """
        if not snapshot.gpus:
            return ()
        try:
            text = container_xml(snapshot)
        except UnreadableError as error:
            problem = self._file.remove()
            why = f"no NCCL topology file: {error}"
            return (why,) if problem is None else (why, problem)
        problem = self._file.write(text)
        return () if problem is None else (f"NCCL topology file: {problem}",)
