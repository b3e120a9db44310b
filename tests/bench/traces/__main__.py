"""Placement policies side by side on the same jobs: ``python -m tests.bench.traces --help``."""

import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Protocol

from nodetopo.allocation.rules import Model
from nodetopo.cli.files import read_text, refuse_other
from nodetopo.cli.flags.source import add_source
from nodetopo.cli.main import BAD_INPUT, COULD_NOT_TELL, INTERRUPTED, prepare_streams
from nodetopo.cli.output import PATIENCE_S, emit, note
from nodetopo.cli.parser import Parser, add_output
from nodetopo.cli.source import load
from nodetopo.errors import AgentError, InputError, closest
from nodetopo.model.snapshot import Snapshot
from tests.bench.traces import plot
from tests.bench.traces.contest import POLICIES, Contest, obstacle
from tests.bench.traces.jobs import WORKLOADS, schedule
from tests.bench.traces.outcome import Outcome, compare
from tests.bench.traces.rivals import RIVALS
from tests.bench.traces.text import Study, answer
from tests.bench.traces.workload import TracePlan, from_files, parse, plan

PROGRAM = "python -m tests.bench.traces"

ALL = "all"

MOST_JOBS = 1_000_000

MOST_SEEDS = 1_000

HEAVIEST = 5.0
"""Highest useful offered load: beyond it, the queue only grows."""

_EVERY_S = 0.2
"""Between two updates of the progress; a person reads no faster."""


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate, and return the exit status that a command of nodetopo would have."""
    prepare_streams()
    try:
        return run(parser().parse_args(argv, Namespace(warnings=[], incomplete=False)))
    except AgentError as error:
        note("error", str(error))
        return BAD_INPUT if isinstance(error, InputError) else COULD_NOT_TELL
    except SystemExit as stop:  # argparse ends --help this way
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return INTERRUPTED


def parser() -> Parser:
    """Return the parser."""
    whole = Parser(
        prog=PROGRAM,
        description="Compare placement policies on jobs that arrive and leave on one node.",
    )
    _add_jobs(whole)
    whole.add_argument(
        "--policy",
        metavar="A,B",
        action="append",
        default=[],
        help="ours: best, numa-first, packed, distributed, nic-required; others': nvidia, "
        "nvidia-sorted, hami, first-fit, kubelet, random; or all. They are compared with the first "
        "(default: best and the others')",
    )
    whole.add_argument(
        "--model",
        choices=("ring", "relay"),
        default="ring",
        help="bandwidth model (default: ring)",
    )
    whole.add_argument("--plot", metavar="FILE", help="also draw bars, to FILE.svg or FILE.png")
    add_output(whole)
    add_source(whole)
    return whole


def _add_jobs(parser: Parser) -> None:
    group = parser.add_argument_group("jobs")
    group.add_argument(
        "--trace",
        metavar="FILE.csv",
        action="append",
        default=[],
        help="arrival_s,duration_s,gpus, or a public trace, - for stdin; repeat it for separate "
        "sizes and run times",
    )
    group.add_argument(
        "--workload",
        choices=tuple(WORKLOADS),
        metavar="NAME",
        help=f"{', '.join(WORKLOADS)} (default: philly)",
    )
    group.add_argument("--jobs", metavar="N", type=int, help="jobs for each seed (default: 2000)")
    group.add_argument(
        "--load",
        metavar="SHARE",
        type=float,
        help="requested share of the node's GPU time (default: 0.7, or as recorded)",
    )
    group.add_argument(
        "--seeds",
        metavar="N",
        type=int,
        default=5,
        help="number of seeds (default: 5); 1 with recorded arrivals",
    )
    group.add_argument("--seed", metavar="S", type=int, default=1, help="first seed (default: 1)")


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


def _simulate(contest: Contest, jobs: TracePlan, seeds: Sequence[int]) -> dict[str, list[Outcome]]:
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
    return Random(f"{seed} {purpose}")


def _policies(asked: Sequence[str], snapshot: Snapshot) -> tuple[list[str], dict[str, str]]:
    """Return the policies to run, and the policies of a group that cannot run, with the reason."""
    words = [word.strip() for text in asked for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in (*POLICIES, ALL)]
    if unknown:
        close = closest(unknown[0], POLICIES)
        raise InputError(
            f"--policy: {unknown[0]!r} is not one of {', '.join(POLICIES)}, {ALL}",
            f"did you mean {close!r}?" if close else f"see `{PROGRAM} --help`",
        )
    named = list(dict.fromkeys(word for word in words if word != ALL))
    whole = POLICIES if ALL in words else () if words else ("best", *RIVALS)
    obstacles = {
        name: cause
        for name in (*named, *whole)
        if (cause := obstacle(name, snapshot, lambda: Random(0))) is not None
    }
    for name in named:
        if name in obstacles:
            raise InputError(obstacles[name], "leave it out, or name a smaller machine")
    chosen = [name for name in dict.fromkeys((*named, *whole)) if name not in obstacles]
    return chosen, obstacles


def _plan(args: Namespace, gpus: int) -> TracePlan:
    if not args.trace:
        name = args.workload or "philly"
        workload = WORKLOADS[name]
        return plan(source=name, workload=workload, gpus=gpus, load=args.load, count=args.jobs)
    files = []
    for name in args.trace:
        text = read_text(name)
        try:
            files.append(parse(name, text))
        except InputError:
            refuse_other(name, text, None)  # it may be another tool's output
            raise
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


class Counter(Protocol):
    """Receives progress; it can skip some."""

    def __call__(self, text: str) -> None:
        """Report the progress of the work."""


@contextmanager
def counting() -> Iterator[Counter]:
    """Give a function that shows its text in place, once the block has taken more than 2 s."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    line = _Line(time.monotonic() + PATIENCE_S)
    try:
        yield line.show
    finally:
        line.clear()


class _Line:
    def __init__(self, not_before: float) -> None:
        self._next = not_before
        self._is_shown = False

    def show(self, text: str) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY_S
            self._is_shown = True
            self._write(f"\r\x1b[K{text} …")

    def clear(self) -> None:
        if self._is_shown:
            self._write("\r\x1b[K")  # EL: erase to the end of the line (ECMA-48 8.3.41)

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
