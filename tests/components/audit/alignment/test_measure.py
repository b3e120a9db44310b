"""Measured alignment: what is arranged is what is measured."""

import random

import pytest
from msgspec.structs import replace

from nodetopo.components.audit.alignment.measure import MAX_DEVICES, MAX_ROWS, measured
from nodetopo.components.audit.alignment.record import (
    Alignment,
    NvlinkSpan,
    Part,
    PodAlignment,
    to_plain,
)
from nodetopo.model.dra import ClaimedDevice
from nodetopo.model.kubelet_state import CpuState, KubeletState
from nodetopo.model.node import NodeOffer
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedMemory, Container, Pod
from tests.components.audit.alignment.alignment_nodes import (
    GIB,
    GPU,
    NONE,
    STATIC,
    apart,
    node,
    placed,
    row,
    with_devices,
    worker,
)

H100 = node()
BOTH = [Part.CPUS, Part.MEMORY]
TOGETHER = worker(H100, [0, 1], hcas=["mlx5_0"], cpus="0-15", memory={0: 64 * GIB})


def test_what_is_together_is_aligned() -> None:
    found = row(placed(H100, TOGETHER, uid="u-1"))
    assert found == PodAlignment(
        namespace="ml",
        pod="job-0",
        container="worker",
        uid="u-1",
        gpus=("GPU0", "GPU1"),
        gpu_nodes=(0,),
        cpus=CpuSet.parse("0-15"),
        has_own_cpus=True,
        cpu_nodes=(0,),
        is_memory_bound=True,
        memory_nodes=(0,),
        hcas=("mlx5_0",),
        hca_nodes=(0,),
        nvlink=NvlinkSpan.ALL,
    )
    assert found.verdict is Alignment.ALIGNED


@pytest.mark.parametrize(
    ("container", "part"),
    [
        (worker(H100, [0, 1], cpus="56-71", memory={0: GIB}), Part.CPUS),
        (worker(H100, [0, 1], cpus="50-60", memory={0: GIB}), Part.CPUS),
        (worker(H100, [4, 5], cpus="56-71", memory={0: GIB}), Part.MEMORY),
        (worker(H100, [4], hcas=["mlx5_0"], cpus="56-71", memory={1: GIB}), Part.HCAS),
        (worker(H100, [3, 4], cpus="50-60", memory={0: GIB, 1: GIB}), Part.GPUS),
    ],
    ids=["cpus elsewhere", "cpus on both", "memory", "hca", "gpus"],
)
def test_what_is_apart_is_misaligned(container: Container, part: Part) -> None:
    snapshot = placed(H100, container)
    assert list(apart(snapshot)) == [part]
    assert row(snapshot).verdict is Alignment.MISALIGNED


@pytest.mark.parametrize(("cpus", "node_", "expected"), [("0-15", 0, []), ("56-71", 1, BOTH)])
def test_a_container_in_its_pod_s_pool_is_where_the_pod_is(
    cpus: str, node_: int, expected: list[Part]
) -> None:
    """It has no CPUs and memory of its own; CPU 3 or 59 is another container's."""
    whole = AssignedMemory(kind="memory", size_bytes=GIB, numa_nodes=(node_,))
    own = Container(name="own", cpus=CpuSet.of((3 + 56 * node_,)), memory=())
    snapshot = placed(
        H100,
        worker(H100, [0, 1]),
        containers=(worker(H100, [0, 1]), own),
        requests={"cpu": 16000, "memory": GIB},
        limits={"cpu": 16000, "memory": GIB},
        cpus=CpuSet.parse(cpus),
        memory=(whole,),
    )
    found = row(snapshot)
    assert (found.cpu_nodes, found.memory_nodes, found.has_own_cpus) == ((node_,), (node_,), False)
    assert len(found.cpus or ()) == 15
    assert list(apart(snapshot)) == expected
    assert "QOS-003" not in {cause.code for cause in found.causes}


