"""HCAs of the NVLink fabric are kept apart from those for jobs."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.probes.sysfs.rdma_host import IB, ROCE, RdmaHost, vpd

MARKED = vpd(VA="MLX:MN=MLNX:SMDL=SW_MNG:PCI=V0")
PLAIN = vpd(VA="MLX:MN=MLNX:PCI=V0", SN="MT2314XZ0JUZ")
GPU = {"vendor": "0x10de", "device": "0x2901", "class": "0x030200"}
NVSWITCH = {"vendor": "0x10de", "device": "0x22a3", "class": "0x068000"}


@pytest.fixture
def host(tmp_path: Path) -> RdmaHost:
    """A `/sys` with a GPU."""
    host = RdmaHost(tmp_path)
    host.function("e1", **GPU)
    return host


def add(host: RdmaHost, name: str, bus: str, content: bytes, **files: str) -> None:
    """Add an InfiniBand HCA with VPD."""
    hca = host.hca(name, host.function(bus, vpd=content, **files))
    host.port(hca, 1, IB)


def split(host: RdmaHost) -> tuple[list[str], list[str]]:
    """Return the names of the HCAs for jobs, and of those of the fabric."""
    reading = host.read()
    return (
        [hca.name for hca in reading.hcas or ()],
        [hca.name for hca in reading.management_hcas or ()],
    )


@pytest.fixture
def unreadable_vpd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse VPD as the kernel does to all but root."""
    open_file = os.open

    def refuse(path: Any, *args: Any, **more: Any) -> int:
        if str(path).endswith("/vpd"):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return open_file(path, *args, **more)

    monkeypatch.setattr(os, "open", refuse)


def test_vpd_marks_the_hcas_of_the_fabric(host: RdmaHost) -> None:
    add(host, "mlx5_0", "41", MARKED)
    add(host, "mlx5_1", "42", PLAIN)
    assert split(host) == (["mlx5_1"], ["mlx5_0"])
    assert host.read().issues == ()


@pytest.mark.parametrize("files", [{"vendor": "0x14e4"}, {"device": "0x1023"}])
def test_only_the_vpd_of_connectx_7_is_read(host: RdmaHost, files: dict[str, str]) -> None:
    add(host, "mlx5_0", "41", MARKED, **files)
    assert split(host) == (["mlx5_0"], [])


def test_a_machine_that_shows_its_nvswitches_manages_them_directly(host: RdmaHost) -> None:
    host.function("f1", **NVSWITCH)
    add(host, "mlx5_0", "41", MARKED)
    assert split(host) == (["mlx5_0"], [])


def test_a_machine_without_gpus_has_no_nvlink(tmp_path: Path) -> None:
    host = RdmaHost(tmp_path / "sys")
    add(host, "mlx5_0", "41", MARKED)
    assert split(host) == (["mlx5_0"], [])


@pytest.mark.usefixtures("unreadable_vpd")
def test_without_vpd_all_are_for_jobs_and_one_issue_says_which_may_not_be(host: RdmaHost) -> None:
    add(host, "mlx5_0", "41", MARKED)
    add(host, "mlx5_1", "42", PLAIN)
    assert split(host) == (["mlx5_0", "mlx5_1"], [])
    assert [(issue.subject, issue.reason) for issue in host.read().issues] == [
        (
            "HCAs mlx5_0, mlx5_1",
            "VPD cannot be read, so they may belong to the NVLink fabric and not to jobs",
        ),
    ]


@pytest.mark.usefixtures("unreadable_vpd")
def test_without_vpd_an_ethernet_adapter_is_for_jobs_for_sure(host: RdmaHost) -> None:
    host.port(host.hca("mlx5_0", host.function("41", vpd=MARKED)), 1, ROCE)
    assert split(host) == (["mlx5_0"], [])
    assert host.read().issues == ()
