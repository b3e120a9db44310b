"""The bytes of a PCI function: its config space (sysfs `config`) and Vital Product Data (`vpd`).

The kernel gives 64 bytes of config space to a reader without CAP_SYS_ADMIN
(drivers/pci/pci-sysfs.c, pci_read_config), 256 for conventional PCI and 4096 for PCI Express.
Offsets and fields: PCI Local Bus Specification 3.0, 6.1 and 6.7, and PCI Express Base
Specification, 7.5.3 (PCI Express Capability), 7.7.11 (Access Control Services) and 10.5.1
(Address Translation Services).

Format of VPD: PCI Local Bus Specification 3.0, appendix I. A large resource is a tag byte with
bit 7 set, a length of two bytes and its data; a small one has its length in bits 2:0 of the tag.
The read-only resource (90h) is a list of keywords: two letters, a length of one byte, a value.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from nodetopo.model.pci import BridgeKind

HEADER_BYTES = 64
"""The part available to every reader: the header, without the capabilities."""

STANDARD_BYTES = 256
"""Config space without extended capabilities."""

EXPRESS_CAPABILITY = 0x10
ACS_CAPABILITY = 0x000D
ACS_ABILITIES, ACS_CONTROL = 4, 6
"""From the start of the Access Control Services extended capability."""

ATS_CAPABILITY = 0x000F
ATS_CONTROL, ATS_ENABLE = 6, 1 << 15
"""From the start of the Address Translation Services extended capability; the enable bit."""

READ_ONLY = 0x90
END = 0x78
"""Tags of VPD resources."""

MAX_VPD_BYTES = 1 << 15
"""VPD has 15 bits of address."""

CHECKSUM = "RV"
"""Checksum and reserved space: bytes, not text."""

MANAGEMENT_FIELD = "SMDL=SW_MNG"
"""The mark of a ConnectX function that belongs to the NVLink fabric.

On HGX B200 and later, NVSwitches are no PCI functions; Fabric Manager reaches them through
ConnectX-7 functions that otherwise look like network adapters. "The LPF VPD information includes a
vendor-specific field called SMDL, with a non-zero value defined as SW_MNG" (NVIDIA Fabric Manager
User Guide, NVIDIA HGX B200: LPFs and FC PFs). Mellanox firmware packs such fields into the keyword
VA, separated by colons: ``MLX:MN=MLNX:CSKU=V2:UUID=V3:PCI=V0:MODL=CX713106A``.
"""

_GONE = b"\xff\xff\xff\xff"
"""The result of reads from a function that dropped off the bus: no vendor has id ffff."""

_STATUS, _HAS_CAPABILITIES = 0x06, 0x10
_HEADER_TYPE, _BRIDGE_HEADER = 0x0E, 1
_FIRST_CAPABILITY = 0x34
_EXPRESS_FLAGS, _DEVICE_CONTROL = 2, 8
"""From the start of the PCI Express capability."""

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


class Express(Struct, frozen=True, kw_only=True):
    """The PCI Express capability of a function."""

    kind: BridgeKind | None  # ``None`` unless it is a bridge
    # max_payload, max_read_request: bytes; ``None`` for a reserved code.
    max_payload: int | None
    max_read_request: int | None
    relaxed_ordering: bool  # whether the function can request it


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
    """Return the kind of a bridge; ``None`` where only the header can be read, or for no bridge."""
    settings = express(config)
    if settings is not None:
        return settings.kind
    return BridgeKind.PCI_BRIDGE if _is_conventional_bridge(config) else None


class AccessControl(Struct, frozen=True, kw_only=True):
    """The Access Control Services of a bridge: supported and enabled flags.

    Both are 0 for a bridge without the capability.
    """

    capability: int
    control: int


def access_control(config: bytes) -> AccessControl | None:
    """Return a bridge's ACS registers; ``None`` when the extended part could not be read."""
    if config[:4] == _GONE:
        return None
    if len(config) <= STANDARD_BYTES:
        is_without = _is_conventional_bridge(config)
        return AccessControl(capability=0, control=0) if is_without else None
    start = extended_capability(config, ACS_CAPABILITY)
    if start is None:
        return AccessControl(capability=0, control=0)
    return AccessControl(
        capability=_word(config, start + ACS_ABILITIES),
        control=_word(config, start + ACS_CONTROL),
    )


