"""What the bytes of a PCI function's config space say (sysfs `config`).

The kernel gives 64 bytes to a reader without CAP_SYS_ADMIN (drivers/pci/pci-sysfs.c,
pci_read_config), 256 for conventional PCI and 4096 for PCI Express. Offsets and fields: PCI
Local Bus Specification 3.0, 6.1 and 6.7, and PCI Express Base Specification, 7.5.3 (PCI Express
Capability) and 7.7.11 (Access Control Services).
"""

from dataclasses import dataclass

from agent.model.pci import BridgeKind

HEADER_BYTES = 64
"""What every reader gets: the header, without the capabilities."""

STANDARD_BYTES = 256
"""Config space without extended capabilities."""

EXPRESS_CAPABILITY = 0x10
ACS_CAPABILITY = 0x000D
ACS_CONTROL = 6
"""From the start of the Access Control Services extended capability."""

_GONE = b"\xff\xff\xff\xff"
"""What reads return for a function that dropped off the bus: no vendor has id ffff."""

_STATUS = 0x06
_HAS_CAPABILITIES = 0x10
_HEADER_TYPE = 0x0E
_BRIDGE_HEADER = 1
_FIRST_CAPABILITY = 0x34
_EXPRESS_FLAGS = 2
_DEVICE_CONTROL = 8
_LARGEST_SIZE_CODE = 5
"""128 << 5 is 4096 bytes; codes 6 and 7 are reserved."""

_KINDS = {
    4: BridgeKind.ROOT_PORT,
    5: BridgeKind.UPSTREAM,
    6: BridgeKind.DOWNSTREAM,
    7: BridgeKind.PCI_BRIDGE,  # PCI Express to PCI
    8: BridgeKind.PCI_BRIDGE,  # PCI to PCI Express
}
"""Device/port type, bits 7:4 of the PCI Express capabilities register."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Express:
    """The PCI Express capability of a function.

    Attributes:
        kind: ``None`` for what is no bridge.
        max_payload, max_read_request: bytes; ``None`` for a reserved code.
        relaxed_ordering: whether the function may ask for it.
    """

    kind: BridgeKind | None
    max_payload: int | None
    max_read_request: int | None
    relaxed_ordering: bool


def express(config: bytes) -> Express | None:
    """Return the PCI Express capability; ``None`` without one, or where it cannot be seen."""
    start = capability(config, EXPRESS_CAPABILITY)
    if start is None or start + _DEVICE_CONTROL + 2 > len(config):
        return None
    flags = _word(config, start + _EXPRESS_FLAGS)
    control = _word(config, start + _DEVICE_CONTROL)
    return Express(
        kind=_KINDS.get(flags >> 4 & 0xF),
        max_payload=_size(control >> 5 & 0x7),
        max_read_request=_size(control >> 12 & 0x7),
        relaxed_ordering=bool(control & 0x10),
    )


def bridge_kind(config: bytes) -> BridgeKind | None:
    """Return what a bridge is; ``None`` where only the header can be read, or for no bridge."""
    found = express(config)
    if found is not None:
        return found.kind
    return BridgeKind.PCI_BRIDGE if _is_conventional_bridge(config) else None


def acs_control(config: bytes) -> int | None:
    """Return a bridge's ACS control register, 0 for a bridge without the capability.

    ``None`` when the extended part could not be read.
    """
    if config[:4] == _GONE:
        return None
    if len(config) <= STANDARD_BYTES:
        return 0 if _is_conventional_bridge(config) else None
    seen: set[int] = set()
    offset = STANDARD_BYTES
    while offset and offset not in seen and offset + 8 <= len(config):
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header & 0xFFFF == ACS_CAPABILITY:
            return _word(config, offset + ACS_CONTROL)
        offset = header >> 20 & 0xFFC
    return 0


def _is_conventional_bridge(config: bytes) -> bool:
    """Tell a bridge of conventional PCI, which has no PCI Express capability at all."""
    return (
        len(config) >= STANDARD_BYTES
        and config[:4] != _GONE
        and config[_HEADER_TYPE] & 0x7F == _BRIDGE_HEADER
        and capability(config, EXPRESS_CAPABILITY) is None
    )


def capability(config: bytes, wanted: int) -> int | None:
    """Return the offset of a capability of the list that starts at 34h (header types 0 and 1).

    ``None`` where *config* is a header only, the function is gone, or has no such capability.
    """
    if len(config) < HEADER_BYTES or config[:4] == _GONE:
        return None
    if not config[_STATUS] & _HAS_CAPABILITIES:
        return None
    seen: set[int] = set()
    offset = config[_FIRST_CAPABILITY] & 0xFC
    while offset >= HEADER_BYTES and offset not in seen and offset + 2 <= len(config):
        seen.add(offset)
        if config[offset] == wanted:
            return offset
        offset = config[offset + 1] & 0xFC
    return None


def _word(config: bytes, offset: int) -> int:
    return int.from_bytes(config[offset : offset + 2], "little")


def _size(code: int) -> int | None:
    return 128 << code if code <= _LARGEST_SIZE_CODE else None
