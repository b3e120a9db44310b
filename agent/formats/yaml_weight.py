"""How much a YAML text means, counted from its events before anything of it is built."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_NODES = 100_000
"""Most scalars, lists and maps, those that aliases repeat included: a second of work. Real
manifests have a few thousand; a text of 2 MiB that lists single letters has a million."""

MAX_DEPTH = 64
"""Deepest nesting. The pod template in a CronJob lies 12 deep; PyYAML's C parser recurses."""


class BeyondCapsError(yaml.MarkedYAMLError):
    """A text that may be YAML, and means too much."""


@dataclass(slots=True)
class _Open:
    """A list or map whose end is still to come, and the count before it."""

    anchor: str | None
    before: int


@dataclass(slots=True)
class _Weight:
    nodes: int = 0
    open: list[_Open] = field(default_factory=list)
    of_anchor: dict[str, int] = field(default_factory=dict)


def check_weight(events: Iterable[yaml.Event], max_nodes: int = MAX_NODES) -> None:
    """Go through *events*.

    Raises:
        BeyondCapsError: more than *max_nodes*, deeper than :data:`MAX_DEPTH`,
            or an alias inside what it stands for. (An alias of nothing is for the composer.)
    """
    weight = _Weight()
    for event in events:
        _add(weight, event)
        if weight.nodes > max_nodes:
            raise _refusal(f"more than {max_nodes} nodes, aliases resolved", event)
        if len(weight.open) > MAX_DEPTH:
            raise _refusal(f"nested more than {MAX_DEPTH} deep", event)


def _refusal(problem: str, event: Any) -> BeyondCapsError:
    return BeyondCapsError(problem=problem, problem_mark=event.start_mark)


def _add(weight: _Weight, event: yaml.Event) -> None:
    match event:
        case yaml.AliasEvent():
            if event.anchor in {one.anchor for one in weight.open}:
                raise _refusal("an alias inside what it stands for", event)
            weight.nodes += weight.of_anchor.get(event.anchor or "", 1)
        case yaml.CollectionStartEvent():
            weight.open.append(_Open(event.anchor, weight.nodes))
            weight.nodes += 1
        case yaml.CollectionEndEvent():
            ended = weight.open.pop()
            if ended.anchor is not None:
                weight.of_anchor[ended.anchor] = weight.nodes - ended.before
        case yaml.ScalarEvent():
            weight.nodes += 1
