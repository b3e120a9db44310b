"""Swap areas and the version of control groups."""

import pytest

from nodetopo.model.host import SwapArea
from nodetopo.probes.host.settings import cgroup_version, swap_areas
from tests.probes.host.host_parts import HostTree, files_of

HEADER = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"


def _areas(*lines: str) -> str:
    return "proc/\n  swaps |\n" + "".join(f"    |{line}\n" for line in (HEADER, *lines))


def test_swap_areas_are_in_bytes(host_tree: HostTree) -> None:
    line = "/swap.img                               file\t\t8388604\t\t12\t\t-2"
    root = host_tree(_areas(line, "/dev/zram0 partition 4 0 100"))
    assert swap_areas(files_of(root / "proc")) == (
        SwapArea(name="/swap.img", size=8388604 * 1024, used=12 * 1024),
        SwapArea(name="/dev/zram0", size=4096, used=0),
    )


def test_a_kernel_without_an_area_has_none(host_tree: HostTree) -> None:
    assert swap_areas(files_of(host_tree(_areas()) / "proc")) == ()


def test_a_kernel_without_swap_is_unknown(host_tree: HostTree) -> None:
    assert swap_areas(files_of(host_tree("proc/\n") / "proc")) is None


def test_a_malformed_swap_area_is_an_issue(host_tree: HostTree) -> None:
    files = files_of(host_tree(_areas("/swap.img file")) / "proc")
    assert swap_areas(files) is None
    assert [issue.reason for issue in files.issues] == ["not a swap area: '/swap.img file'"]


@pytest.mark.parametrize(
    ("tree", "version"),
    [
        ("sys/fs/cgroup/\n  cgroup.controllers = cpu memory\n", 2),
        ("sys/fs/cgroup/cpuset/\nsys/fs/cgroup/unified/\n  cgroup.controllers = x\n", 1),
        ("sys/fs/cgroup/\n", None),
        ("sys/\n", None),
    ],
)
def test_the_cgroup_version_is_known_by_the_root(
    tree: str, version: int | None, host_tree: HostTree
) -> None:
    assert cgroup_version(files_of(host_tree(tree) / "sys")) == version
