"""The placement policy of each resource, as one setting."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from agent.allocation.rules import Policy
from agent.config import values

EVERY = "*"
"""Stands for every resource that is not named."""

NVIDIAS = ("nvidia", "best-effort", "best_effort", "nvidia-best-effort")
"""What somebody would write who wants the placement of NVIDIA's device plugin."""

_NONE: Mapping[str, Policy] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPolicies:
    """Which policy serves which resource.

    Attributes:
        usual: for every resource that *special* does not name.
        special: by resource name.
    """

    usual: Policy = Policy.BEST
    special: Mapping[str, Policy] = field(default_factory=lambda: _NONE, hash=False)

    def policy(self, resource: str) -> Policy:
        """Return the policy of *resource*."""
        return self.special.get(resource, self.usual)

    def __str__(self) -> str:
        """Return the text that :func:`placement` reads back."""
        named = (f"{resource}={policy}" for resource, policy in self.special.items())
        return ",".join((str(self.usual), *named))


def placement(value: object) -> PlacementPolicies:
    """Read one word for all resources, ``resource=word`` by comma, or a mapping in YAML.

    A word without a resource, like the key ``*``, is for all resources that are not named.
    """
    if isinstance(value, PlacementPolicies):
        return value
    found: dict[str, Policy] = {}
    for name, word in _pairs(value):
        policy = _policy(word)
        resource = EVERY if name == EVERY else values.resource(name)
        if resource in found:
            whose = "every other resource" if resource == EVERY else resource
            raise ValueError(f"not a single policy for {whose}")
        found[resource] = policy
    usual = found.pop(EVERY, Policy.BEST)
    return PlacementPolicies(usual=usual, special=MappingProxyType(_sorted(found.items())))


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
