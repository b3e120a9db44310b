"""``nodetopo simulate trace``: policies side by side on the same jobs."""

from argparse import Namespace
from collections.abc import Sequence
from difflib import get_close_matches
from random import Random

from agent.allocation.rules import Model
from agent.cli.files import read_text
from agent.cli.output import emit
from agent.cli.simulate import plot
from agent.cli.simulate.text import Study, answer
from agent.cli.simulate.trace_csv import parse
from agent.cli.simulate.trace_progress import counting
from agent.cli.simulate.workload import Plan, from_files, plan
from agent.cli.source import load
from agent.errors import InputError
from agent.model.snapshot import Snapshot
from agent.simulate.comparison import compare
from agent.simulate.contest import POLICIES, Contest, obstacle
from agent.simulate.jobs import schedule
from agent.simulate.outcome import Outcome
from agent.simulate.rivals import RIVALS
from agent.simulate.workloads import WORKLOADS

ALL = "all"
MOST_JOBS = 1_000_000
MOST_SEEDS = 1_000
HEAVIEST = 5.0
"""Offered load beyond which a queue only grows: nothing new is to be seen."""


def run(args: Namespace) -> int:
    """Simulate, print, and draw if asked to; 0.

    Raises:
        InputError: a file, a number or a policy cannot be used.
    """
    _check(args)
    if args.plot is not None:
        plot.check(args.plot)  # before minutes of work, not after
    snapshot = load(args)
    policies, left_out = _policies(args.policy, snapshot)
    contest = Contest(snapshot, policies, Model(args.model))
    if contest.yardstick.gpus < 2:
        raise InputError("fewer than 2 GPUs: nothing to choose", "name a machine with more")
    jobs = _plan(args, contest.yardstick.gpus)
    # Recorded jobs are the same for every seed: a second run of them would tell nothing new.
    seeds = tuple(range(args.seed, args.seed + (args.seeds if jobs.recorded is None else 1)))
    study = Study(
        machine=args.machine or snapshot.node or snapshot.product_name or "this node",
        model=args.model,
        seeds=seeds,
        plan=jobs,
        rows=compare(_simulate(contest, jobs, seeds)),
        left_out=left_out,
        is_exact=contest.yardstick.is_exact,
    )
    emit(answer(study), args)
    if args.plot is not None:
        plot.write(study, args.plot)
    return 0


def _simulate(contest: Contest, jobs: Plan, seeds: Sequence[int]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {policy: [] for policy in contest.policies}
    with counting() as say:
        for number, seed in enumerate(seeds, 1):
            # A source for each purpose: one policy more changes nothing for the others.
            steps = schedule(jobs.jobs(_source(seed, "jobs")), contest.yardstick.gpus)
            for policy in contest.policies:
                say(f"seed {number} of {len(seeds)}, {policy}")
                found[policy].append(contest.run(policy, steps, _source(seed, policy)))
    return found


def _source(seed: int, purpose: str) -> Random:
    return Random(f"{seed} {purpose}")  # noqa: S311 - repeatable is what it must be


def _policies(asked: Sequence[str], snapshot: Snapshot) -> tuple[list[str], dict[str, str]]:
    """Return the policies to run, and those of a whole group that cannot be, with the reason."""
    words = [word.strip() for text in asked for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in (*POLICIES, ALL)]
    if unknown:
        close = get_close_matches(unknown[0], POLICIES, n=1)
        raise InputError(
            f"--policy: {unknown[0]!r} is not one of {', '.join(POLICIES)}, {ALL}",
            f"did you mean {close[0]!r}?" if close else "see `nodetopo simulate trace --help`",
        )
    named = list(dict.fromkeys(word for word in words if word != ALL))
    whole = POLICIES if ALL in words else () if words else ("best", *RIVALS)
    obstacles = {
        name: cause
        for name in (*named, *whole)
        if (cause := obstacle(name, snapshot, lambda: Random(0))) is not None  # noqa: S311
    }
    for name in named:
        if name in obstacles:
            raise InputError(obstacles[name], "leave it out, or name a smaller machine")
    chosen = [name for name in dict.fromkeys((*named, *whole)) if name not in obstacles]
    return chosen, obstacles


def _plan(args: Namespace, gpus: int) -> Plan:
    if not args.trace:
        name = args.workload or "philly"
        workload = WORKLOADS[name]
        return plan(source=name, workload=workload, gpus=gpus, load=args.load, count=args.jobs)
    files = [parse(name, read_text(name)) for name in args.trace]
    source, recorded = from_files(files)
    return plan(
        source=source,
        workload=recorded,
        files=files,
        gpus=gpus,
        load=args.load,
        count=args.jobs,
    )


def _check(args: Namespace) -> None:
    if args.trace and args.workload:
        raise InputError("--trace and --workload exclude each other", "name one of them")
    if args.jobs is not None and not 1 <= args.jobs <= MOST_JOBS:
        raise InputError(f"--jobs: {args.jobs} is not between 1 and {MOST_JOBS:,}", "ask for 2000")
    if not 1 <= args.seeds <= MOST_SEEDS:
        raise InputError(f"--seeds: {args.seeds} is not between 1 and {MOST_SEEDS}", "ask for 10")
    if args.load is not None and not 0 < args.load <= HEAVIEST:
        raise InputError(f"--load: {args.load:g} is not above 0 and up to {HEAVIEST:g}", "try 0.7")
