"""What an operator decides about labels: the part of them that does not follow from hardware."""

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
    """How devices of one resource are shared.

    Attributes:
        replicas: how often each device is offered, 2 or more.
        is_renamed: whether they are offered under another name, ``….shared``.
    """

    replicas: int
    is_renamed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRules:
    """The operator's settings that labels depend on.

    Attributes:
        mig: as for the resources that are offered.
        shared: by the name that a resource has without sharing, e.g. ``nvidia.com/gpu``.
        prefix: replaces :data:`DEFAULT_PREFIX` in every key that begins with it.
        has_gfd: whether this program writes the keys of GPU Feature Discovery, which may run too.
        has_clique: whether this program writes ``nvidia.com/gpu.clique``, which another may own.
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
