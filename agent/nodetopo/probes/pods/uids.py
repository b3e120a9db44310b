"""UIDs of pods known from the kubelet's PodResources API alone, which has no UIDs.

The kubelet's files have them: a UID and a pod with the same holdings belong together.
"""

from collections.abc import Iterable, Iterator, Mapping

from nodetopo.model.kubelet_state import KubeletState
from nodetopo.model.pod import Pod, pool

_Holding = tuple[str, ...]
"""Container, resource and one id of it, as both sources name them."""


def uids_by_holdings(
    pods: Iterable[Pod], state: KubeletState | None
) -> Mapping[tuple[str, str], str]:
    """Return (namespace, name) → UID for *pods* without one, if in the kubelet's files.

    A pod is identified by its devices and its exclusive CPUs, including those shared by its
    containers. A pod that holds neither, or whose holdings match several UIDs, is left out.
    """
    owners: dict[_Holding, set[str]] = {}
    for uid, holding in _held_by_uid(state) if state is not None else ():
        owners.setdefault(holding, set()).add(uid)
    uids: dict[tuple[str, str], str] = {}
    for pod in pods:
        held: list[_Holding] = []
        for container in pod.containers:
            for devices in container.devices or ():
                held += [(container.name, devices.resource, name) for name in devices.ids]
            if cpus := container.cpus or pool(pod):
                held.append((container.name, "cpu", str(cpus)))
        candidates = {uid for holding in held for uid in owners.get(holding, ())}
        if pod.uid is None and len(candidates) == 1:
            uids[pod.namespace, pod.name] = candidates.pop()
    return uids


def _held_by_uid(state: KubeletState) -> Iterator[tuple[str, _Holding]]:
    for held in state.devices.held if state.devices else ():
        for ids in held.ids.values():
            for name in ids:
                yield held.pod_uid, (held.container, held.resource, name)
    entries = (state.cpu.entries if state.cpu else None) or {}
    for uid, containers in entries.items():
        for name, cpus in containers.items():
            if cpus:
                yield uid, (name, "cpu", str(cpus))
