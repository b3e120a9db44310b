"""ResourceSlices of the Kubernetes API, reduced to their devices and pools.

Source of the fields: k8s.io/api v0.36 ``resource/v1`` types.go. A pool whose slices differ in
generation is in the middle of an update: its newest slices count, as for the scheduler
(k8s.io/dynamic-resource-allocation ``structured``).
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from nodetopo.formats.fields import Object, dig, mappings, text, whole
from nodetopo.model.dra import PublishedDevice, PublishedPool

_ELSEWHERE = ("allNodes", "nodeSelector", "perDeviceNodeSelection")
"""Fields by which a slice without a node name selects nodes; exactly one is set."""


def devices_of(slices: Iterable[Object]) -> tuple[PublishedDevice, ...]:
    """Return the devices that *slices* publish, by driver and pool, then in the allocator's order.

    Slices of a pool go by name, devices as they stand there. What is malformed is left out: another
    driver's mistake must not hide the rest.
    """
    return tuple(
        device
        for (driver, pool), newest in _newest(slices)
        for each in newest
        for device in _devices(driver, pool, each)
    )


def pools_of(slices: Iterable[Object]) -> tuple[PublishedPool, ...]:
    """Return the pools that *slices* make up, by driver and name."""
    return tuple(_pool(driver, name, newest) for (driver, name), newest in _newest(slices))


def newest_of(slices: Iterable[Object]) -> tuple[Object, ...]:
    """Return the *slices* of the newest generation of each pool."""
    return tuple(each for _, newest in _newest(slices) for each in newest)


def _newest(slices: Iterable[Object]) -> Iterator[tuple[tuple[str, str], tuple[Object, ...]]]:
    """Yield driver and name of each pool, and the slices of its newest generation by name."""
    pools: dict[tuple[str, str], list[tuple[int, str, Object]]] = {}
    for each in slices:
        driver, pool = text(each, "spec", "driver"), text(each, "spec", "pool", "name")
        if driver is None or pool is None:
            continue
        generation = whole(each, "spec", "pool", "generation") or 0
        name = text(each, "metadata", "name") or ""
        pools.setdefault((driver, pool), []).append((generation, name, each))
    for key, versions in sorted(pools.items(), key=lambda item: item[0]):
        newest = max(generation for generation, _, _ in versions)
        ordered = sorted(versions, key=lambda version: version[:2])
        yield key, tuple(each for generation, _, each in ordered if generation == newest)


def _pool(driver: str, name: str, slices: tuple[Object, ...]) -> PublishedPool:
    devices = [device for each in slices for device in mappings(each, "spec", "devices")]
    consumed = (counter for device in devices for counter in mappings(device, "consumesCounters"))
    counts = [whole(each, "spec", "pool", "resourceSliceCount") for each in slices]
    return PublishedPool(
        driver=driver,
        name=name,
        nodes=tuple(sorted({it for each in slices if (it := text(each, "spec", "nodeName"))})),
        selects_by=tuple(
            field for field in _ELSEWHERE if any(dig(each, "spec", field) for each in slices)
        ),
        devices=len(devices),
        slices=len(slices),
        expected=max((count for count in counts if count is not None), default=None),
        has_groups=any(dig(counter, "compatibilityGroups") for counter in consumed),
    )


def _devices(driver: str, pool: str, each: Object) -> Iterator[PublishedDevice]:
    for device in mappings(each, "spec", "devices"):
        name = text(device, "name")
        if name is not None:
            yield PublishedDevice(
                driver=driver,
                pool=pool,
                name=name,
                attributes=dict(_attributes(driver, device)),
                counters=tuple(sorted(_counters(device))),
                taints=tuple(_taints(device)),
                capacity=dict(_capacity(driver, device)),
                is_shared=dig(device, "allowMultipleAllocations") is True,
            )


def _attributes(driver: str, device: Object) -> Iterator[tuple[str, str]]:
    attributes = dig(device, "attributes")
    for name, value in attributes.items() if isinstance(attributes, dict) else ():
        if isinstance(value, dict) and len(value) == 1:
            yield _full(driver, name), _written(*value.values())


def _capacity(driver: str, device: Object) -> Iterator[tuple[str, str]]:
    capacity = dig(device, "capacity")
    for name in capacity if isinstance(capacity, dict) else ():
        value = dig(capacity, name, "value")
        if isinstance(value, str | int):
            yield _full(driver, name), str(value)


def _full(driver: str, name: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _counters(device: Object) -> Iterator[str]:
    for consumed in mappings(device, "consumesCounters"):
        counters = dig(consumed, "counters")
        for name in counters if isinstance(counters, dict) else ():
            yield f"{text(consumed, 'counterSet')}/{name}"


def _taints(device: Object) -> Iterator[str]:
    for taint in mappings(device, "taints"):
        yield f"{text(taint, 'key')}={text(taint, 'value') or ''}:{text(taint, 'effect')}"
