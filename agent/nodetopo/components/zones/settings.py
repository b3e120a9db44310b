"""The settings of zones and placements."""

from dataclasses import dataclass

from nodetopo.kernel.settings.groups import CLUSTER
from nodetopo.kernel.settings.own import KernelSettings


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ZoneSettings(KernelSettings):
    """The kernel's settings and the settings of zones and placements."""

    publish_zones: bool = CLUSTER(
        False,  # another program can, and not every cluster has the object's definition
        "write the free resources of each NUMA node as a NodeResourceTopology object",
        writes=True,
    )
    annotate_pods: bool = CLUSTER(
        False,  # takes the right to patch pods
        "annotate each pod with its NUMA nodes, for KAI",
        writes=True,
    )
