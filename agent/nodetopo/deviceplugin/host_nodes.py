"""The device nodes that the host has: where they are, and which. Looked up outside of any RPC."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from nodetopo.deviceplugin.host_files import exists, seen
from nodetopo.deviceplugin.settings import Feature, PluginSettings

CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""Device nodes that a CUDA process opens besides its GPU's own (NVIDIA driver)."""

INDISPENSABLE_NODES = CONTROL_NODES[:2]
"""Those without which CUDA does not initialize; the others are for profilers and displays."""

FEATURE_NODES: Mapping[Feature, tuple[str, ...]] = MappingProxyType(
    {
        Feature.GDRCOPY: ("gdrdrv",),
        Feature.GDS: ("nvidia-fs*",),
        Feature.MOFED: ("infiniband/uverbs*", "infiniband/rdma_cm"),
    }
)
"""Device nodes of each feature, as patterns below ``/dev`` (nvidia-container-toolkit v1.19.0,
internal/discover/gdrcopy.go, gds.go, mofed.go).
"""

_DRIVERS_OWN = "nvidia"
_CAPABILITIES = "nvidia-caps"


class HostNodes(Struct, frozen=True):
    """Device nodes of the host."""

    root: Path = Path("/")  # the parent of their dev/, as seen by the container runtime
    names: tuple[str, ...] = ()  # requested ones that exist, below /dev


def present_nodes(settings: PluginSettings) -> HostNodes:
    """Return the existing nodes that *settings* hand out in addition to the GPUs' nodes.

    Control nodes come first, then IMEX channels, then each feature's, sorted. Reads the file
    system.
    """
    root = dev_root(settings)
    dev = _host_dev(settings, root)
    control = (name for name in CONTROL_NODES if exists(dev / name))
    channels = (channel_node(channel) for channel in settings.imex_channels)
    features: list[str] = []
    for feature in sorted(settings.features):
        paths: list[Path] = []
        for pattern in FEATURE_NODES[feature]:
            try:
                paths += list(dev.glob(pattern))
            except OSError:
                continue  # a directory that cannot be listed
        features += sorted(str(path.relative_to(dev)) for path in paths)
    present = (node for node in channels if _is_character_device(dev / node))
    return HostNodes(root, (*control, *present, *features))


def driver_nodes(settings: PluginSettings) -> HostNodes:
    """Return all of the driver's nodes: control nodes, GPUs and MIG devices.

    Reads the file system.
    """
    root = dev_root(settings)
    dev = _host_dev(settings, root)
    own = [name for name in _listed(dev) if name.startswith(_DRIVERS_OWN)]
    caps = [f"{_CAPABILITIES}/{name}" for name in _listed(dev / _CAPABILITIES)]
    return HostNodes(root, (*own, *caps))


def dev_root(settings: PluginSettings) -> Path:
    """Return the directory that holds the ``dev/`` of the driver's nodes.

    The root of a driver container holds them as well, and a directory with a driver's files alone
    does not: then they are in ``/``. NVIDIA's DRA driver decides so too (cmd/gpu-kubelet-plugin/
    root.go). Where this process sees them in neither, they are taken to be with the driver, as
    by NVIDIA's device plugin (v0.19.0, api/config/v1/config.go).
    """
    if settings.dev_root is not None:
        return settings.dev_root
    for root in (settings.driver_root, Path("/")):
        if exists(_host_dev(settings, root) / CONTROL_NODES[0]):
            return root
    return settings.driver_root


def channel_node(channel: int) -> str:
    """Return the node of an IMEX channel, below ``/dev``.

    Source: k8s-device-plugin v0.19.0, internal/imex/imex.go.
    """
    return f"nvidia-caps-imex-channels/channel{channel}"


def features_with_nodes(features: Iterable[Feature], nodes: Iterable[str]) -> tuple[Feature, ...]:
    """Return, in alphabetical order, the *features* that have at least one of *nodes*."""
    paths = [Path(node) for node in nodes]
    return tuple(
        feature
        for feature in sorted(features)
        if any(path.match(pattern) for path in paths for pattern in FEATURE_NODES[feature])
    )


def imex_problems(settings: PluginSettings, *, is_required: bool) -> tuple[str, ...]:
    """Return a sentence for each IMEX channel of *settings* that is no character device.

    NVIDIA's plugin does not start then if channels are required, and otherwise continues without
    the channel (internal/imex/imex.go), as :func:`present_nodes` does. *is_required* only chooses
    the text.
    """
    if not settings.imex_channels:
        return ()
    dev = _host_dev(settings, dev_root(settings))
    missing = [n for n in settings.imex_channels if not _is_character_device(dev / channel_node(n))]
    outcome = "and imex-required is set" if is_required else "containers go without it"
    return tuple(f"{dev / channel_node(n)} is no character device: {outcome}" for n in missing)


def _host_dev(settings: PluginSettings, root: Path) -> Path:
    """Return the directory of the device nodes in *root* as this process sees it."""
    return seen(settings.host_root, root / "dev")


def _listed(directory: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in directory.iterdir())
    except OSError:
        return []


def _is_character_device(path: Path) -> bool:
    try:
        return path.is_char_device()
    except OSError:
        return False
