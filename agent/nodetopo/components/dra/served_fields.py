"""The API server's support for ResourceSlices: its release, and the fields that it drops."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from nodetopo.components.dra.slices import LISTS, features, has_scalars
from nodetopo.errors import ApiUnavailable
from nodetopo.kubeapi.apply import Connect
from nodetopo.outage import Outage

VERSION = "/version"
"""Every authenticated account can read it (ClusterRole system:public-info-viewer)."""

FORGET_S = 6 * 3600.0
"""How long dropped fields are remembered: a feature gate can be switched on, and each try costs one
request that writes nothing.
"""

ASK_AGAIN_S = 10.0
"""Pause after a question that was not answered."""

_NUMBER = re.compile(r"[0-9]+")


class ServedFields:
    """Knows the API server's release, and which fields of slices it keeps; for one thread."""

    def __init__(self, connect: Connect, clock: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._clock = clock
        self._asked: int | None = None  # the connection of the watch for which it was asked
        self._due = 0.0
        self._version: str | None = None
        self._release: tuple[int, int] | None = None
        self._kept: frozenset[str] = frozenset()
        self._dropped: frozenset[str] = frozenset()
        self._forget_at = 0.0
        self._is_first = True  # no slices were seen yet
        self._problem = Outage()

    @property
    def is_answered(self) -> bool:
        """Whether the server has answered, possibly by a refusal."""
        return self._asked is not None

    @property
    def version(self) -> str | None:
        """The version, such as ``v1.36.3``; ``None`` if unknown."""
        return self._version

    @property
    def release(self) -> tuple[int, int] | None:
        """Its major and minor number; ``None`` if unknown."""
        return self._release

    @property
    def dropped(self) -> frozenset[str]:
        """Fields that the server did not keep, as :func:`features` names them."""
        return self._dropped

    def keep_up(self, connections: int) -> None:
        """Ask for the version once for each of the *connections* of the watch.

        An upgrade of the API server ends the watch.
        """
        now = self._clock()
        if self._dropped and now >= self._forget_at:
            self._kept = self._dropped = frozenset()
        if connections == self._asked or now < self._due:
            return
        try:
            answer = self._connect().get(VERSION, {})
        except ApiUnavailable as error:
            self._due = now + ASK_AGAIN_S
            self._log(str(error))
            return
        self._asked = connections
        if answer.status != 200:  # keep the previous answer
            self._log(f"GET {self._connect().host}{VERSION}: {answer.problem}")
            return
        self._log(None)
        version = str(answer.body.get("gitVersion"))
        if version != self._version:
            self._kept = self._dropped = frozenset()
        self._version, self._release = version, _release(answer.body)

    def note(self, specs: Iterable[Mapping[str, Any]]) -> None:
        """Learn about the server from *specs*, our slices as it stored them.

        The first ones come from the previous process: if they lack lists, the server refused these.
        So a restart does not retry, and lists are tried again after :data:`FORGET_S`.
        """
        specs = tuple(specs)
        for spec in specs:
            self._kept |= features(spec) - self._dropped
        if self._is_first and any(spec.get("devices") for spec in specs):
            self._is_first = False
            if any(map(has_scalars, specs)) and LISTS not in self._kept:
                self.drop(frozenset({LISTS}))

    def untried(self, spec: Mapping[str, Any]) -> frozenset[str]:
        """Return the fields of *spec* that the server is not known to keep or drop."""
        return features(spec) - self._kept

    def compare(self, sent: Mapping[str, Any], stored: Mapping[str, Any]) -> frozenset[str]:
        """Compare *stored* with *sent*; return the newly discovered dropped fields."""
        kept = features(stored)
        lost = features(sent) - kept
        self._kept = (self._kept | kept) - lost
        return self.drop(lost)

    def drop(self, lost: frozenset[str]) -> frozenset[str]:
        """Record that the server drops *lost*; return the newly discovered ones."""
        new = lost - self._dropped
        if lost:
            self._dropped |= lost
            self._forget_at = self._clock() + FORGET_S
        return new

    def _log(self, problem: str | None) -> None:
        if self._problem.changed(problem) and problem is not None:
            log = structlog.get_logger()
            log.warning("API server release unknown", problem=problem)


def _release(body: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return major and minor of an answer; some clouds write a minor such as ``34+``."""
    found = [_NUMBER.match(str(body.get(name))) for name in ("major", "minor")]
    numbers = [int(match[0]) for match in found if match is not None]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else None
