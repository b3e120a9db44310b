"""Documents in YAML or JSON from untrusted sources, as plain values or as values with places.

A text becomes plain lists, dicts and scalars (:func:`load`, :func:`load_all`), or values that know
their line and column for messages (:func:`read_values`, :func:`read_configuration`). The events of
a text are counted before anything is built, with the nodes that each alias repeats: a small text
that expands to a huge document is refused, and so is one that contains itself.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, NoReturn, TypeAlias

import yaml
from msgspec import Struct

from nodetopo.errors import InputError
from nodetopo.formats import safe
from nodetopo.formats.yaml import LOADER, YAML_ERRORS, KubernetesLoader

MAX_KUBELET_NODES = 10_000
"""Of the kubelet's files; a configuration that states every field and gate has 500."""

MAX_MIGRATED_NODES = 30_000
"""The same of files to migrate from; the values of NVIDIA's operator have 1,000. Each unknown key
is compared with the known ones, which takes a third of a millisecond."""

MAX_CONFIGURATION_BYTES = 1 << 16
"""Size of a configuration file: some twenty times NVIDIA's longest example, a second for PyYAML."""

MAX_CONFIGURATION_ALIASES = 100
"""Aliases (``*name``) in a configuration file. Its values are read on demand, so that aliases cost
nothing until then."""

_SHOWN = 60
"""Characters of a value in a message."""

_CURE = "correct the file; docs/operate/configuration.md describes it"
_MERGE_KEY = "<<"
"""The key that takes over the keys of another map; a map can have it several times."""

_STANDARD = "tag:yaml.org,2002:"
_MERGE = _STANDARD + "merge"
_READ = ("int", "float", "bool", "null")

Scalar: TypeAlias = "str | int | float | bool | None"


class BeyondLimitsError(yaml.MarkedYAMLError):
    """A text that may be YAML, but is beyond one of the limits."""


