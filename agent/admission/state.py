"""Which pods of a snapshot count, and what each of its sources says that they hold."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from agent.admission.errors import Missing
from agent.model.kubelet_state import HeldMemory
from agent.model.kubernetes import go_bool
from agent.model.pod import Pod
from agent.model.snapshot import Snapshot

# Policies of the kubelet and their options: words, and texts under names.


def word(stated: str | None, field: str, known: Container[str]) -> str:
    """Return what is *stated* as *field* of the kubelet's settings.

    Raises:
        Missing: nothing is known to be, or the kubelet does not start with it.
    """
    if stated is None:
        raise Missing(field)
    if stated not in known:
        raise Missing(f"a kubelet that starts: {field} {stated!r} is none it knows")
    return stated


def flag(options: Mapping[str, str] | None, name: str) -> bool:
    """Return whether an option is on; it is off where it is not stated.

    Raises:
        Missing: the kubelet does not start with its value.
    """
    text = (options or {}).get(name, "false")
    found = go_bool(text)
    if found is None:
        raise Missing(f"a kubelet that starts: option {name} is {text!r}")
    return found


def number(options: Mapping[str, str] | None, name: str, usual: int) -> int:
    """Return an option's number, *usual* where it is not stated.

    Raises:
        Missing: the kubelet does not start with its value.
    """
    text = (options or {}).get(name, str(usual))
    if not text.isascii() or not text.isdecimal() or len(text) > len("1000000"):
        raise Missing(f"a kubelet that starts: option {name} is {text!r}")
    if int(text) < usual:
        raise Missing(f"a kubelet that starts: option {name} is {text}, and {usual} is the least")
    return int(text)


FINISHED = ("Succeeded", "Failed")
"""Phases of pods that hold nothing any more."""


Held = dict[str, dict[str, frozenset[int]]]
"""Pod → container → CPUs; pods by uid, else by namespace and name."""


@dataclass(frozen=True, slots=True)
class Holders:
    """The pods that hold something while others are admitted.

    Attributes:
        active: those of the snapshot; ``None`` where it knows no pods.
        uids: theirs; ``None`` where some have none, and every entry of a state file counts.
        asking: uids of the pods to admit, which hold nothing.
        is_told: whether PodResources answered. A container that it does not name, one of a pod
            that is not admitted yet or an init container that ended, then counts as holding
            nothing; only state files tell what such init containers keep from others.
    """

    active: tuple[Pod, ...] | None
    uids: frozenset[str] | None
    asking: frozenset[str]
    is_told: bool

    def counts(self, uid: str) -> bool:
        """Return whether the kubelet still honours what a state file says *uid* holds."""
        return uid not in self.asking and (self.uids is None or uid in self.uids)


def holders(snapshot: Snapshot, asking: Iterable[Pod]) -> Holders:
    """Return who holds what while the pods *asking* are admitted."""
    uids = frozenset(pod.uid for pod in asking if pod.uid is not None)
    is_told = snapshot.offer is not None
    if snapshot.pods is None:
        return Holders(None, None, uids, is_told)
    active = tuple(
        pod for pod in snapshot.pods if pod.phase not in FINISHED and pod.uid not in uids
    )
    known = [pod.uid for pod in active if pod.uid is not None]
    return Holders(active, frozenset(known) if len(known) == len(active) else None, uids, is_told)


def key(pod: Pod) -> str:
    """Return what a pod is known by here."""
    return pod.uid or f"{pod.namespace}/{pod.name}"


def held_cpus(found: Holders) -> Held | None:
    """Return the exclusive CPUs of active pods; ``None`` where those of one are not known."""
    pods = _told(found, "cpus")
    if pods is None:
        return None
    return {
        key(pod): {one.name: one.cpus.cpus for one in pod.containers if one.cpus} for pod in pods
    }


def held_devices(found: Holders, resource: str) -> dict[str, dict[str, frozenset[str]]] | None:
    """Return the devices that active pods have; ``None`` where those of one are not known."""
    pods = _told(found, "devices")
    if pods is None:
        return None
    held: dict[str, dict[str, frozenset[str]]] = {}
    for pod in pods:
        for one in pod.containers:
            ids = [id_ for it in one.devices or () if it.resource == resource for id_ in it.ids]
            if ids:
                held.setdefault(key(pod), {})[one.name] = frozenset(ids)
    return held


def held_memory(found: Holders) -> dict[str, dict[str, tuple[HeldMemory, ...]]] | None:
    """Return the pinned memory of active pods; ``None`` where that of one is not known."""
    pods = _told(found, "memory")
    if pods is None:
        return None
    return {
        key(pod): {
            one.name: tuple(
                HeldMemory(kind=it.kind, size=it.size_bytes, numa_nodes=it.numa_nodes)
                for it in one.memory or ()
            )
            for one in pod.containers
            if one.memory
        }
        for pod in pods
    }


def _told(found: Holders, part: str) -> tuple[Pod, ...] | None:
    """Return the active pods; ``None`` where the *part* that some container has is not known."""
    if found.active is None or found.is_told:
        return found.active
    containers = (one for pod in found.active for one in pod.containers)
    return None if any(getattr(one, part) is None for one in containers) else found.active
