from itertools import combinations

import pytest
from msgspec.structs import replace

from nodetopo.allocation.allocator import Allocator
from nodetopo.allocation.requests import resolve, usable
from nodetopo.allocation.rules import Policy, Rules
from nodetopo.errors import InputError
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Gpu
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from tests.strategies import node

H100 = machine("dgx-h100")
CUBE = machine("dgx-1v")


def test_three_alternatives_are_named_best_first() -> None:
    answer = Allocator(CUBE).allocate(available=[gpu.id for gpu in CUBE.gpus], size=2)
    assert [(other.indices, other.lost_at) for other in answer.alternatives] == [
        ((1, 2), "order"),
        ((4, 7), "order"),
        ((5, 6), "order"),
    ]


def test_the_plain_answer_has_the_documented_shape() -> None:
    plain = Allocator(CUBE).allocate(available=[gpu.id for gpu in CUBE.gpus], size=8).to_plain()
    assert {**plain, "score": None, "reasons": None} == {
        "chosen": [gpu.id for gpu in CUBE.gpus],
        "indices": list(range(8)),
        "score": None,
        "reasons": None,
        "optimal": True,
        "policy": "best",
        "model": "ring",
        "engine": "table",
        "alternatives": [],
    }


@pytest.mark.parametrize(
    ("available", "required", "size", "message"),
    [
        ([0, 1], [], 0, "cannot allocate 0 GPUs — ask for at least 1"),
        ([0, 1], [], 3, "cannot allocate 3 GPUs: only 2 are available — ask for at most 2"),
        ([], [], 1, "cannot allocate 1 GPU: none is available — free a GPU first"),
        (
            [0, 1],
            [0, 1],
            1,
            "cannot allocate 1 GPU that contains 2 required — ask for at least 2",
        ),
        (
            [0],
            [1],
            1,
            (
                "required but not available: GPU1"
                " — name it among the available GPUs, or do not require it"
            ),
        ),
        (
            [0, 7],
            [],
            1,
            "unknown GPU 'GPU-00000007' — did you mean 'GPU-00000001'? this node has GPU0 to GPU1",
        ),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_with_a_cure(
    available: list[int],
    required: list[int],
    size: int,
    message: str,
) -> None:
    ids = [f"GPU-{index:08x}" for index in range(8)]
    with pytest.raises(InputError) as caught:
        Allocator(node(numa=[0, 0])).allocate(
            available=[ids[i] for i in available],
            required=[ids[i] for i in required],
            size=size,
        )
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text",
    [
        "3",
        "GPU3",
        " gpu3 ",
        H100.gpus[3].id,
        H100.gpus[3].id.upper(),
        str(H100.gpus[3].pci),
        f"0000{H100.gpus[3].pci}".upper(),
        str(H100.gpus[3].pci).removeprefix("0000:"),
    ],
)
def test_a_gpu_is_found_by_any_of_its_names(text: str) -> None:
    assert resolve(H100, text) is H100.gpus[3]


def test_an_unknown_gpu_is_answered_with_a_near_name() -> None:
    with pytest.raises(InputError) as caught:
        resolve(H100, "GPU9")
    assert str(caught.value) == (
        "unknown GPU 'GPU9' — did you mean 'GPU7'? this node has GPU0 to GPU7"
    )


def test_a_node_without_gpus_says_so() -> None:
    with pytest.raises(InputError) as caught:
        resolve(Snapshot(), "0")
    assert str(caught.value) == "unknown GPU '0' — this node has no GPUs"


def test_lost_gpus_are_not_usable() -> None:
    plain = node(numa=[0, 0])
    snapshot = replace(plain, gpus=(replace(plain.gpus[0], is_lost=True), plain.gpus[1]))
    assert usable(snapshot) == ("GPU-00000001",)


def test_a_lost_gpu_is_refused_by_name() -> None:
    gpus = tuple(replace(gpu, is_lost=gpu.index == 2) for gpu in H100.gpus)
    with pytest.raises(InputError, match=r"^GPU2 is lost"):
        Allocator(replace(H100, gpus=gpus)).allocate(available=[gpu.id for gpu in gpus], size=1)


def test_what_is_required_but_not_available_is_called_by_its_name() -> None:
    ids = [gpu.id for gpu in H100.gpus]
    with pytest.raises(InputError, match="not available: GPU5"):
        Allocator(H100).allocate(available=ids[:2], required=[ids[5]], size=1)


@pytest.mark.parametrize(
    ("gpus", "state"),
    [((), "this node has none"), ((replace(H100.gpus[0], is_lost=True),), "all are lost")],
)
def test_a_node_without_usable_gpus_says_so(gpus: tuple[Gpu, ...], state: str) -> None:
    with pytest.raises(InputError, match=f"^no GPU to allocate: {state}"):
        Allocator(replace(H100, gpus=gpus)).allocate(available=[gpu.id for gpu in gpus], size=1)


def test_the_worth_of_a_set_does_not_depend_on_what_is_free_or_lost() -> None:
    allocator, ids = Allocator(H100), [gpu.id for gpu in H100.gpus]
    near, across = allocator.worth(ids[:2]), allocator.worth((ids[0], ids[4]))
    assert near < across
    assert near == allocator.worth(ids[6:])
    assert near == (-4500, 1, 1, 1)  # bandwidth, models, NUMA nodes, sockets
    assert allocator.worth(ids[:3]) == (-4500, 1, -13500, 1, 1)  # of the pairs, too


@pytest.mark.parametrize("policy", [Policy.BEST, Policy.NUMA_FIRST, Policy.NIC_REQUIRED])
def test_the_worth_of_a_set_begins_with_what_the_policy_compares_first(policy: Policy) -> None:
    allocator, ids = Allocator(H100, Rules(policy=policy)), [gpu.id for gpu in H100.gpus]
    best = allocator.allocate(available=ids, size=2).chosen
    assert allocator.worth(best) == min(allocator.worth(it) for it in combinations(ids, 2))


def test_of_sets_as_wide_one_of_a_single_model_is_taken() -> None:
    """A job on a mixed set has the smaller memory and the slower GPU everywhere."""
    flat = node(numa=[0, 0, 0, 0], sockets={0: 0})
    models = ("NVIDIA A100 80GB PCIe", "NVIDIA L4", "NVIDIA L4", "NVIDIA A100 80GB PCIe")
    gpus = tuple(replace(g, product=name) for g, name in zip(flat.gpus, models, strict=True))
    mixed = Allocator(replace(flat, gpus=gpus))

    def best(*free: int) -> tuple[int, ...]:
        return mixed.allocate(available=[gpus[gpu].id for gpu in free], size=2).indices

    assert [best(0, 1, 2, 3), best(0, 1, 2), best(0, 1, 3), best(0, 1)] == [
        (0, 3),
        (1, 2),
        (0, 3),
        (0, 1),
    ]


@pytest.mark.parametrize(("hcas", "gpu"), [((0, 0, 0, 1), 2), ((0, 1, 1, 1), 0), ((0, 1), 0)])
def test_a_request_for_one_gpu_leaves_the_socket_with_more_hcas_whole(
    hcas: tuple[int, ...], gpu: int
) -> None:
    def near(numa: int) -> dict[int, Closeness]:
        return {gpu: Closeness.NODE if gpu // 2 == numa else Closeness.SYS for gpu in range(4)}

    board = node(
        numa=[0, 0, 1, 1], sockets={0: 0, 1: 1}, hcas=[near(n) for n in hcas], hca_numa=list(hcas)
    )
    answer = Allocator(board).allocate(available=[gpu.id for gpu in board.gpus], size=1)
    assert answer.indices == (gpu,)
