"""The file of one CDI specification of ours, in a directory that others write to as well."""

import json
from pathlib import Path

from agent.deviceplugin.cdi_spec import Spec
from agent.deviceplugin.host_files import HostFile

_OURS = "nodetopo-"
"""What our files' names begin with; NVIDIA's begin with a vendor or are ``nvidia.yaml``."""


class CdiFile:
    """The specification of one kind; the name says whose it is, and so does the kind inside."""

    def __init__(self, directory: Path, kind: str) -> None:
        """Touch nothing yet."""
        self._kind = kind
        self._file = HostFile(directory / f"{_OURS}{kind.replace('/', '-')}.json")

    @property
    def path(self) -> Path:
        """Where the file is, or would be."""
        return self._file.path

    def write(self, spec: Spec) -> tuple[str, ...]:
        """Make *spec* what the file says; return why that failed, nothing if it did not."""
        problem = self._file.write(json.dumps(spec, indent=2) + "\n")
        return () if problem is None else (f"CDI specification not written: {problem}",)

    def remove(self) -> tuple[str, ...]:
        """Delete the file if it is there and ours; return why that failed, or was not done."""
        text = self._file.text()
        if text is None:
            return ()
        if not _is_of_kind(text, self._kind):
            return (f"{self.path} was left alone: it is no specification of {self._kind}",)
        problem = self._file.remove()
        return () if problem is None else (problem,)


def _is_of_kind(text: str, kind: str) -> bool:
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("kind") == kind
