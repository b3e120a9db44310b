"""Every setting of NVIDIA's device plugin: its names in the three sources, and its effect here."""

from collections.abc import Iterator, Mapping
from enum import Enum, auto

from msgspec import Struct

from nodetopo.kernel.settings.own import FALLBACKS

STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
"""NVIDIA's names of the ways to hand over devices (api/config/v1/consts.go)."""


class ValueKind(Enum):
    """The type of a setting's value."""

    SWITCH = auto()
    TEXT = auto()
    WORD = auto()
    WORDS = auto()
    NUMBERS = auto()
    DURATION = auto()
    TIME_SLICING = auto()
    MPS = auto()
    RESOURCES = auto()


class Name(Struct, frozen=True, kw_only=True):
    """A setting of NVIDIA's device plugin."""

    kind: ValueKind
    flags: tuple[str, ...] = ()  # without the dashes, the usual one first
    variables: tuple[str, ...] = ()  # of the environment; the first that is set counts
    path: str | None = None  # in the file of ``version: v1``, ``None`` where that has no such key
    # Valid values of a :attr:`ValueKind.WORD` and of each of :attr:`ValueKind.WORDS`.
    words: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()  # our settings that it sets, by field
    # Values of a setting without ``ours`` that need no remark, because they match what happens
    # anyway; ``None`` for all values.
    agrees: tuple[object, ...] | None = ()
    instead: str = ""  # the behaviour used instead

    @property
    def name(self) -> str:
        """Return the shortest name, which is unique."""
        names = (*self.flags, *filter(None, (self.path,)), *self.variables)
        return names[0]

    def all_names(self) -> Iterator[str]:
        """Yield the name in each source, as written there."""
        yield from (f"--{flag}" for flag in self.flags)
        yield from self.variables
        if self.path is not None:
            yield self.path


def _plugin(
    flag: str,
    kind: ValueKind,
    path: str | None = None,
    *,
    also: str = "",
    ours: tuple[str, ...] = (),
    words: tuple[str, ...] = (),
    agrees: tuple[object, ...] | None = (),
    instead: str = "",
) -> Name:
    """Return a setting whose variables are spelled as its flags; *also* is an older flag."""
    flags = tuple(filter(None, (flag, also)))
    return Name(
        kind=kind,
        flags=flags,
        variables=tuple(word.upper().replace("-", "_") for word in flags),
        path=None if path is None else f"flags.{path}",
        words=words,
        ours=ours,
        agrees=agrees,
        instead=instead,
    )


_NO_SWITCHES = "the daemon's CDI specification has no such switches"
_LABELS = "labels follow every scan of the daemon (scan-interval)"

