"""The health of HCAs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class HcaHealth:
    """How one HCA is.

    Attributes:
        name: of the RDMA device, as last known.
        is_healthy: whether the kubelet may hand it out.
        reason: short, in the form of a Kubernetes condition's (``HcaLinkDown``, ``HcaLost``);
            ``None`` for a sound HCA.
        said: the same for a person, in a sentence; ``None`` for a sound HCA.
    """

    name: str
    is_healthy: bool = True
    reason: str | None = None
    said: str | None = None


HcaHealthView: TypeAlias = Mapping[str, HcaHealth]
"""All known HCAs, by :attr:`nodetopo.rdma.identity.KnownHca.key`."""
