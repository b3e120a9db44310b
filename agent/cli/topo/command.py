"""``nodetopo topo``: the matrix, the tree, and the way between two devices."""

from argparse import Namespace

from agent.cli.parser import FORMATS, Parser, add_command, add_output
from agent.cli.source import add_source


def add(parser: Parser) -> None:
    """Add the flags."""
    what = parser.add_subparsers(metavar="WHAT", required=True)
    matrix = add_command(what, "matrix", "print every device against every other")
    matrix.add_argument(
        "--wide",
        action="store_true",
        help="aligned, with NUMA node, PCI address and link, nearest NIC, NVLink island, rail",
    )
    matrix.add_argument(
        "--nccl",
        action="store_true",
        help="NCCL's path types in place of nvidia-smi's levels; no effect on svg",
    )
    _reader(matrix, "matrix")
    _reader(add_command(what, "tree", "print what hangs where, and the NVLink islands"), "tree")
    path = add_command(what, "path", "print the way between two devices")
    path.add_argument("a", metavar="A", help="index, GPU0, UUID, PCI address, or name of a NIC")
    path.add_argument("b", metavar="B", help="same")
    _reader(path, "path")


def _reader(parser: Parser, what: str) -> None:
    add_output(parser, formats=(*FORMATS, "svg"))
    add_source(parser)
    parser.set_defaults(run=run, what=what)


def run(args: Namespace) -> int:
    """Run the subcommand; 0.

    Raises:
        InputError: `path` names a device that is unknown, or one twice.
    """
    from agent.cli.topo import matrix as topo_matrix  # noqa: PLC0415 - keeps others fast
    from agent.cli.topo import path as topo_path  # noqa: PLC0415 - same
    from agent.cli.topo import tree  # noqa: PLC0415 - same

    runs = {"matrix": topo_matrix.run, "tree": tree.run, "path": topo_path.run}
    return runs[args.what](args)
