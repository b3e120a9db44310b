"""ResourceSlices of the Kubernetes API, reduced to the devices of one node.

Source of the fields: k8s.io/api v0.36 ``resource/v1`` types.go. A pool whose slices differ in
generation is in the middle of an update: its newest slices count, as for the scheduler
(k8s.io/dynamic-resource-allocation ``structured``).
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from agent.formats.fields import Object, dig, mappings, text, whole
from agent.model.dra import PublishedDevice


def devices_of(slices: Iterable[Object]) -> tuple[PublishedDevice, ...]:
    """Return the devices that *slices* publish, by driver and pool, then in the allocator's order.

    Slices of a pool go by name, devices as they stand there. What is malformed is left out: another
    driver's mistake must not hide the rest.
    """
    pools: dict[tuple[str, str], list[tuple[int, str, Object]]] = {}
    for each in slices:
        driver, pool = text(each, "spec", "driver"), text(each, "spec", "pool", "name")
        if driver is None or pool is None:
            continue
        generation = whole(each, "spec", "pool", "generation") or 0
        name = text(each, "metadata", "name") or ""
        pools.setdefault((driver, pool), []).append((generation, name, each))
    found: list[PublishedDevice] = []
    for (driver, pool), versions in sorted(pools.items(), key=lambda item: item[0]):
        newest = max(generation for generation, _, _ in versions)
        for generation, _, each in sorted(versions, key=lambda version: version[:2]):
            if generation == newest:
                found.extend(_devices(driver, pool, each))
    return tuple(found)


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
            )


def _attributes(driver: str, device: Object) -> Iterator[tuple[str, str]]:
    attributes = dig(device, "attributes")
    for name, value in attributes.items() if isinstance(attributes, dict) else ():
        if isinstance(value, dict) and len(value) == 1:
            full = name if "/" in name else f"{driver}/{name}"
            yield full, _written(*value.values())


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
