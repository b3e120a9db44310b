"""Random machines that could be built, of any size: trees of PCIe, bridges, switches, meshes.

All is drawn from a `random.Random`, so that a seed names a machine.
"""

from collections.abc import Callable, Mapping
from itertools import combinations
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.hca import HcaPort
from nodetopo.model.nvlink import Closeness, NvLink, PeerKind
from nodetopo.model.snapshot import Snapshot
from tests.strategies import node

Pair = tuple[int, int]
Place = tuple[int, int, int, int, int]
"""Socket, NUMA node, host bridge, upper and lower PCIe switch; each unique on the machine."""

LINKS_PER_GPU = 6
"""NVLinks of a V100, the last GPU that was built into meshes."""


class Tree(Struct, frozen=True):
    """Where the GPUs and HCAs of a machine sit."""

    gpus: tuple[Place, ...]
    hcas: tuple[Place, ...]

    def distances(self) -> dict[Pair, Closeness]:
        """Of every pair of GPUs."""
        pairs = combinations(range(len(self.gpus)), 2)
        return {(a, b): distance(self.gpus[a], self.gpus[b]) for a, b in pairs}

    def snapshot(
        self,
        *,
        links: Mapping[Pair, int] | None = None,
        switch_links: int = 0,
        generations: tuple[int, int] = (3, 4),
    ) -> Snapshot:
        """The machine with NVLinks, of *generations* of NVLink and of PCIe."""
        return node(
            numa=[place[1] for place in self.gpus],
            links=links or {},
            switch_links=switch_links,
            distances=self.distances(),
            sockets={place[1]: place[0] for place in (*self.gpus, *self.hcas)},
            hcas=[
                {gpu: distance(place, hca) for gpu, place in enumerate(self.gpus)}
                for hca in self.hcas
            ],
            hca_numa=[place[1] for place in self.hcas],
            nvlink_version=generations[0],
            pcie_generation=generations[1],
        )


def distance(a: Place, b: Place) -> Closeness:
    """How nvidia-smi names the way between two places."""
    if a[4] == b[4]:
        return Closeness.PIX
    if a[3] == b[3]:
        return Closeness.PXB
    if a[2] == b[2]:
        return Closeness.PHB
    return Closeness.NODE if a[1] == b[1] else Closeness.SYS


