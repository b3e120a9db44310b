"""Keys of the kubelet's files that it may pass over: unknown ones, and those stated twice."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import yaml

from agent.formats.yaml_words import LOADER
from agent.model.kubelet_keys import KEYS, SINCE, Keys, OddKey, is_empty, spelled

MAX_LENGTH = 100
"""Most characters kept of a key; the longest that a kubelet knows has 41."""

_MERGE = "<<"
"""Takes in other maps, and may do so several times (YAML's merge key)."""


def unknown_keys(document: Any, file: str, *, is_drop_in: bool) -> Iterator[OddKey]:
    """Yield the keys of a KubeletConfiguration that not every release knows as they are written.

    One of a newer release that is empty is none: kubeadm writes those of its own release for
    kubelets of older ones.
    """
    for within, key in _unknown(document, KEYS, "", any_case=is_drop_in):
        yield OddKey(key=kept(key), within=within, file=file, is_drop_in=is_drop_in)


def repeated_keys(text: str, file: str) -> Iterator[OddKey]:
    """Yield the keys that an object of a file has twice; *text* is known to be YAML or JSON."""
    try:
        found = _repeated(json.loads(text, object_pairs_hook=_Pairs), "")
    except ValueError:
        found = _repeated_nodes(yaml.compose(text, Loader=LOADER), "", set())
    for within, key in found:
        yield OddKey(key=kept(key), within=kept(within), file=file, is_repeated=True)


def kept(text: str) -> str:
    """Return so much of *text* as a snapshot keeps: not all where it is long, and no half pairs."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return whole if len(whole) <= MAX_LENGTH else f"{whole[: MAX_LENGTH - 1]}…"


def _unknown(value: Any, known: Keys, at: str, *, any_case: bool) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield from _unknown(item, known, f"{at}[{place}]", any_case=any_case)
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        name = spelled(key, known, any_case=any_case)
        if name != key or (key in SINCE and not is_empty(inner)):
            yield at, key
        if name is not None and known[name]:
            path = f"{at}.{name}" if at else name
            yield from _unknown(inner, known[name], path, any_case=any_case)


class _Pairs(dict[str, Any]):
    """An object of JSON, with the keys that it has twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated = _twice(key for key, _ in pairs)


def _twice(keys: Iterator[str]) -> tuple[str, ...]:
    return tuple(key for key, times in Counter(keys).items() if times > 1)


def _repeated(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield from _repeated(item, f"{at}[{place}]")
    if isinstance(value, _Pairs):
        yield from ((at, key) for key in value.repeated)
        for key, inner in value.items():
            yield from _repeated(inner, f"{at}.{key}" if at else key)


def _repeated_nodes(node: Any, at: str, seen: set[int]) -> Iterator[tuple[str, str]]:
    """As :func:`_repeated`, of YAML before it is built; an alias is followed once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for place, item in enumerate(node.value):
            yield from _repeated_nodes(item, f"{at}[{place}]", seen)
    if isinstance(node, yaml.MappingNode):
        named = [(key.value, item) for key, item in node.value if isinstance(key.value, str)]
        yield from ((at, key) for key in _twice(key for key, _ in named) if key != _MERGE)
        for key, item in named:
            yield from _repeated_nodes(item, f"{at}.{key}" if at else key, seen)
