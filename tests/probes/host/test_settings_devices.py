"""Device nodes beside the GPUs' own."""

import pytest

from nodetopo.probes.host.settings import char_devices, gdrcopy, infiniband_devices
from tests.probes.host.host_parts import HostTree, files_of

GPUS = "dev/\n  nvidia0 =\n  nvidia1 =\n  nvidiactl =\n  nvidia-uvm =\n"


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        (("195:0", "195:1", "195:255"), True),
        (("195:0", "195:255"), False),
        (("195:0", "195:1"), False),
        (("1:3",), False),
    ],
)
def test_every_gpu_and_the_driver_need_a_link(
    links: tuple[str, ...], expected: bool, host_tree: HostTree
) -> None:
    root = host_tree(f"{GPUS}dev/char/\n" + "".join(f"  {link} -> ../x\n" for link in links))
    assert char_devices(files_of(root)) is expected


@pytest.mark.parametrize(("tree", "expected"), [(GPUS, False), ("dev/\n  null =\n", None)])
def test_no_device_links_differ_from_no_gpus(
    tree: str, expected: bool | None, host_tree: HostTree
) -> None:
    assert char_devices(files_of(host_tree(tree))) is expected


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ("dev/infiniband/\n  uverbs0 =\n  rdma_cm =\n", ("rdma_cm", "uverbs0")),
        ("dev/\n  null =\n", ()),
        ("dev/\n", None),
        ("etc/\n", None),
    ],
)
def test_rdma_nodes_are_unknown_where_no_device_is_seen(
    tree: str, expected: tuple[str, ...] | None, host_tree: HostTree
) -> None:
    assert infiniband_devices(files_of(host_tree(tree))) == expected


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ("sys/module/gdrdrv/\ndev/\n  gdrdrv =\n", True),
        ("sys/module/gdrdrv/\ndev/\n  null =\n", False),
        ("sys/module/\ndev/\n  gdrdrv =\n", False),
        ("sys/module/gdrdrv/\ndev/\n", None),
        ("sys/\ndev/\n  gdrdrv =\n", None),
    ],
)
def test_gdrcopy_needs_module_and_node(
    tree: str, expected: bool | None, host_tree: HostTree
) -> None:
    root = host_tree(tree)
    assert gdrcopy(files_of(root / "sys"), files_of(root)) is expected
