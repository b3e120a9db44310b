"""Files that outlive the process: the health of GPUs, and which GPUs there were."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.components.gpus.health.saved import decode, encode, verdicts
from nodetopo.components.gpus.health.state import HealthState
from nodetopo.deviceplugin.host_files import is_directory
from nodetopo.deviceplugin.state_file import StateFile, boot_file
from nodetopo.model.gpu import Gpu
from nodetopo.model.limits import MAX_GPUS, Range
from nodetopo.model.notice import Notice
from nodetopo.model.state_document import opened, sealed

SCHEMA = "nodetopo-gpus/v1"

COUNT_SCHEMA = "nodetopo-gpu-count/v1"

COUNT_FILE = "gpu-count.json"
"""Beside the health file: how many GPUs the machine has had."""


def health_document(path: Path) -> StateFile[HealthState]:
    """Return the file *path* of the health of GPUs."""
    return StateFile(
        path,
        what="health of GPUs",
        loss="all GPUs are Unhealthy until scans have shown no fault",
        encode=encode,
        decode=decode,
        mode=0o600,
    )


class HealthFile:
    """The health of GPUs in a file that a person may remove and another program may damage."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Why :meth:`load` could not read the file's content; ``None`` if it could, or without a
        # file.
        self.damage: str | None = None
        self._file = health_document(path)
        self._last: HealthState | None = None  # as read or written
        # Whether the file exists: it was read or written, and not found deleted since.
        self.is_there = False

    def load(self) -> HealthState | None:
        """Return the saved state; ``None`` without a usable file."""
        saved = self._file.load()
        self.damage, self._last = saved.problem, saved.content
        self.is_there = saved.content is not None
        return saved.content

    def late(self) -> HealthState | None:
        """Return the state that :meth:`load` could not read, if it can be read now."""
        content = self._file.late()
        if content is not None:
            self._last, self.is_there = content, True
        return content

    def save(self, state: HealthState) -> bool:
        """Write *state* atomically; return whether that succeeded."""
        if not self._file.save(state):
            return False
        self._last, self.is_there = state, True
        return True

    def damage_since(self, state: HealthState) -> str | None:
        """Return why the file has neither *state* nor its last known content; ``None`` if it has.

        Another instance of this program on the node can write the same file: its verdicts on the
        same GPUs differ only in their times, and are kept. So is a file of a newer schema.
        """
        saved = self._file.read()
        if not self.is_there or saved.is_absent or saved.is_newer:
            return None
        if saved.content is None:
            return saved.problem
        is_same = saved.content == self._last or verdicts(saved.content) == verdicts(state)
        return None if is_same else f"{self.path} was changed by another program"

    def was_removed(self) -> bool:
        """Return whether the file was removed; true once for each removal.

        A removed directory does not count, nor does its return, or a file that cannot be seen.
        """
        if not self.is_there or not self._file.read().is_absent:
            return False
        self.is_there = False
        return is_directory(self.path.parent)


class _Gpus(Struct, frozen=True, kw_only=True):
    """The content of the file of :class:`KnownGpus`: GPUs as last listed."""

    gpus: tuple[Gpu, ...]


class GpuCount(Struct, frozen=True, kw_only=True):
    """How many GPUs a machine has had."""

    gpus: Annotated[int, Range(0, MAX_GPUS)]
    machine: str | None = None  # its DMI name; ``None`` if unknown
    is_certain: bool = True  # whether no earlier, greater count can be lost


class GpuCountFile:
    """Remembers over reboots how many GPUs the machine has had on PCI; one thread uses it.

    Where the machine has another DMI name than in the file, the file is another machine's. Removing
    the file forgets the number. While the file's number is unknown, so is the machine's, until
    there are more GPUs than at first.
    """

    def __init__(self, path: Path) -> None:
        self._file = StateFile(
            path,
            what="number of GPUs that the machine should have",
            loss="a GPU that is missing now is not reported; set `expect-gpus`, or remove the file "
            "once all GPUs are there",
            encode=lambda count: sealed(COUNT_SCHEMA, count),
            decode=lambda text: opened(GpuCount, text, COUNT_SCHEMA),
        )
        self._known: GpuCount | None = None
        self._is_there = self._is_saved = False

    def most(self, present: int | None, machine: str | None) -> GpuCount | None:
        """Return the most GPUs so far, *present* of them now; ``None`` where none was ever seen."""
        known = self._known
        saved = self._file.load(is_known=known is not None)
        if saved.content is not None:
            unsaved = 0 if known is None or self._is_saved else known.gpus
            known = replace(saved.content, gpus=max(saved.content.gpus, unsaved))
        elif saved.is_absent and self._is_there:  # a person removed it
            known = None
        elif saved.problem is not None and known is None:
            known = GpuCount(gpus=0, machine=machine, is_certain=False)
        if known is not None and None not in (known.machine, machine) and known.machine != machine:
            known = None
        if present is not None and (known is None or present > known.gpus):
            is_certain = known is None or known.is_certain or known.gpus > 0
            known = GpuCount(gpus=present, machine=machine, is_certain=is_certain)
        self._known = known
        self._is_saved = known is not None and self._file.save(known)
        self._is_there = self._is_saved or not saved.is_absent
        return known

    def load(self) -> GpuCount | None:
        """Return the file's content, and touch nothing; ``None`` without a file."""
        saved = self._file.read()
        is_known = saved.problem is None
        return saved.content if is_known else GpuCount(gpus=0, is_certain=False)

    def notices(self) -> tuple[Notice, ...]:
        """Return the notice since the last call, and forget it."""
        return self._file.notices()


class KnownGpus:
    """Remembers the offered GPUs, so that a new process still lists a lost one.

    NVML cannot find a lost GPU by UUID, and may not even count it. Leaving it out would lower the
    node's capacity, which the kubelet's own test of device plugins expects to stay (kubernetes 1.36
    test/e2e_node/device_plugin_failures_test.go).

    The file is valid for one boot: after the next, hardware may be gone for good.
    """

    def __init__(self, path: Path, boot_id: str) -> None:
        self._file = boot_file(
            path,
            _Gpus,
            what="GPUs of this boot",
            schema=SCHEMA,
            boot_id=boot_id,
            loss="a GPU that is lost now leaves the node's capacity",
        )

    def load(self) -> tuple[Gpu, ...]:
        """Return the GPUs that this boot is known to have had; none without such a file."""
        content = self._file.load().content
        return () if content is None else content.gpus

    def late(self) -> tuple[Gpu, ...]:
        """Return the GPUs that :meth:`load` could not read, if they can be read now."""
        content = self._file.late()
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

    def notices(self) -> tuple[Notice, ...]:
        """Return the notice since the last call, and forget it."""
        return self._file.notices()
