"""Values of documents of unknown form: the value below a key, and a value as text."""

import yaml

from nodetopo.formats.document import Value

_SHOWN = 60
"""Characters of a value in a line."""


def below(value: Value | None, *keys: str) -> Value | None:
    """Return the value below *keys*; ``None`` if a key is missing."""
    for word in keys:
        if value is None or not isinstance(value.node, yaml.MappingNode):
            return None
        value = value.entries().get(word)
    return value


def items_of(value: Value | None) -> list[Value]:
    """Return the items of a list; none where it is no list."""
    return value.items() if value is not None and value.is_list() else []


def text_of(value: Value | None) -> str:
    """Return the text of one value as Kubernetes reads it; empty where it is none."""
    if value is None or not isinstance(value.node, yaml.ScalarNode) or value.is_null():
        return ""
    text = str(value.node.value)
    is_switch = value.node.tag == "tag:yaml.org,2002:bool"
    return str(value.scalar()).lower() if is_switch else text


def is_empty(value: Value) -> bool:
    """Return whether a value sets nothing: null, an empty text, list or map."""
    return value.is_null() or value.node.value in ("", [])


def shown_value(value: Value) -> str:
    """Return a value of a known key in few words."""
    if isinstance(value.node, yaml.MappingNode):
        return "{…}" if value.node.value else "{}"
    if value.is_list():
        items = value.items()
        is_plain = all(isinstance(item.node, yaml.ScalarNode) for item in items)
        return f"[{cut(', '.join(map(text_of, items)))}]" if is_plain else "[…]"
    return cut(text_of(value)) or ("null" if value.is_null() else '""')


def cut(text: str) -> str:
    """Return *text* with at most 60 characters."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def key_lines(value: Value) -> dict[str, int]:
    """Return the line of each key of a mapping, except merged keys."""
    if not isinstance(value.node, yaml.MappingNode):
        return {}
    # Empty lines precede an embedded text, so that its line numbers match the file's.
    return {str(name.value): name.start_mark.line + 1 for name, _inner in value.node.value}


def alone(value: Value, keys: tuple[str, ...]) -> Value:
    """Return a document that only has *value*, below *keys*."""
    node = value.node
    mark = node.start_mark
    for word in reversed(keys):
        name = yaml.ScalarNode("tag:yaml.org,2002:str", word, mark, mark)
        node = yaml.MappingNode("tag:yaml.org,2002:map", [(name, node)], mark, mark)
    return Value(value.file, "", node)
