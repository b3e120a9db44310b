"""Bandwidths that an operator measured on a machine; they take precedence over every model.

The table is a document of this shape, as YAML or JSON (docs/internals/placement.md)::

    kind: nodetopo-bandwidth-table
    version: 1
    machine: DGX-1V, nccl-tests 2.13    # free text, can be left out
    operation: all_reduce_perf          # of the sets; this one if left out
    unit: GB/s
    pairs: [{gpus: [0, 1], bandwidth: 24.1}]
    sets: [{gpus: [0, 1, 2, 3], bandwidth: 92.6}]

Bandwidths are what nccl-tests prints as ``busbw``: one direction, GB/s of 10^9 bytes. A GPU is
named by its index, UUID or PCI address.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from math import comb, isnan
from types import MappingProxyType

from msgspec import Struct, field

from nodetopo.allocation.requests import resolve
from nodetopo.errors import DecodeError, InputError, closest
from nodetopo.model.snapshot import Snapshot

KIND = "nodetopo-bandwidth-table"
VERSION = 1
UNIT = "GB/s"

MOST_ENTRIES = 100_000
"""Entries accepted; every set of a 16-GPU machine makes 65,519."""

HIGHEST_GB_S = 10_000
"""A larger value is in another unit: the fastest GPU link known carries 900 GB/s one way
(NVIDIA B200 datasheet, NVLink 5)."""

LOWEST_GB_S = 0.1
"""The resolution at which bandwidths are compared."""

_KEYS = ("kind", "version", "machine", "operation", "unit", "pairs", "sets")
_ENTRY_KEYS = ("gpus", "bandwidth")
_CURE = "docs/internals/placement.md describes the bandwidth table"


class Operation(StrEnum):
    """A collective operation, by the program that measures it."""

    ALL_REDUCE = "all_reduce_perf"
    ALL_GATHER = "all_gather_perf"
    REDUCE_SCATTER = "reduce_scatter_perf"
    BROADCAST = "broadcast_perf"
    REDUCE = "reduce_perf"
    SENDRECV = "sendrecv_perf"
    ALLTOALL = "alltoall_perf"
    ALLTOALLV = "alltoallv_perf"
    GATHER = "gather_perf"
    SCATTER = "scatter_perf"
    HYPERCUBE = "hypercube_perf"


Gpus = frozenset[int]
"""GPU indices."""


class Measured(Struct, frozen=True, kw_only=True):
    """Measured bandwidths by GPU indices, in 0.1 GB/s, one direction."""

    # One hop between two GPUs, from which the model builds rings.
    pairs: Mapping[Gpus, int] = field(default_factory=dict)
    # Bus bandwidth of a whole set (nccl-tests), used without any model.
    sets: Mapping[Gpus, int] = field(default_factory=dict)


class Entry(Struct, frozen=True, kw_only=True):
    """One entry of a table as written: *path* is where it stands, *gpus* are names."""

    path: str
    gpus: tuple[str, ...]
    tenths_gb_s: int


class BandwidthTable(Struct, frozen=True, kw_only=True):
    """A table that is not yet matched with a machine."""

    machine: str | None  # free text
    operation: Operation  # that the sets were measured by
    pairs: tuple[Entry, ...]
    sets: tuple[Entry, ...]

    def on(self, snapshot: Snapshot) -> Measured:
        """Return the bandwidths by the GPU indices of *snapshot*.

        Raises:
            DecodeError: an entry names an unknown GPU, one GPU twice, or a set a second time.
        """
        return Measured(pairs=_by_index(self.pairs, snapshot), sets=_by_index(self.sets, snapshot))


def bandwidth_table(document: object) -> BandwidthTable:
    """Return the table in *document*, which is plain lists, mappings and numbers.

    Raises:
        DecodeError: *document* is not such a table; the path names the entry.
    """
    if not isinstance(document, Mapping):
        raise DecodeError("", "not a bandwidth table", _CURE)
    for key in document:
        if key not in _KEYS:
            raise _unknown_key("", key, _KEYS)
    for key, expected in (("kind", KIND), ("version", VERSION), ("unit", UNIT)):
        value = document.get(key)
        if value != expected or isinstance(value, bool):
            raise DecodeError(key, f"expected {expected!r}, found {_brief(value)}", _CURE)
    machine = document.get("machine")
    if machine is not None and not isinstance(machine, str):
        raise DecodeError("machine", f"not a text: {_brief(machine)}", _CURE)
    pairs, sets = tuple(_entries(document, "pairs")), tuple(_entries(document, "sets"))
    if not pairs and not sets:
        raise DecodeError("", "the table holds no figures", "give pairs, sets, or both")
    operation = _operation(document.get("operation"), machine)
    return BandwidthTable(machine=machine, operation=operation, pairs=pairs, sets=sets)


def _operation(name: object, machine: str | None) -> Operation:
    """Return the operation of a table's sets; tables without *name* can have it in *machine*.

    Several names there say nothing, unless one is said to be that of the sets.
    """
    if name is None:
        words = re.findall(r"[a-z_]+_perf\b", (machine or "").rpartition("sets by ")[2])
        found = {operation for operation in Operation if operation in words}
        return found.pop() if len(found) == 1 else Operation.ALL_REDUCE
    for operation in Operation:
        if operation == name:
            return operation
    cure = f"known are {', '.join(Operation)}"
    raise DecodeError("operation", f"not a program of nccl-tests: {_brief(name)}", cure)


def coverage(measured: Measured, gpus: int) -> str:
    """Return one line that says how many sets of each size *measured* covers on *gpus* GPUs."""
    by_size: dict[int, int] = {}
    for members in measured.sets:
        by_size[len(members)] = by_size.get(len(members), 0) + 1
    parts = [f"{len(measured.pairs)} of {comb(gpus, 2)} pairs"] if measured.pairs else []
    parts += [f"{n} of {comb(gpus, size)} sets of {size}" for size, n in sorted(by_size.items())]
    return f"measured: {', '.join(parts)}"


def _entries(document: Mapping[object, object], key: str) -> Iterator[Entry]:
    entries = document.get(key)
    if entries is None:
        return
    if not isinstance(entries, list):
        raise DecodeError(key, f"not a list: {_brief(entries)}", _CURE)
    if len(entries) > MOST_ENTRIES:
        raise DecodeError(key, f"more than {MOST_ENTRIES} entries", "measure fewer sets")
    for position, entry in enumerate(entries):
        path = f"{key}[{position}]"
        if not isinstance(entry, Mapping):
            shape = "{gpus: […], bandwidth: …}"
            raise DecodeError(path, f"not of the form {shape}: {_brief(entry)}", _CURE)
        for name in entry:
            if name not in _ENTRY_KEYS:
                raise _unknown_key(path, name, _ENTRY_KEYS)
        gpus = _gpus(f"{path}.gpus", entry.get("gpus"))
        tenths_gb_s = _tenths(f"{path}.bandwidth", entry.get("bandwidth"))
        if key == "pairs" and len(gpus) != 2:
            raise DecodeError(f"{path}.gpus", "a pair is two GPUs", "move it to `sets`")
        yield Entry(path=path, gpus=gpus, tenths_gb_s=tenths_gb_s)


def _gpus(path: str, names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not names:
        raise DecodeError(path, f"not a list of GPUs: {_brief(names)}", _CURE)
    for name in names:
        if isinstance(name, bool) or not isinstance(name, int | str):
            cure = "give an index, a UUID or a PCI address"
            raise DecodeError(path, f"not a GPU: {_brief(name)}", cure)
    if len(names) < 2:
        raise DecodeError(path, "one GPU alone has no bandwidth", "give sets of two and more")
    return tuple(map(str, names))


def _tenths(path: str, value: object) -> int:
    """Return *value* GB/s in 0.1 GB/s."""
    is_nan = isinstance(value, float) and isnan(value)  # a huge integer has no float
    if is_nan or isinstance(value, bool) or not isinstance(value, int | float):
        raise DecodeError(path, f"not a number: {_brief(value)}", _CURE)
    if value > HIGHEST_GB_S:
        raise DecodeError(path, f"{_brief(value)} is no bandwidth in {UNIT}", f"give it in {UNIT}")
    if value < LOWEST_GB_S:
        cure = "leave out what was not measured"
        raise DecodeError(path, f"{_brief(value)} is below {LOWEST_GB_S} {UNIT}", cure)
    return round(value * 10)


def _by_index(entries: Sequence[Entry], snapshot: Snapshot) -> Mapping[Gpus, int]:
    bandwidths: dict[Gpus, int] = {}
    first: dict[Gpus, str] = {}
    for entry in entries:
        indices: set[int] = set()
        for name in entry.gpus:
            try:
                index = resolve(snapshot, name).index
            except InputError as error:
                raise DecodeError(f"{entry.path}.gpus", error.cause, error.cure) from None
            if index in indices:
                cause = f"GPU{index} is named twice"
                raise DecodeError(f"{entry.path}.gpus", cause, "name it once")
            indices.add(index)
        gpus = frozenset(indices)
        if gpus in first:
            raise DecodeError(entry.path, f"the same GPUs as {first[gpus]}", "keep one of the two")
        first[gpus] = entry.path
        bandwidths[gpus] = entry.tenths_gb_s
    return MappingProxyType(bandwidths)


def _unknown_key(path: str, key: object, known: Sequence[str]) -> DecodeError:
    close = closest(key, known) if isinstance(key, str) else None
    cure = f"did you mean {close!r}?" if close else f"known are {', '.join(known)}"
    return DecodeError(path, f"unknown key {_brief(key)}", cure)


def _brief(value: object) -> str:
    """Return *value* as errors show it; of a container, which can be endless, only the kind."""
    if value is None or isinstance(value, Mapping | list):
        return "nothing" if value is None else "a list" if isinstance(value, list) else "a mapping"
    if isinstance(value, int) and abs(value) > HIGHEST_GB_S:
        return "a huge number"  # its text can be longer than Python allows
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