def tree(random: Random, count: int, nodes: int | None = None) -> Tree:
    """Hang *count* GPUs evenly below sockets, NUMA nodes, bridges and switches of random width.

    *nodes* NUMA nodes, or a number that divides the GPUs. They are numbered along the tree, as
    buses are.
    """
    nodes = nodes or random.choice([n for n in (1, 2, 4, 8) if count % n == 0] or [1])
    per_socket = max(1, nodes // random.choice((1, 2, 2)))
    inside, widths = -(-count // nodes), _widths(random)

    def place(gpu: int) -> Place:
        home, seat = divmod(gpu, inside)
        bridge, upper, lower = (home * 1000 + seat // width for width in widths)
        return home // per_socket, home, bridge, upper, lower

    gpus = tuple(map(place, range(count)))
    return Tree(gpus, _hcas(random, gpus))


def _widths(random: Random) -> tuple[int, int, int]:
    """GPUs below a bridge, an upper and a lower switch; each divides the one before."""
    lower = random.choice((1, 1, 2, 2, 4, 5))
    upper = lower * random.choice((1, 1, 2))
    return upper * random.choice((1, 1, 2)), upper, lower


def _hcas(random: Random, gpus: tuple[Place, ...]) -> tuple[Place, ...]:
    """None, or one beside each: switch, upper switch, bridge, NUMA node, or one on the machine."""
    level = random.choice((None, 4, 4, 3, 2, 1, -1))
    if level is None:
        return ()
    if level < 0:
        return (random.choice(gpus),)
    beside = {place[: level + 1]: place for place in gpus}
    return tuple(_up_to(level, place, -1 - n) for n, place in enumerate(beside.values()))


def _up_to(level: int, place: Place, own: int) -> Place:
    """The place at *level* above *place*; it shares no switch or bridge further down."""
    socket, home, bridge, upper, lower = (
        part if at <= level else own for at, part in enumerate(place)
    )
    return socket, home, bridge, upper, lower


# --- kinds -------------------------------------------------------------------------------------


def pcie(random: Random, count: int) -> Snapshot:
    """No NVLinks."""
    return tree(random, count).snapshot(generations=(3, random.choice((3, 4, 5))))


def nvswitch(random: Random, count: int) -> Snapshot:
    """Every GPU on the switches; 2, 4 or 8 NUMA nodes."""
    shape = tree(random, count, random.choice((2, 4, 8)))
    generations, links = random.choice((((2, 3), 6), ((3, 4), 12), ((4, 5), 18), ((5, 5), 18)))
    return shape.snapshot(switch_links=links, generations=generations)


def even_pcie(random: Random, count: int) -> Snapshot:
    """No NVLinks, an even number of GPUs on each NUMA node."""
    shape = tree(random, count, _even(random, count))
    return shape.snapshot(generations=(3, random.choice((3, 4, 5))))


def even_nvswitch(random: Random, count: int) -> Snapshot:
    """NVSwitches, an even number of GPUs on each NUMA node."""
    return tree(random, count, _even(random, count)).snapshot(switch_links=18, generations=(4, 5))


def _even(random: Random, count: int) -> int:
    """NUMA nodes that part no index pair, so that all groups of the machine nest."""
    return random.choice([nodes for nodes in (1, 2, 4, 8) if count % (2 * nodes) == 0])


def half_down(random: Random, count: int) -> Snapshot:
    """NVSwitches, but half the links of one GPU are down."""
    snapshot, broken = nvswitch(random, count), random.randrange(count)
    links = snapshot.nvlinks or ()
    up = sum(link.gpu == broken for link in links) // 2

    def after(link: NvLink) -> NvLink:
        is_down = link.gpu == broken and link.link % (2 * up) >= up
        return replace(link, is_active=False) if is_down else link

    return replace(snapshot, nvlinks=tuple(map(after, links)))


def bridged(random: Random, count: int) -> Snapshot:
    """Some pairs of neighbours bridged."""
    pairs = [(gpu, gpu + 1) for gpu in range(0, count - 1, 2)]
    some = random.sample(pairs, random.randint(1, len(pairs)))
    links = random.choice((2, 4, 12))
    return tree(random, count).snapshot(links=dict.fromkeys(some, links), generations=(3, 4))


def crossed(random: Random, count: int) -> Snapshot:
    """Some pairs bridged, whichever NUMA nodes they sit on."""
    order = random.sample(range(count), count)
    pairs = [(min(pair), max(pair)) for pair in zip(order[::2], order[1::2], strict=False)]
    some = random.sample(pairs, random.randint(1, len(pairs)))
    return tree(random, count).snapshot(links=dict.fromkeys(some, 4))


def joined(random: Random, count: int) -> Snapshot:
    """Two sockets with bridges across, some or for every pair, so that rings go around by them."""
    half = count // 2
    some = random.sample(range(half), random.randint(2, half))
    links = {(gpu, gpu + half): 4 for gpu in some}
    return tree(random, count, 2).snapshot(links=links)


def mesh(random: Random, count: int) -> Snapshot:
    """NVLinks at random, no GPU with more than a V100 has; some pairs have two."""
    spare = dict.fromkeys(range(count), LINKS_PER_GPU)
    links: dict[Pair, int] = {}
    pairs = list(combinations(range(count), 2))
    for pair in random.sample(pairs, random.randint(min(count, len(pairs)), len(pairs))):
        number = min(random.choice((1, 1, 2)), *(spare[gpu] for gpu in pair))
        if number:
            links[pair] = number
            for gpu in pair:
                spare[gpu] -= number
    return tree(random, count).snapshot(links=links, generations=(2, 3))


def gaps(random: Random, count: int) -> Snapshot:
    """Any of the kinds, where NUMA nodes and distances of some GPUs are not known."""
    whole = random.choice((pcie, nvswitch, bridged))(random, count)
    lost = set(random.sample(range(count), random.randint(1, min(3, count))))
    gpus = tuple(replace(g, numa_node=None) if g.index in lost else g for g in whole.gpus)
    pairs = tuple(
        replace(pair, closeness=None) if random.random() < 0.1 else pair for pair in whole.pairs
    )
    return replace(whole, gpus=gpus, pairs=pairs)


def mixed(random: Random, count: int) -> Snapshot:
    """Any of the kinds with GPUs of several models and fewer HCAs, on one socket or anywhere."""
    whole = random.choice((pcie, nvswitch, bridged, mesh))(random, count)
    last = random.choice(("H100", "H100", "H100", None))  # None: no product tells GPUs apart
    names, block = ("A100", "L4", last), random.choice((1, 2, count // 2))
    order = random.sample(range(count), count) if random.random() < 0.5 else range(count)
    models = {gpu: names[at // block % random.choice((2, 3))] for at, gpu in enumerate(order)}
    gpus = tuple(replace(gpu, product=models[gpu.index]) for gpu in whole.gpus)
    down = random.sample(whole.hcas or (), random.randint(0, len(whole.hcas or ())))
    hcas = tuple(
        replace(hca, ports=(HcaPort(number=1, state="DOWN"),)) if hca in down else hca
        for hca in whole.hcas or ()
    )
    return replace(whole, gpus=gpus, hcas=hcas)


def one_sided(random: Random, count: int) -> Snapshot:
    """A mesh of which one GPU reports fewer links than its peers do."""
    whole, silent = mesh(random, count), random.randrange(count)
    links = [
        link
        for link in whole.nvlinks or ()
        if link.gpu != silent or link.peer_kind is not PeerKind.GPU or random.random() < 0.5
    ]
    return replace(whole, nvlinks=tuple(links))


Kind = Callable[[Random, int], Snapshot]
TEN: tuple[Kind, ...] = (pcie, bridged, crossed, nvswitch, half_down, gaps, mesh, one_sided, mixed)
SIXTEEN: tuple[Kind, ...] = (pcie, bridged, crossed, joined, nvswitch, half_down, gaps)
REGULAR: tuple[Kind, ...] = (even_pcie, even_nvswitch)
