"""The parts of docs/internals/placement.md that the program prints: its tables and outputs."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import fields

from nodetopo.allocation.allocator import Allocator
from nodetopo.allocation.bandwidth import (
    EQUAL_SHARE,
    LARGEST_COUNTED,
    relay_bandwidth,
    ring_bandwidth,
)
from nodetopo.allocation.facts import FULL_WIDTH, NVLINK_MB_S, OLDEST_PCIE, PCIE_GEN4_GB_S, facts
from nodetopo.allocation.remainder import JOB_WEIGHTS
from nodetopo.allocation.rules import Policy, terms_for
from nodetopo.allocation.score import CROSSING_PENALTY, Score
from nodetopo.allocation.terms import LARGEST_ENUMERATED, LARGEST_MESH
from tests.allocation.peer_vectors import Gpus, Step, Vector, vectors
from tests.allocation.vector_machines import machine
from tests.cli.outcome import printed

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "placement.md"

MEANING: Mapping[str, str] = MappingProxyType(
    {
        "degraded": "degraded GPUs of the set; fewer is better",
        "bandwidth_gb_s": "GB/s of the set by its model; sets with 94 % of the best are equal",
        "counts_as_gb_s": "the best set's GB/s, if the set has 94 % of it; otherwise its own",
        "models": "GPU models, by product, memory and compute capability; fewer is better",
        "pair_bandwidth_gb_s": "sum of GB/s over all pairs, for three GPUs or more; more is better",
        "numa_nodes": "NUMA nodes that the set spans; from here on less is better, except for the "
        "remainder",
        "sockets": "CPU sockets that it spans",
        "remainder_value": "weighted GB/s of the remaining GPUs for later jobs; more is better",
        "hca_far": "GPUs without an HCA on their socket",
        "rail_loss": "GPUs that must share their nearest HCAs",
        "hca_distance": "sum of steps to the nearest HCA: PIX 1, PXB 2, PHB 3, NODE 4, SYS 5",
        "hca_nearness": "for one GPU, instead of these three: PIX 5, ... SYS 1, other socket 0",
        "rails_beside": "for one GPU: HCAs nearest to it, and to any GPU of its socket",
        "broken_partitions": "PCIe-switch or Fabric-Manager pairs that the set would break",
        "crowding": "sum over NUMA nodes of the square of the GPUs in use there",
        "shortfall_gb_s": "difference between the counted and the modelled GB/s",
        "reach_gb_s": "GB/s of the set to all GPUs of the node, so that the best-connected GPUs "
        "stay free",
        "order": "the list of GPU numbers; the lower one wins",
    },
)
"""The page's text about each field of :class:`Score`."""