NAMES: tuple[Name, ...] = (
    _plugin("mig-strategy", ValueKind.WORD, "migStrategy", words=("none", "single", "mixed"),
            ours=("mig_strategy",)),
    _plugin("fail-on-init-error", ValueKind.SWITCH, "failOnInitError", agrees=(False,),
            instead="the daemon looks for GPUs at every scan, and keeps running without GPUs"),
    Name(kind=ValueKind.TEXT, flags=("nvidia-driver-root", "driver-root"),
         variables=("NVIDIA_DRIVER_ROOT",), path="flags.nvidiaDriverRoot",
         ours=("driver_root",)),
    Name(kind=ValueKind.TEXT, flags=("nvidia-dev-root", "dev-root"),
         variables=("NVIDIA_DEV_ROOT",), path="flags.nvidiaDevRoot", ours=("dev_root",)),
    _plugin("pass-device-specs", ValueKind.SWITCH, "plugin.passDeviceSpecs",
            ours=("device_list_strategy",)),
    _plugin("device-list-strategy", ValueKind.WORDS, "plugin.deviceListStrategy", words=STRATEGIES,
            ours=("device_list_strategy",)),
    _plugin("device-id-strategy", ValueKind.WORD, "plugin.deviceIDStrategy",
            words=("uuid", "index"), agrees=("uuid",),
            instead="devices are named by UUID, which survives restarts"),
    _plugin("gdrcopy-enabled", ValueKind.SWITCH, "gdrcopyEnabled", ours=("gdrcopy",)),
    _plugin("gds-enabled", ValueKind.SWITCH, "gdsEnabled", ours=("gds",)),
    _plugin("mofed-enabled", ValueKind.SWITCH, "mofedEnabled", ours=("mofed",)),
    _plugin("cdi-annotation-prefix", ValueKind.TEXT, "plugin.cdiAnnotationPrefix",
            ours=("cdi_annotation_prefix",)),
    _plugin("nvidia-cdi-hook-path", ValueKind.TEXT, "plugin.nvidiaCTKPath", also="nvidia-ctk-path",
            ours=("cdi_hook",)),
    _plugin("driver-root-ctr-path", ValueKind.TEXT, "plugin.containerDriverRoot",
            also="container-driver-root", ours=("nvml_library",)),
    # NVIDIA's Helm chart always sets it.
    _plugin("mps-root", ValueKind.TEXT, "mpsRoot", agrees=None,
            instead="MPS is not supported"),
    _plugin("device-discovery-strategy", ValueKind.WORD, "deviceDiscoveryStrategy",
            words=("auto", "nvml", "tegra"), agrees=("auto", "nvml")),
    # v0.20.0
    _plugin("shared-devices-allocation-policy", ValueKind.WORD,
            "plugin.sharedDevicesAllocationPolicy",
            words=("distributed", "packed"), ours=("placement_policy",)),
    Name(kind=ValueKind.NUMBERS, flags=("imex-channel-ids",), variables=("IMEX_CHANNEL_IDS",),
         path="imex.channelIDs", ours=("imex_channels",)),
    Name(kind=ValueKind.SWITCH, flags=("imex-required",), variables=("IMEX_REQUIRED",),
         path="imex.required", ours=("imex_required",)),
    _plugin("kubelet-socket", ValueKind.TEXT, ours=("device_plugin_dir", "registration")),
    _plugin("cdi-feature-flags", ValueKind.TEXT, instead=_NO_SWITCHES),
    # v0.20.0
    _plugin("cdi-disable-hooks", ValueKind.TEXT, ours=("cdi_disable_hooks",)),
    Name(kind=ValueKind.TEXT, variables=("DP_DISABLE_HEALTHCHECKS",),
         ours=("health_checks", "xid_classes")),
    Name(kind=ValueKind.TEXT, variables=("DP_ENABLE_HEALTHCHECKS",), ours=("xid_classes",)),
    # Of the config-manager that runs beside NVIDIA's plugin; ours needs none.
    Name(kind=ValueKind.TEXT, variables=("CONFIG_FILE_SRCDIR",), ours=("config_dir",)),
    Name(kind=ValueKind.TEXT, variables=("NODE_LABEL",), ours=("config_label",)),
    Name(kind=ValueKind.TEXT, variables=("DEFAULT_CONFIG",), ours=("default_config",)),
    Name(kind=ValueKind.WORDS, variables=("FALLBACK_STRATEGIES",), words=FALLBACKS,
         ours=("config_fallbacks",)),
    # The rest of `flags` is for GPU feature discovery, whose labels the daemon writes.
    Name(kind=ValueKind.SWITCH, flags=("use-node-feature-api",),
         variables=("GFD_USE_NODE_FEATURE_API", "USE_NODE_FEATURE_API"),
         path="flags.useNodeFeatureAPI", agrees=(False,),
         instead="labels are written to the Node itself"),
    Name(kind=ValueKind.SWITCH, flags=("oneshot",), variables=("GFD_ONESHOT",),
         path="flags.gfd.oneshot", agrees=(False,), instead=_LABELS),
    Name(kind=ValueKind.SWITCH, flags=("no-timestamp",), variables=("GFD_NO_TIMESTAMP",),
         path="flags.gfd.noTimestamp", agrees=(True,), instead="no label contains a timestamp"),
    Name(kind=ValueKind.DURATION, flags=("sleep-interval",), variables=("GFD_SLEEP_INTERVAL",),
         path="flags.gfd.sleepInterval", instead=_LABELS),
    Name(kind=ValueKind.TEXT, flags=("output-file",), variables=("GFD_OUTPUT_FILE",),
         path="flags.gfd.outputFile", instead="labels are written to the Node itself"),
    Name(kind=ValueKind.TEXT, flags=("machine-type-file",), variables=("GFD_MACHINE_TYPE_FILE",),
         path="flags.gfd.machineTypeFile", agrees=("/sys/class/dmi/id/product_name",),
         instead="nvidia.com/gpu.machine comes from the DMI tables below sysfs-root"),
    Name(kind=ValueKind.RESOURCES, path="resources.gpus",
         instead="resources keep their names, as with NVIDIA's device plugin"),
    Name(kind=ValueKind.RESOURCES, path="resources.mig",
         instead="resources keep their names, as with NVIDIA's device plugin"),
    Name(kind=ValueKind.TIME_SLICING, path="sharing.timeSlicing", ours=("time_slicing",)),
    Name(kind=ValueKind.MPS, path="sharing.mps"),
)  # fmt: skip
"""In the order of NVIDIA's own lists."""

BY_NAME: Mapping[str, Name] = {name.name: name for name in NAMES}
BY_PATH: Mapping[str, Name] = {name.path: name for name in NAMES if name.path is not None}

CONFIG_FLAG = "config-file"
NVIDIA_CONFIG_VARIABLE = "CONFIG_FILE"
"""NVIDIA's names of the file itself."""
