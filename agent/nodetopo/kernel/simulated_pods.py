"""Pods of a simulated machine: the embedded kubelet allocates their GPUs as a kubelet would.

They exist in this process alone, in the namespace ``simulated``.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.deviceplugin.fake_kubelet import FakeKubelet, ResourceView
from nodetopo.model.kubelet_state import HeldDevices, HeldMemory, KubeletState
from nodetopo.model.kubernetes import GPU_RESOURCE, MILLICORES
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedDevices, AssignedMemory, Container, Pod, SharedMemory
from nodetopo.model.snapshot import Snapshot

NAMESPACE = "simulated"

CONTAINER = "main"

CPUS_PER_GPU = 8
"""Exclusive CPUs of a pod that has some, for each GPU."""

MEMORY_PER_GPU = 64 << 30
"""Bytes that the Memory Manager pins, for each GPU."""


class _Order(Struct, frozen=True, kw_only=True):
    """A pod to be placed: its GPUs, and whether it asks for exclusive CPUs."""

    name: str
    gpus: int
    is_guaranteed: bool = True


def orders(count: int) -> tuple[_Order, ...]:
    """Return the pods for *count* GPUs; about half of the GPUs stay free.

    The notebook is not Guaranteed, so its CPUs and memory can be on another NUMA node.
    """
    wanted = (
        _Order(name="trainer-0", gpus=max(1, count // 4)),
        _Order(name="server-0", gpus=1),
        _Order(name="notebook-0", gpus=1, is_guaranteed=False),
    )
    chosen: list[_Order] = []
    for order in wanted:
        if sum(one.gpus for one in chosen) + order.gpus <= max(1, count // 2):
            chosen.append(order)
    return tuple(chosen)


class SimulatedPods:
    """Places the pods at the first call of :meth:`read`; any thread can call it."""

    def __init__(self, kubelet: FakeKubelet) -> None:
        """Place nothing yet."""
        self._kubelet = kubelet
        self._lock = threading.Lock()
        self._given: Mapping[_Order, tuple[str, ...]] | None = None

    def read(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with the pods, and with the state of a kubelet that runs them.

        Without a device plugin none runs, as before its registration, or where it is refused.

        Raises:
            UnreadableError: the device plugin refuses an allocation.
        """
        with self._lock:
            view = self._kubelet.view(GPU_RESOURCE)
            if self._given is None and view is not None:
                self._given = self._allocated(view)
            given = self._given or {}
        pods = tuple(_pods(snapshot, given))
        return replace(snapshot, pods=pods, kubelet_state=_state(snapshot, pods))

    def _allocated(self, view: ResourceView) -> Mapping[_Order, tuple[str, ...]]:
        """Ask the plugin for the devices of every pod."""
        free = [device.id for device in view.devices if device.is_healthy]
        given: dict[_Order, tuple[str, ...]] = {}
        for order in orders(len(free)) if free else ():
            ids = self._kubelet.preferred(order.gpus, free)
            self._kubelet.allocate(ids)
            free = [name for name in free if name not in ids]
            given[order] = ids
        return given


def _pods(snapshot: Snapshot, given: Mapping[_Order, Sequence[str]]) -> Iterator[Pod]:
    kubelet, offer = snapshot.kubelet, snapshot.offer
    places = _places(snapshot)
    cpus_of = {node.id: node.cpus for node in snapshot.numa_nodes or ()}
    has_static = kubelet is not None and kubelet.cpu_manager_policy == "static"
    pins = kubelet is not None and kubelet.memory_manager_policy == "Static"
    free = frozenset() if offer is None or offer.cpus is None else offer.cpus.cpus
    for order, ids in given.items():
        nodes = tuple(sorted({node for name in ids for node in places.get(name, ())}))
        cpus: frozenset[int] = frozenset()
        if order.is_guaranteed and has_static:
            near = sorted(free & {cpu for node in nodes for cpu in cpus_of[node].cpus})
            cpus = frozenset(near[: CPUS_PER_GPU * len(ids)])
            free -= cpus
        memory: tuple[AssignedMemory, ...] = ()
        if order.is_guaranteed and pins and nodes:
            size = MEMORY_PER_GPU * len(ids)
            memory = (AssignedMemory(kind="memory", size_bytes=size, numa_nodes=nodes),)
        yield _pod(order, tuple(ids), CpuSet(cpus=cpus), memory)


