"""Device nodes and majors of a host."""

from pathlib import Path

from nodetopo.model.cdi import HostNode
from nodetopo.probes.host.paths import HostPaths
from tests.probes.host.host_parts import HostTree, files_of


def test_a_device_node_has_its_numbers_and_a_link_to_one_is_none(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/null")
    (tmp_path / "file").touch()
    paths = HostPaths(files_of(Path("/")))
    assert paths.node("/dev/null") == HostNode(exists=True, type="c", numbers=(1, 3))
    assert paths.node(str(tmp_path)) == HostNode(exists=True, type="")
    assert paths.node(f"{tmp_path}/link") == HostNode(exists=True, type="")
    assert paths.node(f"{tmp_path}/file") == HostNode(exists=True)


def test_majors_are_of_character_devices_alone(host_tree: HostTree) -> None:
    lines = ("Character devices:", "  1 mem", "195 nvidia-frontend", "Block devices:", "259 blkext")
    text = "".join(f"    |{line}\n" for line in lines)
    root = host_tree(f"proc/\n  devices |\n{text}")
    paths = HostPaths(files_of(root), files_of(root / "proc"))
    assert paths.major(("nvidia", "nvidia-frontend")) == 195
    assert paths.major(("blkext",)) is None
    assert HostPaths(files_of(root)).major(("mem",)) is None


def test_folders_that_change_with_the_driver_are_remembered_and_no_others(
    host_tree: HostTree,
) -> None:
    paths = HostPaths(files_of(host_tree("usr/bin/\n  x =\nusr/lib/\ntmp/\nrun/\n")))
    for path in ("/usr/bin/x", "/usr/lib/y", "/tmp/nvidia-mps", "/run/nvidia/driver/dev/nvidia0"):
        paths.exists(path)
    assert paths.folders == {"usr/bin", "usr/lib"}
