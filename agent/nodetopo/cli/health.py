"""``nodetopo health``: checks of the hardware."""

from argparse import Namespace

from nodetopo.cli import reports
from nodetopo.cli.source import load
from nodetopo.components.audit.catalogue import HEALTH


def run(args: Namespace) -> int:
    """Run the health rules; 1 when one failed, 3 when one could not tell."""
    rules = reports.selected(HEALTH, args.only, "health")
    snapshot = load(args, needs_gpus=False, in_full=True, is_reported=True)
    return reports.judge(snapshot, rules, args)
