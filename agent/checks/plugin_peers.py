"""Rules on other programs that do the same work beside us."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from agent.checks.inputs import Inputs, because
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.pod import Container
from agent.model.snapshot import Snapshot

_OURS = "nodetopo-"
"""How the names of our plugin's sockets begin (agent.deviceplugin.sockets)."""

_MANAGER = "nodetopo"
"""Our field manager (agent.kubeapi.apply)."""

_RUNNING = ("Running", "Pending", None)

_PLUGINS: Mapping[str, str] = MappingProxyType(
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
        *_programs(snapshot, _PLUGINS, expected),
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


RULES: tuple[Rule, ...] = (
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
