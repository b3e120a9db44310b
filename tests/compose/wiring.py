"""NVLinks between GPUs, and what NVML says of pairs of them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from nodetopo.model.gpu import Gpu
from nodetopo.model.nvlink import Closeness, NvLink, P2pStatus, PeerAccess, PeerKind, ReportedPair
from nodetopo.model.pci import PciAddress
from nodetopo.topology.path import closeness

NVLINK_MBPS: Mapping[int, int] = {1: 19531, 2: 25781, 3: 25000, 4: 26562, 5: 53125}
"""Raw rate of one link, one direction, by generation: what `nvidia-smi nvlink -s` prints as
25.781 GB/s and so on, in MB/s."""

HIDDEN: PciAddress | None = None
"""An NVSwitch that the driver hides behind the sentinel address."""

Pair = tuple[int, int]
"""Two GPU indices."""


def mesh(
    gpus: Sequence[Gpu],
    counts: Mapping[Pair, int],
    *,
    version: int,
    links_per_gpu: int = 0,
) -> tuple[NvLink, ...]:
    """Return both ends of direct links: so many between each pair of *counts*.

    A GPU's links are numbered in the order of *counts*; those up to *links_per_gpu* that go
    nowhere are there, and down.
    """
    ends: dict[int, list[Pair]] = defaultdict(list)  # GPU → (peer, link at the peer)
    for (a, b), count in counts.items():
        for _ in range(count):
            at_a, at_b = len(ends[a]), len(ends[b])
            ends[a].append((b, at_b))
            ends[b].append((a, at_a))
    return tuple(
        NvLink(
            gpu=gpu.index,
            link=number,
            is_active=True,
            version=version,
            peer=gpus[peer].pci,
            peer_kind=PeerKind.GPU,
            peer_link=far,
            speed_mbps=NVLINK_MBPS[version],
            recoveries=0,
        )
        if (peer, far) != _NOWHERE
        else NvLink(gpu=gpu.index, link=number, is_active=False, version=version)
        for gpu in gpus
        for number, (peer, far) in enumerate(_filled(ends[gpu.index], links_per_gpu))
    )


_NOWHERE = (-1, -1)


def _filled(ends: Sequence[Pair], links: int) -> Sequence[Pair]:
    return [*ends, *[_NOWHERE] * (links - len(ends))]


def fabric(
    gpus: Iterable[Gpu],
    switches: Sequence[PciAddress | None],
    links_to_each: Sequence[int],
    *,
    version: int,
) -> tuple[NvLink, ...]:
    """Return each GPU's links to *switches*: so many to each, numbered in that order.

    A switch that is :data:`HIDDEN` has no address. What number a link has at the switch no
    source tells.
    """
    far = [
        switch for switch, count in zip(switches, links_to_each, strict=True) for _ in range(count)
    ]
    return tuple(
        NvLink(
            gpu=gpu.index,
            link=number,
            is_active=True,
            version=version,
            peer=switch,
            peer_kind=PeerKind.SWITCH,
            speed_mbps=NVLINK_MBPS[version],
            recoveries=0,
        )
        for gpu in gpus
        for number, switch in enumerate(far)
    )


def down(links: Iterable[NvLink], *ends: Pair) -> tuple[NvLink, ...]:
    """Return *links* with the *ends* (GPU, link) down; a far end not named stays up."""
    return tuple(
        NvLink(gpu=it.gpu, link=it.link, is_active=False, version=it.version)
        if (it.gpu, it.link) in ends
        else it
        for it in links
    )


def pairs(
    gpus: Sequence[Gpu],
    nvlinks: Sequence[NvLink],
    *,
    far: P2pStatus = P2pStatus.OK,
    all_are: Closeness | None = None,
    refused: Mapping[Pair, PeerAccess] | None = None,
) -> tuple[ReportedPair, ...]:
    """Return what NVML says of every pair of *gpus*.

    Args:
        gpus: by index.
        nvlinks: joined by these, a pair has access over NVLink, else over PCIe.
        far: read and write over PCIe where the GPUs share no host bridge.
        all_are: the closeness of every pair, where NVML does not follow the PCI tree.
        refused: (one, other) → the access of one to the other's memory, where it is special.
    """
    joined = _joined(gpus, nvlinks)

    def access(a: Gpu, b: Gpu, distance: Closeness | None) -> PeerAccess:
        special = (refused or {}).get((a.index, b.index))
        if special is not None:
            return special
        if frozenset((a.index, b.index)) in joined:
            return PeerAccess(read=P2pStatus.OK, write=P2pStatus.OK, nvlink=P2pStatus.OK)
        pcie = P2pStatus.OK if distance is not None and distance <= Closeness.PHB else far
        return PeerAccess(read=pcie, write=pcie, nvlink=P2pStatus.NOT_SUPPORTED)

    def pair(a: Gpu, b: Gpu) -> ReportedPair:
        distance = closeness(a, b) if all_are is None else all_are
        return ReportedPair(
            a=a.name,
            b=b.name,
            closeness=distance,
            forward=access(a, b, distance),
            backward=access(b, a, distance),
        )

    return tuple(pair(a, b) for a, b in combinations(gpus, 2))


def _joined(gpus: Sequence[Gpu], nvlinks: Sequence[NvLink]) -> set[frozenset[int]]:
    by_pci = {gpu.pci: gpu.index for gpu in gpus}
    active = [link for link in nvlinks if link.is_active]
    switched = {link.gpu for link in active if link.peer_kind is PeerKind.SWITCH}
    direct = {frozenset((link.gpu, by_pci[link.peer])) for link in active if link.peer in by_pci}
    return direct | {frozenset(pair) for pair in combinations(sorted(switched), 2)}
