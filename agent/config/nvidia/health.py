"""NVIDIA's two variables about health checks, as classes of XIDs.

``DP_DISABLE_HEALTHCHECKS`` names XIDs that leave a GPU healthy, ``DP_ENABLE_HEALTHCHECKS`` XIDs
that do not, and the second wins; ``all`` and ``xids`` both stand for every XID, and what is no
XID is ignored (k8s-device-plugin v0.19.0, internal/rm/health.go).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from agent.config.origin import Given
from agent.config.xid_classes import LAST_XID, XidClasses
from agent.health.status import HealthClass
from agent.health.xid import xid

DISABLE, ENABLE = "DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"
EVERY = ("all", "xids")
"""Either of them stands for every XID."""

MILD = (HealthClass.APP, HealthClass.DEGRADED)
"""Classes that leave a GPU Healthy."""


def translated_health(given: Mapping[str, Given]) -> dict[str, Given]:
    """Return the settings of ours that the two variables stand for, by field.

    All XIDs disabled and none enabled is no health check at all. With some enabled, only those
    count: that is what NVIDIA's documentation says; v0.19.0 itself then checks nothing.
    """
    disabled, enabled = given.get(DISABLE), given.get(ENABLE)
    off, on = _xids(disabled), _xids(enabled)
    if disabled is not None and _is_all(disabled) and not on:
        return {"health_checks": replace(disabled, value=False)}
    classes = dict.fromkeys(off, HealthClass.APP) | {code: _unhealthy(code) for code in on}
    origin = enabled if enabled is not None and on else disabled
    if origin is None or not classes:
        return {}
    value = XidClasses(MappingProxyType(dict(sorted(classes.items()))))
    return {"xid_classes": replace(origin, value=value)}


def health_remarks(given: Mapping[str, Given]) -> Iterator[str]:
    """Yield a sentence for each word that stands for no XID."""
    for name in (DISABLE, ENABLE):
        found = given.get(name)
        if found is None:
            continue
        wrong = [word for word in _words(found) if word not in EVERY and _xid(word) is None]
        if wrong:
            yield f"{found.origin}: {', '.join(map(repr, wrong))} is no XID, and is ignored"


def _unhealthy(code: int) -> HealthClass:
    """Return a class that makes a GPU Unhealthy: the usual one of XID *code*, or else a reset."""
    usual = xid(code).kind
    return HealthClass.RESET if usual in MILD else usual


def _xids(found: Given | None) -> Iterable[int]:
    if found is None:
        return ()
    if _is_all(found):
        return range(1, LAST_XID + 1)
    return [code for code in map(_xid, _words(found)) if code is not None]


def _is_all(found: Given) -> bool:
    return any(word in EVERY for word in _words(found))


def _words(found: Given) -> list[str]:
    words = (word.strip() for word in str(found.value).lower().split(","))
    return [word for word in words if word]


def _xid(word: str) -> int | None:
    is_number = word.isascii() and word.isdecimal() and len(word) <= 4
    return int(word) if is_number and 1 <= int(word) <= LAST_XID else None
