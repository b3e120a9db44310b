"""The cluster of the tests about schedulers: labelled nodes without kubelets."""

from collections.abc import Iterator

import pytest

from tests.lab.cluster import Cluster
from tests.lab.schedulers import crds, fabric
from tests.lab.schedulers.gang import ALPHA

_READ = ("topologies", "resourceflavors", "hypernodes", "leaderworkersets")
"""What is exported; one of the others has 1.4 MB."""


@pytest.fixture(scope="session")
def _trays(namespaces: None) -> Iterator[Cluster]:
    del namespaces
    lab = Cluster(alpha=ALPHA)
    lab.start()
    try:
        fabric.build(lab)
        fabric.publish(lab)
        yield lab
    finally:
        lab.stop()


@pytest.fixture(scope="session")
def _consumers(_trays: Cluster) -> None:
    crds.install(_trays.api, "kai", "kueue", "volcano", "lws", only=_READ)


@pytest.fixture
def trays(_trays: Cluster) -> Iterator[Cluster]:
    """Return the cluster of :mod:`tests.lab.schedulers.fabric`, labelled and without pods."""
    yield _trays
    _trays.pods.delete_all()


@pytest.fixture
def consumers(trays: Cluster, _consumers: None) -> Cluster:
    """Return that cluster with the custom resources of those who read topologies."""
    return trays
