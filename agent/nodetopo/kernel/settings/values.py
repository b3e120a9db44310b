"""Readers of settings: each parses a value from text or from YAML, or raises ValueError."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from nodetopo.deviceplugin.cdi import checked_annotation_prefix
from nodetopo.errors import InputError, closest
from nodetopo.formats.names import DNS_NAME
from nodetopo.model.limits import MAX_GPUS

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h)?")
_SECONDS = {"ms": 0.001, None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?")
LABEL = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", re.ASCII
)
_DOMAIN = re.compile(DNS_NAME)
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]*):([0-9]{1,5})")
LONGEST_PREFIX = 45
"""Characters of the prefix of our labels, slash included: with the longest of their names, 18
characters, a key has 63."""

LONGEST_NAME = 63
"""Characters of a resource's name, or a CDI class, without the domain (k8s.io/apimachinery
``IsQualifiedName``; CDI SPEC.md, "Kind")."""

YES = ("true", "yes", "on", "1")
NO = ("false", "no", "off", "0")


class Option(Struct, frozen=True, kw_only=True):
    """How a setting is read and explained."""

    read: Callable[[Any], Any]
    help: str
    metavar: str
    group: str  # the title of the group it belongs to, for ``run --help``
    choices: tuple[str, ...] = ()  # empty where any value is accepted
    # Out of which a list is made; empty where its items are of another form.
    words: tuple[str, ...] = ()
    is_live: bool = False  # the running daemon takes up a changed value
    before: str = ""  # the setting that follows this one in the help; empty for none
    writes: bool = False  # a switch that lets the daemon write to the API server


def shown(value: object) -> str:
    """Return the *value* of a setting as it would be written; ``none`` for none."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(map(str, value)) or "none"
        case float():
            return f"{value:g}"
    return str(value)


def text(value: object) -> str:
    """Read a text that can be printed in one line."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("not a printable text")
    return value


def path(value: object) -> Path:
    """Read a path, which need not exist."""
    return Path(text(value))


def absolute_path(value: object) -> Path:
    """Read a path that begins with ``/``, because it is one of the host's."""
    result = path(value)
    if not result.is_absolute():
        raise ValueError("a relative path")
    return result


def switch(value: object) -> bool:
    """Read YAML's booleans and their spellings as text."""
    word = str(value).lower()
    if word not in YES + NO:
        raise ValueError("neither true nor false")
    return word in YES


def path_or_none(value: object) -> Path | None:
    """Read a path; ``none`` gives ``None``."""
    return None if value == "none" else path(value)


def text_or_none(value: object) -> str | None:
    """Read a text; ``none`` gives ``None``."""
    return None if value == "none" else text(value)


def names(value: object) -> tuple[str, ...]:
    """Read texts, as a list or separated by commas, a number among them too; ``none`` for none."""
    if value == "none":
        return ()
    parts = value if isinstance(value, list | tuple) else [value]
    words = []
    for part in parts:
        is_number = isinstance(part, int) and not isinstance(part, bool)
        words += [word.strip() for word in (str(part) if is_number else text(part)).split(",")]
    return tuple(dict.fromkeys(map(text, words)))


def set_sizes(value: object) -> tuple[int, ...]:
    """Read numbers of GPUs, ascending; ``auto`` gives none."""
    words = [] if value == "auto" else names(value)
    for word in words:
        if not re.fullmatch(r"[0-9]{1,3}", word, re.ASCII) or not 0 < int(word) <= MAX_GPUS:
            raise ValueError(f"{word!r} where auto, or numbers up to {MAX_GPUS}, are meant")
    return tuple(sorted({int(word) for word in words}))


def duration(value: object) -> float:
    """Read a duration, in seconds; a bare number is seconds."""
    match = None if isinstance(value, bool) else DURATION.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("not a duration such as 60, 90s or 5m")
    return float(match[1]) * _SECONDS[match[2]]


def scan_interval(value: object) -> float:
    """Read a duration of 1 s or more, in seconds."""
    seconds = duration(value)
    if seconds < 1:
        raise ValueError("shorter than 1 s")
    return seconds


def resource(value: object) -> str:
    """Read an extended resource's name, or a CDI kind: both are ``domain/name``."""
    if RESOURCE.fullmatch(text(value)) is None:
        raise ValueError("not of the form domain/name")
    if len(text(value).rpartition("/")[2]) > LONGEST_NAME:
        raise ValueError(f"a name of more than {LONGEST_NAME} characters")
    return text(value)


def resource_or_none(value: object) -> str | None:
    """Read an extended resource's name; ``none`` gives ``None``."""
    return None if value == "none" else resource(value)


