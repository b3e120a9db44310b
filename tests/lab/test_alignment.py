"""Topology Manager policy ``single-numa-node`` on two NUMA nodes with four GPUs each."""

import pytest

from nodetopo.machines.bundled import machine
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import Container
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed

pytestmark = pytest.mark.lab

_H100 = machine("dgx-h100")


def test_gpus_exclusive_cpus_and_memory_of_a_pod_are_on_one_numa_node(
    cluster: Cluster, h100: Node
) -> None:
    cluster.pods.run(guaranteed("job", "h100", {"cpu": 16, "memory": "1Gi", GPU: 4}))

    given = _container(h100, "job")
    assert (_gpu_nodes(given), _cpu_nodes(given), _memory_nodes(given)) == ({0}, {0}, {0})


def test_the_pod_has_as_many_gpus_and_exclusive_cpus_as_it_asked_for(
    cluster: Cluster, h100: Node
) -> None:
    cluster.pods.run(guaranteed("job", "h100", {"cpu": 16, "memory": "1Gi", GPU: 4}))

    given = _container(h100, "job")
    assert (len(_gpus(given)), len(given.cpus or ())) == (4, 16)


def test_the_second_pod_gets_the_other_numa_node(cluster: Cluster, h100: Node) -> None:
    cluster.pods.run(guaranteed("first", "h100", {"cpu": 16, "memory": "1Gi", GPU: 4}))
    cluster.pods.run(guaranteed("second", "h100", {"cpu": 16, "memory": "1Gi", GPU: 2}))

    given = _container(h100, "second")
    assert (_gpu_nodes(given), _cpu_nodes(given), _memory_nodes(given)) == ({1}, {1}, {1})


def test_a_pod_that_fits_the_node_but_no_numa_node_is_rejected(
    cluster: Cluster, h100: Node
) -> None:
    cluster.pods.create(guaranteed("wide", h100.name, {"cpu": 2, "memory": "1Gi", GPU: 6}))

    status = cluster.pods.wait_phase("wide", "Failed")["status"]
    assert status["reason"] == "TopologyAffinityError"


def _container(node: Node, pod: str) -> Container:
    (found,) = (entry for entry in node.pod_resources() if entry.name == pod)
    (container,) = found.containers
    return container


def _gpus(container: Container) -> tuple[str, ...]:
    return next(entry.ids for entry in container.devices or () if entry.resource == GPU)


def _gpu_nodes(container: Container) -> set[int | None]:
    return {gpu.numa_node for gpu in _H100.gpus if gpu.id in _gpus(container)}


def _cpu_nodes(container: Container) -> set[int]:
    cpus = container.cpus or CpuSet()
    return {node.id for node in _H100.numa_nodes or () if len(node.cpus & cpus)}


def _memory_nodes(container: Container) -> set[int]:
    return {node for entry in container.memory or () for node in entry.numa_nodes}
