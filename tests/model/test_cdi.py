"""Which file defines a CDI device."""

import pytest
from msgspec.structs import replace

from nodetopo.model.cdi import CdiFault, CdiRegistry, CdiSpec

KIND = "nvidia.com/gpu"
LOW = CdiSpec(path="/etc/cdi/a.yaml", kind=KIND, devices=("0", "1"))
HIGH = replace(LOW, path="/var/run/cdi/a.yaml", devices=("1", "2"))


def test_a_directory_of_higher_precedence_overrides_devices_one_by_one() -> None:
    found = CdiRegistry((HIGH, LOW))
    assert (found.devices(LOW), found.devices(HIGH)) == (("0",), ("1", "2"))
    assert found.specs(KIND) == (LOW, HIGH)
    turned = CdiRegistry((HIGH, LOW), ("/run/cdi", "/etc/cdi/"))
    assert (turned.devices(LOW), turned.devices(HIGH)) == (("0", "1"), ("2",))


def test_a_device_of_two_files_of_one_directory_is_dropped_whatever_overrides_it() -> None:
    twin = replace(LOW, path="/etc/cdi/b.yaml", devices=("1",))
    found = CdiRegistry((LOW, twin, HIGH))
    assert found.conflict(KIND, "1") == ("/etc/cdi/a.yaml", "/etc/cdi/b.yaml")
    assert found.names(KIND) == ("0", "2")


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (LOW, None),
        (replace(LOW, path="/opt/a.yaml"), "no CDI specification of nvidia.com/gpu"),
        (replace(LOW, error="no devices"), "CDI ignores /etc/cdi/a.yaml: no devices"),
        (replace(LOW, devices=("all",)), "/etc/cdi/a.yaml does not name 0"),
        (replace(LOW, faults=(CdiFault(reason="lacks x"),)), "/etc/cdi/a.yaml lacks x"),
        (replace(LOW, faults=(CdiFault(reason="lacks x", devices=("1",)),)), None),
        (replace(LOW, driver_version="1.2"), "/etc/cdi/a.yaml is of driver 1.2, and 3.4 is loaded"),
        (replace(LOW, driver_version="3.4"), None),
    ],
)
def test_a_fault_of_a_device_says_what_keeps_it_from_containers(
    spec: CdiSpec, fault: str | None
) -> None:
    assert CdiRegistry((spec,)).fault(KIND, "0", "3.4") == fault
