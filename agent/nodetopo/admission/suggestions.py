"""The smallest changes with which a rejected pod would be admitted, each of them tried.

Where no single change is enough, pairs of them are tried: two amounts, an amount and a setting of
the kubelet, or two settings.

The answer for a container changes at few amounts of a resource only: at what a set of NUMA nodes
has free, and at what the largest sets of each size have installed, beyond which a request takes
more nodes. The nearest amount that would be admitted is one of these or the next beyond, so no
others need be tried.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.admission.admit import Admission, classed, uid_of
from nodetopo.admission.device_manager import Preference, lowest_first
from nodetopo.admission.errors import Missing
from nodetopo.admission.merge import NONE, POLICIES, SCOPES
from nodetopo.admission.requests import amount_text, grain_of, pinned_memory, unit_of, whole_cpus
from nodetopo.admission.scope import admit_pod
from nodetopo.admission.snapshot import NodeManagers, managers_of
from nodetopo.admission.state import flag
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubernetes import MILLICORES
from nodetopo.model.pod import Container, Pod, at_once
from nodetopo.model.snapshot import Snapshot

WORK = 150_000
"""Steps for all pods together, some seconds. Each try costs, for every container of its pod, one
for every pair of NUMA nodes and every CPU of the machine; a usual pod takes a tenth of them at
most."""

MOST_STEPS = 64
"""Amounts that are tried in one direction, the nearest; a machine has this many only where every
set of its NUMA nodes has another number free."""

MOST_PAIRS = 4
"""Pairs of changes that are offered for one pod."""

_MOST_TOTALS = 1024
"""Amounts of sets of as many NUMA nodes that are looked at."""

_WHOLE_CORES = "full-pcpus-only"

_BySize: TypeAlias = Mapping[int, AbstractSet[int]]
"""Amounts by the number of NUMA nodes that have them."""


def with_changes(
    snapshot: Snapshot,
    admission: Admission,
    pods: Sequence[Pod],
    *,
    prefer: Preference = lowest_first,
) -> Admission:
    """Return *admission* with the changes that would have admitted its rejected pods.

    A pod of very many containers, or the last of very many pods, can be left without some, or any:
    the search ends after :data:`WORK` steps.

    Args:
        snapshot, pods, prefer: those that *admission* came from. Each change is tried on the node
            without the other pods: a pod that has a place there is not rejected, unless the
            scheduler keeps it alongside others, and none is looked for then.
    """
    numbers = [
        at
        for at, answer in enumerate(admission.pods)
        if answer.admitted is False and not answer.beside
    ]
    if not numbers:
        return admission
    node = managers_of(snapshot, pods)
    search = _Search(snapshot, pods, prefer)
    of_settings = search.settings(numbers)
    answers = list(admission.pods)
    for number in numbers:
        amounts = search.amounts(
            node, classed(snapshot, pods[number]), uid_of(pods[number], number)
        )
        changes = [*(variant.text for variant in amounts), *of_settings[number]]
        if not of_settings[number] and not any(it.is_single for it in amounts):
            changes = search.pairs(node, number, amounts)
        answers[number] = replace(answers[number], changes=tuple(changes))
    return replace(admission, pods=tuple(answers))


class _Search:
    """Tries changes until the work is done."""

    def __init__(self, snapshot: Snapshot, pods: Sequence[Pod], prefer: Preference) -> None:
        self._snapshot, self._pods, self._prefer = snapshot, pods, prefer
        node = managers_of(snapshot, pods)
        nodes = len(node.topology.nodes) if node.topology is not None else 1
        cpus = len(node.cpus.layout.cpus) if node.cpus is not None else 0
        self._tries = WORK // (nodes**2 + cpus)

    def amounts(self, node: NodeManagers, pod: Pod, uid: str) -> list["Variant"]:
        """Return the changes of amounts that are enough, the smallest first, one of each series."""
        enough: list[Variant] = []
        for series in variants(node, pod):
            for variant in series:
                if not self._pays(len(pod.containers)):
                    break
                if self._fits(node, variant.pod, uid):
                    enough.append(variant)
                    break
            if self._tries < len(pod.containers):
                break
        return sorted(enough, key=lambda variant: variant.size)

    def settings(self, numbers: Iterable[int]) -> dict[int, list[str]]:
        """Return for the pods at *numbers* other settings of the kubelet that admit them."""
        texts: dict[int, list[str]] = {number: [] for number in numbers}
        for setting in _other_settings(self._snapshot):
            changed = setting.of(self._snapshot)
            node = self._node(changed)
            for number in texts:
                if not self._pays(len(self._pods[number].containers)):
                    return texts
                texts[number] += [setting.text] if self._admits(changed, node, number) else []
        return texts

    def pairs(self, node: NodeManagers, number: int, aligned: Sequence["Variant"]) -> list[str]:
        """Return pairs of changes that are enough for the pod at *number*.

        Pairs of amounts come first, the smallest first, and with them those that are known to be
        *aligned*; then those with settings of the kubelet, which give up least first.
        """
        pod = self._pods[number]
        seen, uid = classed(self._snapshot, pod), uid_of(pod, number)
        amounts: list[Variant | _Pair] = [*aligned, *self._pairs_of_amounts(node, seen, uid)]
        found = [pair.text for pair in sorted(amounts, key=lambda pair: pair.size)]
        found += self._pairs_with_settings(number)
        return found[:MOST_PAIRS]

    def _pairs_of_amounts(self, node: NodeManagers, pod: Pod, uid: str) -> list["_Pair"]:
        """Return the smallest pair of each two resources or containers, the smallest first."""
        cost = len(pod.containers)
        pairs: list[_Pair] = []
        if self._tries < cost:
            return pairs
        for first in chain.from_iterable(variants(node, pod)):
            if not first.is_single:
                continue
            for series in variants(node, first.pod):
                if not self._pays(cost):
                    break
                pairs += (
                    _Pair(first, second)
                    for second in series
                    if second.is_single and first.touched < second.touched
                )
            if self._tries < cost:
                break
        enough: dict[object, _Pair] = {}
        for pair in sorted(pairs, key=lambda pair: pair.size):
            touched = (pair.first.touched, pair.second.touched)
            if touched in enough or not self._pays(cost):
                continue
            if self._fits(node, pair.second.pod, uid):
                enough[touched] = pair
            if len(enough) == MOST_PAIRS:
                break
        return list(enough.values())

    def _pairs_with_settings(self, number: int) -> Iterator[str]:
        """Yield an amount with each other setting, and pairs of settings."""
        pod = self._pods[number]
        for first in _other_settings(self._snapshot):
            if not self._pays(len(pod.containers)):
                return
            changed = first.of(self._snapshot)
            if (node := self._node(changed)) is None:
                continue
            seen, uid = classed(changed, pod), uid_of(pod, number)
            amounts = filter(lambda variant: variant.is_single, self.amounts(node, seen, uid))
            if amount := next(amounts, None):
                yield f"{amount.text}, and {first.text}"
            for second in _other_settings(changed):
                if second.place <= first.place or not self._pays(len(pod.containers)):
                    continue
                both = second.of(changed)
                if self._admits(both, self._node(both), number):
                    yield f"{first.text}, and {second.text}"

    def _node(self, changed: Snapshot) -> NodeManagers | None:
        """Return the managers of *changed*; ``None`` where its kubelet does not start."""
        try:
            return managers_of(changed, self._pods)
        except Missing:
            return None

    def _admits(self, changed: Snapshot, node: NodeManagers | None, number: int) -> bool:
        """Return whether *node*, of *changed*, admits the pod at *number* alone."""
        pod = self._pods[number]
        seen, uid = classed(changed, pod), uid_of(pod, number)
        return node is not None and self._fits(node, seen, uid)

    def _fits(self, node: NodeManagers, pod: Pod, uid: str) -> bool:
        """Return whether *node* is known to admit *pod*."""
        try:
            return admit_pod(node, pod, uid, self._prefer).refusal is None
        except Missing:
            return False

    def _pays(self, containers: int) -> bool:
        """Return whether as many can still be tried, and count them."""
        can_pay = containers <= self._tries
        self._tries -= containers if can_pay else 0
        return can_pay


class _Setting(Struct, frozen=True):
    """Other settings of the kubelet."""

    place: int  # of the setting that differs, those that give up least first
    text: str
    settings: KubeletSettings

    def of(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, kubelet=self.settings)


def _other_settings(snapshot: Snapshot) -> Iterator[_Setting]:
    """Yield other settings of the kubelet, those that give up least first."""
    settings = snapshot.kubelet
    assert settings is not None
    policy, scope = settings.topology_manager_policy, settings.topology_manager_scope
    if flag(settings.cpu_manager_options, _WHOLE_CORES):
        options = {**(settings.cpu_manager_options or {}), _WHOLE_CORES: "false"}
        text = f"the kubelet's cpuManagerPolicyOptions without {_WHOLE_CORES}"
        yield _Setting(0, text, replace(settings, cpu_manager_options=options))
    for other in SCOPES if policy != NONE else ():
        if other != scope:
            text = f"the kubelet's topologyManagerScope {other} instead of {scope}"
            yield _Setting(1, text, replace(settings, topology_manager_scope=other))
    for other in reversed(POLICIES[: POLICIES.index(policy)] if policy in POLICIES else ()):
        text = f"the kubelet's topologyManagerPolicy {other} instead of {policy}"
        yield _Setting(2, text, replace(settings, topology_manager_policy=other))


class Variant(Struct, frozen=True):
    """A pod that requests a little more or less than a rejected one."""

    pod: Pod
    text: str
    size: float  # how much it differs, as a share of the request
    # (position of the container, resource) of each amount that differs
    touched: tuple[tuple[int, str], ...]

    @property
    def is_single(self) -> bool:
        """Whether exactly one amount differs."""
        return len(self.touched) == 1


class _Pair(Struct, frozen=True):
    """Two variants, the second of the first one's pod."""

    first: Variant
    second: Variant

    @property
    def size(self) -> float:
        """How much both differ together."""
        return self.first.size + self.second.size

    @property
    def text(self) -> str:
        """Both, with the container's name once where it is the same."""
        second = self.second.text
        if self.first.touched[0][0] == self.second.touched[0][0]:
            second = second.partition(": ")[2]
        return f"{self.first.text}, and {second}"


