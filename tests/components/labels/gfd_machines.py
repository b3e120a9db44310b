"""Machines for the tests of GFD's labels, and their labels in NVIDIA's domain."""

from pathlib import Path
from typing import Any

from msgspec import structs

from nodetopo.components.labels.catalogue import labels
from nodetopo.components.labels.rules import LabelRules
from nodetopo.model.codec import decode
from nodetopo.model.gpu import Gpu, Mig, MigAttributes, MigInstance
from nodetopo.model.snapshot import Snapshot

_NODES = Path(__file__).parents[2] / "nodes"
NVIDIA = "nvidia.com/"
_DEFAULT = LabelRules()


def shape(name: str) -> Snapshot:
    """Return the golden snapshot of `tests/nodes`."""
    return decode((_NODES / name / "snapshot.json").read_text("utf-8")).snapshot


H100 = shape("h100x8-nvswitch-2numa-8cx7")
PARTLY = shape("h100x8-nvswitch-2numa-mig")
"""H100: seven MIG devices of a profile, two of another, a GPU without any, and five whole ones."""


def gfd(snapshot: Snapshot, rules: LabelRules = _DEFAULT) -> dict[str, str]:
    """Return the labels in NVIDIA's domain, by what stands behind it."""
    found = labels(snapshot, rules)
    return {
        key.removeprefix(NVIDIA): value for key, value in found.items() if key.startswith(NVIDIA)
    }


def changed(before: Snapshot, after: Snapshot) -> dict[str, str | None]:
    """Return those that differ, with their later value; ``None`` for those gone."""
    return difference(gfd(before), gfd(after))


def ruled(snapshot: Snapshot, **rules: Any) -> dict[str, str | None]:
    """Return those that differ from the default by *rules*."""
    return difference(gfd(snapshot), gfd(snapshot, LabelRules(**rules)))


def difference(old: dict[str, str], new: dict[str, str]) -> dict[str, str | None]:
    """Return what differs, as in *new*; ``None`` for what it lacks."""
    return {key: new.get(key) for key in sorted(old | new) if old.get(key) != new.get(key)}


def with_gpus(snapshot: Snapshot, *indices: int, **changes: Any) -> Snapshot:
    """Return *snapshot* with *changes* made to the GPUs of *indices*; none at all means each."""
    gpus = tuple(
        structs.replace(gpu, **changes) if gpu.index in indices or not indices else gpu
        for gpu in snapshot.gpus
    )
    return structs.replace(snapshot, gpus=gpus)


def divided(gpu: Gpu, *profiles: str | None, attributes: MigAttributes | None = None) -> Gpu:
    """Return *gpu* in MIG mode with a MIG device of each of *profiles*."""
    instances = tuple(
        MigInstance(uuid=f"MIG-{gpu.index}-{slot}", profile=profile, attributes=attributes)
        for slot, profile in enumerate(profiles)
    )
    return structs.replace(gpu, mig=Mig(is_enabled=True, instances=instances))


def all_divided(snapshot: Snapshot, *profiles: str | None) -> Snapshot:
    """Return *snapshot* with every GPU divided into *profiles*."""
    gpus = tuple(divided(gpu, *profiles, attributes=HALF) for gpu in snapshot.gpus)
    return structs.replace(snapshot, gpus=gpus)


HALF = MigAttributes(
    multiprocessors=60,
    copy_engines=3,
    decoders=4,
    encoders=0,
    jpeg_engines=3,
    ofa_engines=0,
    gpu_instance_slices=3,
    compute_instance_slices=3,
    memory_mib=40448,
)
"""Of 3g.40gb of H100 80GB (NVIDIA MIG User Guide; the memory as NVML has it)."""
