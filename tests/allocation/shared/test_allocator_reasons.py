"""Why these devices of shared GPUs: the sentences, and what is said of sets of others."""

from collections.abc import Sequence

from msgspec.structs import replace

from nodetopo.allocation.rules import Rules
from nodetopo.allocation.shared.allocator import SharedAllocator
from nodetopo.allocation.shared.terms import SharedScore
from nodetopo.model.gpu import Mig
from tests.allocation.shared_requests import BEST, H100, PACKED, free, replicas


def reasons(counts: Sequence[int], size: int, rules: Rules = BEST) -> tuple[str, ...]:
    allocator = SharedAllocator(H100, replicas(H100, 4), rules, spread=True)
    return allocator.allocate(available=free(H100, 4, counts), size=size).reasons


def test_spread_replicas_are_explained() -> None:
    assert reasons((4, 4, 4, 4, 2, 2, 2, 2), 2) == (
        "2 replicas, one on each of GPU0 and GPU1",
        "nothing else is in use on them",
        "450 GB/s by ring, 18 generation-4 NVLinks each way through NVSwitch",
        "all on NUMA node 0",
        "one HCA each: mlx5_0, mlx5_1, through several PCIe switches (PXB)",
        "next best GPU0 GPU2: equal in every term, the lower GPU numbers win",
        "leaves 3 on GPU0, 3 on GPU1 free, and 2 GPUs idle",
    )


def test_replicas_beside_others_are_explained_by_what_they_join() -> None:
    assert reasons((2, 2, 1, 0, 0, 0, 0, 0), 2)[1] == (
        "in use before: 2 on GPU0, 2 on GPU1; no other GPU with room has fewer"
    )
    assert reasons((2, 2, 1, 0, 0, 0, 0, 0), 2)[5] == (
        "next best GPU0 GPU2: loses on devices in use that it joins, 5 against 4"
    )


def test_packed_replicas_are_explained_by_what_stays_whole() -> None:
    assert reasons((4, 4, 4, 4, 4, 4, 4, 3), 5, PACKED) == (
        "5 replicas: 4 on GPU4; 1 on GPU7",
        "in use before: 1 on GPU7",
        "450 GB/s by ring, 18 generation-4 NVLinks each way through NVSwitch",
        "all on NUMA node 1",
        "one HCA each: mlx5_4, mlx5_7, through several PCIe switches (PXB)",
        "next best GPU5 GPU7: equal in every term, the lower GPU numbers win",
        "leaves 2 on GPU7 free, and 6 GPUs idle",
    )
    assert reasons((1, 2, 3, 0, 0, 0, 0, 0), 1, PACKED)[:2] == (
        "1 replica on GPU0",
        "in use before: 3 on GPU0; no other GPU with room has more",
    )


def test_mig_instances_are_explained_without_bandwidth() -> None:
    gpus = tuple(replace(gpu, mig=Mig(is_enabled=True)) for gpu in H100.gpus)
    snapshot = replace(H100, gpus=gpus)
    devices = {f"MIG-{gpu.index}-{n}": gpu.id for gpu in gpus for n in range(2)}
    answer = SharedAllocator(snapshot, devices, spread=False).allocate(
        available=list(devices), size=4
    )
    assert answer.reasons == (
        "4 MIG instances, 2 on each of GPU0 and GPU1",
        "nothing else is in use on them",
        "MIG instances do not reach other GPUs, so bandwidth does not count",
        "all on NUMA node 0",
        "one HCA each: mlx5_0, mlx5_1, through several PCIe switches (PXB)",
        "next best GPU0 GPU2: equal in every term, the lower GPU numbers win",
        "leaves nothing free on the GPUs it touches, and 6 GPUs idle",
    )
    assert answer.score.bandwidth_gb_s is None


def test_a_set_that_somebody_else_chose_is_described_beside_the_better_one() -> None:
    allocator = SharedAllocator(H100, replicas(H100, 4), BEST, spread=True)
    names = free(H100, 4, (4, 4, 2, 0, 0, 0, 0, 0))
    doubled, best = [names[0], names[1]], [names[0], names[4]]
    found = allocator.describe(doubled, names)
    assert found.chosen == tuple(doubled)
    assert not found.is_optimal
    assert found.reasons[-2] == (
        "better is GPU0 GPU1: wins on devices in use that it joins, 0 against 1"
    )
    assert allocator.describe(best, names).is_optimal
    assert allocator.describe(best, names).alternatives[0].indices == (0,)


def test_without_the_available_devices_nothing_is_said_of_what_else_was_free() -> None:
    allocator = SharedAllocator(H100, replicas(H100, 4), BEST, spread=True)
    found = allocator.describe(free(H100, 4, (1, 1, 0, 0, 0, 0, 0, 0)))
    assert found.reasons == (
        "2 replicas, one on each of GPU0 and GPU1",
        "450 GB/s by ring, 18 generation-4 NVLinks each way through NVSwitch",
        "all on NUMA node 0",
        "one HCA each: mlx5_0, mlx5_1, through several PCIe switches (PXB)",
    )
    assert (found.alternatives, found.is_optimal) == ((), False)
    assert isinstance(found.score, SharedScore)
    assert (found.score.load, found.score.idle_gpus, found.score.left) == (None, None, None)


def test_the_plain_answer_has_the_terms_of_sharing() -> None:
    names = replicas(H100, 4)
    plain = SharedAllocator(H100, names, BEST, spread=True).allocate(available=names, size=9)
    score = plain.to_plain()["score"]
    assert {key: score[key] for key in ("gpus", "doubled", "load", "idle_gpus", "left")} == {
        "gpus": 8,
        "doubled": 1,
        "load": 1,
        "idle_gpus": 8,
        "left": 23,
    }
