"""What the kubelet checks after alignment: that all requests together fit the node.

Source: kubernetes 1.36 pkg/kubelet/lifecycle/predicate.go and
pkg/scheduler/framework/plugins/noderesources/fit.go (fitsRequest). A resource with a slash in its
name that the node does not have is passed over.
"""

from dataclasses import replace

from agent.admission.admission_node import Node
from agent.admission.admission_refusal import Refusal
from agent.admission.requests import is_memory
from agent.model.pod import Pod
from agent.model.pod_amounts import at_once, summed

_FIRST = ("cpu", "memory")
"""What is checked first; the rest follows in no fixed order, by name here."""


def requested(pod: Pod) -> dict[str, int]:
    """Return what *pod* asks for at once; what it states as a whole replaces its containers'."""
    return {**at_once(pod, lambda one: one.requests or {}), **(pod.requests or {})}


def check_room(node: Node, pod: Pod) -> Node:
    """Return *node* with the requests of *pod* counted in.

    Raises:
        Refusal: they do not fit.
    """
    room = node.room
    if room is None:
        return node
    asked = requested(pod)
    others = sorted(name for name in asked if name not in _FIRST)
    for name in (*(one for one in _FIRST if one in asked), *others):
        rest = left(node, name)
        if rest is not None and asked[name] and asked[name] > rest:
            used = room.requested.get(name, 0)
            words = f"Node didn't have enough resource: {name}, requested: {asked[name]}"
            raise Refusal(f"OutOf{name}", f"{words}, used: {used}, capacity: {rest + used}")
    return replace(node, room=replace(room, requested=summed(room.requested, asked)))


def left(node: Node, name: str) -> int | None:
    """Return how much of a resource pods can still request; ``None`` where nothing checks it."""
    room = node.room
    if room is None:
        return None
    used = room.requested.get(name, 0)
    if name in room.allocatable:
        devices = node.devices.get(name)
        return max(room.allocatable[name], len(devices.taken) if devices else 0) - used
    return -used if name in _FIRST or is_memory(name) else None
