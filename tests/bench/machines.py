"""The machines of the placement and trace benches, by name; built when asked for.

Four come with the package. The others are put together here, from what is known of boxes
that differ in the one thing that matters: which pairs have NVLinks, and what PCIe and NUMA
look like between them. They name no more than placement reads.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import combinations
from random import Random
from types import MappingProxyType

from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.nvlink import Closeness, NvLink
from nodetopo.model.snapshot import Snapshot
from tests.compose.dgx_1v import LINKS
from tests.strategies import Pair, node

TWO_SOCKETS = (0, 0, 0, 0, 1, 1, 1, 1)
FOUR_NODES = (0, 0, 1, 1, 2, 2, 3, 3)
SOCKETS = MappingProxyType({0: 0, 1: 0, 2: 1, 3: 1})
"""Sockets of four NUMA nodes, two on each."""

DISTANCES = (Closeness.PIX, Closeness.PXB, Closeness.PHB, Closeness.NODE, Closeness.SYS)


def bench_machine(name: str) -> Snapshot:
    """Return the machine *name* of :data:`MACHINES`."""
    return MACHINES[name]()


def half_down(snapshot: Snapshot, gpu: int, links: int) -> Snapshot:
    """Return the machine with the first *links* NVLinks of *gpu* down at its own end only."""
    changed: list[NvLink] = []
    for link in snapshot.nvlinks or ():
        is_down = link.gpu == gpu and sum(one.gpu == gpu for one in changed) < links
        changed.append(replace(link, is_active=False) if is_down else link)
    return replace(snapshot, nvlinks=tuple(changed))


def dead(snapshot: Snapshot, gpu: int) -> Snapshot:
    """Return the machine with all NVLinks of *gpu* down, at both ends."""

    def after(link: NvLink) -> NvLink:
        return replace(link, is_active=False) if link.gpu == gpu else link

    return replace(snapshot, nvlinks=tuple(map(after, snapshot.nvlinks or ())))


def odd_box(*, is_even: bool = False) -> Snapshot:
    """Return a PCIe box of 16: ten GPUs on one socket, six on the other, switches of 1 to 4.

    Two bridges join GPUs of different switches, one of them over the sockets. Unless *is_even*,
    some cards have half the lanes and one is of the generation before.
    """
    numa = [0] * 10 + [1] * 6
    switches = ((0, 1, 2, 3), (4, 5, 6), (7, 8), (9,), (10, 11, 12), (13, 14), (15,))
    shared = [pair for switch in switches for pair in combinations(switch, 2)]
    near = {
        (a, b): Closeness.NODE if numa[a] == numa[b] else Closeness.SYS
        for a, b in combinations(range(16), 2)
    }
    snapshot = node(
        numa=numa,
        links={(0, 4): 4, (1, 5): 4, (8, 13): 4},
        distances=near | dict.fromkeys(shared, Closeness.PIX),
        sockets={0: 0, 1: 1},
        hcas=[
            {gpu: Closeness.PIX if gpu in switch else Closeness.SYS for gpu in range(16)}
            for switch in switches[::2]
        ],
        hca_numa=(0, 0, 1, 1),
    )
    if is_even:
        return snapshot
    lanes = {2: 8, 6: 8, 11: 8, 14: 4}
    gpus = tuple(
        replace(
            gpu,
            pcie=replace(
                gpu.pcie,
                max_generation=3 if gpu.index == 9 else 4,
                width=lanes.get(gpu.index, 16),
                max_width=16,
            ),
        )
        if gpu.pcie
        else gpu
        for gpu in snapshot.gpus
    )
    return replace(snapshot, gpus=gpus)


def random_box() -> Snapshot:
    """Return a PCIe box of 16 whose every distance is drawn at random; the same in every run.

    No machine is like it: no two GPUs are alike, and no group nests. Four NUMA nodes, eight
    bridges and six HCAs.
    """
    random, gpus = Random("random box"), range(16)
    order = random.sample(gpus, len(gpus))
    pairs = zip(order[::2], order[1::2], strict=True)
    return node(
        numa=sorted(random.randrange(4) for _ in gpus),
        links={(min(pair), max(pair)): 4 for pair in pairs},
        distances={pair: random.choice(DISTANCES) for pair in combinations(gpus, 2)},
        sockets=SOCKETS,
        hcas=[{gpu: random.choice(DISTANCES) for gpu in gpus} for _ in range(6)],
        hca_numa=[random.randrange(4) for _ in range(6)],
    )


@cache
def _bundled(name: str) -> Snapshot:
    return machine(name)


@cache
def dgx_1p() -> Snapshot:
    """Return a DGX-1 with P100: the cube mesh of the DGX-1V with one NVLink for each edge.

    GPUs 0 and 2, 1 and 3, 4 and 6, 5 and 7 share a PCIe switch and its NIC, as in the Pascal
    machine of go-gpuallocator's own tests; PCIe generation 3.
    """
    switches = ((0, 2), (1, 3), (4, 6), (5, 7))
    near = _near(TWO_SOCKETS, Closeness.PHB) | dict.fromkeys(switches, Closeness.PIX)
    return node(
        numa=TWO_SOCKETS,
        links=dict.fromkeys(LINKS, 1),
        distances=near,
        sockets={0: 0, 1: 1},
        hcas=[
            {gpu: _to_nic(gpu, switch, near) for gpu in range(len(TWO_SOCKETS))}
            for switch in switches
        ],
        hca_numa=(0, 0, 1, 1),
        nvlink_version=1,
        pcie_generation=3,
    )


def _to_nic(gpu: int, switch: Pair, near: Mapping[Pair, Closeness]) -> Closeness:
    """Return the distance of a GPU to the NIC of *switch*: that to the GPUs there."""
    others = [near[min(gpu, other), max(gpu, other)] for other in switch if other != gpu]
    return min(others)


@cache
def issue_546() -> Snapshot:
    """Return the box of NVIDIA/k8s-device-plugin issue 546.

    Eight cards, NV12 bridges on 0-2, 1-3, 4-5, 6-7, all pairs SYS, NUMA nodes 0-3 and 4-7.
    """
    return node(
        numa=TWO_SOCKETS,
        links=dict.fromkeys(((0, 2), (1, 3), (4, 5), (6, 7)), 12),
        distances=dict.fromkeys(combinations(range(8), 2), Closeness.SYS),
        sockets={0: 0, 1: 1},
        nvlink_version=3,
    )


@cache
def bridged_4numa() -> Snapshot:
    """Return a PCIe box of four NUMA nodes whose NV4 bridges join cards of different nodes."""
    return node(
        numa=FOUR_NODES,
        links=dict.fromkeys(((0, 2), (1, 3), (4, 6), (5, 7)), 4),
        distances=_near(FOUR_NODES, Closeness.PHB),
        sockets=SOCKETS,
        nvlink_version=3,
    )


@cache
def pcie_4numa() -> Snapshot:
    """Return a PCIe box of four NUMA nodes, two cards on the host bridge of each, no NVLink."""
    return node(
        numa=FOUR_NODES,
        distances=_near(FOUR_NODES, Closeness.PHB),
        sockets=SOCKETS,
    )


@cache
def pcie_10() -> Snapshot:
    """Return a PCIe box of ten cards: on each socket a switch with three and one with two."""
    numa = (0, 0, 0, 0, 0, 1, 1, 1, 1, 1)
    switches = ((0, 1, 2), (3, 4), (5, 6, 7), (8, 9))
    shared = [pair for switch in switches for pair in combinations(switch, 2)]
    return node(
        numa=numa,
        distances=_near(numa, Closeness.NODE) | dict.fromkeys(shared, Closeness.PIX),
        sockets={0: 0, 1: 1},
    )


def _near(numa: tuple[int, ...], same_node: Closeness) -> dict[Pair, Closeness]:
    """Return the distance of every pair: *same_node* on one NUMA node, SYS across."""
    return {
        (a, b): same_node if numa[a] == numa[b] else Closeness.SYS
        for a, b in combinations(range(len(numa)), 2)
    }


MACHINES: Mapping[str, Callable[[], Snapshot]] = MappingProxyType(
    {
        "dgx-1v": partial(_bundled, "dgx-1v"),
        "dgx-1p": dgx_1p,
        "bridged-4numa": bridged_4numa,
        "issue-546": issue_546,
        "pcie-10": pcie_10,
        "pcie-4numa": pcie_4numa,
        "dgx-a100": partial(_bundled, "dgx-a100"),
        "hgx-h100": partial(_bundled, "dgx-h100"),
        "dgx-2": partial(_bundled, "dgx-2"),
    },
)