def test_random_arrangements_are_measured_as_arranged() -> None:
    draw = random.Random(8)
    near = {0: range(56), 1: range(56, 112)}
    hcas = {n: [h.name for h in H100.hcas or () if h.numa_node == n] for n in near}
    for _ in range(200):
        gpu_node, cpu_node, memory_node, hca_node = (draw.randint(0, 1) for _ in range(4))
        gpus = draw.sample(range(4 * gpu_node, 4 * gpu_node + 4), draw.randint(1, 4))
        own = CpuSet.of(draw.sample(near[cpu_node], draw.randint(1, 20)))
        hca = draw.choice(hcas[hca_node])
        held = worker(H100, gpus, hcas=[hca], cpus=str(own), memory={memory_node: GIB})
        expected = {
            part
            for part, at in (
                (Part.CPUS, cpu_node),
                (Part.MEMORY, memory_node),
                (Part.HCAS, hca_node),
            )
            if at != gpu_node
        }
        snapshot = placed(H100, held)
        assert set(apart(snapshot)) == expected
        found = row(snapshot)
        assert (found.gpu_nodes, found.cpu_nodes, found.memory_nodes, found.hca_nodes) == (
            (gpu_node,),
            (cpu_node,),
            (memory_node,),
            (hca_node,),
        )


def test_a_whole_machine_spans_its_numa_nodes_without_fault() -> None:
    everything = worker(H100, range(8), cpus="0-111", memory={0: GIB, 1: GIB})
    assert row(placed(H100, everything)).verdict is Alignment.ALIGNED


def test_a_whole_machine_may_share_its_cpus_where_some_nodes_of_its_sockets_have_no_gpu() -> None:
    a100 = node("dgx-a100", NONE)
    assert row(placed(a100, worker(a100, range(8)))).verdict is Alignment.ALIGNED
    assert list(apart(placed(a100, worker(a100, range(6))))) == [Part.CPUS, Part.MEMORY]


def test_more_cpus_than_the_numa_node_has_may_come_from_another() -> None:
    many = worker(H100, range(4), cpus="0-69,112-167", memory={0: GIB})
    assert row(placed(H100, many)).verdict is Alignment.ALIGNED
    offer = NodeOffer(cpus=CpuSet.parse("1-223"))
    few = placed(H100, worker(H100, range(4), cpus="1-56,112-167", memory={0: GIB}))
    assert list(apart(few)) == [Part.CPUS]
    assert apart(replace(few, offer=offer)) == {}


def test_more_memory_than_the_numa_node_has_may_come_from_another() -> None:
    size = 1 << 42
    held = replace(worker(H100, [0], cpus="0-15", memory={0: size}), memory_nodes=(0, 1))
    assert row(placed(H100, held)).verdict is Alignment.ALIGNED
    less = replace(worker(H100, [0], cpus="0-15", memory={0: GIB, 1: GIB}))
    assert list(apart(placed(H100, less))) == [Part.MEMORY]


def test_memory_that_nothing_binds_is_where_the_threads_are() -> None:
    pinned = row(placed(H100, worker(H100, [0], cpus="0-15")))
    assert (pinned.verdict, pinned.is_memory_bound, pinned.memory_nodes) == (
        Alignment.ALIGNED,
        False,
        (0, 1),
    )
    elsewhere = placed(H100, worker(H100, [0], cpus="56-71"))
    assert list(apart(elsewhere)) == [Part.CPUS, Part.MEMORY]


def test_hcas_are_no_fault_where_there_are_none_near_the_gpus() -> None:
    far = replace(H100, hcas=tuple(hca for hca in H100.hcas or () if hca.numa_node == 0))
    held = worker(far, [4], hcas=["mlx5_0"], cpus="56-71", memory={1: GIB})
    assert row(placed(far, held)).verdict is Alignment.ALIGNED


