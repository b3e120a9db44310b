"""From a description to texts, through the real library bindings, to the bundled snapshot."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.machines import bundled
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.matrix import matrix
from scripts.generators import compose, snapshots
from scripts.generators.registry import hint
from tests.captured import CAPTURED
from tests.compose.answers import with_answers, without_answers
from tests.compose.machine import Machine
from tests.compose.machines import machines
from tests.conftest import NODES

COMPOSED = {machine.shape: machine for machine in machines()}
SCANNED: dict[str, Snapshot] = {}

each_machine = pytest.mark.parametrize("machine", machines(), ids=lambda machine: machine.shape)


@pytest.fixture(params=sorted(COMPOSED))
def node_dir(request: pytest.FixtureRequest) -> Path:
    """Return the directory of each composed machine in turn."""
    return NODES / str(request.param)


@pytest.fixture
def scanned(
    node_dir: Path,
    fake_nvml_library: Path,
) -> Snapshot:
    """The agent's scan of each machine, made once."""
    if node_dir.name not in SCANNED:
        machine = COMPOSED[node_dir.name]
        SCANNED[node_dir.name] = snapshots.scanned(machine, fake_nvml_library)
    return SCANNED[node_dir.name]


def test_the_stored_snapshots_of_a_machine_are_its_scan(scanned: Snapshot, node_dir: Path) -> None:
    made = snapshots.of_machine(COMPOSED[node_dir.name], with_answers(scanned))
    for path, text in made.items():
        assert path.read_text("utf-8") == text, hint("snapshots")


def test_the_scan_of_a_machine_is_its_description(scanned: Snapshot, node_dir: Path) -> None:
    described = COMPOSED[node_dir.name].snapshot
    assert scanned == replace(without_answers(described), provenance=None)


def test_every_bundled_machine_was_composed_or_captured_here() -> None:
    composed = [machine.name for machine in machines() if machine.name]
    captured = [machine.name for machine in CAPTURED]
    assert bundled.names() == tuple(sorted(composed + captured))


@each_machine
def test_the_committed_texts_are_those_of_the_description(machine: Machine) -> None:
    for path, text in compose.texts(machine).items():
        assert path.read_text("utf-8") == text, hint("compose")


@pytest.mark.parametrize(
    ("shape", "gpu0"),
    [
        ("h100x8-nvswitch-2numa-8cx7", "X" + " NV18" * 7 + " PXB NODE NODE NODE SYS SYS SYS SYS"),
        ("v100x8-cubemesh-2numa-4cx4", "X NV1 NV1 NV2 NV2 SYS SYS SYS PIX PHB SYS SYS"),
        ("l40sx4-pcie-2numa", "X NODE SYS SYS"),
        ("v100x16-nvswitch-2numa-8cx", "X" + " NV6" * 15 + " PIX PXB NODE NODE" + " SYS" * 6),
        ("a100x8-nvswitch-8numa-10cx6", "X" + " NV12" * 7 + " PXB PXB" + " SYS" * 10),
        ("a100x4-nv4-4numa-2cx", "X NV4 NV4 NV4 SYS SYS"),
        ("b200x8-nvswitch-2numa-8cx7", "X" + " NV18" * 7 + " PXB NODE NODE NODE SYS SYS SYS SYS"),
        ("gb200x4-nvl72-34numa-4cx7", "X NV18 NV18 NV18" + " NODE" * 4 + " SYS" * 4),
    ],
)
def test_the_matrix_is_the_one_that_such_machines_print(shape: str, gpu0: str) -> None:
    assert " ".join(map(str, matrix(COMPOSED[shape].snapshot).cells[0])) == gpu0
