"""Shared helpers of the rules on container runtimes."""

from nodetopo.checks.inputs import no_gpus
from nodetopo.checks.rule import Missing
from nodetopo.components.audit.rules.kernel_inputs import host_of, unread
from nodetopo.model.cdi import DIRECTORIES, CdiRegistry, CdiSpec
from nodetopo.model.host import RuntimeConfig
from nodetopo.model.kubernetes import release
from nodetopo.model.snapshot import Snapshot

_CONTAINERD = "containerd"
_CDI_SINCE = (2, 0)
"""containerd release with CDI on unless stated otherwise (containerd docs/cri/config.md)."""

_CDI_MODES = ("cdi", "jit-cdi")
_JIT_CDI_SINCE = (1, 18)

_NVIDIA = "nvidia.com"
DEVICE_PLUGIN = "device-plugin."
"""A mark of the kinds of device plugins, absent from the kinds of DRA drivers."""

_OF_PLUGINS = ("k8s.", DEVICE_PLUGIN)
"""Prefixes of the kinds written by device plugins and DRA drivers for themselves: NVIDIA's
``k8s.device-plugin.nvidia.com/gpu`` and ``k8s.gpu.nvidia.com/claim``, and ours.
"""


def configs(snapshot: Snapshot) -> tuple[RuntimeConfig, ...]:
    """Return the runtimes' configurations; none where they were not read."""
    return host_of(snapshot).runtime_configs or ()


def missing_configs(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Need the runtimes' configurations."""
    if host_of(snapshot).runtime_configs is not None:
        return ()
    what = "configuration of the container runtime"
    return (unread(snapshot, what, "etc/containerd", "etc/crio", "var/lib"),)


def missing_toolkit(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Need the settings of NVIDIA's container toolkit."""
    if host_of(snapshot).toolkit is not None:
        return ()
    what = "config.toml of NVIDIA's container toolkit"
    return (unread(snapshot, what, "etc/nvidia-container-runtime", "usr/local/nvidia"),)


def without_toolkit(snapshot: Snapshot) -> str | None:
    """Return why rules about NVIDIA's toolkit do not apply: no container goes through it."""
    runtimes = host_of(snapshot).runtime_configs
    if runtimes is not None and not any(config.nvidia_runtimes for config in runtimes):
        return "no runtime here runs NVIDIA's program"
    return no_gpus(snapshot)


def edits_specifications(snapshot: Snapshot) -> bool | None:
    """Return whether NVIDIA's runtime adds GPUs to the specification that runc reads.

    In mode ``legacy`` a hook adds them behind runc's back. The default mode ``auto`` meant
    ``legacy`` until toolkit 1.18 made it ``jit-cdi`` (nvidia-container-toolkit CHANGELOG.md,
    v1.18.0-rc.1). ``None`` if mode or version are unknown.
    """
    settings = host_of(snapshot).toolkit
    if settings is None:
        return None
    if settings.mode not in (None, "auto"):
        return settings.mode in _CDI_MODES
    version = release(settings.version)
    return None if version is None else version >= _JIT_CDI_SINCE


def is_legacy(snapshot: Snapshot) -> bool:
    """Return whether NVIDIA's runtime is known to leave GPUs to a hook without CDI support."""
    settings = host_of(snapshot).toolkit
    return settings is not None and settings.mode == "legacy"


def missing_specs(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Need the CDI specifications."""
    if host_of(snapshot).cdi_specs is not None:
        return ()
    return (unread(snapshot, "CDI specifications", "etc/cdi", "run/cdi"),)


def registry(snapshot: Snapshot) -> CdiRegistry:
    """Return the devices that the container runtime resolves."""
    stated = (config.cdi_dirs for config in configs(snapshot))
    directories = next(
        (directories for directories in stated if directories is not None), DIRECTORIES
    )
    return CdiRegistry(host_of(snapshot).cdi_specs or (), directories)


def of_gpus(snapshot: Snapshot) -> tuple[CdiSpec, ...]:
    """Return the CDI specifications of NVIDIA's devices, whoever wrote them."""
    return tuple(
        spec
        for spec in host_of(snapshot).cdi_specs or ()
        if spec.driver_version is not None
        or f".{(spec.kind or '').partition('/')[0]}".endswith(f".{_NVIDIA}")
    )


def of_plugins(snapshot: Snapshot) -> tuple[CdiSpec, ...]:
    """Return the specifications by which device plugins or DRA drivers hand over devices."""
    return tuple(spec for spec in of_gpus(snapshot) if (spec.kind or "").startswith(_OF_PLUGINS))


def has_cdi(snapshot: Snapshot, config: RuntimeConfig) -> bool | None:
    """Return whether *config*'s runtime supports CDI; ``None`` if unknown.

    If the file leaves it open, it depends on the version of containerd, from the Node object.
    """
    if config.cdi is not None or config.name != _CONTAINERD:
        return config.cdi
    runtime = snapshot.node_status.container_runtime if snapshot.node_status else None
    name, _, version = (runtime or "").partition("://")
    containerd = release(version) if name == _CONTAINERD else None
    return None if containerd is None else containerd >= _CDI_SINCE


def missing_cdi(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Require, for each configuration, whether CDI is on."""
    silent = [config.path for config in configs(snapshot) if has_cdi(snapshot, config) is None]
    unknown = Missing(f"whether CDI is on by {', '.join(silent)} (version of containerd)")
    return missing_configs(snapshot) + ((unknown,) if silent else ())
