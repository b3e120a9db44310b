"""The health of HCAs."""

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct


class HcaHealth(Struct, frozen=True, kw_only=True):
    """How one HCA is."""

    name: str  # of the RDMA device, as last known
    is_healthy: bool = True  # the kubelet can allocate it
    # Short, like a Kubernetes condition's: HcaLinkDown, HcaLost; None if sound.
    reason: str | None = None
    said: str | None = None  # the same as a sentence; None if sound


HcaHealthView: TypeAlias = Mapping[str, HcaHealth]
"""All known HCAs, by :attr:`nodetopo.rdma.identity.KnownHca.key`."""
