"""The config space of a PCI function, as far as it is described; real ones are longer.

Offsets and fields: PCI Local Bus Specification 3.0, 6.1, and PCI Express Base Specification,
7.5.3 (PCI Express Capability), 7.7.11 (Access Control Services) and 10.5.1 (Address Translation
Services).
"""

from nodetopo.model.pci import BridgeKind, PciBridge, PciFunction

EXPRESS_AT = 0x40
"""Where we put the PCI Express capability: first of the list."""

_EXPRESS, _ACS, _ATS = 0x10, 0x000D, 0x000F
_PORT_TYPES = {BridgeKind.ROOT_PORT: 4, BridgeKind.UPSTREAM: 5, BridgeKind.DOWNSTREAM: 6}
_ENDPOINT = 0


def of_function(function: PciFunction) -> bytes:
    """Return 256 bytes: a header and the PCI Express capability.

    Behind them follows what is described of address translation, which may be that there is none.
    """
    space = _header(function.vendor, function.device, function.pci_class, is_bridge=False)
    control = _size(function.max_payload) << 5 | _size(function.max_read_request) << 12
    _express(space, _ENDPOINT, control | bool(function.relaxed_ordering) << 4)
    if function.has_ats is None:
        return bytes(space)
    if not function.has_ats:
        return bytes(space) + bytes(8)
    control = bool(function.ats_enabled) << 15
    ats = (1 << 16 | _ATS).to_bytes(4, "little") + bytes(2) + control.to_bytes(2, "little")
    return bytes(space) + ats


def of_bridge(bridge: PciBridge) -> bytes:
    """Return the same of a port, and behind the 256 bytes its ACS capability.

    A port that can do none of it has no such capability. ``None`` gives the 64 bytes
    that a reader without CAP_SYS_ADMIN sees.
    """
    space = _header(bridge.vendor, bridge.device, "060400", is_bridge=True)
    if bridge.kind is not None and bridge.kind in _PORT_TYPES:
        _express(space, _PORT_TYPES[bridge.kind], _size(bridge.max_payload) << 5)
    if bridge.acs_control is None:
        return bytes(space[:64])
    acs = bytes(4)
    if bridge.acs_capability:
        acs = (1 << 16 | _ACS).to_bytes(4, "little") + bridge.acs_capability.to_bytes(2, "little")
        acs += bridge.acs_control.to_bytes(2, "little")
    return bytes(space) + acs


def _header(
    vendor: str | None, device: str | None, pci_class: str | None, *, is_bridge: bool
) -> bytearray:
    space = bytearray(256)
    space[0x00:0x02] = _number(vendor)
    space[0x02:0x04] = _number(device)
    space[0x06] = 0x10  # status: there is a list of capabilities
    space[0x09:0x0C] = bytes.fromhex(pci_class or "000000")[::-1]
    space[0x0E] = int(is_bridge)
    space[0x34] = EXPRESS_AT
    return space


def _express(space: bytearray, port_type: int, control: int) -> None:
    flags = port_type << 4 | 2  # version 2 of the capability
    space[EXPRESS_AT : EXPRESS_AT + 4] = bytes([_EXPRESS, 0, flags, 0])
    space[EXPRESS_AT + 8 : EXPRESS_AT + 10] = control.to_bytes(2, "little")


def _number(hexadecimal: str | None) -> bytes:
    return int(hexadecimal or "0", 16).to_bytes(2, "little")


def _size(size_bytes: int | None) -> int:
    """Return the code of a size: 128 << code bytes."""
    return 0 if size_bytes is None else (size_bytes // 128).bit_length() - 1
