"""YAML as Kubernetes reads it, from untrusted sources.

Kubernetes' programs turn YAML into JSON first (sigs.k8s.io/yaml v1.6.0, over go.yaml.in/yaml/v2):
a plain word is a number, a boolean or nothing by the rules of resolve.go there, and otherwise a
text, dates included; keys become texts. PyYAML's own rules differ in all of these.

Before anything is built, the text's events are counted, with what each alias repeats: a small text
that expands to a huge document is refused, and so is one that contains itself.
"""

import math
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from agent.formats import json

MAX_CHARACTERS = 2 << 20
"""Largest text; the API server takes objects of 1.5 MiB (etcd's ``--max-request-bytes``)."""

MAX_NODES = 100_000
"""Most scalars, lists and maps, those that aliases repeat included: a second of work. Real
manifests have a few thousand; a text of 2 MiB that lists single letters has a million."""

MAX_DEPTH = 64
"""Deepest nesting. The pod template in a CronJob lies 12 deep; PyYAML's C parser recurses."""

_MERGE = "<<"
"""The key that takes over the keys of another map; it may stand several times."""

_SHOWN = 60
"""Characters of a text in a message."""

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML was built with it: ten times as fast, and the ancestor of Go's."""

YAML_ERRORS = (ValueError, LookupError, AttributeError, TypeError, RecursionError)
"""What PyYAML raises beside its own errors: its constructors for a tag that does not fit its value,
such as ``!!int ""`` or ``!!bool x``, and for invalid dates; its composer for deep nesting (PyYAML
6.0, constructor.py)."""


class BeyondLimitsError(yaml.MarkedYAMLError):
    """A text that may be YAML, but is beyond one of the limits."""


def load_all(text: str, max_nodes: int = MAX_NODES, *, may_repeat: bool = False) -> list[Any]:
    """Return the documents of *text* as lists, dicts and scalars; empty ones are None.

    Args:
        max_nodes: most scalars, lists and maps, those that aliases repeat included.
        may_repeat: whether a key may stand twice in a map; the last one counts.

    Raises:
        ValueError: not YAML, or beyond a limit. The message says what, and in which line.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"larger than {MAX_CHARACTERS >> 20} Mi characters")
    if text.lstrip().startswith(("{", "[")):
        try:
            return [json.load(text, may_repeat=may_repeat)]  # JSON indented by tabs is no YAML
        except ValueError:
            pass
    return _checked(text, max_nodes, lambda: list(yaml.load_all(text, Loader=Loader)), may_repeat)


def compose_all(text: str, max_nodes: int = MAX_NODES, *, may_repeat: bool = False) -> list[Any]:
    """Return the root node of each document of *text*, which knows its lines; as :func:`load_all`.

    Words have the tags of PyYAML's own rules. Empty documents are left out.

    Raises:
        ValueError: as :func:`load_all`.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"larger than {MAX_CHARACTERS >> 20} Mi characters")
    composed = _checked(
        text, max_nodes, lambda: list(yaml.compose_all(text, Loader=LOADER)), may_repeat
    )
    return [node for node in composed if node is not None]


def _checked(
    text: str, max_nodes: int, build: Callable[[], list[Any]], may_repeat: bool
) -> list[Any]:
    """Return what *build* makes of *text*, after the text's weight was checked.

    Raises:
        ValueError: not YAML, or beyond a limit.
    """
    try:
        check_weight(yaml.parse(text, Loader=LOADER), max_nodes, may_repeat=may_repeat)
        return build()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = f"{error.problem or error.context}{f' in line {mark.line + 1}' if mark else ''}"
        is_beyond = isinstance(error, BeyondLimitsError)
        raise ValueError(problem if is_beyond else f"not YAML: {problem}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {str(error).splitlines()[0]}") from None
    except YAML_ERRORS as error:
        raise ValueError(f"not YAML: {type(error).__name__}") from None


def load(text: str, max_nodes: int = MAX_NODES, *, may_repeat: bool = False) -> Any:
    """Return the only document of *text*; None where it is empty. As :func:`load_all`.

    Raises:
        ValueError: as :func:`load_all`, or there are several documents.
    """
    documents = load_all(text, max_nodes, may_repeat=may_repeat)
    if len(documents) > 1:
        raise ValueError(f"{len(documents)} documents where one is expected")
    return documents[0] if documents else None


@dataclass(slots=True)
class _OpenCollection:
    """A list or map whose end is still to come, and the number of nodes before it.

    Attributes:
        keys: those so far; ``None`` for a list.
        is_key: whether the next node of a map is a key.
    """

    anchor: str | None
    before: int
    keys: set[str] | None
    is_key: bool = True


