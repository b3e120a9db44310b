"""Files that keep state for the daemon's next process, each a JSON document with a schema.

What cannot be read is unknown, not absent. A damaged document is kept beside the file, with
``.bad`` appended to its name, and one of a newer release's schema is never written to. A document
that a start cannot read is read again, and not written to before.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import structlog
from msgspec import Struct

from nodetopo.deviceplugin.host_files import MAX_BYTES, HostFile
from nodetopo.errors import DecodeError
from nodetopo.model.notice import Notice
from nodetopo.model.state_document import NewerSchemaError, opened, sealed
from nodetopo.outage import Outage

UNUSABLE = "StateFileUnusable"
"""The reason of the notice about a file whose content is unknown."""

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


class Saved(Struct, Generic[_Content], frozen=True, kw_only=True):
    """What a state file has, or why that is not known."""

    # None without a file, where it is about something else (another boot), and with a problem.
    content: _Content | None = None
    problem: str | None = None  # why the content of an existing file is unknown, a clause
    is_damaged: bool = False  # the problem is the document
    is_newer: bool = False  # the problem is the schema, which only a newer release knows

    @property
    def is_absent(self) -> bool:
        return self.content is None and self.problem is None

    @property
    def is_unread(self) -> bool:
        """Whether the document may be sound, and cannot be read now."""
        return self.problem is not None and not (self.is_damaged or self.is_newer)


class StateFile(Generic[_Content]):
    """Reads and writes one document; a problem is reported once, and never raised.

    Args:
        what: the file's content in messages, such as ``GPU count``.
        loss: what follows for the node if the content is unknown, a clause.
        encode: returns the document of a content, by :func:`sealed`.
        decode: returns the content of a document, by :func:`opened`; ``None`` if it is about
            something else. Raises :class:`DecodeError`.
    """

    def __init__(
        self,
        path: Path,
        *,
        what: str,
        loss: str,
        encode: Callable[[_Content], str],
        decode: Callable[[str], _Content | None],
        mode: int = 0o644,
    ) -> None:
        self._file = HostFile(path, mode=mode)
        self._what = what
        self._loss = loss
        self._encode = encode
        self._decode = decode
        self._is_unread = False
        self._unread, self._unwritten = Outage(), Outage()
        self._notices: deque[Notice] = deque(maxlen=1)

    @property
    def path(self) -> Path:
        return self._file.path

    def notices(self) -> tuple[Notice, ...]:
        """Return the notice since the last call, and forget it."""
        return (self._notices.popleft(),) if self._notices else ()

    def read(self) -> Saved[_Content]:
        """Return what the file has now, and touch nothing."""
        found = self._file.read()
        if found.data is None:
            return Saved(problem=found.problem)
        try:
            if len(found.data) > MAX_BYTES:
                raise DecodeError("", f"larger than {MAX_BYTES >> 20} MiB")  # noqa: TRY301
            return Saved(content=self._decode(found.data.decode("utf-8")))
        except NewerSchemaError as error:
            return Saved(problem=f"{self.path} {error.problem}", is_newer=True)
        except (DecodeError, UnicodeDecodeError) as error:
            return Saved(problem=f"{self.path} is damaged: {error}", is_damaged=True)

    def load(self, *, is_known: bool = False) -> Saved[_Content]:
        """Return what the file has now; report an unknown content, and keep a damaged document.

        *is_known* says that the process has the content in memory.
        """
        saved = self.read()
        self._is_unread = saved.is_unread
        if self._unread.changed(saved.problem) and saved.problem is not None:
            text = saved.problem
            if saved.is_damaged:
                kept = self.path.with_name(f"{self.path.name}.bad")
                problem = self._file.keep_as(kept)
                text += f"; {problem}" if problem else f"; its content is kept as {kept.name}"
            loss = (
                "the daemon has it in memory" if is_known else f"it is not known, and {self._loss}"
            )
            self._notices.append(
                Notice(
                    reason=UNUSABLE,
                    message=f"{self._what}: {text}: {loss}",
                    is_warning=True,
                    gpu=None,
                    key=str(self.path),
                )
            )
        return saved

    def late(self) -> _Content | None:
        """Return the content that the last :meth:`load` could not read, if it can be read now."""
        return self.load().content if self._is_unread else None

    def save(self, content: _Content) -> bool:
        """Write *content*; report why that failed, and return whether the file has it now."""
        problem = self.write(content)
        if self._unwritten.changed(problem) and problem is not None:
            structlog.get_logger().warning("state not saved", what=self._what, problem=problem)
        return problem is None

    def write(self, content: _Content) -> str | None:
        """Write *content* unless the file has it; return why the file does not have it now.

        A file of a newer schema stays as it is. So does one that the last :meth:`load` could not
        read: its content comes first.
        """
        now = self.read()
        if now.is_newer:
            return now.problem
        if self._is_unread and not now.is_absent:
            return now.problem or f"{self.path} could not be read before: it is read again first"
        if now.content == content:
            return None
        return self._file.write(self._encode(content))


def boot_file(
    path: Path, record: type[_Content], *, what: str, schema: str, boot_id: str, loss: str
) -> StateFile[_Content]:
    """Return the file of what one boot of the machine has shown.

    Another boot may have other hardware, and ended most faults, so its content counts for nothing.
    """
    about = {"boot_id": boot_id}
    return StateFile(
        path,
        what=what,
        loss=loss,
        encode=lambda content: sealed(schema, content, about),
        decode=lambda text: opened(record, text, schema, about),
    )
