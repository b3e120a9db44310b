"""Settings: which resources are offered, and which of their devices are chosen."""

from dataclasses import dataclass, field
from pathlib import Path

from agent.allocation.rules import Model, Policy
from agent.config import values
from agent.config.option import choice, option
from agent.config.policies import PlacementPolicies, placement
from agent.config.sharing import ONE_EACH, RENAME, TimeSlicing, time_slicing
from agent.deviceplugin.settings import NumaReport


@dataclass(frozen=True, kw_only=True)
class DeviceSettings:
    """The resources and their devices."""

    resource_name: str = field(
        default="nvidia.com/gpu",
        metadata=option(values.resource, "resource offered to the kubelet", "NAME", is_live=True),
    )
    mig_strategy: str = field(
        default="none",
        metadata=choice("how MIG devices are offered", "none", "single", "mixed", is_live=True),
    )
    time_slicing: TimeSlicing | None = field(
        default=None,
        metadata=option(
            time_slicing,
            f"RESOURCE=REPLICAS by comma, with {RENAME} and {ONE_EACH}",
            "LIST",
            is_live=True,
        ),
    )
    exclude_gpus: tuple[str, ...] = field(
        default=(),
        metadata=option(
            values.names,
            "GPUs not to offer: index, UUID or its beginning, PCI address, product with *",
            "LIST",
            is_live=True,
        ),
    )
    numa_mode: str = field(
        default=NumaReport.NUMA.value,
        metadata=choice(
            "NUMA nodes that a device reports, its own or all of its socket",
            *(mode.value for mode in NumaReport),
            is_live=True,
        ),
    )
    placement_policy: PlacementPolicies = field(
        default=PlacementPolicies(),  # `best` for all: the least bandwidth lost on traces
        metadata=option(
            placement,
            f"{', '.join(Policy)}: one for all resources, or RESOURCE=WORD by comma",
            "LIST",
            is_live=True,
        ),
    )
    bandwidth_model: str = field(
        default=Model.RING.value,
        metadata=choice(
            "how the bandwidth of a set of GPUs is estimated",
            *(model.value for model in Model),
            is_live=True,
        ),
    )
    bandwidth_table: Path | None = field(
        default=None,
        metadata=option(
            values.path,
            "measured bandwidths, YAML or JSON; they win over the model",
            "FILE",
            is_live=True,
        ),
    )
