"""The classes of XIDs that an operator sets, as one setting."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType

from agent.config import values
from agent.health.status import HealthClass

LAST_XID = 1023
"""The highest that may be named, several times the highest of NVIDIA's catalogue."""

_XIDS = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", re.ASCII)
_CLASSES = tuple(word.value for word in HealthClass)
_NONE: Mapping[int, HealthClass] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class XidClasses(Mapping[int, HealthClass]):
    """What each XID asks for, where it is not what the daemon's own table says; ascending."""

    by_xid: Mapping[int, HealthClass] = field(default_factory=lambda: _NONE, hash=False)

    def __getitem__(self, xid: int) -> HealthClass:
        """Return the class of *xid*."""
        return self.by_xid[xid]

    def __iter__(self) -> Iterator[int]:
        """Yield the XIDs that have a class here."""
        return iter(self.by_xid)

    def __len__(self) -> int:
        """Return how many XIDs have a class here."""
        return len(self.by_xid)

    def __str__(self) -> str:
        """Return the text that :func:`xid_classes` reads back."""
        return ",".join(map(_span, _runs(self.by_xid))) or "none"


def xid_classes(value: object) -> XidClasses:
    """Read ``79=reboot,13=app,100-199=degraded``, or the same as a mapping; ``none`` for none.

    Of an XID that is named twice, the later counts, so that a range may have exceptions.
    """
    if isinstance(value, XidClasses):
        return value
    if value == "none":
        return XidClasses()
    found: dict[int, HealthClass] = {}
    for xids, word in _pairs(value):
        kind = HealthClass(values.one_of(_CLASSES)(word))
        found.update(dict.fromkeys(_numbers(xids), kind))
    return XidClasses(MappingProxyType(dict(sorted(found.items()))))


def _pairs(value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, Mapping):
        return [(str(xids), word) for xids, word in value.items()]
    pairs = (part.partition("=") for part in values.text(value).split(","))
    return [(xids.strip(), word.strip()) for xids, _equals, word in pairs]


def _numbers(text: str) -> range:
    match = _XIDS.fullmatch(text)
    if match is None:
        raise ValueError(f"without an XID such as 79, or 100-199, where {text!r} stands")
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= last <= LAST_XID:
        raise ValueError(f"not about XIDs from 1 to {LAST_XID}, the lower first: {text}")
    return range(first, last + 1)


def _runs(by_xid: Mapping[int, HealthClass]) -> Iterator[tuple[list[int], HealthClass]]:
    """Yield neighbours that have one class."""
    numbered = enumerate(sorted(by_xid))
    for (_start, kind), run in groupby(numbered, lambda at: (at[1] - at[0], by_xid[at[1]])):
        yield [xid for _index, xid in run], kind


def _span(run: tuple[list[int], HealthClass]) -> str:
    xids, kind = run
    return f"{xids[0]}={kind}" if len(xids) == 1 else f"{xids[0]}-{xids[-1]}={kind}"
