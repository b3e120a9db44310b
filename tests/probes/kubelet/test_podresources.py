"""Against a server of the real API on a real socket."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread, Timer
from unittest.mock import Mock

import grpc
import pytest

from nodetopo.errors import UnreadableError
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedDevices, AssignedMemory, Container, Pod, pool
from nodetopo.probes.kubelet import gate as module
from nodetopo.probes.kubelet.gate import AdmissionGate
from nodetopo.probes.kubelet.pb import podresources_pb2 as pb
from nodetopo.probes.kubelet.podresources import PodResources

Answer = Callable[[pb.ListPodResourcesRequest, grpc.ServicerContext], pb.ListPodResourcesResponse]
Serve = Callable[[Answer], Path]


def assigned(socket: Path, *, timeout_s: float = 60.0) -> tuple[Pod, ...]:
    with closing(PodResources(socket, timeout_s=timeout_s)) as kubelet:
        return kubelet.assigned()


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="nodetopo-")))

        def start(answer: Answer) -> Path:
            handler = grpc.unary_unary_rpc_method_handler(
                answer,
                request_deserializer=pb.ListPodResourcesRequest.FromString,
                response_serializer=pb.ListPodResourcesResponse.SerializeToString,
            )
            server = grpc.server(stack.enter_context(ThreadPoolExecutor(2)))
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler}),)
            )
            server.add_insecure_port(f"unix://{directory}/kubelet.sock")
            server.start()
            stack.callback(lambda: server.stop(None).wait())
            return directory / "kubelet.sock"

        yield start


def answering(*pods: pb.PodResources) -> Answer:
    return lambda _request, _context: pb.ListPodResourcesResponse(pod_resources=pods)


def device(resource: str, name: str, *nodes: int) -> pb.ContainerDevices:
    topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in nodes])
    return pb.ContainerDevices(resource_name=resource, device_ids=[name], topology=topology)


@pytest.fixture
def slow(serve: Serve) -> Iterator[tuple[Path, Event]]:
    """Return a kubelet that answers lists once the event is set, and one after the test."""
    may_answer = Event()

    def late(
        _request: pb.ListPodResourcesRequest, _context: grpc.ServicerContext
    ) -> pb.ListPodResourcesResponse:
        assert may_answer.wait(60)
        return pb.ListPodResourcesResponse()

    yield serve(late), may_answer
    may_answer.set()


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_choice_waits_for_a_list_that_nobody_waits_for_any_more(
    slow: tuple[Path, Event], monkeypatch: pytest.MonkeyPatch, *, is_closed: bool
) -> None:
    """The kubelet serves it all the same, then or within the next Allocate."""
    socket, may_answer = slow
    gate = AdmissionGate()
    kubelet = PodResources(socket, timeout_s=0.1, gate=gate)
    with pytest.raises(UnreadableError, match="DEADLINE_EXCEEDED"):
        kubelet.assigned()
    if is_closed:
        kubelet.close()
    monkeypatch.setattr(module, "REPORT_S", 0.1)
    waited = list[float]()

    def report(waited_s: float) -> None:
        assert not may_answer.is_set(), "the kubelet has answered"
        waited.append(waited_s)
        if len(waited) == 2:
            may_answer.set()

    with gate.choosing(is_reserved=False, waits=report):
        pass
    assert len(waited) == 2
    kubelet.close()


def test_one_list_at_most_is_under_way_to_a_kubelet_that_answers_none(
    slow: tuple[Path, Event],
) -> None:
    gate = AdmissionGate()
    for why in ("DEADLINE_EXCEEDED", "not answered an earlier list"):
        with pytest.raises(UnreadableError, match=why):
            PodResources(slow[0], timeout_s=0.1, gate=gate).assigned()


def test_a_list_of_a_kubelet_that_ended_keeps_no_choice_waiting(tmp_path: Path) -> None:
    gate = AdmissionGate()
    (tmp_path / "nobody").touch()
    for socket in ("missing", "nobody"):
        with pytest.raises(UnreadableError):
            PodResources(tmp_path / socket, gate=gate).assigned()
    with gate.choosing(is_reserved=False, waits=lambda _: pytest.fail("no list is under way")):
        pass


def test_a_list_within_a_call_is_waited_for(slow: tuple[Path, Event]) -> None:
    socket, may_answer = slow
    timer = Timer(0.3, may_answer.set)
    timer.start()
    with closing(PodResources(socket, timeout_s=0.01, gate=None)) as kubelet:
        assert kubelet.assigned() == ()
    assert may_answer.is_set()
    timer.join()


def test_a_container_has_its_devices_by_resource_its_cpus_and_its_memory(serve: Serve) -> None:
    trainer = pb.ContainerResources(
        name="trainer",
        devices=[
            device("rdma/hca", "mlx5_1", 0),
            device("nvidia.com/gpu", "GPU-2", 0),
            device("nvidia.com/gpu", "GPU-1", 0),
        ],
        cpu_ids=[3, 2, 1],
        memory=[
            pb.ContainerMemory(
                memory_type="memory",
                size=1 << 33,
                topology=pb.TopologyInfo(nodes=[pb.NUMANode(ID=1), pb.NUMANode(ID=0)]),
            )
        ],
    )
    socket = serve(answering(pb.PodResources(name="a", namespace="ml", containers=[trainer])))
    expected = Container(
        name="trainer",
        devices=(
            AssignedDevices(resource="nvidia.com/gpu", ids=("GPU-1", "GPU-2")),
            AssignedDevices(resource="rdma/hca", ids=("mlx5_1",)),
        ),
        cpus=CpuSet.parse("1-3"),
        memory=(AssignedMemory(kind="memory", size_bytes=1 << 33, numa_nodes=(0, 1)),),
    )
    assert assigned(socket) == (Pod(namespace="ml", name="a", containers=(expected,)),)


def test_a_device_near_two_nodes_is_one_device(serve: Serve) -> None:
    gpu = "nvidia.com/gpu"
    twice = pb.ContainerResources(
        name="c", devices=[device(gpu, "GPU-1", 0), device(gpu, "GPU-1", 1)]
    )
    socket = serve(answering(pb.PodResources(name="a", namespace="ml", containers=[twice])))
    (pod,) = assigned(socket)
    assert pod.containers[0].devices == (AssignedDevices(resource=gpu, ids=("GPU-1",)),)


def test_a_container_that_shares_everything_has_empty_parts(serve: Serve) -> None:
    plain = pb.PodResources(name="a", namespace="b", containers=[pb.ContainerResources(name="c")])
    (pod,) = assigned(serve(answering(plain)))
    assert pod.containers == (Container(name="c", devices=(), cpus=CpuSet(), memory=()),)


def test_what_a_pod_has_as_a_whole_is_its_own(serve: Serve) -> None:
    """Of its containers one has CPUs exclusively, the other shares the rest."""
    whole = pb.PodResources(
        name="a",
        namespace="b",
        containers=[
            pb.ContainerResources(name="own", cpu_ids=[1]),
            pb.ContainerResources(name="shares"),
        ],
        cpu_ids=[3, 2, 1],
        memory=[
            pb.ContainerMemory(
                memory_type="memory",
                size=1 << 33,
                topology=pb.TopologyInfo(nodes=[pb.NUMANode(ID=1)]),
            )
        ],
    )
    (pod,) = assigned(serve(answering(whole)))
    assert [one.cpus for one in pod.containers] == [CpuSet.of((1,)), CpuSet()]
    assert pod.cpus == CpuSet.parse("1-3")
    assert pool(pod) == CpuSet.parse("2-3")
    assert pod.memory == (AssignedMemory(kind="memory", size_bytes=1 << 33, numa_nodes=(1,)),)


def test_pods_come_by_namespace_and_name(serve: Serve) -> None:
    names = (("z", "a"), ("a", "z"), ("a", "b"))
    socket = serve(answering(*(pb.PodResources(namespace=ns, name=n) for ns, n in names)))
    assert [(pod.namespace, pod.name) for pod in assigned(socket)] == sorted(names)


def test_an_answer_of_many_pods_is_read_whole(serve: Serve) -> None:
    pods = [pb.PodResources(namespace="n", name=f"{n:0250}") for n in range(24_000)]
    assert len(assigned(serve(answering(*pods)))) == 24_000


def test_a_missing_socket_has_a_cure(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"No such file.* — start the kubelet, or mount"):
        assigned(tmp_path / "kubelet.sock")


def test_a_path_too_long_for_a_socket_is_unreadable() -> None:
    with pytest.raises(UnreadableError, match="longer than the 107 bytes"):
        assigned(Path("/" + "x" * 107))


def test_a_socket_that_nobody_serves_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "kubelet.sock").touch()
    with pytest.raises(UnreadableError, match=r"UNAVAILABLE.* — see whether the kubelet runs"):
        assigned(tmp_path / "kubelet.sock")


def test_the_kubelets_rate_limit_has_a_cure(serve: Serve) -> None:
    def limited(
        _: pb.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> pb.ListPodResourcesResponse:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")

    with pytest.raises(UnreadableError, match="rejected by rate limit — try again"):
        assigned(serve(limited))


def test_a_kubelet_that_does_not_answer_ends_the_wait(serve: Serve) -> None:
    def hanging(
        _: pb.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> pb.ListPodResourcesResponse:
        while context.is_active():
            pass
        return pb.ListPodResourcesResponse()

    with pytest.raises(UnreadableError, match="DEADLINE_EXCEEDED"):
        assigned(serve(hanging), timeout_s=0.1)


def test_a_container_has_the_devices_of_its_claims(serve: Serve) -> None:
    def resource(driver: str, name: str, *cdi: str) -> pb.ClaimResource:
        return pb.ClaimResource(
            driver_name=driver,
            pool_name="n",
            device_name=name,
            cdi_devices=[pb.CDIDevice(name=each) for each in cdi],
        )

    claims = [
        pb.DynamicResource(
            claim_name="nics", claim_namespace="ml", claim_resources=[resource("dra.net", "nic")]
        ),
        pb.DynamicResource(
            claim_name="gpus",
            claim_namespace="ml",
            claim_resources=[resource("d", "2", "k/gpu=2"), resource("d", "1")],
        ),
    ]
    container = pb.ContainerResources(name="c", dynamic_resources=claims)
    listed = pb.PodResources(name="a", namespace="ml", containers=[container])
    (pod,) = assigned(serve(answering(listed)))
    found = pod.containers[0].claimed or ()
    assert [(it.claim, it.name, it.cdi_devices) for it in found] == [
        ("gpus", "2", ("k/gpu=2",)),
        ("gpus", "1", ()),
        ("nics", "nic", ()),
    ]
    with closing(PodResources(serve(answering(listed)))) as kubelet:
        (holding,) = kubelet.held()
    assert holding.claimed == found


def test_a_claim_s_devices_do_not_have_those_before_them_nor_the_kubelet_s_order(
    serve: Serve,
) -> None:
    """The kubelet goes over drivers in the order of a Go map, and adds up the CDI names of each."""

    def resource(driver: str, name: str, *cdi: str) -> pb.ClaimResource:
        names = [pb.CDIDevice(name=each) for each in cdi]
        return pb.ClaimResource(
            driver_name=driver, pool_name="n", device_name=name, cdi_devices=names
        )

    gpus = [
        resource("gpu.example", "gpu-0", "g=0"),
        resource("gpu.example", "mig-1", "g=0", "g=MIG-1"),
        resource("gpu.example", "gpu-2", "g=0", "g=MIG-1", "g=2"),
    ]
    nic = resource("dra.net", "nic", "n=0")
    for listed in ([*gpus, nic], [nic, *gpus]):
        claim = pb.DynamicResource(claim_name="c", claim_namespace="ml", claim_resources=listed)
        container = pb.ContainerResources(name="c", dynamic_resources=[claim])
        (pod,) = assigned(
            serve(answering(pb.PodResources(name="a", namespace="ml", containers=[container])))
        )
        found = pod.containers[0].claimed or ()
        assert [(it.name, it.cdi_devices) for it in found] == [
            ("nic", ("n=0",)),
            ("gpu-0", ("g=0",)),
            ("mig-1", ("g=MIG-1",)),
            ("gpu-2", ("g=2",)),
        ]


def test_devices_with_cdi_names_of_their_own_keep_them(serve: Serve) -> None:
    names = ("g=1", "g=0", "g=2")
    listed = [
        pb.ClaimResource(
            driver_name="d", pool_name="n", device_name=name, cdi_devices=[pb.CDIDevice(name=name)]
        )
        for name in names
    ]
    claim = pb.DynamicResource(claim_name="c", claim_namespace="ml", claim_resources=listed)
    container = pb.ContainerResources(name="c", dynamic_resources=[claim])
    (pod,) = assigned(
        serve(answering(pb.PodResources(name="a", namespace="ml", containers=[container])))
    )
    assert [it.cdi_devices for it in pod.containers[0].claimed or ()] == [(it,) for it in names]


def test_without_a_thread_no_list_is_sent_and_the_next_one_works(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit of processes gRPC sends a list and fails then; nobody would note its end."""
    asked = list[object]()

    def answer(
        request: pb.ListPodResourcesRequest, _context: grpc.ServicerContext
    ) -> pb.ListPodResourcesResponse:
        asked.append(request)
        return pb.ListPodResourcesResponse()

    gate = AdmissionGate()
    with closing(PodResources(serve(answer), gate=gate)) as kubelet:
        kubelet.assigned()
        with monkeypatch.context() as limited:
            limited.setattr(
                Thread, "start", Mock(side_effect=RuntimeError("can't start new thread"))
            )
            with pytest.raises(UnreadableError, match="can't start new thread"):
                kubelet.assigned()
        assert len(asked) == 1
        kubelet.assigned()
    with gate.choosing(is_reserved=False, waits=lambda _: pytest.fail("no list is under way")):
        pass
