"""Detects other instances of this program that serve the same resource, and their end.

Two instances overlap in a rollback, next to a debug daemon, or when manifests and chart are both
installed. The kubelet uses the newest and keeps the other streams open. When the newest ends, the
kubelet has no plugin of the resource although the older one still has its stream: up to 1.36 it
drops the newest plugin when any stream ends (plugin/v1beta1/handler.go, runClient), and since 1.37
the one whose stream ended. So the older instance registers again when a newer one ends. When the
older one ends first, the newer one loses its stream or nothing at all.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import time_ns

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.deviceplugin import sockets

SAME_TIME_NS = 500_000_000
"""Sockets that are this close in age can have been registered in either order: several instances
register again at once when one ends that replaced them all."""


class Sibling(Struct, frozen=True):
    """Another instance, by one of its sockets; *stamp_ns* is when the newest one was stamped.

    A socket is stamped when it is made, and before it is registered. Until it *has_answered*, it
    can be the leftover of a killed process.
    """

    path: Path
    stamp_ns: int
    has_answered: bool

    def may_have_replaced(self, socket_ns: int) -> bool:
        """Return whether it can have registered after an instance with a socket of *socket_ns*."""
        return self.stamp_ns > socket_ns - SAME_TIME_NS


class Siblings:
    """The other instances that serve *resource* in *directories*; for one thread."""

    def __init__(self, resource: str, directories: Sequence[Path], instance: str) -> None:
        self._resource = resource
        self._directories = directories
        self._instance = instance
        self._known: dict[str, Sibling] = {}
        self._silent: set[str] = set()  # names of sockets without a listener at a look

    @property
    def is_any(self) -> bool:
        """Whether there was a socket of another instance at the last look, in use or not."""
        return bool(self._known)

    @property
    def names(self) -> tuple[str, ...]:
        """A socket of each instance that was there at the last look and has answered."""
        answering = (sibling for sibling in self._known.values() if sibling.has_answered)
        return tuple(sorted(sibling.path.name for sibling in answering))

    def look(self) -> tuple[Sibling, ...]:
        """Return the instances that have ended since the last look.

        A socket file appears before its server listens, so a socket that is silent for the first
        time still counts. An instance that moves to another socket listens on it before closing the
        old one.
        """
        before, self._known = self._known, {}
        silent_before, self._silent = self._silent, set()
        for instance, path in self._sockets():
            has_answered = sockets.is_listening(path)
            if not has_answered:
                self._silent.add(path.name)
                if path.name in silent_before or instance in before:
                    continue
            made = sockets.identity(path)
            # One that is gone by now was stamped before.
            stamp_ns = time_ns() if made is None else made[2]
            sibling = Sibling(path, stamp_ns, has_answered)
            known = self._known.get(instance, sibling)
            self._known[instance] = replace(
                max(known, sibling, key=lambda one: one.stamp_ns),
                has_answered=known.has_answered or has_answered,
            )
        return tuple(one for instance, one in before.items() if instance not in self._known)

    def forget(self) -> None:
        """Forget all: a kubelet that starts removes their sockets, which is not their end."""
        self._known = {}

    def _sockets(self) -> Iterator[tuple[str, Path]]:
        for directory in self._directories:
            for instance, paths in sockets.instances(self._resource, directory).items():
                if instance != self._instance:
                    yield from ((instance, path) for path in paths)
