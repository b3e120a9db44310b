"""``nodetopo nccl``: what NCCL can be told of this node."""

from argparse import Namespace

from agent.cli.output import Answer, emit
from agent.cli.parser import Parser, add_command, add_output
from agent.cli.source import add_source, load

SCHEMA = "nodetopo/nccl-xml/v1"
"""Names the JSON shape, described by ``docs/reference/schema/nccl-xml.json``."""


def add(parser: Parser) -> None:
    """Add the flags."""
    what = parser.add_subparsers(metavar="WHAT", required=True)
    xml = add_command(what, "xml", "print the topology as a file for NCCL_TOPO_FILE")
    add_output(xml)
    add_source(xml)
    xml.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Print NCCL's topology XML; 0.

    Raises:
        UnreadableError: what is known does not suffice, e.g. no place in the PCI tree.
    """
    from agent.nccl.xml import topology_xml  # noqa: PLC0415 - keeps the others fast

    text = topology_xml(load(args))
    emit(Answer(plain={"schema": SCHEMA, "xml": text}, table=text, short=text), args)
    return 0
