"""An allocation in all formats."""

from argparse import Namespace
from collections import Counter
from typing import Any

from agent.allocation.allocator import Allocation, Alternative
from agent.allocation.explain import compared
from agent.allocation.rules import Policy
from agent.cli import render
from agent.cli.allocation_request import Request, ids, request
from agent.cli.output import Answer, emit
from agent.errors import InputError
from agent.model.snapshot import Snapshot

SCHEMA = "nodetopo/allocate/v1"
"""Names the JSON shape, described by ``docs/schema/allocate.json``."""


def answer(snapshot: Snapshot, args: Namespace) -> None:
    """Print the best set for the request in *args*.

    Raises:
        InputError: a GPU is unknown, or no set fits.
    """
    asked = request(snapshot, args, Policy(args.policy))
    found = asked.allocator.allocate(
        available=asked.available, required=asked.required, size=asked.size
    )
    other = _why_not(asked, args)
    plain = {"schema": SCHEMA, **found.to_plain()}
    if other is not None:
        plain["why_not"] = _plain_other(asked, found, other)
    emit(
        Answer(
            plain=plain,
            table=_table(asked, found, other, args),
            short=_short(asked, found, other, args),
        ),
        args,
    )


def _why_not(asked: Request, args: Namespace) -> Allocation | None:
    """Return what the set of ``--why-not`` is worth.

    Raises:
        InputError: the request could not be met with it.
    """
    if not args.why_not:
        return None
    chosen = ids(asked.snapshot, asked.devices, args.why_not)
    if len(chosen) != asked.size:
        raise InputError(
            f"--why-not names {len(chosen)}, the request is for {asked.size}",
            "compare sets of one size",
        )
    if absent := [name for name in asked.required if name not in chosen]:
        missing = ", ".join(asked.name(device) for device in absent)
        raise InputError(f"--why-not lacks what is required: {missing}", "add it to the set")
    return asked.allocator.describe(chosen, asked.available)


def _verdict(asked: Request, found: Allocation, other: Allocation | Alternative) -> str:
    if set(other.chosen) == set(found.chosen):
        return "this is the set that is chosen"
    return compared(found.score, other.score, asked.terms)


def _plain_other(asked: Request, found: Allocation, other: Allocation) -> dict[str, Any]:
    score = other.score
    differs = (name for name in asked.terms if getattr(score, name) != getattr(found.score, name))
    return {
        "chosen": list(other.chosen),
        "indices": list(other.indices),
        "score": other.score.to_plain(),
        "lost_at": next(differs, None),
        "verdict": _verdict(asked, found, other),
    }


def _short(asked: Request, found: Allocation, other: Allocation | None, args: Namespace) -> str:
    text = f"{_names(asked, found.chosen)}\n"
    if args.explain:
        text += "".join(f"  {render.clean(reason)}\n" for reason in found.reasons)
    if other is not None:
        text += f"not {_names(asked, other.chosen)}: {_verdict(asked, found, other)}\n"
    return text


def _table(asked: Request, found: Allocation, other: Allocation | None, args: Namespace) -> str:
    proof = "proven optimal" if found.is_optimal else "not proven optimal"
    rules = f"policy {found.rules.policy}, model {found.rules.model}, engine {found.engine}"
    text = f"{_names(asked, found.chosen)}   {proof}   {rules}\n\n"
    text += f"{render.table(_devices(asked, found), indent=2)}\nwhy\n"
    text += "".join(f"  {render.clean(reason)}\n" for reason in found.reasons)
    if found.alternatives:
        rows = (
            (_names(asked, one.chosen), _verdict(asked, found, one)) for one in found.alternatives
        )
        text += f"next best\n{render.table(rows, indent=2)}"
    if other is not None:
        text += f"why not {_names(asked, other.chosen)}\n  {_verdict(asked, found, other)}\n"
        alone = asked.allocator.describe(other.chosen)
        text += "".join(f"  {render.clean(reason)}\n" for reason in alone.reasons)
    return text + (_scores(asked, found, other) if args.explain else "")


def _devices(asked: Request, found: Allocation) -> list[tuple[str, ...]]:
    by_id = {gpu.id: gpu for gpu in asked.snapshot.gpus}
    rows: list[tuple[str, ...]] = []
    for device in found.chosen:
        gpu = by_id[asked.devices.get(device, device)]
        rows.append((gpu.name, device, str(gpu.pci or "?"), f"NUMA {_known(gpu.numa_node)}"))
    return rows


def _scores(asked: Request, found: Allocation, other: Allocation | None) -> str:
    sets: list[Allocation | Alternative] = [found, *found.alternatives]
    sets += [other] if other is not None else []
    columns = [{key: str(value) for key, value in one.score.to_plain().items()} for one in sets]
    names = [_names(asked, one.chosen) for one in sets]
    order = [*asked.terms, *(key for key in columns[0] if key not in asked.terms)]
    rows = [[key, *(column[key] for column in columns)] for key in order]
    return f"scores\n{render.table([['', *names], *rows], indent=2)}"


def _names(asked: Request, chosen: tuple[str, ...]) -> str:
    by_id = {gpu.id: gpu.name for gpu in asked.snapshot.gpus}
    counts = Counter(by_id[asked.devices.get(device, device)] for device in chosen)
    if not asked.is_shared:
        return " ".join(counts)
    return ", ".join(f"{count} of {name}" for name, count in counts.items())


def _known(value: int | None) -> str:
    return "?" if value is None else str(value)
