"""The operator's decisions about labels: the part that does not follow from hardware."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct, field

DEFAULT_PREFIX = "gpu.topology/"
"""Of the labels that are this program's own."""

MigLabelling = Literal["none", "single", "mixed"]
"""Which resource MIG devices are offered as: none, ``nvidia.com/gpu``, or one by profile."""


class SharedLabel(Struct, frozen=True, kw_only=True):
    """The sharing of one resource's devices."""

    replicas: int  # of each device, 2 or more
    is_renamed: bool = False  # whether they are offered as ``….shared``


class LabelRules(Struct, frozen=True, kw_only=True):
    """The operator's settings for labels."""

    mig: MigLabelling = "none"  # the strategy of the offered resources
    # By the resource's name without sharing, e.g. ``nvidia.com/gpu``.
    shared: Mapping[str, SharedLabel] = field(default_factory=lambda: MappingProxyType({}))
    prefix: str = DEFAULT_PREFIX  # replaces :data:`DEFAULT_PREFIX` in every key that begins with it
    # Whether this program writes the keys of GPU Feature Discovery, which can run too.
    has_gfd: bool = True
    # Whether this program writes ``nvidia.com/gpu.clique``, which another program can own.
    has_clique: bool = True
    # Tier name → value: the node's position in its cluster, ready for labels.
    levels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def own(self, key: str) -> str:
        """Return *key* of the catalogue under the operator's prefix."""
        name = key.removeprefix(DEFAULT_PREFIX)
        return key if name == key else self.prefix + name
