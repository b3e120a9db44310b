"""Compare placement with the best set by definition: ``python -m tests.bench.placement_proof``.

The truth is `tests/allocation/brute_force.py`, written from docs/internals/placement.md, which
looks at every set. Machines are the bundled and captured ones and random ones; of each also one
that is worn (NVLinks down one by one), and ones where sets or pairs were measured with noise.
Policies and models take turns; a third of the requests have required GPUs, a quarter degraded ones,
and of a fifth it is known when GPUs in use get free.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, product
from random import Random
from types import MappingProxyType

from msgspec.structs import replace

from nodetopo.allocation.measured import Measured
from nodetopo.allocation.rules import Model, Policy, Rules
from nodetopo.machines.bundled import machine, names
from nodetopo.model.nvlink import NvLink
from nodetopo.model.snapshot import Snapshot
from tests.allocation.brute_proof import (
    Proof,
    Request,
    random_requests,
    with_degraded,
)
from tests.allocation.large_machines import TEN
from tests.captured import CAPTURED

REQUESTS = 20_000
"""What the command asks for."""

LARGEST = 8
"""GPUs of a known machine whose sets are all looked at; random ones have up to 10."""

RANKED_EVERY = 10
"""Of so many answers one has its next best sets compared as well."""

NOISES = (0.01, 0.02, 0.04)
"""Standard deviations of measurements, as a share."""

Case = tuple[Snapshot, Measured | None]


def worn(snapshot: Snapshot, random: Random) -> Snapshot:
    """Return the machine with one to three NVLinks down at each of one to four GPUs."""
    count = random.randint(1, min(4, len(snapshot.gpus)))
    lost = {gpu.index: random.randint(1, 3) for gpu in random.sample(snapshot.gpus, count)}

    def after(link: NvLink) -> NvLink:
        return replace(link, is_active=False) if link.link < lost.get(link.gpu, 0) else link

    return replace(snapshot, nvlinks=tuple(map(after, snapshot.nvlinks or ())))


def measured_sets(snapshot: Snapshot, random: Random) -> Measured:
    """Return figures for most sets of some sizes, equal but for noise."""
    indices = [gpu.index for gpu in snapshot.gpus]
    sizes = [size for size in (2, 3, 4, 5, 8) if size <= len(indices) and random.random() < 0.7]
    noise, share = random.choice(NOISES), random.choice((0.3, 0.9, 1))
    return Measured(
        sets={
            frozenset(gpus): round(base * random.gauss(1, noise))
            for size in sizes
            for base in [random.randint(200, 4800)]
            for gpus in combinations(indices, size)
            if random.random() < share
        }
    )


def measured_pairs(snapshot: Snapshot, random: Random) -> Measured:
    """Return figures for most pairs, of one or two kinds, equal but for noise."""
    indices = [gpu.index for gpu in snapshot.gpus]
    noise, share = random.choice(NOISES), random.choice((0.5, 1))
    bases = [random.randint(100, 4500) for _ in range(random.randint(1, 2))]
    return Measured(
        pairs={
            frozenset(pair): max(1, round(random.choice(bases) * random.gauss(1, noise)))
            for pair in combinations(indices, 2)
            if random.random() < share
        }
    )


VARIANTS: Mapping[str, Callable[[Snapshot, Random], Case]] = MappingProxyType(
    {
        "as it is": lambda snapshot, _: (snapshot, None),
        "worn": lambda snapshot, random: (worn(snapshot, random), None),
        "measured sets": lambda snapshot, random: (snapshot, measured_sets(snapshot, random)),
        "measured pairs": lambda snapshot, random: (snapshot, measured_pairs(snapshot, random)),
        "worn, measured sets": lambda snapshot, random: (
            worn(snapshot, random),
            measured_sets(snapshot, random),
        ),
    }
)


def machines(random: Random) -> Iterator[tuple[str, Snapshot]]:
    """Yield the known machines, then random ones without end."""
    known = {name: machine(name) for name in names()}
    known |= {captured.shape: captured.snapshot for captured in CAPTURED}
    for name, snapshot in sorted(known.items()):
        if 1 < len(snapshot.gpus) <= LARGEST:
            yield name, snapshot
    while True:
        kind = random.choice(TEN)
        count = random.randint(4, 10)
        yield f"{kind.__name__} of {count}", kind(random, count)


def asked(snapshot: Snapshot, random: Random, number: int) -> Iterator[Request]:
    """Yield requests to a machine, some with degraded GPUs."""
    indices = [gpu.index for gpu in snapshot.gpus if not gpu.is_lost]
    for request in random_requests(indices, random, number):
        requests = [request]
        if random.random() < 0.25:
            requests = with_degraded(requests, indices, random)
        yield from requests


def wrong(seed: int, requests: int, each: int) -> Iterator[tuple[str, int, list[str]]]:
    """Yield for every machine, variant and rules the requests made and the answers that differ.

    It ends with *requests* made, *each* to one choice of rules on one machine.
    """
    random = Random(seed)
    rules = [Rules(policy=policy, model=model) for policy, model in product(Policy, Model)]
    rules = [rule for rule in rules if rule.model is not Model.TABLE]
    made = 0
    for name, known in machines(random):
        for variant, changed in VARIANTS.items():
            if made >= requests:
                return
            snapshot, measured = changed(known, random)
            rule = replace(random.choice(rules), measured=measured)
            proof = Proof(snapshot, rule)
            if not proof.is_exact:
                continue
            number = min(each, requests - made)
            found = proof.wrong(asked(snapshot, random, number), ranked_every=RANKED_EVERY)
            made += number
            where = f"{name}, {variant}, {rule.policy}, {rule.model}"
            yield where, number, [f"{where}: {one}" for one in found]


def main() -> int:
    """Print what differs and how many requests were made; 1 if any differs."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.placement_proof", description=__doc__
    )
    parser.add_argument("--requests", type=int, default=REQUESTS, help=f"default: {REQUESTS}")
    parser.add_argument("--seed", type=int, default=1, help="of machines and requests")
    parser.add_argument("--each", type=int, default=40, help="requests to a machine (default: 40)")
    args = parser.parse_args()
    made = cases = 0
    differing = []
    for where, number, found in wrong(args.seed, args.requests, args.each):
        made, cases = made + number, cases + 1
        differing += found
        for one in found:
            print(one)
        print(f"{made} {where}", file=sys.stderr, flush=True)
    print(f"{made} requests to {cases} machines, {len(differing)} mismatches")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
