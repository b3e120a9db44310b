"""Config space: what its bytes say of a function and of a bridge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.model.pci import BridgeKind
from nodetopo.probes.sysfs.pci_config import (
    AccessControl,
    Express,
    access_control,
    ats_enabled,
    bridge_kind,
    express,
    has_ats,
)
from tests.probes.sysfs.pci_bytes import EXPRESS_AT, config

GONE = b"\xff" * 4096


@pytest.mark.parametrize(
    ("control", "max_payload", "max_read_request", "relaxed"),
    [
        (0x0000, 128, 128, False),
        (0x2810, 128, 512, True),  # power-on values: relaxed ordering, no snoop, 512 bytes
        (0x2830, 256, 512, True),
        (0x50A0, 4096, 4096, False),
        (0x60C0, None, None, False),
    ],
)
def test_device_control_gives_sizes_and_relaxed_ordering(
    control: int, max_payload: int | None, max_read_request: int | None, relaxed: bool
) -> None:
    assert express(config(control=control)) == Express(
        kind=None,
        max_payload=max_payload,
        max_read_request=max_read_request,
        relaxed_ordering=relaxed,
    )


@pytest.mark.parametrize(
    ("port_type", "kind"),
    [
        (0, None),
        (4, BridgeKind.ROOT_PORT),
        (5, BridgeKind.UPSTREAM),
        (6, BridgeKind.DOWNSTREAM),
        (7, BridgeKind.PCI_BRIDGE),
        (8, BridgeKind.PCI_BRIDGE),
        (9, None),
    ],
)
def test_the_port_type_tells_the_kind_of_a_bridge(port_type: int, kind: BridgeKind | None) -> None:
    assert bridge_kind(config(bridge=True, port_type=port_type)) is kind


def test_a_bridge_without_the_capability_is_one_of_conventional_pci() -> None:
    space = config(bridge=True, port_type=None, size=256)
    assert bridge_kind(space) is BridgeKind.PCI_BRIDGE
    assert access_control(space) == AccessControl(capability=0, control=0)
    assert bridge_kind(config(port_type=None)) is None


@pytest.mark.parametrize("space", [b"", config(bridge=True, port_type=4, size=64), GONE])
def test_what_cannot_be_seen_is_unknown(space: bytes) -> None:
    assert (express(space), bridge_kind(space), access_control(space)) == (None, None, None)
    assert (has_ats(space), ats_enabled(space)) == (None, None)


def test_a_function_without_a_list_of_capabilities_has_none() -> None:
    space = bytearray(config(port_type=4))
    space[0x06] = 0
    assert express(bytes(space)) is None


def test_a_capability_that_is_cut_off_is_unknown() -> None:
    assert express(config(port_type=4, size=EXPRESS_AT + 9)) is None


def test_a_list_that_runs_in_a_circle_ends() -> None:
    space = bytearray(config(port_type=None))
    space[0x41] = 0x40
    assert express(bytes(space)) is None


@pytest.mark.parametrize(
    ("space", "control"),
    [
        (config(bridge=True, port_type=6, acs=0x1D), 0x1D),
        (config(bridge=True, port_type=6, acs=0x01), 0x01),
        (config(bridge=True, port_type=6), 0),
        (config(bridge=True, port_type=6, acs=0x1D, size=256), None),
        (config(bridge=True, port_type=6, acs=0x1D, size=0x14C), 0),  # cut before the register
        (bytes(256) + b"\x01\x00\x01\x10" + bytes(8), 0),  # one that points to itself
        (bytes(256) + b"\xff" * 8, 0),
    ],
)
def test_acs_is_read_from_the_extended_config_space_alone(
    space: bytes, control: int | None
) -> None:
    found = access_control(space)
    assert (None if found is None else found.control) == control


def test_what_a_port_can_do_is_read_beside_what_is_switched_on() -> None:
    able = (1 << 16 | 0x0D).to_bytes(4, "little") + b"\x5f\x00\x1d\x00"
    assert access_control(bytes(256) + able) == AccessControl(capability=0x5F, control=0x1D)
    # Able and switched off is not the same as not able.
    off = able[:6] + bytes(2)
    assert access_control(bytes(256) + off) == AccessControl(capability=0x5F, control=0)


@pytest.mark.parametrize(
    ("behind", "has", "enabled"),
    [
        (b"\x0f\x00\x01\x00\x00\x00\x00\x80", True, True),
        (b"\x0f\x00\x01\x00\x1f\x00\x05\x00", True, False),
        (b"\x01\x00\x01\x10\x00\x00\x00\x80", False, None),
        (b"\x01\x00\x81\x10" + bytes(4) + b"\x0f\x00\x01\x00\x00\x00\x00\x80", True, True),
        (b"", None, None),
    ],
)
def test_address_translation_is_read_from_the_extended_config_space(
    behind: bytes, has: bool | None, enabled: bool | None
) -> None:
    space = bytes(256) + behind
    assert (has_ats(space), ats_enabled(space)) == (has, enabled)


@given(st.binary(max_size=600), st.sampled_from([0, 4, 5, 6]))
def test_no_bytes_break_it(noise: bytes, port_type: int) -> None:
    for space in (noise, config(port_type=port_type, size=64) + noise, noise + GONE):
        express(space)
        bridge_kind(space)
        access_control(space)
        has_ats(space)
        ats_enabled(space)
