"""The kubelet's files on the host, read as far as they can be."""

from collections.abc import Mapping
from contextlib import suppress
from errno import EISDIR, ENOTSUP, ESTALE
from pathlib import Path
from typing import Any

from agent.formats import yaml
from agent.probes.kubelet.fields import API_VERSION, KIND, Document
from agent.probes.sysfs.tree import Tree

MAX_BYTES = 1 << 20
"""Largest file read; real ones are under 10 KiB."""

MAX_NODES = 10_000
"""Most values in a file; a configuration that states every field and gate has 500."""


class UnusableError(Exception):
    """A file or flag that cannot be used; carries where and why, for an issue."""

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(reason)
        self.subject = subject
        self.reason = reason


def is_there(host: Tree, path: Path) -> bool:
    """Tell whether *path* is on the host.

    Raises:
        UnusableError: it cannot be told.
    """
    try:
        with suppress(ValueError):  # a link out of the host root, which may still be followed
            host.real(under(path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UnusableError(str(path), error.strerror or str(error)) from None
    return True


def configuration(host: Tree, path: Path) -> Document:
    """Return the KubeletConfiguration in a file.

    Raises:
        UnusableError: there is none in it that the kubelet would take.
    """
    found = document(host, path)
    if not isinstance(found, Mapping) or found.get("kind") != KIND:
        raise UnusableError(str(path), f"not a {KIND}")
    if found.get("apiVersion") != API_VERSION:
        raise UnusableError(str(path), f"apiVersion is not {API_VERSION}")
    return dict(found)


def document(host: Tree, path: Path) -> Any:
    """Return what the YAML or JSON of a file means.

    Raises:
        UnusableError: it cannot be read, or is neither.
    """
    try:
        return yaml.load(text(host, path), MAX_NODES)
    except ValueError as error:
        raise UnusableError(str(path), str(error)) from None


def text(host: Tree, path: Path) -> str:
    """Return the text of a file.

    Raises:
        UnusableError: it cannot be read, is too large, or no text.
    """
    name = str(path)
    try:
        raw = host.content(under(path))
    except OSError as error:
        raise UnusableError(name, _reason(error)) from None
    if len(raw) > MAX_BYTES:
        raise UnusableError(name, f"larger than {MAX_BYTES >> 20} MiB")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UnusableError(name, "not UTF-8") from None


def _reason(error: OSError) -> str:
    if error.errno in (EISDIR, ENOTSUP):  # a pipe would never end
        return "not a regular file"
    if error.errno == ESTALE:
        return "replaced since it was mounted here; restart this pod"
    return error.strerror or str(error)


def under(path: Path) -> str:
    """Return *path* relative to the host's root, as a tree takes it."""
    return path.relative_to("/").as_posix()