DGX_1V_SETS: tuple[Gpus, ...] = (
    (0, 3),
    (0, 5),
    (0, 1, 2, 3),
    (0, 3, 4, 7),
    (0, 1, 2, 4),
    (0, 1, 4, 5),
    (0, 1, 2, 3, 4, 5, 6, 7),
)


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table of Markdown."""
    lines = [list(header)]
    lines += [["---"] * len(lines[0]), *([str(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def terms() -> str:
    """Return the terms of a score, with their place under each policy."""
    rows = (
        (
            f"`{field.name}`",
            MEANING[field.name],
            *(_place(field.name, policy) for policy in Policy),
        )
        for field in fields(Score)
    )
    return table(("term", "what", *(f"`{policy}`" for policy in Policy)), rows)


def _place(term: str, policy: Policy) -> str:
    order = terms_for(policy, 3)
    if term in order:
        return str(order.index(term) + 1)
    of_one = terms_for(policy, 1)
    return f"{of_one.index(term) + 1} of one GPU's" if term in of_one else "-"


def dgx_1v() -> str:
    """Return the bandwidths of some sets of a DGX-1 by either model."""
    known = facts(machine("dgx-1v"))
    rows = (
        (listed(gpus), ring_bandwidth(known, gpus) / 10, relay_bandwidth(known, gpus) / 10)
        for gpus in DGX_1V_SETS
    )
    return table(("GPUs", "`ring`", "`relay`"), rows)


def constants() -> str:
    """Return the constants of the models, with their sources."""
    nvlink = ", ".join(f"v{version} {rate / 1000:g}" for version, rate in NVLINK_MB_S.items())
    pcie = ", ".join(f"{level.name} {rate}" for level, rate in PCIE_GEN4_GB_S.items())
    weights = ", ".join(f"{job} GPUs {weight}" for job, weight in JOB_WEIGHTS.items())
    return table(
        ("constant", "value", "source"),
        (
            ("payload of one NVLink, GB/s one way", nvlink, "NVIDIA data sheets, P100 to B200"),
            (
                "ring over a PCIe class, generation 4 x16, GB/s",
                f"{pcie}; each generation doubles them",
                "model: 24 is 31.5 less protocol, the rest keeps the order; doubling is PCI-SIG's",
            ),
            (
                "lanes of a GPU if unknown on the whole node",
                FULL_WIDTH,
                "the form factors of data-centre GPUs",
            ),
            (
                "share of a bandwidth that counts as all of it",
                f"{EQUAL_SHARE} %",
                "17 of 18 NVLinks; a driver's line rate against payload",
            ),
            (
                "GPUs of a set whose rings in a mesh are all counted (`LARGEST_COUNTED`)",
                f"{LARGEST_COUNTED}; a larger set counts one ring if any closes",
                "no larger mesh has been built (DGX-1)",
            ),
            ("PCIe generation if unknown", OLDEST_PCIE, "NVIDIA driver release notes"),
            ("weight of later jobs", weights, "sizes: Philly, Helios, PAI; weights: a choice"),
            (
                "less for crossing NUMA nodes, and again sockets",
                f"{CROSSING_PENALTY}/10",
                "a choice, small against any step of bandwidth",
            ),
            (
                "GPUs of an irregular machine, of a mesh, that are enumerated",
                f"{LARGEST_ENUMERATED}, {LARGEST_MESH}",
                "time of a request",
            ),
        ),
    )


def peers() -> str:
    """Return how many recorded answers of each peer differ from ours."""
    rows = []
    for peer, group in groupby(vectors(), key=lambda vector: vector.peer):
        found = list(group)
        steps = [step for vector in found for step in vector.steps]
        numbers = sorted(number for vector in found for number in vector.numbers)
        rows.append(
            (peer, spans(numbers), len(steps), sum(step.ours is not None for step in steps))
        )
    return table(("peer", "of the 86", "requests", "answered otherwise"), rows)


def spans(numbers: list[int]) -> str:
    """Return ascending *numbers* with runs as ``1-4``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def deviations() -> str:
    """Return the answers that differ, with the reason."""
    rows = [
        _row(vector, [step for step in vector.steps if step.ours is not None and step.why == why])
        for vector in vectors()
        for why in dict.fromkeys(step.why for step in vector.steps if step.ours is not None)
    ]
    header = ("#", "machine", "GPUs", "theirs", "ours", "GB/s theirs → ours", "why")
    return table(header, rows)


def _row(vector: Vector, steps: list[Step]) -> tuple[object, ...]:
    number = spans(list(vector.numbers)) or "again"
    sizes = sorted({step.size for step in steps})
    return (
        number,
        f"`{vector.machine}`",
        ", ".join(map(str, sizes)),
        "; ".join(listed(step.peers) for step in steps),
        "; ".join(listed(step.ours or ()) for step in steps),
        "; ".join(dict.fromkeys(_gain(step) for step in steps)),
        steps[0].why,
    )


def _gain(step: Step) -> str:
    if step.size == 1:
        return "-"
    return f"{bandwidth(step.machine, step.peers):g} → {bandwidth(step.machine, step.ours or ()):g}"


def listed(gpus: Gpus) -> str:
    """Return *gpus* as a cell."""
    return " ".join(map(str, gpus)) or "none"


@cache
def allocator(name: str) -> Allocator:
    """Return the allocator of one machine; its tables are worth keeping."""
    return Allocator(machine(name))


def bandwidth(name: str, chosen: Gpus) -> float:
    """Return the modelled bandwidth of *chosen*, GB/s; 0 for no GPU and for one."""
    if not chosen:
        return 0.0
    ids = [machine(name).gpus[index].id for index in chosen]
    return allocator(name).describe(ids).score.bandwidth_gb_s or 0.0


BLOCKS: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "terms": terms,
        "dgx-1v": dgx_1v,
        "constants": constants,
        "peers": peers,
        "deviations": deviations,
    },
)
"""The text between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``."""

COMMAND = re.compile(
    r"^```\n\$ nodetopo (?P<words>.*)\n(?P<output>(?:(?!```).*\n)*)```$", re.MULTILINE
)


def rendered(text: str, run: Callable[[list[str]], str]) -> str:
    """Return the page with every table and every output as the program has them now."""
    for name, block in BLOCKS.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        head, _, rest = text.partition(begin)
        text = head + begin + block() + end + rest.partition(end)[2]
    return COMMAND.sub(
        lambda found: f"```\n$ nodetopo {found['words']}\n{run(found['words'].split())}```",
        text,
    )


def made() -> Mapping[Path, str]:
    """Return the page."""
    return {PAGE: rendered(PAGE.read_text("utf-8"), lambda words: printed(*words))}


def owned() -> Iterable[Path]:
    """Return the file of this generator."""
    return (PAGE,)
