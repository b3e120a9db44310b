"""Pods that ask for a little more or less than one that was rejected."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from agent.admission.admission_amount import amount_text, unit_of
from agent.admission.admission_ends import ends_of
from agent.admission.admission_node import Node
from agent.admission.requests import amount_of, pinned_memory, whole_cpus
from agent.model.pod import Container, Pod

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
