"""The smallest changes with which a rejected pod would be admitted, each tried out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from agent.admission.admit import Admission, PodAdmission, admit, classed, uid_of
from agent.admission.device_manager import Preference, lowest_first
from agent.admission.merge import NONE, POLICIES, SCOPES
from agent.admission.requests import (
    amount_of,
    amount_text,
    grain_of,
    is_pinned,
    pinned_memory,
    unit_of,
    whole_cpus,
)
from agent.admission.scope import Node, left, pass_through
from agent.admission.snapshot import node_of
from agent.admission.state import flag
from agent.model.kubelet import KubeletSettings
from agent.model.kubernetes import MILLICORES
from agent.model.pod import Container, Pod, at_once
from agent.model.snapshot import Snapshot

# The amounts of one resource at which the kubelet's answer to a container changes.
#
# It changes at few amounts only: at what a set of NUMA nodes has free, and at what the largest sets
# of each size have installed, beyond which a request is one of more nodes. The nearest amount that
# would do is one of these or the next beyond, and no others need be tried.

MOST_STEPS = 64
"""Amounts that are tried in one direction, the nearest; a machine has this many only where every
set of its NUMA nodes has another number free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Where the answer changes, in the unit of requests.

    Attributes:
        name: of the resource.
        asked: by the container.
        others: by the other containers of the pod at the same time.
        core: what exclusive CPUs are given out in; ``None`` for everything else.
        room: how much pods can still request in sum; ``None`` where that is not checked.
        free: what sets of NUMA nodes have free, by size of the set; empty where nothing is
            aligned.
        installed: what the largest set of each size has.
    """

    name: str
    asked: int
    others: int
    core: int | None = None
    room: int | None = None
    free: Mapping[int, frozenset[int]] = field(default_factory=dict)
    installed: Mapping[int, int] = field(default_factory=dict)

    def less(self) -> list[int]:
        """Return smaller amounts that may do, the nearest first."""
        tops = self._tops if self.room is None else {*self._tops, self.room}
        below = {self._down(min(top - by, self.asked - 1)) for top in tops for by in self._shifts}
        return sorted((amount for amount in below if amount > 0), reverse=True)[:MOST_STEPS]

    def more(self) -> list[int]:
        """Return larger amounts that may do, the nearest first; they take more NUMA nodes."""
        tops, most = {0, *self._tops}, max(self.installed.values(), default=0)
        above = {self._up(max(top - by, self.asked) + 1) for top in tops for by in self._shifts}
        return sorted(amount for amount in above if amount <= most)[:MOST_STEPS]

    def taking(self, count: int) -> int | None:
        """Return the amount nearest to the asked one that takes *count* NUMA nodes, if any."""
        least = self._up(self.installed.get(count - 1, 0) + 1)
        most = self._down(max(self.free[count]))
        return min(max(self.asked, least), most) if least <= most else None

    @property
    def _tops(self) -> set[int]:
        """The amounts that the answer changes beyond."""
        return {*self.installed.values(), *(top for tops in self.free.values() for top in tops)}

    @property
    def _shifts(self) -> tuple[int, ...]:
        """What others may take of the same NUMA nodes."""
        return (0, self.others)

    def _down(self, amount: int) -> int:
        step = self.core or grain_of(self.name, amount)
        return amount // step * step

    def _up(self, amount: int) -> int:
        step = self.core or grain_of(self.name, amount)
        return -(-amount // step) * step


def ends_of(node: Node, pod: Pod, container: Container, name: str) -> Ends:
    """Return where the answer of *node* to what *container* of *pod* asks of *name* changes."""
    asked = amount_of(name, container)
    others = at_once(pod, lambda one: {name: amount_of(name, one)}).get(name, 0) - asked
    ends = partial(_ends, name=name, asked=asked, others=others, room=left(node, name))
    if name == "cpu" and node.cpus is not None and whole_cpus(pod, container):
        layout = node.cpus.layout
        core = MILLICORES * (layout.per_core if node.cpus.options.full_pcpus_only else 1)
        return ends(node.cpus.free, layout.installed, unit=MILLICORES, core=core)
    if name in node.devices:
        return ends(node.devices[name].free, node.devices[name].installed)
    if node.memory is not None and is_pinned(pod) and name in pinned_memory(container):
        return ends(node.memory.free(name), node.memory.installed(name))
    return ends({}, {})


def _ends(
    free: Mapping[int, int], installed: Mapping[int, int], *, unit: int = 1, **known: Any
) -> Ends:
    """Return the ends by what each set of NUMA nodes has, in units of *unit*."""
    tops: dict[int, set[int]] = {}
    most: dict[int, int] = {}
    for mask, amount in free.items():
        tops.setdefault(mask.bit_count(), set()).add(amount * unit)
    for mask, amount in installed.items():
        most[mask.bit_count()] = max(most.get(mask.bit_count(), 0), amount * unit)
    sets = {size: frozenset(amounts) for size, amounts in tops.items()}
    return Ends(free=sets, installed=most, **known)


# Pods that ask for a little more or less than one that was rejected.

_BOTH = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Variant:
    """One pod to try.

    Attributes:
        size: how much it differs, as a share of what was asked for.
    """

    pod: Pod
    text: str
    size: float


def variants(node: Node, pod: Pod) -> Iterator[Iterable[Variant]]:
    """Yield series of variants, in each the smallest change first."""
    for container in pod.containers:
        for name, asked in (container.requests or {}).items():
            if asked > 0:
                ends = ends_of(node, pod, container, name)
                yield (_of_one(pod, container, name, amount) for amount in ends.less())
                yield (_of_one(pod, container, name, amount) for amount in ends.more())
        if whole_cpus(pod, container) and pinned_memory(container).get("memory"):
            yield sorted(_of_both(node, pod, container), key=lambda variant: variant.size)


def _of_one(pod: Pod, container: Container, name: str, amount: int) -> Variant:
    asked = amount_of(name, container)
    words = f"{amount_text(name, amount)}{unit_of(name, amount)} instead of"
    return Variant(
        _with(pod, container, {name: amount}),
        f"container {container.name}: {words} {amount_text(name, asked)}",
        _size(amount, asked),
    )


def _of_both(node: Node, pod: Pod, container: Container) -> Iterator[Variant]:
    """Yield the pod with CPUs and memory that take the same number of NUMA nodes."""
    ends = [ends_of(node, pod, container, name) for name in _BOTH]
    for count in ends[0].free.keys() & ends[1].free.keys():
        cpus, memory = (one.taking(count) for one in ends)
        if cpus is None or memory is None or cpus == ends[0].asked or memory == ends[1].asked:
            continue  # not to be had, or a change of one of them
        yield Variant(
            _with(pod, container, {"cpu": cpus, "memory": memory}),
            f"container {container.name}: {amount_text('cpu', cpus)}{unit_of('cpu', cpus)} and "
            f"{amount_text('memory', memory)} of memory instead of "
            f"{amount_text('cpu', ends[0].asked)} and {amount_text('memory', ends[1].asked)}, "
            f"so that both take {count} NUMA node{'s' * (count > 1)}",
            _size(cpus, ends[0].asked) + _size(memory, ends[1].asked),
        )


def _size(amount: int, asked: int) -> float:
    return abs(amount - asked) / asked


def _with(pod: Pod, container: Container, amounts: Mapping[str, int]) -> Pod:
    changed = replace(
        container,
        requests={**(container.requests or {}), **amounts},
        limits={**(container.limits or {}), **amounts},
    )
    return replace(
        pod, containers=tuple(changed if one is container else one for one in pod.containers)
    )


WORK = 150_000
"""Steps for all pods together, some seconds. Each try costs one for every container of its pod and
every set of NUMA nodes or CPU of the machine; a usual pod takes a tenth of them at most."""


_WHOLE_CORES = "full-pcpus-only"


def with_changes(
    snapshot: Snapshot,
    admission: Admission,
    pods: Sequence[Pod],
    *,
    prefer: Preference = lowest_first,
) -> Admission:
    """Return *admission* with the changes that would have admitted its rejected pods.

    A pod of very many containers, or the last of very many pods, may be left without some, or any:
    the search ends after :data:`WORK` steps.

    Args:
        snapshot, pods, prefer: those that *admission* came from. Each change is tried on what the
            pods before the rejected one left.
        admission: of :func:`agent.admission.admit.admit`.
    """
    if not any(one.admitted is False for one in admission.pods):
        return admission
    node = node_of(snapshot, pods)
    search = _Search(prefer, WORK, _step(node))
    settings = search.settings(snapshot, pods)
    found: list[PodAdmission] = []
    for number, (one, pod) in enumerate(zip(admission.pods, pods, strict=True)):
        seen, uid = classed(snapshot, pod), uid_of(pod, number)
        if one.admitted is False:
            texts = (*search.amounts(node, seen, uid), *settings[number])
            found.append(replace(one, changes=texts))
            continue
        found.append(one)
        if one.admitted:
            node = pass_through(node, seen, uid, prefer).node
    return replace(admission, pods=tuple(found))


class _Search:
    """Tries changes until the work is done."""

    def __init__(self, prefer: Preference, work: int, step: int) -> None:
        self._prefer = prefer
        self._tries = work // step

    def amounts(self, node: Node, pod: Pod, uid: str) -> list[str]:
        """Return the changes of amounts that are enough, of each series the first."""
        found = []
        for series in variants(node, pod):
            fitting = self._first(node, series, uid)
            found += [fitting] if fitting is not None else []
            if self._tries < len(pod.containers):
                break
        return [variant.text for variant in sorted(found, key=lambda variant: variant.size)]

    def settings(self, snapshot: Snapshot, pods: Sequence[Pod]) -> list[list[str]]:
        """Return for each pod other settings of the kubelet under which it is admitted."""
        found: list[list[str]] = [[] for _ in pods]
        containers = sum(len(pod.containers) for pod in pods)
        for text, settings in _settings(snapshot):
            if not self._pays(containers):
                break
            changed = admit(replace(snapshot, kubelet=settings), pods, prefer=self._prefer)
            for number, one in enumerate(changed.pods):
                found[number] += [text] if one.admitted else []
        return found

    def _first(self, node: Node, series: Iterable[Variant], uid: str) -> Variant | None:
        for variant in series:
            if not self._pays(len(variant.pod.containers)):
                return None
            if pass_through(node, variant.pod, uid, self._prefer).refusal is None:
                return variant
        return None

    def _pays(self, containers: int) -> bool:
        """Return whether as many can still be tried, and count them."""
        can_pay = containers <= self._tries
        self._tries -= containers if can_pay else 0
        return can_pay


def _step(node: Node) -> int:
    """Return what one container costs."""
    sets = 1 << len(node.merger.nodes) if node.merger is not None else 1
    return sets + (len(node.cpus.layout.cpus) if node.cpus is not None else 0)


def _settings(snapshot: Snapshot) -> Iterator[tuple[str, KubeletSettings]]:
    """Yield other settings of the kubelet, those that give up least first."""
    settings = snapshot.kubelet
    assert settings is not None
    policy, scope = settings.topology_manager_policy, settings.topology_manager_scope
    if flag(settings.cpu_manager_options, _WHOLE_CORES):
        options = {**(settings.cpu_manager_options or {}), _WHOLE_CORES: "false"}
        text = f"the kubelet's cpuManagerPolicyOptions without {_WHOLE_CORES}"
        yield text, replace(settings, cpu_manager_options=options)
    for other in SCOPES if policy != NONE else ():
        if other != scope:
            text = f"the kubelet's topologyManagerScope {other} instead of {scope}"
            yield text, replace(settings, topology_manager_scope=other)
    for other in reversed(POLICIES[: POLICIES.index(policy)] if policy in POLICIES else ()):
        text = f"the kubelet's topologyManagerPolicy {other} instead of {policy}"
        yield text, replace(settings, topology_manager_policy=other)
