"""``nodetopo health``: checks of the hardware."""

from argparse import Namespace

from agent.cli.parser import Parser, add_output
from agent.cli.source import add_settings, add_source, load


def add(parser: Parser) -> None:
    """Add the flags."""
    add_only(parser)
    add_settings(parser, ("checks_file",), "checks")
    add_output(parser)
    add_source(parser)
    parser.set_defaults(run=run)


def add_only(parser: Parser, areas: str = "nvlink, kubelet, …") -> None:
    """Add ``--only``; *areas* are those of the command, for its help."""
    parser.add_argument(
        "--only",
        metavar="SUBJECT",
        action="append",
        default=[],
        help=f"an area ({areas}) or a code; several by comma or repetition",
    )


def run(args: Namespace) -> int:
    """Run the health rules; 1 when one failed, 3 when one could not tell."""
    from agent.checks.catalogue import HEALTH  # noqa: PLC0415 - keeps `completion` and help fast
    from agent.checks.inputs import missing_gpus  # noqa: PLC0415 - same
    from agent.cli import reports  # noqa: PLC0415 - same

    rules = reports.selected(HEALTH, args.only, "health")
    snapshot = load(args, needs_gpus=False, in_full=True, is_reported=True)
    return reports.judge(snapshot, rules, args, only_problems=bool(missing_gpus(snapshot)))
