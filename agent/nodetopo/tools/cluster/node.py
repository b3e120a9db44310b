"""A node of the cluster, from its metadata."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from nodetopo.errors import DecodeError

_LAST_NUMBER = re.compile(
    r"(?P<head>[^.]*?)(?P<number>[0-9]{1,18})(?P<tail>[^0-9.]*(?:\..*)?)", re.DOTALL
)
"""The last number before the first dot; the domain follows."""


def folded(names: Iterable[str]) -> str:
    """Return *names* with runs of numbers folded, as Slurm does: ``gpu-[01-17,20],login``.

    Names are folded that differ only in the last number of their host part, which has as many
    digits in all of them or no leading zero in any. None is left out.
    """
    groups: dict[tuple[str, str, int], list[str]] = {}
    parts = []
    for name in sorted(set(names)):
        match = _LAST_NUMBER.fullmatch(name)
        if match is None:
            parts.append(name)
            continue
        number = match["number"]
        digits = len(number) if number.startswith("0") and number != "0" else 0
        groups.setdefault((match["head"], match["tail"], digits), []).append(number)
    # 10 goes with 09, for both have two digits.
    for (head, tail, digits), numbers in groups.items():
        if digits:
            unpadded = groups.get((head, tail, 0), [])
            numbers += [number for number in unpadded if len(number) == digits]
            unpadded[:] = [number for number in unpadded if len(number) != digits]
    for (head, tail, digits), numbers in groups.items():
        runs: list[tuple[int, int]] = []
        for value in sorted(map(int, numbers)):
            if runs and value == runs[-1][1] + 1:
                runs[-1] = (runs[-1][0], value)
            else:
                runs.append((value, value))
        texts = [
            f"{first:0{digits}}" if first == last else f"{first:0{digits}}-{last:0{digits}}"
            for first, last in runs
        ]
        if numbers:
            folded_numbers = texts[0] if len(numbers) == 1 else f"[{','.join(texts)}]"
            parts.append(f"{head}{folded_numbers}{tail}")
    return ",".join(sorted(parts))


class ClusterNode(Struct, frozen=True, kw_only=True):
    """One Node object."""

    name: str  # of the object
    labels: Mapping[str, str]  # all of them, from any writer
    # Label key → the field managers that own it (`metadata.managedFields`), sorted; None if
    # unknown, as in the output of `kubectl get -o json` without `--show-managed-fields`.
    owners: Mapping[str, tuple[str, ...]] | None = None


_COUNT, _PRESENT = "nvidia.com/gpu.count", "nvidia.com/gpu.present"
"""Of GPU Feature Discovery, and of the GPU Operator (state_manager.go of v25.10)."""


_OTHERS = ("nvidia.com/gpu.product", "nvidia.com/gpu.clique")


_OWN = ("interconnect", "nvlink-partition")


def gpu_nodes(nodes: Iterable[ClusterNode], prefix: str) -> tuple[ClusterNode, ...]:
    """Return the *nodes* that have GPUs, in their order; *prefix* is our labels' prefix."""
    return tuple(node for node in nodes if has_gpus(node, prefix))


def has_gpus(node: ClusterNode, prefix: str) -> bool:
    """Return whether labels of ours, of GFD or of the GPU Operator indicate GPUs on *node*."""
    if node.labels.get(_COUNT) == "0":
        return False
    keys = (_COUNT, *_OTHERS, *(f"{prefix}{name}" for name in _OWN))
    return node.labels.get(_PRESENT) == "true" or any(key in node.labels for key in keys)


# A Node's metadata, as the API server and ``kubectl`` write it, turned into a ClusterNode.


def cluster_node(metadata: Any) -> ClusterNode:
    """Return the node that *metadata* (``.metadata`` of a Node object) describes.

    Owners come from ``managedFields``, whose ``fieldsV1`` spells a field ``f:<name>``
    (Kubernetes API reference, ManagedFieldsEntry).

    Raises:
        DecodeError: not metadata of a Node; its path starts at *metadata*.
    """
    fields = _mapping("", metadata)
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise DecodeError("name", f"expected a name, found {name!r}")
    labels = _mapping("labels", fields.get("labels"))
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            cure = "put label values in quotes"
            raise DecodeError(f"labels.{key}", f"expected text, found {value!r}", cure)
    return ClusterNode(
        name=name, labels=labels, owners=_owners(fields.get("managedFields"), labels)
    )


def _owners(managed: Any, labels: Mapping[str, str]) -> dict[str, tuple[str, ...]] | None:
    """Return the managers of each of *labels* that has any; ``None`` where none are listed."""
    if managed is None:
        return None
    if not isinstance(managed, list):
        raise DecodeError("managedFields", f"expected a list, found {type(managed).__name__}")
    owners: dict[str, set[str]] = {}
    for position, entry in enumerate(managed):
        at = f"managedFields[{position}]"
        manager = str(_mapping(at, entry).get("manager"))
        fields: Any = entry
        for name in ("fieldsV1", "f:metadata", "f:labels"):
            at = f"{at}.{name}"
            fields = _mapping(at, fields.get(name))
        for field in fields:
            if (key := str(field).removeprefix("f:")) in labels:
                owners.setdefault(key, set()).add(manager)
    return {key: tuple(sorted(names)) for key, names in sorted(owners.items())}


def _mapping(at: str, value: Any) -> Mapping[str, Any]:
    """Return *value*; an empty mapping for ``null``."""
    if value is None and at:
        return {}
    if not isinstance(value, Mapping):
        raise DecodeError(at, f"expected an object, found {type(value).__name__}")
    return value
