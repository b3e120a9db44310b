"""The flags of ``nodetopo support``."""

from nodetopo.cli.flags.source import add_settings, add_source
from nodetopo.cli.parser import Parser, add_style

DEFAULT_NAME = "nodetopo-support.tar.gz"

_EPILOG = (
    "The archive holds the snapshot, the verdicts of health and audit, labels, the matrix, "
    "versions, and of the live node settings with their origins, the daemon's last log lines and "
    "metrics. "
    "Every command takes it for --snapshot. What identifies node, devices, pods and people is "
    "replaced as by `capture --scrub`, in all files alike; credentials, addresses and paths that "
    "are not the usual ones are left out. manifest.json says what was replaced and what is missing."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "-o",
        "--output",
        default=DEFAULT_NAME,
        metavar="FILE",
        help=f"- for stdout (default: {DEFAULT_NAME})",
    )
    parser.add_argument(
        "--log", metavar="FILE", help="take the log from here, - for stdin, as of `kubectl logs`"
    )
    add_settings(parser, ("health_file", "metrics_address"), "daemon")
    add_style(parser)
    add_source(parser)
    parser.set_defaults(module="support")
