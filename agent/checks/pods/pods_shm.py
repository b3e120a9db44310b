"""Rule on ``/dev/shm`` of containers with several GPUs."""

from agent.checks.gpu_pods import container_name
from agent.checks.pods.inputs import missing_of_gpu_pods, whole_gpus, with_gpus
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.pod import Container, SharedMemory
from agent.model.snapshot import Snapshot

MIB = 1 << 20
"""Bytes in a MiB."""

DEFAULT_BYTES = 64 * MIB
"""What runtimes give a pod of their own accord: ``defaultShmSize`` of containerd v2
(``internal/cri/server/podsandbox``), ``DefaultShmSize`` of CRI-O v1.34."""


def _small(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=f"{container_name(pod, container)} /dev/shm",
            observed=observed,
            expected=f"memory of more than {DEFAULT_BYTES // MIB} MiB",
        )
        for pod, container in with_gpus(snapshot)
        if whole_gpus(container) > 1 and (observed := _problem(container)) is not None
    )


def _problem(container: Container) -> str | None:
    size = container.shared_memory_bytes
    if container.shared_memory is SharedMemory.DEFAULT:
        return f"{DEFAULT_BYTES // MIB} MiB, the runtime's default"
    if container.shared_memory is SharedMemory.OTHER:
        return "a volume that is not in memory"
    if container.shared_memory is SharedMemory.MEMORY and size is not None:
        return f"{size // MIB} MiB" if size <= DEFAULT_BYTES else None
    return None


RULE = Rule(
    code="POD-006",
    claim="every container with several GPUs has a large /dev/shm",
    why="NCCL keeps buffers between processes there, and data loaders their batches: with 64 MiB "
    "jobs of several GPUs end in `unable to mmap` or a bus error.",
    area=Area.PODS,
    suite=Suite.AUDIT,
    severity=Severity.WARNING,
    needs=missing_of_gpu_pods(
        "shared memory", lambda _, one: whole_gpus(one) < 2 or one.shared_memory is not None
    ),
    check=_small,
    remedy="mount a volume `emptyDir: {medium: Memory}` at /dev/shm; it counts against the "
    "container's memory limit",
    reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
)
