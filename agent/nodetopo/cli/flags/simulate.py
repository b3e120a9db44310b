"""The flags of ``nodetopo simulate``."""

from nodetopo.cli.flags.source import add_source
from nodetopo.cli.parser import Parser, add_command, add_output

WORKLOADS = (
    "philly",
    "helios-venus",
    "helios-earth",
    "helios-saturn",
    "helios-uranus",
    "pai",
    "mixed",
)
"""The names of :data:`WORKLOADS`, here so that the parser stays light."""


def add(parser: Parser) -> None:
    """Add the flags."""
    what = parser.add_subparsers(metavar="WHAT", required=True)
    machines = add_command(what, "machines", "list the machines for --machine")
    add_output(machines)
    machines.set_defaults(module="simulate.machines")
    clusters = add_command(what, "clusters", "list the clusters for --cluster")
    add_output(clusters)
    clusters.set_defaults(module="simulate.clusters")
    trace = add_command(
        what, "trace", "compare placement policies on jobs that arrive and leave on one node"
    )
    _add_jobs(trace)
    trace.add_argument(
        "--policy",
        metavar="A,B",
        action="append",
        default=[],
        help="ours: best, numa-first, packed, distributed, nic-required; others': nvidia, "
        "nvidia-sorted, hami, first-fit, kubelet, random; or all. They are compared with the first "
        "(default: best and the others')",
    )
    trace.add_argument(
        "--model",
        choices=("ring", "relay"),
        default="ring",
        help="bandwidth model (default: ring)",
    )
    trace.add_argument("--plot", metavar="FILE", help="also draw bars, to FILE.svg or FILE.png")
    add_output(trace)
    add_source(trace)
    trace.set_defaults(module="simulate.trace")


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
        choices=WORKLOADS,
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
