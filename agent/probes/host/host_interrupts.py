"""To which CPUs the interrupts of HCAs go.

A function's vectors are in sysfs ``msi_irqs`` (kernel Documentation/ABI/testing/sysfs-bus-pci),
their CPUs and handlers in ``/proc/irq`` (kernel core-api/irq/irq-affinity.rst, kernel/irq/proc.c).
"""

import re
from collections.abc import Iterable

from agent.model.hca import Hca
from agent.model.host import Interrupts
from agent.model.numa import CpuSet
from agent.model.pci import PciAddress
from agent.probes.sysfs.files import Files

_MAX_VECTORS = 2048
"""Of MSI-X, for one function (PCI Express base specification 6.0, 7.7.2)."""

_ATTRIBUTES = frozenset(
    """
    affinity_hint effective_affinity effective_affinity_list node smp_affinity smp_affinity_list
    spurious
    """.split(),  # noqa: SIM905 - as prose
)
"""Files of an interrupt; any other name there is a directory, named after its handler."""

_SELDOM = re.compile(r"async|cmd|pages|mgmnt|aeq", re.IGNORECASE)
"""In names of handlers that serve no traffic: ``mlx5_async0@pci:0000:1b:00.0``, ``mlx5_cmd_eq``,
``mlx5_pages_eq``, ``efa-mgmnt@pci:0000:1b:00.0``, ``irdma-ens1f0-AEQ``."""


def hca_interrupts(
    sysfs: Files, procfs: Files, hcas: Iterable[Hca]
) -> tuple[Interrupts, ...] | None:
    """Return the interrupts of each HCA's function that traffic raises, in the order of *hcas*.

    HCAs that share a function are one, under the first's name; an HCA without such interrupts is
    left out. ``None`` where the kernel shows no interrupts at all.
    """
    if procfs.names("irq") is None:
        return None
    first: dict[PciAddress, str] = {}
    for hca in hcas:
        if hca.pci is not None:
            first.setdefault(hca.pci, hca.name)
    found = (_of(sysfs, procfs, name, address) for address, name in first.items())
    return tuple(one for one in found if one is not None)


def _of(sysfs: Files, procfs: Files, hca: str, address: PciAddress) -> Interrupts | None:
    names = sysfs.names(f"bus/pci/devices/{address}/msi_irqs") or ()
    vectors = sorted(int(name) for name in names if name.isdecimal())[:_MAX_VECTORS]
    cpus = [found for vector in vectors if (found := _cpus(procfs, vector)) is not None]
    if not cpus:
        return None
    union = frozenset[int]().union(*(one.cpus for one in cpus))
    return Interrupts(hca=hca, cpus=CpuSet(union), numbers=len(cpus))


def _cpus(procfs: Files, vector: int) -> CpuSet | None:
    """Return where an interrupt goes; ``None`` without a handler of traffic.

    An interrupt that nobody handles is shown on CPU 0 (kernel arch/x86/kernel/apic/vector.c,
    vector_assign_managed_shutdown), which says nothing.
    """
    place = f"irq/{vector}"
    handlers = set(procfs.names(place) or ()) - _ATTRIBUTES
    if not handlers or all(map(_SELDOM.search, handlers)):
        return None
    return procfs.cpus(f"{place}/effective_affinity_list") or procfs.cpus(
        f"{place}/smp_affinity_list"
    )
