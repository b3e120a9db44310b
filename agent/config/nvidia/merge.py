"""NVIDIA's settings put beside ours: the stronger place counts, and in one place our name."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from agent.config.nvidia import effects
from agent.config.origin import Given, Place
from agent.config.settings import Settings


def join(chosen: dict[str, Given], nvidia: Mapping[str, Given]) -> tuple[str, ...]:
    """Put what *nvidia* says, by NVIDIA's name, into our settings *chosen*, by field.

    Returns:
        What a person should know, a sentence each.

    Raises:
        InputError: it asks for what would be missed in every container.
    """
    return tuple(_join(chosen, nvidia))


def _join(chosen: dict[str, Given], nvidia: Mapping[str, Given]) -> Iterator[str]:
    for name, theirs in effects.translated(nvidia).items():
        yield from _put(chosen, name, theirs)
    if (asked := nvidia.get("pass-device-specs")) is not None:
        yield from _put_device_specs(chosen, asked)
    if (policy := nvidia.get("shared-devices-allocation-policy")) is not None:
        shared = effects.shared_placement(
            policy,
            _value(chosen, "resource_name"),
            _value(chosen, "mig_strategy"),
            _value(chosen, "time_slicing"),
        )
        if shared is None:
            yield f"{policy.origin} has no effect: nothing is shared"
        else:
            yield from _put(chosen, "placement_policy", shared)


def _put(chosen: dict[str, Given], name: str, theirs: Given) -> Iterator[str]:
    """Set *name* to NVIDIA's value, unless ours stands in a place as strong."""
    ours = chosen.get(name)
    if ours is None or theirs.place > ours.place:
        chosen[name] = theirs
    elif theirs.place == ours.place and ours.value != theirs.value:
        yield f"{ours.origin} wins over {theirs.origin}, which says otherwise"


def _put_device_specs(chosen: dict[str, Given], asked: Given) -> Iterator[str]:
    name = "device_list_strategy"
    default = Given(value=_value(chosen, name), origin="default", place=Place.DEFAULT)
    before = chosen.get(name, default)
    after, remark = effects.with_device_specs(before, asked)
    if remark is not None:
        yield remark
    if after is not before:
        chosen[name] = after


def _value(chosen: Mapping[str, Given], name: str) -> Any:
    """Return the value of the field *name*, or its default."""
    if name in chosen:
        return chosen[name].value
    return next(field.default for field in fields(Settings) if field.name == name)
