"""Keys that stand twice in one map of a YAML text, and what is lost by it.

``kubectl`` keeps the last value and says nothing (sigs.k8s.io/yaml v1.6.0 YAMLToJSON, which is not
strict; tried with kubectl 1.32).
"""

from collections.abc import Iterator

import yaml

from nodetopo.formats.document import read_values

_MERGE_KEY = "<<"
"""Takes over the keys of another map; a map can have it several times."""

_SHOWN = 60
"""Characters of a key or a value in a message."""

_MOST_LOST = 3
"""Lost values that are named; more are counted."""


def repeated_keys(text: str) -> list[str]:
    """Return a sentence on each key that a map of *text* has twice, in the order of lines.

    Raises:
        ValueError: not YAML, or beyond a limit.
    """
    found: list[tuple[int, str]] = []
    waiting = [value.node for value in read_values("", text, may_repeat=True)]
    seen: set[int] = set()  # what aliases share comes once
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not isinstance(node, yaml.CollectionNode):
            continue
        seen.add(id(node))
        if not isinstance(node, yaml.MappingNode):
            waiting += node.value
            continue
        places: dict[str, list[tuple[int, yaml.Node]]] = {}
        for key, value in node.value:
            waiting.append(value)
            if isinstance(key, yaml.ScalarNode) and key.value != _MERGE_KEY:
                places.setdefault(key.value, []).append((key.start_mark.line + 1, value))
        found += (
            (entries[0][0], _sentence(key, entries))
            for key, entries in places.items()
            if len(entries) > 1
        )
    return [sentence for _, sentence in sorted(found)]


def _sentence(key: str, entries: list[tuple[int, yaml.Node]]) -> str:
    lines = [str(line) for line, _ in entries]
    times = "twice" if len(entries) == 2 else f"{len(entries)} times"
    kept = set(_leaves(entries[-1][1]))
    lost = [it for _, value in entries[:-1] for it in _leaves(value) if it not in kept]
    named = ", ".join(dict.fromkeys(lost[:_MOST_LOST]))
    more = f" and {len(lost) - _MOST_LOST} more" if len(lost) > _MOST_LOST else ""
    verb = "are" if len(lost) > 1 else "is"
    loss = f"{named}{more} {verb} lost" if lost else "nothing is lost"
    where = f"lines {', '.join(lines[:-1])} and {lines[-1]}"
    return f"{key[:_SHOWN]} stands {times}, {where}: kubectl keeps the last, {loss}"


def _leaves(node: yaml.Node, path: str = "") -> Iterator[str]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            yield from _leaves(value, f"{path}.{name}" if path else str(name))
    elif isinstance(node, yaml.SequenceNode):
        for position, value in enumerate(node.value):
            yield from _leaves(value, f"{path}[{position}]")
    else:
        text = str(node.value)[:_SHOWN]
        yield f"{path}: {text}" if path else text
