"""Snapshot ⇄ JSON: one versioned document.

Fields that have their default are left out (:mod:`agent.model.plain`), so files stay readable and
``encode(decode(text)) == text`` for every text that :func:`encode` wrote. Size and depth are
limited: a snapshot may come from a stranger's e-mail.
"""

import json
from dataclasses import dataclass
from typing import Any

from agent.errors import DecodeError
from agent.model.plain import from_plain, to_plain
from agent.model.snapshot import SCHEMA, Snapshot

MAX_BYTES = 16 * 1024 * 1024
"""Largest document accepted; a 16-GPU node with 500 pods is under 1 MiB."""

MAX_DEPTH = 20
"""Deepest nesting accepted; our own records nest 6 deep."""

_CURE = "capture the node again with `nodetopo capture`, or correct the file"


@dataclass(frozen=True, slots=True)
class Decoded:
    """A snapshot read from a document, and a warning for each field that is not known."""

    snapshot: Snapshot
    warnings: tuple[str, ...]


def encode(snapshot: Snapshot) -> str:
    """Return the JSON document of *snapshot*, its fields in fixed order, with a final newline."""
    return json.dumps({"schema": SCHEMA, **to_plain(snapshot)}, indent=1, ensure_ascii=False) + "\n"


def decode(text: str) -> Decoded:
    """Read a document written by :func:`encode`, by this version or a newer one.

    Raises:
        DecodeError: *text* is not such a document; the error's path names the place.
    """
    document = load_json(text)
    if not isinstance(document, dict):
        raise DecodeError("", "not a snapshot: the document is not a JSON object", _CURE)
    schema = document.pop("schema", None)
    if schema != SCHEMA:
        raise DecodeError("schema", f"expected {SCHEMA!r}, found {schema!r}", _CURE)
    warnings: list[str] = []
    try:
        snapshot = from_plain(Snapshot, document, warnings)
    except DecodeError as error:
        raise DecodeError(error.path, error.problem, _CURE) from None
    _check_references(snapshot)
    return Decoded(snapshot, tuple(warnings))


def load_json(text: str) -> Any:
    """Parse JSON of limited size and depth.

    Raises:
        DecodeError: too large, too deep, or not JSON.
    """
    if len(text) > MAX_BYTES:
        raise DecodeError("", f"larger than {MAX_BYTES >> 20} MiB", _CURE)
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # a number of 4300 digits is a ValueError
        raise DecodeError("", f"not JSON: {error}", _CURE) from None
    _check_depth(document)
    return document


def _check_references(snapshot: Snapshot) -> None:
    """Check what every reader relies on: GPU indices ascend, UUIDs differ, links have a GPU."""
    indices = [gpu.index for gpu in snapshot.gpus]
    for position, (index, gpu) in enumerate(zip(indices, snapshot.gpus, strict=True)):
        if position and index <= indices[position - 1]:
            raise DecodeError(f"gpus[{position}].index", "indices must ascend", _CURE)
        if gpu.uuid is not None and any(g.uuid == gpu.uuid for g in snapshot.gpus[:position]):
            raise DecodeError(f"gpus[{position}].uuid", f"a second GPU is {gpu.uuid!r}", _CURE)
    for position, link in enumerate(snapshot.nvlinks or ()):
        if link.gpu not in indices:
            raise DecodeError(f"nvlinks[{position}].gpu", f"no GPU has index {link.gpu}", _CURE)


def _check_depth(document: Any) -> None:
    level = [document]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for value in level
            if isinstance(value, dict | list)
            for child in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise DecodeError("", f"nested deeper than {MAX_DEPTH} levels", _CURE)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
