"""Readings of every component, as the server of metrics gets them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from agent.kernel.components import COMPONENTS, has_part, part
from agent.kernel.http.families import KERNEL, KernelReading
from agent.model.snapshot import Snapshot


def readings(snapshot: Snapshot | None = None, **facts: Any) -> Mapping[str, object]:
    """Return what a daemon on *snapshot* reads; each of *facts* goes to who has that field."""
    made: dict[str, Any] = {KERNEL: KernelReading(snapshot=snapshot)}
    for name in COMPONENTS:
        if has_part(name, "metrics"):
            made[name] = part(name, "metrics").idle(snapshot)
    return with_facts(made, **facts)


def with_facts(made: Mapping[str, Any], **facts: Any) -> Mapping[str, object]:
    """Return *made* with other *facts*."""
    left = dict(facts)
    changed = {}
    for name, reading in made.items():
        fields = {field.name for field in dataclasses.fields(reading)}
        own = {key: left.pop(key) for key in fields & left.keys()}
        changed[name] = dataclasses.replace(reading, **own)
    assert not left, f"no component has {sorted(left)}"
    return changed
