"""Kubernetes' text forms and fixed names: resources, quantities, booleans, releases.

Quantities are read into integers of one fixed unit.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

GPU_RESOURCE = "nvidia.com/gpu"
"""The extended resource of whole GPUs, as NVIDIA's device plugin names it."""

MIG_RESOURCES = "nvidia.com/mig-"
"""How the resources of MIG devices begin under the MIG strategy ``mixed``; the profile follows."""

MILLICORES = 1000
"""Millicores in a CPU."""

KIB = 1 << 10
"""Bytes in a KiB."""

MIB = 1 << 20
"""Bytes in a MiB."""

GIB = 1 << 30
"""Bytes in a GiB."""

_SUFFIXES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "n": (10, -9),
        "u": (10, -6),
        "m": (10, -3),
        "": (10, 0),
        **{letter: (1000, power) for power, letter in enumerate("kMGTPE", 1)},
        **{f"{letter}i": (1024, power) for power, letter in enumerate("KMGTPE", 1)},
    },
)
"""Base and power of the multipliers of k8s.io/apimachinery ``resource.Quantity`` (its format
documentation)."""

_SIZES = ((GIB, "Gi"), (MIB, "Mi"), (KIB, "Ki"))

Release: TypeAlias = tuple[int, int]
"""Major and minor, which is what behaviour depends on: ``(1, 36)``."""


_MOST_DIGITS = 9999
"""Greatest number of units that a person reads at a glance."""


def size_text(size: int, *, is_exact: bool = False) -> str:
    """Return *size*, bytes, for a person, with the suffixes of quantities: ``2Gi``, ``2148Mi``.

    A size that no unit expresses in four digits is rounded; *is_exact* then adds the bytes, to show
    small differences.
    """
    if size < KIB:
        return f"{size} byte{'' if size == 1 else 's'}"
    units = [(unit, name) for unit, name in _SIZES if size >= unit]
    for unit, name in units:
        if size % unit == 0 and (size // unit <= _MOST_DIGITS or unit == GIB):
            return f"{size // unit}{name}"
    unit, name = units[0]
    number = size / unit
    rounded = f"{number:.0f}" if number >= 1000 else f"{number:.4g}"
    return f"{rounded}{name} ({size} bytes)" if is_exact else f"{rounded}{name}"


def quantity(text: str, *, per_unit: int = 1) -> int:
    """Return *text* as a whole number of 1/*per_unit*, rounded up as Kubernetes rounds.

    ``quantity("1500m", per_unit=1000)`` is 1500 (millicores), ``quantity("2Gi")`` is bytes.

    Raises:
        ValueError: *text* is not a quantity.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[1].count(".") > 1 or not match[1].strip("+-."):
        raise ValueError(f"not a quantity: {text!r}")
    base, power = (10, int(match[3])) if match[3] else _SUFFIXES[match[2] or ""]
    whole, _, fraction = match[1].partition(".")
    numerator: int = int(whole + fraction) * per_unit * base ** max(0, power)
    denominator: int = 10 ** len(fraction) * base ** max(0, -power)
    return -(-numerator // denominator)


def release(version: str | None) -> Release | None:
    """Return the release of a version such as ``v1.36.3`` or ``v1.33.5-gke.1``.

    ``None`` where *version* is not known or is not a version.
    """
    match = _VERSION.fullmatch(version or "")
    return None if match is None else (int(match[1]), int(match[2]))


def patch(version: str | None) -> int | None:
    """Return the patch number of a version, 3 of ``v1.36.3``; ``None`` if it has none."""
    match = _PATCH.match(version or "")
    return None if match is None else int(match[1])


def go_bool(text: str) -> bool | None:
    """Return what Go's ``strconv.ParseBool`` makes of *text*; ``None`` where that is an error."""
    return True if text in _TRUE else False if text in _FALSE else None


_QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,3}))?")
_VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:[.+-].{0,200})?")
_PATCH = re.compile(r"v?[0-9]{1,4}\.[0-9]{1,4}\.([0-9]{1,6})")
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")
