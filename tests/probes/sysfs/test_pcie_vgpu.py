"""What config space says of the host of a virtual GPU."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.model.pci import VgpuHost
from nodetopo.probes.sysfs.pcie import PciTree, vgpu_host
from tests.probes.sysfs.pci_tree import GPU_PLACE, TREE, placed

AT = 0xA0
DRIVER = bytes([0, 22]) + b"460.16".ljust(10, b"\0") + b"r460_00".ljust(10, b"\0")
OTHER = bytes([7, 4, 1, 2])
FOUND = VgpuHost(driver_version="460.16", driver_branch="r460_00")


def space(records: bytes, *, vendor: bytes = b"\xde\x10", signature: bytes = b"VF") -> bytes:
    """Return the config space of a function whose one capability holds *records*."""
    body = signature + records
    config = bytearray(256)
    config[:2] = vendor
    config[0x06] = 0x10  # there is a list of capabilities
    config[0x34] = AT
    config[AT : AT + 3 + len(body)] = bytes([0x09, 0, 3 + len(body)]) + body
    return bytes(config)


@pytest.mark.parametrize(
    "records", [DRIVER, OTHER + DRIVER, OTHER + OTHER + DRIVER + OTHER, DRIVER + DRIVER]
)
def test_the_driver_of_the_host_is_in_the_record_of_number_0(records: bytes) -> None:
    assert vgpu_host(space(records)) == FOUND


@pytest.mark.parametrize(
    "config",
    [
        b"",
        space(DRIVER)[:64],
        space(DRIVER)[: AT + 2],
        space(DRIVER, vendor=b"\x86\x80"),
        space(DRIVER, signature=b"PF"),
        space(b""),
        space(OTHER),
        space(DRIVER[:-1]),
        space(bytes([7, 0]) + DRIVER),
        space(bytes([0, 22]) + bytes(20)),
    ],
)
def test_any_other_bytes_name_no_host(config: bytes) -> None:
    assert vgpu_host(config) is None


def test_bytes_that_are_no_text_are_marked() -> None:
    odd = bytes([0, 22]) + b"46\xff".ljust(10, b"\0") + bytes(10)
    assert vgpu_host(space(odd)) == VgpuHost(
        driver_version="46\N{REPLACEMENT CHARACTER}", driver_branch=""
    )


@given(st.binary(max_size=120))
def test_no_records_make_the_parser_fail_or_hang(records: bytes) -> None:
    found = vgpu_host(space(records[: 256 - AT - 5]))
    assert found is None or len(found.driver_version) <= 10


def test_the_tree_reads_the_host_of_a_vgpu(host_tree: Callable[[str], Path]) -> None:
    root = host_tree(TREE)
    (root / "sys" / GPU_PLACE / "config").write_bytes(space(DRIVER))
    assert placed(PciTree(root / "sys")).facts.vgpu_host == FOUND
