"""Whether MIG devices and replicas get the best GPUs: ``python -m tests.bench.shared_proof``.

Irregular machines of up to 16 GPUs, those of :mod:`tests.bench.irregular` and others drawn at
random, under every policy, as MIG devices and as replicas, packed and spread. Each answer is
compared with the best of all sets of GPUs, every one looked at
(:class:`tests.allocation.shared_proof.SharedProof`). Prints the answers that differ; 1 if any does.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

from msgspec.structs import replace

from nodetopo.allocation.rules import Policy, Rules
from nodetopo.model.gpu import Mig
from nodetopo.model.snapshot import Snapshot
from tests.allocation import large_machines
from tests.allocation.shared_proof import SharedProof
from tests.bench.irregular import MACHINES
from tests.bench.machines import half_down


def one_down(random: Random, count: int) -> Snapshot:
    """A machine with NVSwitches of which one GPU lacks a link; of 18 links it hardly counts."""
    return half_down(large_machines.nvswitch(random, count), random.randrange(count), 1)


KINDS = (
    one_down,
    large_machines.crossed,
    large_machines.joined,
    large_machines.gaps,
    large_machines.half_down,
)

OF_A_MACHINE = 25
"""Requests to one machine, resource and policy."""


def machines(random: Random) -> Iterator[tuple[str, Snapshot]]:
    """Yield machines without end, the named ones first."""
    for name, build in MACHINES.items():
        yield name, build()
    for number in count():
        kind, gpus = random.choice(KINDS), random.randint(9, 16)
        yield f"{kind.__name__} {gpus} {number}", kind(random, gpus)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2500, help="at least (default 2500)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    random = Random(options.seed)
    asked = wrong = 0
    for name, snapshot in machines(random):
        policy, per_gpu = random.choice(list(Policy)), random.choice((2, 4, 7, 10))
        is_mig, spread = random.random() < 0.5, random.random() < 0.5
        gpus = tuple(replace(gpu, mig=Mig(is_enabled=is_mig)) for gpu in snapshot.gpus)
        proof = SharedProof(
            replace(snapshot, gpus=gpus), per_gpu, Rules(policy=policy), spread=spread
        )
        for each in proof.differing(random, OF_A_MACHINE):
            wrong += 1
            print(f"{name}, {policy}, {'MIG' if is_mig else 'replicas'}: {each}", flush=True)
        asked += OF_A_MACHINE
        if asked >= options.requests:
            break
    print(f"{asked:,} requests, {wrong} answered otherwise")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
