"""``nodetopo allocate``: which GPUs a request gets, and why."""

from argparse import Namespace

from agent.allocation.rules import Policy
from agent.cli.measured_file import add_bandwidth, check_stdin
from agent.cli.parser import Parser, Subparsers, add_command, add_output
from agent.cli.source import add_source, load

NVIDIA = "nvidia"
"""Not a policy of ours: NVIDIA's best-effort imitated, to compare with."""

POLICIES = (*(policy.value for policy in Policy), NVIDIA)


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(subparsers, "allocate", "print the GPUs that a request would get")
    parser.add_argument("--size", metavar="N", type=int, required=True, help="how many GPUs")
    for flag, text in (
        ("--available", "GPUs to choose from, by comma (default: all that are not lost)"),
        ("--required", "GPUs that must be among the chosen, by comma"),
        ("--why-not", "a set of the same size: also print where it loses"),
    ):
        parser.add_argument(flag, metavar="A,B", action="append", default=[], help=text)
    _add_rules(parser)
    _add_shares(parser)
    parser.add_argument(
        "--explain",
        action="store_true",
        help="also print the reasons with -o short, and the scores with -o table",
    )
    add_output(parser)
    add_source(parser)
    parser.set_defaults(run=run)


def _add_rules(parser: Parser) -> None:
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        default=Policy.BEST.value,
        metavar="WORD",
        help=f"{', '.join(POLICIES)} (default: best; nvidia is theirs, to compare)",
    )
    add_bandwidth(parser)


def _add_shares(parser: Parser) -> None:
    group = parser.add_argument_group("shared GPUs", "default: whole GPUs")
    shares = group.add_mutually_exclusive_group()
    shares.add_argument(
        "--replicas", metavar="N", type=int, help="offer each GPU N times, as UUID::0 to UUID::N-1"
    )
    shares.add_argument(
        "--mig", metavar="PROFILE", help="choose among the MIG instances of a profile: 1g.10gb"
    )


def run(args: Namespace) -> int:
    """Print the best set; 0.

    Raises:
        InputError: a GPU is unknown, no set fits, or flags contradict each other.
    """
    from agent.cli import allocation_text, nvidia_text  # noqa: PLC0415 - keeps the others fast

    check_stdin(args)
    room = nvidia_text if args.policy == NVIDIA else allocation_text
    room.answer(load(args), args)
    return 0
