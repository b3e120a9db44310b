"""The flags of ``nodetopo allocate``."""

from nodetopo.allocation.rules import Model, Policy
from nodetopo.cli.flags.source import add_source
from nodetopo.cli.parser import Parser, add_output

NVIDIA = "nvidia"
"""NVIDIA's best-effort policy, imitated for comparison."""

POLICIES = (*(policy.value for policy in Policy), NVIDIA)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.add_argument("--size", metavar="N", type=int, required=True, help="number of GPUs")
    for flag, text in (
        (
            "--available",
            "GPUs to choose from: 0,2 or 0-3 (default: all except lost GPUs and GPUs in MIG mode)",
        ),
        ("--required", "comma-separated GPUs that must be in the set"),
        ("--degraded", "GPUs to choose last (default: degraded GPUs)"),
        ("--why-not", "a set of the same size: also print the criterion it loses on"),
    ):
        parser.add_argument(flag, metavar="A,B", action="append", default=[], help=text)
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        default=Policy.BEST.value,
        metavar="WORD",
        help=f"{', '.join(POLICIES)} (default: best; nvidia is theirs, to compare)",
    )
    parser.add_argument(
        "--bandwidth-model",
        choices=tuple(model.value for model in Model),
        default=Model.RING.value,
        metavar="WORD",
        help=f"{', '.join(Model)} (default: ring)",
    )
    parser.add_argument(
        "--bandwidth-table",
        metavar="FILE",
        help="measured bandwidths, YAML or JSON, - for stdin; they take precedence over the model",
    )
    group = parser.add_argument_group("shared GPUs", "default: whole GPUs")
    shares = group.add_mutually_exclusive_group()
    shares.add_argument(
        "--replicas",
        metavar="N",
        type=int,
        help="advertise each GPU N times, as UUID::0 to UUID::N-1",
    )
    shares.add_argument(
        "--mig", metavar="PROFILE", help="choose among the MIG instances of a profile: 1g.10gb"
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="also print the reasons with -o short, and the scores with -o table",
    )
    add_output(parser)
    add_source(parser)
    parser.set_defaults(module="allocate")
