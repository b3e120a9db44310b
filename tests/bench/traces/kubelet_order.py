"""The order in which the kubelet lists the free devices of a resource.

The kubelet keeps devices in Go maps and sends a plugin the result of one range over such a map
(kubelet v1.36.3 pkg/kubelet/cm/devicemanager/manager.go, ``devicesToAllocate``). Go starts each
range at a random place, but keeps up to eight entries in one group of slots, in the order in which
they were added. So of a node with up to eight devices every list is device order, begun somewhere
and continued around the end: a rotation. On a larger node the order is mixed, since the hash of a
device's id determines its group; up to eight free devices are rotations of that order, which is
fixed until the plugin sends another list.

The following steps apply without a hint of the Topology Manager. With a hint, the devices of its
NUMA nodes pass through two more maps, and remain rotations.
"""

from collections.abc import Collection, Iterable

from tests.bench.traces.jobs import Uniform

GROUP = 8
"""Slots of a group, and entries of a map that has one group alone (Go 1.24 to 1.26,
internal/runtime/maps, ``MapGroupSlots``). Until Go 1.23, which built kubelets up to 1.32, a
bucket had as many, and a range over a single bucket was a rotation too."""

MOST_OF_GROUP = 7
"""Entries of each group on average, at which a map of several groups doubles
(``maxAvgGroupLoad``)."""


class KubeletOrder:
    """The kubelet's lists on one node; each call is one request.

    The device plugin's list is taken to come from a Go map as well, as NVIDIA's does
    (k8s-device-plugin internal/rm/devices.go, ``GetPluginDevices``).
    """

    def __init__(self, devices: Iterable[int], source: Uniform) -> None:
        """Begin with healthy *devices*, in device order; *source* makes every random choice."""
        self._source = source
        self._healthy = _GoSet(_GoSet(devices, source).ranged(), source)

    def __call__(self, free: Collection[int]) -> tuple[int, ...]:
        """Return *free*, which are some of the devices, as the kubelet sends them."""
        kept = [device for device in self._healthy.ranged() if device in free]
        available = _GoSet(kept, self._source)
        union = _GoSet(available.ranged(), self._source, room=len(kept))
        return tuple(union.ranged())


class _GoSet:
    """A ``map[string]struct{}`` with the slots of Go 1.24 and later."""

    def __init__(self, devices: Iterable[int], source: Uniform, *, room: int = 0) -> None:
        """Add *devices* one by one to a map that was made for *room* entries."""
        self._source = source
        self._hashes: dict[int, int] = {}
        wanted = room * GROUP // MOST_OF_GROUP if room > GROUP else GROUP
        self._groups: list[list[int]] = [[] for _ in range(_group_count(wanted))]
        for device in devices:
            self._hashes[device] = int(source.random() * (1 << 32))
            is_full = len(self._hashes) > (
                GROUP if len(self._groups) == 1 else MOST_OF_GROUP * len(self._groups)
            )
            if is_full:
                before = [old for group in self._groups for old in group]
                self._groups = [[] for _ in range(2 * len(self._groups))]
                for old in before:
                    self._put(old)
            self._put(device)

    def ranged(self) -> list[int]:
        """Return the result of one range over the map."""
        slots: list[int | None] = []
        for group in self._groups:
            slots += [*group, *[None] * (GROUP - len(group))]
        start = int(self._source.random() * len(slots))
        return [device for device in (*slots[start:], *slots[:start]) if device is not None]

    def _put(self, device: int) -> None:
        """Add *device* to the first group that has room, in the order of Go's probes."""
        last = len(self._groups) - 1
        at = self._hashes[device] & last
        step = 0
        while len(self._groups[at]) == GROUP:
            step += 1
            at = (at + step) & last
        self._groups[at].append(device)


def _group_count(slots: int) -> int:
    """Return how many groups hold *slots*: a power of two."""
    count = 1
    while count * GROUP < slots:
        count *= 2
    return count
