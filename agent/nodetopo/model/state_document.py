"""State ⇄ JSON: the documents of files that keep state for the daemon's next process.

A release that adds a field keeps the schema, ``nodetopo-NAME/v1``, and an older one ignores the
field. One that changes the meaning of a field raises the number.
"""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from nodetopo import __version__
from nodetopo.errors import DecodeError
from nodetopo.model.codec import load_json
from nodetopo.model.plain import from_plain, to_plain

_SCHEMA = re.compile(r"(nodetopo-[a-z-]+/v)([0-9]{1,9})", re.ASCII)

_SHOWN = 40
"""Characters of a release's name in a message."""

_Content = TypeVar("_Content")


class NewerSchemaError(DecodeError):
    """A document of a schema that only a newer release knows."""


def sealed(schema: str, content: object, about: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the document of *content*; *about* are names and values of what it is about."""
    document = {"schema": schema, "release": __version__, **about, **to_plain(content)}
    return json.dumps(document, indent=1) + "\n"


def opened(
    record: type[_Content], text: str, schema: str, about: Mapping[str, str] = MappingProxyType({})
) -> _Content | None:
    """Return what :func:`sealed` wrote as a *record*, without fields that are not known.

    ``None`` if the document is about something else than *about*.

    Raises:
        NewerSchemaError: only a newer release knows the schema.
        DecodeError: it is no such document.
    """
    document: Any = load_json(text)
    if not isinstance(document, dict):
        raise DecodeError("", "expected an object")
    found, release = document.pop("schema", None), document.pop("release", None)
    if found != schema:
        theirs, ours = _SCHEMA.fullmatch(str(found)), _SCHEMA.fullmatch(schema)
        if theirs and ours and theirs[1] == ours[1] and int(theirs[2]) > int(ours[2]):
            writer = "a newer release" if release is None else f"release {str(release)[:_SHOWN]}"
            raise NewerSchemaError("", f"has {found}, written by {writer}")
        raise DecodeError("schema", f"expected {schema!r}")
    if {name: document.pop(name, None) for name in about} != about:
        return None
    return from_plain(record, document, [])
