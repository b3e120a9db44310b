"""What the cgroups of running containers let them use: CPUs, memory nodes, CPU time.

A cgroup is found by the id of its container. Where only the kubelet told of a pod, ids are not
known; then the cgroups of the pod are told apart by the CPUs that the kubelet gave to its
containers, and a value is told only if all that may be the container's agree on it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from agent.model.numa import CpuSet
from agent.model.pod import Container, Pod
from agent.model.qos import QosClass
from agent.probes.sysfs.tree import Root, Tree

# Where the cgroups of pods and containers lie below `/sys/fs/cgroup`.
#
# The kubelet makes ``kubepods[/<class>]/pod<uid>``, or with the systemd driver
# ``kubepods.slice[/kubepods-<class>.slice]/kubepods[-<class>]-pod<uid>.slice``, below its
# ``--cgroup-root`` (kubernetes 1.36 pkg/kubelet/cm/cgroup_manager_linux.go,
# pod_container_manager_linux.go). In it the runtime makes one for each container and one for the
# sandbox: ``<id>`` or ``cri-containerd-<id>.scope`` by containerd, ``crio-<id>`` or
# ``crio-<id>.scope`` by CRI-O, where ``crio-conmon-<id>.scope`` is its monitor's.

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


# What one cgroup tells: its CPUs, its memory nodes, how often it was throttled.
#
# Files of kernel Documentation/admin-guide/cgroup-v2.rst (CPU, Cpuset) and cgroup-v1/cpusets.rst.

_SHARES = 2
"""CPU shares of a sandbox and of a container without a CPU request: ``MinShares`` of
kubernetes 1.36 pkg/kubelet/cm/helpers_linux.go; 1 as weight of version 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One cgroup; ``None`` for what it does not tell.

    Attributes:
        is_least: whether it has the least weight there is, as sandboxes have.
    """

    cpuset: CpuSet | None
    memory_nodes: tuple[int, ...] | None
    throttled: int | None
    is_least: bool


def group(cgroups: Cgroups, path: str) -> Group:
    """Return what the cgroup at *path* tells."""
    nodes = _cpus(cgroups, path, "mems")
    return Group(
        cpuset=_cpus(cgroups, path, "cpus"),
        memory_nodes=None if nodes is None else tuple(nodes),
        throttled=_throttled(cgroups.time(path, "cpu.stat") or ""),
        is_least=_is_least(cgroups, path),
    )


def _cpus(cgroups: Cgroups, path: str, kind: str) -> CpuSet | None:
    """Return a list of the group, or of the nearest one above in which the controller is on."""
    names = (f"cpuset.{kind}.effective", f"cpuset.effective_{kind}", f"cpuset.{kind}")
    for place in (path, path.rpartition("/")[0]):
        for name in names[:1] if cgroups.is_unified else names[1:]:
            text = cgroups.cpuset(place, name)
            if text:
                return _parsed(text)
    return None


def _parsed(text: str) -> CpuSet | None:
    try:
        return CpuSet.parse(text)
    except ValueError:
        return None


def _throttled(text: str) -> int | None:
    for line in text.splitlines():
        name, _, count = line.partition(" ")
        if name == "nr_throttled" and count.isdecimal():
            return int(count[:20])
    return None


def _is_least(cgroups: Cgroups, path: str) -> bool:
    if cgroups.is_unified:
        return cgroups.time(path, "cpu.weight") == "1"
    return cgroups.time(path, "cpu.shares") == str(_SHARES)


Uids = Mapping[tuple[str, str], str]


_Value = TypeVar("_Value")


def with_cgroups(sysfs: Root, pods: tuple[Pod, ...], uids: Uids | None = None) -> tuple[Pod, ...]:
    """Return *pods* with ``cpuset``, ``memory_nodes`` and ``throttled`` of their containers.

    A pod whose class is not known gets the one under which the kubelet keeps it. Containers
    without a cgroup of their own (not started, finished, or not to be told from others) stay
    as they are, and so do all where `/sys/fs/cgroup` cannot be read.

    Args:
        sysfs: the directory whose ``fs/cgroup`` has the host's cgroups; a path is read afresh.
        uids: (namespace, name) → uid of pods that do not know theirs.
    """
    cgroups = Cgroups(Tree.of(sysfs))
    found = cgroups.pods()
    known = uids or {}
    return tuple(_filled(cgroups, found, pod, known) for pod in pods)


def _filled(cgroups: Cgroups, found: PodDirectories, pod: Pod, uids: Uids) -> Pod:
    own = [found.by_id.get(container.id or "") for container in pod.containers]
    # The cgroup of a static pod has another uid than its mirror in the API.
    uid = next((place[0] for place in own if place), pod.uid or uids.get((pod.namespace, pod.name)))
    directory = found.by_uid.get(uid or "")
    if directory is None:
        return pod
    if any(own):
        groups = [[group(cgroups, place[1])] if place else [] for place in own]
    else:
        groups = _told_apart(pod, [group(cgroups, path) for path in directory.containers])
    pairs = zip(pod.containers, groups, strict=True)
    return replace(
        pod,
        qos_class=pod.qos_class or directory.qos_class.value,
        containers=tuple(_with(container, each) for container, each in pairs),
    )


def _told_apart(pod: Pod, groups: list[Group]) -> list[list[Group]]:
    """Return for each container which of *groups* may be its own."""
    left = _without_sandbox(groups, pod.containers)
    return [_candidates(container, pod, left) for container in pod.containers]


def _without_sandbox(groups: list[Group], containers: Iterable[Container]) -> list[Group]:
    """Leave out the pod's sandbox, if it can be told: one cgroup too many, one of least weight."""
    least = [one for one in groups if one.is_least]
    is_plain = len(groups) == 1 + len(tuple(containers))
    return [one for one in groups if one not in least] if is_plain and len(least) == 1 else groups


def _candidates(container: Container, pod: Pod, groups: list[Group]) -> list[Group]:
    """Return the *groups* that may be the container's, by the CPUs that it holds."""
    if container.cpus:
        return [one for one in groups if one.cpuset == container.cpus]
    exclusive = [other.cpus for other in pod.containers if other.cpus]
    return [one for one in groups if one.cpuset not in exclusive]


def _with(container: Container, groups: list[Group]) -> Container:
    return replace(
        container,
        cpuset=_agreed(one.cpuset for one in groups) or container.cpuset,
        memory_nodes=_agreed(one.memory_nodes for one in groups) or container.memory_nodes,
        throttled=_known(_agreed(one.throttled for one in groups), container.throttled),
    )


def _agreed(values: Iterable[_Value | None]) -> _Value | None:
    """Return what all *values* are; ``None`` where they differ, or there are none."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _known(value: int | None, otherwise: int | None) -> int | None:
    return otherwise if value is None else value
