"""What settings mean for the resources of a node and for the plugins that offer them."""

import os
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from agent.config.policies import TimeSlicing
from agent.config.settings import HOST_PLUGINS_REGISTRY, Settings
from agent.daemon.placement import Placements
from agent.deviceplugin.cdi_writer import CdiSettings, CdiWriter
from agent.deviceplugin.devices import Minors, read_minors
from agent.deviceplugin.host_nodes import imex_problems
from agent.deviceplugin.nccl_file import NcclHints
from agent.deviceplugin.registration import Registration
from agent.deviceplugin.resources import MigStrategy, Rules, Shared
from agent.deviceplugin.settings import Feature, NumaReport, PluginSettings, Strategy
from agent.errors import UnreadableError


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that an offering does by settings; another plan takes the place of the whole.

    Attributes:
        cdi: what writes the CDI specification; ``None`` where another program does.
        nccl: what writes the topology for NCCL; ``None`` where containers get none.
        warnings: what the node lacks for *settings*, a sentence each.
        is_simulated: the GPUs do not exist.
    """

    settings: Settings
    placements: Placements
    rules: Rules
    plugin: PluginSettings
    cdi: CdiWriter | None
    nccl: NcclHints | None
    warnings: tuple[str, ...]
    is_simulated: bool

    @classmethod
    def of(cls, settings: Settings, placements: Placements, *, is_simulated: bool) -> "Plan":
        """Return the plan of *settings*; of a simulated machine nothing is written or sought.

        Raises:
            InputError: a setting does not do.
            UnreadableError: a required IMEX channel is missing.
        """
        plugin = plugin_settings(settings)
        is_written = settings.cdi_spec == "write" and not is_simulated
        hints = plugin.nccl_hints if not is_simulated else None
        return cls(
            settings=settings,
            placements=placements,
            rules=rules(settings),
            plugin=plugin,
            cdi=CdiWriter(_cdi_settings(settings), plugin) if is_written else None,
            nccl=None if hints is None else NcclHints(hints, host_root=settings.host_root),
            warnings=() if is_simulated else _missing_channels(settings),
            is_simulated=is_simulated,
        )

    def registration(self, socket_dir: Path) -> Registration:
        """Return by which way a kubelet whose socket is in *socket_dir* learns of a resource.

        A stand-in knows ``kubelet.sock`` alone, and GPUs that do not exist never come before the
        plugin watcher of the host's own kubelet.
        """
        is_stand_in = socket_dir != self.settings.device_plugin_dir
        is_hosts = os.path.realpath(self.settings.plugins_registry_dir) == os.path.realpath(
            HOST_PLUGINS_REGISTRY
        )
        if is_stand_in or (self.is_simulated and is_hosts):
            return Registration.SOCKET
        return Registration(self.settings.registration)

    def directories(self, socket_dir: Path) -> tuple[Path, ...]:
        """Return where the sockets of a resource lie, of a kubelet whose own is in *socket_dir*."""
        registry = self.settings.plugins_registry_dir
        match self.registration(socket_dir):
            case Registration.SOCKET:
                return (socket_dir,)
            case Registration.WATCHER:
                return (registry,)
            case Registration.BOTH:
                return socket_dir, registry

    def minors(self) -> Minors:
        """Read the numbers of MIG device nodes, if an answer or a specification may need them."""
        is_needed = Strategy.DEVICE_SPECS in self.plugin.strategies or self.cdi is not None
        return read_minors(self.settings.procfs_root) if is_needed else {}

    def places_like(self, other: "Plan") -> bool:
        """Tell whether devices are chosen by the same rules as in *other*."""
        return all(
            getattr(self.settings, name) == getattr(other.settings, name)
            for name in ("placement_policy", "bandwidth_model")
        ) and (self.placements.table == other.placements.table)

    def named(self) -> set[str]:
        """Return the resources that settings are about."""
        slicing = self.settings.time_slicing or TimeSlicing()
        return {*self.settings.placement_policy.special, *slicing.replicas}


def rules(settings: Settings) -> Rules:
    """Return how *settings* make resources of devices."""
    slicing = settings.time_slicing or TimeSlicing()
    shared = {
        name: Shared(name=slicing.offered_name(name), replicas=count)
        for name, count in slicing.replicas.items()
    }
    return Rules(
        resource=settings.resource_name,
        mig=MigStrategy(settings.mig_strategy),
        shared=MappingProxyType(shared),
        excluded=settings.exclude_gpus,
    )


def plugin_settings(settings: Settings) -> PluginSettings:
    """Return how *settings* want devices handed over.

    Raises:
        InputError: one of them does not do.
    """
    slicing = settings.time_slicing or TimeSlicing()
    return PluginSettings(
        strategies=tuple(Strategy(word) for word in settings.device_list_strategy),
        cdi_kind=settings.cdi_kind,
        annotation_prefix=settings.cdi_annotation_prefix,
        imex_channels=settings.imex_channels,
        features=frozenset(one for one in Feature if getattr(settings, one.value)),
        nccl_hints=settings.nccl_hints_dir if settings.nccl_hints else None,
        numa=NumaReport(settings.numa_mode),
        dev_root=settings.dev_root,
        host_root=settings.host_root,
        fails_requests_greater_than_one=slicing.fails_requests_greater_than_one,
    )


def _cdi_settings(settings: Settings) -> CdiSettings:
    return CdiSettings(
        directory=settings.cdi_spec_dir,
        kind=settings.cdi_kind,
        driver_root=settings.driver_root,
        hook=settings.cdi_hook,
    )


def _missing_channels(settings: Settings) -> tuple[str, ...]:
    """Return a sentence for each IMEX channel that containers go without.

    Raises:
        UnreadableError: they are required.
    """
    missing = imex_problems(
        settings.imex_channels,
        is_required=settings.imex_required,
        host_root=settings.host_root,
        dev_root=settings.dev_root,
    )
    if missing and settings.imex_required:
        cure = "create the channel with nvidia-modprobe, or do not set imex-required"
        raise UnreadableError("; ".join(missing), cure)
    return missing
