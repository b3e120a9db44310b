"""Rules on RDMA for pods: jobs over several nodes have it, and may pin memory for it."""

from agent.checks.gpu_pods import container_name
from agent.checks.inputs import Inputs, because
from agent.checks.pods.inputs import (
    is_rdma,
    is_spread,
    jobs,
    listed,
    missing_of_gpu_pods,
    missing_specs,
    network_hcas,
    offered,
    others,
    spans_nodes,
    with_gpus,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.pod import Container, Pod
from agent.model.snapshot import Snapshot

UNLIMITED = -1
"""A limit that is none (:class:`agent.model.host.RuntimeProcess`)."""

LOCKING = ("IPC_LOCK", "ALL")
"""Capabilities that lift the limit on locked memory (``capabilities(7)``)."""

KIB = 1024
"""Bytes in a KiB."""


def _without_rdma(snapshot: Snapshot) -> tuple[Finding, ...]:
    found = network_hcas(snapshot)
    if not found or spans_nodes(snapshot):
        return ()
    ways = [name for name in offered(snapshot) or {} if is_rdma(name)]
    return tuple(
        Finding(
            subject=container_name(pod, container),
            observed=f"no RDMA device, beside {listed(hca.name for hca in found)}",
            expected=listed(sorted(ways)) or "a resource for RDMA devices",
        )
        for pod, container in with_gpus(snapshot)
        if is_spread(pod) and _reaches_hcas(pod, container) is False
    )


def _reaches_hcas(pod: Pod, container: Container) -> bool | None:
    """Return whether *container* may reach HCAs; any resource but GPUs may be one for them."""
    if others(container):
        return True
    ways = (pod.uses_host_network, container.is_privileged, pod.has_other_devices)
    if True in ways:
        return True
    return None if None in ways else False


_ways = missing_of_gpu_pods(
    "ways to the network",
    lambda pod, one: not is_spread(pod) or _reaches_hcas(pod, one) is not None,
)


def _missing_ways(snapshot: Snapshot) -> Inputs:
    if snapshot.hcas is None:
        return (*_ways(snapshot), f"HCAs{because(snapshot, 'rdma')}")
    is_asked = any(
        is_spread(pod) and not _reaches_hcas(pod, one) for pod, one in with_gpus(snapshot)
    )
    silent = [hca.name for hca in snapshot.hcas if any(port.state is None for port in hca.ports)]
    ports = (f"port states of {listed(silent)}",) if is_asked and silent else ()
    return (*_ways(snapshot), *ports)


def _has_no_hcas(snapshot: Snapshot) -> str | None:
    return "no RDMA device" if snapshot.hcas == () else None


def _unlocked(snapshot: Snapshot) -> tuple[Finding, ...]:
    limit = _memlock(snapshot)
    if limit is None or limit == UNLIMITED:
        return ()
    return tuple(
        Finding(
            subject=container_name(pod, container),
            observed=f"no IPC_LOCK, and {limit // KIB} KiB of locked memory",
            expected="the capability IPC_LOCK, or unlimited locked memory",
        )
        for pod in jobs(snapshot)
        for container in pod.containers
        if _pins_memory(container) and _may_lock(container) is False
    )


def _memlock(snapshot: Snapshot) -> int | None:
    """Return the least limit that a runtime hands to containers, bytes; ``None``: not known."""
    host = snapshot.host
    if host is None or not host.runtimes:
        return None
    given = {one.name: one.memlock_bytes for one in host.runtime_configs or ()}
    own = {one.name: one.memlock_bytes for one in host.runtimes}
    limits = [limit if given.get(name) is None else given[name] for name, limit in own.items()]
    known = [limit for limit in limits if limit is not None and limit != UNLIMITED]
    if known:
        return min(known)
    return None if None in limits else UNLIMITED


def _pins_memory(container: Container) -> bool:
    return any(map(is_rdma, others(container)))


def _may_lock(container: Container) -> bool | None:
    if container.is_privileged or set(LOCKING).intersection(container.capabilities or ()):
        return True
    is_known = container.is_privileged is not None and container.capabilities is not None
    return False if is_known else None


def _missing_limits(snapshot: Snapshot) -> Inputs:
    unsure = [
        (container_name(pod, one), _may_lock(one))
        for pod in jobs(snapshot)
        for one in pod.containers
        if _pins_memory(one) and not _may_lock(one)
    ]
    names = listed(name for name, may in unsure if may is None)
    capabilities = (f"capabilities of {names}",) if names else ()
    if unsure and _memlock(snapshot) is None:
        return (*missing_specs(snapshot), *capabilities, "locked memory of the container runtime")
    is_limited = _memlock(snapshot) != UNLIMITED
    return (*missing_specs(snapshot), *(capabilities if is_limited else ()))


RULES: tuple[Rule, ...] = (
    Rule(
        code="POD-004",
        claim="every job over several nodes can use their HCAs",
        why="Without RDMA devices NCCL goes through TCP of the pod network, at a tenth of the "
        "bandwidth or less, and through host memory.",
        area=Area.PODS,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_ways,
        check=_without_rdma,
        skips=_has_no_hcas,
        remedy="ask for the node's RDMA resource in every container with GPUs, as `resources."
        "limits: {rdma/hca: 1}` does with NVIDIA's shared device plugin; with `hostNetwork: true` "
        "alone a container has no /dev/infiniband, unless it is privileged",
        reference="https://github.com/Mellanox/k8s-rdma-shared-dev-plugin",
    ),
    Rule(
        code="POD-005",
        claim="every container with RDMA devices may lock memory",
        why="Memory that an HCA reads or writes is locked; beyond the limit NCCL fails with "
        "`ibv_reg_mr failed` or `ibv_create_qp failed`.",
        area=Area.PODS,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_missing_limits,
        check=_unlocked,
        skips=_has_no_hcas,
        remedy="add `IPC_LOCK` to `securityContext.capabilities.add` of the container, or set "
        "`LimitMEMLOCK=infinity` for the container runtime's service and restart it",
        reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
)
