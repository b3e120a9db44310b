"""The snapshot of each composed machine, scanned from its texts, and the bundled machines."""

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from nodetopo.model.codec import encode
from nodetopo.model.snapshot import Snapshot
from scripts.generators.compose import NODES
from tests.captured import CAPTURED
from tests.compose.answers import with_answers
from tests.compose.machine import Machine
from tests.compose.machines import machines
from tests.compose.sysfs import unpack_whole
from tests.fake_nvml import build
from tests.machines.pipeline import scan

_BUNDLED = Path(__file__).parents[2] / "agent" / "nodetopo" / "machines"


def made() -> Mapping[Path, str]:
    """Return every snapshot."""
    texts = {_BUNDLED / f"{one.name}.json": encode(one.bundled) for one in CAPTURED}
    with tempfile.TemporaryDirectory() as directory:
        library = build.library(Path(directory))
        for machine in machines():
            texts |= of_machine(machine, with_answers(scanned(machine, library)))
    return texts


def owned() -> Iterable[Path]:
    """Return the stored snapshots; a captured machine has its own."""
    composed = [NODES / machine.shape / "snapshot.json" for machine in machines()]
    return [*composed, *_BUNDLED.glob("*.json")]


def scanned(machine: Machine, library: Path) -> Snapshot:
    """Return the agent's scan of the stored texts of *machine*, by the fake NVML in *library*."""
    directory, node = NODES / machine.shape, machine.name or machine.shape
    with tempfile.TemporaryDirectory() as root:
        unpack_whole(directory, Path(root))
        return scan(directory, Path(root), library, node=node)


def of_machine(machine: Machine, found: Snapshot) -> Mapping[Path, str]:
    """Return the files of *machine*: its snapshot *found*, and the bundled one if it has a name."""
    texts = {NODES / machine.shape / "snapshot.json": encode(found)}
    if machine.name is not None:
        bundled = replace(found, provenance=machine.snapshot.provenance)
        texts[_BUNDLED / f"{machine.name}.json"] = encode(bundled)
    return texts
