"""The devices that a request can get: by class, and by the rest of shared devices."""

from collections.abc import Iterable, Mapping

from nodetopo.formats.fields import Object
from nodetopo.model.dra import DRIVER, NVIDIA_DRIVER, DeviceKey, PublishedDevice
from nodetopo.model.kubernetes import quantity
from nodetopo.tools.cluster.claims.claim import Request, consumed_of

COMPUTE_DOMAINS = "compute-domain.nvidia.com"
"""NVIDIA's driver of IMEX channels (dra-driver-nvidia-gpu)."""

_CLASSES: Mapping[str, tuple[str, str]] = {
    "gpu.nvidia.com": (NVIDIA_DRIVER, "gpu"),
    "mig.nvidia.com": (NVIDIA_DRIVER, "mig"),
    "vfio.gpu.nvidia.com": (NVIDIA_DRIVER, "vfio"),
    "compute-domain-daemon.nvidia.com": (COMPUTE_DOMAINS, "daemon"),
    "compute-domain-default-channel.nvidia.com": (COMPUTE_DOMAINS, "channel"),
    f"gpu.{DRIVER}": (DRIVER, "gpu"),
    f"gpus.{DRIVER}": (DRIVER, "gpu-set"),
    f"mig.{DRIVER}": (DRIVER, "mig"),
    f"admin.{DRIVER}": (DRIVER, "admin"),
}
"""The driver and the ``type`` that a class selects, for classes that come with a driver."""

_RESERVED = ("admin", "claimed")
"""Types of our driver that other classes do not select: for administration, and devices that hold a
claim's counters.
"""


def may_match(device: PublishedDevice, request: Request) -> bool:
    """Return whether a class of *request* could select *device*.

    An unknown class counts for a driver if it is named after it: the driver's name, with any first
    word. Classes of any other name could be for any driver.
    """
    kind = device.attributes.get(f"{device.driver}/type")
    known = [_CLASSES[name] for name in request.device_classes if name in _CLASSES]
    if any(driver == device.driver and (kind in {None, wanted}) for driver, wanted in known):
        return True
    others = [name for name in request.device_classes if name not in _CLASSES]
    if not others or (device.driver == DRIVER and kind in _RESERVED):
        return False
    domain = device.driver.partition(".")[2]
    return any(name.partition(".")[2] == domain for name in others) or not any(
        "." in name for name in request.device_classes
    )


def shares_of(claims: Iterable[Object]) -> Mapping[DeviceKey, Mapping[str, int]]:
    """Return what *claims* consume of devices that they share, by device and capacity."""
    found: dict[DeviceKey, dict[str, int]] = {}
    for claim in claims:
        for key, consumed in consumed_of(claim):
            own = found.setdefault(key, {})
            for name, amount in consumed.items():
                full = name if "/" in name else f"{key[0]}/{name}"
                own[full] = own.get(full, 0) + amount
    return found


def has_room(device: PublishedDevice, request: Request, used: Mapping[str, int]) -> bool:
    """Return whether a shared *device* has enough capacity left for *request*.

    If a request names no amount, it consumes the driver's default, from a policy in the slices that
    is not read: then any remaining capacity suffices.
    """
    for name, text in device.capacity.items():
        wanted = request.capacity.get(name, request.capacity.get(name.rpartition("/")[2], 1))
        if used.get(name) and amount(text) - used[name] < wanted:
            return False
        if not used.get(name) and amount(text) < wanted:
            return False
    return True


def amount(text: str) -> int:
    """Return a quantity in its base unit; 0 for an invalid one."""
    try:
        return quantity(text)
    except ValueError:
        return 0
