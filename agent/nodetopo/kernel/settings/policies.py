"""Settings with a small syntax: placement policies, time-slicing, XID classes.

Each has a parser, and a ``__str__`` whose text the parser reads back.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from nodetopo.allocation.rules import Policy
from nodetopo.deviceplugin.settings import Strategy
from nodetopo.errors import InputError
from nodetopo.kernel.settings import values
from nodetopo.model.gpu_health import HealthClass
from nodetopo.nccl.job import JobVariable

EVERY = "*"
"""Stands for every resource that is not named; after the beginning of a name, for all that begin
so, such as ``nvidia.com/mig-*``."""

NVIDIAS = ("nvidia", "best-effort", "best_effort", "nvidia-best-effort")
"""The policy that reproduces the placement of NVIDIA's device plugin."""

RENAME = "renameByDefault"
"""NVIDIA's word for a shared resource that is offered under another name."""

ONE_EACH = "failRequestsGreaterThanOne"
"""NVIDIA's word for refusing a container that requests several replicas."""

SHARED_SUFFIX = ".shared"
"""Ends the name of a renamed resource (k8s-device-plugin v0.19.0, api/config/v1/consts.go)."""

LAST_XID = 1023
"""The highest accepted XID, several times the highest in NVIDIA's catalogue."""

XIDS = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", re.ASCII)

_EMPTY: Mapping[Any, Any] = MappingProxyType({})

# Placement: the policy of each resource.


class PlacementPolicies(Struct, frozen=True, kw_only=True):
    """Which policy serves which resource."""

    usual: Policy = Policy.BEST  # for every resource that *special* does not name
    # By resource name.
    special: Mapping[str, Policy] = field(default_factory=lambda: _EMPTY)
    # By the beginning of a resource name, where *special* does not name it; the longest beginning
    # counts.
    families: Mapping[str, Policy] = field(default_factory=lambda: _EMPTY)

    def policy(self, resource: str) -> Policy:
        """Return the policy of *resource*."""
        if resource in self.special:
            return self.special[resource]
        family = max(filter(resource.startswith, self.families), key=len, default=None)
        return self.usual if family is None else self.families[family]

    def __str__(self) -> str:
        """Return the text that :func:`placement` reads back."""
        special = (f"{resource}={policy}" for resource, policy in self.special.items())
        families = (f"{family}{EVERY}={policy}" for family, policy in self.families.items())
        return ",".join((str(self.usual), *special, *families))


def placement(value: object) -> PlacementPolicies:
    """Read one word for all resources, ``resource=word`` by comma, or a mapping in YAML.

    A word without a resource, like the key ``*``, is for all resources that are not named.
    """
    if isinstance(value, PlacementPolicies):
        return value
    pairs: Iterable[tuple[object, object]]
    if isinstance(value, Mapping):
        pairs = value.items()
    else:
        parts = (part.strip().rpartition("=") for part in values.text(value).split(","))
        pairs = [
            (name.strip() if separator else EVERY, word.strip()) for name, separator, word in parts
        ]
    policies: dict[str, Policy] = {}
    for name, word in pairs:
        if word in NVIDIAS:
            raise ValueError("for comparison only: `nodetopo allocate --policy nvidia`")
        policy = Policy(values.one_of(tuple(each.value for each in Policy))(word))
        if isinstance(name, str) and name.endswith(EVERY):
            resource = name
            if name != EVERY:
                values.resource(name.removesuffix(EVERY) + "x")  # some name must begin so
        else:
            resource = values.resource(name)
        if resource in policies:
            whose = "every other resource" if resource == EVERY else resource
            raise ValueError(f"not a single policy for {whose}")
        policies[resource] = policy
    usual = policies.pop(EVERY, Policy.BEST)
    ordered = sorted(policies.items())
    return PlacementPolicies(
        usual=usual,
        special=MappingProxyType({name: word for name, word in ordered if EVERY not in name}),
        families=MappingProxyType(
            {name.removesuffix(EVERY): word for name, word in ordered if EVERY in name}
        ),
    )


# Time-slicing: how many pods may share a GPU, by resource.


class TimeSlicing(Struct, frozen=True, kw_only=True):
    """Which resources are offered several times."""

    # By resource name, 2 or more; a resource that is not in it is not shared.
    replicas: Mapping[str, int] = field(default_factory=lambda: _EMPTY)
    is_renamed: bool = False  # a shared resource is offered as its name with :data:`SHARED_SUFFIX`
    # A container that requests two or more replicas is refused, because they would not give it more
    # of a GPU.
    fails_requests_greater_than_one: bool = False

    def offered_name(self, resource: str) -> str:
        """Return the name under which *resource* is offered."""
        is_other = self.is_renamed and resource in self.replicas
        return resource + SHARED_SUFFIX if is_other else resource

    def problem(self) -> InputError | None:
        """Return why a kubelet would not read the replicas of a single GPU; ``None`` if it would.

        Such settings are wrong whatever the node has.
        """
        # Loads the topology, which few commands need.
        from nodetopo.deviceplugin.devices import replicas_problem  # noqa: PLC0415

        return next(filter(None, map(replicas_problem, self.replicas.values())), None)

    def __str__(self) -> str:
        """Return the text that :func:`time_slicing` reads back."""
        words = [f"{name}={count}" for name, count in self.replicas.items()]
        if self.is_renamed:
            words.append(RENAME)
        if self.fails_requests_greater_than_one:
            words.append(ONE_EACH)
        return ",".join(words)


