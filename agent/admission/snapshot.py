"""A node's managers put together from its snapshot, and what of it is missing."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from agent.admission.cpu_manager import cpus_of
from agent.admission.device_manager import devices_of
from agent.admission.errors import Missing, check_nodes
from agent.admission.hints import MAX_NODE
from agent.admission.memory_manager import memory_of
from agent.admission.merge import NONE, POLICIES, SCOPES, Merger
from agent.admission.scope import Node, Room, requested
from agent.admission.state import Holders, flag, holders, number, word
from agent.model.kubelet import KubeletSettings
from agent.model.pod import Pod, summed
from agent.model.snapshot import Snapshot

_USUAL_LIMIT = 8
"""``max-allowable-numa-nodes`` where it is not stated (1.36 topology_manager.go)."""
_Part = TypeVar("_Part")


def node_of(snapshot: Snapshot, asking: Iterable[Pod]) -> Node:
    """Return the managers of the node of *snapshot*, before any of the pods *asking* is admitted.

    Raises:
        Missing: something needed is not known, or the kubelet does not start like this.
    """
    pods = tuple(asking)
    settings, found = _settings(snapshot), holders(snapshot, pods)
    gathering = _Gathering()
    merger = gathering.of(lambda: _merger(snapshot, settings))
    node = Node(
        merger=merger,
        scope=gathering.of(lambda: _scope(settings)) or SCOPES[0],
        cpus=gathering.of(lambda: cpus_of(snapshot, settings, found)),
        memory=gathering.of(lambda: memory_of(snapshot, settings, found)),
        devices=gathering.of(lambda: devices_of(snapshot, found, _named(pods))) or {},
        room=_room(snapshot, found),
    )
    if gathering.missing:
        raise Missing(*gathering.missing)
    return node


class _Gathering:
    """Collects all that is missing, so that it can be named at once."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def of(self, part: Callable[[], _Part]) -> _Part | None:
        try:
            return part()
        except Missing as error:
            self.missing += error.args
            return None


def _settings(snapshot: Snapshot) -> KubeletSettings:
    if snapshot.kubelet is None:
        raise Missing("the kubelet's settings")
    return snapshot.kubelet


def _merger(snapshot: Snapshot, settings: KubeletSettings) -> Merger | None:
    policy = word(settings.topology_manager_policy, "topologyManagerPolicy", POLICIES)
    nodes = tuple(sorted(snapshot.numa_nodes or (), key=lambda node: node.id))
    if not nodes:
        raise Missing("NUMA nodes")
    if policy == NONE:
        return None
    ids = [node.id for node in nodes]
    _check_nodes(ids, settings)
    closest = flag(settings.topology_manager_options, "prefer-closest-numa-nodes")
    if closest and any(node.distances is None for node in nodes):
        raise Missing("distances of NUMA nodes, which prefer-closest-numa-nodes goes by")
    if closest and any(len(node.distances or ()) <= max(ids) for node in nodes):
        words = "the kubelet ends with a panic at prefer-closest-numa-nodes and NUMA nodes"
        raise Missing(f"{words} {', '.join(map(str, ids))}, whose numbers have gaps")
    return Merger(policy=policy, nodes=nodes, prefer_closest=closest)


def _check_nodes(ids: list[int], settings: KubeletSettings) -> None:
    limit = number(settings.topology_manager_options, "max-allowable-numa-nodes", _USUAL_LIMIT)
    if len(ids) > limit:
        words = "a kubelet that starts: unsupported on machines with more than"
        raise Missing(f"{words} {limit} NUMA Nodes, and this one has {len(ids)}")
    if max(ids) > MAX_NODE:
        raise Missing(f"a kubelet that starts: NUMA node {max(ids)} is beyond {MAX_NODE}")
    check_nodes(len(ids))


def _scope(settings: KubeletSettings) -> str:
    if settings.topology_manager_policy == NONE:
        return SCOPES[0]
    return word(settings.topology_manager_scope, "topologyManagerScope", SCOPES)


def _named(pods: Iterable[Pod]) -> frozenset[str]:
    return frozenset(
        name for pod in pods for one in pod.containers for name in one.limits or {} if "/" in name
    )


def _room(snapshot: Snapshot, found: Holders) -> Room | None:
    status = snapshot.node_status
    if status is None or status.allocatable is None or found.active is None:
        return None
    if any(one.requests is None for pod in found.active for one in pod.containers):
        return None
    total: Mapping[str, int] = {}
    for pod in found.active:
        total = summed(total, requested(pod))
    return Room(allocatable=status.allocatable, requested=total)
