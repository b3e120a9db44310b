"""How good the sets of other rules are, measured by our objective against the best set."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from random import Random
from types import MappingProxyType

from msgspec import Struct

from nodetopo.allocation.allocator import Allocator
from nodetopo.allocation.facts import facts
from nodetopo.allocation.score import Score
from nodetopo.allocation.terms import Terms
from nodetopo.model.snapshot import Snapshot
from tests.bench.peer import Answer, Peer, Request
from tests.bench.placement_states import State, mask_of
from tests.bench.traces.rivals import RIVALS, kubelet_order

KUBELET = "go-gpuallocator, list in the kubelet's order"
SORTED = "go-gpuallocator, list sorted"
BASELINES: Mapping[str, str] = MappingProxyType(
    {
        "hami": "HAMi's rule",
        "first-fit": "first-fit",
        "kubelet": "the kubelet alone",
        "random": "random",
    }
)


class Quality(Struct, frozen=True, kw_only=True):
    """One rule on one machine.

    Attributes:
        several: answered requests for two GPUs or more.
        below: of those, how many got less than the best bandwidth.
        of_best: mean of the bandwidth, as a share of the best.
        spread: of those, how many got the best bandwidth, but over more NUMA nodes or sockets.
        single: answered requests for one GPU.
        breaking: of those, how many leave less to later jobs than they could.
        crashes: answers with a device that does not exist, and panics.
    """

    rule: str
    several: int
    below: int
    of_best: float
    spread: int
    single: int
    breaking: int
    crashes: int


def qualities(
    snapshot: Snapshot, peer: Peer, asked: Sequence[State], random: Random
) -> Iterator[Quality]:
    """Yield the quality of every rule over the states *asked*."""
    terms = Terms(facts(snapshot))
    best = [
        terms.score(mask, state.mask)
        for mask, state in zip(_ours(snapshot, asked), asked, strict=True)
    ]
    for rule, answers in _answers(snapshot, peer, asked, random):
        scores = [
            None if mask is None else terms.score(mask, state.mask)
            for mask, state in zip(answers, asked, strict=True)
        ]
        yield quality(rule, best, scores)


def quality(rule: str, best: Sequence[Score], found: Sequence[Score | None]) -> Quality:
    """Compare the scores that a rule *found* with the *best*; ``None`` is a crash."""
    pairs = [(one, top) for one, top in zip(found, best, strict=True) if one is not None]
    several = [(one, top) for one, top in pairs if top.bandwidth_gb_s is not None]
    shares = list(starmap(_share, several))
    single = [(one, top) for one, top in pairs if top.bandwidth_gb_s is None]
    return Quality(
        rule=rule,
        several=len(several),
        below=sum(share < 1 for share in shares),
        of_best=sum(shares) / len(shares),
        spread=sum(
            one.bandwidth_gb_s == top.bandwidth_gb_s
            and (one.numa_nodes > top.numa_nodes or one.sockets > top.sockets)
            for one, top in several
        ),
        single=len(single),
        breaking=sum(one.remainder_value < top.remainder_value for one, top in single),
        crashes=len(found) - len(pairs),
    )


def _share(one: Score, top: Score) -> float:
    assert one.bandwidth_gb_s is not None
    assert top.bandwidth_gb_s is not None
    return one.bandwidth_gb_s / top.bandwidth_gb_s


def _ours(snapshot: Snapshot, asked: Sequence[State]) -> Iterator[int]:
    allocator = Allocator(snapshot)
    ids = [gpu.id for gpu in snapshot.gpus]
    position = {name: place for place, name in enumerate(ids)}
    for state in asked:
        chosen = allocator.best([ids[place] for place in state.free], (), state.size)
        yield mask_of([position[name] for name in chosen])


def _answers(
    snapshot: Snapshot, peer: Peer, asked: Sequence[State], random: Random
) -> Iterator[tuple[str, list[int | None]]]:
    """Yield the name of each rule and its answers, as masks; ``None`` is a crash."""
    order = kubelet_order(snapshot, random)
    orders = {
        KUBELET: [order(state.free) for state in asked],
        SORTED: [state.free for state in asked],
    }
    for rule, lists in orders.items():
        requests = [Request(free, state.size) for free, state in zip(lists, asked, strict=True)]
        yield rule, [_mask(answer) for answer in peer.ask_all(requests)]
    for name, rule in BASELINES.items():
        choose = RIVALS[name](snapshot, random)
        yield rule, [mask_of(choose(state.free, state.size)) for state in asked]


def _mask(answer: Answer) -> int | None:
    if answer.is_crash:
        return None
    return mask_of([position for position in answer.chosen if position is not None])
