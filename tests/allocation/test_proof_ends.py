"""With expected ends of jobs the answer is the best set by definition, too."""

from random import Random

import pytest

from nodetopo.allocation.allocator import Allocator, preferred
from nodetopo.allocation.rules import DEFAULT, Policy, Rules
from nodetopo.machines.bundled import machine
from nodetopo.model.snapshot import Snapshot
from tests.allocation.brute_proof import Proof, random_requests, with_ends
from tests.allocation.large_machines import REGULAR, Kind
from tests.allocation.test_proof_large import universe
from tests.bench.machines import bench_machine, odd_box
from tests.budget import cases

REQUESTS = cases(250, 3_000)
"""To each machine; one in ten has its next best sets compared as well."""

MACHINES = ("dgx-1v", "bridged-4numa", "issue-546", "pcie-4numa", "pcie-10", "dgx-a100")


def wrong(name: str, rules: Rules) -> list[str]:
    """Requests with random free GPUs, of the others most with an end."""
    snapshot, random = bench_machine(name), Random(f"{name} {rules.policy}")
    indices = [gpu.index for gpu in snapshot.gpus]
    requests = with_ends(random_requests(indices, random, REQUESTS), indices, random)
    return Proof(snapshot, rules).wrong(requests, ranked_every=10)


@pytest.mark.parametrize("name", MACHINES)
def test_the_best_set_counts_what_gets_free(name: str) -> None:
    assert wrong(name, DEFAULT) == []


@pytest.mark.parametrize("policy", [Policy.PACKED, Policy.DISTRIBUTED])
@pytest.mark.parametrize("name", ["dgx-1v", "bridged-4numa", "dgx-a100"])
def test_it_does_under_policies_that_rank_the_remainder_elsewhere(
    name: str, policy: Policy
) -> None:
    assert wrong(name, Rules(policy=policy)) == []


@pytest.mark.parametrize("count", [32, 72])
@pytest.mark.parametrize("kind", REGULAR, ids=lambda kind: kind.__name__)
def test_it_does_on_large_machines_whose_tables_are_not_kept(kind: Kind, count: int) -> None:
    random = Random(f"ends {kind.__name__} {count}")
    snapshot = kind(random, count)
    proof = Proof(snapshot)
    assert proof.is_exact
    for _ in range(cases(4, 20)):
        gpus = universe(snapshot, random)
        proof.look_at(gpus)
        requests = with_ends(random_requests(gpus, random, 10), gpus, random)
        assert proof.wrong(requests, ranked_every=5) == []


def test_it_does_on_irregular_machines_of_sixteen() -> None:
    snapshot, random = odd_box(), Random("ends")
    proof = Proof(snapshot)
    assert proof.allocator._engine.name == "table"
    for _ in range(cases(4, 20)):
        gpus = universe(snapshot, random)
        proof.look_at(gpus)
        requests = with_ends(random_requests(gpus, random, 10), gpus, random)
        assert proof.wrong(requests, ranked_every=5) == []


def test_both_engines_are_proven() -> None:
    engines = {Proof(bench_machine(name)).allocator._engine.name for name in MACHINES}
    assert engines == {"tree", "table"}


@pytest.fixture(scope="module")
def h100() -> Snapshot:
    """Two sockets of four GPUs; all sets have the same bandwidth."""
    return machine("dgx-h100")


def test_a_job_of_one_gpu_goes_where_its_neighbours_stay_in_use(h100: Snapshot) -> None:
    ids = [gpu.id for gpu in h100.gpus]
    allocator = Allocator(h100)
    available = [ids[0], ids[4]]
    soon = {ids[1]: 60.0, ids[2]: 60.0, ids[3]: 60.0}
    plain = allocator.allocate(available=available, size=1)
    hinted = allocator.allocate(available=available, size=1, ends=soon)
    assert (plain.indices, hinted.indices) == ((0,), (4,))
    assert hinted.is_optimal
    assert [other.lost_at for other in hinted.alternatives] == ["remainder_value"]


def test_unknown_ends_and_those_of_other_gpus_change_nothing(h100: Snapshot) -> None:
    ids = [gpu.id for gpu in h100.gpus]
    allocator = Allocator(h100)
    available = [ids[0], ids[4], ids[5]]
    useless = {ids[1]: None, ids[2]: None, ids[4]: 5.0, "GPU-elsewhere": 1.0}
    assert allocator.allocate(available=available, size=1, ends=useless) == allocator.allocate(
        available=available, size=1
    )


def test_only_the_order_of_the_ends_counts(h100: Snapshot) -> None:
    ids = [gpu.id for gpu in h100.gpus]
    allocator = Allocator(h100)
    near = {ids[1]: 1.0, ids[2]: 2.0, ids[5]: 3.0}
    far = {ids[1]: -50.0, ids[2]: 1e6, ids[5]: 1e9}
    available = [ids[0], ids[4]]
    assert allocator.allocate(available=available, size=1, ends=near) == allocator.allocate(
        available=available, size=1, ends=far
    )


def test_a_degraded_gpu_is_not_awaited(h100: Snapshot) -> None:
    ids = [gpu.id for gpu in h100.gpus]
    allocator = Allocator(h100)
    available, soon = [ids[0], ids[4]], {ids[1]: 60.0}
    assert preferred(allocator, available, (), 1, ends=soon) == (ids[4],)
    assert preferred(allocator, available, (), 1, degraded=[ids[1]], ends=soon) == (ids[0],)
    answer = allocator.allocate(available=available, size=1, degraded=[ids[1]], ends=soon)
    assert answer.indices == (0,)
