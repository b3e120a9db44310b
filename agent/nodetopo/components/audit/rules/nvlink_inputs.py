"""Inputs of rules on NVLink, and the conditions under which they do not apply."""

from nodetopo.checks.inputs import because, missing_answers, no_gpus, unknown_of
from nodetopo.checks.rule import Missing
from nodetopo.model.gpu import Gpu
from nodetopo.model.nvlink import NvLink
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology import wiring
from nodetopo.topology.links import switch_links

FIRST_WITH_REGISTRATION = (9, 0)
"""Compute capability of H100."""


def missing_links(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Return NVML's missing inputs on the GPUs as a whole, and "NVLinks" if none were read."""
    absent = missing_answers(snapshot)
    if snapshot.nvlinks is None:
        return (*absent, Missing("NVLinks", because(snapshot, "nvml")))
    return absent


def missing_lists(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Return :func:`missing_links`, and the GPUs that should list NVLinks and do not."""
    names = (gpu.name for gpu in wiring.modules_without_links(snapshot))
    return missing_links(snapshot) + unknown_of("NVLinks", names)


def lost(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the names of the lost GPUs, of which only an earlier state is known."""
    return tuple(gpu.name for gpu in snapshot.gpus if gpu.is_lost)


def knows_links(snapshot: Snapshot) -> bool:
    """Return whether the NVLinks of all GPUs are currently known."""
    return not missing_lists(snapshot) and not lost(snapshot)


def active(snapshot: Snapshot) -> tuple[NvLink, ...]:
    """Return the NVLinks that are up."""
    return tuple(link for link in snapshot.nvlinks or () if link.is_active)


def switched(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return the GPUs behind NVSwitches: by active links to switches, or by registration.

    The registration counts while all links are down, and whether or not the switches show
    themselves as PCI functions. In MIG mode a GPU needs neither.
    """
    links = switch_links(snapshot)
    return tuple(
        gpu
        for gpu in snapshot.gpus
        if links[gpu.index] or (wiring.registers(gpu) and not gpu.is_divided)
    )


def may_register(gpu: Gpu) -> bool:
    """Return whether *gpu* is of a kind that registers with a fabric, or could be."""
    capability = gpu.compute_capability
    is_of_kind = capability is None or capability >= FIRST_WITH_REGISTRATION
    return is_of_kind or wiring.registers(gpu)


def without_fabric_state(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the GPUs whose state in the NVLink fabric is not known.

    GPUs behind NVSwitches register with a fabric from H100 on (NVIDIA Fabric Manager User Guide,
    "GPU Fabric Registration Status"). The last state of a lost GPU does not count.
    """
    members = (
        gpu.name
        for gpu in (*switched(snapshot), *_without_far_end(snapshot))
        if gpu.is_lost or (gpu.fabric is None and may_register(gpu))
    )
    return tuple(dict.fromkeys((*members, *lost(snapshot))))


def no_links(snapshot: Snapshot) -> str | None:
    """Return why rules about NVLinks in use do not apply."""
    is_without = not active(snapshot) and knows_links(snapshot)
    return no_gpus(snapshot) or ("no NVLink in use" if is_without else None)


def no_switch(snapshot: Snapshot) -> str | None:
    """Return why rules about NVSwitches do not apply."""
    is_with = snapshot.nvswitches or switched(snapshot) or _without_far_end(snapshot)
    is_without = not is_with and knows_links(snapshot)
    return no_gpus(snapshot) or ("no NVSwitch" if is_without else None)


def _without_far_end(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return the GPUs that could be behind NVSwitches.

    Their links are wired and all down, so that none names its far end, and the driver does not
    report whether they register with a fabric.
    """
    linked = {link.gpu for link in active(snapshot)}
    wired = wiring.wired_gpus(snapshot) - linked
    return tuple(
        gpu
        for gpu in snapshot.gpus
        if gpu.index in wired and gpu.fabric is None and may_register(gpu)
    )
