"""The changes are the smallest there are, and each is enough: all amounts are tried beside them."""

import re
from collections.abc import Iterator
from random import Random

import pytest
from msgspec.structs import replace

from nodetopo.admission.admit import admit
from nodetopo.admission.suggestions import with_changes
from nodetopo.model.kubelet_state import CpuState
from nodetopo.model.kubernetes import quantity
from nodetopo.model.node import NodeStatus
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import Container, ContainerKind, Pod
from nodetopo.model.snapshot import Snapshot
from tests.admission.admission_node import GIB, GPU, container, node, pod, with_gpus_held
from tests.budget import cases

_CASES = cases(12, 100)
_MOST = {"cpu": 32, GPU: 8, "memory": 64}
"""Of the whole node; memory in GiB."""
_UNITS = {"cpu": 1000, GPU: 1, "memory": GIB}
_WORDS = {"cpu": "CPUs?", GPU: GPU, "memory": "of memory"}
_POLICIES = ("none", "best-effort", "restricted", "restricted", "single-numa-node")
_OPTIONS = ("full-pcpus-only", "distribute-cpus-across-numa", "align-by-socket")


def _random_node(random: Random) -> Snapshot:
    policy = random.choice(_POLICIES)
    options = {name: "true" for name in _OPTIONS if random.random() < 0.2}
    if policy == "single-numa-node":
        options.pop("align-by-socket", None)
    empty = node(
        topology_manager_policy=policy,
        topology_manager_scope=random.choice(("container", "pod")),
        cpu_manager_options=options,
    )
    return _with_room(random, _with_cpus_held(random, _with_gpus_held(random, empty)))


def _with_gpus_held(random: Random, empty: Snapshot) -> Snapshot:
    return with_gpus_held(empty, *random.sample(range(8), random.randrange(6)))


def _with_cpus_held(random: Random, seen: Snapshot) -> Snapshot:
    cores = random.sample(range(1, 16), random.randrange(12))
    taken = CpuSet.of(cpu for core in cores for cpu in (core, core + 16))
    assert seen.cpu is not None
    assert seen.kubelet_state is not None
    default = CpuSet(seen.cpu.online.cpus - taken.cpus)
    held = CpuState(policy="static", default=default, entries={"uid-other": {"work": taken}})
    return replace(seen, kubelet_state=replace(seen.kubelet_state, cpu=held))


def _with_room(random: Random, seen: Snapshot) -> Snapshot:
    if random.random() < 0.5:
        return seen
    sums = {"cpu": random.randint(8, 30) * 1000, "memory": random.randint(8, 60) * GIB, GPU: 8}
    return replace(seen, node_status=NodeStatus(allocatable=sums))


def _random_pod(random: Random) -> Pod:
    kinds = [ContainerKind.APP] * random.choice((1, 1, 2))
    if random.random() < 0.2:
        kinds.insert(0, random.choice((ContainerKind.INIT, ContainerKind.SIDECAR)))
    return pod(
        "job",
        *(
            container(
                f"c{number}",
                gpus=random.randint(0, 8),
                cpus=random.randint(1, 24),
                gib=random.randint(1, 48),
                kind=kind,
            )
            for number, kind in enumerate(kinds)
        ),
    )


def _with(asked: Pod, name: str, resource: str, amount: int) -> Pod:
    containers = (
        replace(
            one,
            requests={**(one.requests or {}), resource: amount},
            limits={**(one.limits or {}), resource: amount},
        )
        if one.name == name
        else one
        for one in asked.containers
    )
    return replace(asked, containers=tuple(containers))


def _is_admitted(seen: Snapshot, asked: Pod) -> bool:
    return bool(admit(seen, [asked]).pods[0].admitted)


def _rejected(number: int) -> Iterator[tuple[Snapshot, Pod, tuple[str, ...]]]:
    random = Random(number)
    seen, asked = _random_node(random), _random_pod(random)
    first = admit(seen, [asked])
    if first.pods[0].admitted is False:
        yield seen, asked, with_changes(seen, first, [asked]).pods[0].changes


@pytest.mark.parametrize("number", range(_CASES))
def test_every_change_alone_is_enough(number: int) -> None:
    for seen, asked, changes in _rejected(number):
        for change in changes:
            assert _is_admitted(*_applied(seen, asked, change)), change


