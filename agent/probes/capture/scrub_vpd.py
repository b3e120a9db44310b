"""Vital Product Data without what identifies the unit; the format is that of `pci_vpd`."""

from collections.abc import Callable, Iterator

from agent.probes.sysfs.pci_vpd import CHECKSUM, END, MANAGEMENT_FIELD, READ_ONLY

_COMMON = frozenset((b"PN", b"EC", CHECKSUM.encode()))
"""Part number and engineering changes are the product's, not the unit's (PCI Local Bus
Specification 3.0, appendix I)."""

_PADDING = " \0\t\r\n"
_END = bytes([END])


def scrub_vpd(vpd: bytes, substitute: Callable[[str], str]) -> bytes:
    """Return *vpd* up to its read-only part, the values in it replaced; the same length each.

    The checksum is left as it was, and so no longer holds. What cannot be read as VPD is
    left out whole.
    """
    at = 0
    while at + 3 <= len(vpd) and vpd[at] & 0x80:
        start = at + 3
        end = start + int.from_bytes(vpd[at + 1 : start], "little")
        if vpd[at] == READ_ONLY:
            fields = b"".join(_fields(vpd[start:end], substitute))
            return vpd[: at + 1] + len(fields).to_bytes(2, "little") + fields + _END
        at = end
    return b""


def _fields(data: bytes, substitute: Callable[[str], str]) -> Iterator[bytes]:
    at = 0
    while at + 3 <= len(data) and at + 3 + data[at + 2] <= len(data):
        end = at + 3 + data[at + 2]
        name, value = data[at : at + 2].upper(), data[at + 3 : end]
        is_kept = name in _COMMON
        yield data[at : at + 3] + (value if is_kept else _value(name, value, substitute))
        at = end


def _value(name: bytes, value: bytes, substitute: Callable[[str], str]) -> bytes:
    text = value.decode("latin-1")
    fields = text.split(":") if name.startswith(b"V") else [text]
    return ":".join(_field(each, substitute) for each in fields).encode("latin-1")


def _field(text: str, substitute: Callable[[str], str]) -> str:
    body = text.strip(_PADDING)
    if not body or body == MANAGEMENT_FIELD:
        return text
    return text.replace(body, substitute(body), 1)
