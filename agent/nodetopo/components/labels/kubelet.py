"""The kubelet's policies that decide whether a pod's GPUs, CPUs and memory are aligned.

The NodeResourceTopology object has fields only for the Topology Manager's.
"""

from nodetopo.components.labels.label import Label


def _entry(name: str, setting: str, field: str, *values: str) -> Label:
    return Label(
        f"gpu.topology/{name}",
        f"`{setting}` in the kubelet's spelling: {', '.join(f'`{value}`' for value in values)}.",
        "kubelet's configuration",
        "a handful",
        lambda node: getattr(node.kubelet, field, None) if node.gpus else None,
    )


ENTRIES = (
    _entry(
        *("tm-policy", "topologyManagerPolicy", "topology_manager_policy"),
        *("none", "best-effort", "restricted", "single-numa-node"),
    ),
    _entry("tm-scope", "topologyManagerScope", "topology_manager_scope", "container", "pod"),
    _entry("cpu-manager", "cpuManagerPolicy", "cpu_manager_policy", "none", "static"),
    _entry("memory-manager", "memoryManagerPolicy", "memory_manager_policy", "None", "Static"),
)
