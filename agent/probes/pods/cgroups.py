"""What the cgroups of running containers let them use: CPUs, memory nodes, CPU time.

A cgroup is found by the id of its container. Where only the kubelet told of a pod, ids are not
known; then the cgroups of the pod are told apart by the CPUs that the kubelet gave to its
containers, and a value is told only if all that may be the container's agree on it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from agent.model.pod import Container, Pod
from agent.probes.pods.pod_cgroups_read import Group, group
from agent.probes.pods.pod_cgroups_tree import Cgroups, PodDirectories
from agent.probes.sysfs.tree import Root, Tree

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
