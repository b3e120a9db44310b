"""GPUs and HCAs of one daemon on a real kubelet."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodetopo.components.rdma.resources import key_of
from nodetopo.model.codec import decode
from nodetopo.model.nvlink import Closeness
from nodetopo.rdma.pairing import Pairing
from tests.lab.cluster import MACHINES, Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed, with_containers
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_SHAPE = "h100x8-nvswitch-2numa-8cx7"
_SNAPSHOT = decode((MACHINES / _SHAPE / "snapshot.json").read_text("utf-8")).snapshot
_HCA = "rdma/hca_shared_devices_a"
_GPUS = {gpu.id: at for at, gpu in enumerate(_SNAPSHOT.gpus)}
_HCAS = {str(hca.pci): at for at, hca in enumerate(_SNAPSHOT.hcas or ())}


@pytest.fixture(scope="module")
def _node(cluster: Cluster) -> Iterator[Node]:
    yield cluster.add_node("rdma", _SHAPE)
    cluster.remove_node("rdma")


@pytest.fixture
def node(cluster: Cluster, _node: Node) -> Iterator[Node]:
    """Return a DGX H100 under ``single-numa-node``; the agent is for the test to start."""
    yield _node
    cluster.pods.delete_all()
    _node.agent.stop()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return a configuration of one pool with four devices for each HCA."""
    path = tmp_path / "config.json"
    pool = {
        "resourceName": "hca_shared_devices_a",
        "rdmaHcaMax": 32,
        "selectors": {"vendors": ["15b3"]},
        "mode": "chosen",
    }
    path.write_text(json.dumps({"configList": [pool]}), "utf-8")
    return path


def start(node: Node, config: Path, *flags: str) -> None:
    node.agent.start(["--rdma-config", str(config), *flags])
    node.wait_allocatable(GPU, 8)
    node.wait_allocatable(_HCA, 32)


def given(node: Node, pod: str, container: str = "work") -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the positions of the GPUs and of the HCAs of a container."""
    gpus = node.given(pod)[container]
    hcas = node.given(pod, _HCA)[container]
    return (
        tuple(sorted(_GPUS[name] for name in gpus)),
        tuple(sorted(_HCAS[key_of(name)] for name in hcas)),
    )


def is_near(gpus: tuple[int, ...], hcas: tuple[int, ...]) -> bool:
    """Return whether each GPU has an HCA of its own behind the same PCIe switches."""
    pairs = Pairing(snapshot=_SNAPSHOT).matched(gpus, hcas)
    own = {pair.hca for pair in pairs}
    return len(own) == len(gpus) and all(
        pair.closeness is not None and pair.closeness <= Closeness.PXB for pair in pairs
    )


def test_a_pod_with_gpus_hcas_and_cpus_is_aligned(
    cluster: Cluster, node: Node, config: Path
) -> None:
    start(node, config)
    wanted: dict[str, str | int] = {"cpu": 16, "memory": "1Gi", GPU: 4, _HCA: 4}
    for name, positions in (("first", (0, 1, 2, 3)), ("second", (4, 5, 6, 7))):
        cluster.pods.run(guaranteed(name, node.name, wanted))
        gpus, hcas = given(node, name)
        assert gpus == positions
        assert is_near(gpus, hcas)
        (pod,) = [pod for pod in node.pod_resources() if pod.name == name]
        (numa,) = {_SNAPSHOT.gpus[at].numa_node for at in gpus}
        local = next(one.cpus for one in _SNAPSHOT.numa_nodes or () if one.id == numa)
        assert pod.containers[0].cpus is not None
        assert pod.containers[0].cpus <= local


def test_a_container_gets_the_devices_of_its_hcas_alone(
    cluster: Cluster, node: Node, config: Path
) -> None:
    start(node, config, "--job-variables", "NCCL_IB_HCA,UCX_NET_DEVICES")
    pod = guaranteed("job", node.name, {"cpu": 2, "memory": "64Mi", GPU: 1, _HCA: 1})
    pod["spec"]["containers"][0]["env"] = [{"name": "UCX_NET_DEVICES", "value": "the pod's own"}]
    cluster.pods.run(pod)
    _, (position,) = given(node, "job")
    hca = (_SNAPSHOT.hcas or ())[position]
    (created,) = node.runtime.created("job")
    nodes = [path for path in created.devices if path.startswith("/dev/infiniband/")]
    number = hca.name.removeprefix("mlx5_")
    assert set(nodes) - {"/dev/infiniband/rdma_cm"} == {
        f"/dev/infiniband/{kind}{number}" for kind in ("issm", "umad", "uverbs")
    }
    assert created.env["NCCL_IB_HCA"] == f"={hca.name}:1"
    assert created.env["UCX_NET_DEVICES"] == "the pod's own"


def test_pods_that_come_together_get_their_own_pairs(
    cluster: Cluster, node: Node, config: Path
) -> None:
    start(node, config)
    names = [f"gang-{number}" for number in range(4)]
    for name in names:
        cluster.pods.create(
            guaranteed(name, node.name, {"cpu": 2, "memory": "64Mi", GPU: 2, _HCA: 2})
        )
    for name in names:
        cluster.pods.wait_phase(name, "Running")
    placed = {name: given(node, name) for name in names}
    assert all(is_near(gpus, hcas) for gpus, hcas in placed.values()), placed
    for kind in (0, 1):
        used = [at for both in placed.values() for at in both[kind]]
        assert sorted(used) == list(range(8)), placed


def test_containers_of_one_pod_get_their_own_pairs(
    cluster: Cluster, node: Node, config: Path
) -> None:
    start(node, config)
    wanted: dict[str, str | int] = {"cpu": 1, "memory": "64Mi", GPU: 1, _HCA: 1}
    cluster.pods.run(with_containers("two", node.name, [wanted, wanted]))
    for container in ("work", "work-1"):
        assert is_near(*given(node, "two", container))


def test_an_hca_without_a_link_is_not_allocatable_until_it_has_one(
    node: Node, config: Path, tmp_path: Path
) -> None:
    sysfs = tmp_path / "sys"
    shutil.copytree(node.host / "sys", sysfs, symlinks=True)
    start(node, config, "--sysfs-root", str(sysfs))
    state = sysfs / "class" / "infiniband" / "mlx5_3" / "ports" / "1" / "state"
    text = state.read_text("ascii")
    state.write_text("1: DOWN\n", "ascii")
    node.wait_allocatable(_HCA, 28)
    assert len(node.healthy(GPU)) == 8
    state.write_text(text, "ascii")
    node.wait_allocatable(_HCA, 32)


def test_both_resources_come_back_after_a_restart_of_the_kubelet(
    cluster: Cluster, node: Node, config: Path
) -> None:
    start(node, config)
    cluster.pods.run(guaranteed("before", node.name, {"cpu": 1, "memory": "64Mi", GPU: 2, _HCA: 2}))
    kept = given(node, "before")
    node.restart_kubelet()
    node.wait_allocatable(GPU, 8)
    node.wait_allocatable(_HCA, 32)

    def is_kept() -> bool:
        held = node.given("before"), node.given("before", _HCA)
        return all(held) and given(node, "before") == kept

    wait_for("the kubelet lists what the pod had", is_kept, evidence=node.logs)
