"""A rule on slots that give a GPU less than it could use."""

from collections.abc import Iterator

from agent.checks.inputs import (
    Inputs,
    first_of,
    gpu_label,
    missing_gpus,
    missing_machine,
    no_gpus,
    unknown_of,
    virtual_machine,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.pci import PcieLink
from agent.model.snapshot import Snapshot


def ends(snapshot: Snapshot) -> Iterator[tuple[Gpu, PcieLink | None, PcieLink | None]]:
    """Yield each GPU below a port, with its own link and the port's."""
    ports = {bridge.address: bridge.link for bridge in snapshot.bridges or ()}
    for gpu in snapshot.gpus:
        if gpu.path is None or len(gpu.path.hops) > 1:
            own = None if gpu.function is None else gpu.function.link
            yield gpu, own, None if gpu.path is None else ports.get(gpu.path.hops[-2])


def _held_back(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=gpu_label(gpu),
            observed=f"a slot of Gen{port.max_generation} x{port.max_width}",
            expected=f"Gen{own.max_generation} x{own.max_width}",
        )
        for gpu, own, port in ends(snapshot)
        if own and port and _is_known(own) and _is_known(port) and _is_less(port, own)
    )


def _is_known(link: PcieLink | None) -> bool:
    return link is not None and None not in (link.max_generation, link.max_width)


def _is_less(port: PcieLink, own: PcieLink) -> bool:
    generations = port.max_generation or 0, own.max_generation or 0
    widths = port.max_width or 0, own.max_width or 0
    return generations[0] < generations[1] or widths[0] < widths[1]


def _missing(snapshot: Snapshot) -> Inputs:
    unread = (
        gpu.name for gpu, own, port in ends(snapshot) if not _is_known(own) or not _is_known(port)
    )
    return (
        *missing_gpus(snapshot),
        *missing_machine(snapshot),
        *unknown_of("greatest PCIe link", unread),
    )


RULE = Rule(
    code="PCI-003",
    claim="every GPU is in a slot that gives it all that it can use",
    why="A slot or riser of fewer lanes or an older generation costs bandwidth to the CPU, to "
    "storage and to HCAs, without any error.",
    area=Area.PCIE,
    suite=Suite.HEALTH,
    severity=Severity.INFO,
    needs=_missing,
    check=_held_back,
    skips=first_of(no_gpus, virtual_machine),
    remedy="move the GPU to another slot; where the machine has no better one, leave it",
    reference="https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci",
)
