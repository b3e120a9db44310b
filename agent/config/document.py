"""A configuration file as YAML in which every value knows its line and column, for messages.

Nodes are composed and values read on demand, so aliases cost nothing until then; their number and
the size of the file are bounded.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import yaml

from agent.errors import InputError

MAX_BYTES = 1 << 16
"""Some twenty times NVIDIA's longest example; PyYAML needs a second for it."""

MAX_ALIASES = 100
"""Aliases (``*name``) in one file: more would let a small file stand for a huge one."""

_MOST_SHOWN = 60
"""Characters of a value in a message."""

_CURE = "correct the file; docs/operate/configuration.md describes it"
_STANDARD = "tag:yaml.org,2002:"
_MERGE = _STANDARD + "merge"
_READ = ("int", "float", "bool", "null")

Scalar: TypeAlias = "str | int | float | bool | None"


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a file, and where it is.

    Attributes:
        file: its name.
        path: the keys that lead to it, such as ``sharing.timeSlicing``; empty for the whole.
    """

    file: str
    path: str
    node: yaml.Node

    @property
    def where(self) -> str:
        """Return ``file:line:column``, and the path."""
        return f"{_at(self.file, self.node)}{self.path and ': '}{self.path}"

    @property
    def origin(self) -> str:
        """Return where a setting comes from, in one or two words."""
        return f"{self.file}:{self.node.start_mark.line + 1} key {self.path}"

    def refuse(self, problem: str, cure: str = _CURE) -> NoReturn:
        """Refuse the value because of *problem*.

        Raises:
            InputError: always.
        """
        raise InputError(f"{self.where}: {problem}", cure)

    def expected(self, what: str) -> NoReturn:
        """Refuse the value because *what* was expected.

        Raises:
            InputError: always.
        """
        self.refuse(f"expected {what}, found {self.shown()}")

    def shown(self) -> str:
        """Return the value in few words."""
        if isinstance(self.node, yaml.MappingNode):
            return "a mapping"
        if self.is_list():
            parts = self.node.value
            is_plain = all(isinstance(part, yaml.ScalarNode) for part in parts)
            text = ", ".join(part.value for part in parts) if is_plain else ""
            is_short = is_plain and len(text) <= _MOST_SHOWN
            return f"the list [{text}]" if is_short else "a list"
        if self.is_null():
            return "nothing"
        kind = self.node.tag.removeprefix(_STANDARD)
        text = str(self.node.value)
        text = text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."
        return f"the text {text!r}" if kind not in _READ else text

    def is_list(self) -> bool:
        """Tell whether the value is a list."""
        return isinstance(self.node, yaml.SequenceNode)

    def is_null(self) -> bool:
        """Tell whether the value is empty, or the word ``null``."""
        return bool(self.node.tag == _STANDARD + "null")

    def scalar(self) -> Scalar:
        """Return a text, number, switch or ``None``; a date is the text that was written.

        Raises:
            InputError: a list or a mapping, or a tag that stands for something else.
        """
        if not isinstance(self.node, yaml.ScalarNode):
            self.expected("one value")
        kind = self.node.tag.removeprefix(_STANDARD)
        if kind == self.node.tag:
            self.refuse(f"the tag {self.node.tag!r} means nothing here")
        if kind not in _READ:
            return str(self.node.value)
        try:
            # A new one each time: a constructor keeps every node that it has seen.
            value = yaml.constructor.SafeConstructor().construct_object(self.node)
        except (ValueError, OverflowError, LookupError, yaml.YAMLError):  # `!!int ""` is one
            self.expected("a number")
        if isinstance(value, float) and not math.isfinite(value):
            self.expected("a finite number")
        assert value is None or isinstance(value, bool | int | float)
        return value

    def items(self) -> "list[Value]":
        """Return the values of a list.

        Raises:
            InputError: it is no list.
        """
        if not isinstance(self.node, yaml.SequenceNode):
            self.expected("a list")
        nodes = enumerate(self.node.value)
        return [Value(self.file, f"{self.path}[{index}]", node) for index, node in nodes]

    def entries(self) -> "dict[str, Value]":
        """Return the values of a mapping, by key; the last of a repeated key, as NVIDIA does.

        Raises:
            InputError: it is no mapping, or a key is not one word.
        """
        if not isinstance(self.node, yaml.MappingNode):
            self.expected("a mapping")
        nodes = self._collected(self.node, {})
        prefix = f"{self.path}." if self.path else ""
        return {key: Value(self.file, prefix + key, node) for key, node in nodes.items()}

    def repeated(self) -> Iterator[str]:
        """Yield a sentence for each repeated key; none where the value is no mapping."""
        if not isinstance(self.node, yaml.MappingNode):
            return
        seen: dict[str, int] = {}
        for key, _node in self.node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen and key.tag != _MERGE:
                first = seen[key.value]
                yield f"{_at(self.file, key)}: {key.value!r} replaces that of line {first}"
            seen[str(key.value)] = key.start_mark.line + 1

    def plain(self, depth: int = 2) -> Any:
        """Return the value as PyYAML would, for settings with at most *depth* levels.

        Raises:
            InputError: it is nested deeper.
        """
        if isinstance(self.node, yaml.ScalarNode):
            return self.scalar()
        if depth == 0:
            self.refuse("nested too deeply")
        if isinstance(self.node, yaml.SequenceNode):
            return [item.plain(depth - 1) for item in self.items()]
        return {key: item.plain(depth - 1) for key, item in self.entries().items()}

    def _collected(
        self, node: yaml.Node, done: dict[int, dict[str, yaml.Node] | None]
    ) -> dict[str, yaml.Node]:
        """Return the nodes of a mapping; what ``<<`` merges is weaker, the first the strongest.

        *done* has the mappings merged so far, with ``None`` for those that are not complete.
        """
        if not isinstance(node, yaml.MappingNode):
            Value(self.file, self.path, node).expected("a mapping to merge")
        known = done.get(id(node), {})
        if known is None:
            self.refuse("`<<` merges a mapping into itself")
        if known:
            return known
        done[id(node)] = None
        entries: dict[str, yaml.Node] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == _MERGE:
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
            elif isinstance(key, yaml.ScalarNode):
                entries[str(key.value)] = value
            else:
                Value(self.file, self.path, key).refuse("a key that is not one word")
        for other in merged:
            entries = {**self._collected(other, done), **entries}
        done[id(node)] = entries
        return entries


class _Loader(yaml.SafeLoader):
    """Reads one document and counts its aliases."""

    aliases = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node, unless there are too many aliases."""
        self.aliases += bool(self.check_event(yaml.AliasEvent))
        if self.aliases > MAX_ALIASES:
            raise yaml.YAMLError(f"more than {MAX_ALIASES} aliases")
        return super().compose_node(parent, index)


def load(name: str, text: str) -> tuple[Value | None, tuple[str, ...]]:
    """Return the first document of the file *name*, ``None`` if it is empty, and warnings.

    Raises:
        InputError: it is too large, or is not YAML.
    """
    if len(text) > MAX_BYTES:
        raise InputError(f"{name} is larger than {MAX_BYTES >> 10} KiB", "name a configuration")
    try:
        loader = _Loader(text)
        node = loader.get_node() if loader.check_node() else None
        has_more = loader.check_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else name
        problem = " ".join(filter(None, (error.context, error.problem)))
        raise InputError(f"{at}: not YAML: {' '.join(problem.split())}", _CURE) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{name}: not YAML: {' '.join(problem.split())}", _CURE) from None
    warnings = (f"{name}: only the first document is read",) if has_more else ()
    if node is None or (Value(name, "", node).is_null()):
        return None, warnings
    return Value(name, "", node), warnings


def _at(file: str, node: yaml.Node) -> str:
    return f"{file}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"
