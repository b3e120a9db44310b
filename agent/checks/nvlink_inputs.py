"""What rules about NVLink need to know, and when they do not apply."""

from agent.checks.inputs import because, missing_answers, no_gpus, unknown_of
from agent.checks.rule import Missing
from agent.model.gpu import Gpu
from agent.model.nvlink import NvLink, PeerKind
from agent.model.snapshot import Snapshot
from agent.topology.links import switch_links

FIRST_WITH_REGISTRATION = (9, 0)
"""Compute capability of H100."""


def missing_links(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Return what NVML withholds of the GPUs as a whole, and "NVLinks" when none were read."""
    absent = missing_answers(snapshot)
    if snapshot.nvlinks is None:
        return (*absent, Missing(f"NVLinks{because(snapshot, 'nvml')}"))
    return absent


def missing_lists(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Return :func:`missing_links`, and the GPUs that should list NVLinks and do not."""
    return missing_links(snapshot) + unknown_of("NVLinks", modules_without_links(snapshot))


def modules_without_links(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the GPUs that sit on a baseboard beside others and list no NVLink at all.

    A baseboard has NVLinks, so NVML withholds them rather than that there are none. In MIG mode
    a GPU uses none; a virtual machine may own one module of a board.
    """
    modules = [gpu for gpu in snapshot.gpus if is_module(gpu)]
    if len(modules) < 2 or snapshot.nvlinks is None:
        return ()
    linked = {link.gpu for link in snapshot.nvlinks} | {it.index for it in modules if it.is_divided}
    return tuple(gpu.name for gpu in modules if gpu.index not in linked)


def is_module(gpu: Gpu) -> bool:
    """Return whether *gpu* sits on a baseboard; not every product's name says so."""
    return gpu.module_id is not None or "SXM" in (gpu.product or "")


def lost(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the names of the lost GPUs, of which only an earlier state is known."""
    return tuple(gpu.name for gpu in snapshot.gpus if gpu.is_lost)


def knows_links(snapshot: Snapshot) -> bool:
    """Return whether it is known which NVLinks there are: of all GPUs, and now."""
    return not missing_lists(snapshot) and not lost(snapshot)


def active(snapshot: Snapshot) -> tuple[NvLink, ...]:
    """Return the NVLinks that are up."""
    return tuple(link for link in snapshot.nvlinks or () if link.is_active)


def has_switches(snapshot: Snapshot) -> bool:
    """Return whether the node has NVSwitches, or NVLinks that end at one."""
    links = snapshot.nvlinks or ()
    return bool(snapshot.nvswitches) or any(link.peer_kind is PeerKind.SWITCH for link in links)


def switched(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return the GPUs with links to NVSwitches that are up."""
    links = switch_links(snapshot)
    return tuple(gpu for gpu in snapshot.gpus if links[gpu.index])


def registers(gpu: Gpu) -> bool:
    """Return whether *gpu* is of a kind that registers with a fabric, or could be."""
    return gpu.compute_capability is None or gpu.compute_capability >= FIRST_WITH_REGISTRATION


def without_fabric_state(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the GPUs whose state in the NVLink fabric is not known.

    GPUs behind NVSwitches register with a fabric from H100 on (NVIDIA Fabric Manager User Guide,
    "GPU Fabric Registration Status"). The last state of a lost GPU does not count.
    """
    members = (
        gpu.name
        for gpu in switched(snapshot)
        if gpu.is_lost or (gpu.fabric is None and registers(gpu))
    )
    return tuple(dict.fromkeys((*members, *lost(snapshot))))


def no_links(snapshot: Snapshot) -> str | None:
    """Return why rules about NVLinks in use do not apply."""
    is_without = not active(snapshot) and knows_links(snapshot)
    return no_gpus(snapshot) or ("no NVLink in use" if is_without else None)


def no_switch(snapshot: Snapshot) -> str | None:
    """Return why rules about NVSwitches do not apply."""
    is_without = not snapshot.nvswitches and not switched(snapshot) and knows_links(snapshot)
    return no_gpus(snapshot) or ("no NVSwitch" if is_without else None)
