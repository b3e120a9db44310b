"""Any request to any machine gets a valid answer: 10,000 random examples by night."""

from collections.abc import Sequence
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.allocation.allocator import Allocator, preferred
from nodetopo.allocation.rules import Model, Policy, Rules
from nodetopo.allocation.shared.allocator import SharedAllocator
from nodetopo.model.snapshot import Snapshot
from tests.allocation.large_machines import TEN
from tests.budget import cases
from tests.strategies import damaged, machines, requests

many = settings(
    deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow], max_examples=1
)
ANSWERS, ORDERS, NAMES = cases(150, 2_000), cases(80, 1_000), cases(60, 500)
JUNK, SHARED = cases(200, 5_500), cases(80, 1_000)
"""Examples of each property; by night 10,000 in all."""

RULES = st.builds(
    Rules, policy=st.sampled_from(Policy), model=st.sampled_from([Model.RING, Model.RELAY])
)


@st.composite
def built(draw: st.DrawFn) -> Snapshot:
    """Machines as they are built, of 2 to 7 GPUs."""
    kind, count = draw(st.sampled_from(TEN)), draw(st.integers(2, 7))
    return kind(Random(draw(st.integers(0, 2**32))), count)


def any_machine() -> st.SearchStrategy[Snapshot]:
    """Drawn field by field, or as they are built; and then damaged."""
    return damaged(st.one_of(machines(max_gpus=6), built(), built()))


@settings(many, max_examples=ANSWERS)
@given(data=st.data(), rules=RULES)
def test_every_answer_is_valid(data: st.DataObject, rules: Rules) -> None:
    snapshot = data.draw(any_machine())
    available, required, size = data.draw(requests(snapshot))
    allocator = Allocator(snapshot, rules)
    answer = allocator.allocate(available=available, required=required, size=size)
    assert len(answer.chosen) == len(set(answer.chosen)) == size
    assert set(required) <= set(answer.chosen) <= set(available)
    assert answer.chosen == allocator.best(available, required, size)
    others = [other.chosen for other in answer.alternatives]
    assert len({answer.chosen, *others}) == 1 + len(others)
    assert all(set(required) <= set(other) <= set(available) for other in others)


@settings(many, max_examples=ORDERS)
@given(data=st.data(), rules=RULES)
def test_the_order_of_the_lists_does_not_matter(data: st.DataObject, rules: Rules) -> None:
    snapshot = data.draw(any_machine())
    available, required, size = data.draw(requests(snapshot))
    shuffled = Allocator(snapshot, rules).allocate(
        available=data.draw(st.permutations(available)) + available[:1],
        required=data.draw(st.permutations(required)) + required[:1],
        size=size,
    )
    straight = Allocator(snapshot, rules).allocate(
        available=sorted(available), required=sorted(required), size=size
    )
    assert shuffled == straight


@settings(many, max_examples=NAMES)
@given(data=st.data(), rules=RULES)
def test_the_names_of_the_gpus_do_not_matter(data: st.DataObject, rules: Rules) -> None:
    snapshot = data.draw(any_machine())
    available, required, size = data.draw(requests(snapshot))
    names = data.draw(st.permutations([f"GPU-{9 - gpu.index}" for gpu in snapshot.gpus]))
    renamed = replace(
        snapshot,
        gpus=tuple(replace(g, uuid=name) for g, name in zip(snapshot.gpus, names, strict=True)),
    )
    new = dict(zip((gpu.id for gpu in snapshot.gpus), names, strict=True))
    answer = Allocator(snapshot, rules).best(available, required, size)
    other = Allocator(renamed, rules).best(
        [new[name] for name in available], [new[name] for name in required], size
    )
    assert other == tuple(new[name] for name in answer)


JUNK_IDS = st.one_of(
    st.sampled_from([*(f"GPU-{n:08x}" for n in range(8)), "", "MIG-1", "GPU0", "GPU-0::3"]),
    st.text(max_size=3),
)
IDS = st.lists(JUNK_IDS, max_size=9)
SIZES = st.one_of(st.integers(-2, 10), st.sampled_from([-(2**31), 2**31 - 1]))


@settings(many, max_examples=JUNK)
@given(
    snapshot=st.one_of(any_machine(), st.none()),
    rules=RULES,
    request=st.tuples(IDS, IDS, SIZES),
    seed=st.integers(0, 99),
)
def test_whatever_the_kubelet_asks_it_gets_a_valid_answer(
    snapshot: Snapshot | None, rules: Rules, request: tuple[list[str], list[str], int], seed: int
) -> None:
    available, required, size = request
    allocator = None if snapshot is None else Allocator(snapshot, rules)
    answer = preferred(allocator, available, required, size)
    check(answer, available, required, size)
    assert _only_needed(snapshot, answer, available, required)
    random = Random(seed)
    turned = random.sample(available, len(available)), random.sample(required, len(required))
    assert preferred(allocator, *turned, size) == answer


@settings(many, max_examples=SHARED)
@given(data=st.data(), rules=RULES, spread=st.booleans(), size=st.integers(-1, 12))
def test_whatever_is_asked_of_shared_gpus_the_answer_is_valid(
    data: st.DataObject, rules: Rules, *, spread: bool, size: int
) -> None:
    snapshot = data.draw(any_machine())
    owner = {f"{g.id}::{n}": g.id for g in snapshot.gpus for n in range(1 + g.index % 3)}
    ids = st.lists(st.one_of(st.sampled_from([*owner]), st.just("A"), st.text(max_size=2)))
    available, required = data.draw(ids), data.draw(ids)
    allocator = SharedAllocator(snapshot, owner, rules, spread=spread)
    answer = preferred(allocator, available, required, size)
    check(answer, available, required, size)
    turned = data.draw(st.permutations(available)), data.draw(st.permutations(required))
    assert preferred(allocator, *turned, size) == answer


def check(
    answer: Sequence[str], available: Sequence[str], required: Sequence[str], size: int
) -> None:
    """As many ids as can be, each offered and once, the required ones first."""
    kept = set(required) & set(available)
    assert len(answer) == len(set(answer)) == max(0, min(size, len(set(available))))
    assert set(answer) <= set(available)
    assert kept <= set(answer) or set(answer) <= kept


def _only_needed(
    snapshot: Snapshot | None,
    answer: Sequence[str],
    available: Sequence[str],
    required: Sequence[str],
) -> bool:
    """Whether no lost or unknown GPU was taken, unless required or all others were too."""
    if snapshot is None:
        return True
    usable = {gpu.id for gpu in snapshot.gpus if not gpu.is_lost}
    doubtful = set(answer) - usable - set(required)
    return not doubtful or usable & set(available) <= set(answer)
