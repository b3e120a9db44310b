"""The NVIDIA kernel driver, from procfs and sysfs."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodetopo.model.gpu import NvidiaDriver
from nodetopo.model.pci import PciAddress
from nodetopo.probes.sysfs.kernel import gpu_memory_nodes, read_nvidia_driver

VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023"
HOST = """\
proc/driver/nvidia/
  version |
    |{}
    |GCC version:  gcc version 13.3.0
  params |
    |ResmanDebugLevel: 4294967295
    |EnablePCIERelaxedOrderingMode: 0
    |RegistryDwords: ""
    |GrdmaPciTopoCheckOverride: 1
    |TemporaryFilePath: "/tmp/a: b"
    |no parameter
sys/module/nvidia/
  version = 580.95.05
dev/
"""


def read(root: Path) -> NvidiaDriver:
    """Return what the driver in *root* says."""
    driver, issues = read_nvidia_driver(root / "sys", root / "proc", root)
    assert issues == ()
    assert driver is not None
    return driver


def test_the_driver_is_read_whole(host_tree: Callable[[str], Path]) -> None:
    root = host_tree(
        HOST.format(VERSION)
        + "sys/module/nvidia_peermem/\n  version = 580.95.05\n"
        + "dev/nvidia-caps-imex-channels/\n  channel10 =\n  channel2 =\n  channel0 =\n  other =\n",
    )
    assert read(root) == NvidiaDriver(
        is_open=True,
        parameters={
            "ResmanDebugLevel": "4294967295",
            "EnablePCIERelaxedOrderingMode": "0",
            "RegistryDwords": "",
            "GrdmaPciTopoCheckOverride": "1",
            "TemporaryFilePath": "/tmp/a: b",
        },
        peer_memory=True,
        imex_channels=(0, 2, 10),
    )


def test_the_closed_module_without_peer_memory_and_channels_says_so(
    host_tree: Callable[[str], Path],
) -> None:
    driver = read(host_tree(HOST.format(CLOSED)))
    assert (driver.is_open, driver.peer_memory, driver.imex_channels) == (False, False, ())


@pytest.mark.parametrize("name", ["nv_mem", "nv_mem_nc"])
def test_the_older_peer_memory_modules_count(name: str, host_tree: Callable[[str], Path]) -> None:
    more = f"sys/kernel/mm/memory_peers/{name}/\n  version = 1.3\n"
    assert read(host_tree(HOST.format(VERSION) + more)).peer_memory is True


def test_what_cannot_be_looked_at_is_unknown(host_tree: Callable[[str], Path]) -> None:
    assert read(host_tree("sys/module/nvidia/\n  version = 580\nproc/\n")) == NvidiaDriver(
        peer_memory=False,
    )
    assert read_nvidia_driver(Path("/nowhere"), Path("/nowhere"), Path("/nowhere")) == (None, ())


def test_without_sysfs_peer_memory_is_unknown(host_tree: Callable[[str], Path]) -> None:
    root = host_tree(HOST.format(VERSION))
    driver, _ = read_nvidia_driver(root / "nowhere", root / "proc", root)
    assert driver is not None
    assert driver.peer_memory is None


def test_a_node_without_the_driver_has_none(host_tree: Callable[[str], Path]) -> None:
    root = host_tree("sys/module/\nproc/\ndev/\n")
    assert read_nvidia_driver(root / "sys", root / "proc", root) == (None, ())


def test_the_memory_of_gpus_may_be_nodes(host_tree: Callable[[str], Path]) -> None:
    place = "proc/driver/nvidia/gpus"
    root = host_tree(
        f"{place}/0008:01:00.0/\n  numa_status |\n    |Node:      2\n    |Status:    online\n"
        f"{place}/0009:01:00.0/\n  numa_status |\n    |Node:      -1\n    |Status:    disabled\n"
        f"{place}/0019:01:00.0/\n  information = none\n"
        f"{place}/spare/\n  numa_status = Node: 3\n",
    )
    assert gpu_memory_nodes(root / "proc") == {PciAddress(8, 1, 0, 0): 2}
    assert gpu_memory_nodes(root / "sys") == {}


FILES = ("version", "params", "gpus/0000:1b:00.0/numa_status")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FILES), st.binary(max_size=80)))
def test_no_bytes_in_any_file_break_it(tmp_path: Path, contents: dict[str, bytes]) -> None:
    for name in FILES:
        file = tmp_path / "driver/nvidia" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(contents.get(name, b"Node: "))
    driver, _ = read_nvidia_driver(tmp_path, tmp_path, tmp_path)
    assert driver is not None
    gpu_memory_nodes(tmp_path)
