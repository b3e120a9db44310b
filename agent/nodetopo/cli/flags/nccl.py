"""The flags of ``nodetopo nccl``."""

from nodetopo.cli.flags.source import add_settings, add_source
from nodetopo.cli.parser import FORMATS, Parser, Subparsers, add_command, add_flags, add_output

CONF, POD = "conf", "pod"
"""Formats of ``nccl env`` alone: a file for NCCL, and the ``env`` of a container."""


def add(parser: Parser) -> None:
    """Add the flags."""
    what = parser.add_subparsers(metavar="WHAT", required=True)
    env = add_command(what, "env", "print the variables that assign NICs to GPUs for a job")
    add_flags(
        env,
        """
    --gpus A,B  GPUs of the job: 0,2 or 0-3 (default: all)
    --hcas X,Y  HCAs of the job (default: the nearest, one for each GPU)
    --nccl-version VERSION  only advice for this release, such as 2.21.5 (default: all releases)
    --only NAMES  comma-separated variables (default: all)
    --topo-file PATH  path of the job's topology file for NCCL (default: none)
    --rails  give NCCL from 2.30.7 on the rail of each HCA; only if every node connects each rail to
        the same leaf switch
    """,
    )
    add_output(env, formats=(*FORMATS, CONF, POD))
    add_source(env)
    env.set_defaults(module="nccl.env")
    xml = add_command(what, "xml", "print the topology as a file for NCCL_TOPO_FILE")
    add_flags(
        xml,
        """
    --like HOST.json  snapshot of the host of this virtual machine, whose PCIe switches the file
        gets
    """,
    )
    add_output(xml)
    add_source(xml)
    xml.set_defaults(module="nccl.xml")
    _add_check(what)


def _add_check(what: Subparsers) -> None:
    """Add ``nccl check``."""
    check = add_command(
        what, "check", "compare a log of nccl-tests, perftest or nvbandwidth with the model"
    )
    check.add_argument("file", metavar="FILE", help="the log, - for stdin")
    add_flags(
        check,
        """
    --gpus A,B*  GPUs of the log, in its order, if it has no PCI addresses
    --hca NAME*  HCA of a perftest log; comma-separated, a range, or repeated for the runs of the
        log
    --bandwidth-table FILE  measured bandwidths, YAML or JSON; they take precedence over the model
    --save FILE  save the figures to this bandwidth table, YAML or .json; merge with an existing
        table
    """,
    )
    add_settings(check, ("checks_file",), "checks")
    add_output(check)
    add_source(check)
    check.set_defaults(module="nccl.check")