def _applied(seen: Snapshot, asked: Pod, changes: str) -> tuple[Snapshot, Pod]:
    """Do what a person would who reads a change, or two."""
    container = ""
    for change in changes.split(", and "):
        container = change.partition(": ")[0] if change.startswith("container ") else container
        named = change if change.startswith(("container ", "the ")) else f"{container}: {change}"
        seen, asked = _with_one(seen, asked, named)
    return seen, asked


def _with_one(seen: Snapshot, asked: Pod, change: str) -> tuple[Snapshot, Pod]:
    if change.startswith("the kubelet's "):
        return _with_settings(seen, change), asked
    found = re.fullmatch(r"container (\S+): (.*) instead of .*", change)
    assert found, change
    for part in found[2].split(" and "):
        amount, _, unit = part.partition(" ")
        resource = next(it for it, words in _WORDS.items() if re.fullmatch(words, unit))
        per_unit = 1000 if resource == "cpu" else 1
        asked = _with(asked, found[1], resource, quantity(amount, per_unit=per_unit))
    return seen, asked


def _with_settings(seen: Snapshot, change: str) -> Snapshot:
    assert seen.kubelet is not None
    word = change.split()[3]
    if "topologyManagerScope" in change:
        return replace(seen, kubelet=replace(seen.kubelet, topology_manager_scope=word))
    if "topologyManagerPolicy" in change:
        return replace(seen, kubelet=replace(seen.kubelet, topology_manager_policy=word))
    options = dict(seen.kubelet.cpu_manager_options or {})
    del options[change.rpartition(" ")[2]]
    return replace(seen, kubelet=replace(seen.kubelet, cpu_manager_options=options))


_FAR = {"cpu": 34, GPU: 9, "memory": 70}
"""More than the node has; memory in GiB."""


@pytest.mark.parametrize("number", range(1, _CASES, 2))
def test_no_smaller_pair_of_amounts_is_enough(number: int) -> None:
    """Two resources are beyond the machine, so that no single change is enough."""
    random = Random(number)
    seen = _random_node(random)
    first, second = random.sample(sorted(_FAR), 2)
    amounts = {
        first: _FAR[first] * _UNITS[first],
        second: (_FAR[second] + random.randint(0, 4)) * _UNITS[second],
    }
    asked = pod("job", replace(container(), requests=amounts, limits=amounts))
    changes = with_changes(seen, admit(seen, [asked]), [asked]).pods[0].changes

    for change in changes:
        assert _is_admitted(*_applied(seen, asked, change)), change

    def size(pod: Pod) -> float:
        requests = pod.containers[0].requests or {}
        return sum(1 - requests[name] / amounts[name] for name in amounts)

    offered = [it for it in changes if "the kubelet" not in it]
    least = min((size(_applied(seen, asked, it)[1]) for it in offered), default=2.0)
    smaller = (
        _with(_with(asked, "work", first, one), "work", second, other)
        for one in range(_UNITS[first], amounts[first], _UNITS[first])
        for other in range(_UNITS[second], amounts[second], _UNITS[second])
        if 2 - one / amounts[first] - other / amounts[second] < least - 1e-9
    )
    assert not [pod.containers for pod in smaller if _is_admitted(seen, pod)], changes


@pytest.mark.parametrize("number", range(_CASES))
def test_no_smaller_change_of_one_amount_is_enough(number: int) -> None:
    for seen, asked, changes in _rejected(number):
        for one in asked.containers:
            for resource in one.requests or {}:
                assert _proposed(changes, one, resource) == _nearest(seen, asked, one, resource)


def _proposed(changes: tuple[str, ...], one: Container, resource: str) -> set[int]:
    """Return the amounts that *changes* propose, whole CPUs, GiB and devices."""
    pattern = re.compile(rf"container {one.name}: (\d+)(?:Gi)? {_WORDS[resource]} instead of \w+")
    return {int(found[1]) for change in changes if (found := pattern.fullmatch(change))}


def _nearest(seen: Snapshot, asked: Pod, one: Container, resource: str) -> set[int]:
    """Return the nearest lower and the nearest higher amount that would do."""
    unit = _UNITS[resource]
    now = (one.requests or {})[resource] // unit
    orders = (range(now - 1, 0, -1), range(now + 1, _MOST[resource] + 1))
    found = (
        next(
            (it for it in order if _is_admitted(seen, _with(asked, one.name, resource, it * unit))),
            None,
        )
        for order in orders
    )
    return {it for it in found if it is not None}
