"""The placement policy of each resource, as one setting."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from agent.allocation.rules import Policy
from agent.config import values

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
