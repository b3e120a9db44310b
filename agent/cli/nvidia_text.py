"""What NVIDIA's device plugin would take, beside what we would, in all formats."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Any

from agent.allocation.allocator import Allocation
from agent.allocation.best_effort import BestEffort, PeerPanics
from agent.allocation.explain import compared, names
from agent.allocation.rules import Policy
from agent.cli import render
from agent.cli.allocation_request import Request, request
from agent.cli.output import Answer, emit
from agent.errors import InputError
from agent.model.snapshot import Snapshot

SCHEMA = "nodetopo/allocate-nvidia/v1"
"""Names the JSON shape, described by ``docs/schema/allocate-nvidia.json``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """Two answers to one request.

    Attributes:
        answer: NVIDIA's, in its order; ``None`` is a device that does not exist.
        theirs: what that is worth; ``None`` where it is no set of the size asked for.
        problem: why it is none.
    """

    answer: tuple[str | None, ...]
    theirs: Allocation | None
    ours: Allocation
    is_crash: bool
    problem: str | None
    verdict: str


def answer(snapshot: Snapshot, args: Namespace) -> None:
    """Print what NVIDIA's policy takes from the GPUs in the order given, and how ours compares.

    Raises:
        InputError: a GPU is unknown, no set fits, or the policy is not imitated for it.
    """
    for flag, value in (
        ("--replicas", args.replicas),
        ("--mig", args.mig),
        ("--why-not", args.why_not),
    ):
        if value:
            raise InputError(
                f"--policy nvidia does not go with {flag}", "leave it out, or take a policy of ours"
            )
    asked = request(snapshot, args, Policy.BEST)
    found = _compare(asked)
    emit(Answer(plain=_plain(found), table=_table(asked, found, args), short=_short(found)), args)


def _compare(asked: Request) -> _Compared:
    ours = asked.allocator.allocate(
        available=asked.available, required=asked.required, size=asked.size
    )
    policy = BestEffort(asked.snapshot)
    try:
        chosen = policy.allocate(asked.available, asked.required, asked.size)
    except PeerPanics as error:
        return _without_set((), ours, error.cause)
    if None in chosen:
        cause = f"it hands out {chosen.count(None)} of {len(chosen)} devices that do not exist"
        return _without_set(chosen, ours, cause)
    if not chosen:
        return _without_set(chosen, ours, None)
    theirs = asked.allocator.describe([name for name in chosen if name], asked.available)
    return _Compared(
        answer=chosen,
        theirs=theirs,
        ours=ours,
        is_crash=False,
        problem=None,
        verdict=_verdict(asked, ours, theirs),
    )


def _without_set(chosen: tuple[str | None, ...], ours: Allocation, crash: str | None) -> _Compared:
    verdict = f"it would crash here: {crash}" if crash else "it finds no set, and the pod fails"
    return _Compared(
        answer=chosen,
        theirs=None,
        ours=ours,
        is_crash=crash is not None,
        problem=crash or "it finds no set",
        verdict=verdict,
    )


def _verdict(asked: Request, ours: Allocation, theirs: Allocation) -> str:
    if set(ours.chosen) == set(theirs.chosen):
        return "the same set as ours"
    return f"{compared(ours.score, theirs.score, asked.terms)}; ours is {names(ours.indices)}"


def _plain(found: _Compared) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "policy": "nvidia",
        "model": found.ours.rules.model.value,
        "answer": list(found.answer),
        "crash": found.is_crash,
        "problem": found.problem,
        "verdict": found.verdict,
        "score": found.theirs.score.to_plain() if found.theirs else None,
        "ours": {
            "chosen": list(found.ours.chosen),
            "indices": list(found.ours.indices),
            "score": found.ours.score.to_plain(),
        },
    }


def _short(found: _Compared) -> str:
    return f"{_taken(found)}\n  {render.clean(found.verdict)}\n"


def _table(asked: Request, found: _Compared, args: Namespace) -> str:
    order = [gpu.name for name in asked.available for gpu in asked.snapshot.gpus if gpu.id == name]
    text = f"{_taken(found)}   NVIDIA's best-effort, imitated to compare with\n\n"
    text += f"  of {' '.join(order)}, in this order: its answer depends on it\n"
    text += f"  {render.clean(found.verdict)}\n"
    rows: list[tuple[str, ...]] = [("", "GPUs", "GB/s", "NUMA nodes", "worth left")]
    rows += [_row("NVIDIA", found.theirs)] if found.theirs else []
    text += render.table([*rows, _row("ours", found.ours)], indent=2)
    if args.explain:
        text += "why ours\n"
        text += "".join(f"  {render.clean(reason)}\n" for reason in found.ours.reasons)
    return text


def _row(who: str, found: Allocation) -> tuple[str, ...]:
    score = found.score
    bandwidth = "-" if score.bandwidth_gb_s is None else f"{score.bandwidth_gb_s:g}"
    return who, names(found.indices), bandwidth, str(score.numa_nodes), f"{score.remainder_value:g}"


def _taken(found: _Compared) -> str:
    return names(found.theirs.indices) if found.theirs else "crash" if found.is_crash else "no set"
