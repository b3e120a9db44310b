"""Random cases: settings, devices and pods that come and go."""

from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from nodetopo.model.pod import Container, ContainerKind, Pod
from tests.lab.admission_case import GPU, NIC, Case, Device
from tests.lab.admission_machine import GIB, Machine, random_machine, wide_machine

_POLICIES = ("none", "best-effort", "restricted", "restricted", "single-numa-node")
_ALONE = "distribute-cpus-across-cores"
_CPU_OPTIONS = (
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "align-by-socket",
    _ALONE,
    "strict-cpu-reservation",
    "prefer-align-cpus-by-uncorecache",
)
_MOST_NODES = 5
"""NUMA nodes up to which all managers are asked at once: the kubelet walks the product of their
hints, which takes minutes for four resources of eight nodes."""
_MOST_PINNED = 12
"""NUMA nodes up to which the Memory Manager goes through their sets in milliseconds."""


def random_case(random: Random, *, steps: int = 6) -> Case:
    """Return a case with *steps* pods that come, and some that leave between them."""
    machine = random_machine(random)
    return _case(random, machine, steps, pins_memory=len(machine.nodes) <= _MOST_NODES)


def wide_case(random: Random, *, steps: int = 4) -> Case:
    """Return a case on a machine of more than 8 NUMA nodes that the kubelet copes with.

    Devices are on the first nodes only, and none on one that is not there: the kubelet then goes
    through the sets of all nodes.
    """
    machine = wide_machine(random)
    with_cpus = sum(len(node.cpus) > 0 for node in machine.nodes)
    is_narrow = len(machine.nodes) <= _MOST_PINNED and with_cpus <= _MOST_NODES
    case = _case(random, machine, steps, pins_memory=is_narrow)
    options = {**case.topology_options, "max-allowable-numa-nodes": str(len(machine.nodes))}
    devices = tuple(
        one for one in case.devices if all(0 <= it < _MOST_NODES for it in one.nodes or ())
    )
    return replace(case, topology_options=options, devices=devices)


def _case(random: Random, machine: Machine, steps: int, *, pins_memory: bool) -> Case:
    topology = random.choice(_POLICIES)
    cpu = random.choice(("static", "static", "static", "none"))
    case = Case(
        machine=machine,
        topology=topology,
        scope=random.choice(("container", "pod")),
        topology_options=_topology_options(random, machine),
        cpu=cpu,
        cpu_options=_cpu_options(random, machine, topology) if cpu == "static" else {},
        memory=random.choice(("Static", "Static", "None")) if pins_memory else "None",
        devices=tuple(_devices(random, machine)),
    )
    reserved_cpus, reserved_cpu = _reserved(random, machine)
    case = replace(case, reserved_cpus=reserved_cpus, reserved_cpu=reserved_cpu)
    return replace(case, steps=tuple(_steps(random, case, steps)))


def _topology_options(random: Random, machine: Machine) -> dict[str, str]:
    ids = [node.id for node in machine.nodes]
    is_dense = ids == list(range(len(ids)))
    return {"prefer-closest-numa-nodes": "true"} if is_dense and random.random() < 0.3 else {}


def _cpu_options(random: Random, machine: Machine, topology: str) -> dict[str, str]:
    chosen = {one for one in _CPU_OPTIONS if random.random() < 0.25}
    nodes = {core.node for core in machine.cores}
    if topology == "single-numa-node" or len(machine.cpu.sockets) > len(nodes):
        chosen.discard("align-by-socket")
    if _ALONE in chosen:
        chosen -= {"full-pcpus-only", "distribute-cpus-across-numa"}
    if chosen & {_ALONE, "distribute-cpus-across-numa"}:
        chosen.discard("prefer-align-cpus-by-uncorecache")
    return dict.fromkeys(sorted(chosen), "true")


def _reserved(random: Random, machine: Machine) -> tuple[str, str]:
    """Return which CPUs are reserved, empty for those that the kubelet takes, and how many."""
    cpus = sorted(machine.cpu.online)
    if random.random() < 0.5:
        chosen = sorted(random.sample(cpus, random.choice((1, 1, 2))))
        return ",".join(map(str, chosen)), str(len(chosen))
    return "", random.choice(("500m", "1", "1500m", "2"))


