"""nvidia-smi's levels from the PCI tree: what the paths of each source can and cannot tell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.model.gpu import Gpu
from nodetopo.model.nvlink import Closeness
from nodetopo.model.pci import PciAddress, PciPath
from nodetopo.topology.path import closeness


def at(
    *hops: int,
    root: str | None = "pci0000:00",
    numa: int | None = 0,
    is_collapsed: bool = False,
    function: int = 0,
) -> Gpu:
    """A device below the bridges on buses *hops*, itself on the last."""
    addresses = [PciAddress(0, bus, 0, 0) for bus in hops]
    addresses[-1] = replace(addresses[-1], function=function)
    path = PciPath(root=root, hops=tuple(addresses), is_collapsed=is_collapsed)
    return Gpu(index=0, path=path, numa_node=numa)


def collapsed(*hops: int, numa: int | None = 0, function: int = 0) -> Gpu:
    """The same in a path of an NCCL XML: one hop for each switch, no root."""
    return at(*hops, root=None, numa=numa, is_collapsed=True, function=function)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        # one switch, two switches one below the other, two switches below a third
        (collapsed(1, 8), collapsed(1, 9), Closeness.PIX),
        (collapsed(1, 2, 8), collapsed(1, 9), Closeness.PXB),
        (collapsed(1, 2, 8), collapsed(1, 3, 9), Closeness.PXB),
        # no switch in common, or none given: PHB as for NCCL, which has no NODE; across nodes SYS
        (collapsed(1, 8), collapsed(2, 9), Closeness.PHB),
        (collapsed(8), collapsed(9), Closeness.PHB),
        (collapsed(8, numa=None), collapsed(9, numa=None), Closeness.PHB),
        (collapsed(1, 8), collapsed(2, 9, numa=1), Closeness.SYS),
        (collapsed(1, 8, numa=None), collapsed(2, 9, numa=1), None),
        # functions of one device, in either kind of path, also right at the host bridge
        (collapsed(8), collapsed(8, function=1), Closeness.PIX),
        (at(1, 8), at(1, 8, function=1), Closeness.PIX),
        (at(8), at(8, function=1), Closeness.PIX),
        # the same address at two places, as a file by hand may have it
        (collapsed(8), collapsed(8, numa=1), Closeness.SYS),
        # paths of two kinds do not compare, but nodes do
        (collapsed(1, 8), at(1, 9), None),
        (collapsed(1, 8), at(1, 9, numa=1), Closeness.SYS),
        # a source that names no root but every port
        (at(1, 2, 3, 8, root=None), at(1, 2, 4, 9, root=None), Closeness.PIX),
        (at(1, 8, root=None), at(2, 9, root=None), None),
    ],
)
def test_a_level_is_told_only_where_the_path_shows_it(
    a: Gpu,
    b: Gpu,
    expected: Closeness | None,
) -> None:
    assert (closeness(a, b), closeness(b, a)) == (expected, expected)


BUSES = st.lists(st.integers(1, 3), max_size=4)
DEVICES = st.builds(
    lambda above, numa, root: at(*above, 9, root=root, numa=numa),
    BUSES,
    st.sampled_from((0, 1, None)),
    st.sampled_from(("pci0000:00", "pci0000:80")),
)


def reference(a: Gpu, b: Gpu) -> Closeness | None:
    """The sysfs rule word for word: look for the deepest bridge that both paths contain."""
    assert a.path is not None
    assert b.path is not None
    one, two = [(gpu.path.root, *gpu.path.hops[:-1]) for gpu in (a, b) if gpu.path]
    common = max(depth for depth in range(len(one) + 1) if one[:depth] == two[:depth])
    if common == 0:
        if None in (a.numa_node, b.numa_node):
            return None
        return Closeness.NODE if a.numa_node == b.numa_node else Closeness.SYS
    if common == 1:
        return Closeness.PHB
    deepest = max(len(one), len(two)) + 1 - common
    return Closeness.PIX if deepest <= 2 else Closeness.PXB


@given(DEVICES, DEVICES)
def test_the_levels_are_those_of_the_deepest_common_bridge(a: Gpu, b: Gpu) -> None:
    assert a.path is not None
    other = replace(a.path.hops[-1], bus=10)
    b = replace(b, path=b.path and replace(b.path, hops=(*b.path.hops[:-1], other)))
    assert closeness(a, b) == closeness(b, a) == reference(a, b)
