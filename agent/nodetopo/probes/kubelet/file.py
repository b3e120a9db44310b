"""The kubelet's files on the host: their text, their documents, and ignored keys."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from errno import EISDIR, ENOTSUP, ESTALE
from pathlib import Path
from typing import Any

from nodetopo.formats.document import MAX_KUBELET_NODES, load, read_values
from nodetopo.model.kubelet_keys import KEYS, SINCE, Keys, OddKey, is_empty, spelled
from nodetopo.probes.kubelet.fields import API_VERSION, KIND, Document
from nodetopo.probes.sysfs.tree import Tree

MAX_BYTES = 1 << 20
"""Largest file read; real ones are under 10 KiB."""

MAX_LENGTH = 100
"""Most characters kept of a key; the longest that a kubelet knows has 41."""


class UnusableError(Exception):
    """A file or flag that cannot be used; carries where and why, for an issue."""

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(reason)
        self.subject = subject
        self.reason = reason


def read_text(host: Tree, path: Path) -> str:
    """Return the text of a file.

    Raises:
        UnusableError: it cannot be read, is too large, or no text.
    """
    name = str(path)
    try:
        raw = host.content(below_root(path))
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in (EISDIR, ENOTSUP):  # a pipe would never end
            reason = "not a regular file"
        if error.errno == ESTALE:
            reason = "replaced since it was mounted here; restart this pod"
        raise UnusableError(name, reason) from None
    if len(raw) > MAX_BYTES:
        raise UnusableError(name, f"larger than {MAX_BYTES >> 20} MiB")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UnusableError(name, "not UTF-8") from None


def read_document(host: Tree, path: Path) -> Any:
    """Return the document in a YAML or JSON file."""
    try:
        return load(read_text(host, path), MAX_KUBELET_NODES, may_repeat=True)
    except ValueError as error:
        raise UnusableError(str(path), str(error)) from None


def read_configuration(host: Tree, path: Path) -> Document:
    """Return the KubeletConfiguration in a file.

    Raises:
        UnusableError: the file has none that the kubelet would take.
    """
    document = read_document(host, path)
    if not isinstance(document, Mapping) or document.get("kind") != KIND:
        raise UnusableError(str(path), f"not a {KIND}")
    if document.get("apiVersion") != API_VERSION:
        raise UnusableError(str(path), f"apiVersion is not {API_VERSION}")
    return dict(document)


def exists(host: Tree, path: Path) -> bool:
    """Return whether *path* exists on the host.

    Raises:
        UnusableError: that cannot be read.
    """
    try:
        with suppress(ValueError):  # a link out of the host root, which can still be followed
            host.real(below_root(path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UnusableError(str(path), error.strerror or str(error)) from None
    return True


def below_root(path: Path) -> str:
    """Return *path* relative to the host's root, as a tree takes it."""
    return path.relative_to("/").as_posix()


def unknown_keys(document: Any, file: str, *, is_drop_in: bool) -> Iterator[OddKey]:
    """Yield the keys of a KubeletConfiguration that some releases do not know as written.

    An empty key of a newer release is left out: kubeadm writes its release's keys for older
    kubelets.
    """
    for within, key in _unknown(document, KEYS, "", any_case=is_drop_in):
        yield OddKey(key=shortened(key), within=within, file=file, is_drop_in=is_drop_in)


def _unknown(value: Any, known: Keys, at: str, *, any_case: bool) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for position, item in enumerate(value):
            yield from _unknown(item, known, f"{at}[{position}]", any_case=any_case)
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        name = spelled(key, known, any_case=any_case)
        if name != key or (key in SINCE and not is_empty(inner)):
            yield at, key
        if name is not None and known[name]:
            path = f"{at}.{name}" if at else name
            yield from _unknown(inner, known[name], path, any_case=any_case)


def repeated_keys(text: str, file: str) -> Iterator[OddKey]:
    """Yield the keys that an object of a file has twice; *text* is known to be YAML or JSON."""
    try:
        repeated = _repeated(json.loads(text, object_pairs_hook=_Pairs), "")
    except ValueError:
        documents = read_values(file, text, may_repeat=True, most=1)
        repeated = (pair for document in documents for pair in document.repeated_below())
    for within, key in repeated:
        yield OddKey(key=shortened(key), within=shortened(within), file=file, is_repeated=True)


class _Pairs(dict[str, Any]):
    """An object of JSON that remembers the keys that it has twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated = _twice(key for key, _ in pairs)


def _twice(keys: Iterator[str]) -> tuple[str, ...]:
    return tuple(key for key, times in Counter(keys).items() if times > 1)


def _repeated(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for position, item in enumerate(value):
            yield from _repeated(item, f"{at}[{position}]")
    if isinstance(value, _Pairs):
        yield from ((at, key) for key in value.repeated)
        for key, inner in value.items():
            yield from _repeated(inner, f"{at}.{key}" if at else key)


def shortened(text: str) -> str:
    """Return at most :data:`MAX_LENGTH` characters of *text*, without half surrogate pairs."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return whole if len(whole) <= MAX_LENGTH else f"{whole[: MAX_LENGTH - 1]}…"
