"""``nodetopo health``: checks of the hardware."""

from argparse import Namespace

from nodetopo.cli import judging
from nodetopo.cli.source import load
from nodetopo.components.audit.catalogue import HEALTH
from nodetopo.errors import InputError


def run(args: Namespace) -> int:
    """Run the health rules, or clear GPUs; 1 when something failed, 3 when one could not tell."""
    if args.clear:
        from nodetopo.cli.clear import clear  # noqa: PLC0415 - loads what the checks do not need

        return clear(args)
    if args.only_looks or args.yes:
        flag = "--dry-run" if args.only_looks else "--yes"
        raise InputError(f"{flag} is for --clear", "name a GPU with --clear, or leave it out")
    rules = judging.selected(HEALTH, args.only, "health")
    snapshot = load(args, needs_gpus=False, in_full=True, is_reported=True)
    return judging.judge(snapshot, rules, args)
