"""NCCL's breadth-first search for the best path from every node to one.

Facts: NVIDIA/nccl 2.30.7 ``src/graph/paths.cc`` (ncclTopoSetPaths, addInterStep) and
``topo.cc`` (ncclTopoGetLocal).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.nccl.bandwidth import LOCAL, UNKNOWN
from agent.nccl.graph import Graph, Kind
from agent.nccl.paths import NcclPath

_RELAY_HOPS = 1
"""A path may go through one GPU, as its second step over NVLink (NVB)."""


@dataclass(frozen=True, slots=True)
class Path:
    """A path: its type, its bandwidth (``math.inf`` where unknown), its nodes, both ends too."""

    type: NcclPath
    gbs: float
    nodes: tuple[str, ...]
    is_complete: bool = True
    """Whether the bandwidth of each of its links is known."""

    def beats(self, other: "Path | None") -> bool:
        """Return whether NCCL would take this path: better type, then wider, then shorter."""
        return other is None or (self.type, -self.gbs, len(self.nodes)) < (
            other.type,
            -other.gbs,
            len(other.nodes),
        )

    def then(self, other: "Path", kind: NcclPath) -> "Path":
        """Return the path that goes on with *other*."""
        gbs = min(self.gbs, other.gbs)
        is_complete = self.is_complete and other.is_complete
        return Path(kind, gbs, (*self.nodes, *other.nodes[1:]), is_complete)


Paths = dict[tuple[str, str], Path]
"""(from, to) → path; missing: no way."""


def search(graph: Graph) -> Paths:
    """Return the best path between all nodes that matter: to each CPU, GPU and NET."""
    ends = [*graph.of(Kind.CPU), *graph.of(Kind.GPU), *graph.of(Kind.NET)]
    return {(name, end): path for end in ends for name, path in paths_to(graph, end).items()}


def paths_to(graph: Graph, end: str) -> Mapping[str, Path]:
    """Return the best path to *end* from every node that reaches it."""
    best = {end: Path(NcclPath.LOC, LOCAL, (end,))}
    frontier = [end]
    while frontier:
        following: dict[str, None] = {}
        for node in frontier:
            for (there, link), gbs in graph.links[node].items():
                path = _longer(graph, best[node], there, link, gbs)
                if path is not None and path.beats(best.get(there)):
                    best[there] = path
                    following[there] = None
        frontier = list(following)
    return best


def _longer(graph: Graph, path: Path, there: str, link: NcclPath, gbs: float) -> Path | None:
    """Return *path* with one more step in front, if NCCL would look at it."""
    kind, far = graph.kinds[path.nodes[0]], graph.kinds[there]
    steps = len(path.nodes) - 1
    step = link
    if kind is Kind.GPU and steps:
        if link is not NcclPath.NVL or far is not Kind.GPU or steps > _RELAY_HOPS:
            return None
        if path.type is NcclPath.NVL:
            step = NcclPath.NVB
    if kind is Kind.PCI and far is Kind.PCI:
        step = NcclPath.PXB
    if link is NcclPath.PIX and Kind.CPU in (kind, far):
        step = NcclPath.PHB
    is_complete = path.is_complete and gbs != UNKNOWN
    return Path(max(path.type, step), min(path.gbs, gbs), (there, *path.nodes), is_complete)


def local(paths: Paths, start: str, ends: Iterable[str]) -> tuple[str, ...]:
    """Return those of *ends* that are nearest to *start*: the widest, then of the best type."""
    known = [(end, paths[start, end]) for end in ends if (start, end) in paths]
    if not known:
        return ()
    rank = min((-path.gbs, path.type) for _, path in known)
    return tuple(end for end, path in known if (-path.gbs, path.type) == rank)


def local_cpu(paths: Paths, gpu: str, cpus: Iterable[str]) -> str | None:
    """Return the CPU of a GPU: the nearest, of several the one with the fewest steps."""
    found = local(paths, gpu, cpus)
    return min(found, key=lambda cpu: len(paths[gpu, cpu].nodes), default=None)


def through(paths: Paths, start: str, middle: str, end: str) -> Path:
    """Return the way from *start* to *end* by *middle*, C2C and then PCIe being P2C."""
    first, second = paths[start, middle], paths[middle, end]
    kinds = {first.type, second.type}
    kind = NcclPath.P2C if kinds == {NcclPath.C2C, NcclPath.PHB} else max(kinds)
    return first.then(second, kind)
