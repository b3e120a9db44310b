"""NCCL's figures, against those of its own headers."""

import pytest

from nodetopo.model.gpu import C2c, Gpu
from nodetopo.model.numa import CpuSet, CpuTopology
from nodetopo.model.pci import PcieLink
from nodetopo.nccl import bandwidth


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((5, 2), 20.0),
        ((6, 0), 18.0),
        ((7, 0), 20.0),
        ((8, 0), 20.0),
        ((8, 6), 12.0),
        ((8, 9), 20.0),
        ((9, 0), 20.6),
        ((10, 0), 40.1),
        ((12, 1), 40.1),
        (None, bandwidth.UNKNOWN),
    ],
)
def test_a_link_carries_what_its_generation_does(
    capability: tuple[int, int] | None,
    expected: float,
) -> None:
    assert bandwidth.nvlink(Gpu(index=0, compute_capability=capability)) == expected


@pytest.mark.parametrize(
    ("generation", "expected"),
    [(1, 3.0), (2, 6.0), (3, 12.0), (4, 24.0), (5, 48.0), (6, 96.0), (7, 12.0), (None, 12.0)],
)
def test_sixteen_lanes_by_generation_the_unknown_as_the_third(
    generation: int | None,
    expected: float,
) -> None:
    assert bandwidth.pcie((PcieLink(max_generation=generation, max_width=16),)) == expected


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((PcieLink(max_generation=5, max_width=16), PcieLink(max_generation=4, max_width=8)), 12.0),
        ((PcieLink(max_generation=4, max_width=8), None), 12.0),
        ((None, PcieLink()), 12.0),
        ((None, None), bandwidth.UNKNOWN),
        ((PcieLink(generation=1, max_generation=5, max_width=16),), 48.0),
        ((PcieLink(generation=4, width=8),), 12.0),
        ((PcieLink(max_generation=4, max_width=0),), 24.0),
    ],
)
def test_a_link_runs_at_the_best_of_its_weaker_end(
    ends: tuple[PcieLink | None, ...],
    expected: float,
) -> None:
    assert bandwidth.pcie(ends) == expected


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(400.0, 50.0), (0.0, 1.25), (-1.0, 1.25), (None, bandwidth.UNKNOWN)],
)
def test_a_port_without_a_speed_counts_as_ten_gigabits(
    rate: float | None,
    expected: float,
) -> None:
    assert bandwidth.port(rate) == expected


def cpu(vendor: str | None, family: int | None = None, model: int | None = None) -> CpuTopology:
    """A CPU with nothing but its make."""
    return CpuTopology(online=CpuSet(), vendor=vendor, family=family, model_number=model)


@pytest.mark.parametrize(
    ("machine", "made", "expected"),
    [
        ("x86_64", cpu("AuthenticAMD", 25, 1), 16.0),
        ("x86_64", cpu("GenuineIntel", 6, 0x4F), 6.0),
        ("x86_64", cpu("GenuineIntel", 6, 0x55), 10.0),
        ("x86_64", cpu("GenuineIntel", 6, 0x8F), 22.0),
        ("x86_64", cpu("GenuineIntel", 6, 0xCF), 40.0),
        ("x86_64", cpu("GenuineIntel", 19, 1), 6.0),
        ("x86_64", cpu("GenuineIntel"), bandwidth.UNKNOWN),
        ("x86_64", cpu("CentaurHauls", 7, 0x3B), 6.0),
        ("x86_64", cpu("  Shanghai  ", 7, 0x5B), 9.0),
        ("x86_64", cpu("HygonGenuine", 24, 1), 5000.0),
        ("aarch64", None, 6.0),
        ("ppc64le", cpu("IBM"), 32.0),
        (None, cpu("AuthenticAMD"), 16.0),
        ("x86_64", cpu(None), bandwidth.UNKNOWN),
        (None, None, bandwidth.UNKNOWN),
    ],
)
def test_sockets_are_joined_as_their_make_joins_them(
    machine: str | None,
    made: CpuTopology | None,
    expected: float,
) -> None:
    assert bandwidth.between_cpus(machine, made) == expected


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        (C2c(is_enabled=True, links=10, speed_mbps=44712), 447.12),
        (C2c(is_enabled=True, links=10), bandwidth.UNKNOWN),
        (C2c(is_enabled=True), bandwidth.UNKNOWN),
    ],
)
def test_all_c2c_links_count_together(link: C2c, expected: float) -> None:
    assert bandwidth.c2c(link) == expected
