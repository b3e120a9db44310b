"""Vital Product Data of a PCI function (sysfs `vpd`), which its maker wrote.

Format: PCI Local Bus Specification 3.0, appendix I. A large resource is a tag byte with bit 7
set, a length of two bytes and its data; a small one has its length in bits 2:0 of the tag. The
read-only resource (90h) is a list of keywords: two letters, a length of one byte, a value.
"""

from collections.abc import Iterator, Mapping

READ_ONLY = 0x90
END = 0x78
MAX_BYTES = 1 << 15
"""VPD has 15 bits of address."""

CHECKSUM = "RV"
"""Checksum and reserved space: bytes, and no text."""

MANAGEMENT_FIELD = "SMDL=SW_MNG"
"""How a ConnectX function says that it belongs to the NVLink fabric.

On HGX B200 and later, NVSwitches are no PCI functions; Fabric Manager reaches them through
ConnectX-7 functions that otherwise look like network adapters. "The LPF VPD information includes
a vendor-specific field called SMDL, with a non-zero value defined as SW_MNG" (NVIDIA Fabric
Manager User Guide, NVIDIA HGX B200: LPFs and FC PFs). Mellanox firmware packs such fields into
the keyword VA, separated by colons: ``MLX:MN=MLNX:CSKU=V2:UUID=V3:PCI=V0:MODL=CX713106A``.
"""


def parse_vpd(vpd: bytes) -> Mapping[str, str] | None:
    """Return keyword → text of the read-only part; ``None`` if there is no such part.

    A part that is cut short gives the keywords that are whole.
    """
    for tag, data in _resources(vpd[:MAX_BYTES]):
        if tag == READ_ONLY:
            return {name: value for name, value in _keywords(data) if name != CHECKSUM}
    return None


def is_nvlink_management(vpd: bytes) -> bool | None:
    """Return whether the function belongs to the NVLink fabric, and not to jobs.

    ``None`` if the bytes are no VPD. Only a whole field of a vendor keyword (V0 … VZ) counts:
    a serial number may hold any letters.
    """
    keywords = parse_vpd(vpd)
    return None if keywords is None else names_nvlink_management(keywords)


def names_nvlink_management(keywords: Mapping[str, str]) -> bool:
    """Return whether *keywords*, those of :func:`parse_vpd`, say so."""
    return any(
        MANAGEMENT_FIELD in value.split(":")
        for name, value in keywords.items()
        if name.startswith("V")
    )


def _resources(vpd: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(vpd) and vpd[at] not in (END, 0xFF, 0x00):
        tag = vpd[at]
        if tag & 0x80:
            start, length = at + 3, int.from_bytes(vpd[at + 1 : at + 3], "little")
        else:
            start, length = at + 1, tag & 0x7
        yield tag, vpd[start : start + length]
        at = start + length


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
