"""``nodetopo health``: checks of the hardware."""

from argparse import Namespace

from agent.checks.catalogue import HEALTH
from agent.checks.inputs import missing_gpus
from agent.cli import reports
from agent.cli.source import load


def run(args: Namespace) -> int:
    """Run the health rules; 1 when one failed, 3 when one could not tell."""
    rules = reports.selected(HEALTH, args.only, "health")
    snapshot = load(args, needs_gpus=False, in_full=True, is_reported=True)
    return reports.judge(snapshot, rules, args, only_problems=bool(missing_gpus(snapshot)))
