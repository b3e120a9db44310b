"""What ``kubectl get … -o json|yaml`` wrote, read back with caps on size and depth."""

import json
from collections.abc import Iterator
from typing import Any

from agent.cli.files import read_text
from agent.errors import DecodeError, InputError
from agent.formats.yaml_slips import TRIPPED

MAX_JSON_BYTES = 256 << 20
"""5,000 Nodes with all that kubelets write into them are some 150 MB of indented JSON."""

MAX_YAML_BYTES = 16 << 20
"""libyaml reads some 2 MB a second; ten times that time is worth a word."""

MAX_DEPTH = 32
"""Levels of a document; a Node's managedFields go 12 deep in a List."""

_CURE = "save it with `kubectl get … -o json`"


def objects(name: str) -> Iterator[tuple[str, Any]]:
    """Yield each Kubernetes object in the file *name* (``-``: standard input) with its path in it.

    Takes what ``kubectl`` prints: one object, a List of them, several YAML documents.

    Raises:
        InputError: unreadable, too large, too deep, or neither JSON nor YAML.
    """
    documents = _documents(name, read_text(name, most=MAX_JSON_BYTES))
    for number, document in enumerate(documents):
        at = "" if len(documents) == 1 else f"document {number + 1}"
        if not isinstance(document, dict):
            raise not_usable(name, DecodeError(at, f"expected an object, found {found(document)}"))
        if "items" not in document:
            yield at, document
            continue
        items = document["items"]
        at = f"{at}.items" if at else "items"
        if items is None:
            continue
        if not isinstance(items, list):
            raise not_usable(name, DecodeError(at, f"expected a list, found {found(items)}"))
        yield from ((f"{at}[{position}]", item) for position, item in enumerate(items))


def not_usable(name: str, error: DecodeError) -> InputError:
    """Return the error of the file *name* whose content is wrong as *error* says."""
    return InputError(f"{name}: {error.cause}", error.cure or _CURE)


def found(value: object) -> str:
    """Return in a word what *value* is, for a message."""
    names = {dict: "an object", list: "a list", type(None): "nothing"}
    return names.get(type(value), repr(value)[:60])


def _documents(name: str, text: str) -> list[Any]:
    if text.lstrip().startswith("{"):
        return [_json(name, text)]
    if len(text) > MAX_YAML_BYTES:
        raise InputError(f"{name}: {len(text) >> 20} MiB are too much as YAML", _CURE)
    found = _yaml(name, text)
    if not found:
        raise InputError(f"{name} is empty", _CURE)
    return found


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise InputError(f"{name}: nested too deeply", _CURE) from None
    except ValueError as error:
        raise InputError(f"{name}: not JSON: {error}", _CURE) from None


def _yaml(name: str, text: str) -> list[Any]:
    import yaml  # noqa: PLC0415 - JSON needs none of it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            # kubectl writes no aliases; with them a small file could stand for a huge one.
            if isinstance(event, yaml.AliasEvent):
                raise InputError(f"{name}: not from kubectl: the alias *{event.anchor}", _CURE)
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise InputError(f"{name}: nested deeper than {MAX_DEPTH} levels", _CURE)
        documents = yaml.load_all(text, Loader=loader)
        return [document for document in documents if document is not None]
    except (yaml.YAMLError, *TRIPPED) as error:
        told = " ".join(str(error).split())
        raise InputError(f"{name}: not YAML: {told}", _CURE) from None
