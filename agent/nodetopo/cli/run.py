"""``nodetopo run``: the daemon, or its settings as tables."""

import os
import sys
from argparse import Namespace
from pathlib import Path

import structlog

from nodetopo.cli.files import STDIO, read_text
from nodetopo.cli.flags.run import NVIDIA_DEST
from nodetopo.cli.settings import given
from nodetopo.kernel import logs
from nodetopo.kernel.settings.nvidia.names import NVIDIA_CONFIG_VARIABLE
from nodetopo.kernel.settings.reload import Reloader, Sources
from nodetopo.kernel.settings.resolve import CONFIG_VARIABLE


def run(args: Namespace) -> int:
    """Resolve the settings; print them, or run the daemon with them until it ends."""
    if args.print_config:
        return _start(args)
    with logs.own_stderr():
        return _start(args)


def _start(args: Namespace) -> int:
    pipes: dict[str, str] = {}

    def read(name: str) -> str:
        """Return the current text of a file, or the first text read from a pipe."""
        if name in pipes:
            return pipes[name]
        text = read_text(name)
        if name == STDIO or Path(name).is_fifo():
            pipes[name] = text
        return text

    parsed = vars(args).items()
    variables = (os.environ.get(name) for name in (CONFIG_VARIABLE, NVIDIA_CONFIG_VARIABLE))
    sources = Sources(
        read=read,
        flags=given(args),
        nvidia_flags={
            dest.removeprefix(NVIDIA_DEST): text
            for dest, text in parsed
            if dest.startswith(NVIDIA_DEST)
        },
        environment=dict(os.environ),
        file=args.config or next(filter(None, variables), None),
    )
    base = sources.resolved()
    if not args.print_config:
        logs.configure(base.settings.log_format, base.settings.log_level, in_background=True)
    elif base.settings.config_dir is not None:  # the API server's answers may be logged
        logs.configure(base.settings.log_format, "error")
    reloader = Reloader(sources, base)
    reloader.start()
    if args.print_config:
        reloader.close()
        from nodetopo.cli.print_config import print_config  # noqa: PLC0415 - a daemon never does

        print_config(args, reloader)
        return 0
    from nodetopo.kernel import app  # noqa: PLC0415 - loads grpc, after the settings are valid

    settings = reloader.current.settings
    logs.configure(settings.log_format, settings.log_level, in_background=True)
    for text in reloader.current.warnings:
        structlog.get_logger().warning("setting", about=text)
    if not (settings.once or sys.stdout.isatty()):
        return app.run(settings, None, reloader)
    from nodetopo.cli.startup import show_when_ready  # noqa: PLC0415 - memory of unwatched daemons

    return app.run(settings, show_when_ready, reloader)