def _pod(
    order: _Order, ids: tuple[str, ...], cpus: CpuSet, memory: tuple[AssignedMemory, ...]
) -> Pod:
    """Return the pod with its spec, so that no check lacks an input."""
    requests = {
        GPU_RESOURCE: len(ids),
        "cpu": CPUS_PER_GPU * len(ids) * MILLICORES,
        "memory": MEMORY_PER_GPU * len(ids),
    }
    extended = {GPU_RESOURCE: len(ids)}
    return Pod(
        namespace=NAMESPACE,
        name=order.name,
        uid=f"simulated-{order.name}",
        phase="Running",
        qos_class="Guaranteed" if order.is_guaranteed else "Burstable",
        uses_host_network=False,
        uses_host_ipc=False,
        uses_host_pid=False,
        has_other_devices=False,
        containers=(
            Container(
                name=CONTAINER,
                requests=requests,
                limits=requests if order.is_guaranteed else extended,
                devices=(AssignedDevices(resource=GPU_RESOURCE, ids=ids),),
                cpus=cpus,
                memory=memory,
                environment={},
                has_hidden_environment=False,
                is_privileged=False,
                capabilities=(),
                shared_memory=SharedMemory.MEMORY,
                throttled=0,
            ),
        ),
    )


def _places(snapshot: Snapshot) -> Mapping[str, Sequence[int]]:
    """Return the NUMA nodes of each device by its id."""
    devices = () if snapshot.offer is None else snapshot.offer.devices
    return {device.id: device.numa_nodes for device in devices}


def _state(snapshot: Snapshot, pods: Sequence[Pod]) -> KubeletState | None:
    """Return the state files of a kubelet that runs *pods*; parts that are unknown stay so."""
    state = snapshot.kubelet_state
    if state is None:
        return None
    cpu, memory, devices = state.cpu, state.memory, state.devices
    places = _places(snapshot)
    running = [(pod.uid or "", pod.containers[0]) for pod in pods]
    if cpu is not None and cpu.default is not None:
        entries = {uid: {CONTAINER: one.cpus} for uid, one in running if one.cpus}
        taken = {number for held in entries.values() for number in held[CONTAINER].cpus}
        cpu = replace(cpu, default=CpuSet(cpus=cpu.default.cpus - taken), entries=entries)
    if memory is not None:
        held = {
            uid: {
                CONTAINER: tuple(
                    HeldMemory(kind=part.kind, size=part.size_bytes, numa_nodes=part.numa_nodes)
                    for part in one.memory
                )
            }
            for uid, one in running
            if one.memory
        }
        blocks = []
        for block in memory.blocks:
            size = sum(
                part.size // len(part.numa_nodes)
                for parts in held.values()
                for part in parts[CONTAINER]
                if part.kind == block.kind and block.numa_node in part.numa_nodes
            )
            blocks.append(replace(block, reserved=block.reserved + size, free=block.free - size))
        memory = replace(memory, blocks=tuple(blocks), entries=held)
    if devices is not None:
        devices = replace(
            devices,
            held=tuple(
                HeldDevices(
                    pod_uid=uid,
                    container=CONTAINER,
                    resource=GPU_RESOURCE,
                    ids=_by_node(one.devices[0].ids, places) if one.devices else {},
                )
                for uid, one in running
            ),
        )
    return replace(state, cpu=cpu, memory=memory, devices=devices)


def _by_node(
    ids: Sequence[str], places: Mapping[str, Sequence[int]]
) -> Mapping[str, tuple[str, ...]]:
    by_node: dict[str, tuple[str, ...]] = {}
    for name in ids:
        node = str(next(iter(places.get(name, ())), -1))
        by_node[node] = (*by_node.get(node, ()), name)
    return by_node
