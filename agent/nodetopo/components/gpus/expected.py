"""How many GPUs the machine should have, by a setting, its past, or its instance type."""

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from nodetopo.components.gpus.settings import GpuSettings
from nodetopo.components.gpus.state_files import COUNT_FILE, GpuCount, GpuCountFile
from nodetopo.model.notice import Notice
from nodetopo.model.operator_labels import INSTANCE_TYPE
from nodetopo.model.presence import ExpectedGpus
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.presence import gpus_of_type, greatest, present_gpus


class ExpectedGpuCount:
    """Adds the expected GPU count to snapshots; any thread can note labels.

    Args:
        state: the health file, next to which the count is kept unless *settings* name a file;
            ``None`` keeps it in memory.
    """

    def __init__(self, settings: GpuSettings, state: Path | None) -> None:
        self._setting = settings.expect_gpus
        path = _count_file(settings, state)
        self._file = None if path is None else GpuCountFile(path)
        self._most: GpuCount | None = None
        self._type: str | None = None

    def note(self, labels: Mapping[str, str]) -> None:
        """Take the Node's labels, which include the instance type."""
        self._type = labels.get(INSTANCE_TYPE)

    def put_into(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with the expected GPU count."""
        return replace(snapshot, expected_gpus=self._expected(snapshot))

    def _expected(self, snapshot: Snapshot) -> ExpectedGpus | None:
        if self._setting is not None:
            return expected_by_setting(self._setting)
        present = present_gpus(snapshot)
        if self._file is not None:
            self._most = self._file.most(present, snapshot.product_name)
        elif present is not None:
            self._most = GpuCount(gpus=max(present, self._most.gpus if self._most else 0))
        return greatest(expected_by_history(self._most), gpus_of_type(self._type))

    def notices(self) -> tuple[Notice, ...]:
        """Return the notice about the file since the last call, and forget it."""
        return () if self._file is None else self._file.notices()


def expected_by_setting(count: int) -> ExpectedGpus:
    """Return the count of the setting ``expect-gpus``."""
    return ExpectedGpus(count=count, source="`expect-gpus` says", is_set=True)


def expected_by_history(most: GpuCount | None) -> ExpectedGpus | None:
    """Return that the machine has had *most* GPUs; ``None`` if it has had none."""
    if most is None or (most.is_certain and not most.gpus):
        return None
    doubt = None if most.is_certain else "the file of the count was damaged, or cannot be used"
    return ExpectedGpus(count=most.gpus, source="the machine has had", doubt=doubt)


def expected_here(settings: GpuSettings, state: Path | None) -> ExpectedGpus | None:
    """Return the count from the setting or the daemon's file, without writing."""
    if settings.expect_gpus is not None:
        return expected_by_setting(settings.expect_gpus)
    path = _count_file(settings, state)
    return None if path is None else expected_by_history(GpuCountFile(path).load())


def _count_file(settings: GpuSettings, state: Path | None) -> Path | None:
    """Return where the number of GPUs is kept; ``None`` for nowhere, as with simulated GPUs."""
    if state is None:
        return None
    return settings.gpu_count_file or state.with_name(COUNT_FILE)
