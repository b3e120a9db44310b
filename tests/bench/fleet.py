"""What a fleet of agents asks of the API server: ``python -m tests.bench.fleet --agents 5000``.

Real etcd and a real API server, a Node of 18 KB and a pod-bound token for each agent, and agents
that run the daemon's own labelling, publisher and watch by a clock of the play: hours pass as fast
as the server answers. Tables in Markdown go to stdout, progress to stderr.
"""

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Sequence

import structlog

from tests.bench.fleet_phases import Phase, Play
from tests.bench.fleet_server import Server
from tests.bench.fleet_simulation import Fleet

LARGE = 15_000
"""Nodes: three times what Kubernetes is tested for (its documentation, "Considerations for large
clusters"), and as many as a GKE cluster had at most for years."""

VERBS = ("GET", "PATCH", "WATCH")
HEAD = (
    "| what happens | per | reads | writes | watches | API server, ms of CPU | etcd, ms of CPU "
    "| Node writes to etcd | KB logged by etcd |\n|---|---|--:|--:|--:|--:|--:|--:|--:|"
)
LARGE_HEAD = (
    "| what happens | requests | API server | most writes in one second |\n|---|--:|--:|--:|"
)


def row(phase: Phase, agents: int) -> str:
    """Return the line of one part, for one agent."""
    share = agents * (phase.hours or 1.0)
    cost = phase.cost
    cells = [f"{phase.asked.get(verb, 0) / share:.1f}" for verb in VERBS]
    cells += (
        ["-"] * 4
        if cost is None
        else [
            f"{max(0.0, value) / share:.1f}"
            for value in (
                cost.api_s * 1e3,
                cost.etcd_s * 1e3,
                cost.node_writes,
                cost.logged / 1e3,
            )
        ]
    )
    unit = "agent" if phase.hours is None else "agent-hour"
    return f"| {' | '.join([phase.title, unit, *cells])} |"


def large_row(phase: Phase, agents: int) -> str:
    """Return the line of one part, for :data:`LARGE` nodes."""
    scale = LARGE / agents
    asked = sum(phase.asked.values()) * scale
    busy_s = phase.cost.api_s * scale if phase.cost is not None else None
    if phase.hours is None:
        cells = [
            f"{asked:,.0f}",
            "-" if busy_s is None else f"{busy_s:.0f} s of CPU",
            f"{phase.peak.get('PATCH', 0) * scale:,.0f}",
        ]
    else:
        seconds = phase.hours * 3600
        cells = [f"{asked / seconds:.1f} a second", f"{(busy_s or 0) / seconds:.3f} cores", "-"]
    return f"| {' | '.join([phase.title, *cells])} |"


def _told(phases: Iterator[Phase]) -> Iterator[Phase]:
    began = time.monotonic()
    for phase in phases:
        took_s = time.monotonic() - began
        print(f"fleet: {phase.title}: done in {took_s:.0f} s", file=sys.stderr, flush=True)
        yield phase
        began = time.monotonic()


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, and print what each part took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=5000)
    parser.add_argument("--steady-minutes", type=int, default=60)
    parser.add_argument("--timer-minutes", type=int, default=1)
    args = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    server = Server()
    try:
        server.start()
        began = time.monotonic()
        fleet = Fleet(server, args.agents)
        took_s = time.monotonic() - began
        print(f"fleet: {args.agents} Nodes in {took_s:.0f} s", file=sys.stderr, flush=True)
        play = Play(server, fleet, steady_s=args.steady_minutes * 60.0, minutes=args.timer_minutes)
        found = tuple(_told(play.phases()))
    finally:
        server.stop()
    print(HEAD, *(row(one, args.agents) for one in found), sep="\n")
    print(f"\nThe same for {LARGE:,} nodes:\n")
    print(LARGE_HEAD, *(large_row(one, args.agents) for one in found), sep="\n")


if __name__ == "__main__":
    main()
