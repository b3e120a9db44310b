"""Which Kubernetes the lab runs: the pinned one, a newer one, and an older one by its gates.

``NODETOPO_LAB_KUBERNETES`` names the release for whatever the lab starts: the tests, the benches,
``scripts/lab``.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from agent.model import kubernetes

VARIABLE = "NODETOPO_LAB_KUBERNETES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One of them.

    Attributes:
        name: as it is asked for: ``1.36``.
        pins: the stem of the file in ``tests/lab/go`` that pins the programs' modules.
        tags: build constraints of our Go sources for them.
        emulated: the release whose gates and APIs API server and scheduler have instead of their
            own; empty for none.
        kubelet: the release of the programs, and so of the kubelet, which emulates none.
        kubelet_gates: what differs from the kubelet's defaults.
    """

    name: str
    kubelet: kubernetes.Release
    pins: str = "go"
    tags: str = ""
    emulated: str = ""
    kubelet_gates: Mapping[str, bool] = field(default_factory=dict)

    @property
    def server(self) -> kubernetes.Release:
        """The release of the API server and the scheduler."""
        major, minor = self.name.split(".")
        return int(major), int(minor)

    def flags(self) -> tuple[str, ...]:
        """Return the flags of API server and scheduler."""
        return (f"--emulated-version={self.emulated}",) if self.emulated else ()


PINNED = Release(name="1.36", kubelet=(1, 36))

_KUBELET_1_34: Mapping[str, bool] = MappingProxyType(
    {
        "ChangeContainerStatusOnKubeletRestart": True,
        "DRAExtendedResource": False,
        "ResourceHealthStatus": False,
        "ResourceHealthStatusMessage": False,
    }
)
"""Of the gates that 1.36 has otherwise those of devices and restarts (kubernetes v1.36.3
pkg/features/kube_features.go)."""

RELEASES: Mapping[str, Release] = MappingProxyType(
    {
        release.name: release
        for release in (
            PINNED,
            Release(name="1.37", kubelet=(1, 37), pins="go-1.37", tags="k137"),
            # The oldest that has DRA: neither sets of devices with shared counters nor taints.
            Release(name="1.34", kubelet=(1, 36), emulated="1.34", kubelet_gates=_KUBELET_1_34),
        )
    }
)


def chosen(name: str | None = None) -> Release:
    """Return the release called *name*, else the one that the environment names, else the pinned.

    Raises:
        RuntimeError: there is none of that name.
    """
    wanted = name or os.environ.get(VARIABLE) or PINNED.name
    if wanted not in RELEASES:
        known = ", ".join(RELEASES)
        raise RuntimeError(f"the lab has no Kubernetes {wanted}; it has {known} ({VARIABLE})")
    return RELEASES[wanted]
