"""The placement policy of each resource, as one setting."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType

from agent.allocation.rules import Policy
from agent.config import values
from agent.health.status import HealthClass

# Time-slicing: how many pods may share a GPU, by resource.

RENAME = "renameByDefault"
"""NVIDIA's word for a shared resource that is offered under another name."""


ONE_EACH = "failRequestsGreaterThanOne"
"""NVIDIA's word for refusing a container that asks for several replicas."""


SHARED_SUFFIX = ".shared"
"""Ends the name of a renamed resource (k8s-device-plugin v0.19.0, api/config/v1/consts.go)."""


_SHARING_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSlicing:
    """Which resources are offered several times.

    Attributes:
        replicas: by resource name, 2 or more; a resource that is not in it is not shared.
        is_renamed: a shared resource is offered as its name with :data:`SHARED_SUFFIX`.
        fails_requests_greater_than_one: a container that asks for two or more replicas is
            refused, because they would not give it more of a GPU.
    """

    replicas: Mapping[str, int] = field(default_factory=lambda: _SHARING_NONE, hash=False)
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
    replicas = dict(map(_sharing_pair, (word for word in words if word not in flags)))
    if not replicas or len(replicas) + len(flags) < len(words):
        raise ValueError("not a list of different resources, such as nvidia.com/gpu=4")
    return TimeSlicing(
        replicas=MappingProxyType(replicas),
        is_renamed=RENAME in flags,
        fails_requests_greater_than_one=ONE_EACH in flags,
    )


def _sharing_pair(word: str) -> tuple[str, int]:
    resource, separator, count = word.rpartition("=")
    if not separator:
        raise ValueError(f"without a number of replicas for {word!r}, such as {word}=4")
    return values.resource(resource.strip()), values.replicas(count.strip())


# The classes of XIDs that an operator sets, as one setting.

LAST_XID = 1023
"""The highest that may be named, several times the highest of NVIDIA's catalogue."""


_XIDS = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", re.ASCII)


_CLASSES = tuple(word.value for word in HealthClass)


_XID_CLASSES_NONE: Mapping[int, HealthClass] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class XidClasses(Mapping[int, HealthClass]):
    """What each XID asks for, where it is not what the daemon's own table says; ascending."""

    by_xid: Mapping[int, HealthClass] = field(default_factory=lambda: _XID_CLASSES_NONE, hash=False)

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
    for xids, word in _xid_classes_pairs(value):
        kind = HealthClass(values.one_of(_CLASSES)(word))
        found.update(dict.fromkeys(_numbers(xids), kind))
    return XidClasses(MappingProxyType(dict(sorted(found.items()))))


def _xid_classes_pairs(value: object) -> Iterable[tuple[str, object]]:
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


EVERY = "*"
"""Stands for every resource that is not named; after the beginning of a name, for all that begin
so, such as ``nvidia.com/mig-*``."""


NVIDIAS = ("nvidia", "best-effort", "best_effort", "nvidia-best-effort")
"""What somebody would write who wants the placement of NVIDIA's device plugin."""


_NONE: Mapping[str, Policy] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPolicies:
    """Which policy serves which resource.

    Attributes:
        usual: for every resource that *special* does not name.
        special: by resource name.
        families: by the beginning of a resource name, where *special* does not name it; the
            longest beginning counts.
    """

    usual: Policy = Policy.BEST
    special: Mapping[str, Policy] = field(default_factory=lambda: _NONE, hash=False)
    families: Mapping[str, Policy] = field(default_factory=lambda: _NONE, hash=False)

    def policy(self, resource: str) -> Policy:
        """Return the policy of *resource*."""
        if resource in self.special:
            return self.special[resource]
        known = max(filter(resource.startswith, self.families), key=len, default=None)
        return self.usual if known is None else self.families[known]

    def __str__(self) -> str:
        """Return the text that :func:`placement` reads back."""
        named = (f"{resource}={policy}" for resource, policy in self.special.items())
        begun = (f"{family}{EVERY}={policy}" for family, policy in self.families.items())
        return ",".join((str(self.usual), *named, *begun))


def placement(value: object) -> PlacementPolicies:
    """Read one word for all resources, ``resource=word`` by comma, or a mapping in YAML.

    A word without a resource, like the key ``*``, is for all resources that are not named.
    """
    if isinstance(value, PlacementPolicies):
        return value
    found: dict[str, Policy] = {}
    for name, word in _pairs(value):
        policy = _policy(word)
        resource = _resource(name)
        if resource in found:
            whose = "every other resource" if resource == EVERY else resource
            raise ValueError(f"not a single policy for {whose}")
        found[resource] = policy
    usual = found.pop(EVERY, Policy.BEST)
    families = {name.removesuffix(EVERY): found.pop(name) for name in list(found) if EVERY in name}
    return PlacementPolicies(
        usual=usual,
        special=MappingProxyType(_sorted(found.items())),
        families=MappingProxyType(_sorted(families.items())),
    )


def _resource(name: object) -> str:
    """Return the name of a resource, the beginning of one before :data:`EVERY`, or that alone."""
    if name == EVERY:
        return EVERY
    if isinstance(name, str) and name.endswith(EVERY):
        values.resource(name.removesuffix(EVERY) + "x")  # some name must begin so
        return name
    return values.resource(name)


def _pairs(value: object) -> Iterable[tuple[object, object]]:
    if isinstance(value, Mapping):
        return value.items()
    return map(_pair, values.text(value).split(","))


def _pair(text: str) -> tuple[str, str]:
    resource, separator, word = text.strip().rpartition("=")
    return (resource.strip() if separator else EVERY), word.strip()


def _policy(word: object) -> Policy:
    if word in NVIDIAS:
        raise ValueError("for comparison only: `nodetopo allocate --policy nvidia`")
    return Policy(values.one_of(tuple(policy.value for policy in Policy))(word))


def _sorted(items: Iterable[tuple[str, Policy]]) -> dict[str, Policy]:
    return dict(sorted(items))
