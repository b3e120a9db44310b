from pathlib import Path

from msgspec.structs import replace

from nodetopo.deviceplugin.nccl_file import NcclHints
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.nccl.container import container_xml
from tests.deviceplugin.machines import node

DGX = node("h100x8-nvswitch-2numa-8cx7")
DIRECTORY = Path("/run/nodetopo/nccl")


def written(host: Path) -> str | None:
    file = host / "run/nodetopo/nccl/virtualTopology.xml"
    return file.read_text("utf-8") if file.exists() else None


def test_the_file_says_what_holds_in_any_container(tmp_path: Path) -> None:
    assert NcclHints(DIRECTORY, host_root=tmp_path).update(DGX) == ()
    assert written(tmp_path) == container_xml(DGX)


def test_a_snapshot_without_gpus_is_no_news(tmp_path: Path) -> None:
    hints = NcclHints(DIRECTORY, host_root=tmp_path)
    hints.update(DGX)
    assert hints.update(replace(DGX, gpus=())) == ()
    assert written(tmp_path) == container_xml(DGX)


def test_gpus_that_are_only_remembered_are_no_news(tmp_path: Path) -> None:
    hints = NcclHints(DIRECTORY, host_root=tmp_path)
    hints.update(DGX)
    closed = ProbeIssue(probe="nvml", subject="", reason="closed")
    bare = tuple(replace(gpu, path=None) for gpu in DGX.gpus)
    assert hints.update(replace(DGX, gpus=bare, hcas=(), issues=(closed,))) == ()
    assert written(tmp_path) == container_xml(DGX)


def test_no_file_is_left_that_may_be_wrong(tmp_path: Path) -> None:
    hints = NcclHints(DIRECTORY, host_root=tmp_path)
    hints.update(DGX)
    nowhere = tuple(replace(gpu, path=None) for gpu in DGX.gpus)
    (warning,) = hints.update(replace(DGX, gpus=nowhere, hcas=()))
    assert warning.startswith("no NCCL topology file: there is no GPU and no HCA")
    assert written(tmp_path) is None


def test_a_directory_that_takes_no_file_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("no directory")
    (warning,) = NcclHints(DIRECTORY, host_root=tmp_path).update(DGX)
    assert warning.startswith("NCCL topology file: cannot write")
