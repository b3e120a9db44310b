"""The limits of running containers' cgroups: CPUs, memory nodes, CPU time.

A cgroup is found by the id of its container. If only the kubelet knows a pod, ids are unknown; then
the pod's cgroups are distinguished by the CPUs that the kubelet gave to its containers, and a value
counts only if all candidate cgroups agree on it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.digits import is_digits
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import Pod
from nodetopo.model.qos import QosClass
from nodetopo.probes.sysfs.files import plain_text
from nodetopo.probes.sysfs.tree import Root, Tree

ROOT = "fs/cgroup"

MAX_PODS = 4096
"""Most pod directories that are read; a kubelet runs 110 pods unless configured otherwise."""

MAX_CONTAINERS = 256
"""Most containers of one pod directory."""

MAX_LISTED = 4096
"""Most directories that are listed to find the kubelet's below another ``--cgroup-root``."""

_DEPTH = 3
"""How deep below the root the kubelet's directory is searched: kind has it in the second level."""

_KUBEPODS = re.compile(r"(?:[0-9A-Za-z_.-]+-)?kubepods(?:\.slice)?")

_CLASS = re.compile(r"(?:[0-9A-Za-z_.-]+-)?(burstable|besteffort)(?:\.slice)?")

_CLASSES = {"burstable": QosClass.BURSTABLE, "besteffort": QosClass.BEST_EFFORT}

_POD = re.compile(r"(?:[0-9A-Za-z_.-]+-)?pod([0-9a-fA-F][0-9a-fA-F_-]{7,63})(?:\.slice)?")

_CONTAINER = re.compile(r"(?:(?:cri-containerd|crio|docker)-)?([0-9a-f]{32,128})(?:\.scope)?")

_SHARES = 2
"""CPU shares of a sandbox and of a container without a CPU request: ``MinShares`` of
kubernetes 1.36 pkg/kubelet/cm/helpers_linux.go; 1 as weight of version 2."""

Uids = Mapping[tuple[str, str], str]
"""(namespace, name) of a pod → its UID."""

_T = TypeVar("_T")


def with_cgroups(sysfs: Root, pods: tuple[Pod, ...], uids: Uids | None = None) -> tuple[Pod, ...]:
    """Return *pods* with ``cpuset``, ``memory_nodes`` and ``throttled`` of their containers.

    A pod of unknown class gets the class of its kubelet directory. Containers whose cgroup is
    unknown (not started, finished, or ambiguous) are unchanged, and so are all if `/sys/fs/cgroup`
    cannot be read.

    Args:
        sysfs: the directory whose ``fs/cgroup`` has the host's cgroups; a path is read afresh.
        uids: UIDs of pods without one.
    """
    cgroups = Cgroups(Tree.of(sysfs))
    directories = cgroups.pods()
    return tuple(_with_cgroups(cgroups, directories, pod, uids or {}) for pod in pods)


class PodDirectory(Struct, frozen=True, kw_only=True):
    """The directory of one pod."""

    qos_class: QosClass  # from its parent; a Guaranteed pod is directly below the root
    # The directories in it, the sandbox's among them, relative to the hierarchy that has CPU sets.
    containers: tuple[str, ...]


class PodDirectories(Struct, frozen=True, kw_only=True):
    """The directories of all pods."""

    by_uid: Mapping[str, PodDirectory]  # UID of the pod → its directory
    by_id: Mapping[str, tuple[str, str]]  # id of the container → UID of its pod, and its directory


class Group(Struct, frozen=True, kw_only=True):
    """The settings of one cgroup; None if unreadable."""

    cpuset: CpuSet | None
    memory_nodes: tuple[int, ...] | None
    throttled: int | None
    is_least: bool  # whether it has the minimum weight, like sandboxes


def _with_cgroups(cgroups: "Cgroups", directories: PodDirectories, pod: Pod, uids: Uids) -> Pod:
    own = [directories.by_id.get(container.id or "") for container in pod.containers]
    # The cgroup of a static pod has another UID than its mirror in the API.
    uid = next((place[0] for place in own if place), pod.uid or uids.get((pod.namespace, pod.name)))
    directory = directories.by_uid.get(uid or "")
    if directory is None:
        return pod
    if any(own):
        candidates = [[cgroups.group(place[1])] if place else [] for place in own]
    else:
        candidates = _candidates(pod, [cgroups.group(path) for path in directory.containers])
    containers = []
    for container, groups in zip(pod.containers, candidates, strict=True):
        throttled = _agreed(group.throttled for group in groups)
        containers.append(
            replace(
                container,
                cpuset=_agreed(group.cpuset for group in groups) or container.cpuset,
                memory_nodes=_agreed(group.memory_nodes for group in groups)
                or container.memory_nodes,
                throttled=container.throttled if throttled is None else throttled,
            )
        )
    return replace(
        pod,
        qos_class=pod.qos_class or directory.qos_class.value,
        containers=tuple(containers),
    )


def _candidates(pod: Pod, groups: list[Group]) -> list[list[Group]]:
    """Return for each container its candidate *groups*, by the CPUs that it holds."""
    least = [group for group in groups if group.is_least]
    if len(groups) == 1 + len(pod.containers) and len(least) == 1:
        # One cgroup too many, and one of least weight: that is the sandbox.
        groups = [group for group in groups if group not in least]
    exclusive = [container.cpus for container in pod.containers if container.cpus]
    shared = [group for group in groups if group.cpuset not in exclusive]
    return [
        [group for group in groups if group.cpuset == container.cpus] if container.cpus else shared
        for container in pod.containers
    ]


