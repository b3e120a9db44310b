"""Rules on device plugins: their devices in the kubelet, and competing programs."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from nodetopo.checks.inputs import because, missing_numa_nodes, one_numa_node
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.gpu_pods import container_name
from nodetopo.model.dra import DRIVER
from nodetopo.model.kubelet_state import OUR_SOCKETS
from nodetopo.model.node import unshared
from nodetopo.model.pod import Container
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.published import published_gpus

_NO_NODE = "-1"
"""The checkpoint's key of devices whose plugin reported no NUMA node
(1.36 pkg/kubelet/cm/devicemanager/pod_devices.go, nodeWithoutTopology)."""

_SLOW_SHARE = 0.01
"""Above it the 99th percentile of ``Allocate`` is longer than a second."""

_MANAGER = "nodetopo"
"""Our field manager (nodetopo.kubeapi.apply)."""

_RUNNING = ("Running", "Pending", None)

_PLUGIN_PROGRAMS: Mapping[str, str] = MappingProxyType(
    {
        "nvidia-device-plugin": "NVIDIA's device plugin",
        "nvidia-gpu-device-plugin": "GKE's device plugin",
        "gpu-kubelet-plugin": "NVIDIA's DRA driver",
        "volcano-vgpu-device-plugin": "Volcano's device plugin",
        "vGPU-device-plugin": "HAMi's device plugin",
    }
)
"""Program → its product, for programs that give out GPUs."""

_SHARED_IMAGE = "k8s-device-plugin"

_PLUGIN_IMAGES: Mapping[str, str] = MappingProxyType(
    {
        _SHARED_IMAGE: "NVIDIA's device plugin",
        "nvidia-gpu-device-plugin": "GKE's device plugin",
    }
)
"""The last part of an image's name → whose it is."""

_FEATURES = "gpu-feature-discovery"

_DISCOVERY: Mapping[str, str] = MappingProxyType({_FEATURES: "GPU feature discovery"})
"""The same for programs that write labels; program and image share a name."""

_BESIDE_THE_PLUGIN = (_FEATURES, "mps-control-daemon", "config-manager")
"""How the names of containers begin that are other programs of this one image (k8s-device-plugin
v0.19.0 deployments/helm, daemonset-gfd.yml and daemonset-mps-control-daemon.yml; gpu-operator
assets/gpu-feature-discovery)."""


def _no_devices(snapshot: Snapshot) -> str | None:
    capacity = snapshot.node_status.capacity if snapshot.node_status else None
    is_without = capacity is not None and not _devices(capacity)
    return "no device plugin has registered" if is_without else None


@rule("PLG-001", Severity.ERROR, unless=_no_devices)
def empty_resources(snapshot: Snapshot) -> Judgement:
    """Find resources without allocatable devices."""
    for name, count, left in _amounts(snapshot):
        if left == 0:
            yield Finding(
                subject=name,
                observed=f"0 of {count} allocatable",
                expected="devices to give out",
            )
    yield from _missing_amounts(snapshot)


@rule("PLG-002", Severity.ERROR, unless=_no_devices)
def unhealthy_devices(snapshot: Snapshot) -> Judgement:
    """Find resources with fewer devices than the node has, and containers on broken ones."""
    for name, count, left in _amounts(snapshot):
        if 0 < left < count:
            observed = f"{left} of {count} allocatable"
            yield Finding(subject=name, observed=observed, expected="all of them healthy")
    for pod in snapshot.pods or ():
        for container in pod.containers:
            for device in container.unhealthy_devices or ():
                yield Finding(
                    subject=container_name(pod, container),
                    observed=f"device {device} is not Healthy",
                    expected="Healthy",
                )
    yield from _missing_amounts(snapshot)


