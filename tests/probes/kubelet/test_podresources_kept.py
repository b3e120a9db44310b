"""The kept connection to the kubelet, against servers of the real API on a real socket."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest

from nodetopo.errors import UnreadableError
from nodetopo.model.node import NodeOffer, PlacedDevice, PodHolding
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedMemory
from nodetopo.probes.kubelet.pb import podresources_pb2 as pb
from nodetopo.probes.kubelet.podresources import PodResources
from tests.deviceplugin.eventually import eventually

GPU = "nvidia.com/gpu"


@pytest.fixture
def socket() -> Iterator[Path]:
    with TemporaryDirectory(prefix="nodetopo-") as directory:
        yield Path(directory) / "kubelet.sock"


@contextmanager
def serving(
    socket: Path,
    listed: pb.ListPodResourcesResponse | None = None,
    allocatable: pb.AllocatableResourcesResponse | None = None,
    *,
    asked: Callable[[str], object] = str,
) -> Iterator[None]:
    """Answer as a kubelet; *asked* has the method before, and fails it by an error of its own."""
    answers: dict[str, Any] = {
        "List": (pb.ListPodResourcesRequest, listed or pb.ListPodResourcesResponse()),
        "GetAllocatableResources": (
            pb.AllocatableResourcesRequest,
            allocatable or pb.AllocatableResourcesResponse(),
        ),
    }
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            lambda _request, _context, name=name, found=found: (asked(name), found)[1],
            request_deserializer=kind.FromString,
            response_serializer=type(found).SerializeToString,
        )
        for name, (kind, found) in answers.items()
    }
    with ExitStack() as stack:
        server = grpc.server(stack.enter_context(ThreadPoolExecutor(2)))
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),)
        )
        server.add_insecure_port(f"unix://{socket}")
        server.start()
        stack.callback(lambda: server.stop(None).wait())
        yield
    # gRPC removes the file when it gets to it, and by name: the next server's, if late.
    assert eventually(lambda: not socket.exists())


@pytest.fixture
def kubelet(socket: Path) -> Iterator[PodResources]:
    found = PodResources(socket)
    yield found
    found.close()


def nodes(*numbers: int) -> pb.TopologyInfo:
    return pb.TopologyInfo(nodes=[pb.NUMANode(ID=number) for number in numbers])


def device(name: str, *numa_nodes: int) -> pb.ContainerDevices:
    return pb.ContainerDevices(resource_name=GPU, device_ids=[name], topology=nodes(*numa_nodes))


def piece(kind: str, size: int, *numa_nodes: int) -> pb.ContainerMemory:
    return pb.ContainerMemory(memory_type=kind, size=size, topology=nodes(*numa_nodes))


def test_an_offer_has_each_device_once_with_all_its_nodes(
    socket: Path, kubelet: PodResources
) -> None:
    bare = pb.ContainerDevices(resource_name=GPU, device_ids=["GPU-9"])
    answer = pb.AllocatableResourcesResponse(
        devices=[device("GPU-1", 1), bare, device("GPU-0", 1), device("GPU-0", 0)],
        cpu_ids=[2, 1],
        memory=[piece("memory", 5, 1), piece("memory", 4, 0), piece("hugepages-2Mi", 2, 0)],
    )
    with serving(socket, allocatable=answer):
        found = kubelet.offer()
    assert found == NodeOffer(
        devices=(
            PlacedDevice(resource=GPU, id="GPU-0", numa_nodes=(0, 1)),
            PlacedDevice(resource=GPU, id="GPU-1", numa_nodes=(1,)),
            PlacedDevice(resource=GPU, id="GPU-9", numa_nodes=()),
        ),
        cpus=CpuSet.parse("1-2"),
        memory=(
            AssignedMemory(kind="hugepages-2Mi", size_bytes=2, numa_nodes=(0,)),
            AssignedMemory(kind="memory", size_bytes=4, numa_nodes=(0,)),
            AssignedMemory(kind="memory", size_bytes=5, numa_nodes=(1,)),
        ),
    )
    assert found.resources == {GPU, "cpu", "memory", "hugepages-2Mi"}


def test_a_kubelet_that_offers_nothing_has_no_resources(
    socket: Path, kubelet: PodResources
) -> None:
    with serving(socket):
        assert (kubelet.offer(), kubelet.offer().resources) == (NodeOffer(), frozenset())


def test_a_pod_holds_what_its_containers_have_together(socket: Path, kubelet: PodResources) -> None:
    containers = [
        pb.ContainerResources(
            name="a", devices=[device("GPU-1", 0)], cpu_ids=[4], memory=[piece("memory", 4, 0)]
        ),
        pb.ContainerResources(
            name="b", devices=[device("GPU-0", 0)], cpu_ids=[5], memory=[piece("memory", 4, 0)]
        ),
    ]
    pods = [
        pb.PodResources(namespace="ml", name="b", containers=containers),
        pb.PodResources(namespace="ml", name="a", containers=[pb.ContainerResources(name="c")]),
    ]
    with serving(socket, pb.ListPodResourcesResponse(pod_resources=pods)):
        plain, full = kubelet.held()
    assert plain == PodHolding(namespace="ml", name="a")
    assert full == PodHolding(
        namespace="ml",
        name="b",
        devices=tuple(
            PlacedDevice(resource=GPU, id=f"GPU-{number}", numa_nodes=(0,)) for number in (0, 1)
        ),
        cpus=CpuSet.parse("4-5"),
        memory=(AssignedMemory(kind="memory", size_bytes=4, numa_nodes=(0,)),) * 2,
    )


def test_what_a_pod_holds_as_a_whole_is_not_counted_again_in_its_containers(
    socket: Path, kubelet: PodResources
) -> None:
    part = pb.ContainerResources(name="a", cpu_ids=[4], memory=[piece("memory", 4, 0)])
    whole = pb.PodResources(
        namespace="ml",
        name="a",
        containers=[part],
        cpu_ids=[4, 5],
        memory=[piece("memory", 9, 0)],
    )
    with serving(socket, pb.ListPodResourcesResponse(pod_resources=[whole])):
        (found,) = kubelet.held()
    assert found.cpus == CpuSet.parse("4-5")
    assert found.memory == (AssignedMemory(kind="memory", size_bytes=9, numa_nodes=(0,)),)


def test_a_kubelet_that_restarted_is_found_again(socket: Path, kubelet: PodResources) -> None:
    with serving(socket):
        kubelet.held()
    with pytest.raises(UnreadableError):
        kubelet.held()
    pods = [pb.PodResources(namespace="ml", name="a")]

    def is_back() -> bool:
        try:
            return len(kubelet.held()) == 1
        except UnreadableError:
            return False

    with serving(socket, pb.ListPodResourcesResponse(pod_resources=pods)):
        assert eventually(is_back)


def test_a_missing_socket_has_a_cure(kubelet: PodResources) -> None:
    with pytest.raises(UnreadableError, match=r"No such file.* — start the kubelet, or mount"):
        kubelet.offer()


def test_a_restart_of_the_kubelet_changes_its_identity(socket: Path, kubelet: PodResources) -> None:
    before = kubelet.start
    assert before is None
    with serving(socket):
        kubelet.held()
        first = kubelet.start
        kubelet.offer()
        assert kubelet.start == first is not None
    with serving(socket):
        assert eventually(lambda: _answers(kubelet))
        assert kubelet.start != first


def _answers(kubelet: PodResources) -> bool:
    try:
        kubelet.held()
    except UnreadableError:
        return False
    return True