def time_slicing(value: object) -> TimeSlicing | None:
    """Read ``resource=replicas`` and NVIDIA's two words, by comma; ``none`` gives ``None``."""
    if value is None or isinstance(value, TimeSlicing):
        return value
    words = [word.strip() for word in values.text(value).split(",")]
    if words == ["none"]:
        return None
    flags = {RENAME, ONE_EACH}.intersection(words)
    replicas = {}
    for word in words:
        if word in flags:
            continue
        resource, separator, count = word.rpartition("=")
        if not separator:
            raise ValueError(f"without a number of replicas for {word!r}, such as {word}=4")
        replicas[values.resource(resource.strip())] = values.replicas(count.strip())
    if not replicas or len(replicas) + len(flags) < len(words):
        raise ValueError("not a list of different resources, such as nvidia.com/gpu=4")
    slicing = TimeSlicing(
        replicas=MappingProxyType(replicas),
        is_renamed=RENAME in flags,
        fails_requests_greater_than_one=ONE_EACH in flags,
    )
    if problem := slicing.problem():
        raise ValueError(f"too much for a kubelet: {problem}")
    return slicing


# The classes of XIDs that an operator sets.


@dataclasses.dataclass(frozen=True, slots=True)
class XidClasses(Mapping[int, HealthClass]):
    """The class of each XID that differs from the daemon's own table; ascending."""

    by_xid: Mapping[int, HealthClass] = dataclasses.field(default_factory=lambda: _EMPTY)

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
        spans = []
        # Neighbours of one class keep the distance between XID and index.
        numbered = enumerate(sorted(self.by_xid))
        for (_, kind), run in groupby(numbered, lambda at: (at[1] - at[0], self.by_xid[at[1]])):
            xids = [xid for _index, xid in run]
            span = str(xids[0]) if len(xids) == 1 else f"{xids[0]}-{xids[-1]}"
            spans.append(f"{span}={kind}")
        return ",".join(spans) or "none"


def xid_classes(value: object) -> XidClasses:
    """Read ``79=reboot,13=app,100-199=degraded``, or the same as a mapping; ``none`` for none.

    If an XID is listed twice, the later entry wins, so that a range can have exceptions.
    """
    if isinstance(value, XidClasses):
        return value
    if value == "none":
        return XidClasses()
    classes: dict[int, HealthClass] = {}
    pairs: Iterable[tuple[str, object]]
    if isinstance(value, Mapping):
        pairs = [(str(xids), word) for xids, word in value.items()]
    else:
        parts = (part.partition("=") for part in values.text(value).split(","))
        pairs = [(xids.strip(), word.strip()) for xids, _equals, word in parts]
    for xids, word in pairs:
        kind = HealthClass(values.one_of(tuple(each.value for each in HealthClass))(word))
        match = XIDS.fullmatch(xids)
        if match is None:
            raise ValueError(f"without an XID such as 79, or 100-199, where {xids!r} stands")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last <= LAST_XID:
            raise ValueError(f"not about XIDs from 1 to {LAST_XID}, the lower first: {xids}")
        classes.update(dict.fromkeys(range(first, last + 1), kind))
    return XidClasses(MappingProxyType(dict(sorted(classes.items()))))


# Hand-over: how devices reach containers.


def strategies(value: object) -> tuple[str, ...]:
    """Read a list of :class:`Strategy`; ``auto`` stands alone, or with ``device-specs``.

    Raises:
        ValueError: a word is unknown, repeated, or combined with ``auto``.
    """
    strategies = values.several_of(tuple(word.value for word in Strategy))(value)
    if Strategy.AUTO in strategies and set(strategies) - {Strategy.AUTO, Strategy.DEVICE_SPECS}:
        raise ValueError("auto chooses the strategy: write it alone, or with device-specs")
    return strategies


def job_variables(value: object) -> tuple[JobVariable, ...]:
    """Read a list of :class:`JobVariable`; ``all`` and ``none`` stand alone."""
    if value in ("none", (), []):
        return ()
    if value == "all":
        return tuple(JobVariable)
    names = tuple(variable.value for variable in JobVariable)
    return tuple(map(JobVariable, values.several_of(names)(value)))
