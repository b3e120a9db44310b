"""The machines of the peers' own tests, put together from the facts that those tests state.

Nothing is added: where a peer's machine has no HCAs neither has ours, and what it does not
tell (sockets, PCIe generation) is that of the product it names.
"""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import combinations
from types import MappingProxyType

from nodetopo.machines import bundled
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from tests.compose.dgx_1v import LINKS
from tests.strategies import Pair, node

_SOCKETS: Mapping[int, int] = MappingProxyType({0: 0, 1: 1})
"""One NUMA node a socket, as on every machine here."""


def _halves(count: int) -> list[int]:
    return [2 * position // count for position in range(count)]


def _classes(
    count: int, known: Mapping[Pair, Closeness], other: Closeness
) -> dict[Pair, Closeness]:
    """Return the class of every pair: *other* where *known* does not say."""
    return {pair: known.get(pair, other) for pair in combinations(range(count), 2)}


def _same_switch(*pairs: Pair) -> dict[Pair, Closeness]:
    return dict.fromkeys(pairs, Closeness.PIX)


def _cube_mesh(
    links: Mapping[Pair, int],
    version: int,
    switches: tuple[Pair, ...],
    *,
    with_hcas: bool = False,
) -> Snapshot:
    """A DGX-1: PHB within a socket, two GPUs on each PCIe switch, and one HCA if asked for."""
    within = {
        pair: Closeness.PHB for half in (range(4), range(4, 8)) for pair in combinations(half, 2)
    }
    return node(
        numa=_halves(8),
        sockets=_SOCKETS,
        links=links,
        nvlink_version=version,
        pcie_generation=3,
        distances=_classes(8, within | _same_switch(*switches), Closeness.SYS),
        hcas=[dict.fromkeys(pair, Closeness.PIX) for pair in switches] if with_hcas else (),
        hca_numa=[pair[0] // 4 for pair in switches] if with_hcas else (),
    )


def dgx_1v() -> Snapshot:
    """go-gpuallocator's NewDGX1VoltaNode: 8 double and 8 single NVLink2, no HCA."""
    return _cube_mesh(LINKS, 2, ((0, 1), (2, 3), (4, 5), (6, 7)))


_PASCAL_SWITCHES: tuple[Pair, ...] = ((0, 2), (1, 3), (4, 6), (5, 7))
_PASCAL_LINKS: Mapping[Pair, int] = MappingProxyType(dict.fromkeys(LINKS, 1))


def dgx_1p() -> Snapshot:
    """go-gpuallocator's NewDGX1PascalNode: the same mesh of single NVLink1, other PCIe pairs."""
    return _cube_mesh(_PASCAL_LINKS, 1, _PASCAL_SWITCHES)


def dgx_1p_hcas() -> Snapshot:
    """The same with the HCA on each PCIe switch that NVIDIA's DGX-1 has (WP-08437-002)."""
    return _cube_mesh(_PASCAL_LINKS, 1, _PASCAL_SWITCHES, with_hcas=True)


def rtx8000_x4() -> Snapshot:
    """go-gpuallocator's New4xRTX8000Node: two NVLink bridges, both from socket to socket."""
    same_cpu: dict[Pair, Closeness] = dict.fromkeys(((0, 1), (2, 3)), Closeness.NODE)
    return node(
        numa=_halves(4),
        sockets=_SOCKETS,
        links={(0, 3): 2, (1, 2): 2},
        nvlink_version=2,
        pcie_generation=3,
        distances=_classes(4, same_cpu, Closeness.SYS),
    )


def mi210_x8() -> Snapshot:
    """ROCm's topo-mi210-xgmi-pcie: two hives of four, XGMI of one weight inside, PCIe across.

    XGMI is written as one NVLink a pair; only that all are equal and beat PCIe matters.
    """
    hives = (range(4), range(4, 8))
    return node(
        numa=_halves(8),
        sockets=_SOCKETS,
        links={pair: 1 for hive in hives for pair in combinations(hive, 2)},
    )


def tkestack_x6() -> Snapshot:
    """Tkestack's matrix of link_test.go: PIX in pairs, PHB among 0 to 3, SOC (now SYS) else."""
    near: dict[Pair, Closeness] = dict.fromkeys(combinations(range(4), 2), Closeness.PHB)
    return node(
        numa=[0, 0, 0, 0, 1, 1],
        sockets=_SOCKETS,
        pcie_generation=3,
        distances=_classes(6, near | _same_switch((0, 1), (2, 3), (4, 5)), Closeness.SYS),
    )


def h800_x8() -> Snapshot:
    """Koordinator's fakeH800DeviceCR: each GPU on a PCIe switch of its own with one HCA.

    NVSwitch with 8 NVLink4 a GPU, as H800 SXM has (400 GB/s both ways, NVIDIA's data sheet).
    """
    return node(
        numa=_halves(8),
        sockets=_SOCKETS,
        switch_links=8,
        pcie_generation=5,
        hcas=[{gpu: Closeness.PIX} for gpu in range(8)],
        hca_numa=_halves(8),
    )


def hami_x3() -> Snapshot:
    """HAMi's pair scores 100, 200 and 150 of device_test.go, as 2, 4 and 3 NVLinks."""
    return node(numa=[0, 0, 0], links={(0, 1): 2, (0, 2): 4, (1, 2): 3}, nvlink_version=3)


def issue_546() -> Snapshot:
    """The matrix of NVIDIA/k8s-device-plugin issue 546: bridged pairs, SYS else."""
    return node(
        numa=_halves(8),
        sockets=_SOCKETS,
        links=dict.fromkeys(((0, 2), (1, 3), (4, 5), (6, 7)), 12),
        nvlink_version=3,
        distances=_classes(8, {}, Closeness.SYS),
    )


def l40s_x3() -> Snapshot:
    """kubernetes/kubernetes issue 136431: three L40S, one on NUMA node 0 and two on node 1."""
    return node(numa=[0, 1, 1], sockets=_SOCKETS)


def dgx_2() -> Snapshot:
    """The bundled DGX-2, for go-gpuallocator's table of its sets."""
    return bundled.machine("dgx-2")


MACHINES: Mapping[str, Callable[[], Snapshot]] = MappingProxyType(
    {
        "dgx-1v": dgx_1v,
        "dgx-1p": dgx_1p,
        "dgx-1p-hcas": dgx_1p_hcas,
        "dgx-2": dgx_2,
        "rtx8000-x4": rtx8000_x4,
        "mi210-x8": mi210_x8,
        "tkestack-x6": tkestack_x6,
        "h800-x8": h800_x8,
        "hami-x3": hami_x3,
        "issue-546": issue_546,
        "l40s-x3": l40s_x3,
    },
)
"""By the name that the vector files use."""


@cache
def machine(name: str) -> Snapshot:
    """Return the machine that the vector files call *name*."""
    return MACHINES[name]()
