"""Rules on RDMA for pods: multi-node jobs request it, and can lock memory for it."""

from nodetopo.checks.inputs import adapters, missing_hcas, no_adapters, unknown_of
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.alignment.devices import DevicePlaces
from nodetopo.components.audit.rules.gpu_pods import container_name
from nodetopo.components.audit.rules.pods.inputs import (
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
from nodetopo.components.audit.rules.rdma_ports import is_efa
from nodetopo.model.hca import LinkLayer
from nodetopo.model.host import UNLIMITED
from nodetopo.model.kubernetes import size_text
from nodetopo.model.pod import Container, Pod
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.rails import layer_of

LOCKING = ("IPC_LOCK", "ALL")
"""Capabilities that lift the limit on locked memory (``capabilities(7)``)."""


@rule("POD-004", Severity.WARNING)
def spread_jobs(snapshot: Snapshot) -> Judgement:
    """Look for containers of spread jobs that cannot reach the node's HCAs."""
    if snapshot.hcas == ():
        yield Skip("no RDMA device")
        return
    yield from missing_of_gpu_pods(
        snapshot,
        "ways to the network",
        lambda pod, one: not is_spread(pod) or _reaches_hcas(pod, one) is not None,
    )
    yield from missing_hcas(snapshot)
    spread = [
        (pod, one, _reaches_hcas(pod, one)) for pod, one in with_gpus(snapshot) if is_spread(pod)
    ]
    hcas = snapshot.hcas or ()
    silent = [hca.name for hca in hcas if any(port.state is None for port in hca.ports)]
    if silent and not all(reaches for _, _, reaches in spread):
        yield Missing(f"port states of {listed(silent)}")
    network = network_hcas(snapshot)
    if not network or spans_nodes(snapshot):
        return
    ways = [name for name in offered(snapshot) or {} if is_rdma(name)]
    for pod, container, reaches in spread:
        if reaches is False:
            yield Finding(
                subject=container_name(pod, container),
                observed="no RDMA device, although the node has "
                f"{listed(hca.name for hca in network)}",
                expected=listed(sorted(ways)) or "a resource for RDMA devices",
            )


def _reaches_hcas(pod: Pod, container: Container) -> bool | None:
    """Return whether *container* may reach HCAs; any resource except GPUs could be one for them."""
    if others(container):
        return True
    ways = (pod.uses_host_network, container.is_privileged, pod.has_other_devices)
    if True in ways:
        return True
    return None if None in ways else False


@rule("POD-005", Severity.ERROR)
def locked_memory(snapshot: Snapshot) -> Judgement:
    """Look for containers with RDMA devices and a limit on locked memory."""
    if snapshot.hcas == ():
        yield Skip("no RDMA device")
        return
    limit = _memlock(snapshot)
    without_right = [
        (container_name(pod, container), _may_lock(container))
        for pod in jobs(snapshot)
        for container in pod.containers
        if any(map(is_rdma, others(container))) and not _may_lock(container)
    ]
    yield from missing_specs(snapshot)
    if limit == UNLIMITED:
        return
    if names := listed(name for name, may_lock in without_right if may_lock is None):
        yield Missing(f"capabilities of {names}")
    if limit is None:
        if without_right:
            yield Missing("locked memory of the container runtime")
        return
    for name, may_lock in without_right:
        if may_lock is False:
            yield Finding(
                subject=name,
                observed=f"no IPC_LOCK, and {size_text(limit)} of locked memory",
                expected="the capability IPC_LOCK, or unlimited locked memory",
            )


def _memlock(snapshot: Snapshot) -> int | None:
    """Return the least limit that a runtime gives containers, bytes; ``None`` if not known."""
    host = snapshot.host
    if host is None or not host.runtimes:
        return None
    configured = {config.name: config.memlock_bytes for config in host.runtime_configs or ()}
    limits = [
        runtime.memlock_bytes if configured.get(runtime.name) is None else configured[runtime.name]
        for runtime in host.runtimes
    ]
    finite = [limit for limit in limits if limit is not None and limit != UNLIMITED]
    if finite:
        return min(finite)
    return None if None in limits else UNLIMITED


def _may_lock(container: Container) -> bool | None:
    if container.is_privileged or set(LOCKING).intersection(container.capabilities or ()):
        return True
    is_known = container.is_privileged is not None and container.capabilities is not None
    return False if is_known else None


@rule("POD-012", Severity.WARNING)
def roce_networks(snapshot: Snapshot) -> Judgement:
    """Look for containers with RoCE HCAs in the network of pods alone.

    Where RDMA network namespaces are exclusive, HCAs are moved into pods or not there (PLG-007).
    """
    kernel = snapshot.kernel
    hcas = adapters(snapshot)
    unread = [hca.name for hca in hcas if layer_of(hca) is None and not is_efa(hca)]
    reason = no_adapters(snapshot)
    if reason is None and snapshot.hcas is not None and not unread:
        if not any(layer_of(hca) is LinkLayer.ETHERNET for hca in hcas):
            reason = "no RoCE HCA"
        elif kernel is not None and kernel.rdma_netns == "exclusive":
            reason = "RDMA network namespaces are exclusive"
    if reason:
        yield Skip(reason)
        return
    yield from missing_specs(snapshot)
    yield from missing_hcas(snapshot)
    places, known = DevicePlaces(snapshot), snapshot.hcas or ()
    for pod in jobs(snapshot) if known else ():
        for container in pod.containers:
            if not any(is_rdma(name) and "efa" not in name for name in others(container)):
                continue
            held = [hca.at for hca in places.hcas(container)]
            given = tuple(known[at] for at in held if at is not None) or hcas
            layers = {layer_of(hca) for hca in given}
            ways = (pod.uses_host_network, pod.has_other_devices)
            if True in ways or LinkLayer.INFINIBAND in layers:
                continue
            name = container_name(pod, container)
            if None in layers:
                yield from unknown_of(
                    "link layer", [hca.name for hca in given if not layer_of(hca)]
                )
            elif None in ways:
                yield Missing(f"networks of {name}")
            elif kernel is None or kernel.rdma_netns is None:
                yield Missing("mode of RDMA network namespaces")
            else:
                yield Finding(
                    subject=name,
                    observed=f"RoCE HCAs {listed(hca.name for hca in given)}, in the pods' network",
                    expected="the host's network, or a network with an interface of an HCA",
                )
