"""``nodetopo nccl xml``: the topology as a file for NCCL."""

from argparse import Namespace

from nodetopo.cli.output import Answer, emit
from nodetopo.cli.source import load
from nodetopo.nccl.xml import topology_xml

SCHEMA = "nodetopo/nccl-xml/v1"
"""Names the JSON shape, described by ``docs/reference/schema/nccl-xml.json``."""


def run(args: Namespace) -> int:
    """Print NCCL's topology XML; 0.

    Raises:
        UnreadableError: known facts do not suffice, e.g. no position in the PCI tree.
    """
    text = topology_xml(load(args))
    emit(Answer(plain={"schema": SCHEMA, "xml": text}, table=text, short=text), args)
    return 0
