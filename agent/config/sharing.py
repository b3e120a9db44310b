"""Time-slicing: how many pods may share a GPU, by resource."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from agent.config import values

RENAME = "renameByDefault"
"""NVIDIA's word for a shared resource that is offered under another name."""

ONE_EACH = "failRequestsGreaterThanOne"
"""NVIDIA's word for refusing a container that asks for several replicas."""

SHARED_SUFFIX = ".shared"
"""Ends the name of a renamed resource (k8s-device-plugin v0.19.0, api/config/v1/consts.go)."""

_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSlicing:
    """Which resources are offered several times.

    Attributes:
        replicas: by resource name, 2 or more; a resource that is not in it is not shared.
        is_renamed: a shared resource is offered as its name with :data:`SHARED_SUFFIX`.
        fails_requests_greater_than_one: a container that asks for two or more replicas is
            refused, because they would not give it more of a GPU.
    """

    replicas: Mapping[str, int] = field(default_factory=lambda: _NONE, hash=False)
    is_renamed: bool = False
    fails_requests_greater_than_one: bool = False

    def offered_name(self, resource: str) -> str:
        """Return the name under which *resource* is offered."""
        is_other = self.is_renamed and resource in self.replicas
        return resource + SHARED_SUFFIX if is_other else resource

    def __str__(self) -> str:
        """Return the text that :func:`time_slicing` reads back."""
        return ",".join(self._words())

    def _words(self) -> Iterator[str]:
        yield from (f"{name}={count}" for name, count in self.replicas.items())
        if self.is_renamed:
            yield RENAME
        if self.fails_requests_greater_than_one:
            yield ONE_EACH


def time_slicing(value: object) -> TimeSlicing | None:
    """Read ``resource=replicas`` and NVIDIA's two words, by comma; ``none`` gives ``None``."""
    if value is None or isinstance(value, TimeSlicing):
        return value
    words = [word.strip() for word in values.text(value).split(",")]
    if words == ["none"]:
        return None
    flags = {RENAME, ONE_EACH}.intersection(words)
    replicas = dict(map(_pair, (word for word in words if word not in flags)))
    if not replicas or len(replicas) + len(flags) < len(words):
        raise ValueError("not a list of different resources, such as nvidia.com/gpu=4")
    return TimeSlicing(
        replicas=MappingProxyType(replicas),
        is_renamed=RENAME in flags,
        fails_requests_greater_than_one=ONE_EACH in flags,
    )


def _pair(word: str) -> tuple[str, int]:
    resource, separator, count = word.rpartition("=")
    if not separator:
        raise ValueError(f"without a number of replicas for {word!r}, such as {word}=4")
    return values.resource(resource.strip()), values.replicas(count.strip())
