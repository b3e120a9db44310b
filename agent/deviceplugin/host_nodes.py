"""The device nodes that the host has besides those of its GPUs: looked up outside of any RPC."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from agent.deviceplugin.settings import Feature, PluginSettings

CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""Device nodes that every CUDA process opens besides its GPU's own (NVIDIA driver)."""

FEATURE_NODES: Mapping[Feature, tuple[str, ...]] = MappingProxyType(
    {
        Feature.GDRCOPY: ("gdrdrv",),
        Feature.GDS: ("nvidia-fs*",),
        Feature.MOFED: ("infiniband/uverbs*", "infiniband/rdma_cm"),
    }
)
"""What a feature opens, as patterns below ``/dev`` (nvidia-container-toolkit v1.19.0,
internal/discover/gdrcopy.go, gds.go, mofed.go)."""


def present_nodes(settings: PluginSettings) -> tuple[str, ...]:
    """Return the nodes that *settings* may hand out and the host has now, below ``/dev``.

    Control nodes come first, then IMEX channels, then each feature's, sorted. Reads the file
    system.
    """
    dev = _host_dev(settings.host_root, settings.dev_root)
    control = (name for name in CONTROL_NODES if (dev / name).exists())
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
    return (*control, *(node for node in channels if _is_character_device(dev / node)), *features)


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


def imex_problems(
    channels: Iterable[int], *, is_required: bool, host_root: Path, dev_root: Path
) -> tuple[str, ...]:
    """Return a sentence for each of *channels* that is no character device of the host.

    NVIDIA's plugin does not start then if channels are required, and otherwise continues without
    the channel (internal/imex/imex.go), as :func:`present_nodes` does. *is_required* only chooses
    the text.
    """
    dev = _host_dev(host_root, dev_root)
    missing = [n for n in channels if not _is_character_device(dev / channel_node(n))]
    outcome = "and imex-required is set" if is_required else "containers go without it"
    return tuple(f"{dev / channel_node(n)} is no character device: {outcome}" for n in missing)


def _host_dev(host_root: Path, dev_root: Path) -> Path:
    """Return the directory of the device nodes as this process sees it."""
    return host_root / dev_root.relative_to("/") / "dev"


def _is_character_device(path: Path) -> bool:
    try:
        return path.is_char_device()
    except OSError:
        return False
