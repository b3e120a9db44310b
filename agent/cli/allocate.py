"""``nodetopo allocate``: which GPUs a request gets, and why."""

from argparse import Namespace

from agent.cli.parser import Subparsers, add_command, add_output
from agent.cli.source import add_source, load

POLICIES = ("best",)


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(subparsers, "allocate", "print the GPUs that a request would get")
    parser.add_argument("--size", metavar="N", type=int, required=True, help="how many GPUs")
    for flag, text in (
        ("--available", "GPUs to choose from, by comma (default: all that are not lost)"),
        ("--required", "GPUs that must be among the chosen, by comma"),
    ):
        parser.add_argument(flag, metavar="A,B", action="append", default=[], help=text)
    parser.add_argument("--policy", choices=POLICIES, default="best", help="default: best")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="also print the reasons with -o short, and the scores with -o table",
    )
    add_output(parser)
    add_source(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Print the best set; 0.

    Raises:
        InputError: a GPU is unknown, or no set fits.
    """
    from agent.cli import allocation_text  # noqa: PLC0415 - keeps the other commands fast

    allocation_text.answer(load(args), args)
    return 0
