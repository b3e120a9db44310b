"""The device nodes that the host has besides those of its GPUs: looked up outside of any RPC."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from agent.deviceplugin.settings import Feature, PluginSettings

CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""Device nodes that every CUDA process opens beside its GPU's own (NVIDIA driver)."""

FEATURE_NODES: Mapping[Feature, tuple[str, ...]] = MappingProxyType(
    {
        Feature.GDRCOPY: ("gdrdrv",),
        Feature.GDS: ("nvidia-fs*",),
        Feature.MOFED: ("infiniband/uverbs*", "infiniband/rdma_cm"),
    }
)
"""What a feature opens, as patterns below ``/dev`` (nvidia-container-toolkit v1.19.0,
internal/discover/gdrcopy.go, gds.go, mofed.go)."""


def channel_node(channel: int) -> str:
    """Return the node of an IMEX channel, below ``/dev``.

    Source: k8s-device-plugin v0.19.0, internal/imex/imex.go.
    """
    return f"nvidia-caps-imex-channels/channel{channel}"


def host_dev(host_root: Path, dev_root: Path) -> Path:
    """Return the directory of the device nodes as this process sees it."""
    return host_root / dev_root.relative_to("/") / "dev"


def present_nodes(settings: PluginSettings) -> tuple[str, ...]:
    """Return those nodes that *settings* may hand out and the host has now, below ``/dev``.

    Control nodes come first, then IMEX channels, then each feature's. It asks the file system.
    """
    dev = host_dev(settings.host_root, settings.dev_root)
    control = (name for name in CONTROL_NODES if (dev / name).exists())
    channels = (channel_node(channel) for channel in settings.imex_channels)
    features = (node for one in sorted(settings.features) for node in feature_nodes(dev, one))
    return (*control, *(node for node in channels if _is_character_device(dev / node)), *features)


def feature_nodes(dev: Path, feature: Feature) -> tuple[str, ...]:
    """Return the nodes of *feature* that *dev* has, sorted."""
    found = (path for pattern in FEATURE_NODES[feature] for path in _matches(dev, pattern))
    return tuple(sorted(str(path.relative_to(dev)) for path in found))


def features_with_nodes(features: Iterable[Feature], nodes: Iterable[str]) -> Iterator[Feature]:
    """Yield, in alphabetical order, those of *features* that have one of *nodes* at least."""
    named = [Path(node) for node in nodes]
    for feature in sorted(features):
        if any(node.match(pattern) for node in named for pattern in FEATURE_NODES[feature]):
            yield feature


def imex_problems(
    channels: Iterable[int], *, is_required: bool, host_root: Path, dev_root: Path
) -> tuple[str, ...]:
    """Say which of *channels* are no character devices of the host, once, at start.

    NVIDIA's plugin does not start then if channels are required, and goes on without the
    channel if not (internal/imex/imex.go); :func:`present_nodes` goes on without it. The text
    says which of both *is_required* asks for.
    """
    dev = host_dev(host_root, dev_root)
    missing = [n for n in channels if not _is_character_device(dev / channel_node(n))]
    outcome = "and imex-required is set" if is_required else "containers go without it"
    return tuple(f"{dev / channel_node(n)} is no character device: {outcome}" for n in missing)


def _matches(dev: Path, pattern: str) -> list[Path]:
    try:
        return list(dev.glob(pattern))
    except OSError:
        return []  # a directory that cannot be listed


def _is_character_device(path: Path) -> bool:
    try:
        return path.is_char_device()
    except OSError:
        return False
