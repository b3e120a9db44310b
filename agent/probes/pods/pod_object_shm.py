"""What the containers of a pod find at ``/dev/shm``."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.errors import DecodeError
from agent.formats.fields import Object, amount, flag_at, items, object_at, text_at
from agent.model.pod import SharedMemory

PATH = "/dev/shm"  # noqa: S108 - a place in containers, where nothing is written here

ANNOTATIONS = ("shm-size.crio.io", "io.kubernetes.cri-o.ShmSize")
"""Where CRI-O takes the size of the pod's own from, the first before the second
(cri-o pkg/annotations)."""

Found = tuple[SharedMemory, int | None]
"""What is there, and its limit in bytes."""


@dataclass(frozen=True, slots=True)
class SharedMemories:
    """What a pod has for it.

    Attributes:
        unmounted: what containers find that mount nothing there.
        volumes: name of the volume → what it is.
    """

    unmounted: Found = (SharedMemory.DEFAULT, None)
    volumes: Mapping[str, Found] = field(default_factory=dict)


def shared_memories(spec: Object, annotations: Object) -> SharedMemories:
    """Return what the pod with *spec* and *annotations* has for it.

    Raises:
        DecodeError: a volume has not the shape of one.
    """
    volumes: dict[str, Found] = {}
    for at, item in items(spec, "volumes", "spec"):
        volumes[text_at(item, "name", at) or ""] = _volume(item, at)
    is_host = flag_at(spec, "hostIPC", "spec")
    own = (SharedMemory.HOST, None) if is_host else _of_runtime(annotations)
    return SharedMemories(own, volumes)


def memory_of(container: Object, at: str, shared: SharedMemories) -> Found:
    """Return what *container* finds there; a volume that the pod lacks is any other one.

    Raises:
        DecodeError: a mount has not the shape of one.
    """
    for place, mount in items(container, "volumeMounts", at):
        path = text_at(mount, "mountPath", place) or ""
        if posixpath.normpath(path) == PATH:
            name = text_at(mount, "name", place) or ""
            return shared.volumes.get(name, (SharedMemory.OTHER, None))
    return shared.unmounted


def _of_runtime(annotations: Object) -> Found:
    """Return what the runtime makes; a size that is none ends in its error, so that none counts."""
    for name in ANNOTATIONS:
        if isinstance(stated := annotations.get(name), str):
            try:
                return SharedMemory.MEMORY, amount(stated, name)
            except DecodeError:
                break
    return SharedMemory.DEFAULT, None


def _volume(item: Object, at: str) -> Found:
    if item.get("hostPath") is not None:
        return SharedMemory.HOST, None
    if item.get("emptyDir") is None:
        return SharedMemory.OTHER, None
    place = f"{at}.emptyDir"
    empty = object_at(item, "emptyDir", at)
    limit = empty.get("sizeLimit")
    size = None if limit is None else amount(limit, f"{place}.sizeLimit")
    is_memory = text_at(empty, "medium", place) == "Memory"
    return SharedMemory.MEMORY if is_memory else SharedMemory.OTHER, size