def variants(node: NodeManagers, pod: Pod) -> Iterator[Iterable[Variant]]:
    """Yield series of variants, in each the smallest change first."""
    for container in pod.containers:
        for name, requested in (container.requests or {}).items():
            if requested > 0:
                bounds = breakpoints(node, pod, container, name)
                for amounts in (bounds.less(), bounds.more()):
                    yield (_of_one(pod, container, name, amount) for amount in amounts)
        if whole_cpus(pod, container) and pinned_memory(pod, container).get("memory"):
            yield sorted(_of_both(node, pod, container), key=lambda variant: variant.size)


def _of_one(pod: Pod, container: Container, name: str, amount: int) -> Variant:
    requested = _amount(container, name)
    return Variant(
        _with_amounts(pod, container, {name: amount}),
        f"container {container.name}: {amount_text(name, amount)}{unit_of(name, amount)} "
        f"instead of {amount_text(name, requested)}",
        abs(amount - requested) / requested,
        ((pod.containers.index(container), name),),
    )


def _of_both(node: NodeManagers, pod: Pod, container: Container) -> Iterator[Variant]:
    """Yield the pod with CPUs and memory that take the same number of NUMA nodes."""
    cpu, memory = (breakpoints(node, pod, container, name) for name in ("cpu", "memory"))
    position = pod.containers.index(container)
    for count in cpu.free.keys() & memory.free.keys():
        cpus, size = cpu.taking(count), memory.taking(count)
        if cpus is None or size is None or cpus == cpu.requested or size == memory.requested:
            continue  # not available, or a change of one of them
        yield Variant(
            _with_amounts(pod, container, {"cpu": cpus, "memory": size}),
            f"container {container.name}: {amount_text('cpu', cpus)}{unit_of('cpu', cpus)} and "
            f"{amount_text('memory', size)} of memory instead of "
            f"{amount_text('cpu', cpu.requested)} and {amount_text('memory', memory.requested)}, "
            f"so that both span {count} NUMA node{'s' * (count > 1)}",
            abs(cpus - cpu.requested) / cpu.requested
            + abs(size - memory.requested) / memory.requested,
            ((position, "cpu"), (position, "memory")),
        )


