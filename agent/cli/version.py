"""``nodetopo version``."""

import platform
from argparse import Namespace

from agent import __version__
from agent.cli.output import Answer, emit
from agent.model import SCHEMA


def run(args: Namespace) -> int:
    """Print versions; 0."""
    python = platform.python_version()
    plain = {"version": __version__, "snapshot_schema": SCHEMA, "python": python}
    table = f"nodetopo {__version__} (snapshot schema {SCHEMA}, Python {python})\n"
    emit(Answer(plain=plain, table=table, short=f"{__version__}\n"), args)
    return 0