def _agreed(values: Iterable[_T | None]) -> _T | None:
    """Return the common value of *values*; None if they differ or are empty."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


class Cgroups:
    """The cgroup file system below the sysfs root *sysfs*: one hierarchy (v2), or several (v1).

    The kubelet creates ``kubepods[/<class>]/pod<uid>``, or with the systemd driver
    ``kubepods.slice[/kubepods-<class>.slice]/kubepods[-<class>]-pod<uid>.slice``, below its
    ``--cgroup-root`` (kubernetes 1.36 pkg/kubelet/cm/cgroup_manager_linux.go,
    pod_container_manager_linux.go). In it the runtime creates one for each container and one for
    the sandbox: ``<id>`` or ``cri-containerd-<id>.scope`` by containerd, ``crio-<id>`` or
    ``crio-<id>.scope`` by CRI-O, where ``crio-conmon-<id>.scope`` is its monitor's.
    """

    def __init__(self, sysfs: Tree) -> None:
        """Find out which version it is."""
        self._sysfs = sysfs
        names = self._names(ROOT)
        self.is_unified = "cgroup.controllers" in names
        self._cpusets = ROOT if self.is_unified else f"{ROOT}/cpuset"
        times = "cpu,cpuacct" if "cpu,cpuacct" in names else "cpu"
        self._times = ROOT if self.is_unified else f"{ROOT}/{times}"

    def pods(self) -> PodDirectories:
        """Return the pods below the kubelet's directories, in their order."""
        by_uid: dict[str, PodDirectory] = {}
        by_id: dict[str, tuple[str, str]] = {}
        for qos, uid, path in islice(self._pod_paths(), MAX_PODS):
            names = self._below(path)[:MAX_CONTAINERS]
            ids = {name: match[1] for name in names if (match := _CONTAINER.fullmatch(name))}
            places = tuple(f"{path}/{name}" for name in ids)
            by_uid[uid] = PodDirectory(qos_class=qos, containers=places)
            by_id.update((ids[name], (uid, f"{path}/{name}")) for name in ids)
        return PodDirectories(by_uid=by_uid, by_id=by_id)

    def group(self, path: str) -> Group:
        """Return the settings of the cgroup at *path*.

        Files of kernel Documentation/admin-guide/cgroup-v2.rst (CPU, Cpuset) and
        cgroup-v1/cpusets.rst.
        """
        nodes = self._effective(path, "mems")
        throttled = None
        for line in self._time(path, "cpu.stat").splitlines():
            name, _, count = line.partition(" ")
            if throttled is None and name == "nr_throttled" and is_digits(count):
                throttled = int(count[:20])
        weight, least = ("cpu.weight", 1) if self.is_unified else ("cpu.shares", _SHARES)
        return Group(
            cpuset=self._effective(path, "cpus"),
            memory_nodes=None if nodes is None else tuple(nodes),
            throttled=throttled,
            is_least=self._time(path, weight) == str(least),
        )

    def _effective(self, path: str, kind: str) -> CpuSet | None:
        """Return a list of the group, or of its parent where the controller is off in it."""
        names = (f"cpuset.{kind}.effective", f"cpuset.effective_{kind}", f"cpuset.{kind}")
        for place in (path, path.rpartition("/")[0]):
            for name in names[:1] if self.is_unified else names[1:]:
                text = self._text(f"{self._cpusets}/{place}/{name}")
                if text:
                    try:
                        return CpuSet.parse(text)
                    except ValueError:
                        return None
        return None

    def _time(self, path: str, name: str) -> str:
        """Return the text of a file of the CPU controller; empty where it does not exist."""
        return self._text(f"{self._times}/{path}/{name}")

    def _pod_paths(self) -> Iterator[tuple[QosClass, str, str]]:
        """Yield class, UID and path of each pod's directory."""
        for top in self._kubepods():
            below = ((_CLASS.fullmatch(name), f"{top}/{name}") for name in self._below(top))
            classes = [(_CLASSES[match[1]], path) for match, path in below if match]
            for qos, parent in ((QosClass.GUARANTEED, top), *classes):
                for name in self._below(parent):
                    if match := _POD.fullmatch(name):
                        yield qos, match[1].replace("_", "-"), f"{parent}/{name}"

    def _kubepods(self) -> tuple[str, ...]:
        """Return the kubelet's directories at the least depth that has any."""
        # Files are named <controller>.<name>; a directory with another dot is a systemd unit.
        units = (".slice", ".scope", ".service")
        level = [""]
        listed = 0
        for _ in range(_DEPTH):
            below = [
                (f"{path}/{name}" if path else name, name)
                for path in level
                for name in self._below(path)
            ]
            kubepods = tuple(path for path, name in below if _KUBEPODS.fullmatch(name))
            listed += len(level)
            level = [path for path, name in below if "." not in name or name.endswith(units)]
            if kubepods or listed + len(level) > MAX_LISTED:
                return kubepods
        return ()

    def _below(self, path: str) -> tuple[str, ...]:
        return self._names(f"{self._cpusets}/{path}" if path else self._cpusets)

    def _names(self, path: str) -> tuple[str, ...]:
        try:
            return self._sysfs.names(path)
        except OSError:
            return ()

    def _text(self, path: str) -> str:
        try:
            return plain_text(self._sysfs.content(path))
        except OSError:
            return ""
