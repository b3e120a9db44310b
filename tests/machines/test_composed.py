"""From a description to texts, through the real library bindings, to the bundled snapshot."""

from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from agent.machines import bundled
from agent.model.codec import decode, encode
from agent.model.snapshot import Snapshot
from agent.topology.matrix import matrix
from tests.captured import CAPTURED
from tests.compose.answers import with_answers, without_answers
from tests.compose.machine import Machine
from tests.compose.machines import machines
from tests.compose.nvml import nvml_text
from tests.compose.sysfs import host_text, sysfs_text, unpack_whole
from tests.conftest import NODES
from tests.machines.pipeline import scan

COMPOSED = {machine.shape: machine for machine in machines()}
SCANNED: dict[str, Snapshot] = {}

each_machine = pytest.mark.parametrize("machine", machines(), ids=lambda machine: machine.shape)
each_bundled = pytest.mark.parametrize(
    "machine",
    [machine for machine in machines() if machine.name is not None],
    ids=lambda machine: machine.name,
)


@pytest.fixture(params=sorted(COMPOSED))
def node_dir(request: pytest.FixtureRequest) -> Path:
    """Return the directory of each composed machine in turn."""
    return NODES / str(request.param)


@pytest.fixture
def scanned(
    node_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
    fake_nvml_library: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Snapshot:
    """The agent's scan of each machine, made once."""
    if node_dir.name not in SCANNED:
        root = tmp_path_factory.mktemp("whole")
        unpack_whole(node_dir, root)
        name = COMPOSED[node_dir.name].name or node_dir.name
        SCANNED[node_dir.name] = scan(node_dir, root, fake_nvml_library, monkeypatch, node=name)
    return SCANNED[node_dir.name]


def test_the_scan_of_a_machine_is_its_golden_snapshot(
    scanned: Snapshot,
    node_dir: Path,
    update_golden: bool,
) -> None:
    golden = node_dir / "snapshot.json"
    if update_golden:
        golden.write_text(encode(with_answers(scanned)), "utf-8")
    assert encode(with_answers(scanned)) == golden.read_text("utf-8")


def test_the_scan_of_a_machine_is_its_description(scanned: Snapshot, node_dir: Path) -> None:
    described = COMPOSED[node_dir.name].snapshot
    assert scanned == replace(without_answers(described), provenance=None)


@each_bundled
def test_the_bundled_snapshot_is_the_golden_one_with_its_provenance(
    machine: Machine,
    update_golden: bool,
) -> None:
    golden = Path(__file__).parents[1] / "nodes" / machine.shape / "snapshot.json"
    expected = replace(
        decode(golden.read_text("utf-8")).snapshot,
        provenance=machine.snapshot.provenance,
    )
    stored = files("agent.machines").joinpath(f"{machine.name}.json")
    if update_golden:
        Path(str(stored)).write_text(encode(expected), "utf-8")
    assert stored.read_text("utf-8") == encode(expected)


def test_every_bundled_machine_was_composed_or_captured_here() -> None:
    composed = [machine.name for machine in machines() if machine.name]
    captured = [machine.name for machine in CAPTURED]
    assert bundled.names() == tuple(sorted(composed + captured))


TEXTS = [("sysfs.txt", sysfs_text), ("host.txt", host_text), ("nvml.txt", nvml_text)]


@each_machine
@pytest.mark.parametrize(("name", "text"), TEXTS)
def test_the_committed_texts_are_those_of_the_description(
    machine: Machine,
    name: str,
    text: Callable[[Machine], str],
) -> None:
    committed = Path(__file__).parents[1] / "nodes" / machine.shape / name
    assert committed.read_text("utf-8") == text(machine), "run `python -m tests.compose`"


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
