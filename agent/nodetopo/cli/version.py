"""``nodetopo version``."""

import platform
from argparse import Namespace

from nodetopo import __version__
from nodetopo.cli.output import Answer, emit
from nodetopo.model import SCHEMA


def run(args: Namespace) -> int:
    """Print versions; 0."""
    python = platform.python_version()
    plain = {"version": __version__, "snapshot_schema": SCHEMA, "python": python}
    table = f"nodetopo {__version__} (snapshot schema {SCHEMA}, Python {python})\n"
    emit(Answer(plain=plain, table=table, short=f"{__version__}\n"), args)
    return 0
