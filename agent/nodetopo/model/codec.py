"""Snapshot ⇄ JSON: one versioned document.

Fields that have their default are left out (:mod:`nodetopo.model.plain`), so files stay readable
and ``encode(decode(text)) == text`` for every text that :func:`encode` wrote. Size and depth are
limited: a snapshot can come from a stranger's e-mail.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from nodetopo.errors import DecodeError
from nodetopo.model import strict_json
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import DataDirect, Hca
from nodetopo.model.limits import MAX_NVLINKS
from nodetopo.model.plain import from_plain, to_plain
from nodetopo.model.snapshot import SCHEMA, Snapshot

MAX_BYTES = 16 * 1024 * 1024
"""Largest document accepted; a 16-GPU node with 500 pods is under 1 MiB."""

MAX_DEPTH = 20
"""Deepest nesting accepted; our own records nest 6 deep."""

MAX_VALUES = 1_000_000
"""Most commas and opening brackets, counted before anything is built: 16 MiB of ``[],`` would take
400 MiB and ten seconds. A 16-GPU node has 6,000, one with 500 pods 40,000."""

_SHOWN = 60
"""Characters of a text of the document in a message."""

_CURE = "capture the node again with `nodetopo capture`, or correct the file"


class Decoded(Struct, frozen=True):
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
        raise DecodeError("schema", f"expected {SCHEMA!r}, found {repr(schema)[:_SHOWN]}", _CURE)
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
    if sum(map(text.count, ",[{")) > MAX_VALUES:
        raise DecodeError("", f"more than {MAX_VALUES} values", _CURE)
    try:
        document = strict_json.loads(text)
    except (ValueError, RecursionError) as error:
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
            problem = f"a second GPU is {gpu.uuid[:_SHOWN]!r}"
            raise DecodeError(f"gpus[{position}].uuid", problem, _CURE)
    links = Counter[int]()
    for position, link in enumerate(snapshot.nvlinks or ()):
        if link.gpu not in links and link.gpu not in indices:
            raise DecodeError(f"nvlinks[{position}].gpu", f"no GPU has index {link.gpu}", _CURE)
        links[link.gpu] += 1
        if links[link.gpu] > MAX_NVLINKS:
            problem = f"GPU {link.gpu} has more than {MAX_NVLINKS} links"
            raise DecodeError(f"nvlinks[{position}]", problem, _CURE)
    _check_paths("gpus", snapshot.gpus)
    _check_paths("hcas", snapshot.hcas or ())
    _check_paths("data_directs", snapshot.data_directs or ())
    _check_paths("management_hcas", snapshot.management_hcas or ())


def _check_paths(field: str, devices: Sequence[Gpu | Hca | DataDirect]) -> None:
    """Check that no path goes through a function twice: nothing contains itself."""
    for position, device in enumerate(devices):
        hops = () if device.path is None else device.path.hops
        if len({*hops}) < len(hops):
            twice = next(hop for at, hop in enumerate(hops) if hop in hops[:at])
            raise DecodeError(f"{field}[{position}].path.hops", f"{twice} stands twice", _CURE)


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
