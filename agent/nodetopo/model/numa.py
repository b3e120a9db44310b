"""NUMA nodes, CPU sets and the CPU's own topology."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Self

from msgspec import Struct

from nodetopo.model.digits import is_digits
from nodetopo.model.limits import MAX_CPUS, MAX_NUMA_NODES, Count, Mib, NumaId

_LONGEST_RANGE = 16
"""Characters of one range; ``65534-65535`` has 11."""


class CpuSet(Struct, frozen=True):
    """A set of logical CPU numbers, written as the kernel writes lists: ``0-51,104-155``."""

    cpus: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the kernel's list format; an empty text is the empty set.

        Raises:
            ValueError: *text* is not such a list.
        """
        cpus: set[int] = set()
        listed = 0  # counts repetitions too, so that a hostile list comes to an end
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            first, dash, last = part.partition("-")
            if not is_digits(first) or (dash and not is_digits(last)) or len(part) > _LONGEST_RANGE:
                raise ValueError(f"not a CPU list: {text[:60]!r}")
            low, high = int(first), int(last or first)
            listed += high - low + 1
            if high < low or high >= MAX_CPUS or listed > MAX_CPUS:
                raise ValueError(f"not a CPU list: {text[:60]!r}")
            cpus.update(range(low, high + 1))
        return cls(frozenset(cpus))

    @classmethod
    def of(cls, cpus: Iterable[int]) -> Self:
        return cls(frozenset(cpus))

    def __str__(self) -> str:
        runs: list[list[int]] = []
        for cpu in sorted(self.cpus):
            if runs and cpu == runs[-1][-1] + 1:
                runs[-1][1:] = [cpu]
            else:
                runs.append([cpu])
        return ",".join("-".join(map(str, run)) for run in runs)

    def __len__(self) -> int:
        return len(self.cpus)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self.cpus))

    def __contains__(self, cpu: object) -> bool:
        return cpu in self.cpus

    def __le__(self, other: "CpuSet") -> bool:
        return self.cpus <= other.cpus

    def __and__(self, other: "CpuSet") -> "CpuSet":
        return CpuSet(self.cpus & other.cpus)

    def __or__(self, other: "CpuSet") -> "CpuSet":
        return CpuSet(self.cpus | other.cpus)


class HugePages(Struct, frozen=True, kw_only=True):
    """Huge pages of one size on one NUMA node."""

    size_kib: int
    total: int
    free: int | None = None


class NumaNode(Struct, frozen=True, kw_only=True):
    """One NUMA node as the kernel numbers it; ids can be sparse."""

    id: NumaId
    cpus: CpuSet  # empty for a memory-only node (a GPU's memory on Grace)
    memory_mib: Mib | None = None
    # ACPI SLIT units towards every online node, ascending by node id.
    distances: Annotated[tuple[int, ...], Count(0, MAX_NUMA_NODES)] | None = None
    hugepages: tuple[HugePages, ...] = ()


class Socket(Struct, frozen=True, kw_only=True):
    """One CPU package."""

    id: int
    cpus: CpuSet


class CpuTopology(Struct, frozen=True, kw_only=True):
    """The online CPUs and how they share hardware."""

    online: CpuSet
    # vendor, model: as `/proc/cpuinfo` spells them; on arm64, which prints numbers only, `ARM` and
    # the name of the core, e.g. `Neoverse-V2`
    vendor: str | None = None
    model: str | None = None
    sockets: tuple[Socket, ...] = ()
    cores: tuple[CpuSet, ...] = ()  # one set per physical core, with its hardware threads
    # One set per last-level cache; empty when sysfs lists no caches.
    l3_groups: tuple[CpuSet, ...] = ()
    # The kernel's number of each of them (`cache/index*/id`); empty if one is unknown.
    l3_ids: tuple[int, ...] = ()
    # family, model_number: of x86 CPUs, as /proc/cpuinfo counts them
    family: int | None = None
    model_number: int | None = None
    # offline, isolated: CPUs that exist but are not online, and those that the scheduler does not
    # use (`isolcpus`); None where the kernel does not say
    offline: CpuSet | None = None
    isolated: CpuSet | None = None
    smt: bool | None = None  # hardware threads are in use
    governors: tuple[str, ...] = ()  # distinct cpufreq governors, sorted; empty without cpufreq
    is_virtual: bool | None = None  # a guest (flag `hypervisor`, x86 only)
