"""What the tests of the rules on pods share: a pod with GPUs, and what becomes of it."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.host import HostSettings, RuntimeProcess
from nodetopo.model.pod import Container, Pod
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import AMOUNTS, POD, TRAINER, healthy, result

MEMLOCK = 8 << 20
"""What the kernel lets a process lock by default since 5.16, bytes."""


def trainer(
    amounts: Mapping[str, int] | None = None,
    *,
    env: Mapping[str, str | None] | None = None,
    **changes: Any,
) -> Container:
    """Return the container of the good pod, with *amounts* beside its own and *env*."""
    every = {**AMOUNTS, **(amounts or {})}
    found = replace(TRAINER, requests=every, limits=every, environment=dict(env or {}))
    return replace(found, **changes)


def pod(*containers: Container, **changes: Any) -> Pod:
    """Return the good pod with *containers*."""
    return replace(POD, containers=containers or (TRAINER,), **changes)


def job(*containers: Container, index: int = 1, **changes: Any) -> Pod:
    """Return a worker of a PyTorchJob."""
    return pod(*containers, name=f"job-worker-{index}", owner_kind="PyTorchJob", **changes)


def on_host(env: Mapping[str, str | None], *, is_privileged: bool = True) -> Pod:
    """Return a worker in the host's network, which asks for no RDMA device."""
    return job(trainer(env=env, is_privileged=is_privileged), uses_host_network=True)


def node(*pods: Pod, machine: str = "dgx-h100", **changes: Any) -> Snapshot:
    """Return a good node with *pods*."""
    return replace(healthy(machine), pods=pods, **changes)


def found(code: str, snapshot: Snapshot) -> list[tuple[str, str, str]]:
    """Return the findings of *code*: subject, observed and expected."""
    findings = result(code, snapshot).findings
    return [(one.subject, one.observed, one.expected) for one in findings]


def observed(code: str, snapshot: Snapshot) -> list[str]:
    """Return what *code* observed."""
    return [one for _, one, _ in found(code, snapshot)]


def verdict(code: str, snapshot: Snapshot) -> Verdict:
    """Return what becomes of *code*."""
    return result(code, snapshot).verdict


def missing(code: str, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what *code* lacks."""
    return result(code, snapshot).missing


def runtimes(limits: Iterable[int | None]) -> HostSettings:
    """Return a host whose runtimes have these limits on locked memory."""
    return HostSettings(
        runtimes=tuple(
            RuntimeProcess(name=f"containerd{number}", memlock_bytes=limit)
            for number, limit in enumerate(limits)
        ),
    )
