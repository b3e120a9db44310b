"""An allocation in all formats."""

from argparse import Namespace

from agent.allocation.explain import TERM
from agent.allocation.naming import resolve, usable
from agent.allocation.policy import Allocation, Alternative, allocate
from agent.cli import render
from agent.cli.output import Answer, emit
from agent.model.snapshot import Snapshot

SCHEMA = "nodetopo/allocate/v1"
"""Names the JSON shape, described by ``docs/schema/allocate.json``."""


def answer(snapshot: Snapshot, args: Namespace) -> None:
    """Print the best set for the request in *args*.

    Raises:
        InputError: a GPU is unknown, or no set fits.
    """
    found = allocate(
        snapshot,
        available=_ids(snapshot, args.available) if args.available else usable(snapshot),
        required=_ids(snapshot, args.required),
        size=args.size,
    )
    plain = {"schema": SCHEMA, **found.to_plain()}
    emit(Answer(plain=plain, table=_table(snapshot, found, args), short=_short(found, args)), args)


def _ids(snapshot: Snapshot, arguments: list[str]) -> tuple[str, ...]:
    names = [name for argument in arguments for name in argument.split(",") if name.strip()]
    return tuple(resolve(snapshot, name).id for name in names)


def _short(found: Allocation, args: Namespace) -> str:
    reasons = "".join(f"  {render.clean(reason)}\n" for reason in found.reasons)
    return f"{_names(found.indices)}\n{reasons if args.explain else ''}"


def _table(snapshot: Snapshot, found: Allocation, args: Namespace) -> str:
    by_index = {gpu.index: gpu for gpu in snapshot.gpus}
    devices = [
        (gpu.name, gpu.id, str(gpu.pci or "?"), f"NUMA {_known(gpu.numa_node)}")
        for gpu in (by_index[index] for index in sorted(found.indices))
    ]
    proof = "proven optimal" if found.is_optimal else "not proven optimal"
    text = f"{_names(found.indices)}   {proof}\n\n{render.table(devices, indent=2)}\nwhy\n"
    text += "".join(f"  {render.clean(reason)}\n" for reason in found.reasons)
    if found.alternatives:
        text += "next best\n"
        text += render.table(
            ((_names(other.indices), _why(other)) for other in found.alternatives),
            indent=2,
        )
    return text + (_scores(found) if args.explain else "")


def _why(other: Alternative) -> str:
    term = TERM.get(other.lost_at)
    return f"worse in: {term}" if term else "equal, but for the GPU numbers"


def _scores(found: Allocation) -> str:
    sets = (found.score, *(other.score for other in found.alternatives))
    columns = [{key: str(value) for key, value in score.to_plain().items()} for score in sets]
    names = [_names(found.indices), *(_names(other.indices) for other in found.alternatives)]
    rows = [[key, *(column[key] for column in columns)] for key in columns[0]]
    return f"scores\n{render.table([['', *names], *rows], indent=2)}"


def _names(indices: tuple[int, ...]) -> str:
    return " ".join(f"GPU{index}" for index in sorted(indices))


def _known(value: int | None) -> str:
    return "?" if value is None else str(value)
