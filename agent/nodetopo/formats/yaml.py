"""YAML: loaders, with which :mod:`nodetopo.formats.document` reads within limits, and a writer.

Kubernetes' programs turn YAML into JSON first (sigs.k8s.io/yaml v1.6.0, over go.yaml.in/yaml/v2):
a plain word is a number, a boolean or nothing by the rules of resolve.go there, and otherwise a
text, dates included; keys become texts. PyYAML's own rules differ in all of these.
"""

import math
import re
from collections.abc import Hashable, Iterable
from typing import Any

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML was built with it: ten times as fast, and the ancestor of Go's."""

YAML_ERRORS = (ValueError, LookupError, AttributeError, TypeError, RecursionError)
"""Exceptions of PyYAML apart from its own errors: its constructors for a tag that does not fit its
value, such as ``!!int ""`` or ``!!bool x``, and for invalid dates; its composer for deep nesting
(PyYAML 6.0, constructor.py).
"""


class KubernetesLoader(LOADER):  # type: ignore[misc] # one of two classes
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


def _construct_unknown(loader: Any, _tag: str, node: Any) -> Any:
    """Read a node with a tag of nobody's: a text, or a list or map as if it had none."""
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_mapping(node, deep=True)


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
    KubernetesLoader.add_implicit_resolver(
        f"{_TAG}{_tag}", re.compile(f"(?:{_pattern})$"), _first_characters
    )

for _tag in ("null", "str", "seq", "map"):
    _constructor = getattr(yaml.constructor.SafeConstructor, f"construct_yaml_{_tag}")
    KubernetesLoader.add_constructor(f"{_TAG}{_tag}", _constructor)
KubernetesLoader.add_constructor(f"{_TAG}bool", _construct_bool)
KubernetesLoader.add_constructor(f"{_TAG}int", _construct_number)
KubernetesLoader.add_constructor(f"{_TAG}float", _construct_number)
KubernetesLoader.add_constructor(None, yaml.constructor.SafeConstructor.construct_undefined)
KubernetesLoader.add_multi_constructor("!", _construct_unknown)


_BASE: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # in C: 1 s for 5,000 nodes, not 6


class _Dumper(_BASE):  # type: ignore[misc] # one of two classes
    """Writes texts of several lines as blocks."""


def _represent_text(dumper: Any, text: str) -> yaml.ScalarNode:
    node: yaml.ScalarNode = dumper.represent_str(text)
    node.style = "|" if "\n" in text else node.style
    return node


_Dumper.add_representer(str, _represent_text)


def yaml_text(documents: Iterable[Any], width: int) -> str:
    """Return *documents* as YAML that people read, with lines of *width* characters.

    Keys keep their order, and texts of several lines are blocks.
    """
    text: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=width)
    return text
