"""The node's GPUs given out by DRA drivers, which the device plugin must not offer.

Two ways to give out one GPU are unaware of each other: the kubelet counts a device plugin's
devices, the scheduler the slices' devices. So a GPU that a driver publishes belongs to it.

An extended resource can be served by a device plugin on one node and by DRA on another, never by
both on one (KEP-5004): where a DeviceClass gives the resource's name to a driver of this node, the
whole resource is the driver's there.

Our own driver counts as any: its slices outlive by half a minute a daemon that no longer has
``dra`` on (the kubelet deletes them then).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.formats.fields import dig, mappings, text
from nodetopo.model.dra import DRIVER, ClaimedDevice, PublishedDevice
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.published import ClaimedGpus, gpus_of

GPU_DRIVERS = ("gpu.nvidia.com",)
"""Drivers of NVIDIA's GPUs, known by name before their slices are (dra-driver-nvidia-gpu
``cmd/gpu-kubelet-plugin``)."""

_DRIVER_IS = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']""")
"""How the expression of a class names the driver that it is for."""


class ServedByDra(Struct, frozen=True, kw_only=True):
    """The devices that DRA drivers give out on this node."""

    # Id of the GPU → driver.
    gpus: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # Ids of GPUs that pods hold by claim although no slice has them.
    held: frozenset[str] = frozenset()
    # Extended resource → DeviceClass that gives it to a driver of this node.
    resources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # A driver with unknown slices whose socket answers, or whose claims pods have; all GPUs might
    # belong to it.
    suspect: str | None = None

    def __bool__(self) -> bool:
        return bool(self.gpus or self.resources or self.suspect)

    def has(self, gpu: str) -> bool:
        """Return whether the GPU with the id *gpu* is not ours to offer."""
        return self.suspect is not None or gpu in self.gpus

    def sentences(self) -> tuple[str, ...]:
        """Return what is given out by whom, for an operator."""
        if self.suspect is not None:
            text = (
                f"the DRA driver {self.suspect} runs on this node, or pods have claims of it, and "
            )
            return (f"{text}its ResourceSlices are not known: no GPU is offered by device plugin",)
        ways = Counter(
            (driver, "in use by claims of" if gpu in self.held else "published by")
            for gpu, driver in self.gpus.items()
        )
        found = [
            f"{count} {'GPU is' if count == 1 else 'GPUs are'} {way} the DRA driver {driver}, and "
            "not offered by device plugin"
            for (driver, way), count in ways.items()
        ]
        for resource, name in self.resources.items():
            found.append(
                f"the DeviceClass {name} gives {resource} to a DRA driver of this node, and a node "
                "must not serve it twice"
            )
        return tuple(found)


NOBODY = ServedByDra()


def served_by_dra(
    devices: Iterable[PublishedDevice],
    classes: Iterable[Mapping[str, Any]],
    snapshot: Snapshot,
) -> ServedByDra:
    """Return what drivers give out on the node of *snapshot*.

    A class that names no driver counts where a driver has GPUs.

    Args:
        classes: all DeviceClasses; empty if unknown.
    """
    gpus: dict[str, str] = {}
    drivers = set()
    for device in devices:
        drivers.add(device.driver)
        for at in gpus_of(device, snapshot):
            gpus.setdefault(snapshot.gpus[at].id, device.driver)
    taken: dict[str, str] = {}
    for each in classes if drivers else ():
        resource, name = text(each, "spec", "extendedResourceName"), text(each, "metadata", "name")
        named = _drivers_of(each)
        is_theirs = not named.isdisjoint(drivers) if named else bool(gpus)
        if resource is not None and name is not None and is_theirs:
            taken[resource] = name
    return ServedByDra(gpus=gpus, resources=taken)


def with_claims(
    found: ServedByDra,
    claimed: Iterable[ClaimedDevice],
    devices: Iterable[PublishedDevice],
    snapshot: Snapshot,
) -> ServedByDra:
    """Return *found* with the GPUs of *claimed*, which pods of the node have.

    A driver that is gone for longer than half a minute loses its slices (kubernetes 1.36
    pkg/kubelet/cm/dra/manager.go, defaultWipingDelay), while pods keep what they have.
    """
    places = ClaimedGpus(replace(snapshot, published=tuple(devices)))
    gpus, suspect = dict(found.gpus), found.suspect
    for each in claimed:
        at = places.gpus(each)
        if at is None and each.driver in (*GPU_DRIVERS, DRIVER):
            suspect = suspect or each.driver
        for position in at or ():
            gpus.setdefault(snapshot.gpus[position].id, each.driver)
    held = frozenset(gpus).difference(found.gpus)
    return replace(found, gpus=gpus, held=held, suspect=suspect)


def _drivers_of(each: Mapping[str, Any]) -> set[str]:
    """Return the drivers that a class names; empty where it can be for any."""
    expressions = (
        str(dig(selector, "cel", "expression")) for selector in mappings(each, "spec", "selectors")
    )
    return {name for expression in expressions for name in _DRIVER_IS.findall(expression)}
