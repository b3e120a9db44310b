"""The plan of a node's device plugins, as the settings describe it."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.allocation.measured import BandwidthTable
from nodetopo.allocation.rules import Model, Policy
from nodetopo.components.gpus.settings import GpuSettings
from nodetopo.deviceplugin.devices import Minors, read_minors
from nodetopo.deviceplugin.host_nodes import imex_problems
from nodetopo.deviceplugin.resources import MigStrategy, Resource, Rules, Shared
from nodetopo.deviceplugin.settings import Feature, NumaReport, PluginSettings, Strategy
from nodetopo.errors import UnreadableError
from nodetopo.kernel.settings.data_files import load
from nodetopo.kernel.settings.policies import TimeSlicing

if TYPE_CHECKING:  # loaded where settings ask for these files
    from nodetopo.deviceplugin.cdi_writer import CdiWriter
    from nodetopo.deviceplugin.nccl_file import NcclHints


def load_table(settings: GpuSettings) -> BandwidthTable | None:
    """Return the measured bandwidths that *settings* name; ``None`` for none."""
    path = settings.bandwidth_table
    return None if path is None else load(path)


class PluginPlan(Struct, frozen=True, kw_only=True):
    """Everything that a set of plugins does by its settings; other settings make another plan."""

    settings: GpuSettings
    table: BandwidthTable | None  # measured bandwidths, if there are any
    rules: Rules  # how resources are made of devices
    # How devices are handed to containers; by CDI where *is_auto*, until :meth:`handing_over_by`
    # gives the way.
    plugin: PluginSettings
    is_auto: bool  # the node's setup decides how devices are handed over, not a setting
    cdi: "CdiWriter | None"  # writes the CDI specification; ``None`` where another program does
    nccl: "NcclHints | None"  # writes the topology for NCCL; ``None`` where containers get none
    warnings: tuple[str, ...]  # a sentence for each thing that *settings* need and the node lacks
    is_simulated: bool  # the GPUs do not exist

    @classmethod
    def of(
        cls,
        settings: GpuSettings,
        table: BandwidthTable | None,
        *,
        is_simulated: bool,
    ) -> Self:
        """Return the plan of *settings*; for a simulated machine no host file is used."""
        slicing = settings.time_slicing or TimeSlicing()
        shared = {
            name: Shared(name=slicing.offered_name(name), replicas=count)
            for name, count in slicing.replicas.items()
        }
        asked = tuple(Strategy(word) for word in settings.device_list_strategy)
        plugin = PluginSettings(
            strategies=tuple(Strategy.CDI_CRI if word is Strategy.AUTO else word for word in asked),
            cdi_kind=settings.cdi_kind,
            annotation_prefix=settings.cdi_annotation_prefix,
            imex_channels=settings.imex_channels,
            features=frozenset(each for each in Feature if getattr(settings, each.value)),
            nccl_hints=settings.nccl_hints_dir if settings.nccl_hints else None,
            numa=NumaReport(settings.numa_mode),
            driver_root=settings.driver_root,
            dev_root=settings.dev_root,
            host_root=settings.host_root,
            procfs_root=settings.procfs_root,
            fails_requests_greater_than_one=slicing.fails_requests_greater_than_one,
        )
        cdi = None
        if settings.cdi_spec == "write" and not is_simulated:
            from nodetopo.deviceplugin import cdi_writer  # noqa: PLC0415 - see above

            files = cdi_writer.CdiSettings(
                directory=settings.cdi_spec_dir,
                kind=settings.cdi_kind,
                hook=settings.cdi_hook,
                disabled_hooks=settings.cdi_disable_hooks,
            )
            cdi = cdi_writer.CdiWriter(files, plugin)
        nccl = None
        if plugin.nccl_hints is not None and not is_simulated:
            from nodetopo.deviceplugin import nccl_file  # noqa: PLC0415 - see above

            nccl = nccl_file.NcclHints(plugin.nccl_hints, host_root=settings.host_root)
        return cls(
            settings=settings,
            table=table,
            rules=Rules(
                resource=settings.resource_name,
                mig=MigStrategy(settings.mig_strategy),
                shared=MappingProxyType(shared),
                excluded=settings.exclude_gpus,
                numa=plugin.numa,
            ),
            plugin=plugin,
            is_auto=Strategy.AUTO in asked,
            cdi=cdi,
            nccl=nccl,
            warnings=() if is_simulated else _missing_channels(settings, plugin),
            is_simulated=is_simulated,
        )

    def handing_over_by(self, strategy: Strategy) -> Self:
        """Return this plan with the way chosen for the node, if the node's setup decides."""
        if not self.is_auto:
            return self
        others = (word for word in self.plugin.strategies if word is not Strategy.CDI_CRI)
        # CDI brings the device nodes itself.
        beside = () if strategy is Strategy.CDI_CRI else tuple(others)
        return replace(self, plugin=replace(self.plugin, strategies=(strategy, *beside)))

    def placement(self, resource: Resource) -> tuple[Policy, Model, BandwidthTable | None]:
        """Return how devices of *resource* are chosen; a policy can name it without its suffix."""
        is_special = resource.name in self.settings.placement_policy.special
        return self.placement_of(resource.name if is_special else resource.unshared_name)

    def placement_of(self, name: str) -> tuple[Policy, Model, BandwidthTable | None]:
        """Return how devices of the resource *name* are chosen."""
        settings = self.settings
        return settings.placement_policy.policy(name), Model(settings.bandwidth_model), self.table

    def minors(self) -> Minors:
        """Read the numbers of MIG device nodes, if an answer or a specification can need them."""
        is_needed = Strategy.DEVICE_SPECS in self.plugin.strategies or self.cdi is not None
        return read_minors(self.settings.procfs_root) if is_needed else {}

    def named(self) -> set[str]:
        """Return the resources that settings name."""
        slicing = self.settings.time_slicing or TimeSlicing()
        return {*self.settings.placement_policy.special, *slicing.replicas}


def _missing_channels(settings: GpuSettings, plugin: PluginSettings) -> tuple[str, ...]:
    """Return a sentence for each IMEX channel that containers do not get."""
    missing = imex_problems(plugin, is_required=settings.imex_required)
    if missing and settings.imex_required:
        cure = "create the channel with nvidia-modprobe, or do not set imex-required"
        raise UnreadableError("; ".join(missing), cure)
    return missing
