"""A small dose of :mod:`tests.lab.churn`; the full one is run by hand."""

import random

import pytest

from tests.lab.churn import Churn, check_unshared, plan, run
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node

pytestmark = pytest.mark.lab

_SEED = 6


def test_no_restart_gives_a_gpu_twice_or_loses_one_or_moves_a_running_pod(
    cluster: Cluster, v100: Node
) -> None:
    churn = Churn(cluster, v100, random.Random(_SEED))
    blows = plan(kubelet=6, agent=6, seed=_SEED)

    assert [blow for blow, _ in run(churn, blows)] == list(blows)
    assert churn.admitted >= len(blows) / 2


def test_a_gpu_that_two_pods_hold_would_be_noticed() -> None:
    check_unshared({"one": ("GPU-0", "GPU-1"), "two": ("GPU-2",)}, "the kubelet lists")

    with pytest.raises(AssertionError, match=r"the kubelet lists .'GPU-1'. more than once"):
        check_unshared({"one": ("GPU-0", "GPU-1"), "two": ("GPU-1",)}, "the kubelet lists")
