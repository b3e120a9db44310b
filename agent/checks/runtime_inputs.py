"""What the rules on container runtimes share."""

from agent.checks.inputs import Inputs, no_gpus
from agent.checks.kernel_inputs import missing, of_host
from agent.model.host import CdiSpec, ContainerToolkit, RuntimeConfig
from agent.model.kubernetes import release
from agent.model.snapshot import Snapshot

NOT_NVIDIAS = "no runtime here runs NVIDIA's program"
_CONTAINERD = "containerd"
_CDI_SINCE = (2, 0)
"""containerd release with CDI on unless stated otherwise (containerd docs/cri/config.md)."""

_CDI_MODES = ("cdi", "jit-cdi")
_JIT_CDI_SINCE = (1, 18)
_LEGACY = "legacy"

_NVIDIA = "nvidia.com"
DEVICE_PLUGIN = "device-plugin."
"""What the kinds of device plugins have, and those of drivers for DRA have not."""

_OF_PLUGINS = ("k8s.", DEVICE_PLUGIN)
"""How the kinds begin that device plugins and drivers for DRA write for themselves: NVIDIA's
``k8s.device-plugin.nvidia.com/gpu`` and ``k8s.gpu.nvidia.com/claim``, and ours."""


def configs(snapshot: Snapshot) -> tuple[RuntimeConfig, ...] | None:
    """Return the runtimes' configurations."""
    return of_host(snapshot, lambda host: host.runtime_configs)


def missing_configs(snapshot: Snapshot) -> Inputs:
    """Need the runtimes' configurations."""
    what = "configuration of the container runtime"
    return missing(snapshot, configs(snapshot), what, "etc/containerd", "etc/crio", "var/lib")


def toolkit(snapshot: Snapshot) -> ContainerToolkit | None:
    """Return the settings of NVIDIA's container toolkit."""
    return of_host(snapshot, lambda host: host.toolkit)


def missing_toolkit(snapshot: Snapshot) -> Inputs:
    """Need the settings of NVIDIA's container toolkit."""
    what = "config.toml of NVIDIA's container toolkit"
    places = ("etc/nvidia-container-runtime", "usr/local/nvidia")
    return missing(snapshot, toolkit(snapshot), what, *places)


def without_toolkit(snapshot: Snapshot) -> str | None:
    """Tell that no container goes through NVIDIA's toolkit, where that is known."""
    known = configs(snapshot)
    if known is not None and not any(config.nvidia_runtimes for config in known):
        return NOT_NVIDIAS
    return no_gpus(snapshot)


def edits_specifications(snapshot: Snapshot) -> bool:
    """Return whether NVIDIA's runtime is known to name GPUs in the specification that runc reads.

    In mode ``legacy`` a hook adds them behind runc's back. Mode ``auto``, the default, was that
    until toolkit 1.18 made it ``jit-cdi`` (nvidia-container-toolkit CHANGELOG.md, v1.18.0-rc.1).
    """
    settings = toolkit(snapshot)
    if settings is None or not any(config.nvidia_runtimes for config in configs(snapshot) or ()):
        return False
    if settings.mode in _CDI_MODES:
        return True
    known = release(settings.version)
    return settings.mode in (None, "auto") and known is not None and known >= _JIT_CDI_SINCE


def specs(snapshot: Snapshot) -> tuple[CdiSpec, ...] | None:
    """Return the CDI specifications."""
    return of_host(snapshot, lambda host: host.cdi_specs)


def missing_specs(snapshot: Snapshot) -> Inputs:
    """Need the CDI specifications."""
    return missing(snapshot, specs(snapshot), "CDI specifications", "etc/cdi", "run/cdi")


def of_gpus(snapshot: Snapshot) -> tuple[CdiSpec, ...]:
    """Return the specifications of NVIDIA's devices, whoever wrote them."""
    return tuple(spec for spec in specs(snapshot) or () if _is_of_gpus(spec))


def _is_of_gpus(spec: CdiSpec) -> bool:
    vendor = (spec.kind or "").partition("/")[0]
    is_nvidias = vendor == _NVIDIA or vendor.endswith(f".{_NVIDIA}")
    return is_nvidias or spec.driver_version is not None


def of_plugins(snapshot: Snapshot) -> tuple[CdiSpec, ...]:
    """Return those by which a device plugin or a driver for DRA hands devices over."""
    return tuple(spec for spec in of_gpus(snapshot) if (spec.kind or "").startswith(_OF_PLUGINS))


def has_cdi(snapshot: Snapshot, config: RuntimeConfig) -> bool | None:
    """Return whether *config*'s runtime takes devices by CDI; ``None`` if that is not known.

    What the file leaves open depends on the version of containerd, which the Node object has.
    """
    if config.cdi is not None or config.name != _CONTAINERD:
        return config.cdi
    told = snapshot.node_status.container_runtime if snapshot.node_status else None
    name, _, version = (told or "").partition("://")
    known = release(version) if name == _CONTAINERD else None
    return None if known is None else known >= _CDI_SINCE


def goes_without_cdi(snapshot: Snapshot) -> bool:
    """Return whether it is known that no container here gets devices by CDI.

    NVIDIA's own runtime heeds specifications in every mode but ``legacy``, for pods that name a
    device as CDI does.
    """
    known = configs(snapshot)
    if not known or any(has_cdi(snapshot, config) is not False for config in known):
        return False
    return is_legacy(snapshot) or not any(config.nvidia_runtimes for config in known)


def is_legacy(snapshot: Snapshot) -> bool:
    """Return whether NVIDIA's runtime is known to leave GPUs to a hook that knows no CDI."""
    settings = toolkit(snapshot)
    return settings is not None and settings.mode == _LEGACY


def missing_cdi(snapshot: Snapshot) -> Inputs:
    """Need to know of each configuration whether CDI is on."""
    silent = [one.path for one in configs(snapshot) or () if has_cdi(snapshot, one) is None]
    unknown = (f"whether CDI is on by {', '.join(silent)} (version of containerd)",)
    return missing_configs(snapshot) + (unknown if silent else ())
