"""The rules on complexes beside their corpus entries: when they apply, and who else judges."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.gpu import NvidiaDriver
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import HOST, healthy, result
from tests.tools.importers.rdma_topo_text import Function, changed, data_direct, inline, vera
from tests.topology.test_complexes import snapshot

CODES = ("PCI-008", "PCI-009", "GDR-004", "GDR-005")

Machine = tuple[Function, ...]


def bare_metal(machine: Machine) -> Snapshot:
    return replace(snapshot(machine), host=replace(HOST, is_vm=False))


def verdicts(whole: Snapshot) -> dict[str, str]:
    """Return the verdict of each rule, ``skipped`` where it does not apply."""
    found = {code: result(code, whole) for code in CODES}
    return {code: "skipped" if it.skipped else it.verdict.value for code, it in found.items()}


@pytest.mark.parametrize(
    ("machine", "skipped"),
    [
        (data_direct(), {"GDR-005"}),
        (inline(), set()),
        (inline(for_virtual_machines=True), set()),
        (vera(), {"PCI-008", "GDR-004"}),
    ],
    ids=["data-direct", "inline", "inline for virtual machines", "vera"],
)
def test_a_machine_that_is_set_up_well_passes_what_applies_to_it(
    machine: Machine, skipped: set[str]
) -> None:
    assert verdicts(bare_metal(machine)) == {
        code: "skipped" if code in skipped else "pass" for code in CODES
    }


@pytest.mark.parametrize(
    ("machine", "failed"),
    [
        (changed(data_direct(), "0008:02:00.0", acs=0x1D), {"PCI-008": "fail"}),
        (changed(data_direct(), "0002:02:00.0", acs=0), {"PCI-009": "warn"}),
        (changed(data_direct(), "0009:06:00.0", group=3), {"GDR-004": "fail"}),
        (changed(inline(), "0000:00:01.0", acs=0x1D), {"PCI-008": "fail"}),
        (changed(vera(), "0000:03:00.0", ats=True), {"GDR-005": "warn"}),
        (changed(vera(), "0009:01:00.0", group=1), {"PCI-009": "warn"}),
    ],
)
def test_each_fault_is_found_by_one_rule(machine: Machine, failed: dict[str, str]) -> None:
    found = verdicts(bare_metal(machine))
    assert {code: it for code, it in found.items() if it in ("fail", "warn")} == failed


@pytest.mark.parametrize("name", ["dgx-h100", "l40s-pcie-4", "hgx-b200"])
def test_other_machines_are_left_to_the_general_rules(name: str) -> None:
    assert set(verdicts(healthy(name)).values()) == {"skipped"}


def test_a_virtual_machine_is_left_alone() -> None:
    guest = replace(snapshot(data_direct()), host=replace(HOST, is_vm=True))
    assert set(verdicts(guest).values()) == {"skipped"}


def test_flags_that_data_direct_needs_are_no_detour() -> None:
    """They redirect, which behind any other switch would be a fault of PCI-005."""
    whole = bare_metal(data_direct())
    assert result("PCI-005", whole).verdict is Verdict.PASS
    port = PciAddress.parse("0008:02:03.0")
    elsewhere = tuple(
        replace(it, vendor="1000", device="c030") if it.address == port else it
        for it in whole.bridges or ()
    )
    assert result("PCI-005", replace(whole, bridges=elsewhere)).verdict is Verdict.FAIL


def test_a_driver_that_does_not_look_at_groups_needs_none() -> None:
    whole = bare_metal(changed(data_direct(), "0009:06:00.0", group=3))
    driver = NvidiaDriver(parameters={"GrdmaPciTopoCheckOverride": "1"})
    assert result("GDR-004", whole).verdict is Verdict.FAIL
    assert result("GDR-004", replace(whole, nvidia=driver)).verdict is Verdict.PASS


def test_without_a_register_nothing_is_judged() -> None:
    whole = bare_metal(data_direct())
    hidden = tuple(replace(it, acs_control=None, acs_capability=None) for it in whole.bridges or ())
    found = result("PCI-008", replace(whole, bridges=hidden))
    assert found.verdict is Verdict.UNKNOWN
    assert found.missing[0].startswith("ACS control (read as root) of 0008:00:00.0")
    assert result("PCI-009", replace(whole, bridges=hidden)).verdict is Verdict.UNKNOWN
