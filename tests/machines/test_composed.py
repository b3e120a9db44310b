"""From a description to texts, through the real library bindings, to the bundled snapshot."""

from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from agent.model.codec import decode, encode
from agent.model.snapshot import Snapshot
from agent.probes.discover import Roots, discover
from agent.probes.nvml_supervisor import NvmlSupervisor
from agent.topology.matrix import matrix
from tests.compose.machine import Machine
from tests.compose.machines import machines
from tests.compose.nvml import nvml_text
from tests.compose.parts import CAPTURED_AT
from tests.compose.sysfs import sysfs_text

COMPOSED = {machine.shape: machine for machine in machines()}

each_machine = pytest.mark.parametrize("machine", machines(), ids=lambda machine: machine.name)


@pytest.fixture
def found(
    node_dir: Path,
    unpacked: Callable[[str], Path],
    fake_nvml_library: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Snapshot:
    """Return what the agent finds on the machine of *node_dir*."""
    monkeypatch.setenv("NODETOPO_FAKE_NVML", str(node_dir))
    root = unpacked(node_dir.name)
    roots = Roots(sysfs=root / "sys", procfs=root / "proc", host=root)
    machine = COMPOSED.get(node_dir.name)
    name = machine.name if machine else node_dir.name
    supervisor = NvmlSupervisor(fake_nvml_library)
    try:
        return discover(roots, supervisor.scan, node=name, captured_at=CAPTURED_AT)
    finally:
        supervisor.close()


def test_a_machine_is_found_as_its_golden_snapshot_says(
    found: Snapshot,
    node_dir: Path,
    update_golden: bool,
) -> None:
    golden = node_dir / "snapshot.json"
    if update_golden:
        golden.write_text(encode(found), "utf-8")
    assert encode(found) == golden.read_text("utf-8")


def test_a_composed_machine_is_found_as_it_was_described(found: Snapshot, node_dir: Path) -> None:
    described = COMPOSED[node_dir.name].snapshot
    assert found == replace(described, provenance=None)


@each_machine
def test_the_bundled_snapshot_is_the_golden_one_with_its_provenance(
    machine: Machine,
    update_golden: bool,
) -> None:
    golden = Path(__file__).parents[1] / "nodes" / machine.shape / "snapshot.json"
    expected = replace(
        decode(golden.read_text("utf-8")).snapshot,
        provenance=machine.snapshot.provenance,
    )
    bundled = files("agent.machines").joinpath(f"{machine.name}.json")
    if update_golden:
        Path(str(bundled)).write_text(encode(expected), "utf-8")
    assert bundled.read_text("utf-8") == encode(expected)


@each_machine
@pytest.mark.parametrize(("name", "text"), [("sysfs.txt", sysfs_text), ("nvml.txt", nvml_text)])
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
    ],
)
def test_the_matrix_is_the_one_that_such_machines_print(shape: str, gpu0: str) -> None:
    assert " ".join(map(str, matrix(COMPOSED[shape].snapshot).cells[0])) == gpu0