class Value(Struct, frozen=True):
    """A value of a file, with its place.

    Methods that read the value raise InputError with that place if it has another form.
    """

    file: str
    path: str  # keys that lead to it: sharing.timeSlicing; empty for the whole document
    node: yaml.Node

    @property
    def where(self) -> str:
        """Return ``file:line:column``, and the path."""
        return f"{_at(self.file, self.node)}{self.path and ': '}{self.path}"

    @property
    def origin(self) -> str:
        """Return the origin of a setting: file, line, and path."""
        return f"{self.file}:{self.node.start_mark.line + 1} key {self.path}"

    def refuse(self, problem: str, cure: str = _CURE) -> NoReturn:
        raise InputError(f"{self.where}: {problem}", cure)

    def expected(self, what: str) -> NoReturn:
        """Refuse the value because it is not *what*, such as ``a list``."""
        self.refuse(f"expected {what}, found {self.shown()}")

    def shown(self) -> str:
        """Return the value in few words."""
        if isinstance(self.node, yaml.MappingNode):
            return "a mapping"
        if self.is_list():
            parts = self.node.value
            is_plain = all(isinstance(part, yaml.ScalarNode) for part in parts)
            text = ", ".join(part.value for part in parts) if is_plain else ""
            is_short = is_plain and len(text) <= _SHOWN
            return f"the list [{text}]" if is_short else "a list"
        if self.is_null():
            return "nothing"
        kind = self.node.tag.removeprefix(_STANDARD)
        text = str(self.node.value)
        text = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
        return f"the text {text!r}" if kind not in _READ else text

    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    def is_null(self) -> bool:
        """Return whether the value is empty, or the word ``null``."""
        return bool(self.node.tag == _STANDARD + "null")

    def scalar(self) -> Scalar:
        """Return a text, number, boolean or ``None``; a date is the text that was written."""
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
        if not isinstance(self.node, yaml.SequenceNode):
            self.expected("a list")
        nodes = enumerate(self.node.value)
        return [Value(self.file, f"{self.path}[{index}]", node) for index, node in nodes]

    def entries(self) -> "dict[str, Value]":
        """Return the values of a mapping, by key; the last of a repeated key, as NVIDIA does."""
        if not isinstance(self.node, yaml.MappingNode):
            self.expected("a mapping")
        nodes = self._collected(self.node, {})
        return {key: Value(self.file, self.below(key), node) for key, node in nodes.items()}

    def repeated(self) -> Iterator[str]:
        """Yield a sentence for each repeated key; none if the value is no mapping."""
        if not isinstance(self.node, yaml.MappingNode):
            return
        seen: dict[str, int] = {}
        for key, _node in self.node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen and key.tag != _MERGE:
                first = seen[key.value]
                yield f"{_at(self.file, key)}: {key.value!r} replaces that of line {first}"
            seen[str(key.value)] = key.start_mark.line + 1

    def repeated_below(self) -> Iterator[tuple[str, str]]:
        """Yield the path of each mapping and a key that it repeats; aliases are followed once."""
        seen: set[int] = set()
        todo = [self]
        while todo:
            value = todo.pop()
            if id(value.node) in seen:
                continue
            seen.add(id(value.node))
            inner: list[Value] = []
            if isinstance(value.node, yaml.SequenceNode):
                inner = value.items()
            elif isinstance(value.node, yaml.MappingNode):
                # Not `entries()`, which has only the last value of a key.
                words = [pair for pair in value.node.value if isinstance(pair[0], yaml.ScalarNode)]
                counts = Counter(key.value for key, _node in words if key.value != _MERGE_KEY)
                yield from ((value.path, key) for key, times in counts.items() if times > 1)
                inner = [Value(value.file, value.below(key.value), node) for key, node in words]
            todo += reversed(inner)

    def plain(self, depth: int = 2) -> Any:
        """Return the value as PyYAML would, for settings with at most *depth* levels."""
        if isinstance(self.node, yaml.ScalarNode):
            return self.scalar()
        if depth == 0:
            self.refuse("nested too deeply")
        if isinstance(self.node, yaml.SequenceNode):
            return [item.plain(depth - 1) for item in self.items()]
        return {key: item.plain(depth - 1) for key, item in self.entries().items()}

    def below(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _collected(
        self, node: yaml.Node, done: dict[int, dict[str, yaml.Node] | None]
    ) -> dict[str, yaml.Node]:
        """Return the nodes of a mapping; own keys win over merged ones (``<<``), then the first.

        *done* has the mappings merged so far, ``None`` for a mapping that is not complete.
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


def load_all(
    text: str,
    max_nodes: int = safe.YAML.nodes,
    *,
    may_repeat: bool = False,
    loader: Any = KubernetesLoader,
) -> list[Any]:
    """Return the documents of *text* as lists, dicts and scalars; empty ones are None.

    Args:
        max_nodes: most scalars, lists and maps, those that aliases repeat included.
        may_repeat: whether a map can repeat a key; the last one counts.
        loader: what gives words their meaning.

    Raises:
        ValueError: not YAML, or beyond a limit. The message says what, and in which line.
    """
    return _loaded(text, max_nodes, may_repeat=may_repeat, loader=loader)


def load(
    text: str,
    max_nodes: int = safe.YAML.nodes,
    *,
    may_repeat: bool = False,
    loader: Any = KubernetesLoader,
) -> Any:
    """Return the first document of *text*; None where it is empty. As :func:`load_all`.

    The rest is not parsed, as sigs.k8s.io/yaml does not: a file can end in ``---``.
    """
    documents = _loaded(text, max_nodes, may_repeat=may_repeat, loader=loader, most=1)
    return documents[0] if documents else None


def _loaded(
    text: str, max_nodes: int, *, may_repeat: bool, loader: Any, most: int | None = None
) -> list[Any]:
    if text.lstrip().startswith(("{", "[")) and len(text) <= safe.YAML.characters:
        with suppress(ValueError):  # JSON indented by tabs is no YAML
            return [safe.load_json(text, may_repeat=may_repeat)]

    def build() -> list[Any]:
        return list(islice(yaml.load_all(text, Loader=loader), most))

    return _checked(text, max_nodes, build, may_repeat, most)


def read_values(
    file: str,
    text: str,
    max_nodes: int = safe.YAML.nodes,
    *,
    may_repeat: bool = False,
    most: int | None = None,
) -> list[Value]:
    """Return the (first *most*) documents of *text*; *file* is its name. As :func:`load_all`.

    Words have the meaning that PyYAML gives them.
    """

    def compose() -> list[yaml.Node]:
        return list(islice(yaml.compose_all(text, Loader=LOADER), most))

    nodes = _checked(text, max_nodes, compose, may_repeat, most)
    return [Value(file, "", node) for node in nodes]


def read_configuration(name: str, text: str) -> tuple[Value | None, tuple[str, ...]]:
    """Return the first document of the file *name*, ``None`` if it is empty, and warnings.

    Raises:
        InputError: it is too large, or is not YAML.
    """
    if len(text) > MAX_CONFIGURATION_BYTES:
        size = f"{MAX_CONFIGURATION_BYTES >> 10} KiB"
        raise InputError(f"{name} is larger than {size}", "name a configuration")
    try:
        loader = _ConfigurationLoader(text)
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
    if node is None or Value(name, "", node).is_null():
        return None, warnings
    return Value(name, "", node), warnings


class _ConfigurationLoader(yaml.SafeLoader):
    """Composes documents and counts their aliases.

    It is PyYAML's parser in Python, whose messages are better than libyaml's.
    """

    aliases = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node, unless there are too many aliases."""
        self.aliases += bool(self.check_event(yaml.AliasEvent))
        if self.aliases > MAX_CONFIGURATION_ALIASES:
            raise yaml.YAMLError(f"more than {MAX_CONFIGURATION_ALIASES} aliases")
        return super().compose_node(parent, index)


def _checked(
    text: str,
    max_nodes: int,
    build: Callable[[], list[Any]],
    may_repeat: bool,
    most: int | None = None,
) -> list[Any]:
    """Return what *build* makes of *text*, whose documents (the first *most*) are within limits."""
    safe.YAML.check_size(text)
    try:
        events = yaml.parse(text, Loader=LOADER)
        if most is not None:
            events = _documents(events, most)
        check_weight(events, max_nodes, may_repeat=may_repeat)
        return build()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = f"{error.problem or error.context}{f' in line {mark.line + 1}' if mark else ''}"
        is_beyond = isinstance(error, BeyondLimitsError)
        raise ValueError(problem if is_beyond else f"not YAML: {problem}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {str(error).splitlines()[0]}") from None
    except YAML_ERRORS as error:
        # What PyYAML's constructors raise where a text does not have the type of its tag.
        problem = f"a value that its tag does not fit ({type(error).__name__}: {error})"
        raise ValueError(f"not YAML: {problem}") from None


def _documents(events: Iterable[yaml.Event], most: int) -> Iterator[yaml.Event]:
    for event in events:
        yield event
        most -= isinstance(event, yaml.DocumentEndEvent)
        if not most:
            return


class _OpenCollection(Struct):
    """A list or map whose end is still to come."""

    anchor: str | None
    before: int  # nodes before it
    keys: set[str] | None  # so far; None for a list
    is_key: bool = True  # the next node of a map is a key


def check_weight(
    events: Iterable[yaml.Event], max_nodes: int = safe.YAML.nodes, *, may_repeat: bool = False
) -> None:
    """Count the nodes that *events* build, aliases resolved, and look for repeated keys.

    Raises:
        BeyondLimitsError: more than *max_nodes*, deeper than the limit, an alias inside
            the node that it repeats, or, unless *may_repeat*, a key that a map repeats. (The
            composer refuses an alias without an anchor.)
    """
    nodes = 0
    nodes_of_anchor: dict[str, int] = {}
    stack: list[_OpenCollection] = []
    for event in events:
        problem = ""
        if stack and not may_repeat and not isinstance(event, yaml.CollectionEndEvent):
            problem = _repeated(stack[-1], event)
        match event:
            case yaml.AliasEvent():
                if event.anchor in {it.anchor for it in stack}:
                    problem = problem or "an alias inside what it stands for"
                nodes += nodes_of_anchor.get(event.anchor or "", 1)
            case yaml.CollectionStartEvent():
                is_map = isinstance(event, yaml.MappingStartEvent)
                stack.append(_OpenCollection(event.anchor, nodes, set() if is_map else None))
                nodes += 1
            case yaml.CollectionEndEvent():
                ended = stack.pop()
                if ended.anchor is not None:
                    nodes_of_anchor[ended.anchor] = nodes - ended.before
            case yaml.ScalarEvent():
                nodes += 1
        if nodes > max_nodes:
            problem = problem or f"more than {max_nodes} nodes, aliases resolved"
        elif len(stack) > safe.YAML.depth:
            problem = problem or f"nested more than {safe.YAML.depth} deep"
        if problem:
            mark: Any = event.start_mark
            raise BeyondLimitsError(problem=problem, problem_mark=mark)


def _repeated(parent: _OpenCollection, event: yaml.Event) -> str:
    """Return the problem if *event* is a key that *parent* has already; else note a key."""
    if parent.keys is None:
        return ""
    was_key, parent.is_key = parent.is_key, not parent.is_key
    if not was_key or not isinstance(event, yaml.ScalarEvent) or event.value == _MERGE_KEY:
        return ""
    if event.value in parent.keys:
        return f"the key {event.value[:_SHOWN]!r} stands twice in one map"
    parent.keys.add(event.value)
    return ""


def _at(file: str, node: yaml.Node) -> str:
    return f"{file}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


_MOST_LOST = 3
"""Lost values that are named; more are counted."""


def repeated_keys(text: str) -> list[str]:
    """Return a sentence on each key that a map of *text* has twice, in the order of lines.

    ``kubectl`` keeps the last value and says nothing (sigs.k8s.io/yaml v1.6.0 YAMLToJSON, which is
    not strict; tried with kubectl 1.32).

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
