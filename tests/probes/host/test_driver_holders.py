"""Who holds the driver, of a /proc that is a directory."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.model.host import DriverHolder, DriverHolders
from nodetopo.model.node import NodeStatus
from nodetopo.model.operator_labels import MIG_STATE
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.host.driver_holders import driver_holders, with_driver_holders
from tests.probes.process_files import write_process

CONTAINER = "0123456789ab" + "c" * 52


def process(procfs: Path, pid: int, name: str, *targets: str, group: str = "0::/") -> Path:
    place = write_process(procfs, pid, f"/usr/bin/{name}", "--flag", cgroup=f"{group}\n")
    (place / "fd").mkdir()
    for number, target in enumerate(targets):
        (place / "fd" / str(number)).symlink_to(target)
    return place


@pytest.fixture
def procfs(tmp_path: Path) -> Path:
    """Return the processes of a host with a kubelet."""
    process(tmp_path, 10, "kubelet", "/dev/null", "socket:[7]")
    return tmp_path


def test_processes_with_a_node_of_the_driver_are_named_with_their_container(procfs: Path) -> None:
    group = f"0::/kubepods.slice/cri-containerd-{CONTAINER}.scope"
    process(procfs, 20, "dcgm-exporter", "/dev/null", "/dev/nvidia0", group=group)
    process(procfs, 30, "nvidia-persistenced", "/dev/nvidiactl")
    process(procfs, 40, "job", "/dev/nvidia-uvm", "/dev/nvidia-caps/nvidia-cap12")
    process(procfs, 50, "editor", "/home/x/nvidia.txt", "/dev/nvidia-notes")
    assert driver_holders(procfs) == DriverHolders(
        processes=(
            DriverHolder(pid=20, name="dcgm-exporter", container="0123456789ab"),
            DriverHolder(pid=30, name="nvidia-persistenced"),
            DriverHolder(pid=40, name="job"),
        )
    )


def test_processes_whose_files_cannot_be_listed_are_counted(procfs: Path) -> None:
    place = process(procfs, 20, "secretive")
    (place / "fd").rmdir()
    assert driver_holders(procfs) == DriverHolders(unread=1)


def test_a_container_alone_says_nothing_of_the_host(tmp_path: Path) -> None:
    process(tmp_path, 1, "python", "/dev/nvidiactl")
    assert driver_holders(tmp_path) is None


def test_nothing_is_read_unless_a_label_asks_for_the_driver(procfs: Path) -> None:
    quiet = Snapshot(node_status=NodeStatus(labels={MIG_STATE: "success"}))
    assert with_driver_holders(quiet, procfs) is quiet
    asked = replace(quiet, node_status=NodeStatus(labels={MIG_STATE: "pending"}))
    host = with_driver_holders(asked, procfs).host
    assert host is not None
    assert host.driver_holders == DriverHolders()
