"""`nodetopo doctor` and the hardware of single nodes: snapshots, and the node it runs on."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.codec import encode
from tests.cli.conftest import Cli
from tests.cli.doctor_input import written
from tests.tools.cluster.examined import IN_A, nodes, owned
from tests.tools.cluster.labelled import CLIQUE, CLUSTER, PARTITION, labelled, with_labels

SHAPES = Path(__file__).parents[1] / "nodes"
TRAY = "gb200x4-nvl72-34numa-4cx7"
FRESH = owned(labelled("n0", "gb200-nvl72", IN_A))
STALE = with_labels(FRESH, {PARTITION: f"{CLUSTER}.9", CLIQUE: f"{CLUSTER}.9"})


def test_a_snapshot_that_contradicts_a_label_fails(cli: Cli, tmp_path: Path) -> None:
    snapshot = tmp_path / "n0.json"
    snapshot.write_text(encode(replace(machine("gb200-nvl72"), node="n0")))
    arguments = ("--only", "nvlink", "--node-snapshot", str(snapshot))
    assert cli("doctor", "--nodes", written(tmp_path, (FRESH, *nodes()[1:])), *arguments).code == 0
    file = written(tmp_path, (STALE, *nodes()[1:]))
    assert cli("doctor", "--nodes", file, "--only", "nvlink").code == 0
    outcome = cli("doctor", "--nodes", file, *arguments)
    assert outcome.code == 1
    assert f"observed {CLUSTER}.9" in outcome.out


@pytest.fixture
def tray_here(
    fake_nvml_library: Path, unpacked: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the live node be a tray of an NVL72 rack."""
    host = unpacked(TRAY)
    for name, value in {
        "FAKE_NVML": SHAPES / TRAY,
        "NVML_LIBRARY": fake_nvml_library,
        "SYSFS_ROOT": host / "sys",
        "PROCFS_ROOT": host / "proc",
        "HOST_ROOT": host,
        "NODE_NAME": "n0",
    }.items():
        monkeypatch.setenv(f"NODETOPO_{name}", str(value))


@pytest.mark.usefixtures("tray_here")
def test_the_live_node_is_held_against_its_labels(cli: Cli, tmp_path: Path) -> None:
    arguments = ("--only", "nvlink", "--live")
    assert cli("doctor", "--nodes", written(tmp_path, (FRESH, *nodes()[1:])), *arguments).code == 0
    file = written(tmp_path, (STALE, *nodes()[1:]))
    outcome = cli("doctor", "--nodes", file, *arguments)
    assert outcome.code == 1
    assert outcome.out.count(f"observed {CLUSTER}.9") == 2


@pytest.mark.usefixtures("tray_here")
def test_a_live_node_without_nvml_proves_nothing(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODETOPO_NVML_LIBRARY", "/nowhere")
    file = written(tmp_path, nodes())
    outcome = cli("doctor", "--nodes", file, "--only", "nvlink", "--live")
    assert outcome.code == 3
    assert "what NVML says of the fabric of n0" in outcome.out


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (None, "does not say of which node it is"),
        ("other", "is of 'other', none of the nodes"),
    ],
)
def test_a_snapshot_of_no_node_is_refused(
    cli: Cli, tmp_path: Path, node: str | None, said: str
) -> None:
    snapshot = tmp_path / "it.json"
    snapshot.write_text(encode(replace(machine("dgx-h100"), node=node)))
    file = written(tmp_path, nodes())
    outcome = cli("doctor", "--nodes", file, "--node-snapshot", str(snapshot))
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