def ats_enabled(config: bytes) -> bool | None:
    """Return whether address translation is switched on; ``None`` without the capability."""
    start = extended_capability(config, ATS_CAPABILITY)
    return None if start is None else bool(_word(config, start + ATS_CONTROL) & ATS_ENABLE)


def has_ats(config: bytes) -> bool | None:
    """Return whether a function has Address Translation Services.

    ``None`` if the extended part is unreadable, or the function is gone.
    """
    if len(config) <= STANDARD_BYTES or config[:4] == _GONE:
        return None
    return extended_capability(config, ATS_CAPABILITY) is not None


def extended_capability(config: bytes, wanted: int) -> int | None:
    """Return the offset of a capability in the list that starts at 100h.

    ``None`` without one that has two words after its header, or if the list is unreadable.
    """
    seen: set[int] = set()
    offset = STANDARD_BYTES
    while offset and offset not in seen and offset + 8 <= len(config):
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header & 0xFFFF == wanted:
            return offset
        offset = header >> 20 & 0xFFC
    return None


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


def parse_vpd(vpd: bytes) -> Mapping[str, str] | None:
    """Return keyword → text of the read-only part; ``None`` if there is no such part.

    A part that is cut short gives the keywords that are whole.
    """
    vpd = vpd[:MAX_VPD_BYTES]
    at = 0
    while at < len(vpd) and vpd[at] not in (END, 0xFF, 0x00):
        if vpd[at] & 0x80:
            start, length = at + 3, int.from_bytes(vpd[at + 1 : at + 3], "little")
        else:
            start, length = at + 1, vpd[at] & 0x7
        if vpd[at] == READ_ONLY:
            keywords = _keywords(vpd[start : start + length])
            return {name: value for name, value in keywords if name != CHECKSUM}
        at = start + length
    return None


def is_nvlink_management(vpd: bytes) -> bool | None:
    """Return whether the function belongs to the NVLink fabric, and not to jobs.

    ``None`` if the bytes are not VPD. Only a whole field of a vendor keyword (V0 … VZ) counts: a
    serial number can have any letters.
    """
    keywords = parse_vpd(vpd)
    return None if keywords is None else names_nvlink_management(keywords)


def names_nvlink_management(keywords: Mapping[str, str]) -> bool:
    """Return :func:`is_nvlink_management` for the result of :func:`parse_vpd`."""
    return any(
        MANAGEMENT_FIELD in value.split(":")
        for name, value in keywords.items()
        if name.startswith("V")
    )


def _keywords(data: bytes) -> Iterator[tuple[str, str]]:
    at = 0
    while at + 3 <= len(data):
        end = at + 3 + data[at + 2]
        name = data[at : at + 2]
        if end > len(data) or not (name.isascii() and name.isalnum()):
            return
        value = data[at + 3 : end].decode("ascii", "replace").strip(" \0\t\r\n")
        yield name.decode("ascii").upper(), value
        at = end


def _is_conventional_bridge(config: bytes) -> bool:
    """Return whether this is a bridge of conventional PCI, without a PCI Express capability."""
    return (
        len(config) >= STANDARD_BYTES
        and config[:4] != _GONE
        and config[_HEADER_TYPE] & 0x7F == _BRIDGE_HEADER
        and capability(config, EXPRESS_CAPABILITY) is None
    )


def _word(config: bytes, offset: int) -> int:
    return int.from_bytes(config[offset : offset + 2], "little")


def _size(code: int) -> int | None:
    return 128 << code if code <= _LARGEST_SIZE_CODE else None
