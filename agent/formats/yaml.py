"""YAML as Kubernetes reads it, from sources that may mean harm.

Kubernetes' programs turn YAML into JSON first (sigs.k8s.io/yaml v1.6.0, over go.yaml.in/yaml/v2):
a plain word is a number, a boolean or nothing by the rules of resolve.go there, and otherwise a
text, dates included; keys become texts. PyYAML's own rules differ in all of these.

Before anything is built, the text's events are counted, with what each alias repeats: a text that
is small and means something huge is refused, and so is one that holds itself.
"""

import math
import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import yaml

from agent.formats import json

# How much a YAML text means, counted from its events before anything of it is built.

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


# What the words of a YAML text mean to Kubernetes' programs.
#
# As go.yaml.in/yaml/v2 v2.4.3 resolve.go has it for plain words, and sigs.k8s.io/yaml v1.6.0
# yaml.go (convertToJSONableObject) for keys.

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML was built with it: ten times as fast, and the ancestor of Go's."""


_TRUE = ("y", "yes", "on", "true")


_FALSE = ("n", "no", "off", "false")


_WHOLE = "[-+]?(?:0[bB][01]+|0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[0-7]*|[1-9][0-9]*)"


_BROKEN = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"


_ENDLESS = r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"


_WORDS = re.compile(
    "|".join(f"{word}|{word.capitalize()}|{word.upper()}" for word in _TRUE + _FALSE)
)


_NOTHING = re.compile("~|null|Null|NULL|")


_NUMBERS = re.compile(r"[-+.0-9][-+._0-9a-zA-Z]*")


_MAX_DIGITS = 400
"""Of a number; the largest double has 309 before its point."""


class Loader(LOADER):  # type: ignore[misc] # one of two classes
    """PyYAML's safe loader with other rules for words, and without types that JSON lacks."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - how PyYAML registers
    yaml_constructors: dict[str | None, Any] = {}  # noqa: RUF012 - same

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        """Make a map whose keys are texts."""
        if not isinstance(node, yaml.MappingNode):
            raise _misnamed("a map", node)
        self.flatten_mapping(node)
        return {
            _key(self.construct_object(key, deep=True), key): self.construct_object(
                value, deep=deep
            )
            for key, value in node.value
        }


def _key(key: Any, node: Any) -> str:
    if isinstance(key, bool):
        return str(key).lower()
    if isinstance(key, str | int | float):
        return str(key)
    raise yaml.MarkedYAMLError(
        problem=f"a key that is {type(key).__name__}", problem_mark=node.start_mark
    )


def _boolean(loader: Any, node: Any) -> bool:
    word = loader.construct_scalar(node).lower()
    if word not in _TRUE + _FALSE:
        raise _misnamed("a boolean", node)
    return word in _TRUE


def _number(loader: Any, node: Any) -> int | float | str:
    """Read what looks like a number; much of it, such as ``1.2.3`` and ``3-5``, is a text."""
    text = loader.construct_scalar(node)
    plain = text.replace("_", "")
    if re.fullmatch(_ENDLESS, text):
        raise _misnamed("a number that JSON has", node)
    if len(plain) <= _MAX_DIGITS and re.fullmatch(_WHOLE, plain):
        whole = int(re.sub("(?<![0-9a-zA-Z])0(?=[0-7])", "0o", plain), 0)
        return whole if -(1 << 63) <= whole < 1 << 64 else float(whole)
    if re.fullmatch(_BROKEN, plain) and math.isfinite(broken := float(plain)):
        return broken
    if node.tag.endswith(":int"):  # which is there only where the text says so
        raise _misnamed("a whole number", node)
    return str(text)


def _misnamed(what: str, node: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=f"not {what}", problem_mark=node.start_mark)


def _register() -> None:
    core = "tag:yaml.org,2002:"
    resolver, constructor = Loader.add_implicit_resolver, Loader.add_constructor
    resolver(f"{core}bool", re.compile(f"(?:{_WORDS.pattern})$"), list("yYnNoOtTfF"))
    resolver(f"{core}null", re.compile(f"(?:{_NOTHING.pattern})$"), ["~", "n", "N", ""])
    resolver(f"{core}float", re.compile(f"(?:{_NUMBERS.pattern})$"), list("-+.0123456789"))
    resolver(f"{core}merge", re.compile("<<$"), ["<"])
    safe = yaml.constructor.SafeConstructor
    for kind in ("null", "str", "seq", "map"):
        constructor(f"{core}{kind}", getattr(safe, f"construct_yaml_{kind}"))
    constructor(f"{core}bool", _boolean)
    constructor(f"{core}int", _number)
    constructor(f"{core}float", _number)
    constructor(None, safe.construct_undefined)


_register()


# What PyYAML raises beside its own errors.

TRIPPED = (ValueError, LookupError, AttributeError, TypeError, RecursionError)
"""Its constructors trip over a tag that does not fit its value, such as ``!!int ""`` or
``!!bool x``, and over dates that are none; its composer over deep nesting (PyYAML 6.0,
constructor.py)."""


MAX_CHARACTERS = 2 << 20
"""Largest text; the API server takes objects of 1.5 MiB (etcd's ``--max-request-bytes``)."""


def load_all(text: str, max_nodes: int = MAX_NODES) -> list[Any]:
    """Return the documents of *text* as lists, dicts and scalars; empty ones are ``None``.

    Args:
        max_nodes: most scalars, lists and maps, those that aliases repeat included.

    Raises:
        ValueError: not YAML, or beyond a cap. The message says what, and in which line.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"larger than {MAX_CHARACTERS >> 20} Mi characters")
    if text.lstrip().startswith(("{", "[")):
        try:
            return [json.load(text)]  # which YAML is not where tabs indent it
        except ValueError:
            pass
    try:
        check_weight(yaml.parse(text, Loader=LOADER), max_nodes)
        return list(yaml.load_all(text, Loader=Loader))
    except BeyondCapsError as error:
        raise ValueError(f"{error.problem}{_line(error)}") from None
    except yaml.MarkedYAMLError as error:
        raise ValueError(f"not YAML: {error.problem or error.context}{_line(error)}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {str(error).splitlines()[0]}") from None
    except TRIPPED as error:
        raise ValueError(f"not YAML: {type(error).__name__}") from None


def load(text: str, max_nodes: int = MAX_NODES) -> Any:
    """Return the only document of *text*; ``None`` where it is empty. As :func:`load_all`.

    Raises:
        ValueError: as :func:`load_all`, or there are several.
    """
    documents = load_all(text, max_nodes)
    if len(documents) > 1:
        raise ValueError(f"{len(documents)} documents where one is expected")
    return documents[0] if documents else None


def _line(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f" in line {mark.line + 1}" if mark else ""
