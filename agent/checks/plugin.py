"""Rules on device plugins and what the kubelet has from them."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from agent.checks.inputs import (
    Inputs,
    because,
    missing_numa_nodes,
    one_numa_node,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.node import NodeStatus
from agent.model.pod import Container
from agent.model.snapshot import Snapshot

# Rules on devices as the kubelet has them from device plugins.

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


DEVICES_RULES: tuple[Rule, ...] = (
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


# Rules on other programs that do the same work beside us.

_OURS = "nodetopo-"
"""How the names of our plugin's sockets begin (agent.deviceplugin.sockets)."""


_MANAGER = "nodetopo"
"""Our field manager (agent.kubeapi.apply)."""


_RUNNING = ("Running", "Pending", None)


_PEERS_PLUGINS: Mapping[str, str] = MappingProxyType(
    {
        "nvidia-device-plugin": "NVIDIA's device plugin",
        "nvidia-gpu-device-plugin": "GKE's device plugin",
        "gpu-kubelet-plugin": "NVIDIA's DRA driver",
        "volcano-vgpu-device-plugin": "Volcano's device plugin",
        "vGPU-device-plugin": "HAMi's device plugin",
    }
)
"""Program → whose it is, for those that give out GPUs."""


_PLUGIN_IMAGES: Mapping[str, str] = MappingProxyType(
    {
        "k8s-device-plugin": "NVIDIA's device plugin",
        "nvidia-gpu-device-plugin": "GKE's device plugin",
    }
)
"""The last part of an image's name → whose it is."""


_FEATURES = "gpu-feature-discovery"


_DISCOVERY: Mapping[str, str] = MappingProxyType({_FEATURES: "GPU feature discovery"})
"""The same for those that write labels; program and image have one name."""


_SHARED_IMAGE = "k8s-device-plugin"


_BESIDE_THE_PLUGIN = (_FEATURES, "mps-control-daemon", "config-manager")
"""How the names of containers begin that are other programs of this one image (k8s-device-plugin
v0.19.0 deployments/helm, daemonset-gfd.yml and daemonset-mps-control-daemon.yml; gpu-operator
assets/gpu-feature-discovery)."""


_CONFLICT = "https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/kubelet/cm/devicemanager"


def _sockets(snapshot: Snapshot) -> tuple[str, ...] | None:
    return snapshot.kubelet_state.plugin_sockets if snapshot.kubelet_state else None


def _needs_programs(snapshot: Snapshot) -> Inputs:
    is_known = snapshot.host is not None and snapshot.host.peer_programs is not None
    return () if is_known else ("programs that run on the host",)


def _needs_plugins(snapshot: Snapshot) -> Inputs:
    sockets = (f"sockets of device plugins{because(snapshot, 'kubelet')}",)
    return _needs_programs(snapshot) + (sockets if _sockets(snapshot) is None else ())


def _no_plugin_of_ours(snapshot: Snapshot) -> str | None:
    sockets = _sockets(snapshot)
    if sockets is None or any(name.startswith(_OURS) for name in sockets):
        return None
    return "nodetopo's device plugin does not run here"


def _other_plugins(snapshot: Snapshot) -> tuple[Finding, ...]:
    if _sockets(snapshot) is None:
        return ()
    expected = "one plugin for the GPUs"
    return (
        *_programs(snapshot, _PEERS_PLUGINS, expected),
        *_images(snapshot, _PLUGIN_IMAGES, expected),
    )


def _programs(snapshot: Snapshot, known: Mapping[str, str], expected: str) -> Iterator[Finding]:
    for name in (snapshot.host.peer_programs if snapshot.host else None) or ():
        if name in known:
            yield Finding(subject=f"program {name}", observed=known[name], expected=expected)


def _images(snapshot: Snapshot, known: Mapping[str, str], expected: str) -> Iterator[Finding]:
    for pod in snapshot.pods or ():
        for container in pod.containers:
            whose = known.get(_program(container))
            if whose is not None and pod.phase in _RUNNING:
                subject = f"{pod.namespace}/{pod.name} container {container.name}"
                yield Finding(subject=subject, observed=whose, expected=expected)


def _program(container: Container) -> str:
    """Return what a container runs, as its image is called, or itself where that is shared."""
    image = _image(container.image or "")
    if image != _SHARED_IMAGE:
        return image
    others = (name for name in _BESIDE_THE_PLUGIN if container.name.startswith(name))
    return next(others, image)


def _image(reference: str) -> str:
    """Return the last part of an image's name, without tag and digest."""
    return reference.partition("@")[0].rpartition("/")[2].partition(":")[0]


def _writers(snapshot: Snapshot) -> Mapping[str, tuple[str, ...]] | None:
    return snapshot.node_status.label_writers if snapshot.node_status else None


def _needs_writers(snapshot: Snapshot) -> Inputs:
    writers = (f"writers of the Node's labels{because(snapshot, 'node')}",)
    return _needs_programs(snapshot) + (writers if _writers(snapshot) is None else ())


def _no_labels_of_ours(snapshot: Snapshot) -> str | None:
    writers = _writers(snapshot)
    if writers is None or any(_MANAGER in names for names in writers.values()):
        return None
    return "nodetopo writes no nvidia.com/ labels here"


def _other_writers(snapshot: Snapshot) -> tuple[Finding, ...]:
    writers = _writers(snapshot)
    if writers is None:
        return ()
    expected = "nodetopo alone"
    return (
        *_programs(snapshot, _DISCOVERY, "one program for the nvidia.com/ labels"),
        *_images(snapshot, _DISCOVERY, "one program for the nvidia.com/ labels"),
        *(
            Finding(subject=label, observed=f"written by {', '.join(names)}", expected=expected)
            for label, names in writers.items()
            if _MANAGER in names and len(names) > 1
        ),
    )


PEERS_RULES: tuple[Rule, ...] = (
    Rule(
        code="PLG-005",
        claim="no other device plugin for GPUs runs beside ours",
        why="The kubelet takes the plugin that registered last: two of them give the same GPUs to "
        "two pods, or take the resource from each other.",
        area=Area.PLUGIN,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs_plugins,
        check=_other_plugins,
        skips=_no_plugin_of_ours,
        remedy="keep one of them from this node, by its DaemonSet's nodeSelector or affinity",
        reference=f"{_CONFLICT}/plugin/v1beta1/handler.go",
    ),
    Rule(
        code="PLG-006",
        claim="no other program writes the GPU labels beside us",
        why="Two writers of one label undo each other's values, and pods go by what was last.",
        area=Area.PLUGIN,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_needs_writers,
        check=_other_writers,
        skips=_no_labels_of_ours,
        remedy="take GPU feature discovery off this node, or leave the nvidia.com/ labels to it in "
        "nodetopo's settings",
        reference="https://github.com/NVIDIA/k8s-device-plugin/blob/main/docs/gpu-feature-"
        "discovery/README.md",
    ),
)


RULES: tuple[Rule, ...] = (*DEVICES_RULES, *PEERS_RULES)
