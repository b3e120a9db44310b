"""One node's day under each Topology Manager policy: who comes, who leaves, what each gets.

The kubelet decides which GPUs it offers, our objective which of them to take. What the
kubelet does with each job is written down here as data; which GPUs that means is worked out
by brute force, and both must be what the real kubelet recorded.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from msgspec import Struct, field

from nodetopo.machines.bundled import machine
from nodetopo.model.snapshot import Snapshot
from tests.allocation.brute_force import BruteForce

Gpus = tuple[int, ...]
"""Indices, ascending."""
BOTH = (0, 1)
REJECTED = "TopologyAffinityError"


class Offer(Struct, frozen=True, kw_only=True):
    """What the kubelet asked us for one container, and what we answered."""

    available: Gpus
    required: Gpus
    size: int
    answer: Gpus


class Turn(Struct, frozen=True, kw_only=True):
    """What became of one job.

    Attributes:
        rejected: the reason; ``None`` for an admitted pod.
        offers: in the order of the calls, which is that of the containers.
        given: what the kubelet recorded, for each app container.
    """

    job: str
    rejected: str | None = None
    offers: tuple[Offer, ...] = ()
    given: tuple[Gpus, ...] = ()


class Ask(Struct, frozen=True):
    """More free GPUs on *nodes* than needed: the kubelet offers those."""

    nodes: tuple[int, ...]


class Take(Struct, frozen=True):
    """As many free GPUs on *nodes* as needed: the kubelet takes them and does not ask."""

    nodes: tuple[int, ...]


class TopUp(Struct, frozen=True):
    """Fewer: it takes those, then asks for the rest with those as must-include."""

    nodes: tuple[int, ...]


Step = Ask | Take | TopUp
Fate = tuple[Step, ...] | str
"""One step for each container, init containers first; or the reason of the rejection."""


class Job(Struct, frozen=True, kw_only=True):
    """A pod and what the kubelet does with it (1.36 devicemanager, devicesToAllocate).

    Attributes:
        apps, init: GPUs of each container.
        is_pinned: its containers ask for whole CPUs and memory too, which then have their
            say in the Topology Manager; without, GPUs alone decide.
        leavers: jobs that end before this one comes.
        aligned: its fate under every policy but ``none``, under which it is always asked
            for everything.
        but: where its fate is another, by ``policy/scope``, ``policy`` or, but not for
            ``none``, ``scope``; the first found counts.
    """

    name: str
    apps: tuple[int, ...]
    init: tuple[int, ...] = ()
    is_pinned: bool = True
    leavers: tuple[str, ...] = ()
    aligned: Fate
    but: Mapping[str, Fate] = field(default_factory=dict)

    def fate(self, policy: str, scope: str) -> Fate:
        """Return what the kubelet does with it."""
        is_none = policy == "none"
        usual = (Ask(BOTH),) * len(self.init + self.apps) if is_none else self.aligned
        keys = (f"{policy}/{scope}", policy, *(() if is_none else (scope,)))
        return next((self.but[key] for key in keys if key in self.but), usual)


DAY = (
    # The GPU of the init container is offered again, as must-include, to the one after it.
    Job(name="warm", init=(1,), apps=(2,), aligned=(Ask((0,)), Ask((0,)))),
    Job(name="one", apps=(1,), leavers=("warm",), aligned=(Ask((0,)),)),
    Job(name="two", apps=(2,), aligned=(Ask((0,)),)),
    Job(name="last", apps=(1,), aligned=(Take((0,)),)),
    Job(name="three", apps=(3,), aligned=(Ask((1,)),)),
    Job(name="rest", apps=(1,), aligned=(Take((1,)),)),
    # 2 free GPUs on node 0 and 3 on node 1: four fit nowhere.
    Job(
        name="across",
        apps=(4,),
        leavers=("two", "three"),
        aligned=REJECTED,
        but={"best-effort": (TopUp((0,)),)},
    ),
    Job(
        name="team",
        apps=(2, 2),
        leavers=("across",),
        aligned=(Take((0,)), Ask((1,))),
        but={
            "best-effort/pod": (Take((0,)), Ask(BOTH)),
            "pod": REJECTED,
        },
    ),
    # 2 and 4: as one pod they fit node 1, one by one the first takes what node 0 has.
    Job(
        name="crew",
        apps=(2, 2),
        leavers=("team", "rest"),
        aligned=(Take((0,)), Ask((1,))),
        but={
            "pod": (Ask((1,)), Take((1,))),
        },
    ),
    # An empty node: six GPUs are always on two NUMA nodes.
    Job(
        name="wide",
        apps=(6,),
        is_pinned=False,
        leavers=("crew", "one", "last"),
        aligned=(Ask(BOTH),),
        but={"single-numa-node": REJECTED},
    ),
    Job(
        name="pair",
        apps=(3, 3),
        leavers=("wide",),
        aligned=(Ask((0,)), Ask((1,))),
        but={
            "best-effort/pod": (Ask(BOTH), Ask(BOTH)),
            "pod": REJECTED,
        },
    ),
)

SURPLUS = Job(name="surplus", init=(2,), apps=(1,), leavers=("pair",), aligned=(Ask((0,)),))
"""Comes last: of the two GPUs of its init container the kubelet gives on an arbitrary one."""


@cache
def _truth(name: str) -> BruteForce:
    return BruteForce(machine(name))


def best(name: str, available: frozenset[int], required: frozenset[int], size: int) -> Gpus:
    """Return the best set of the machine *name* by trying all."""
    indices = _truth(name).answer(available, required, size)
    assert isinstance(indices, tuple)
    return indices


def expected(name: str, policy: str, scope: str) -> tuple[Turn, ...]:
    """Return how :data:`DAY` must go on the machine *name*."""
    node = _Ledger(name, machine(name))
    return tuple(node.turn(job, job.fate(policy, scope)) for job in DAY)


class _Ledger:
    """Which GPUs are free as the day goes on."""

    def __init__(self, name: str, snapshot: Snapshot) -> None:
        self._name = name
        self._nodes = MappingProxyType({gpu.index: gpu.numa_node for gpu in snapshot.gpus})
        self._free = frozenset(self._nodes)
        self._held: dict[str, frozenset[int]] = {}

    def turn(self, job: Job, fate: Fate) -> Turn:
        for name in job.leavers:
            self._free |= self._held.pop(name)
        self._held[job.name] = frozenset()
        if isinstance(fate, str):
            return Turn(job=job.name, rejected=fate)
        offers: list[Offer] = []
        given: list[Gpus] = []
        reusable: frozenset[int] = frozenset()
        for size, step in zip(job.init + job.apps, fate, strict=True):
            offer, chosen = self._step(step, reusable, size)
            offers += [offer] if offer else []
            given.append(chosen)
            is_init = len(given) <= len(job.init)
            reusable = reusable | set(chosen) if is_init else reusable - set(chosen)
            self._free -= set(chosen)
            self._held[job.name] |= set(chosen)
        return Turn(job=job.name, offers=tuple(offers), given=tuple(given[len(job.init) :]))

    def _step(self, step: Step, reusable: frozenset[int], size: int) -> tuple[Offer | None, Gpus]:
        near = frozenset(gpu for gpu in self._free if self._nodes[gpu] in step.nodes)
        if isinstance(step, Take):
            assert len(near | reusable) == size, "the day is written down wrongly"
            return None, tuple(sorted(near | reusable))
        if isinstance(step, Ask):
            available, required = near | reusable, reusable
        else:
            available, required = self._free | reusable, near | reusable
        answer = best(self._name, available, required, size)
        offer = Offer(
            available=tuple(sorted(available)),
            required=tuple(sorted(required)),
            size=size,
            answer=answer,
        )
        return offer, answer
