"""What the tests of the rules share: a node on which every rule passes, and one verdict."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from agent.checks.catalogue import rule
from agent.checks.engine import Result, evaluate
from agent.machines.bundled import machine
from agent.model.gpu import Gpu
from agent.model.kubelet import KubeletSettings
from agent.model.pod import Container, Pod
from agent.model.snapshot import Snapshot

GIB = 1 << 30
AMOUNTS = {"cpu": 16_000, "memory": 64 * GIB, "nvidia.com/gpu": 4}
TRAINER = Container(name="trainer", requests=AMOUNTS, limits=AMOUNTS)
POD = Pod(namespace="ml", name="job-0", containers=(TRAINER,))
SETTINGS = KubeletSettings(
    source="/var/lib/kubelet/config.yaml",
    cpu_manager_policy="static",
    memory_manager_policy="Static",
    topology_manager_policy="single-numa-node",
    topology_manager_scope="container",
)


@cache
def healthy(name: str = "dgx-h100") -> Snapshot:
    """Return a bundled machine, complete with a good kubelet and a good pod."""
    return replace(machine(name), kubelet=SETTINGS, pods=(POD,))


def result(code: str, snapshot: Snapshot) -> Result:
    """Return what becomes of the rule *code* on *snapshot*."""
    return evaluate(snapshot, (rule(code),)).results[0]


def with_gpu(snapshot: Snapshot, index: int, change: Callable[[Gpu], Gpu]) -> Snapshot:
    """Return *snapshot* with one GPU changed."""
    gpus = (change(gpu) if gpu.index == index else gpu for gpu in snapshot.gpus)
    return replace(snapshot, gpus=tuple(gpus))
