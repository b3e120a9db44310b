"""What is wrong with complexes: as rdma_topo's ``check`` says of the same dumps, and in words."""

import pytest

from nodetopo.topology.complex_faults import Fault, Unread, faults
from nodetopo.topology.complexes import complexes
from tests.tools.importers.rdma_topo_text import Function, changed, data_direct, inline, vera
from tests.topology.test_complexes import snapshot

Machine = tuple[Function, ...]


@pytest.mark.parametrize(
    "machine",
    [data_direct(), inline(), inline(for_virtual_machines=True), vera(), vera(ports=1)],
    ids=["data-direct", "inline", "inline for virtual machines", "vera", "vera, one port"],
)
def test_a_machine_that_is_set_up_well_has_none(machine: Machine) -> None:
    assert list(faults(complexes(snapshot(machine)))) == []


@pytest.mark.parametrize(
    ("machine", "fault"),
    [
        (
            changed(data_direct(), "0008:02:00.0", acs=0x1D),
            Fault(
                subject="ConnectX switch port 0008:02:00.0, to Data Direct",
                observed="ACS control 0011101: has request redirect",
                expected="xx110x1",
            ),
        ),
        (
            changed(data_direct(), "0008:02:03.0", acs=0),
            Fault(
                subject="ConnectX switch port 0008:02:03.0, to the GPU",
                observed="ACS control 0000000: lacks source validation, request redirect, upstream "
                "forwarding",
                expected="xx101x1",
            ),
        ),
        (
            changed(data_direct(), "0008:02:03.0", acs=None),
            Fault(
                subject="ConnectX switch port 0008:02:03.0, to the GPU",
                observed="ACS control 0000000: lacks source validation, request redirect, upstream "
                "forwarding (it has no ACS)",
                expected="xx101x1",
            ),
        ),
        (
            changed(data_direct(), "0000:00:00.0", acs=0),
            Fault(
                subject="Grace root port 0000:00:00.0, elsewhere",
                observed="ACS control 0000000: lacks source validation, request redirect, "
                "completion redirect, upstream forwarding",
                expected="xx111x1",
            ),
        ),
        (
            changed(data_direct(), "0008:06:00.0", group=7),
            Fault(
                subject="Data Direct 0008:03:00.0 and GPU0 0008:06:00.0",
                observed="IOMMU groups 100 and 7",
                expected="one group",
            ),
        ),
        (
            changed(inline(), "0000:05:00.0", group=None),
            Fault(
                subject="mlx5_0 0000:05:00.0 and GPU0 0000:08:00.0",
                observed="IOMMU groups none and 0",
                expected="one group, or none",
            ),
        ),
        (
            changed(inline(for_virtual_machines=True), "0000:05:00.0", group=9),
            Fault(
                subject="mlx5_0 0000:05:00.0 and GPU0 0000:08:00.0",
                observed="share IOMMU group 9",
                expected="a group of their own",
            ),
        ),
        (
            changed(vera(), "0008:01:00.0", group=None),
            Fault(
                subject="GPU0 0008:01:00.0",
                observed="no IOMMU group",
                expected="a group of its own",
            ),
        ),
        (
            changed(vera(), "0000:03:00.0", ats=True),
            Fault(subject="mlx5_0 0000:03:00.0", observed="has ATS", expected="ATS off"),
        ),
        (
            changed(inline(), "0001:05:00.0", ats=True),
            Fault(
                subject="mlx5_1",
                observed="ATS, which the other HCAs of the node have not",
                expected="ATS on all of them, for virtual machines, or on none",
            ),
        ),
    ],
)
def test_what_is_wrong_is_named(machine: Machine, fault: Fault) -> None:
    assert list(faults(complexes(snapshot(machine)))) == [fault]


def test_an_adapter_with_another_setting_than_the_use_asked_for_is_named() -> None:
    found = complexes(snapshot(inline()), for_virtual_machines=True)
    assert [it.expected for it in faults(found) if isinstance(it, Fault)][-2:] == ["ATS on"] * 2


def test_no_iommu_suits_bare_metal_behind_one_switch_but_not_data_direct() -> None:
    bare = tuple(changed((it,), it.address, group=None)[0] for it in inline())
    assert list(faults(complexes(snapshot(bare)))) == []
    direct = tuple(changed((it,), it.address, group=None)[0] for it in data_direct())
    assert {it.observed for it in faults(complexes(snapshot(direct))) if isinstance(it, Fault)} == {
        "IOMMU groups none and none"
    }


def test_what_could_not_be_read_is_not_judged() -> None:
    hidden = tuple(changed((it,), it.address, ats=None)[0] for it in data_direct())
    found = list(faults(complexes(snapshot(hidden))))
    assert Unread("ACS control (read as root)", "0008:02:00.0") in found
    assert not any(isinstance(it, Fault) for it in found)
    silent = changed(vera(), "0000:03:00.0", ats=None)
    assert list(faults(complexes(snapshot(silent)))) == [
        Unread("ATS capability (read as root)", "mlx5_0")
    ]
