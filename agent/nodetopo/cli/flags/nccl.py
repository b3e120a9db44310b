"""The flags of ``nodetopo nccl``."""

from typing import Any

from nodetopo.cli.flags.source import add_settings, add_source
from nodetopo.cli.parser import FORMATS, Parser, Subparsers, add_command, add_output

CONF, POD = "conf", "pod"
"""Formats of ``nccl env`` alone: a file for NCCL, and the ``env`` of a container."""


def add(parser: Parser) -> None:
    """Add the flags."""
    what = parser.add_subparsers(metavar="WHAT", required=True)
    env = add_command(what, "env", "print the variables that assign NICs to GPUs for a job")
    env.add_argument("--gpus", metavar="A,B", help="GPUs of the job: 0,2 or 0-3 (default: all)")
    env.add_argument(
        "--hcas", metavar="X,Y", help="HCAs of the job (default: the nearest, one for each GPU)"
    )
    env.add_argument(
        "--nccl-version",
        metavar="VERSION",
        help="only advice for this release, such as 2.21.5 (default: all releases)",
    )
    env.add_argument("--only", metavar="NAMES", help="comma-separated variables (default: all)")
    env.add_argument(
        "--topo-file",
        metavar="PATH",
        help="path of the job's topology file for NCCL (default: none)",
    )
    env.add_argument(
        "--rails",
        action="store_true",
        help="give NCCL from 2.30.7 on the rail of each HCA; only if every node connects each rail "
        "to the same leaf switch",
    )
    add_output(env, formats=(*FORMATS, CONF, POD))
    add_source(env)
    env.set_defaults(module="nccl.env")
    xml = add_command(what, "xml", "print the topology as a file for NCCL_TOPO_FILE")
    xml.add_argument(
        "--like",
        metavar="HOST.json",
        help="snapshot of the host of this virtual machine, whose PCIe switches the file gets",
    )
    add_output(xml)
    add_source(xml)
    xml.set_defaults(module="nccl.xml")
    _add_check(what)


TABLE_HELP = "measured bandwidths, YAML or JSON; they take precedence over the model"


def _add_check(what: Subparsers) -> None:
    """Add ``nccl check``."""
    check = add_command(
        what, "check", "compare a log of nccl-tests, perftest or nvbandwidth with the model"
    )
    check.add_argument("file", metavar="FILE", help="the log, - for stdin")
    check.add_argument(
        "--gpus",
        metavar="A,B",
        action="append",
        default=[],
        help="GPUs of the log, in its order, if it has no PCI addresses",
    )
    check.add_argument(
        "--hca",
        metavar="NAME",
        action="append",
        default=[],
        help="HCA of a perftest log; comma-separated, a range, or repeated for the runs of the log",
    )
    add_table(check)
    check.add_argument(
        "--save",
        metavar="FILE",
        help="save the figures to this bandwidth table, YAML or .json; merge with an existing "
        "table",
    )
    add_settings(check, ("checks_file",), "checks")
    add_output(check)
    add_source(check)
    check.set_defaults(module="nccl.check")


def add_table(parser: Any) -> None:
    """Add ``--bandwidth-table``."""
    parser.add_argument("--bandwidth-table", metavar="FILE", help=TABLE_HELP)
