"""How many NUMA nodes each resource of a pod needs, which must agree under policy restricted.

The Topology Manager prefers for each resource the fewest NUMA nodes that could hold the request
on an empty machine, and ``restricted`` admits only what all resources prefer together, so GPUs
that need two nodes beside CPUs that need one are refused for ever
(1.36 pkg/kubelet/cm/topologymanager/policy.go, mergePermutation).
"""

from collections.abc import Iterable, Iterator, Mapping

from agent.checks.inputs import Inputs
from agent.checks.kubelet.demand import CPU, MEMORY, Demand, demands, places, wanting, width
from agent.checks.kubelet.inputs import is_on, place
from agent.checks.rule import Finding
from agent.model.kubelet import KubeletSettings
from agent.model.qos import HUGE_PAGES
from agent.model.snapshot import Snapshot

_GIB = 1 << 30


def uneven(snapshot: Snapshot, settings: KubeletSettings) -> Iterator[Finding]:
    """Find each demand whose resources need different numbers of NUMA nodes."""
    for pod in wanting(snapshot):
        for demand in demands(pod, settings):
            widths = _widths(snapshot, settings, demand)
            if len(set(widths.values())) > 1:
                yield Finding(
                    subject=demand.subject,
                    observed="; ".join(_words(*pair) for pair in widths.items()),
                    expected=f"as many NUMA nodes for each, or another "
                    f"{place(settings, 'topologyManagerPolicy')}",
                )


def missing_widths(snapshot: Snapshot, settings: KubeletSettings | None) -> Inputs:
    """Need what memory each NUMA node can give, if a pod with GPUs needs it pinned."""
    if settings is None or settings.memory_manager_policy != "Static":
        return ()
    if _memory(snapshot) is not None:
        return ()
    pinned = any(
        demand.gpus and MEMORY in demand.amounts
        for pod in wanting(snapshot)
        for demand in demands(pod, settings)
    )
    return ("memory_manager_state",) if pinned else ()


def _widths(snapshot: Snapshot, settings: KubeletSettings, demand: Demand) -> Mapping[str, int]:
    """Return the NUMA nodes that each resource needs, as its amount reads; GPUs first."""
    widths = {
        f"{count} {name}": needed
        for name, count in demand.gpus.items()
        if (needed := width(places(snapshot, name) or (), count)) is not None
    }
    if not widths:
        return {}
    if _prefers_fewest(settings) and (cpus := demand.amounts.get(CPU, 0)):
        widths |= _known(f"{cpus} CPUs", _fewest(_cpus(snapshot), cpus))
    if settings.memory_manager_policy == "Static" and not _has_huge_pages(demand):
        size = demand.amounts.get(MEMORY, 0)
        held = _memory(snapshot)
        if size and held is not None:
            widths |= _known(f"{size / _GIB:.4g} GiB of memory", _fewest(held, size))
    return widths


def _prefers_fewest(settings: KubeletSettings) -> bool:
    # With align-by-socket all nodes of a socket are preferred too.
    by_socket = is_on(settings.cpu_manager_options, "align-by-socket")
    return settings.cpu_manager_policy == "static" and not by_socket


def _words(amount: str, nodes: int) -> str:
    return f"{amount} on {nodes} NUMA node{'s' if nodes > 1 else ''}"


def _known(amount: str, nodes: int | None) -> Mapping[str, int]:
    return {} if nodes is None else {amount: nodes}


def _has_huge_pages(demand: Demand) -> bool:
    # They and the memory are placed together, by all their amounts at once.
    return any(name.startswith(HUGE_PAGES) for name in demand.amounts)


def _cpus(snapshot: Snapshot) -> tuple[int, ...]:
    return tuple(len(node.cpus) for node in snapshot.numa_nodes or ())


def _memory(snapshot: Snapshot) -> tuple[int, ...] | None:
    state = snapshot.kubelet_state.memory if snapshot.kubelet_state else None
    blocks = state.blocks if state else ()
    return tuple(block.allocatable for block in blocks if block.kind == MEMORY) or None


def _fewest(held: Iterable[int], amount: int) -> int | None:
    """Return how many of the largest of *held* make up *amount*; ``None`` if not even all do."""
    total = 0
    for count, size in enumerate(sorted(held, reverse=True), start=1):
        total += size
        if total >= amount:
            return count
    return None
