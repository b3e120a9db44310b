"""The pod templates in one document, each with its place, its name and how often it is used."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from agent.errors import DecodeError
from agent.formats.fields import Object, count_at, path_of
from agent.probes.pods.pod_manifest_kinds import Place

MAX_REPLICAS = 1 << 31
"""Counts of replicas are int32 in all of these objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A pod template, or the pod itself.

    Attributes:
        path: where it is in the document.
        role: what its pods are; empty where the document has one kind of pod.
        replicas: how many pods the document asks for; ``None`` where it does not say.
    """

    path: str
    content: Object
    role: str
    replicas: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One object on the way down.

    Attributes:
        pattern: its path with ``[]`` and ``{}``, as a :class:`Place` writes it.
        path: its real path.
        key: under which it stood in a map.
    """

    pattern: str
    path: str
    content: Any
    key: str = ""


def templates(document: Object, place: Place) -> Iterator[Template]:
    """Yield the templates at *place* of *document*, in order.

    Raises:
        DecodeError: something on the way has another shape, or is absent though required.
    """
    for way in _ways([_Step(pattern="", path="", content=document)], place):
        found = way[-1]
        if not isinstance(found.content.get("spec"), Mapping):
            raise DecodeError(path_of(found.path, "spec"), "missing, or not an object")
        yield Template(
            path=found.path,
            content=found.content,
            role=_role(way, place),
            replicas=_replicas(way, place),
        )


def _ways(way: list[_Step], place: Place) -> Iterator[list[_Step]]:
    """Yield every way down the rest of the template's path, the objects on it included."""
    here = way[-1]
    rest = place.template[len(here.pattern) :].lstrip(".")
    if not rest:
        yield way
        return
    name = rest.partition(".")[0]
    below = _below(here, name)
    if not below and not place.is_optional:
        problem = "missing, or not an object" if name.isidentifier() else "missing, or empty"
        raise DecodeError(path_of(here.path, name.rstrip("[]{}")), problem)
    for step in below:
        yield from _ways([*way, step], place)


def _below(here: _Step, name: str) -> list[_Step]:
    field = name.rstrip("[]{}")
    pattern, path = path_of(here.pattern, name), path_of(here.path, field)
    value = here.content.get(field)
    found: list[_Step]
    if value is None:
        return []
    if name.endswith("[]") and isinstance(value, list):
        found = [
            _Step(pattern=pattern, path=f"{path}[{position}]", content=item)
            for position, item in enumerate(value)
        ]
    elif name.endswith("{}") and isinstance(value, Mapping):
        found = [
            _Step(pattern=pattern, path=f"{path}.{key}", content=item, key=str(key))
            for key, item in value.items()
        ]
    else:
        found = [_Step(pattern=pattern, path=path, content=value)]
    _check(found)
    return found


def _check(steps: list[_Step]) -> None:
    for step in steps:
        if not isinstance(step.content, Mapping):
            raise DecodeError(step.path, "missing, or not an object")


def _role(way: list[_Step], place: Place) -> str:
    if not place.role.startswith("."):
        return place.role or next((step.key.lower() for step in way if step.key), "")
    field = place.role[1:]
    names = (step.content.get(field) for step in reversed(way[1:-1]))
    return next((name for name in names if name and isinstance(name, str)), "")


def _replicas(way: list[_Step], place: Place) -> int | None:
    counts = [_count(way, path) for path in place.counts]
    if place.leader and counts[-1] and way[-2].content.get(place.leader) is not None:
        counts[-1] -= 1
    stated = [count for count in counts if count is not None]
    return min(prod(stated), MAX_REPLICAS) if stated else None


def _count(way: list[_Step], path: str) -> int | None:
    parent, _, field = path.rpartition(".")
    holder = next(step for step in way if step.pattern == parent)
    return count_at(holder.content, field, holder.path)
