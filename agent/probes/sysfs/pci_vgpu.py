"""What a virtual GPU tells its guest about the host, in a vendor-specific PCI capability.

Layout: NVIDIA/k8s-device-plugin v0.19.0, ``internal/vgpu``: id, next, length, ``VF``, then
records of id, length and data; record 0 is the host's driver, its version in 10 bytes and its
branch in 10, each filled up with zeros. The capability's frame: PCI Local Bus Specification
3.0, 6.7 and appendix H. The bytes are a hypervisor's, so none of them is trusted.
"""

from agent.model.pci import VgpuHost
from agent.probes.sysfs.pci_config import capability

_NVIDIA = b"\xde\x10"
"""Vendor 10de, as config space begins with it."""

_VENDOR_SPECIFIC = 0x09
_LENGTH, _SIGNATURE, _RECORDS = 2, 3, 5
"""From the start of the capability."""

_DRIVER_RECORD = 0
_TEXT = 10


def vgpu_host(config: bytes) -> VgpuHost | None:
    """Return the driver of the host; ``None`` for what is no vGPU, or tells none."""
    start = capability(config, _VENDOR_SPECIFIC)
    if start is None or config[:2] != _NVIDIA or start + _RECORDS > len(config):
        return None
    whole = config[start : start + config[start + _LENGTH]]
    if whole[_SIGNATURE:_RECORDS] != b"VF":
        return None
    record = _driver_record(whole)
    return None if record is None else _host(record)


def _driver_record(whole: bytes) -> bytes | None:
    """Return the 20 bytes of the driver's record; ``None`` if it is not there, or cut short."""
    at = _RECORDS
    while at + 2 <= len(whole):
        identity, length = whole[at : at + 2]
        if identity == _DRIVER_RECORD:
            data = whole[at + 2 : at + 2 + 2 * _TEXT]
            return data if len(data) == 2 * _TEXT else None
        if length == 0:
            return None
        at += length
    return None


def _host(record: bytes) -> VgpuHost | None:
    texts = [
        part.strip(b"\0").decode("ascii", "replace") for part in (record[:_TEXT], record[_TEXT:])
    ]
    version, branch = texts
    return VgpuHost(driver_version=version, driver_branch=branch) if version else None
