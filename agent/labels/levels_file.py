"""A file that says where nodes stand, for clusters whose labels no table knows.

The document, read from YAML or JSON by the caller, has one or both of::

    labels: [example.com/rack, example.com/block]   # the key of tier 0 first
    nodes:                                          # wins over labels; tier 0 first
      gpu-17: [r2, b3]
    qualified: true                                 # r2 of b3 becomes b3__r2; the default
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from reprlib import Repr
from types import MappingProxyType
from typing import Any

from agent.errors import InputError
from agent.labels.levels_platform import MAX_TIERS
from agent.labels.levels_value import level_value, qualified

_FIELDS = ("labels", "nodes", "qualified")

_SHORT = Repr()
"""Aliases make a list of a few lines one of millions of entries, too long to write out."""
_SHORT.maxlevel = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelFile:
    """The file's contents.

    Attributes:
        labels: keys of node labels, that of tier 0 first.
        nodes: names of places by node, that of tier 0 first.
        is_qualified: whether a place is told apart by the broader ones around it, because
            racks of two blocks bear the same number.
    """

    labels: tuple[str, ...] = ()
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    is_qualified: bool = True


def level_file(document: Any) -> LevelFile:
    """Return what *document* says.

    Raises:
        InputError: it is something else; the text names the place in it.
    """
    if not isinstance(document, dict):
        raise InputError("levels: not a mapping", f"give it {' and '.join(_FIELDS[:2])}")
    for name in document:
        if name not in _FIELDS:
            close = get_close_matches(str(name), _FIELDS, n=1)
            cure = f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(_FIELDS)}"
            raise InputError(f"levels: unknown field {name!r}", cure)
    is_qualified = document.get("qualified", True)
    if not isinstance(is_qualified, bool):
        raise InputError(f"levels.qualified: {_SHORT.repr(is_qualified)}", "write true or false")
    return LevelFile(
        labels=_names("levels.labels", document.get("labels", [])),
        nodes=_nodes(document.get("nodes", {})),
        is_qualified=is_qualified,
    )


def file_tiers(file: LevelFile, node: str | None, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the tiers of *node*, whose labels are *labels*, as ``LabelRules.levels`` wants them.

    Below a place that is not known nothing can be told apart, so there the tiers end, unless
    the file says that names need no telling apart.
    """
    places = file.nodes.get(node or "") or tuple(labels.get(key, "") for key in file.labels)
    found: dict[str, str] = {}
    around: list[str] = []
    for tier, place in reversed(tuple(enumerate(places))):
        around.append(place)
        value = level_value(place)
        if value is not None and file.is_qualified:
            value = qualified(around) if all(around) else None
        if value is not None:
            found[f"tier-{tier}"] = value
    return found


def _nodes(found: Any) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(found, dict):
        raise InputError("levels.nodes: not a mapping", "write a list of places for each node")
    nodes = {
        _text(f"levels.nodes.{node}", node): _names(f"levels.nodes.{node}", places)
        for node, places in found.items()
    }
    return MappingProxyType(nodes)


def _names(path: str, found: Any) -> tuple[str, ...]:
    if not isinstance(found, list) or len(found) > MAX_TIERS:
        raise InputError(f"{path}: not a list of up to {MAX_TIERS}", "begin with the nearest level")
    return tuple(_text(f"{path}[{position}]", name) for position, name in enumerate(found))


def _text(path: str, found: Any) -> str:
    # YAML reads a rack's number as a number; a truth value is a slip (`no`, `on`).
    if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
        raise InputError(
            f"{path}: not a name: {_SHORT.repr(found)}", "write a text, in quotes if in doubt"
        )
    return str(found)