def label_key(value: object) -> str:
    """Read the key of a label: a name, or ``domain/name``."""
    if LABEL.fullmatch(text(value)) is None:
        raise ValueError("not the key of a label, such as nvidia.com/device-plugin.config")
    return text(value)


def namespace(value: object) -> str:
    """Read the name of a namespace (RFC 1123 label)."""
    if NAMESPACE.fullmatch(text(value)) is None:
        raise ValueError("not the name of a namespace")
    return text(value)


def label_prefix(value: object) -> str:
    """Read the prefix of our own label keys: a DNS name and a slash.

    It must be short enough for Grove, which takes keys of 63 characters at most, prefix included
    (clustertopologybinding.go), and must not belong to another project.
    """
    prefix = text(value)
    domain = prefix.removesuffix("/")
    if prefix == domain or _DOMAIN.fullmatch(domain) is None:
        raise ValueError("not the beginning of a label's key, such as gpu.topology/")
    if len(prefix) > LONGEST_PREFIX:
        raise ValueError(f"longer than {LONGEST_PREFIX} characters")
    for owner in ("kubernetes.io", "k8s.io", "nvidia.com"):
        if domain == owner or domain.endswith(f".{owner}"):
            raise ValueError(f"reserved: names below {owner} are not ours to make")
    return prefix


def annotation_prefix(value: object) -> str:
    """Read the prefix of CDI annotation keys, such as ``cdi.k8s.io/``."""
    try:
        return checked_annotation_prefix(text(value))
    except InputError:
        raise ValueError("not the beginning of an annotation, such as cdi.k8s.io/") from None


def imex_channels(value: object) -> tuple[int, ...]:
    """Read ``none`` or ``0``: NVIDIA's device plugin hands out no other (api/config/v1/imex.go)."""
    parts = value if isinstance(value, list | tuple) else [value]
    words = [str(part) for part in parts]
    if words not in ([], ["none"], ["0"]):
        raise ValueError("neither none nor channel 0 alone")
    return (0,) if words == ["0"] else ()


def replicas(value: object) -> int:
    """Read how often a device is offered, 2 or more as NVIDIA's device plugin has it."""
    digits = str(value)
    if not re.fullmatch(r"[0-9]{1,9}", digits, re.ASCII) or int(digits) < 2:
        raise ValueError(f"{digits!r} where 2 or more replicas are meant")
    return int(digits)


def gpu_count(value: object) -> int | None:
    """Read a number of GPUs; ``auto`` gives ``None``."""
    if value in ("auto", None):
        return None
    digits = str(value)
    if not re.fullmatch(r"[0-9]{1,3}", digits, re.ASCII) or int(digits) > MAX_GPUS:
        raise ValueError(f"{digits!r} where auto, or a number up to {MAX_GPUS}, is meant")
    return int(digits)


def address(value: object) -> str | None:
    """Read ``host:port``; ``none`` gives ``None``."""
    if value in ("none", "off", False):
        return None
    match = ADDRESS.fullmatch(text(value))
    if match is None or int(match[2]) > 65535:
        raise ValueError("not of the form host:port")
    return text(value)


def kubelet_url(value: object) -> str | None:
    """Parse ``https://host:port``, with optional brackets around any address; ``none``: None."""
    if value in ("none", "off", False):
        return None
    scheme, separator, place = text(value).rstrip("/").partition("://")
    match = ADDRESS.fullmatch(place)
    if scheme != "https" or not separator or match is None or int(match[2]) > 65535:
        raise ValueError("not of the form https://host:port")
    host = match[1] if ":" in match[1] else match[1].strip("[]")
    if not host:
        raise ValueError("names no host")
    return f"https://{host}:{match[2]}"


def one_of(choices: tuple[str, ...]) -> Callable[[object], str]:
    """Return a reader of one of *choices*."""

    def read(value: object) -> str:
        if value not in choices:
            raise ValueError(f"not one of {', '.join(choices)}{did_you_mean(value, choices)}")
        return str(value)

    return read


def several_of(choices: tuple[str, ...]) -> Callable[[object], tuple[str, ...]]:
    """Return a reader of different *choices*, as a list or separated by commas; one at least."""

    def read(value: object) -> tuple[str, ...]:
        parts = value if isinstance(value, list | tuple) else str(value).split(",")
        names = tuple(one_of(choices)(str(part).strip()) for part in parts)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"not a list of different values out of {', '.join(choices)}")
        return names

    return read


def did_you_mean(word: object, names: tuple[str, ...]) -> str:
    """Return ``; did you mean 'x'?``, or an empty text without a similar name."""
    close = closest(str(word), names)
    return f"; did you mean {close!r}?" if close else ""
