"""What MIG profiles there are and where their instances fit, by the size of a GPU.

NVIDIA MIG User Guide, "Supported MIG Profiles": A100, H100, H200, B200 and their kin divide their
memory in eight slices and their processors in seven; A30 and RTX PRO 6000 Blackwell in four. A
profile is named after processors and memory, ``2g.20gb``, and its memory after the GPU's: names
differ between products and drivers, shapes do not.
"""

import re
from dataclasses import dataclass

from agent.model.gpu import Gpu, Virtualization

MIB_PER_GIB = 1024
"""MiB in a GiB; profiles are named in GiB, though they say GB."""

TOLERANCE = 0.1
"""How far the memory in a name may be from the share of the GPU's: drivers round, and differ in
what they keep for themselves (GB200: 1g.23gb or 1g.24gb)."""

SLACK_GIB = 1
"""The same for small profiles, such as 1g.5gb."""

_NAME = re.compile(r"([1-9])g\.([1-9]\d{0,3})gb(?:[.+](me|me\.all|gfx)|(-me))?")
_EIGHTHS = frozenset({(8, 0), (9, 0), (10, 0), (10, 3)})
_QUARTERS = re.compile(r"\b(A30X?|RTX PRO 6000 Blackwell)\b")
_OTHERS = re.compile(r"\b(RTX PRO 5000 Blackwell|RTX PRO 4500 Blackwell|Thor)\b")
_MEDIA = ("me", "me.all")


@dataclass(frozen=True, slots=True)
class Shape:
    """The room that a GPU instance takes: memory slices, and the slices it may begin at."""

    slices: int
    starts: tuple[int, ...]


_OF_EIGHT: tuple[tuple[int, Shape], ...] = (
    (1, Shape(1, (0, 1, 2, 3, 4, 5, 6))),
    (1, Shape(2, (0, 2, 4, 6))),
    (2, Shape(2, (0, 2, 4))),
    (3, Shape(4, (0, 4))),
    (4, Shape(4, (0,))),
    (7, Shape(8, (0,))),
)
_OF_FOUR: tuple[tuple[int, Shape], ...] = (
    (1, Shape(1, (0, 1, 2, 3))),
    (2, Shape(2, (0, 2))),
    (4, Shape(4, (0,))),
)


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a GPU can be divided.

    Attributes:
        slices: of its memory.
        memory_gib: all of it.
    """

    product: str
    slices: int
    memory_gib: float


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile as a GPU has it.

    Attributes:
        most: how many of it a GPU holds at most, whatever room there is; ``None``: as many as
            there is room for. There is one set of media engines for profiles with them.
    """

    name: str
    shape: Shape
    most: int | None = None


def is_capable(gpu: Gpu) -> bool | None:
    """Return whether *gpu* can be divided; ``None`` where its kind is not known well enough."""
    if gpu.mig is not None:
        return True
    if gpu.compute_capability is None or gpu.product is None:
        return None
    if gpu.virtualization is Virtualization.VGPU:
        return False
    return None if _may_be(gpu) else False


def _may_be(gpu: Gpu) -> bool:
    name = gpu.product or ""
    is_named = _QUARTERS.search(name) is not None or _OTHERS.search(name) is not None
    return is_named or gpu.compute_capability in _EIGHTHS


def geometry(gpu: Gpu) -> Geometry | None:
    """Return how *gpu* can be divided; ``None`` where that is not known."""
    if gpu.product is None or gpu.memory_mib is None or gpu.mig is None:
        return None
    size = gpu.memory_mib / MIB_PER_GIB
    if _QUARTERS.search(gpu.product):
        return Geometry(gpu.product, 4, size)
    return Geometry(gpu.product, 8, size) if gpu.compute_capability in _EIGHTHS else None


def is_name(text: str) -> bool:
    """Return whether *text* is spelled as a profile of one compute instance, ``1g.10gb.me``."""
    return _NAME.fullmatch(text) is not None


def profile(text: str, room: Geometry) -> Profile | None:
    """Return the profile *text* of a GPU; ``None`` when it has none of that size."""
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    compute, memory = int(found[1]), int(found[2])
    for count, shape in _OF_EIGHT if room.slices == 8 else _OF_FOUR:
        share = room.memory_gib * shape.slices / room.slices
        if count == compute and abs(memory - share) <= max(SLACK_GIB, share * TOLERANCE):
            return Profile(text, shape, 1 if found[3] in _MEDIA else None)
    return None
