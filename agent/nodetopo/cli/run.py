"""``nodetopo run``: the daemon, or its settings as tables."""

from argparse import Namespace

from nodetopo.footprint import stay_small


def run(args: Namespace) -> int:
    """Print the settings, or hand over to the daemon until it ends."""
    if not args.print_config:
        stay_small()
    from nodetopo.cli.daemon import start  # noqa: PLC0415 - only once imports are kept small

    return start(args)
