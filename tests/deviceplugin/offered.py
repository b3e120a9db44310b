"""Machines whose offers tests look at, changed and counted."""

from collections.abc import Callable

from msgspec.structs import replace

from nodetopo.deviceplugin.resources import Offer
from nodetopo.model.gpu import Gpu, Mig, MigInstance
from nodetopo.model.kubernetes import GPU_RESOURCE
from nodetopo.model.snapshot import Snapshot
from tests.deviceplugin.machines import node

GPU = GPU_RESOURCE
MIG = node("h100x8-nvswitch-2numa-mig")
WHOLE = node("h100x8-nvswitch-2numa-8cx7")


def counts(found: Offer) -> dict[str, int]:
    return {one.name: len(one.devices) for one in found.resources}


def changed(snapshot: Snapshot, change: Callable[[Gpu], Gpu]) -> Snapshot:
    return replace(snapshot, gpus=tuple(map(change, snapshot.gpus)))


def divided(*profiles: str | None) -> Callable[[Gpu], Gpu]:
    """Return what puts a GPU in MIG mode with a device of each profile."""

    def change(gpu: Gpu) -> Gpu:
        instances = tuple(
            MigInstance(uuid=f"MIG-{gpu.index}-{at}", profile=profile)
            for at, profile in enumerate(profiles)
        )
        return replace(gpu, mig=Mig(is_enabled=True, instances=instances))

    return change