@rule("PLG-003", Severity.WARNING, unless=one_numa_node)
def mixed_numa_nodes(snapshot: Snapshot) -> Judgement:
    """Find resources that have devices with and without a NUMA node.

    For devices that the kubelet does not list, the checkpoint counts: it has the nodes from the
    pod's admission, possibly from a plugin that reported none yet.
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
    for name, devices in sorted(bare.items()) if snapshot.numa_nodes is not None else ():
        if placed.get(name):
            yield Finding(
                subject=name,
                observed=f"{', '.join(sorted(devices))} without a NUMA node",
                expected="a NUMA node for each, as the others have",
            )
    if snapshot.offer is None and state is None:
        yield Missing("devices of the kubelet", because(snapshot, "kubelet"))
    yield from missing_numa_nodes(snapshot)


@rule("PLG-004", Severity.WARNING)
def slow_plugins(snapshot: Snapshot) -> Judgement:
    """Find resources whose plugin often takes longer than a second."""
    metrics = snapshot.kubelet_metrics
    shares = None if metrics is None else metrics.slow_allocations
    for name, share in (shares or {}).items():
        if share > _SLOW_SHARE:
            yield Finding(
                subject=name,
                observed=f"{share:.0%} of Allocate calls took longer than 1 s",
                expected=f"at most {_SLOW_SHARE:.0%}",
            )
    if shares is None:
        yield Missing("metrics of the kubelet")


@rule("PLG-005", Severity.ERROR)
def other_plugins(snapshot: Snapshot) -> Judgement:
    """Find programs and containers of other plugins for GPUs."""
    sockets = snapshot.kubelet_state.plugin_sockets if snapshot.kubelet_state else None
    if sockets is not None and not any(name.startswith(OUR_SOCKETS) for name in sockets):
        yield Skip("nodetopo's device plugin does not run here")
        return
    if sockets is not None:
        yield from _running(snapshot, _PLUGIN_PROGRAMS, _PLUGIN_IMAGES, "one plugin for the GPUs")
    yield from _missing_programs(snapshot)
    if sockets is None:
        yield Missing("sockets of device plugins", because(snapshot, "kubelet"))


@rule("PLG-006", Severity.WARNING)
def other_writers(snapshot: Snapshot) -> Judgement:
    """Find programs that write ``nvidia.com/`` labels, and our labels with other writers."""
    writers = snapshot.node_status.label_writers if snapshot.node_status else None
    if writers is not None and not any(_MANAGER in names for names in writers.values()):
        yield Skip("nodetopo writes no nvidia.com/ labels here")
        return
    if writers is not None:
        expected = "one program for the nvidia.com/ labels"
        yield from _running(snapshot, _DISCOVERY, _DISCOVERY, expected)
    for label, names in (writers or {}).items():
        if _MANAGER in names and len(names) > 1:
            observed = f"written by {', '.join(names)}"
            yield Finding(subject=label, observed=observed, expected="nodetopo alone")
    yield from _missing_programs(snapshot)
    if writers is None:
        yield Missing("writers of the Node's labels", _no_node(snapshot))


@rule("PLG-012", Severity.ERROR)
def one_way_out(snapshot: Snapshot) -> Judgement:
    """Look for GPUs that a DRA driver publishes and a device plugin, or another driver, offers."""
    if snapshot.published is None:
        reason = because(snapshot, "slices") or because(snapshot, "pods")
        yield Missing("ResourceSlices of the node", reason)
        return
    published = published_gpus(snapshot.published, snapshot)
    if published and snapshot.offer is None:
        yield Missing("what the kubelet offers", because(snapshot, "podresources"))
    offered: dict[str, set[str]] = {}
    for device in () if snapshot.offer is None else snapshot.offer.devices:
        offered.setdefault(unshared(device.id), set()).add(device.resource)
    for at, devices in published.items():
        gpu = snapshot.gpus[at]
        drivers = sorted({device.driver for device in devices})
        instances = gpu.mig.instances if gpu.mig is not None else ()
        names = {gpu.uuid, *(instance.uuid for instance in instances)}
        resources = sorted(
            {resource for name in names if name for resource in offered.get(name, ())}
        )
        if len(drivers) + bool(resources) > 1:
            by_plugin = [f"offered as {', '.join(resources)}"] if resources else []
            claims = [f"published by {driver}" for driver in drivers]
            yield Finding(
                subject=gpu.name,
                observed=" and ".join([*by_plugin, *claims]),
                expected="one of them",
            )


@rule("PLG-013", Severity.ERROR)
def counted_sets(snapshot: Snapshot) -> Judgement:
    """Look for sets of our DRA driver that consume no counter."""
    if snapshot.published is None:
        reason = because(snapshot, "slices") or because(snapshot, "pods")
        yield Missing("ResourceSlices of the node", reason)
        return
    sets = [
        device
        for device in snapshot.published
        if device.driver == DRIVER and device.attributes.get(f"{DRIVER}/type") == "gpu-set"
    ]
    if not sets:
        yield Skip("our DRA driver publishes no sets of GPUs here")
    if bare := [device.name for device in sets if not device.counters]:
        yield Finding(
            subject="ResourceSlices",
            observed=f"{len(bare)} of {len(sets)} sets consume no counter, {bare[0]} for one",
            expected="a counter for each GPU",
        )


def _devices(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the *amounts* of device plugins, whose resource names have a custom domain."""
    return {
        name: count
        for name, count in amounts.items()
        if "/" in name and not name.partition("/")[0].endswith("kubernetes.io")
    }


def _amounts(snapshot: Snapshot) -> Iterator[tuple[str, int, int]]:
    """Yield each device resource with its capacity and allocatable amount."""
    status = snapshot.node_status
    if status is not None and status.capacity is not None and status.allocatable is not None:
        for name, count in _devices(status.capacity).items():
            if count > 0:
                yield name, count, status.allocatable.get(name, 0)


def _missing_amounts(snapshot: Snapshot) -> Iterator[Missing]:
    status = snapshot.node_status
    if status is None or status.capacity is None or status.allocatable is None:
        yield Missing("the Node object", _no_node(snapshot))


def _missing_programs(snapshot: Snapshot) -> Iterator[Missing]:
    if snapshot.host is None or snapshot.host.peer_programs is None:
        yield Missing("programs that run on the host")


def _running(
    snapshot: Snapshot, programs: Mapping[str, str], images: Mapping[str, str], expected: str
) -> Iterator[Finding]:
    """Find programs on the host and containers of pods that are among *programs* and *images*."""
    for name in (snapshot.host.peer_programs if snapshot.host else None) or ():
        if name in programs:
            yield Finding(subject=f"program {name}", observed=programs[name], expected=expected)
    for pod in snapshot.pods or ():
        for container in pod.containers if pod.phase in _RUNNING else ():
            if whose := images.get(_program(container)):
                subject = container_name(pod, container)
                yield Finding(subject=subject, observed=whose, expected=expected)


def _program(container: Container) -> str:
    """Return a container's program: the last part of its image's name, without tag and digest.

    If programs share the image, it is the beginning of the container's name.
    """
    image = (container.image or "").partition("@")[0].rpartition("/")[2].partition(":")[0]
    if image != _SHARED_IMAGE:
        return image
    return next(
        (prefix for prefix in _BESIDE_THE_PLUGIN if container.name.startswith(prefix)), image
    )


def _no_node(snapshot: Snapshot) -> str | None:
    """Return why the Node object was not read: for itself, or as the API server is not there."""
    return because(snapshot, "node") or because(snapshot, "pods")
