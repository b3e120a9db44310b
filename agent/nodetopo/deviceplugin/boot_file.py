"""A file that keeps what one boot of the machine has shown, for the daemon's next process.

The content is one JSON document with a schema, ``nodetopo-NAME/v1``, and the boot that it is of.
Another boot may have other hardware, and ended most faults, so its content counts for nothing. A
release that adds a field keeps the schema, and an older one ignores the field; one that changes the
meaning of a field takes another schema, which an older release ignores, and overwrites.
"""

import json
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog

from nodetopo.deviceplugin.host_files import HostFile
from nodetopo.errors import DecodeError
from nodetopo.model.codec import load_json
from nodetopo.model.plain import from_plain, to_plain
from nodetopo.outage import Outage

_BOOT_ID = "sys/kernel/random/boot_id"
"""A UUID that the kernel draws at each boot (kernel Documentation/admin-guide/sysctl/kernel.rst,
random). Every container sees the host's.
"""

_Content = TypeVar("_Content")


def read_boot_id(procfs: Path) -> str | None:
    """Return the identity of this boot; ``None`` where the kernel does not tell."""
    try:
        return (procfs / _BOOT_ID).read_text("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


class BootFile(Generic[_Content]):
    """Reads and writes a record of a boot; a problem is logged once and survived.

    Args:
        record: a dataclass as :func:`nodetopo.model.plain.from_plain` reads them.
        schema: names the form of the document.
        problem: what the log says if the file cannot be understood or written.
    """

    def __init__(
        self, path: Path, record: type[_Content], *, schema: str, boot_id: str, problem: str
    ) -> None:
        self._file = HostFile(path)
        self._record = record
        self._head = {"schema": schema, "boot_id": boot_id}
        self._problem = problem
        self._outage = Outage()

    def load(self) -> _Content | None:
        """Return what this boot is known to have; ``None`` without such a document."""
        text = self._file.text()
        if text is None:
            return None
        try:
            document: Any = load_json(text)
            if not isinstance(document, dict):
                raise DecodeError("", "expected an object")  # noqa: TRY301
            if {name: document.pop(name, None) for name in self._head} != self._head:
                return None
            return from_plain(self._record, document, [])
        except DecodeError as error:
            self._report(str(error))
            return None

    def save(self, content: _Content) -> bool:
        """Write *content* unless the file has it; return whether the file has it now."""
        document = {**self._head, **to_plain(content)}
        problem = self._file.write(json.dumps(document, indent=1) + "\n")
        self._report(problem)
        return problem is None

    def _report(self, problem: str | None) -> None:
        if self._outage.changed(problem) and problem is not None:
            structlog.get_logger().warning(self._problem, problem=problem)
