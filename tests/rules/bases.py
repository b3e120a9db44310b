"""The machines of `tests/nodes`, unpacked once, which a rule's machine changes for a while."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nodetopo.errors import NvmlUnavailable
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.nvml.record import NvmlReading
from nodetopo.probes.nvml.supervisor import NvmlSupervisor
from nodetopo.tools.capture.archive import Entry, unpack
from tests.fake_nvml.fake import FakeNvml

NODES = Path(__file__).parents[1] / "nodes"


class Bases:
    """The unpacked machines below *home*, and the snapshots of the rules' machines so far."""

    def __init__(self, home: Path, library: Path) -> None:
        self._home = home
        self._library = library
        self._fake = FakeNvml(home / "nvml", "")
        self._supervisor: NvmlSupervisor | None = None
        self._outcomes: dict[str, NvmlReading | NvmlUnavailable] = {}
        self.snapshots: dict[Path, Snapshot] = {}

    def reading(self, answers: str) -> NvmlReading:
        """Return NVML's reading of a machine with *answers*.

        Raises:
            NvmlUnavailable: NVML does not work with these answers.
        """
        if answers not in self._outcomes:
            self._outcomes[answers] = self._scan(answers)
        outcome = self._outcomes[answers]
        if isinstance(outcome, NvmlUnavailable):
            raise outcome
        return outcome

    def _scan(self, answers: str) -> NvmlReading | NvmlUnavailable:
        self._fake.answer(answers)
        if self._supervisor is None:
            self._supervisor = NvmlSupervisor(self._library)
        # The child stays, the machine changes: carry no lost GPU over.
        self._supervisor._last_good = None
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NODETOPO_FAKE_NVML", str(self._fake.directory))
            try:
                return self._supervisor.scan()
            except NvmlUnavailable as error:
                self.close()  # it would delay its next attempt
                return error

    def close(self) -> None:
        """End the process that reads NVML."""
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None

    @contextmanager
    def changed(
        self, base: str, removed: Iterable[str], entries: Iterable[Entry]
    ) -> Iterator[Path]:
        """Lend the host root of *base*, without matches of *removed* and with *entries*."""
        root = self._home / base
        if not root.exists():
            unpack((NODES / base / "sysfs.txt").read_text("utf-8"), root)
        with ExitStack() as undo:
            for name in removed:
                undo.enter_context(without(root, name))
            for entry in entries:
                undo.enter_context(_put(root, entry))
            yield root


@contextmanager
def without(root: Path, name: str) -> Iterator[None]:
    """Move the matches of the pattern *name* out of *root* for a while."""
    matches = list(root.glob(name))
    assert matches, f"{name} is not there to be removed"
    with ExitStack() as undo:
        for path in matches:
            undo.enter_context(_aside(root, path))
        yield


@contextmanager
def _aside(root: Path, path: Path) -> Iterator[None]:
    with tempfile.TemporaryDirectory(dir=root.parent) as aside:
        away = path.rename(Path(aside, "moved"))
        yield
        away.rename(path)


@contextmanager
def _put(root: Path, entry: Entry) -> Iterator[None]:
    """Write *entry* below *root* for a while; a file or link in its place comes back after."""
    place = root / entry.path
    is_directory = entry.content is None and entry.target is None
    with ExitStack() as undo:
        if not is_directory and os.path.lexists(place):
            undo.enter_context(_aside(root, place))
        if not os.path.lexists(place):
            missing = [path for path in (place, *place.parents) if not os.path.lexists(path)]
            undo.callback(_remove, missing[-1])
        if is_directory:
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            if entry.target is not None:
                place.symlink_to(entry.target)
            else:
                place.write_bytes(entry.content or b"")
        yield


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
