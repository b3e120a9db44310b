"""Captured machines: what the agent finds in their files, and what other programs printed there."""

import re
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from nodetopo.cli.output import style
from nodetopo.cli.topo.rows import text
from nodetopo.components.labels.catalogue import labels
from nodetopo.model.codec import encode
from nodetopo.nccl.xml import topology_xml
from nodetopo.probes.discover import Roots, discover
from nodetopo.probes.nvml.supervisor import NvmlSupervisor
from nodetopo.tools.capture.archive import unpack
from nodetopo.tools.importers.topo_m import parse_topo_m
from nodetopo.topology.matrix import matrix
from scripts.generators.registry import hint
from tests.captured import CAPTURED, Captured

each = pytest.mark.parametrize("machine", CAPTURED, ids=lambda machine: machine.name)


@each
def test_the_scan_of_the_raw_files_is_the_snapshot_that_was_captured_with_them(
    machine: Captured, tmp_path: Path, fake_nvml_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODETOPO_FAKE_NVML", str(machine.directory))
    unpack((machine.directory / "sysfs.txt").read_text("utf-8"), tmp_path)
    roots = Roots(sysfs=tmp_path / "sys", procfs=tmp_path / "proc", host=tmp_path)
    live, supervisor = machine.snapshot, NvmlSupervisor(fake_nvml_library)
    try:
        found = discover(roots, supervisor.scan, node=live.node, captured_at=live.captured_at)
    finally:
        supervisor.close()
    assert encode(found) == (machine.directory / "snapshot.json").read_text("utf-8")


@each
def test_the_bundled_snapshot_is_the_captured_one_with_its_provenance(machine: Captured) -> None:
    stored = files("nodetopo.machines").joinpath(f"{machine.name}.json")
    assert stored.read_text("utf-8") == encode(machine.bundled), hint("snapshots")


@each
def test_the_matrix_has_every_cell_and_column_that_nvidia_smi_printed(machine: Captured) -> None:
    printed = re.sub(r"\x1b\[[0-9;]*m", "", machine.peer("nvidia-smi-topo-m.txt"))
    table, _, _ = printed.partition("Legend:")
    snapshot = machine.snapshot
    ours = text(matrix(snapshot), snapshot, style(no_color=True))
    assert [line.split() for line in ours.splitlines()] == [
        line.split() for line in table.splitlines() if line.strip()
    ]
    assert matrix(parse_topo_m(printed)).cells == matrix(snapshot).cells


def test_every_label_that_gpu_feature_discovery_wrote_has_the_same_value_here() -> None:
    machine = CAPTURED[0]
    theirs = dict(line.split("=", 1) for line in machine.peer("gfd-labels.txt").splitlines())
    ours = labels(machine.snapshot)
    assert {key: ours.get(key) for key in theirs} == theirs
    assert len(theirs) == 25
    others = {key for key in ours.keys() - theirs.keys() if key.startswith("nvidia.com/")}
    assert others == {"nvidia.com/nvswitch.present"}


@each
def test_our_nccl_topology_says_what_nccl_found_but_where_sysfs_is_silent(
    machine: Captured,
) -> None:
    theirs = ET.fromstring(machine.peer("nccl-dump.xml"))
    ours = ET.fromstring(topology_xml(machine.snapshot))
    differing = {
        name: (element.get(name), value)
        for tag in ("cpu", "cpu/pci", "cpu/pci/gpu")
        for element, other in [(_only(ours, tag), _only(theirs, tag))]
        for name, value in other.items()
        if element.get(name) != value
    }
    assert differing == {
        "numaid": ("0", "-1"),  # sysfs gives the GPU no node, and there is only one
        "link_width": ("16", "0"),  # NCCL takes the port's, and the host bridge has none
        "host_hash": (None, "0x0"),  # of the run, as are the next two
        "rank": (None, "0"),
        "gdr": (None, "1"),
    }


def _only(root: ET.Element, path: str) -> ET.Element:
    (found,) = root.findall(path)
    return found