def check_weight(
    events: Iterable[yaml.Event], max_nodes: int = MAX_NODES, *, may_repeat: bool = False
) -> None:
    """Count the nodes that *events* build, aliases resolved, and look for repeated keys.

    Raises:
        BeyondLimitsError: more than *max_nodes*, deeper than :data:`MAX_DEPTH`, an alias inside
            what it stands for, or, unless it *may_repeat*, a key that stands twice in a map, which
            `kubectl` refuses, too. (The composer refuses an alias without an anchor.)
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
        elif len(stack) > MAX_DEPTH:
            problem = problem or f"nested more than {MAX_DEPTH} deep"
        if problem:
            mark: Any = event.start_mark
            raise BeyondLimitsError(problem=problem, problem_mark=mark)


def _repeated(parent: _OpenCollection, event: yaml.Event) -> str:
    """Return the problem where *event* is a key that *parent* has already; note it if it is new."""
    if parent.keys is None:
        return ""
    was_key, parent.is_key = parent.is_key, not parent.is_key
    if not was_key or not isinstance(event, yaml.ScalarEvent) or event.value == _MERGE:
        return ""
    if event.value in parent.keys:
        return f"the key {event.value[:_SHOWN]!r} stands twice in one map"
    parent.keys.add(event.value)
    return ""


class Loader(LOADER):  # type: ignore[misc] # one of two classes
    """PyYAML's safe loader with Kubernetes' rules for words, and without types that JSON lacks.

    Words as in go.yaml.in/yaml/v2 v2.4.3 resolve.go; keys as in sigs.k8s.io/yaml v1.6.0 yaml.go
    (convertToJSONableObject).
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - how PyYAML registers
    yaml_constructors: dict[str | None, Any] = {}  # noqa: RUF012 - same

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        """Build a map whose keys are texts."""
        if not isinstance(node, yaml.MappingNode):
            raise _mismatch("a map", node)
        self.flatten_mapping(node)
        built: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float):
                raise yaml.MarkedYAMLError(
                    problem=f"a key that is {type(key).__name__}",
                    problem_mark=key_node.start_mark,
                )
            name = str(key).lower() if isinstance(key, bool) else str(key)
            built[name] = self.construct_object(value_node, deep=deep)
        return built


_TRUE = ("y", "yes", "on", "true")
_FALSE = ("n", "no", "off", "false")
_INTEGER = "[-+]?(?:0[bB][01]+|0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[0-7]*|[1-9][0-9]*)"
_FRACTION = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_NOT_FINITE = r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"

_MAX_DIGITS = 400
"""Of a number; the largest double has 309 before its point."""


def _construct_bool(loader: Any, node: Any) -> bool:
    word = loader.construct_scalar(node).lower()
    if word not in _TRUE + _FALSE:
        raise _mismatch("a boolean", node)
    return word in _TRUE


def _construct_number(loader: Any, node: Any) -> int | float | str:
    """Read what looks like a number; much of it, such as ``1.2.3`` and ``3-5``, is a text."""
    text = loader.construct_scalar(node)
    plain = text.replace("_", "")
    if re.fullmatch(_NOT_FINITE, text):
        raise _mismatch("a number that JSON has", node)
    if len(plain) <= _MAX_DIGITS and re.fullmatch(_INTEGER, plain):
        whole = int(re.sub("(?<![0-9a-zA-Z])0(?=[0-7])", "0o", plain), 0)
        return whole if -(1 << 63) <= whole < 1 << 64 else float(whole)
    if re.fullmatch(_FRACTION, plain) and math.isfinite(fraction := float(plain)):
        return fraction
    if node.tag.endswith(":int"):  # only where the text itself has the tag
        raise _mismatch("a whole number", node)
    return str(text)


def _mismatch(expected: str, node: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=f"not {expected}", problem_mark=node.start_mark)


_TAG = "tag:yaml.org,2002:"

for _tag, _pattern, _first_characters in (
    (
        "bool",
        "|".join(f"{word}|{word.capitalize()}|{word.upper()}" for word in _TRUE + _FALSE),
        list("yYnNoOtTfF"),
    ),
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("float", "[-+.0-9][-+._0-9a-zA-Z]*", list("-+.0123456789")),
    ("merge", "<<", ["<"]),
):
    Loader.add_implicit_resolver(f"{_TAG}{_tag}", re.compile(f"(?:{_pattern})$"), _first_characters)

for _tag in ("null", "str", "seq", "map"):
    _constructor = getattr(yaml.constructor.SafeConstructor, f"construct_yaml_{_tag}")
    Loader.add_constructor(f"{_TAG}{_tag}", _constructor)
Loader.add_constructor(f"{_TAG}bool", _construct_bool)
Loader.add_constructor(f"{_TAG}int", _construct_number)
Loader.add_constructor(f"{_TAG}float", _construct_number)
Loader.add_constructor(None, yaml.constructor.SafeConstructor.construct_undefined)