def test_hcas_enough_for_all_gpu_nodes_are_to_be_on_all() -> None:
    held = worker(H100, range(8), hcas=["mlx5_0", "mlx5_1"], cpus="0-111", memory={0: 1, 1: 1})
    assert list(apart(placed(H100, held))) == [Part.HCAS]
    one = worker(H100, range(8), hcas=["mlx5_0"], cpus="0-111", memory={0: 1, 1: 1})
    assert apart(placed(H100, one)) == {}


def test_all_hcas_of_the_machine_are_on_all_its_numa_nodes() -> None:
    names = [hca.name for hca in H100.hcas or ()]
    held = worker(H100, [0], hcas=names, cpus="0-3", memory={0: GIB})
    assert apart(placed(H100, held)) == {}


def test_one_cpu_cannot_be_on_two_numa_nodes() -> None:
    held = worker(H100, range(8), cpus="0", memory={0: GIB, 1: GIB})
    assert apart(placed(H100, held)) == {}


def test_without_gpus_the_hcas_decide() -> None:
    held = worker(H100, hcas=["mlx5_0"], cpus="56-71", memory={0: GIB})
    found = row(placed(H100, held))
    assert (found.gpus, found.gpu_nodes, list(apart(placed(H100, held)))) == ((), (), [Part.CPUS])


def test_what_the_cgroup_lets_it_use_counts_more_than_what_the_kubelet_meant() -> None:
    held = replace(TOGETHER, cpuset=CpuSet.parse("0-223"), memory_nodes=(0, 1))
    found = row(placed(H100, held))
    assert (found.cpu_nodes, found.memory_nodes) == ((0, 1), (0, 1))
    assert {one.part: one.causes[0].code for one in found.apart} == {
        Part.CPUS: "unexplained",
        Part.MEMORY: "unexplained",
    }


def test_memory_nodes_of_grace_gpus_are_no_numa_nodes_to_align_with() -> None:
    grace = node("gb200-nvl72")
    held = replace(
        worker(grace, [0, 1], cpus="0-15", memory={0: GIB}),
        cpuset=CpuSet.parse("0-15"),
        memory_nodes=tuple(one.id for one in grace.numa_nodes or ()),
    )
    found = row(placed(grace, held))
    assert (found.verdict, found.gpu_nodes, found.memory_nodes) == (
        Alignment.ALIGNED,
        (0,),
        (0, 1),
    )


def test_shared_cpus_are_those_of_the_kubelets_state() -> None:
    pool = CpuSet.parse("0-7")
    snapshot = replace(
        H100, kubelet_state=KubeletState(cpu=CpuState(policy="static", default=pool))
    )
    found = row(placed(snapshot, worker(H100, [0]), qos_class="Burstable"))
    assert (found.cpus, found.has_own_cpus, found.verdict) == (pool, False, Alignment.ALIGNED)


@pytest.mark.parametrize("settings", [STATIC, None])
def test_shared_cpus_that_nothing_tells_are_unknown(settings: object) -> None:
    snapshot = replace(H100, kubelet=settings)
    found = row(placed(snapshot, worker(H100, [0])))
    assert (found.cpus, found.verdict) == (None, Alignment.UNKNOWN)
    assert [one.what for one in found.missing] == ["CPUs of ml/job-0 container worker"]


def test_without_numa_nodes_all_is_unknown() -> None:
    found = row(placed(replace(H100, numa_nodes=None), TOGETHER))
    assert (found.verdict, found.gpus) == (Alignment.UNKNOWN, ("GPU0", "GPU1"))


def test_what_is_proven_outranks_what_is_unknown() -> None:
    held = replace(worker(H100, [0], cpus="56-60"), memory=None)
    assert row(placed(H100, held)).verdict is Alignment.MISALIGNED


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_holds_nothing(phase: str) -> None:
    assert measured(placed(H100, TOGETHER, phase=phase)) == ()


