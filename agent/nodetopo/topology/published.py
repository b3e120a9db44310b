"""Which GPUs and HCAs of the node are behind the devices that DRA drivers publish."""

import re
from collections.abc import Iterable, Mapping

from nodetopo.model.dra import DRIVER, PCI_BUS_ID, ClaimedDevice, PublishedDevice
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot

COUNTED_GPU = re.compile(r".*/gpu-([0-9a-f]{4,8})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])(?:-.*)?")
"""A counter of our own driver, named after the PCI address of its GPU, whether of the whole GPU or
of a part of it (:mod:`nodetopo.components.dra.devices`)."""

_UUIDS = ("uuid", "parentUUID")
"""Attributes with the UUID of a GPU, or of the GPU of a MIG device (dra-driver-nvidia-gpu
``cmd/gpu-kubelet-plugin/deviceinfo.go``; also AMD's and Intel's drivers have ``uuid``)."""


def gpus_of(device: PublishedDevice, snapshot: Snapshot) -> tuple[int, ...]:
    """Return the positions of the GPUs behind *device*, ascending; empty where it is no GPU.

    A MIG device counts as its GPU. A device is matched by UUID, by PCI address, or, if it is one
    of our own driver's, by the counters that it consumes. A device for administration stands for
    no GPU: pods that have it share the GPU with its user.
    """
    if is_admin(device):
        return ()
    by_uuid = {gpu.uuid: at for at, gpu in enumerate(snapshot.gpus) if gpu.uuid is not None}
    by_pci = {gpu.pci: at for at, gpu in enumerate(snapshot.gpus) if gpu.pci is not None}
    for name in _UUIDS:
        at = by_uuid.get(device.attributes.get(f"{device.driver}/{name}", ""))
        if at is not None:
            return (at,)
    address = pci_of(device)
    if address in by_pci:
        return (by_pci[address],)
    addresses = (counted_gpu(counter) for counter in device.counters)
    return tuple(sorted({by_pci[it] for it in addresses if it in by_pci}))


def hca_of(device: PublishedDevice, snapshot: Snapshot) -> int | None:
    """Return the position of the HCA that *device* is, by PCI address; ``None`` if it is none."""
    address = pci_of(device)
    for at, hca in enumerate(snapshot.hcas or ()):
        if address is not None and hca.pci == address:
            return at
    return None


def is_mig(device: PublishedDevice) -> bool:
    """Return whether *device* is a MIG device, by the ``type`` of our driver and NVIDIA's."""
    return device.attributes.get(f"{device.driver}/type") == "mig"


def is_admin(device: PublishedDevice) -> bool:
    """Return whether *device* is one of our driver's for administration."""
    return device.attributes.get(f"{DRIVER}/type") == "admin"


def pci_of(device: PublishedDevice) -> PciAddress | None:
    """Return the PCI address of *device*; ``None`` where it names none.

    dranet also has it as ``dra.net/pciAddress`` (dranet, docs: device attributes).
    """
    for name in (PCI_BUS_ID, f"{device.driver}/pciBusID", f"{device.driver}/pciAddress"):
        text = device.attributes.get(name)
        if text is not None:
            return PciAddress.parse_or_none(text)
    return None


def counted_gpu(counter: str) -> PciAddress | None:
    """Return the address of the GPU that a counter of our own driver is about."""
    match = COUNTED_GPU.fullmatch(counter)
    if match is None:
        return None
    return PciAddress(*(int(number, 16) for number in match.groups()))


def published_gpus(
    devices: Iterable[PublishedDevice], snapshot: Snapshot
) -> Mapping[int, tuple[PublishedDevice, ...]]:
    """Return the devices that each GPU is behind, by the GPU's position."""
    found: dict[int, list[PublishedDevice]] = {}
    for device in devices:
        for at in gpus_of(device, snapshot):
            found.setdefault(at, []).append(device)
    return {at: tuple(found[at]) for at in sorted(found)}


_UUID_IN_CDI = re.compile(r"=((?:GPU|MIG)-[0-9a-zA-Z-]+)")
"""Our CDI names and those of NVIDIA's toolkit end in the device's UUID."""


class ClaimedGpus:
    """Finds the GPUs and HCAs of a snapshot that containers have by claims."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._devices = {device.key: device for device in snapshot.published or ()}
        self._uuids: dict[str, int] = {}
        for at, gpu in enumerate(snapshot.gpus):
            for instance in gpu.mig.instances if gpu.mig is not None else ():
                self._uuids[instance.uuid] = at
            if gpu.uuid is not None:
                self._uuids[gpu.uuid] = at

    def gpus(self, claimed: ClaimedDevice) -> tuple[int, ...] | None:
        """Return the positions of the GPUs behind *claimed*, empty where it is no GPU.

        By the slice that publishes it, or else by the UUIDs in its CDI names. ``None`` where
        neither is known of a driver whose devices might be GPUs.
        """
        device = self._devices.get(claimed.key)
        if device is not None and is_admin(device):
            return ()
        named = uuids_of(claimed)
        found = {self._uuids[uuid] for uuid in named if uuid in self._uuids}
        if device is not None:
            found.update(gpus_of(device, self._snapshot))
        if found:
            return tuple(sorted(found))
        return None if device is None and may_have_gpus(claimed.driver) else ()

    def uuids(self, claimed: ClaimedDevice) -> set[str]:
        """Return the UUIDs under which a device plugin would offer the same; empty if unknown.

        They belong to a whole GPU and its MIG devices, or to one MIG device.
        """
        device = self._devices.get(claimed.key)
        if device is not None and is_admin(device):
            return set()
        found = set(uuids_of(claimed))
        if self.is_part(claimed):
            own = None if device is None else device.attributes.get(f"{device.driver}/uuid")
            return found | ({own} if own is not None else set())
        positions = set(self.gpus(claimed) or ())
        return found | {uuid for uuid, at in self._uuids.items() if at in positions}

    def is_part(self, claimed: ClaimedDevice) -> bool:
        """Return whether *claimed* is a MIG device."""
        device = self._devices.get(claimed.key)
        is_known = device is not None and is_mig(device)
        return is_known or any("=MIG-" in name for name in claimed.cdi_devices)

    def hca(self, claimed: ClaimedDevice) -> int | None:
        """Return the position of the HCA that *claimed* is; ``None`` if unknown."""
        device = self._devices.get(claimed.key)
        return None if device is None else hca_of(device, self._snapshot)


def uuids_of(claimed: ClaimedDevice) -> tuple[str, ...]:
    """Return the UUIDs of GPUs and MIG devices in the CDI names of *claimed*."""
    return tuple(it for name in claimed.cdi_devices for it in _UUID_IN_CDI.findall(name))


def may_have_gpus(driver: str) -> bool:
    """Return whether devices of *driver* could be GPUs, by its name."""
    return driver == DRIVER or "gpu" in driver
