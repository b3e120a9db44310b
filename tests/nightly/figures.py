"""``python -m tests.nightly.figures [--runs N]``: where gangs landed, as a table for a note.

Each case is asked of each scheduler N times on one cluster, after one trial that does not count:
the first one waits for caches to fill. Builds what is missing; progress goes to stderr.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from statistics import median

from msgspec import Struct

from tests.lab.api import Api
from tests.lab.schedulers import fabric
from tests.nightly.cluster import CLIQUES, running
from tests.nightly.gang import Gang
from tests.nightly.trial import Placed, Scheduler, place, refusal

_HEADING = ("scheduler", "gang", "runs", "NVLink partitions used", "seconds, median", "most")
_RUNS = 10
_WHAT = "Print where gangs landed under KAI and Kueue, as a Markdown table."


class Case(Struct, frozen=True, kw_only=True):
    """A gang to be placed, under a name for a person."""

    title: str
    size: int
    level: str | None

    def gang(self, number: int) -> Gang:
        """Return the gang of run *number*."""
        kind = "any" if self.level is None else self.level.rpartition("/")[2]
        return Gang(name=f"{kind}-{self.size}-{number}", size=self.size, level=self.level)


_CASES = (
    Case(title="4 trays, no topology (control)", size=4, level=None),
    Case(title="4 trays, one partition required", size=4, level=fabric.PARTITION),
    Case(title="8 trays, one domain required", size=8, level=fabric.DOMAIN),
)
_TOO_LARGE = Case(title="5 trays, one partition required", size=5, level=fabric.PARTITION)


def rows(runs: int) -> Iterator[tuple[str, ...]]:
    """Yield the table's rows; the last of each scheduler is its refusal."""
    with running() as cluster:
        for scheduler in cluster.schedulers.values():
            place(cluster.api, scheduler, Gang(name="warm-up", size=1))
            for case in _CASES:
                _say(f"{scheduler.title}: {case.title}")
                found = _placed(cluster.api, scheduler, case, runs)
                yield (scheduler.title, case.title, *_told(found))
            why = refusal(cluster.api, scheduler, _TOO_LARGE.gang(0))
            yield (scheduler.title, _TOO_LARGE.title, "1", f"refused: {_shortened(why)}", "", "")


def _placed(api: Api, scheduler: Scheduler, case: Case, runs: int) -> tuple[Placed, ...]:
    return tuple(place(api, scheduler, case.gang(number)) for number in range(runs))


def _told(found: Sequence[Placed]) -> tuple[str, ...]:
    used = sorted(len(one.domains(CLIQUES)) for one in found)
    counts = ", ".join(f"{n} in {used.count(n)} runs" for n in sorted(set(used)))
    times = [one.took_s for one in found]
    return str(len(found)), counts, f"{median(times):.1f}", f"{max(times):.1f}"


def _shortened(text: str) -> str:
    """Return the line of a verdict that tells how much would fit; the first, if several do."""
    return next(line.strip() for line in text.splitlines() if "only" in line)


def _say(text: str) -> None:
    print(f"nightly: {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Print the table in Markdown, row by row as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=_RUNS, help="of each case (default: %(default)s)"
    )
    runs = parser.parse_args().runs
    for row in (_HEADING, ("---",) * len(_HEADING)):
        print(f"| {' | '.join(row)} |", flush=True)
    for row in rows(runs):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
