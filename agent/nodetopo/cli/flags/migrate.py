"""The flags of ``nodetopo migrate``."""

from nodetopo.cli.parser import FORMATS, Parser, add_flags, add_output

CONFIG = "config"
"""The output that is nodetopo's configuration instead of verdicts."""

_FORMS = (
    "plugin-config",
    "plugin-values",
    "operator-values",
    "nfd-values",
    "nfd-worker",
    "rdma-config",
)
"""As :class:`nodetopo.tools.migrate.forms.Form`, which loads PyYAML."""

_EPILOG = (
    "Reads manifests, Helm values, ConfigMaps and configuration files of NVIDIA's device plugin, "
    "GPU Feature Discovery, Node Feature Discovery, NVIDIA's GPU operator and the RDMA shared "
    "device plugin. Does not contact a cluster. Exit status: 0 everything carries over, "
    "1 a line differs or is not supported, 2 bad input, 3 a line is unknown."
)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, a directory, or -")
    add_flags(parser, "--check  check every line; this is the default")
    parser.add_argument(
        "--as",
        dest="form",
        choices=_FORMS,
        metavar="FORM",
        help=f"form of files without a kind: {', '.join(_FORMS)} (default: by their keys)",
    )
    add_flags(
        parser,
        """
    --write DIR  also write a kustomize overlay that keeps the settings
    --deploy DIR=../..  deploy/daemonset as seen from that overlay (default: ../..)
    """,
    )
    add_output(parser, formats=(*FORMATS, CONFIG))
    parser.set_defaults(module="migrate")
