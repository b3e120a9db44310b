from dataclasses import replace

import pytest

from agent.allocation.naming import resolve, usable
from agent.allocation.policy import allocate
from agent.errors import InputError
from agent.machines.bundled import machine
from agent.model.snapshot import Snapshot
from tests.strategies import node

H100 = machine("dgx-h100")
CUBE = machine("dgx-1v")


def reasons(snapshot: Snapshot, free: tuple[int, ...], size: int) -> tuple[str, ...]:
    """The reasons for an answer to a request by position."""
    return allocate(snapshot, available=[snapshot.gpus[i].id for i in free], size=size).reasons


def test_an_nvswitch_placement_is_explained_by_links_node_remainder_and_hcas() -> None:
    assert reasons(H100, tuple(range(8)), 4) == (
        "ring bandwidth 450.0 GB/s: 18 NVLink4 to every GPU of the set",
        "1 NUMA node (node 0)",
        "leaves 4 GPUs together on NUMA node 1",
        "nearest HCAs: mlx5_0, mlx5_1, mlx5_2, mlx5_3 (PXB)",
        "next best GPU4 GPU5 GPU6 GPU7: equal in every term, the lower GPU numbers win",
    )


def test_the_next_best_set_is_named_with_the_term_it_lost_at() -> None:
    assert reasons(H100, (0, 1, 4), 2)[-1] == (
        "next best GPU0 GPU4: loses on NUMA nodes, 2 against 1"
    )


def test_a_mesh_placement_is_explained_by_its_rings() -> None:
    assert reasons(CUBE, (0, 1, 2, 3), 4) == (
        "ring bandwidth 100.0 GB/s: 2 rings that share no link over NVLink2, used both ways",
        "1 NUMA node (node 0)",
        "leaves no GPU",
        "nearest HCAs: mlx5_0, mlx5_1 (PIX; 2 of the GPUs must share one)",
        "no other set is possible",
    )


def test_a_pcie_placement_is_explained_by_its_worst_class() -> None:
    assert reasons(machine("l40s-pcie-4"), (0, 2, 3), 3) == (
        "ring bandwidth 14.0 GB/s: the ring crosses PCIe, generation 4, SYS at worst",
        "2 NUMA nodes (nodes 0 and 1)",
        "leaves no GPU",
        "no other set is possible",
    )


def test_a_single_gpu_is_explained_by_what_it_leaves() -> None:
    assert reasons(H100, (0, 1, 4), 1) == (
        "GPU4: one GPU has no ring, what it leaves decides",
        "1 NUMA node (node 1)",
        "leaves 2 GPUs together on NUMA node 0",
        "nearest HCAs: mlx5_4 (PXB)",
        "next best GPU0: loses on value of the GPUs left, 360.0 against 450.0",
    )


def test_what_is_unknown_is_said() -> None:
    assert reasons(node(numa=[None, None, 0, 1], distances={}), (0, 1), 2) == (
        (
            "ring bandwidth 14.0 GB/s: over PCIe, a distance within the set is unknown and"
            " taken as SYS"
        ),
        "NUMA node not known for every GPU of the set",
        "leaves no GPU",
        "no other set is possible",
    )


def test_three_alternatives_are_named_best_first() -> None:
    answer = allocate(CUBE, available=[gpu.id for gpu in CUBE.gpus], size=2)
    assert [(other.indices, other.lost_at) for other in answer.alternatives] == [
        ((1, 2), "order"),
        ((4, 7), "order"),
        ((5, 6), "order"),
    ]


def test_the_plain_answer_has_the_documented_shape() -> None:
    plain = allocate(CUBE, available=[gpu.id for gpu in CUBE.gpus], size=8).to_plain()
    assert {**plain, "score": None, "reasons": None} == {
        "chosen": [gpu.id for gpu in CUBE.gpus],
        "indices": list(range(8)),
        "score": None,
        "reasons": None,
        "optimal": True,
        "alternatives": [],
    }


@pytest.mark.parametrize(
    ("available", "required", "size", "message"),
    [
        ([0, 1], [], 0, "cannot allocate 0 GPUs — ask for at least 1"),
        ([0, 1], [], 3, "cannot allocate 3 GPUs: only 2 are available — ask for at most 2"),
        ([], [], 1, "cannot allocate 1 GPUs: only 0 are available — free a GPU first"),
        (
            [0, 1],
            [0, 1],
            1,
            "cannot allocate 1 GPUs that contain 2 required ones — ask for at least 2",
        ),
        (
            [0],
            [1],
            1,
            (
                "required but not available: GPU-00000001"
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
        allocate(
            node(numa=[0, 0]),
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
