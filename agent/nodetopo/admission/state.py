"""The sources of a snapshot: the kubelet's options, and the holdings of active pods."""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from nodetopo.admission.errors import Missing
from nodetopo.model.digits import is_digits
from nodetopo.model.kubelet_state import HeldMemory
from nodetopo.model.kubernetes import go_bool
from nodetopo.model.pod import AssignedMemory, Pod, pool
from nodetopo.model.snapshot import Snapshot

FINISHED = ("Succeeded", "Failed")
"""Phases of pods that no longer hold anything."""

_MOST_DIGITS = 7
"""Of a number among the kubelet's options."""


def choice(value: str | None, field: str, choices: Collection[str]) -> str:
    """Return *value*, of *field* of the kubelet's settings."""
    if value is None:
        raise Missing(field)
    if value not in choices:
        raise Missing(f"a kubelet that starts: {field} {value!r} is none it knows")
    return value


def flag(options: Mapping[str, str] | None, name: str) -> bool:
    """Return whether an option is on; it is off where it is not stated."""
    text = (options or {}).get(name, "false")
    is_on = go_bool(text)
    if is_on is None:
        raise Missing(f"a kubelet that starts: option {name} is {text!r}")
    return is_on


def number(options: Mapping[str, str] | None, name: str, default: int) -> int:
    """Return the number of an option; its *default* is also the least that it can be."""
    text = (options or {}).get(name, str(default))
    if not is_digits(text) or len(text) > _MOST_DIGITS:
        raise Missing(f"a kubelet that starts: option {name} is {text!r}")
    if int(text) < default:
        raise Missing(f"a kubelet that starts: option {name} is {text}, and {default} is the least")
    return int(text)


class ActivePods(Struct, frozen=True):
    """The pods that hold resources while others are admitted."""

    pods: tuple[Pod, ...] | None  # None where the snapshot knows no pods
    # Of `pods`; None where some have none, and every entry of a state file counts.
    uids: frozenset[str] | None
    admitted_uids: frozenset[str]  # of the pods to admit, which hold nothing
    # PodResources answered. A container that it does not name, of a pod that is not admitted yet or
    # an init container that ended, then holds nothing; only state files have what such init
    # containers keep from others.
    is_reported: bool

    def counts(self, uid: str) -> bool:
        """Return whether the kubelet still honours what a state file says that *uid* holds."""
        return uid not in self.admitted_uids and (self.uids is None or uid in self.uids)

    def cpus(self) -> dict[str, dict[str, frozenset[int]]] | None:
        """Return the exclusive CPUs of each pod (by :func:`pod_key`) and container.

        CPUs shared by a pod's containers are listed under a container without a name. ``None`` if a
        container's CPUs are unknown; the same applies to the methods below.
        """
        if self._lacks("cpus"):
            return None
        held: dict[str, dict[str, frozenset[int]]] = {}
        for pod in self.pods or ():
            held[pod_key(pod)] = {it.name: it.cpus.cpus for it in pod.containers if it.cpus}
            if shared := pool(pod):
                held[pod_key(pod)][""] = shared.cpus
        return held

    def devices(self, resource: str) -> dict[str, dict[str, frozenset[str]]] | None:
        """Return the devices of *resource* that each pod and container has."""
        if self._lacks("devices"):
            return None
        held: dict[str, dict[str, frozenset[str]]] = {}
        for pod in self.pods or ():
            for container in pod.containers:
                given = [it for it in container.devices or () if it.resource == resource]
                if ids := frozenset(id_ for it in given for id_ in it.ids):
                    held.setdefault(pod_key(pod), {})[container.name] = ids
        return held

    def memory(self) -> dict[str, dict[str, tuple[HeldMemory, ...]]] | None:
        """Return the pinned memory of each pod and container.

        A whole pod's, its containers' included, is listed under a container without a name.
        """
        if self._lacks("memory"):
            return None
        return {
            pod_key(pod): {"": _blocks(pod.memory)} if pod.memory else _pinned_memory(pod)
            for pod in self.pods or ()
        }

    def _lacks(self, part: str) -> bool:
        if self.pods is None:
            return True
        containers = (container for pod in self.pods for container in pod.containers)
        return not self.is_reported and any(getattr(it, part) is None for it in containers)


def active_pods(snapshot: Snapshot, admitted: Iterable[Pod]) -> ActivePods:
    """Return who holds resources while the pods *admitted* are admitted."""
    uids = frozenset(pod.uid for pod in admitted if pod.uid is not None)
    is_reported = snapshot.offer is not None
    if snapshot.pods is None:
        return ActivePods(None, None, uids, is_reported)
    pods = tuple(pod for pod in snapshot.pods if pod.phase not in FINISHED and pod.uid not in uids)
    known = [pod.uid for pod in pods if pod.uid is not None]
    return ActivePods(
        pods, frozenset(known) if len(known) == len(pods) else None, uids, is_reported
    )


def pod_key(pod: Pod) -> str:
    """Return the uid of *pod*, else its namespace and name."""
    return pod.uid or f"{pod.namespace}/{pod.name}"


def _pinned_memory(pod: Pod) -> dict[str, tuple[HeldMemory, ...]]:
    return {it.name: _blocks(it.memory) for it in pod.containers if it.memory}


def _blocks(memory: Iterable[AssignedMemory]) -> tuple[HeldMemory, ...]:
    return tuple(
        HeldMemory(kind=it.kind, size=it.size_bytes, numa_nodes=it.numa_nodes) for it in memory
    )