def _devices(random: Random, machine: Machine) -> Iterator[Device]:
    ids = [node.id for node in machine.nodes if len(node.cpus)]
    for resource, most in ((GPU, 8), (NIC, 4))[: 2 if len(machine.nodes) <= _MOST_NODES else 1]:
        style = random.choice(("each", "each", "each", "some", "none", "several", "minus"))
        hosts = random.sample(ids, random.randint(1, len(ids))) if style == "some" else ids
        for number in range(random.randint(1, most)):
            near: tuple[int, ...] | None = (hosts[number % len(hosts)],)
            if style == "several":
                near = tuple(sorted(random.sample(ids, min(2, len(ids)))))
            elif style == "none" or (style == "minus" and random.random() < 0.3):
                near = random.choice((None, (-1,))) if style == "minus" else None
            # Of broken devices that no pod has, only GPUs are known, by NVML.
            is_healthy = resource != GPU or style != "each" or random.random() < 0.9
            yield Device(resource, f"{resource[:1]}{number:02}", near, is_healthy)


def _steps(random: Random, case: Case, count: int) -> Iterator[Pod | str]:
    here: list[str] = []
    for number in range(count):
        if here and random.random() < 0.25:
            yield here.pop(random.randrange(len(here)))
        pod = random_pod(random, case, f"pod-{number}")
        here.append(str(pod.uid))
        yield pod


def random_pod(random: Random, case: Case, name: str) -> Pod:
    """Return a pod whose containers ask for a random part of the machine of *case*."""
    kinds = [ContainerKind.APP] * random.choice((1, 1, 1, 2, 3))
    kinds = (
        [random.choice((ContainerKind.INIT, ContainerKind.SIDECAR)), *kinds]
        if random.random() < 0.3
        else kinds
    )
    is_guaranteed = random.random() < 0.85
    containers: list[Container] = []
    left: dict[str, int] = {}
    for number, kind in enumerate(kinds):
        amounts = _amounts(random, case, is_guaranteed=is_guaranteed)
        for resource in (GPU, NIC):
            if amounts.get(resource):  # see is_settled
                amounts[resource] = max(amounts[resource], left.get(resource, 0))
                left[resource] = amounts[resource] if kind is ContainerKind.INIT else 0
        containers.append(Container(name=f"c{number}", kind=kind, requests=amounts, limits=amounts))
    pod = Pod(namespace="default", name=name, uid=f"uid-{name}", containers=tuple(containers))
    return _as_a_whole(pod) if random.random() < 0.05 else pod


def _as_a_whole(pod: Pod) -> Pod:
    total = {
        name: sum((one.requests or {}).get(name, 0) for one in pod.containers)
        for name in ("cpu", "memory")
    }
    return replace(pod, requests=total, limits=total)


def _amounts(random: Random, case: Case, *, is_guaranteed: bool) -> dict[str, int]:
    cpus, nodes = len(case.machine.cpu.online), len(case.machine.nodes)
    most = max(cpus * random.choice((1, 1, 2, nodes)) // (2 * nodes), 1)
    amounts = {"cpu": random.randint(1, most) * 1000}
    if random.random() < 0.15:
        amounts["cpu"] += 500
    elif random.random() < 0.5:
        amounts["cpu"] += amounts["cpu"] % 2000
    gib = (case.machine.nodes[0].memory_mib or 0) >> 10
    amounts["memory"] = random.randint(1, max(gib * random.choice((1, 1, 1, 3)) // 2, 1)) * GIB
    if any(it.total for it in case.machine.nodes[0].hugepages) and random.random() < 0.3:
        amounts[random.choice(("hugepages-2Mi", "hugepages-1Gi"))] = random.randint(1, 3) * GIB
    for resource in (GPU, NIC):
        installed = sum(device.resource == resource for device in case.devices)
        if random.random() < 0.6:
            amounts[resource] = random.randint(1, max(installed * random.choice((1, 1, 2)) // 2, 1))
    if not is_guaranteed:
        del amounts[random.choice(("cpu", "memory"))]
    return amounts
