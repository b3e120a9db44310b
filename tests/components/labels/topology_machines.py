"""Machines for the tests of the topology family, and their labels without the prefix."""

from pathlib import Path
from typing import Any

from msgspec import structs

from nodetopo.components.labels.catalogue import labels
from nodetopo.components.labels.rules import DEFAULT_PREFIX, LabelRules
from nodetopo.model.codec import decode
from nodetopo.model.snapshot import Snapshot

_NODES = Path(__file__).parents[2] / "nodes"


def shape(name: str) -> Snapshot:
    """Return the golden snapshot of `tests/nodes`."""
    return decode((_NODES / name / "snapshot.json").read_text("utf-8")).snapshot


def own(snapshot: Snapshot, **rules: Any) -> dict[str, str]:
    """Return the labels under our prefix, by what stands behind it."""
    found = labels(snapshot, LabelRules(**rules))
    return {
        key.removeprefix(DEFAULT_PREFIX): value
        for key, value in found.items()
        if key.startswith(DEFAULT_PREFIX)
    }


def changed(before: Snapshot, after: Snapshot) -> dict[str, str | None]:
    """Return the labels under our prefix that differ, later value; ``None`` for those gone."""
    old, new = own(before), own(after)
    return {key: new.get(key) for key in sorted(old | new) if old.get(key) != new.get(key)}


def with_gpu(snapshot: Snapshot, index: int, **changes: Any) -> Snapshot:
    """Return *snapshot* with *changes* made to one GPU."""
    gpus = tuple(
        structs.replace(gpu, **changes) if gpu.index == index else gpu for gpu in snapshot.gpus
    )
    return structs.replace(snapshot, gpus=gpus)


def with_port(snapshot: Snapshot, *names: str, **changes: Any) -> Snapshot:
    """Return *snapshot* with *changes* made to all ports of the HCAs called *names*."""
    hcas = tuple(
        structs.replace(hca, ports=tuple(structs.replace(port, **changes) for port in hca.ports))
        if hca.name in names
        else hca
        for hca in snapshot.hcas or ()
    )
    return structs.replace(snapshot, hcas=hcas)
