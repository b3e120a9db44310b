"""The answers for shared GPUs are the best by definition, whichever search finds them."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.allocation.facts import facts
from nodetopo.allocation.rules import Model, Policy, Rules
from nodetopo.allocation.score import Score
from nodetopo.allocation.shared.allocator import SharedAllocator
from nodetopo.allocation.shared.counts import Pool, distributed, packed
from nodetopo.allocation.shared.search import TableSets, TreeSets, search_for
from nodetopo.allocation.shared.terms import Leaves, SharedScore, shared_terms
from nodetopo.allocation.terms import Terms
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Mig
from nodetopo.model.snapshot import Snapshot
from tests.allocation.shared_brute_force import Device, SharedBruteForce
from tests.allocation.shared_proof import GpuSets, SharedProof
from tests.bench.irregular import MACHINES as IRREGULAR
from tests.bench.machines import half_down
from tests.budget import cases
from tests.strategies import machines, node

MACHINES = ("dgx-1v", "dgx-h100", "dgx-a100", "ac922", "l40s-pcie-4", "rtxpro6000-pcie-8")
RULES = [Rules(policy=policy) for policy in Policy] + [Rules(model=Model.RELAY)]
DEVICES = 9
"""Devices of a brute-force case, all GPUs together; 126 sets at most."""


class Case:
    """A resource on some GPUs of a machine, and both ways to answer for it."""

    def __init__(self, snapshot: Snapshot, random: Random, rules: Rules, *, spread: bool) -> None:
        self.random = random
        self.totals = self._totals(len(snapshot.gpus))
        self.ids = {
            (gpu, number): f"{snapshot.gpus[gpu].id}::{number}"
            for gpu, total in enumerate(self.totals)
            for number in range(total)
        }
        devices = {name: snapshot.gpus[gpu].id for (gpu, _), name in self.ids.items()}
        self.ours = SharedAllocator(snapshot, devices, rules, spread=spread)
        own = [gpu for gpu, total in zip(snapshot.gpus, self.totals, strict=True) if total]
        self.brute = SharedBruteForce(
            snapshot=snapshot,
            totals=self.totals,
            rules=rules,
            spread=spread,
            is_mig=all(gpu.is_divided for gpu in own),
        )

    def _totals(self, gpus: int) -> tuple[int, ...]:
        totals = [0] * gpus
        for _ in range(self.random.randint(1, DEVICES)):
            totals[self.random.randrange(gpus)] += 1
        return tuple(totals)

    def request(self) -> tuple[list[Device], list[Device], int]:
        """Draw available and required devices, and a size, that can be met."""
        devices = list(self.ids)
        available = self.random.sample(devices, self.random.randint(1, len(devices)))
        size = self.random.randint(1, len(available))
        required = self.random.sample(available, self.random.choice((0, 0, size // 2)))
        return available, required, size

    def check(self) -> None:
        """Compare one answer."""
        available, required, size = self.request()
        names = [self.ids[device] for device in available]
        kept = [self.ids[device] for device in required]
        answer = self.ours.allocate(available=names, required=kept, size=size)
        best, *others = self.brute.best(available, required, size)
        at = {name: device for device, name in self.ids.items()}
        assert {at[name] for name in answer.chosen} == best
        assert self.ours.best(names, kept, size) == answer.chosen
        assert_same_terms(answer.score, self.brute, best, available)
        if not others:
            assert answer.alternatives == ()
            return
        second = self.brute.terms({at[name] for name in answer.alternatives[0].chosen}, available)
        truth = self.brute.terms(others[0], available)
        assert {**second, "order": None} == {**truth, "order": None}


def assert_same_terms(
    score: Score, brute: SharedBruteForce, chosen: frozenset[Device], available: list[Device]
) -> None:
    assert isinstance(score, SharedScore)
    terms = {**brute.terms(chosen, available), "order": None}
    plain = score.to_plain()
    plain["bandwidth_gb_s"] = round(-10 * (score.counts_as_gb_s or 0))  # what is compared
    assert {name: plain[name] for name in terms} == {**terms, "order": plain["order"]}


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: f"{rules.policy}-{rules.model}")
@pytest.mark.parametrize("name", MACHINES)
def test_answers_equal_brute_force_on_real_machines(name: str, rules: Rules) -> None:
    random, snapshot = Random(f"{name} {rules.policy}"), machine(name)
    for _ in range(cases(3, 12)):
        case = Case(snapshot, random, rules, spread=random.random() < 0.5)
        for _ in range(4):
            case.check()


@pytest.mark.parametrize("policy", Policy)
def test_answers_equal_brute_force_on_mig_instances(policy: Policy) -> None:
    plain, random = machine("dgx-a100"), Random(policy)
    for _ in range(cases(5, 15)):
        spread = random.random() < 0.5
        case = Case(divided(plain), random, Rules(policy=policy), spread=spread)
        for _ in range(4):
            case.check()


@settings(max_examples=cases(80, 500), deadline=None)
@given(
    snapshot=machines(max_gpus=5),
    seed=st.integers(0, 2**32),
    rules=st.sampled_from(RULES),
    spread=st.booleans(),
)
def test_answers_equal_brute_force_on_machines_with_gaps(
    snapshot: Snapshot, seed: int, rules: Rules, *, spread: bool
) -> None:
    case = Case(snapshot, Random(seed), rules, spread=spread)
    for _ in range(3):
        case.check()


@pytest.mark.parametrize("name", ["dgx-2", "dgx-h100", "rtxpro6000-pcie-8", "gb200-nvl72"])
@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("spread", [True, False], ids=["spread", "not"])
def test_the_tree_and_the_tables_rank_alike(name: str, policy: Policy, *, spread: bool) -> None:
    random, rules = Random(name), Rules(policy=policy)
    snapshot = machine(name)
    terms, order = Terms(facts(snapshot), rules), shared_terms(policy, spread=spread)
    assert terms.tree is not None
    for is_isolated in (False, True):
        leaves = Leaves(terms=terms, order=order, is_isolated=is_isolated)
        tree, table = TreeSets(leaves, terms.tree, 160), TableSets(leaves)
        truth = GpuSets(snapshot, rules, spread=leaves.is_spread, is_mig=is_isolated)
        for _ in range(cases(4, 15)):
            pool = drawn_pool(random, len(terms.facts.indices))
            choices = [distributed(pool)] if leaves.is_spread else list(packed(pool))[:2]
            for choice in choices:
                best = truth.ranked(choice, 4)
                assert tree.ranked(choice, 4) == best
                assert table.ranked(choice, 4) == best


@pytest.mark.parametrize("is_mig", [True, False], ids=["mig", "replicas"])
@pytest.mark.parametrize("spread", [True, False], ids=["spread", "not"])
@pytest.mark.parametrize("name", IRREGULAR)
def test_answers_are_the_best_on_irregular_machines(
    name: str, *, spread: bool, is_mig: bool
) -> None:
    random, snapshot = Random(name), divided(IRREGULAR[name](), is_mig=is_mig)
    for policy in random.sample(list(Policy), cases(1, 5)):
        proof = SharedProof(
            snapshot, random.choice((4, 7, 10)), Rules(policy=policy), spread=spread
        )
        assert proof.differing(random, cases(4, 40)) == []


@pytest.mark.parametrize("spread", [True, False], ids=["spread", "not"])
@pytest.mark.parametrize(
    "name", [name for name in IRREGULAR if name not in ("DGX-1V", "mesh of 10")]
)
def test_no_set_of_gpus_is_looked_at_by_itself(
    name: str, monkeypatch: pytest.MonkeyPatch, *, spread: bool
) -> None:
    alone: list[int] = []
    monkeypatch.setattr(Leaves, "figures", lambda _, mask: alone.append(mask))
    monkeypatch.setattr(Terms, "bandwidth", lambda _, mask: alone.append(mask))
    proof = SharedProof(IRREGULAR[name](), 4, spread=spread)
    own = [each for names in proof.ids for each in names]
    for size in range(1, len(own) + 1):
        assert len(proof.ours.best(own, (), size)) == size
    assert alone == []


def test_a_set_with_94_percent_of_the_best_bandwidth_of_the_request_is_equal_in_it() -> None:
    snapshot = half_down(machine("dgx-h100"), 2, 1)
    ids = [gpu.id for gpu in snapshot.gpus]
    own = {f"{name}::{n}": name for name in ids for n in range(4)}
    ours = SharedAllocator(snapshot, own, spread=True)
    free = [f"{ids[gpu]}::0" for gpu in (2, 3, 4)]  # 3 and 4 have all links, on two sockets
    answer = ours.allocate(available=free, size=2)
    assert answer.chosen == (free[0], free[1])
    assert (answer.score.bandwidth_gb_s, answer.score.counts_as_gb_s) == (425, 450)
    assert answer.alternatives[0].lost_at == "numa_nodes"
    assert ours.describe(answer.chosen, free).is_optimal
    assert not ours.describe(answer.alternatives[0].chosen, free).is_optimal
    only = ours.allocate(available=[free[0], free[2]], size=2)
    assert (only.score.bandwidth_gb_s, only.score.counts_as_gb_s) == (425, 425)


def divided(snapshot: Snapshot, *, is_mig: bool = True) -> Snapshot:
    """The machine with all GPUs in MIG mode."""
    gpus = tuple(replace(gpu, mig=Mig(is_enabled=is_mig)) for gpu in snapshot.gpus)
    return replace(snapshot, gpus=gpus)


def drawn_pool(random: Random, gpus: int) -> Pool:
    """A request to a machine of which at most ten GPUs have room."""
    most = random.choice((5, 7, 10))
    total = tuple(random.choice((most, most, random.randint(0, most))) for _ in range(gpus))
    is_open = random.sample(range(gpus), min(gpus, 10))
    free = tuple(random.randint(0, n) if g in is_open else 0 for g, n in enumerate(total))
    free = free if any(free) else (1, *free[1:])
    total = tuple(map(max, total, free))
    required = tuple(min(n, 1) if random.random() < 0.1 else 0 for n in free)
    return Pool(
        used=tuple(n - m for n, m in zip(total, free, strict=True)),
        free=free,
        required=required,
        size=random.randint(max(1, sum(required)), sum(free)),
    )


def test_a_large_irregular_machine_gets_a_set_with_room_that_is_not_called_exact() -> None:
    bridges = {(0, 10): 4, (9, 19): 4, (10, 11): 4}
    snapshot = node(numa=[0] * 10 + [1] * 10, links=bridges)
    random, terms = Random(3), Terms(facts(snapshot))
    leaves = Leaves(terms=terms, order=shared_terms(Policy.BEST, spread=False), is_isolated=False)
    search = search_for(leaves, 200)
    truth = GpuSets(snapshot, terms.rules, spread=False, is_mig=False)
    assert not search.is_exact
    agreed = 0
    for _ in range(50):
        choice = next(packed(drawn_pool(random, 20)))
        (chosen,) = search.ranked(choice, 1)
        assert chosen.bit_count() == choice.count
        assert chosen & choice.base == choice.base
        assert choice.room(chosen) >= 0
        agreed += [chosen] == truth.ranked(choice, 1)
    assert agreed >= 45
