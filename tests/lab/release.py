"""Which Kubernetes the lab runs: the pinned one, a newer one, and an older one by its gates.

``NODETOPO_LAB_KUBERNETES`` names the release for whatever the lab starts: the tests, the benches,
``scripts/lab``. ``python -m tests.lab.release 1.37`` prints the files of tests that the nightly run
repeats on it.

The modules of a newer release are pinned in ``tests/lab/go/go-<release>.mod``. It is made from a
copy of ``tests/lab/go`` without the sources that the release's tag leaves out, with the versions of
``k8s.io`` and etcd raised and ``go mod tidy`` run.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct, field

from nodetopo.model import kubernetes

VARIABLE = "NODETOPO_LAB_KUBERNETES"


class Release(Struct, frozen=True, kw_only=True):
    """One of them.

    Attributes:
        name: as it is asked for: ``1.36``.
        kubelet: the release of the programs, and so of the kubelet, which emulates none.
        pins: the stem of the file in ``tests/lab/go`` that pins the programs' modules.
        tags: build constraints of our Go sources for them.
        emulated: the release whose gates and APIs API server and scheduler have instead of their
            own; empty for none.
        kubelet_gates: what differs from the kubelet's defaults.
        allocator_gates: what differs from the defaults of the scheduler by itself.
        tests: globs below ``tests/lab``, of what the nightly run repeats.
    """

    name: str
    kubelet: kubernetes.Release
    pins: str = "go"
    tags: str = ""
    emulated: str = ""
    kubelet_gates: Mapping[str, bool] = field(default_factory=dict)
    allocator_gates: Mapping[str, bool] = field(default_factory=dict)
    tests: tuple[str, ...] = ()

    @property
    def server(self) -> kubernetes.Release:
        """The release of the API server and the scheduler."""
        major, minor = self.name.split(".")
        return int(major), int(minor)

    def flags(self) -> tuple[str, ...]:
        """Return the flags of API server and scheduler."""
        return (f"--emulated-version={self.emulated}",) if self.emulated else ()


PINNED = Release(name="1.36", kubelet=(1, 36))

_OF_ANY_SERVER = (
    "test_claims_explained.py",
    "test_dra_beside.py",
    "test_dra_left.py",
    "test_dra_off.py",
    "test_labels.py",
    "test_qos.py",
    "test_rejections.py",
    "test_zones.py",
)
"""Tests of what depends on API server and scheduler."""

_OF_NEW_SERVERS = (
    "test_allocator_gates.py",
    "test_claims_[!e]*.py",
    "test_claims_exported.py",
    "test_compute_domains.py",
    "test_dra.py",
    "test_dra_[ac]*.py",
    "test_dra_rollout.py",
    "test_manifests_refused.py",
)
"""Those that need what 1.36 has on: counters and capacities of devices, rules of restarts."""

_OF_OLD_SERVERS = ("test_dra_gates.py",)
"""Those that need it off, which 1.37 no longer allows of taints."""

_OF_THE_KUBELET = (
    "test_admission_*.py",
    "test_alignment.py",
    "test_conformance_*.py",
    "test_faults_*.py",
    "test_instances.py",
    "test_joint_pairs.py",
    "test_kubelet_*.py",
    "test_offer.py",
    "test_pod_level.py",
    "test_rdma.py",
    "test_restart*.py",
    "test_robustness.py",
    "test_shared_pools.py",
    "test_sharing.py",
    "test_watcher.py",
)
"""Tests of device plugin, PodResources and admission."""

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

_ALLOCATOR_1_34: Mapping[str, bool] = MappingProxyType(
    {
        "DRAConsumableCapacity": False,
        "DRADeviceBindingConditions": False,
        "DRADeviceTaints": False,
        "DRAPartitionableDevices": False,
    }
)
"""Of the gates that the allocator of 1.36 has otherwise."""

RELEASES: Mapping[str, Release] = MappingProxyType(
    {
        release.name: release
        for release in (
            PINNED,
            Release(
                name="1.37",
                kubelet=(1, 37),
                pins="go-1.37",
                tags="k137",
                tests=(*_OF_THE_KUBELET, *_OF_ANY_SERVER, *_OF_NEW_SERVERS),
            ),
            # The oldest that has DRA: neither sets of devices with shared counters nor taints.
            Release(
                name="1.34",
                kubelet=PINNED.kubelet,
                emulated="1.34",
                kubelet_gates=_KUBELET_1_34,
                allocator_gates=_ALLOCATOR_1_34,
                tests=(*_OF_ANY_SERVER, *_OF_OLD_SERVERS),
            ),
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


if __name__ == "__main__":
    here = Path(__file__).parent
    for glob in chosen(sys.argv[1]).tests:
        for path in sorted(here.glob(glob)):
            print(path.relative_to(here.parents[1]))
