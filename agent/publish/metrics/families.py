"""Every metric family of one agent, in the order of the page.

Names follow the Prometheus conventions: base units, ``_total`` for counters, ``_info`` for
facts whose value is 1. Facts come from what is in memory; a scrape asks no hardware.
"""

from collections.abc import Iterator

from prometheus_client.core import Metric

from agent.publish.metrics.agent_families import AGENT_FAMILIES
from agent.publish.metrics.alignment_families import ALIGNMENT_FAMILIES
from agent.publish.metrics.family import Family
from agent.publish.metrics.gpu_families import GPU_FAMILIES
from agent.publish.metrics.health_families import HEALTH_FAMILIES
from agent.publish.metrics.kubelet_families import KUBELET_FAMILIES
from agent.publish.metrics.node_families import NODE_FAMILIES
from agent.publish.metrics.state import MetricsState

FAMILIES: tuple[Family, ...] = (
    *AGENT_FAMILIES,
    *KUBELET_FAMILIES,
    *NODE_FAMILIES,
    *GPU_FAMILIES,
    *HEALTH_FAMILIES,
    *ALIGNMENT_FAMILIES,
)


def families(state: MetricsState) -> Iterator[Metric]:
    """Yield every family; one whose facts are unknown has no samples."""
    return (family.metric(state) for family in FAMILIES)
