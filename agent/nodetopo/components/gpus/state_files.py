"""Files that outlive the process: the health of GPUs, and which GPUs there were."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import structlog

from nodetopo.components.gpus.health.saved import decode, encode, verdicts
from nodetopo.components.gpus.health.state import HealthState
from nodetopo.deviceplugin.boot_file import BootFile
from nodetopo.deviceplugin.host_files import MAX_BYTES, HostFile
from nodetopo.errors import DecodeError
from nodetopo.model.codec import load_json
from nodetopo.model.gpu import Gpu
from nodetopo.model.limits import MAX_GPUS, Range
from nodetopo.model.plain import from_plain, to_plain
from nodetopo.outage import Outage

SCHEMA = "nodetopo-gpus/v1"

COUNT_SCHEMA = "nodetopo-gpu-count/v1"

COUNT_FILE = "gpu-count.json"
"""Beside the health file: how many GPUs the machine has had."""


class HealthFile:
    """Reads and writes the health of GPUs; a problem with the file is logged once and tolerated.

    Attributes:
        damage: why :meth:`load` could not read the file's content; ``None`` if it could, or without
            a file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: str | None = None
        self._file = HostFile(path, mode=0o600)
        self._content: bytes | None = None  # as last read or written
        self._is_there = False
        self._problem = Outage()

    @property
    def is_there(self) -> bool:
        """Whether the file exists: it was read or written, and not found deleted since."""
        return self._is_there

    def load(self) -> HealthState | None:
        """Return the saved state; ``None`` without a usable file.

        An invalid document, or one of a later version, is renamed: ``.bad`` is appended to its
        name.
        """
        try:
            content = self._file.content()
            if len(content) > MAX_BYTES:
                raise DecodeError("", f"larger than {MAX_BYTES >> 20} MiB")  # noqa: TRY301
            state = decode(content.decode("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.damage = str(error)
            self._report("health file not read", self.damage)
            return None
        except (DecodeError, UnicodeDecodeError) as error:
            self.damage = str(error)
            self._report("health file not understood", self.damage)
            with suppress(OSError):
                self.path.replace(self.path.with_name(f"{self.path.name}.bad"))
            return None
        self._content, self._is_there = content, True
        return state

    def save(self, state: HealthState) -> bool:
        """Write *state* atomically; return whether that succeeded."""
        text = encode(state)
        problem = self._file.write(text)
        if problem is not None:
            self._report("health file not written", problem)
            return False
        self._content, self._is_there = text.encode(), True
        self._problem.ended()
        return True

    def was_damaged(self, state: HealthState) -> bool:
        """Return whether the file holds neither its last known content nor *state*.

        Another instance of this program on the node can write the same file: its verdicts on the
        same GPUs differ only in their times, and are kept.
        """
        if not self._is_there:
            return False
        try:
            content = self._file.content()
            if content == self._content:
                return False
            return verdicts(decode(content.decode("utf-8"))) != verdicts(state)
        except FileNotFoundError:
            return False
        # A directory, a link, a pipe, an unreadable file, or another document.
        except (OSError, DecodeError, UnicodeDecodeError):
            return True

    def was_removed(self) -> bool:
        """Return whether the file was removed; true once for each removal.

        A removed directory does not count, nor does its return.
        """
        if not self._is_there or self.path.exists():
            return False
        self._is_there = False
        return self.path.parent.is_dir()

    def _report(self, event: str, problem: str) -> None:
        if self._problem.failed(problem):
            structlog.get_logger().warning(event, path=str(self.path), problem=problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpus:
    """The content of the file of :class:`KnownGpus`: GPUs as last listed."""

    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count:
    """The content of :class:`GpuCountFile`: the highest GPU count of the machine *machine*."""

    schema: str
    gpus: Annotated[int, Range(0, MAX_GPUS)]
    machine: str | None = None


class GpuCountFile:
    """Remembers over reboots how many GPUs the machine has had on PCI; one thread uses it.

    Where the machine has another DMI name than in the file, the file is another machine's. Removing
    the file forgets the number.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = HostFile(path)
        self._problem = Outage()
        self._known: _Count | None = None

    def most(self, present: int | None, machine: str | None) -> int | None:
        """Return the most GPUs so far, *present* of them now; ``None`` where none was ever seen."""
        if self._known is None or not self._path.exists():
            self._known = self.load()
        saved = self._known
        if saved is not None and None not in (saved.machine, machine) and saved.machine != machine:
            saved = None
        before = 0 if saved is None else saved.gpus
        if present is not None and present > before:
            saved = _Count(schema=COUNT_SCHEMA, gpus=present, machine=machine)
            problem = self._file.write(json.dumps(to_plain(saved)) + "\n")
            if self._problem.changed(problem) and problem is not None:
                structlog.get_logger().warning("GPU count not saved", problem=problem)
        self._known = saved
        return None if saved is None else saved.gpus

    def load(self) -> _Count | None:
        """Return the file's content; ``None`` without a usable file."""
        text = self._file.text()
        if text is None:
            return None
        try:
            document = from_plain(_Count, load_json(text), [])
        except DecodeError:
            return None
        return document if document.schema == COUNT_SCHEMA else None


class KnownGpus:
    """Remembers the offered GPUs, so that a new process still lists a lost one.

    NVML cannot find a lost GPU by UUID, and may not even count it. Leaving it out would lower the
    node's capacity, which the kubelet's own test of device plugins expects to stay (kubernetes 1.36
    test/e2e_node/device_plugin_failures_test.go).

    The file is valid for one boot: after the next, hardware may be gone for good.
    """

    def __init__(self, path: Path, boot_id: str) -> None:
        self._file = BootFile(
            path, _Gpus, schema=SCHEMA, boot_id=boot_id, problem="GPUs not remembered"
        )

    def load(self) -> tuple[Gpu, ...]:
        """Return the GPUs that this boot is known to have had; none without such a file."""
        content = self._file.load()
        return () if content is None else content.gpus

    def save(self, gpus: Sequence[Gpu]) -> None:
        """Remember *gpus*; a problem with the file is logged once and survived."""
        kept = tuple(
            Gpu(  # the parts of a device; the rest changes, and is reread
                index=gpu.index,
                uuid=gpu.uuid,
                minor=gpu.minor,
                pci=gpu.pci,
                product=gpu.product,
                numa_node=gpu.numa_node,
                mig=gpu.mig,
            )
            for gpu in gpus
        )
        self._file.save(_Gpus(gpus=kept))
