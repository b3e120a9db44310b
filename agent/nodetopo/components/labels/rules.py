"""The operator's decisions about labels: the part that does not follow from hardware."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

DEFAULT_PREFIX = "gpu.topology/"
"""Of the labels that are this program's own."""

MigLabelling = Literal["none", "single", "mixed"]
"""Which resource MIG devices are offered as: none, ``nvidia.com/gpu``, or one by profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLabel:
    """The sharing of one resource's devices.

    Attributes:
        replicas: of each device, 2 or more.
        is_renamed: whether they are offered as ``….shared``.
    """

    replicas: int
    is_renamed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRules:
    """The operator's settings for labels.

    Attributes:
        mig: the strategy of the offered resources.
        shared: by the resource's name without sharing, e.g. ``nvidia.com/gpu``.
        prefix: replaces :data:`DEFAULT_PREFIX` in every key that begins with it.
        has_gfd: whether this program writes the keys of GPU Feature Discovery, which can run too.
        has_clique: whether this program writes ``nvidia.com/gpu.clique``, which another program can
            own.
        levels: tier name → value: the node's position in its cluster, ready for labels.
    """

    mig: MigLabelling = "none"
    shared: Mapping[str, SharedLabel] = field(default_factory=lambda: MappingProxyType({}))
    prefix: str = DEFAULT_PREFIX
    has_gfd: bool = True
    has_clique: bool = True
    levels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def own(self, key: str) -> str:
        """Return *key* of the catalogue under the operator's prefix."""
        name = key.removeprefix(DEFAULT_PREFIX)
        return key if name == key else self.prefix + name