def test_a_running_pod_of_which_the_kubelet_told_nothing_is_unknown() -> None:
    silent = Container(name="worker", requests={GPU: 1}, limits={GPU: 1})
    found = row(placed(H100, silent, phase="Running"))
    assert (found.verdict, found.missing[0].what) == (
        Alignment.UNKNOWN,
        "the devices of ml/job-0 container worker",
    )
    assert measured(placed(H100, silent)) == ()  # as a manifest describes it


def test_a_pod_without_gpus_and_hcas_has_no_row() -> None:
    plain = with_devices(worker(H100), "example.com/fuse", "fuse-1")
    assert measured(placed(H100, plain)) == ()
    assert measured(replace(H100, pods=(Pod(namespace="a", name="b"),))) == ()


def test_json_has_every_field_with_null_for_unknown() -> None:
    plain = to_plain(row(placed(H100, worker(H100, [0, 1], cpus="56-57"))))
    assert plain["verdict"] == "misaligned"
    assert plain["apart"][0] == {
        "part": "cpus",
        "observed": "own CPUs 56-57 on NUMA node 1",
        "expected": "on NUMA node 0",
        "causes": ["fragmented"],
    }
    assert (plain["uid"], plain["nvlink"], plain["hca_nodes"]) == (None, "all", [])
    unknown = to_plain(row(placed(replace(H100, numa_nodes=None), TOGETHER)))
    assert (unknown["gpu_nodes"], unknown["missing"]) == (None, ["NUMA nodes"])


def test_more_than_can_be_looked_at_is_unknown_and_takes_no_longer() -> None:
    many = tuple(
        Pod(namespace="ml", name=f"p{number}", containers=(TOGETHER,))
        for number in range(MAX_ROWS + 50)
    )
    rows = measured(replace(H100, pods=many))
    assert (len(rows), rows[-1].pod, rows[-1].verdict) == (
        MAX_ROWS + 1,
        f"p{MAX_ROWS}",
        Alignment.UNKNOWN,
    )
    swarm = with_devices(TOGETHER, GPU, *(f"GPU-{number}" for number in range(MAX_DEVICES + 1)))
    (found,) = measured(placed(H100, swarm))
    assert (found.gpus, found.verdict) == ((), Alignment.UNKNOWN)


def with_claim(container: Container, *positions: int) -> Container:
    """Return *container* with GPUs by claim in place of those of a device plugin."""
    names = tuple(f"device-plugin.nodetopo.io/gpu={H100.gpus[at].uuid}" for at in positions)
    claimed = ClaimedDevice(
        driver="nodetopo.io", pool="n", name="set", namespace="ml", claim="c", cdi_devices=names
    )
    return replace(container, devices=(), claimed=(claimed,))


def test_gpus_by_claim_are_measured_as_those_of_a_device_plugin_are() -> None:
    together = row(placed(H100, with_claim(worker(H100, cpus="0-15", memory={0: GIB}), 0, 1)))
    assert (together.gpus, together.verdict) == (("GPU0", "GPU1"), Alignment.ALIGNED)
    found = row(placed(H100, with_claim(worker(H100, cpus="56-71", memory={1: GIB}), 0, 1)))
    assert found.verdict is Alignment.MISALIGNED
    assert {part.part for part in found.apart} == {Part.CPUS, Part.MEMORY}
    assert {cause.code for cause in found.causes} == {"by-claim"}


def test_a_claim_whose_gpus_are_not_known_is_unknown() -> None:
    claimed = ClaimedDevice(
        driver="gpu.nvidia.com", pool="n", name="gpu-0", namespace="m", claim="c"
    )
    container = replace(worker(H100, cpus="0-15", memory={0: GIB}), claimed=(claimed,), devices=())
    found = row(placed(H100, container))
    assert found.verdict is Alignment.UNKNOWN
    assert any("gpu-0" in missing.what for missing in found.missing)
