"""The NUMA node that a PCI function is near, where its own file does not say."""

from collections.abc import Iterable, Mapping
from functools import cached_property

from agent.model.numa import CpuSet
from agent.probes.sysfs.files import Files
from agent.probes.sysfs.numa import node_cpus, node_ids


class NearNodes:
    """NUMA nodes of PCI functions, named by their directories in sysfs."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def node(self, places: Iterable[str], near: CpuSet | None) -> int | None:
        """Return the node of the first of *places*, or of the next that has one.

        Args:
            places: the function, then the bridges above it, the nearest first. sysfs prints -1
                where firmware gave no _PXM: unknown, not node 0. The kernel lets a function
                inherit its bridge's node only at boot, so the bridges are asked as well.
            near: the CPUs near the function, which decide if no place does: the node that
                holds them all. Without a node the kernel names every CPU of the machine, so on
                more than one node they say nothing.
        """
        for place in places:
            node = self._files.number(f"{place}/numa_node")
            if node is not None and node >= 0:
                return node
        if not near:
            return None
        return next((node for node, cpus in self._cpus.items() if near <= cpus), None)

    def cpus(self, place: str) -> CpuSet | None:
        """Return the CPUs that the kernel calls near a function."""
        cpus = self._files.cpus(f"{place}/local_cpulist")
        return cpus if cpus is not None else self._files.cpu_mask(f"{place}/local_cpus")

    @cached_property
    def _cpus(self) -> Mapping[int, CpuSet]:
        return {
            node: cpus
            for node in node_ids(self._files) or ()
            if (cpus := node_cpus(self._files, node))
        }
