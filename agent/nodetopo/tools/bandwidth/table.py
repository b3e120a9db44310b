"""Measured figures as the node's bandwidth table, merged with the existing table."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from nodetopo.allocation.measured import (
    HIGHEST_GB_S,
    KIND,
    LOWEST_GB_S,
    UNIT,
    VERSION,
    BandwidthTable,
    Entry,
    Operation,
)
from nodetopo.checks.rule import Verdict
from nodetopo.model.gpu import Gpu
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.bandwidth.compare import Compared
from nodetopo.tools.bandwidth.log import Kind
from nodetopo.tools.bandwidth.operation import operation_of

LONGEST_MACHINE = 200
"""Most characters of the description of a measurement."""


class Change(Struct, frozen=True, kw_only=True):
    """An entry that the merge replaced: GPU names, then GB/s before and after."""

    gpus: tuple[str, ...]
    before: float
    after: float


class Merged(Struct, frozen=True, kw_only=True):
    """A table to write, and its differences from the existing one."""

    document: Mapping[str, object]  # of JSON's own types
    added: int  # entries for GPUs that had none
    replaced: tuple[Change, ...]  # entries with another figure than before
    kept: int  # entries that the log lacks or confirms
    left_out: tuple[str, ...]  # figures that tables cannot hold, with the reason, each reason once
    suspect: int  # written figures that are below their gate


def merge(
    compared: Sequence[Compared], snapshot: Snapshot, tool: str, before: BandwidthTable | None
) -> Merged:
    """Return *before* with the figures of *compared* in it.

    A pair is two GPUs that sent to each other, a set the bus bandwidth of a collective among GPUs
    of this node. Of several figures for the same GPUs the highest counts: tests differ in how
    well they use a link. What is below its expectation is kept, as placement is to follow what
    the node can do now.

    Raises:
        DecodeError: *before* is a table of another machine.
    """
    pairs: dict[frozenset[int], float] = {}
    sets: dict[frozenset[int], float] = {}
    reasons: dict[str, None] = {}
    suspect = 0
    operation = _operation(compared, before)
    for figure in compared:
        reason = _unfit(figure) or _other(figure, operation)
        if figure.is_elsewhere(snapshot.node):
            reason = f"{figure.figure.test}: measured on {figure.host}, not on this node"
        if reason is not None:
            reasons[reason] = None
            continue
        target = pairs if figure.figure.kind is Kind.PAIR else sets
        gpus = frozenset(gpu.index for gpu in figure.gpus)
        target[gpus] = max(figure.figure.gb_per_s, target.get(gpus, 0.0))
        suspect += figure.verdict is Verdict.FAIL
    known = None if before is None else before.on(snapshot)
    old_pairs, old_sets = (known.pairs, known.sets) if known is not None else ({}, {})
    listed_pairs = _entries(before.pairs if before else (), old_pairs, pairs, snapshot)
    listed_sets = _entries(before.sets if before else (), old_sets, sets, snapshot)
    replaced = (*_changes(old_pairs, pairs), *_changes(old_sets, sets))
    added = sum(1 for gpus in pairs if gpus not in old_pairs)
    added += sum(1 for gpus in sets if gpus not in old_sets)
    document: dict[str, object] = {"kind": KIND, "version": VERSION}
    tests = ", ".join(
        dict.fromkeys(one.figure.test for one in compared if _other(one, operation) is None)
    )
    machine = (before and before.machine) or f"{tool}: {tests}"[:LONGEST_MACHINE]
    document["machine"] = machine
    if listed_sets:
        document["operation"] = str(operation)
    document["unit"] = UNIT
    if listed_pairs:
        document["pairs"] = listed_pairs
    if listed_sets:
        document["sets"] = listed_sets
    return Merged(
        document=document,
        added=added,
        replaced=replaced,
        kept=len(old_pairs) + len(old_sets) - len(replaced),
        left_out=tuple(reasons),
        suspect=suspect,
    )


def _operation(compared: Sequence[Compared], before: BandwidthTable | None) -> Operation:
    """Return the operation of the table's sets: one, as figures of several do not compare.

    It is that of the table before, else all_reduce if the log has it, else the log's first.
    """
    if before is not None and before.sets:
        return before.operation
    found = [
        operation
        for one in compared
        if one.figure.kind is Kind.SET
        and _unfit(one) is None
        and (operation := operation_of(one.figure.test)) is not None
    ]
    if not found or Operation.ALL_REDUCE in found:
        return Operation.ALL_REDUCE
    return found[0]


def _other(result: Compared, operation: Operation) -> str | None:
    """Return why *result* cannot stand alongside sets of *operation*."""
    test = result.figure.test
    if result.figure.kind is not Kind.SET or operation_of(test) in (None, operation):
        return None
    return f"{test}: the sets of this table are by {operation}: save to another file"


def _unfit(result: Compared) -> str | None:
    """Return why a table cannot hold the figure of *result*."""
    figure = result.figure
    if figure.is_wrong:
        return f"{figure.test}: wrong data arrived"
    if figure.kind not in (Kind.PAIR, Kind.SET):
        return f"{figure.test}: a table holds GPUs among each other, not HCAs and hosts"
    if len(figure.hosts) > 1:
        return f"{figure.test}: measured over several hosts"
    if not result.gpus:
        return f"{figure.test}: {result.reason}"
    if len(result.gpus) < 2:
        return f"{figure.test}: one GPU alone has no bandwidth"
    if figure.kind is Kind.SET and operation_of(figure.test) is None:
        return f"{figure.test}: the log does not say which operation it measured"
    if not LOWEST_GB_S <= figure.gb_per_s <= HIGHEST_GB_S:
        return f"{figure.test}: {figure.gb_per_s:g} GB/s is no bandwidth that a table holds"
    if result.verdict is Verdict.UNKNOWN and result.expected.low is not None:
        return f"{figure.test}: {result.reason}"  # too small a message
    return None


def _entries(
    before: Sequence[Entry],
    old: Mapping[frozenset[int], int],
    new: Mapping[frozenset[int], float],
    snapshot: Snapshot,
) -> list[dict[str, object]]:
    """Return the entries of the table: earlier entries first, in their order and by their names."""
    listed = []
    for entry, gpus in zip(before, old, strict=True):
        width = round(new[gpus], 1) if gpus in new else entry.tenths_gb_s / 10
        listed.append({"gpus": list(entry.gpus), "bandwidth": width})
    by_index = {gpu.index: gpu for gpu in snapshot.gpus}
    for gpus in sorted(new.keys() - old.keys(), key=lambda one: (len(one), sorted(one))):
        names = [_name(by_index[index]) for index in sorted(gpus)]
        listed.append({"gpus": names, "bandwidth": round(new[gpus], 1)})
    return listed


def _name(gpu: Gpu) -> str | int:
    """Return the PCI address of *gpu*, which stays when another GPU is lost; else its index."""
    return gpu.index if gpu.pci is None else str(gpu.pci)


def _changes(
    old: Mapping[frozenset[int], int], new: Mapping[frozenset[int], float]
) -> tuple[Change, ...]:
    return tuple(
        Change(
            gpus=tuple(f"GPU{index}" for index in sorted(gpus)),
            before=width / 10,
            after=round(new[gpus], 1),
        )
        for gpus, width in old.items()
        if gpus in new and round(10 * new[gpus]) != width
    )
