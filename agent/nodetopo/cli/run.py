"""``nodetopo run``: the daemon, or its settings as tables."""

from argparse import Namespace


def run(args: Namespace) -> int:
    """Print the settings, or hand over to the daemon until it ends."""
    from nodetopo.cli.daemon import start  # noqa: PLC0415 - other commands do without

    return start(args)
