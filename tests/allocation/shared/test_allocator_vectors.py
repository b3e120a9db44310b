"""What other device plugins answer for shared GPUs: see vectors/shared.yaml."""

from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodetopo.allocation.rules import Policy, Rules
from nodetopo.allocation.shared.allocator import SharedAllocator
from nodetopo.errors import InputError
from tests.strategies import node

FILE = Path(__file__).parents[1] / "vectors" / "shared.yaml"
VECTORS: list[dict[str, Any]] = yaml.safe_load(FILE.read_text("utf-8"))["vectors"]


class Machine:
    """The machine of a vector."""

    def __init__(self, vector: dict[str, Any]) -> None:
        numa, mesh = vector["machine"]["numa"], vector["machine"].get("mesh", 0)
        pairs = combinations(range(len(numa)), 2) if mesh else ()
        self.snapshot = node(numa=numa, links=dict.fromkeys(pairs, mesh))
        self.ids = [
            [f"{gpu.id}::{number}" for number in range(total)]
            for gpu, total in zip(self.snapshot.gpus, vector["devices"], strict=True)
        ]
        gpu_of = zip(self.snapshot.gpus, self.ids, strict=True)
        self.allocator = SharedAllocator(
            self.snapshot,
            {name: gpu.id for gpu, names in gpu_of for name in names},
            Rules(policy=Policy(vector["policy"])),
            spread=True,
        )

    def free(self, vector: dict[str, Any]) -> list[list[str]]:
        """The free devices by GPU."""
        return [
            names[len(names) - count :]
            for names, count in zip(self.ids, vector["free"], strict=True)
        ]

    def answer(self, vector: dict[str, Any]) -> list[int]:
        """How many devices of each GPU we hand out."""
        free = self.free(vector)
        required = vector.get("required", [0] * len(free))
        answer = self.allocator.allocate(
            available=[name for names in free for name in names],
            required=[name for names, n in zip(free, required, strict=True) for name in names[:n]],
            size=vector["size"],
        )
        return self.counted(answer.chosen)

    def counted(self, names: tuple[str, ...]) -> list[int]:
        """Devices by GPU."""
        by_gpu = Counter(name.split("::")[0] for name in names)
        return [by_gpu[gpu.id] for gpu in self.snapshot.gpus]

    def score(self, vector: dict[str, Any], counts: list[int]) -> Any:
        """What a way to take devices is worth."""
        free = self.free(vector)
        chosen = [name for names, n in zip(free, counts, strict=True) for name in names[:n]]
        return self.allocator.describe(chosen, [n for names in free for n in names]).score


def _name(vector: dict[str, Any]) -> str:
    return "-".join(map(str, vector["numbers"])) or "unnumbered"


@pytest.mark.parametrize("vector", VECTORS, ids=_name)
def test_a_peers_request_for_shared_gpus_gets_the_answer_on_file(vector: dict[str, Any]) -> None:
    wanted = vector.get("ours", vector["expected"])
    if not wanted:
        with pytest.raises(InputError, match="only"):
            Machine(vector).answer(vector)
    else:
        assert Machine(vector).answer(vector) == wanted


DEVIATIONS = [vector for vector in VECTORS if "ours" in vector]


@pytest.mark.parametrize("vector", DEVIATIONS, ids=_name)
def test_a_deviation_has_a_reason_and_costs_no_bandwidth(vector: dict[str, Any]) -> None:
    one = Machine(vector)
    ours, theirs = one.score(vector, vector["ours"]), one.score(vector, vector["expected"])
    assert vector["why"]
    assert (ours.gpus, ours.numa_nodes) == (theirs.gpus, theirs.numa_nodes)
    assert ours.bandwidth_gb_s >= theirs.bandwidth_gb_s
    assert ours.idle_gpus < theirs.idle_gpus


def test_the_vectors_of_shared_gpus_are_all_there_once() -> None:
    numbers = [number for vector in VECTORS for number in vector["numbers"]]
    assert numbers == [*range(58, 65), *range(73, 85)]
