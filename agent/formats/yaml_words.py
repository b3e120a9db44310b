"""What the words of a YAML text mean to Kubernetes' programs.

As go.yaml.in/yaml/v2 v2.4.3 resolve.go has it for plain words, and sigs.k8s.io/yaml v1.6.0 yaml.go
(convertToJSONableObject) for keys.
"""

import math
import re
from collections.abc import Hashable
from typing import Any

import yaml

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
