"""Rules on devices as the kubelet has them from device plugins."""

from collections.abc import Iterator, Mapping

from agent.checks.inputs import (
    Inputs,
    because,
    missing_numa_nodes,
    one_numa_node,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.node import NodeStatus
from agent.model.snapshot import Snapshot

_STATUS = "the Node object"
_NO_NODE = "-1"
"""The checkpoint's key of devices whose plugin told no NUMA node
(1.36 pkg/kubelet/cm/devicemanager/pod_devices.go, nodeWithoutTopology)."""
_SLOW_SHARE = 0.01
"""Above it the 99th percentile of ``Allocate`` is longer than a second."""
_PLUGINS = (
    "https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/"
)
_ISSUES = "https://github.com/kubernetes/kubernetes/issues"


def _devices(amounts: Mapping[str, int] | None) -> dict[str, int]:
    """Return of *amounts* those of device plugins, whose names have a domain of their own."""
    return {
        name: count
        for name, count in (amounts or {}).items()
        if "/" in name and not name.partition("/")[0].endswith("kubernetes.io")
    }


def _needs_status(snapshot: Snapshot) -> Inputs:
    status = snapshot.node_status
    is_known = status is not None and None not in (status.capacity, status.allocatable)
    return () if is_known else (_STATUS + because(snapshot, "node"),)


def _no_devices(snapshot: Snapshot) -> str | None:
    status = snapshot.node_status
    is_known = status is not None and status.capacity is not None
    if is_known and status is not None and not _devices(status.capacity):
        return "no device plugin has registered"
    return None


def _pairs(status: NodeStatus | None) -> Iterator[tuple[str, int, int]]:
    if status is None or status.capacity is None or status.allocatable is None:
        return
    for name, count in _devices(status.capacity).items():
        if count > 0:
            yield name, count, status.allocatable.get(name, 0)


def _none_left(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(subject=name, observed=f"0 of {count} allocatable", expected="devices to give out")
        for name, count, left in _pairs(snapshot.node_status)
        if left == 0
    )


def _unhealthy(snapshot: Snapshot) -> tuple[Finding, ...]:
    return (*_fewer(snapshot), *_sick(snapshot))


def _fewer(snapshot: Snapshot) -> Iterator[Finding]:
    for name, count, left in _pairs(snapshot.node_status):
        if 0 < left < count:
            observed = f"{left} of {count} allocatable"
            yield Finding(subject=name, observed=observed, expected="all of them healthy")


def _sick(snapshot: Snapshot) -> Iterator[Finding]:
    for pod in snapshot.pods or ():
        for container in pod.containers:
            for device in container.unhealthy_devices or ():
                yield Finding(
                    subject=f"{pod.namespace}/{pod.name} container {container.name}",
                    observed=f"device {device} is not Healthy",
                    expected="Healthy",
                )


def _needs_places(snapshot: Snapshot) -> Inputs:
    state = snapshot.kubelet_state.devices if snapshot.kubelet_state else None
    is_known = snapshot.offer is not None or state is not None
    devices = () if is_known else (f"devices of the kubelet{because(snapshot, 'kubelet')}",)
    return devices + missing_numa_nodes(snapshot)


def _mixed(snapshot: Snapshot) -> tuple[Finding, ...]:
    if snapshot.numa_nodes is None:
        return ()
    placed, bare = _by_resource(snapshot)
    return tuple(
        Finding(
            subject=name,
            observed=f"{', '.join(sorted(ids))} without a NUMA node",
            expected="a NUMA node for each, as the others have",
        )
        for name, ids in sorted(bare.items())
        if placed.get(name)
    )


def _by_resource(snapshot: Snapshot) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return the ids with and without a NUMA node, by resource.

    The checkpoint counts for what the kubelet does not list: it has the nodes of the day on which
    a pod came, perhaps from a plugin that told none yet.
    """
    placed: dict[str, set[str]] = {}
    bare: dict[str, set[str]] = {}
    for device in snapshot.offer.devices if snapshot.offer else ():
        (placed if device.numa_nodes else bare).setdefault(device.resource, set()).add(device.id)
    listed = placed.keys() | bare.keys()
    state = snapshot.kubelet_state.devices if snapshot.kubelet_state else None
    for held in state.held if state else ():
        for node, ids in held.ids.items() if held.resource not in listed else ():
            (bare if node == _NO_NODE else placed).setdefault(held.resource, set()).update(ids)
    return placed, bare


def _needs_metrics(snapshot: Snapshot) -> Inputs:
    metrics = snapshot.kubelet_metrics
    is_known = metrics is not None and metrics.slow_allocations is not None
    return () if is_known else ("metrics of the kubelet",)


def _slow(snapshot: Snapshot) -> tuple[Finding, ...]:
    metrics = snapshot.kubelet_metrics
    shares = (metrics.slow_allocations if metrics else None) or {}
    return tuple(
        Finding(
            subject=name,
            observed=f"{share:.0%} of Allocate calls took longer than 1 s",
            expected=f"at most {_SLOW_SHARE:.0%}",
        )
        for name, share in shares.items()
        if share > _SLOW_SHARE
    )


RULES: tuple[Rule, ...] = (
    Rule(
        code="PLG-001",
        claim="every device resource has something to give out",
        why="A resource with capacity and nothing allocatable means that its plugin is gone or "
        "finds all devices broken: pods that ask for it wait or are rejected.",
        area=Area.PLUGIN,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs_status,
        check=_none_left,
        skips=_no_devices,
        remedy="restart the plugin's pod, and look into its log if that does not help (up to "
        "Kubernetes 1.36 a second instance that ends takes the first one's connection along)",
        reference=f"{_ISSUES}/121994",
    ),
    Rule(
        code="PLG-002",
        claim="every device is healthy in the kubelet's eyes",
        why="Fewer devices are allocatable than the node has; a pod that runs on a broken one "
        "keeps it.",
        area=Area.PLUGIN,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs_status,
        check=_unhealthy,
        skips=_no_devices,
        remedy="ask `nodetopo health` which GPU it is and why; drain the node and reset or replace "
        "the device",
        reference=_PLUGINS,
    ),
    Rule(
        code="PLG-003",
        claim="all devices of one resource have a NUMA node, or none has",
        why="As soon as one device has a node, those without never count for the Topology Manager, "
        "and pods are rejected while they are free.",
        area=Area.PLUGIN,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_needs_places,
        check=_mixed,
        skips=one_numa_node,
        remedy="update the plugin or the firmware so that each device has its NUMA node in "
        "/sys/bus/pci/devices/*/numa_node, or configure the plugin to report none",
        reference="https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/kubelet/cm/"
        "devicemanager/topology_hints.go",
    ),
    Rule(
        code="PLG-004",
        claim="device plugins answer Allocate within a second",
        why="The kubelet admits one pod after the other and waits for a plugin without a limit: a "
        "slow one delays every pod of the node.",
        area=Area.PLUGIN,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_needs_metrics,
        check=_slow,
        remedy="look into the plugin's log and its CPU limit, and update it",
        reference=f"{_ISSUES}/117435",
    ),
)
