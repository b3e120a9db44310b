"""Machines and requests for property tests, and a builder of small machines by hand."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import combinations
from random import Random
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import assume
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from nodetopo.model.gpu import Gpu, Mig
from nodetopo.model.hca import Hca, HcaPort
from nodetopo.model.limits import MAX_INT64, MAX_NUMBER, Count, Range
from nodetopo.model.numa import CpuSet, CpuTopology, NumaNode, Socket
from nodetopo.model.nvlink import Closeness, NvLink, PeerKind, ReportedPair
from nodetopo.model.pci import PciAddress, PcieLink
from nodetopo.model.snapshot import Snapshot

Pair = tuple[int, int]
NONE: Mapping[Pair, int] = MappingProxyType({})
DISTANCES = (Closeness.PIX, Closeness.PXB, Closeness.PHB, Closeness.NODE, Closeness.SYS)


def node(
    *,
    numa: Sequence[int | None],
    links: Mapping[Pair, int] = NONE,
    switch_links: int = 0,
    distances: Mapping[Pair, Closeness | None] | None = None,
    sockets: Mapping[int, int] | None = None,
    hcas: Sequence[Mapping[int, Closeness]] = (),
    hca_numa: Sequence[int | None] = (),
    mig: Collection[int] = (),
    nvlink_version: int | None = 4,
    pcie_generation: int | None = 4,
) -> Snapshot:
    """Build a machine with one GPU for each entry of *numa*.

    Args:
        numa: the NUMA node of each GPU.
        links: NVLinks between two GPUs, the lower index first.
        switch_links: NVLinks of every GPU to NVSwitches.
        distances: PCIe distances; without them NODE on one NUMA node and SYS across.
        sockets: the socket of each NUMA node; ``None`` leaves the CPUs unknown.
        hcas: for each HCA its distance to the GPUs.
        hca_numa: the NUMA node of the first HCAs; the others have none.
        mig: the GPUs in MIG mode.
        nvlink_version, pcie_generation: of all links; ``None`` is unknown.
    """
    gpus = tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{index:08x}",
            pci=_address(index),
            numa_node=place,
            pcie=PcieLink(max_generation=pcie_generation),
            mig=Mig(is_enabled=index in mig),
        )
        for index, place in enumerate(numa)
    )
    if distances is None:
        distances = {pair: _distance(numa, pair) for pair in combinations(range(len(numa)), 2)}
    nodes = sorted({place for place in numa if place is not None})
    return Snapshot(
        gpus=gpus,
        nvlinks=_nvlinks(len(numa), links, switch_links, nvlink_version),
        pairs=(*_gpu_pairs(distances), *_nic_pairs(hcas)),
        numa_nodes=tuple(NumaNode(id=place, cpus=_cpus(place)) for place in nodes),
        cpu=None if sockets is None else _cpu(nodes, sockets),
        hcas=tuple(
            Hca(name=f"mlx5_{position}", numa_node=place)
            for position, place in enumerate((*hca_numa, *[None] * len(hcas))[: len(hcas)])
        ),
    )


def _address(index: int) -> PciAddress:
    return PciAddress(0, 16 + index, 0, 0)


def _distance(numa: Sequence[int | None], pair: Pair) -> Closeness | None:
    a, b = numa[pair[0]], numa[pair[1]]
    if a is None or b is None:
        return None
    return Closeness.NODE if a == b else Closeness.SYS


def _cpus(place: int) -> CpuSet:
    return CpuSet.of((2 * place, 2 * place + 1))


def _cpu(nodes: Sequence[int], sockets: Mapping[int, int]) -> CpuTopology:
    packages: dict[int, CpuSet] = {}
    for place in nodes:
        socket = sockets[place]
        packages[socket] = packages.get(socket, CpuSet()) | _cpus(place)
    return CpuTopology(
        online=CpuSet.of(cpu for cpus in packages.values() for cpu in cpus),
        sockets=tuple(Socket(id=number, cpus=packages[number]) for number in sorted(packages)),
    )


def _nvlinks(
    count: int,
    links: Mapping[Pair, int],
    switch_links: int,
    version: int | None,
) -> tuple[NvLink, ...]:
    ends: list[tuple[int, PeerKind, PciAddress | None]] = [
        (a, PeerKind.GPU, _address(b))
        for pair, number in links.items()
        for a, b in (pair, pair[::-1])
        for _ in range(number)
    ]
    ends += [(gpu, PeerKind.SWITCH, None) for gpu in range(count) for _ in range(switch_links)]
    ends.sort(key=lambda end: end[0])
    return tuple(
        NvLink(gpu=gpu, link=link, is_active=True, version=version, peer=peer, peer_kind=kind)
        for link, (gpu, kind, peer) in enumerate(ends)
    )


def _gpu_pairs(distances: Mapping[Pair, Closeness | None]) -> list[ReportedPair]:
    return [
        ReportedPair(a=f"GPU{a}", b=f"GPU{b}", closeness=distance)
        for (a, b), distance in distances.items()
    ]


def _nic_pairs(hcas: Sequence[Mapping[int, Closeness]]) -> list[ReportedPair]:
    return [
        ReportedPair(a=f"GPU{gpu}", b=f"NIC{position}", closeness=distance)
        for position, distances in enumerate(hcas)
        for gpu, distance in distances.items()
    ]


_NUMA = st.sampled_from((0, 1, 2, None))


@st.composite
def machines(draw: st.DrawFn, max_gpus: int = 8) -> Snapshot:
    """Machines of every shape, with gaps in what is known of them."""
    count = draw(st.integers(1, max_gpus))
    shape = draw(st.sampled_from(("nvswitch", "mesh", "pairs", "pcie")))
    pairs = list(combinations(range(count), 2))
    links: dict[Pair, int] = {}
    if shape == "mesh" and pairs:
        chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=2 * count))
        links = {pair: draw(st.integers(1, 2)) for pair in chosen}
    if shape == "pairs":
        links = {
            (gpu, gpu + 1): draw(st.sampled_from((4, 4, 17, 18))) for gpu in range(0, count - 1, 2)
        }
    distance = st.one_of(st.none(), st.sampled_from(DISTANCES))
    sockets = {0: 0, 1: 0, 2: draw(st.integers(0, 1))}
    nics = draw(st.lists(_nic_distances(count), max_size=4))
    whole = node(
        numa=draw(st.lists(_NUMA, min_size=count, max_size=count)),
        links=links,
        switch_links=draw(st.integers(1, 18)) if shape == "nvswitch" else 0,
        distances=None if draw(st.booleans()) else {pair: draw(distance) for pair in pairs},
        sockets=draw(st.sampled_from((None, sockets))),
        hcas=nics,
        hca_numa=draw(st.lists(_NUMA, min_size=len(nics), max_size=len(nics))),
        mig=draw(st.sets(st.integers(0, count - 1), max_size=1)),
        nvlink_version=draw(st.sampled_from((None, 2, 4, 5))),
        pcie_generation=draw(st.sampled_from((None, 3, 4, 5))),
    )
    return draw(_worn(whole)) if draw(st.booleans()) else whole


@st.composite
def _worn(draw: st.DrawFn, whole: Snapshot) -> Snapshot:
    """*whole* with PCIe links that lost lanes, NVLinks that are down, and ports in any state."""
    lanes, states = st.sampled_from((None, 4, 8, 16)), st.sampled_from((None, "DOWN", "ACTIVE"))
    gpus = [
        replace(gpu, pcie=replace(gpu.pcie or PcieLink(), width=draw(lanes))) for gpu in whole.gpus
    ]
    hcas = [
        replace(hca, ports=(HcaPort(number=1, state=draw(states)),)) for hca in whole.hcas or ()
    ]
    links = list(whole.nvlinks or ())
    down = draw(st.sets(st.integers(0, len(links) - 1), max_size=2)) if links else set()
    links = [replace(k, is_active=n not in down and k.is_active) for n, k in enumerate(links)]
    return replace(whole, gpus=tuple(gpus), hcas=tuple(hcas), nvlinks=tuple(links))


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[Snapshot]) -> Snapshot:
    """Machines of *whole* with some of: lost GPUs, links down, silent or gone at one end."""
    snapshot = draw(whole)
    random = Random(draw(st.integers(0, 2**32)))
    lost = {gpu.index for gpu in snapshot.gpus if random.random() < 0.15}
    states = random.choice(((True,), (True, True, False), (True, False, None)))
    links = [
        replace(link, is_active=link.is_active and random.choice(states))
        for link in snapshot.nvlinks or ()
        if random.random() < 0.9
    ]
    return replace(
        snapshot,
        gpus=tuple(replace(gpu, is_lost=gpu.index in lost) for gpu in snapshot.gpus),
        nvlinks=random.choice((tuple(links), tuple(links), snapshot.nvlinks, None)),
        numa_nodes=random.choice((snapshot.numa_nodes, snapshot.numa_nodes, None)),
        pairs=tuple(pair for pair in snapshot.pairs if random.random() < 0.9),
    )


def _nic_distances(count: int) -> st.SearchStrategy[dict[int, Closeness]]:
    return st.dictionaries(st.integers(0, count - 1), st.sampled_from(DISTANCES))


@st.composite
def requests(draw: st.DrawFn, snapshot: Snapshot) -> tuple[list[str], list[str], int]:
    """Feasible requests to *snapshot*: available ids, required ids, size; in any order."""
    ids = [gpu.id for gpu in snapshot.gpus if not gpu.is_lost]
    assume(ids)
    available = draw(st.lists(st.sampled_from(ids), unique=True, min_size=1))
    size = draw(st.integers(1, len(available)))
    required = draw(st.lists(st.sampled_from(available), unique=True, max_size=size))
    return available, required, size


def snapshots() -> st.SearchStrategy[Snapshot]:
    """Snapshots with any value in any field that a document can hold.

    Drawn from a seed: a whole snapshot has more fields than Hypothesis likes to draw singly.
    """
    return st.integers(0, 2**32).map(lambda seed: _snapshot(Random(seed)))


def _snapshot(random: Random) -> Snapshot:
    snapshot: Snapshot = _value(Snapshot, random)
    gpus = tuple(
        replace(gpu, index=3 * position, uuid=random.choice((None, f"GPU-{position}")))
        for position, gpu in enumerate(snapshot.gpus)
    )
    links = snapshot.nvlinks
    if links is not None:
        links = tuple(replace(link, gpu=gpus[0].index) for link in links) if gpus else ()
    return replace(snapshot, gpus=gpus, nvlinks=links)


def _value(kind: Any, random: Random) -> Any:
    """Return something that a field annotated *kind* can hold."""
    if get_origin(kind) is Annotated:
        kind, limit = get_args(kind)
        if isinstance(limit, Range):
            return random.choice((limit.low, limit.high, random.randint(limit.low, limit.high)))
        assert isinstance(limit, Count)
        item = get_args(kind)[0]
        return tuple(_value(item, random) for _ in range(random.randint(limit.least, 2)))
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (some,) = (option for option in inner if option is not NoneType)
        return _value(some, random) if random.random() < 0.7 else None
    if origin is tuple and inner[-1] is Ellipsis:
        return tuple(_value(inner[0], random) for _ in range(random.randrange(3)))
    if origin is tuple:
        return tuple(_value(one, random) for one in inner)
    if origin is Mapping:
        names = (_SCALARS[str](random) for _ in range(random.randrange(3)))
        return {name: _value(inner[1], random) for name in names}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return random.choice(list(kind))
    if kind in _SCALARS:
        return _SCALARS[kind](random)
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{field.name: _value(hints[field.name], random) for field in fields(kind)})


_SCALARS: Mapping[Any, Callable[[Random], Any]] = MappingProxyType(
    {
        str: lambda random: "".join(random.choices('aB0 -"\\\n\u00e9\u2028\U0001f600', k=4)),
        int: lambda random: random.choice((0, random.randint(0, MAX_INT64))),
        bool: lambda random: random.random() < 0.5,
        float: lambda random: random.choice((0.0, 200.0, random.uniform(-MAX_NUMBER, MAX_NUMBER))),
        datetime: lambda random: datetime.fromtimestamp(random.randrange(2**34), UTC),
        CpuSet: lambda random: CpuSet.of(random.sample(range(300), k=random.randrange(6))),
        PciAddress: lambda random: PciAddress(
            random.choice((0, random.randrange(2**32))),
            random.randrange(256),
            random.randrange(32),
            random.randrange(8),
        ),
    },
)
