"""The amounts of one resource at which the kubelet's answer to a container changes.

It changes at few amounts only: at what a set of NUMA nodes has free, and at what the largest sets
of each size have installed, beyond which a request is one of more nodes. The nearest amount that
would do is one of these or the next beyond, and no others need be tried.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agent.admission.admission_amount import grain_of
from agent.admission.admission_node import Node
from agent.admission.admission_room import left
from agent.admission.requests import amount_of, is_pinned, pinned_memory, whole_cpus
from agent.model.pod import Container, Pod
from agent.model.pod_amounts import at_once
from agent.model.quantity import MILLICORES

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
