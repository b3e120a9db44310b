"""What the tests of the rules share: a node on which every rule passes, and one verdict."""

from collections.abc import Callable
from functools import cache

from msgspec.structs import replace

from nodetopo.checks.engine import Result, evaluate
from nodetopo.components.audit.catalogue import rule
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.host import HostSettings, Interrupts, RuntimeConfig, RuntimeProcess
from nodetopo.model.kubelet import KubeletMetrics, KubeletSettings, ReservedMemory
from nodetopo.model.kubelet_state import CpuState, DeviceState, KubeletState, MemoryState
from nodetopo.model.node import NodeStatus
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import Container, Pod, SharedMemory
from nodetopo.model.snapshot import Snapshot

GIB = 1 << 30
AMOUNTS = {"cpu": 16_000, "memory": 64 * GIB, "nvidia.com/gpu": 4}
TRAINER = Container(
    name="trainer",
    requests=AMOUNTS,
    limits=AMOUNTS,
    environment={},
    has_hidden_environment=False,
    is_privileged=False,
    capabilities=(),
    shared_memory=SharedMemory.MEMORY,
)
POD = Pod(
    namespace="ml",
    name="job-0",
    containers=(TRAINER,),
    uses_host_network=False,
    has_other_devices=False,
)
SETTINGS = KubeletSettings(
    source="/var/lib/kubelet/config.yaml",
    changed_since_start=(),
    unloaded_drop_ins=(),
    odd_keys=(),
    cpu_manager_policy="static",
    cpu_manager_options={"full-pcpus-only": "true", "strict-cpu-reservation": "true"},
    memory_manager_policy="Static",
    topology_manager_policy="single-numa-node",
    topology_manager_scope="container",
    topology_manager_options={},
    reserved_system_cpus="0,56,112,168",
    system_reserved={"memory": "2Gi"},
    kube_reserved={},
    eviction_hard={"memory.available": "100Mi"},
    reserved_memory=(ReservedMemory(numa_node=0, limits={"memory": "2148Mi"}),),
    feature_gates={},
    pod_pids_limit=-1,
    cgroup_driver="systemd",
)
STATE = KubeletState(
    cpu=CpuState(policy="static", default=CpuSet.parse("1-55,57-111,113-167,169-223"), entries={}),
    memory=MemoryState(policy="Static", entries={}),
    devices=DeviceState(registered={}),
    plugin_sockets=(),
)
METRICS = KubeletMetrics(rejections={}, topology_errors=0, slow_allocations={})
RIGHTS = {"get nodes/proxy": False, "create nodes/proxy": False}
HAS = {"cpu": 224_000, "memory": 2048 * GIB, "nvidia.com/gpu": 8}
NODE = NodeStatus(
    kubelet_version="v1.37.1", capacity=HAS, allocatable=HAS, labels={}, label_writers={}
)

HOST = HostSettings(
    cgroup_version=2,
    swaps=(),
    runtimes=(RuntimeProcess(name="containerd", memlock_bytes=-1, open_files=-1),),
    runtime_configs=(
        RuntimeConfig(
            name="containerd", path="/etc/containerd/config.toml", cdi=True, default_runtime="runc"
        ),
    ),
    cdi_specs=(),
    char_devices=True,
    idle_states=(),
    frequency_drivers=("intel_pstate",),
    energy_preferences=("performance",),
    is_vm=False,
    peer_programs=(),
    fabric_manager=True,
    gdrcopy=True,
)


def _host(snapshot: Snapshot) -> HostSettings:
    """Return a good host, whose HCAs interrupt the first CPU of their node."""
    first = {node.id: min(node.cpus, default=0) for node in snapshot.numa_nodes or ()}
    interrupts = (
        Interrupts(hca=hca.name, cpus=CpuSet.of([first[hca.numa_node]]), numbers=1)
        for hca in snapshot.hcas or ()
        if hca.numa_node is not None
    )
    nodes = [name for hca in snapshot.hcas or () for name in hca.char_devices]
    return replace(
        HOST,
        interrupts=tuple(interrupts),
        infiniband_devices=(*nodes, "rdma_cm") if nodes else (),
        interfaces=("eth0", "lo"),
    )


def _counting(hca: Hca) -> Hca:
    """Return *hca* with ports that have counted no error."""
    return replace(
        hca, ports=tuple(replace(port, counters={"symbol_error": 0}) for port in hca.ports)
    )


@cache
def healthy(name: str = "dgx-h100") -> Snapshot:
    """Return a bundled machine, complete with a good kubelet and a good pod."""
    bundled = machine(name)
    cpu = None if bundled.cpu is None else replace(bundled.cpu, isolated=CpuSet())
    return replace(
        bundled,
        cpu=cpu,
        host=_host(bundled),
        hcas=None if bundled.hcas is None else tuple(map(_counting, bundled.hcas)),
        kubelet=SETTINGS,
        kubelet_on_disk=SETTINGS,
        kubelet_state=STATE,
        kubelet_metrics=METRICS,
        agent_rights=RIGHTS,
        pods=(POD,),
        node_status=NODE,
    )


def result(code: str, snapshot: Snapshot) -> Result:
    """Return what becomes of the rule *code* on *snapshot*."""
    return evaluate(snapshot, (rule(code),)).results[0]


def with_gpu(snapshot: Snapshot, index: int, change: Callable[[Gpu], Gpu]) -> Snapshot:
    """Return *snapshot* with one GPU changed."""
    gpus = (change(gpu) if gpu.index == index else gpu for gpu in snapshot.gpus)
    return replace(snapshot, gpus=tuple(gpus))
