"""Where the cgroups of pods and containers lie below `/sys/fs/cgroup`.

The kubelet makes ``kubepods[/<class>]/pod<uid>``, or with the systemd driver
``kubepods.slice[/kubepods-<class>.slice]/kubepods[-<class>]-pod<uid>.slice``, below its
``--cgroup-root`` (kubernetes 1.36 pkg/kubelet/cm/cgroup_manager_linux.go,
pod_container_manager_linux.go). In it the runtime makes one for each container and one for the
sandbox: ``<id>`` or ``cri-containerd-<id>.scope`` by containerd, ``crio-<id>`` or
``crio-<id>.scope`` by CRI-O, where ``crio-conmon-<id>.scope`` is its monitor's.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from agent.model.qos import QosClass
from agent.probes.sysfs.tree import Tree

ROOT = "fs/cgroup"

MAX_PODS = 4096
"""Most pod directories that are looked into; a kubelet runs 110 pods unless told otherwise."""

MAX_CONTAINERS = 256
"""Most containers of one pod directory."""

MAX_LISTED = 4096
"""Most directories that are listed to find the kubelet's below another ``--cgroup-root``."""

_DEPTH = 3
"""How deep below the root the kubelet's directory is looked for: kind has it in the second."""

_KUBEPODS = re.compile(r"(?:[0-9A-Za-z_.-]+-)?kubepods(?:\.slice)?")
_CLASS = re.compile(r"(?:[0-9A-Za-z_.-]+-)?(burstable|besteffort)(?:\.slice)?")
_CLASSES = {"burstable": QosClass.BURSTABLE, "besteffort": QosClass.BEST_EFFORT}
_POD = re.compile(r"(?:[0-9A-Za-z_.-]+-)?pod([0-9a-fA-F][0-9a-fA-F_-]{7,63})(?:\.slice)?")
_CONTAINER = re.compile(r"(?:(?:cri-containerd|crio|docker)-)?([0-9a-f]{32,128})(?:\.scope)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDirectory:
    """The directory of one pod.

    Attributes:
        qos_class: which its parent stands for; a Guaranteed pod is directly below the root.
        containers: the directories in it, the sandbox's among them, relative to the hierarchy
            that has CPU sets.
    """

    qos_class: QosClass
    containers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDirectories:
    """All of them.

    Attributes:
        by_uid: uid of the pod → its directory.
        by_id: id of the container → uid of its pod, and its directory.
    """

    by_uid: Mapping[str, PodDirectory]
    by_id: Mapping[str, tuple[str, str]]


class Cgroups:
    """The cgroup file system below the sysfs root *sysfs*: one hierarchy (v2), or several (v1)."""

    def __init__(self, sysfs: Tree) -> None:
        """Find out which it is."""
        self._sysfs = sysfs
        names = self._names(ROOT)
        self.is_unified = "cgroup.controllers" in names
        self._cpusets = ROOT if self.is_unified else f"{ROOT}/cpuset"
        times = "cpu,cpuacct" if "cpu,cpuacct" in names else "cpu"
        self._times = ROOT if self.is_unified else f"{ROOT}/{times}"

    def pods(self) -> PodDirectories:
        """Return what the kubelet's directories hold, in their order."""
        by_uid: dict[str, PodDirectory] = {}
        by_id: dict[str, tuple[str, str]] = {}
        for qos, uid, path in islice(self._pod_paths(), MAX_PODS):
            found = list(self._containers(path))
            places = tuple(place for _, place in found)
            by_uid[uid] = PodDirectory(qos_class=qos, containers=places)
            by_id.update((name, (uid, place)) for name, place in found)
        return PodDirectories(by_uid=by_uid, by_id=by_id)

    def cpuset(self, path: str, name: str) -> str | None:
        """Return the text of a file of the CPU set controller; ``None`` where it is not there."""
        return self._text(f"{self._cpusets}/{path}/{name}")

    def time(self, path: str, name: str) -> str | None:
        """Return the text of a file of the CPU controller; ``None`` where it is not there."""
        return self._text(f"{self._times}/{path}/{name}")

    def _pod_paths(self) -> Iterator[tuple[QosClass, str, str]]:
        for top in self._kubepods():
            for qos, parent in self._parents(top):
                for name in self._below(parent):
                    if found := _POD.fullmatch(name):
                        yield qos, found[1].replace("_", "-"), f"{parent}/{name}"

    def _parents(self, top: str) -> Iterator[tuple[QosClass, str]]:
        yield QosClass.GUARANTEED, top
        for name in self._below(top):
            if found := _CLASS.fullmatch(name):
                yield _CLASSES[found[1]], f"{top}/{name}"

    def _containers(self, path: str) -> Iterator[tuple[str, str]]:
        names = self._below(path)[:MAX_CONTAINERS]
        for name in names:
            if found := _CONTAINER.fullmatch(name):
                yield found[1], f"{path}/{name}"

    def _kubepods(self) -> tuple[str, ...]:
        """Return the kubelet's directories at the least depth that has any."""
        level = [""]
        listed = 0
        for _ in range(_DEPTH):
            below = [_join(path, name) for path in level for name in self._below(path)]
            found = tuple(path for path in below if _KUBEPODS.fullmatch(_last(path)))
            listed += len(level)
            level = list(_directories(below))
            if found or listed + len(level) > MAX_LISTED:
                return found
        return ()

    def _below(self, path: str) -> tuple[str, ...]:
        return self._names(f"{self._cpusets}/{path}" if path else self._cpusets)

    def _names(self, path: str) -> tuple[str, ...]:
        try:
            return self._sysfs.names(path)
        except OSError:
            return ()

    def _text(self, path: str) -> str | None:
        try:
            return self._sysfs.content(path).decode("utf-8", "replace").strip()
        except OSError:
            return None


def _directories(paths: Iterable[str]) -> Iterator[str]:
    # Files are named <controller>.<what>; what has another dot is a unit of systemd.
    units = (".slice", ".scope", ".service")
    return (path for path in paths if "." not in _last(path) or path.endswith(units))


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _last(path: str) -> str:
    return path.rpartition("/")[2]
