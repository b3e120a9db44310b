"""Which uid a pod has that only the kubelet's PodResources API told of, which has no uids.

The kubelet's own files have them: what a uid holds there is what the API says that a pod holds.
"""

from collections.abc import Iterable, Iterator, Mapping

from agent.model.kubelet_state import KubeletState
from agent.model.pod import Container, Pod

_Holding = tuple[str, ...]
"""Container, resource and one id of it, as both sources name them."""


def uids_by_holdings(
    pods: Iterable[Pod], state: KubeletState | None
) -> Mapping[tuple[str, str], str]:
    """Return (namespace, name) → uid for *pods* without one, as far as the kubelet's files tell.

    A pod is known by its devices and by its exclusive CPUs. One that holds neither, or whose
    holdings stand under several uids, is left out.
    """
    owners = _owners(state) if state is not None else {}
    found: dict[tuple[str, str], str] = {}
    for pod in pods:
        uids = {uid for holding in _of_pod(pod) for uid in owners.get(holding, ())}
        if pod.uid is None and len(uids) == 1:
            found[pod.namespace, pod.name] = uids.pop()
    return found


def _owners(state: KubeletState) -> dict[_Holding, set[str]]:
    owners: dict[_Holding, set[str]] = {}
    for uid, holding in (*_devices(state), *_cpus(state)):
        owners.setdefault(holding, set()).add(uid)
    return owners


def _devices(state: KubeletState) -> Iterator[tuple[str, _Holding]]:
    for held in state.devices.held if state.devices else ():
        for ids in held.ids.values():
            for name in ids:
                yield held.pod_uid, (held.container, held.resource, name)


def _cpus(state: KubeletState) -> Iterator[tuple[str, _Holding]]:
    entries = (state.cpu.entries if state.cpu else None) or {}
    for uid, containers in entries.items():
        for name, cpus in containers.items():
            if cpus:
                yield uid, (name, "cpu", str(cpus))


def _of_pod(pod: Pod) -> Iterator[_Holding]:
    for container in pod.containers:
        yield from _of_container(container)


def _of_container(container: Container) -> Iterator[_Holding]:
    for devices in container.devices or ():
        for name in devices.ids:
            yield container.name, devices.resource, name
    if container.cpus:
        yield container.name, "cpu", str(container.cpus)
