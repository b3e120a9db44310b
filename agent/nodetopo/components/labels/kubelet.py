"""The kubelet's policies that decide whether a pod's GPUs, CPUs and memory are aligned.

The NodeResourceTopology object has fields only for the Topology Manager's.
"""

from collections.abc import Callable

from nodetopo.components.labels.label import LabelEntry
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.snapshot import Snapshot


def _entry(
    name: str,
    setting: str,
    values: str,
    value: Callable[[KubeletSettings], str | None],
) -> LabelEntry:
    def of_node(snapshot: Snapshot) -> str | None:
        settings = snapshot.kubelet if snapshot.gpus else None
        return None if settings is None else value(settings)

    return LabelEntry(
        key=f"gpu.topology/{name}",
        meaning=f"`{setting}` in the kubelet's spelling: {values}.",
        source="kubelet's configuration",
        cardinality="a handful",
        value=of_node,
    )


ENTRIES: tuple[LabelEntry, ...] = (
    _entry(
        "tm-policy",
        "topologyManagerPolicy",
        "`none`, `best-effort`, `restricted`, `single-numa-node`",
        lambda settings: settings.topology_manager_policy,
    ),
    _entry(
        "tm-scope",
        "topologyManagerScope",
        "`container`, `pod`",
        lambda settings: settings.topology_manager_scope,
    ),
    _entry(
        "cpu-manager",
        "cpuManagerPolicy",
        "`none`, `static`",
        lambda settings: settings.cpu_manager_policy,
    ),
    _entry(
        "memory-manager",
        "memoryManagerPolicy",
        "`None`, `Static`",
        lambda settings: settings.memory_manager_policy,
    ),
)
