"""Rules on the GPUs' place on the PCI bus."""

from agent.checks import pcie_acs, pcie_iommu, pcie_payload, pcie_peers, pcie_slot
from agent.checks.inputs import Inputs, gpu_label, missing_answers, missing_of_gpus, no_gpus
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.pci import PciAddress, PcieLink
from agent.model.snapshot import ProbeIssue, Snapshot


def _narrow(snapshot: Snapshot) -> tuple[Finding, ...]:
    # The width, unlike the generation, does not drop while a GPU idles.
    slots = {gpu.index: port for gpu, _, port in pcie_slot.ends(snapshot)}
    return tuple(
        Finding(subject=gpu_label(gpu), observed=f"x{gpu.pcie.width}", expected=f"x{full}")
        for gpu in snapshot.gpus
        if gpu.pcie
        and gpu.pcie.width is not None
        and (full := _full_width(gpu.pcie, slots.get(gpu.index))) is not None
        and gpu.pcie.width < full
    )


def _full_width(own: PcieLink, port: PcieLink | None) -> int | None:
    """Return what GPU and slot can do together; that a slot has fewer lanes is PCI-003's."""
    if own.max_width is None or port is None or port.max_width is None:
        return own.max_width
    return min(own.max_width, port.max_width)


def _knows_width(gpu: Gpu) -> bool:
    link = gpu.pcie
    return link is not None and link.width is not None and link.max_width is not None


def _lost(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(subject=gpu_label(gpu), observed="lost", expected="answers the driver")
        for gpu in snapshot.gpus
        if gpu.is_lost
    )


def _missing_gpus(snapshot: Snapshot) -> Inputs:
    silent = [gpu.name for gpu in snapshot.gpus if not gpu.is_lost and gpu.uuid is None]
    return (
        *missing_answers(snapshot),
        *((f"answer of {', '.join(silent)}",) if silent else ()),
        *(f"{it.subject}, {it.reason}" for it in snapshot.issues if _is_of_census(it)),
    )


def _is_of_census(issue: ProbeIssue) -> bool:
    """Return whether *issue* says that PCI and NVML disagree about the GPU at an address."""
    try:
        PciAddress.parse(issue.subject)
    except ValueError:
        return False
    return issue.probe == "pcie"


RULES: tuple[Rule, ...] = (
    Rule(
        code="PCI-001",
        claim="every GPU runs at its full PCIe width",
        why="Half the lanes are half the bandwidth to the CPU, to storage and to the HCAs.",
        area=Area.PCIE,
        suite=Suite.HEALTH,
        severity=Severity.ERROR,
        needs=missing_of_gpus("PCIe link width", _knows_width),
        check=_narrow,
        skips=no_gpus,
        remedy="reseat the GPU, then check riser, cable and the slot's bifurcation in firmware",
        reference="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
    ),
    Rule(
        code="PCI-002",
        claim="every GPU is on the bus and answers",
        why="A GPU that fell off the bus comes back with a reboot at the earliest; its jobs are "
        "gone.",
        area=Area.PCIE,
        suite=Suite.HEALTH,
        severity=Severity.ERROR,
        needs=_missing_gpus,
        check=_lost,
        remedy="look for XID 79 in the kernel log; drain and reboot the node, and if it happens "
        "again check power, cooling and seating of the GPU",
        reference="https://docs.nvidia.com/deploy/xid-errors/",
    ),
    pcie_slot.RULE,
    pcie_peers.RULE,
    pcie_acs.RULE,
    pcie_iommu.RULE,
    pcie_payload.RULE,
)
