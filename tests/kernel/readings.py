"""Readings of every component, as the server of metrics gets them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from nodetopo.kernel.components import COMPONENTS, has_part, part
from nodetopo.kernel.http.families import KERNEL, KernelReading
from nodetopo.model.snapshot import Snapshot


def readings(snapshot: Snapshot | None = None, **facts: Any) -> Mapping[str, object]:
    """Return what a daemon on *snapshot* reads; each of *facts* goes to those that have it."""
    made: dict[str, Any] = {KERNEL: KernelReading(snapshot=snapshot)}
    for name in COMPONENTS:
        if has_part(name, "metrics"):
            made[name] = part(name, "metrics").idle(snapshot=snapshot)
    return with_facts(made, **facts)


def of_components(**facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the *facts* of the kernel and of the components of the table, each by its name."""
    return {
        key: value
        for name, of_one in facts.items()
        if name in (KERNEL, *COMPONENTS)
        for key, value in of_one.items()
    }


def of_dra() -> Mapping[str, Any]:
    """Return facts of every metric of DRA; none without that component."""
    if "dra" not in COMPONENTS:
        return {}
    return {
        "dra_gpus": {"gpu.nvidia.com": 1, "nodetopo.io": 1},
        "dra_registered": True,
        "dra_claims_prepared": 1,
        "dra_gpus_claimed": 2,
        "dra_slice_writes": 3,
        "dra_slice_errors": 0,
        "dra_gpus_published_twice": 0,
        "dra_fields_dropped": frozenset({"sharedCounters", "consumesCounters", "taints", "lists"}),
    }


def with_facts(made: Mapping[str, Any], **facts: Any) -> Mapping[str, object]:
    """Return *made* with other *facts*."""
    fields = {
        name: {field.name for field in dataclasses.fields(reading)}
        for name, reading in made.items()
    }
    unknown = facts.keys() - set().union(*fields.values())
    assert not unknown, f"no component has {sorted(unknown)}"
    return {
        name: dataclasses.replace(
            reading, **{key: value for key, value in facts.items() if key in fields[name]}
        )
        for name, reading in made.items()
    }
