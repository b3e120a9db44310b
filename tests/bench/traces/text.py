"""A simulated trace in all formats."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from nodetopo.cli import output
from nodetopo.cli.output import Answer
from tests.bench.traces.contest import OURS
from tests.bench.traces.outcome import Row
from tests.bench.traces.workload import TracePlan, counted

SCHEMA = "nodetopo/trace/v1"
"""Names the JSON shape, described by ``trace.json`` beside this file."""

_COLUMNS = (
    ("GB/s", "mean_gb_s", "{:.1f}"),
    ("HARMONIC", "harmonic_gb_s", "{:.1f}"),
    ("OF BEST", "mean_of_best", "{:.1%}"),
    ("OFFLINE", "offline_of_best", "{:.1%}"),
    ("REACHED", "reached", "{:.1%}"),
    ("NUMA SPLIT", "numa_split", "{:.1%}"),
    ("NVLINK SPLIT", "nvlink_split", "{:.1%}"),
    ("REJECTED", "rejected", "{:.1%}"),
    ("FRAGMENTED", "fragmentation", "{:.1%}"),
    ("CRASHES", "crashes", "{}"),
)
"""Heading, field of :class:`tests.bench.traces.outcome.Outcome`, format."""

DIGITS = 6
"""Decimals in JSON: beyond them the last bits of logarithms differ between C libraries."""


class Study(Struct, frozen=True, kw_only=True):
    """The simulation and its results; *left_out* are policies with the reason."""

    machine: str
    model: str
    is_exact: bool
    plan: TracePlan
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    left_out: Mapping[str, str]


def answer(study: Study) -> Answer:
    """Return the answer in every format."""
    shown = (("", "mean_of_best"), ("NUMA split", "numa_split"), ("rejected", "rejected"))
    rows = [
        (row.policy, *(f"{_figure(row, name, '{:.1%}')} {title}" for title, name in shown), "")
        for row in study.rows
    ]
    return Answer(
        plain=_plain(study), table=_table(study), short=output.table(_numbers_to_the_right(rows))
    )


def heading(study: Study) -> tuple[str, str]:
    """Return two lines of plain words: the machine, the jobs."""
    plan, seeds = study.plan, len(study.seeds)
    if plan.recorded is None:
        arrivals = f"Poisson arrivals at load {plan.load:.2f}"
    else:
        offered = "" if plan.load is None else f", which offer a load of {plan.load:.2f}"
        arrivals = f"arrivals as recorded{offered}"
    per_seed = "one seed" if seeds == 1 else f"each of {seeds} seeds"
    return (
        f"{study.machine}: {plan.gpus} GPUs, bandwidth by the {study.model} model",
        f"{plan.source}: {counted(plan.count, 'job')} for {per_seed}, {arrivals}",
    )


def _table(study: Study) -> str:
    rows = [("POLICY", *(title for title, _, _ in _COLUMNS), f"AGAINST {study.rows[0].policy}")]
    for row in study.rows:
        against, gap = "", row.against_first
        if gap is not None:
            spread = "" if gap.ci95 is None else f" ± {100 * gap.ci95:.1f}"
            against = f"{100 * gap.mean:+.1f}{spread} points"
        figures = (_figure(row, name, form) for _, name, form in _COLUMNS)
        rows.append((row.policy, *figures, against))
    text = "".join(f"{output.clean(line)}\n" for line in heading(study))
    text += f"\n{output.table(_numbers_to_the_right(rows))}\n"
    return text + "".join(f"{output.clean(line)}\n" for line in _notes(study))


def _numbers_to_the_right(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Align all columns to the right but the first and the last, which hold words."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        [cell.rjust(widths[at]) if 0 < at < last else cell for at, cell in enumerate(row)]
        for row in rows
    ]


def _figure(row: Row, name: str, form: str) -> str:
    value = getattr(row.total, name)
    return "-" if value is None else form.format(value).replace("%", " %")


def _notes(study: Study) -> list[str]:
    total, plan = study.rows[0].total, study.plan
    measured = f"{total.measured:,} of {counted(total.decisions, 'job')}"
    notes = [f"measured: {measured}, those of 2 GPUs or more but not of the whole machine"]
    if not study.is_exact:
        notes.append(
            "the best sets of this machine are not proven to be the best: "
            "nothing is shown as a share of them"
        )
    if plan.recorded is not None:
        notes.append("the recorded jobs are the same for every seed: they are replayed once")
    if plan.overload is not None:
        notes.append(
            f"the recorded arrivals offer {plan.overload:,.1f} times what this node has: "
            "jobs are drawn from the file and arrive anew",
        )
    if plan.left_out:
        notes.append(
            f"left out: {100 * plan.left_out:.1f} % of the jobs ask for more than {plan.gpus} GPUs"
        )
    notes += [
        f"left out: {counted(count, 'row')}, {reason}" for reason, count in plan.skipped.items()
    ]
    return notes + [f"left out: {name}: {cause}" for name, cause in study.left_out.items()]


def _plain(study: Study) -> dict[str, Any]:
    plan = study.plan
    policies = []
    for row in study.rows:
        gap, figures = row.against_first, asdict(row.total)
        against = None if gap is None else {"mean": _rounded(gap.mean), "ci95": _rounded(gap.ci95)}
        policies.append(
            {
                "policy": row.policy,
                "ours": row.policy in OURS,
                **{name: _rounded(value) for name, value in figures.items()},
                "against_first": against,
            }
        )
    return {
        "schema": SCHEMA,
        "machine": {
            "name": study.machine,
            "gpus": plan.gpus,
            "model": study.model,
            "exact": study.is_exact,
        },
        "jobs": {
            "source": plan.source,
            "arrivals": "poisson" if plan.recorded is None else "recorded",
            "load": _rounded(plan.load),
            "recorded_overload": _rounded(plan.overload),
            "per_seed": plan.count,
            "seeds": list(study.seeds),
            "too_large": _rounded(plan.left_out),
            "skipped_rows": plan.skipped,
        },
        "policies": policies,
        "left_out": dict(study.left_out),
    }


def _rounded(value: float | None) -> float | None:
    return round(value, DIGITS) if isinstance(value, float) else value
