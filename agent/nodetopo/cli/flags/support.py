"""The flags of ``nodetopo support``."""

from nodetopo.cli.flags.source import add_settings, add_source
from nodetopo.cli.parser import Parser, add_flags, add_style

DEFAULT_NAME = "nodetopo-support.tar.gz"

_EPILOG = (
    "The archive contains the snapshot, the verdicts of health and audit, labels, the matrix, and "
    "versions. For the live node it also has settings with their origins, the daemon's last log "
    "lines, and metrics. Every command accepts it as --snapshot. Identifiers of the node, "
    "devices, pods and people are replaced consistently in all files, as by `capture --scrub`. "
    "Credentials, addresses and unusual paths are left out. manifest.json lists replacements and "
    "missing parts."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    add_flags(
        parser,
        f"""
    -o --output FILE={DEFAULT_NAME}  - for stdout (default: {DEFAULT_NAME})
    --log FILE  log file, - for stdin, such as the output of `kubectl logs`
    """,
    )
    add_settings(parser, ("health_file", "metrics_address"), "daemon")
    add_style(parser)
    add_source(parser)
    parser.set_defaults(module="support")