def _with_amounts(pod: Pod, container: Container, amounts: Mapping[str, int]) -> Pod:
    changed = replace(
        container,
        requests={**(container.requests or {}), **amounts},
        limits={**(container.limits or {}), **amounts},
    )
    return replace(
        pod, containers=tuple(changed if it is container else it for it in pod.containers)
    )


class Breakpoints(Struct, frozen=True, kw_only=True):
    """The amounts of one resource at which the answer changes, in the unit of requests."""

    name: str  # of the resource
    requested: int  # by the container
    others: int  # requested by the pod's other containers at the same time
    core: int | None = None  # step of exclusive CPUs; None for everything else
    room: int | None = None  # what pods can still request in sum; None where that is not checked
    # What sets of NUMA nodes have free, by size of the set; empty where nothing is aligned.
    free: Mapping[int, frozenset[int]] = field(default_factory=dict)
    # What the largest set of each size has.
    installed: Mapping[int, int] = field(default_factory=dict)

    def less(self) -> list[int]:
        """Return smaller amounts that might be admitted, the nearest first."""
        tops = self._tops if self.room is None else {*self._tops, self.room}
        below = {
            self._down(min(top - shift, self.requested - 1))
            for top in tops
            for shift in self._shifts
        }
        return sorted((amount for amount in below if amount > 0), reverse=True)[:MOST_STEPS]

    def more(self) -> list[int]:
        """Return larger amounts to try, nearest first; they take more NUMA nodes."""
        tops, most = {0, *self._tops}, max(self.installed.values(), default=0)
        above = {
            self._up(max(top - shift, self.requested) + 1) for top in tops for shift in self._shifts
        }
        return sorted(amount for amount in above if amount <= most)[:MOST_STEPS]

    def taking(self, count: int) -> int | None:
        """Return the amount nearest to the requested one that takes *count* NUMA nodes, if any."""
        least = self._up(self.installed.get(count - 1, 0) + 1)
        top = max(self.free[count])
        most = self._down(top if self.room is None else min(top, self.room))
        return min(max(self.requested, least), most) if least <= most else None

    @property
    def _tops(self) -> set[int]:
        """The amounts beyond which the answer changes."""
        return {*self.installed.values(), *(top for tops in self.free.values() for top in tops)}

    @property
    def _shifts(self) -> tuple[int, ...]:
        """Amounts that others can take of the same NUMA nodes."""
        return (0, self.others)

    def _down(self, amount: int) -> int:
        step = self.core or grain_of(self.name, amount)
        return amount // step * step

    def _up(self, amount: int) -> int:
        step = self.core or grain_of(self.name, amount)
        return -(-amount // step) * step


def breakpoints(node: NodeManagers, pod: Pod, container: Container, name: str) -> Breakpoints:
    """Return where the answer of *node* changes, for resource *name* of *container* of *pod*."""
    free: _BySize = {}
    installed: _BySize = {}
    unit, core = 1, None
    if name == "cpu" and node.cpus is not None and whole_cpus(pod, container):
        layout = node.cpus.layout
        free, installed, unit = _of_sets(node.cpus.free), _of_sets(layout.installed), MILLICORES
        core = MILLICORES * (layout.per_core if node.cpus.options.full_pcpus_only else 1)
    elif name in node.devices:
        devices = node.devices[name]
        free, installed = _near_sets(devices.free), _near_sets(devices.installed)
    elif node.memory is not None and name in pinned_memory(pod, container):
        free, installed = _of_sets(node.memory.free(name)), _of_sets(node.memory.installed(name))
    requested = _amount(container, name)
    at_same_time = at_once(pod, lambda other: {name: _amount(other, name)}).get(name, 0)
    return Breakpoints(
        name=name,
        requested=requested,
        others=at_same_time - requested,
        core=core,
        room=node.left(name),
        free={size: frozenset(it * unit for it in amounts) for size, amounts in free.items()},
        installed={size: max(amounts) * unit for size, amounts in installed.items()},
    )


def _of_sets(amounts: Mapping[int, int]) -> _BySize:
    """Return the totals of all sets of NUMA nodes, of *amounts* by node.

    Of very many, the largest of each size of a set.
    """
    totals: dict[int, set[int]] = {0: {0}}
    for amount in amounts.values():
        for size in range(max(totals), -1, -1):
            larger = totals.setdefault(size + 1, set())
            larger |= {total + amount for total in totals[size]}
            if len(larger) > _MOST_TOTALS:
                totals[size + 1] = set(sorted(larger)[-_MOST_TOTALS:])
    del totals[0]
    return totals


def _near_sets(counts: Mapping[int, int]) -> _BySize:
    """Return the numbers of devices near all sets, of *counts* by the nodes of a device.

    Where a device is near several, all numbers that a set can be near.
    """
    near = {mask: count for mask, count in counts.items() if mask}
    if all(mask.bit_count() == 1 for mask in near):
        return _of_sets(near)
    return {1: set(range(1, sum(near.values()) + 1))}


def _amount(container: Container, name: str) -> int:
    return (container.requests or {}).get(name, 0)
